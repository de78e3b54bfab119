"""64-bit keyed hashes: how an index knows a word or a mark without keeping it.

The key is the user's own, so the indexes of two users have no number in common to compare by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

# Of a million different words two are taken for one with a chance of 3 in a hundred million.
_HASH_BYTES = 8


def hash_terms(key: bytes, terms: Iterable[str]) -> Iterator[int]:
    """The hash of each term; `key` has at most 64 bytes."""
    begun = blake2b(digest_size=_HASH_BYTES, key=key)
    for term in terms:
        hashed = begun.copy()
        hashed.update(term.encode("utf-8", "surrogatepass"))
        yield int.from_bytes(hashed.digest())


def hash_mark(key: bytes, kind: str, parts: Iterable[str]) -> int:
    """The hash of a mark, other for each kind and for each way of cutting the same characters into parts."""
    return MarkHash(key)(kind, *parts)


class MarkHash:
    """`hash_mark` under one key: what is the same for all marks of a kind is hashed once."""

    def __init__(self, key: bytes) -> None:
        """`key`: the user's reference; at most 64 bytes."""
        self._key = key
        # Kinds are words of ours, and few.
        self._begun: dict[str, blake2b] = {}

    def __reduce__(self) -> tuple[type[MarkHash], tuple[bytes]]:
        """To be pickled without what was begun, which cannot be."""
        return MarkHash, (self._key,)

    def __call__(self, kind: str, *parts: str) -> int:
        """The hash of a mark."""
        begun = self._begun.get(kind)
        if begun is None:
            begun = blake2b(_framed(kind), digest_size=_HASH_BYTES, key=self._key, person=b"mf.mark")
            self._begun[kind] = begun
        hashed = begun.copy()
        for part in parts:
            hashed.update(_framed(part))
        return int.from_bytes(hashed.digest())


def _framed(part: str) -> bytes:
    encoded = part.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(4, "big") + encoded
