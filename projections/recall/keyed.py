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
    for term in terms:
        yield int.from_bytes(
            blake2b(term.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES, key=key).digest()
        )


def hash_mark(key: bytes, kind: str, parts: Iterable[str]) -> int:
    """The hash of a mark, other for each kind and for each way of cutting the same characters into parts."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in (kind, *parts)]
    content = b"".join([len(each).to_bytes(4, "big") + each for each in encoded])
    return int.from_bytes(blake2b(content, digest_size=_HASH_BYTES, key=key, person=b"mf.mark").digest())
