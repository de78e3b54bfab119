"""Forgetting: what is erased, step by step, and the proof of it."""
