"""The built-in models: rules and hashed n-grams. Deterministic, no network, no key."""
