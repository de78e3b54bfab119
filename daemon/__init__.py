"""The running process: bus, worker, models, socket. The only room with nats, openai, structlog and signals."""
