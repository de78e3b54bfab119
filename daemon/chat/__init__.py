"""A language model at an endpoint: what it is asked, and how its answers are checked, mended and split."""
