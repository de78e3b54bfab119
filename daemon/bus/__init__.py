"""The bus: NATS connections, streams, subjects, what is published and erased there."""
