"""What a compressed memory still answers within equal characters.

The product's own index, fusion and AGPR, over whatever nodes a method left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daemon.asking.showing import NEARNESS_WEIGHT
from projections.recall.agpr import AgprParameters
from projections.recall.lexical import LexicalIndex
from tests.quality.compression_inputs import Inputs
from tests.quality.ranking import rank_all

# The nodes there are: the memories in each, by index, in order of time. A pruned memory is in none.
Groups: TypeAlias = Sequence[tuple[int, ...]]
Shares: TypeAlias = NDArray[np.float64]

CHARACTERS: Final = 4_000
# Nodes ranked: more than fit.
DEPTH: Final = 150
# How much a member's own nearness counts beside its group's score.
MEMBER_WEIGHT: Final = NEARNESS_WEIGHT
# Those of `LexicalIndex`.
K1: Final = 1.2
B: Final = 0.75


class Near(Enum):
    """What says how near a member of a group is to the question, once the group was found."""

    WORDS = "words"
    COSINE = "cosine"


@dataclass(frozen=True, slots=True)
class Setting:
    """How nodes are searched and returned.

    `agpr` with gamma 1 is search without AGPR; `k` says how many candidates and anchors it has. `opened`: a group
    returns its members, the nearest first, each ranked by the group's score and, with `member_weight`, by its own
    nearness, as `daemon.asking.showing` does it; else its whole text or nothing.
    """

    name: str
    agpr: AgprParameters
    k: int = 10
    opened: bool = True
    characters: int = CHARACTERS
    near: Near = Near.WORDS
    member_weight: float = MEMBER_WEIGHT


class _Piece(NamedTuple):
    """A text that may be returned and the turns it stands for; a head opens a node's place."""

    is_head: bool
    characters: int
    turn_ids: frozenset[str]


