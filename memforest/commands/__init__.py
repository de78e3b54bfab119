"""The commands of `memforest`, one file for each thing people come for."""
