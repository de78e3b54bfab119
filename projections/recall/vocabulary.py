"""The words that a user's memories say, as vectors: what a question's words are compared with, one by one.

No word is kept: each is a 64-bit hash under the user's key, with its vector and the hash of its term in the
lexical index. A word that no node says any more is gone. Vectors are whole numbers and so are their sums: what is
near does not depend on the order in which anything was said.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from projections.recall.keyed import hash_terms
from projections.recall.products import integer_products, side_by_side
from projections.recall.tokens import single_terms, terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Cosines: TypeAlias = "NDArray[np.float32]"

WordVector: TypeAlias = "NDArray[np.int8]"

# A word is related to another from this cosine on, both seen from the mean of all words.
RELATED_MIN: Final = 0.2
COSINE_DECIMALS: Final = 5
# Words of a question that are looked at, the rarest ones, and characters of a word.
ASKED_MAX: Final = 6
WORD_LENGTH_MAX: Final = 32
# With fewer words their mean says nothing of what all words have in common.
WORDS_MIN: Final = 50
# Words that are looked at for each related term: several may be forms of one.
_SURFACES: Final = 3
_SCALE: Final = 127
# The sum of all vectors is compared in digits that fit where vectors do.
_DIGIT: Final = 128
# About what a word takes beside its vector, and a node beside its words.
_WORD_BYTES: Final = 120
_NODE_BYTES: Final = 250
_GROWTH_MIN: Final = 256

_WORD: Final = re.compile(r"[^\W\d_]{2,}")
# "On 1 May" is no "might", and a year no other year.
_DATING: Final = frozenset(
    terms("January February March April May June July August September October November December")
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it was written, in small letters, and its term."""

    text: str
    term: str


def split_words(text: str) -> list[Word]:
    """The distinct words of a text that mean something, in their order; none of an unspaced script."""
    words = list(dict.fromkeys(word.lower()[:WORD_LENGTH_MAX] for word in _WORD.findall(text)))
    of_words = single_terms(words)
    return [Word(word, of_words[word]) for word in words if word in of_words and of_words[word] not in _DATING]


def to_whole(vectors: NDArray[np.floating]) -> NDArray[np.int8]:
    """Unit rows as whole numbers."""
    whole: NDArray[np.int8] = np.rint(np.clip(vectors, -1, 1) * _SCALE).astype(np.int8)
    return whole


@dataclass(frozen=True, slots=True)
class Hashed:
    """A word and its term, both as hashes."""

    word: int
    term: int


