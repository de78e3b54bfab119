"""What grows memory from turns: the worker, compaction, corrections and replays."""
