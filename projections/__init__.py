"""What can be read from the log: facts, MemTree, EventTree and recall. Pure folds; no input or output."""
