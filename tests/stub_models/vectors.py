"""Vectors from hashes of words, so that texts with common words are near; the same text, the same vector.

A word weighs as much as it is long: the short ones stand in every sentence, and embedders make little of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

# Words whose vectors are kept; a conversation has some thousands.
WORDS_KEPT = 50_000
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=WORDS_KEPT)
def _word(word: str, seed: int, dimensions: int) -> NDArray[np.float32]:
    number = int.from_bytes(
        blake2b(word.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest(), "little"
    )
    return np.random.Generator(np.random.PCG64(number)).standard_normal(dimensions, dtype=np.float32)


def embed(text: str, seed: int, dimensions: int) -> NDArray[np.float32]:
    """The unit vector of a text, shape (dimensions,); of a text without words it is that of the empty word."""
    words = _WORD.findall(text.lower()) or [""]
    rows = [max(len(word), 1) * _word(word, seed, dimensions) for word in words]
    total = np.sum(rows, axis=0, dtype=np.float32)
    return np.asarray(total / np.linalg.norm(total), np.float32)