class Vocabulary:
    """The words of the nodes that were put in; `missing` are those that are searched and were not read yet."""

    def __init__(self, key: bytes, dimensions: int, missing: Iterable[bytes] = ()) -> None:
        """`key`: the user's reference, as the lexical index has it."""
        self.missing = set(missing)
        self._key = key
        self._numbers: dict[int, int] = {}
        self._free: list[int] = []
        self._holders = array("I")
        self._terms = np.zeros(0, dtype=np.uint64)
        self._vectors = np.zeros((0, dimensions), dtype=np.int8)
        self._words_of: dict[bytes, bytes] = {}
        # The square of the length of each row.
        self._own = np.zeros(0, dtype=np.int64)
        self._total = np.zeros(dimensions, dtype=np.int64)
        # Of each row, after a change made anew: what `_look` gives.
        self._seen: tuple[Cosines, Cosines] | None = None

    def __len__(self) -> int:
        """How many words there are."""
        return len(self._numbers)

    def __contains__(self, node_id: bytes) -> bool:
        """Whether a node's words are in here."""
        return node_id in self._words_of

    @property
    def size_bytes(self) -> int:
        """About what all of this takes."""
        nodes = _NODE_BYTES * len(self._words_of)
        return self._vectors.nbytes + _WORD_BYTES * len(self._numbers) + nodes

    @property
    def node_ids(self) -> frozenset[bytes]:
        """The nodes whose words are in here."""
        return frozenset(self._words_of)

    def hash_words(self, words: Sequence[Word]) -> list[Hashed]:
        """The words as they are known here."""
        hashes = hash_terms(self._key, (each.text for each in words))
        of_terms = hash_terms(self._key, (each.term for each in words))
        return [Hashed(word, term) for word, term in zip(hashes, of_terms, strict=True)]

    def knows(self, word: int) -> bool:
        """Whether a node says it."""
        return word in self._numbers

    def vector(self, word: int) -> WordVector | None:
        """That of a word which a node says."""
        number = self._numbers.get(word)
        return None if number is None else self._vectors[number].copy()

    def put(self, node_id: bytes, words: Iterable[Hashed], vectors: Mapping[int, WordVector]) -> None:
        """The words of a node, each once; `vectors` of those that no other node says, by their hashes.

        ValueError if its words are here already.
        """
        if node_id in self._words_of:
            raise ValueError("its words are here already")
        self.missing.discard(node_id)
        numbers = array("I", [self._number(each, vectors) for each in words])
        for number in numbers:
            self._holders[number] += 1
        self._words_of[node_id] = numbers.tobytes()
        self._seen = None

    def remove(self, node_id: bytes) -> None:
        """Forget a node's words but for those that others say; nothing for a node that is not here."""
        self.missing.discard(node_id)
        numbers = array("I")
        numbers.frombytes(self._words_of.pop(node_id, b""))
        gone: set[int] = set()
        for number in numbers:
            self._holders[number] -= 1
            if not self._holders[number]:
                gone.add(number)
        if gone:
            for word in [word for word, number in self._numbers.items() if number in gone]:
                del self._numbers[word]
            for number in sorted(gone):
                self._total -= self._vectors[number]
                self._vectors[number], self._terms[number], self._own[number] = 0, 0, 0
            self._free += sorted(gone, reverse=True)
            self._seen = None

    def related(self, asked: Sequence[tuple[Hashed, WordVector]], count: int) -> dict[int, dict[int, float]]:
        """By each asked word's term the terms of up to `count` related words, with their cosines; not its own."""
        found: dict[int, dict[int, float]] = {}
        if not asked or len(self) < WORDS_MIN:
            return found
        cosines = self._cosines(np.stack([vector for _, vector in asked]))
        for (word, _), of_word in zip(asked, cosines, strict=True):
            known = found.setdefault(word.term, {})
            for term, cosine in self._nearest(of_word, word.term, count).items():
                known[term] = max(cosine, known.get(term, 0.0))
        return found

    def _nearest(self, of_word: Cosines, own: int, count: int) -> dict[int, float]:
        """The terms of up to `count` rows with the highest of these cosines, each with its best one; not `own`."""
        (places,) = (of_word >= RELATED_MIN).nonzero()
        values, most = of_word[places], _SURFACES * count
        if len(places) > most:
            near = values >= np.partition(values, -most)[-most]
            places, values = places[near], values[near]
        rounded, terms_of = values.astype(np.float64).round(COSINE_DECIMALS), self._terms[places]
        order = np.lexsort((terms_of, -rounded))
        best: dict[int, float] = {}
        for term, cosine in zip(terms_of[order].tolist(), rounded[order].tolist(), strict=True):
            if len(best) == count:
                break
            if term != own:
                best.setdefault(term, cosine)
        return best

    def _cosines(self, asked: NDArray[np.int8]) -> Cosines:
        """Cosines of asked vectors with all rows, (asked, rows), seen from the mean; 0 where a row is free."""
        count = len(self)
        with_mean, per_length = self._look()
        rows = len(self._holders)
        products = np.ascontiguousarray(side_by_side(asked, self._vectors[:rows]).T, dtype=np.float32)
        whole = asked.astype(np.int64)
        asked_total, own = whole @ self._total, (whole * whole).sum(axis=1)
        mean = float(self._total @ self._total) / count**2
        lengths = np.sqrt(np.maximum(own - 2 * asked_total / count + mean, 1e-9))
        products -= with_mean[:rows]
        products -= (asked_total / count - mean).astype(np.float32)[:, None]
        products *= per_length[:rows]
        products *= (1 / lengths).astype(np.float32)[:, None]
        return products

    def _look(self) -> tuple[Cosines, Cosines]:
        """Of each row its product with the mean of all, and 1 / its distance from it; 0 where it is free."""
        if self._seen is None:
            count, own = len(self), self._own
            with_mean = self._with_total() / count
            mean = float(self._total @ self._total) / count**2
            squares = np.where(own > 0, own - 2 * with_mean + mean, 0.0)
            lengths = np.sqrt(np.maximum(squares, 0.0))
            per_length = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
            self._seen = with_mean.astype(np.float32), per_length.astype(np.float32)
        return self._seen

    def _with_total(self) -> NDArray[np.int64]:
        """The product of each row with the sum of all, digit by digit of that: many times as fast as in int64."""
        left, scale = self._total, 1
        products = np.zeros(len(self._vectors), dtype=np.int64)
        while left.any():
            digit = (left + _DIGIT // 2) % _DIGIT - _DIGIT // 2
            of_digit = np.empty((1, len(self._vectors)), dtype=np.float32)
            integer_products(digit.astype(np.int8)[None], self._vectors, of_digit)
            products += scale * of_digit[0].astype(np.int64)
            left, scale = (left - digit) // _DIGIT, scale * _DIGIT
        return products

    def _number(self, word: Hashed, vectors: Mapping[int, WordVector]) -> int:
        number = self._numbers.get(word.word)
        if number is None:
            number = self._free.pop() if self._free else self._grow()
            self._numbers[word.word] = number
            self._terms[number] = word.term
            self._vectors[number] = vectors[word.word]
            self._total += vectors[word.word]
            whole = vectors[word.word].astype(np.int64)
            self._own[number] = whole @ whole
        return number

    def _grow(self) -> int:
        number = len(self._holders)
        self._holders.append(0)
        if number >= len(self._terms):
            size = max(_GROWTH_MIN, number + number // 2)
            more = size - len(self._terms)
            self._terms = np.concatenate((self._terms, np.zeros(more, dtype=np.uint64)))
            self._own = np.concatenate((self._own, np.zeros(more, dtype=np.int64)))
            empty = np.zeros((more, self._vectors.shape[1]), dtype=np.int8)
            self._vectors = np.concatenate((self._vectors, empty))
        return number
