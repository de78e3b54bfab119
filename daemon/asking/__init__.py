"""What answers questions: queries, listings, structures, the past and the why."""
