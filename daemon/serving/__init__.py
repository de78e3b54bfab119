"""The socket: JSON-RPC and HTTP on one path, the table of methods, metrics and schemas."""
