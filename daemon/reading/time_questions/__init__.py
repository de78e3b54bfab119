"""Time in questions: what kind of time a question asks for, which days it names, and beside what."""