class Compressed:
    """The nodes that a method left of one conversation, scored once for all settings."""

    def __init__(self, inputs: Inputs, groups: Groups) -> None:
        """Raises `ValueError` when a memory is in two groups, or a group is empty."""
        members = [member for group in groups for member in group]
        if len(set(members)) < len(members) or not all(groups):
            raise ValueError("groups are disjoint and none is empty")
        self.inputs = inputs
        self.groups = [tuple(sorted(group)) for group in groups]
        self._said_at = np.array([inputs.memories[group[-1]].said_at for group in self.groups], dtype=np.int64)
        self._ties = np.arange(len(self.groups), dtype=np.int64)
        self._cosines = (inputs.question_vectors @ self.vectors().T).astype(np.float64)
        self._lengths = np.array([sum(each.values()) for each in inputs.term_counts], dtype=np.float64)

    def __len__(self) -> int:
        """Nodes that are left."""
        return len(self.groups)

    @property
    def cut(self) -> float:
        """The share of nodes removed."""
        return 1 - len(self.groups) / len(self.inputs)

    def vectors(self) -> NDArray[np.float32]:
        """Of each node the normalised sum of its members' vectors, shape (nodes, d)."""
        rows = np.zeros((len(self.groups), self.inputs.vectors.shape[1]), dtype=np.float32)
        for row, group in enumerate(self.groups):
            rows[row] = self.inputs.vectors[list(group)].sum(axis=0)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: NDArray[np.float32] = rows / np.maximum(lengths, 1e-9)
        return unit

    def shares(self, setting: Setting) -> Shares:
        """Of each question the share of its gold turns that fit into the characters, shape (questions,)."""
        depth = max(setting.k, DEPTH)
        lexical = self._by_members if setting.opened else self._by_text
        ranked = rank_all(lexical, self._cosines, self._said_at, setting.k, depth, setting.agpr)
        found: list[float] = []
        for number, question in enumerate(self.inputs.questions):
            rows, scores = ranked.rows[number].tolist(), ranked.values[number].tolist()
            if setting.opened:
                pieces = self._open(rows, scores, self.nearness(number, setting.near), setting.member_weight)
            else:
                pieces = self._leave_whole(rows)
            found.append(len(_fit(pieces, setting.characters) & question.gold) / len(question.gold))
        return np.array(found)

    @cached_property
    def _members(self) -> LexicalIndex:
        """The groups by their members' words, as the daemon searches those that are opened."""
        index = LexicalIndex()
        for row, group in enumerate(self.groups):
            index.add_together(row, [self.inputs.term_counts[member] for member in group])
        return index

    @cached_property
    def _by_members(self) -> NDArray[np.float64]:
        """What each question's words find of them, shape (questions, groups)."""
        return self._score(self._members)

    @cached_property
    def _by_text(self) -> NDArray[np.float64]:
        """The same by all that a group says, as the daemon searches what a model wrote."""
        index = LexicalIndex()
        for row, group in enumerate(self.groups):
            held: Counter[int] = Counter()
            for member in group:
                held.update(self.inputs.term_counts[member])
            index.add_hashed(row, held)
        return self._score(index)

    def _score(self, index: LexicalIndex) -> NDArray[np.float64]:
        asked = self.inputs.question_terms
        return np.array([index.scores(each, len(self.groups)) for each in asked], dtype=np.float64)

    def _leave_whole(self, rows: list[int]) -> Iterator[_Piece]:
        memories = self.inputs.memories
        for row in rows:
            group = self.groups[row]
            turn_ids = frozenset[str]().union(*(memories[member].turn_ids for member in group))
            yield _Piece(True, sum(len(memories[member].text) for member in group) + len(group) - 1, turn_ids)

    def _open(self, rows: list[int], scores: list[float], near: list[float], weight: float) -> Iterator[_Piece]:
        """Each member by itself, the worthiest first; `near` is of every memory."""
        waiting: list[tuple[float, int, int]] = []
        places = count()
        for row, score in zip(rows, scores, strict=True):
            # No member is worth more than its group, so whatever is worth as much as the next one comes before.
            while waiting and waiting[0][0] <= -score:
                yield self._piece(heappop(waiting)[-1], is_head=False)
            group = self.groups[row]
            if len(group) == 1:
                yield self._piece(group[0], is_head=True)
                continue
            head, *others = sorted(group, key=lambda member: -near[member])
            yield self._piece(head, is_head=True)
            for member in others:
                share = near[member] / near[head] if near[head] else 1.0
                heappush(waiting, (-score * (1 - weight + weight * share), next(places), member))
        while waiting:
            yield self._piece(heappop(waiting)[-1], is_head=False)

    def _piece(self, member: int, *, is_head: bool) -> _Piece:
        memory = self.inputs.memories[member]
        return _Piece(is_head, len(memory.text), memory.turn_ids)

    def nearness(self, question: int, near: Near) -> list[float]:
        """Of every memory to a question, not below 0.

        By words it is what `LexicalIndex.score_counts` of the index by members' words gives its text.
        """
        inputs = self.inputs
        if near is Near.COSINE:
            cosines: list[float] = np.maximum(inputs.vectors @ inputs.question_vectors[question], 0).tolist()
            return cosines
        weights = self._members.weights(inputs.question_terms[question])
        counts = inputs.asked[question]
        mean = np.mean([round(self._lengths[list(group)].mean()) for group in self.groups])
        shares = counts / (counts + K1 * (1 - B + B * self._lengths / mean))
        scores: list[float] = (np.array(list(weights.values())) @ shares).tolist()
        return scores


def _fit(pieces: Iterable[_Piece], characters: int) -> frozenset[str]:
    """The turns of what is returned; a text whose turns are all there already is not returned again.

    The first head that does not fit ends the answer; of the rest of a group whatever fits is returned.
    """
    seen = set[str]()
    for piece in pieces:
        if piece.turn_ids <= seen:
            continue
        if piece.characters <= characters:
            characters -= piece.characters
            seen |= piece.turn_ids
        elif piece.is_head:
            break
    return frozenset(seen)
