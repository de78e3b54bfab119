"""Vectors without a model: hashed character n-grams, the same on every machine.

Good enough to build EventTrees, scenes and root recall (quality.md 4.4), not to rank answers by.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import numpy as np

from daemon.offline.sentences import CJK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.ports import Vectors

# Up to here a call takes some two milliseconds; more goes to a thread, off the loop.
INLINE_TEXTS_MAX: Final = 4
INLINE_CHARS_MAX: Final = 1_000

_CJK_RUN = re.compile(f"[{CJK}]+")


class HashingEmbedder:
    """Character 3- to 5-grams within words, hashed to `dimensions` columns; rows have length 1."""

    def __init__(self, dimensions: int = 1024) -> None:
        """`dimensions` is the width of a row; fewer mean more collisions."""
        if dimensions < 1:
            raise ValueError("an embedder needs at least one dimension")
        self._dimensions = dimensions

    @cached_property
    def _vectorizer(self) -> Any:
        # Importing it takes longer than all else of a start, and most daemons never embed anything.
        from sklearn.feature_extraction.text import HashingVectorizer

        options: dict[str, Any] = {
            "analyzer": "char_wb",
            "ngram_range": (3, 5),
            "n_features": self._dimensions,
            "norm": None,
            "dtype": np.float32,
            "lowercase": False,
            "preprocessor": _prepared,
        }
        return HashingVectorizer(**options)

    @property
    def name(self) -> str:
        """A fingerprint: other vectors, other name."""
        return f"offline-hashing-1-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """Width of a row."""
        return self._dimensions

    @property
    def trouble(self) -> None:
        """It cannot fail."""
        return

    @property
    def ranks(self) -> bool:
        """False: BM25 alone ranks better than these cosines (algorithms.md 3)."""
        return False

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text, in the order given, shape (len(texts), dimensions); many texts in a thread."""
        # A copy: the caller's list may change while a thread reads it.
        kept = tuple(texts)
        ready = "_vectorizer" in self.__dict__
        if ready and len(kept) <= INLINE_TEXTS_MAX and sum(map(len, kept)) <= INLINE_CHARS_MAX:
            return self.rows(kept)
        return await anyio.to_thread.run_sync(partial(self.rows, kept))

    async def embed_question(self, text: str) -> Vectors:
        """The unit vector of a question, shape (dimensions,)."""
        row: Vectors = (await self.embed([text]))[0]
        return row

    def rows(self, texts: Sequence[str]) -> Vectors:
        """The same as `embed`, on the calling thread."""
        if not texts:
            return np.zeros((0, self._dimensions), dtype=np.float32)
        rows: Vectors = np.ascontiguousarray(self._vectorizer.transform(texts).toarray(), dtype=np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64)).astype(np.float32)
        # An empty text has no n-gram; a fixed unit row keeps every cosine defined.
        nothing = lengths == 0
        rows[nothing, 0] = 1.0
        lengths[nothing] = 1.0
        rows /= lengths[:, np.newaxis]
        return rows


def _prepared(text: str) -> str:
    """Case and width folded; a run of Chinese or Japanese as its overlapping pairs, for it has no spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return folded if folded.isascii() else _CJK_RUN.sub(_pairs, folded)


def _pairs(run: re.Match[str]) -> str:
    characters = run[0]
    if len(characters) == 1:
        return f" {characters} "
    return f" {' '.join(characters[i : i + 2] for i in range(len(characters) - 1))} "
