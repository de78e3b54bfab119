"""Rules about what was said and what a model made of it: times, coverage, small talk, our own words come back."""
