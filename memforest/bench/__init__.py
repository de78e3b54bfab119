"""`memforest bench`: LoCoMo, LongMemEval and PersonaMem through a running daemon, scored and put into tables."""
