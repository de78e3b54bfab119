"""What happened: event types, their codec, the append-only log and the session registry."""
