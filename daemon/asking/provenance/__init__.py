"""What stands behind a memory and above it, as `why` tells it."""
