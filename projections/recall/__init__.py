"""Recall: lexical and dense scores, anchor-guided propagation, and the answer made of them."""
