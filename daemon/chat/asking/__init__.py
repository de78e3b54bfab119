"""What a model is asked for a query: a file a task, with its prompt, the form of its answer, and its reader."""
