"""Chunks, canonical facts and the scopes they belong to."""
