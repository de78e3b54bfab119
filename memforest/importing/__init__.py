"""Readers of other systems' exports: generators from a file to native messages (design 4.1), holding one item.

What cannot be read is skipped with its place and a reason that quotes nothing; times are taken, never made up.
"""
