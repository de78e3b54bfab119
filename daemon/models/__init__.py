"""Models at an endpoint, and the choice among all embedders."""
