"""EventTree: semantic-temporal units whose redundant nodes are merged (paper A)."""
