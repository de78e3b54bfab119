"""Which occurrences say nearly the same: the candidates by rule, and those of them that are alike.

Two readings may be one fact only if they speak of the same days, names, numbers and negation, and disagree neither
in role nor in state (algorithms.md 1). That leaves few candidates, found block by block without an index; of those
the cosine decides, and a model's verdict where there is one. Without a verdict both have to have the same words
(`saying`): "bought" is as near to "sold" as it is to "purchased".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from events.decisions import PairVerdict
from events.memory import FactId, FactRole, Pointer
from projections.facts.attributes import canonical_attribute
from projections.facts.canonical import Block, Canon, Likeness, Occurrence, Pair
from projections.facts.saying import Said, say_the_same
from projections.facts.stances import Stance
from projections.facts.wording import Wording, agree_firmly

# Cosines are rounded to as many places as thresholds have: last bits differ with what a row is computed beside.
_PLACES = 5
_NOWHERE = np.empty(0, np.int64)
# A model is asked about the nearest ones of a reading: what is not the same as these is nothing but itself.
ASKED_MAX = 3
# Facts of one day that what is new is compared with. Where more are known, as on the day of an import, all that
# does not say exactly the same stays apart.
COMPARED_WITH_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Reading:
    """What decides whether an occurrence is like another; `vector` is a unit vector, None when there is none."""

    vector: NDArray[np.float32] | None
    wording: Wording
    said: Said


@dataclass(frozen=True, slots=True)
class Nearness:
    """The readings that were wanted (`Candidates.wanted`), and the cosine from which on two may say the same.

    With `judged` a model has the last word of a pair. `fresh`: facts that were admitted without being compared.
    """

    readings: Mapping[Pointer, Reading]
    threshold: float
    judged: bool = False
    fresh: Collection[FactId] = ()


@dataclass(slots=True)
class Links:
    """Readings that are one fact, pairs that only a model can tell, and occurrences that have to wait."""

    same: list[Pair] = field(default_factory=list[Pair])
    unjudged: list[Pair] = field(default_factory=list[Pair])
    undecided: set[Pointer] = field(default_factory=set[Pointer])


class _Kind(NamedTuple):
    """What an occurrence is about: whom it surely names, whom it may name, and what it tells of them."""

    sure: frozenset[str]
    named: frozenset[str]
    role: FactRole
    state: tuple[str, str, Stance] | None

    def agrees(self, other: _Kind) -> bool:
        """Whether both may say the same. A capital that may be none is a name if the other one has it."""
        roles = {self.role, other.role}
        return (
            self.sure <= other.named
            and other.sure <= self.named
            and (len(roles) == 1 or FactRole.DETAIL in roles)
            and (self.state is None or other.state is None or self.state == other.state)
        )


class _Candidate(NamedTuple):
    """One wording of a fact, or of what waits (no fact); what is new sorts behind what it is compared with."""

    is_new: bool
    pointer: Pointer
    occurrence: Occurrence
    fact: FactId | None


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may be one fact by rule, as it was when they were looked for: a thread may compare them.

    `waiting` is all that waits; `blocks` have what is new with what is known of its days, numbers and negation.
    """

    waiting: frozenset[Pointer]
    blocks: tuple[list[_Candidate], ...]
    verdicts: Mapping[Pair, PairVerdict]
    given_up: tuple[tuple[int, ...], ...]
    judged_same: tuple[Pair, ...]

    def __len__(self) -> int:
        """How many wordings may have to be compared."""
        return sum(map(len, self.blocks))

    def wanted(self) -> tuple[Pointer, ...]:
        """The occurrences whose vectors and words decide what is admitted next, in the order of the log.

        Those that wait or are fresh and have a candidate, and their candidates. What says exactly what is known,
        and what is alone with its days and names, needs no vector.
        """
        wanted: set[Pointer] = set()
        for rivals, places in _compare(self.blocks):
            if places[-1] > 0:
                wanted.update(said.pointer for said in rivals[: places[-1] + 1])
        return tuple(sorted(wanted))

    def link(self, nearness: Nearness) -> Links:
        """What is near by rule and by verdict."""
        links, find_link = Links(), _LinkFinder(self, judged=nearness.judged)
        for rivals, places in _compare(self.blocks):
            rows = [nearness.readings.get(said.pointer) for said in rivals[: places[-1] + 1]]
            lacking = rows.index(None) if None in rows else len(rows)
            links.undecided.update(rivals[place].pointer for place in places if place and lacking <= place)
            near, groups = _Near(rows, nearness), find_link.groups_of(rivals)
            for place in places:
                row = rows[place]
                if row is not None and row.vector is not None:
                    met = _Met(rivals, rows, groups, near.before(place, row, row.vector))
                    find_link(links, place, row, met)
        links.same += self.judged_same
        return links


def is_given_up(given_up: Iterable[tuple[int, ...]], pair: Pair) -> bool:
    """Whether a model is not to be waited for with a pair: it could not be asked about these events together."""
    one, other = pair
    return any(one.seq in seqs and other.seq in seqs for seqs in given_up)


def find_candidates(canon: Canon, fresh: Collection[FactId] = ()) -> Candidates:
    """What is to be compared of what waits, and of `fresh` facts, which were admitted without being compared."""
    blocks = tuple(_find_blocks(canon, fresh))
    return Candidates(
        frozenset(canon.waiting), blocks, canon.verdicts, tuple(canon.given_up), tuple(_find_judged(canon))
    )


class _Near:
    """Which of some readings are near to one of them; where no model is asked, only those of the same words."""

    def __init__(self, rows: Sequence[Reading | None], nearness: Nearness) -> None:
        self._nearness = nearness
        places: dict[tuple[bytes, ...], list[int]] = {}
        vectors: dict[tuple[bytes, ...], list[NDArray[np.float32]]] = {}
        for place, row in enumerate(rows):
            if row is not None and row.vector is not None:
                places.setdefault(self._key(row), []).append(place)
                vectors.setdefault(self._key(row), []).append(row.vector)
        self._places = {key: np.array(each) for key, each in places.items()}
        self._matrices = {key: np.stack(each) for key, each in vectors.items() if len(each) > 1}

    def _key(self, row: Reading) -> tuple[bytes, ...]:
        return () if self._nearness.judged else row.said.sorted

    def before(self, place: int, row: Reading, vector: NDArray[np.float32]) -> NDArray[np.int64]:
        """The places before one at which something near to it stands, the nearest first."""
        matrix = self._matrices.get(self._key(row))
        if matrix is None:
            return _NOWHERE
        places = self._places[self._key(row)]
        before = int(np.searchsorted(places, place))
        cosines = np.round((matrix[:before] @ vector).astype(np.float64), _PLACES)
        near = np.flatnonzero(cosines >= self._nearness.threshold)
        found: NDArray[np.int64] = places[near[np.argsort(-cosines[near], kind="stable")]]
        return found


class _Met(NamedTuple):
    """Wordings with their readings and the number of the group of each, and the places of those to look at."""

    rivals: Sequence[_Candidate]
    rows: Sequence[Reading | None]
    groups: NDArray[np.int64]
    places: NDArray[np.int64]


class _LinkFinder:
    """Takes what is near for one, with as few questions and comparisons of words as decide it."""

    def __init__(self, candidates: Candidates, *, judged: bool) -> None:
        self._candidates = candidates
        self._judged = judged
        # What is linked already, by what it is linked with: a fact, or what waits.
        self._group: dict[bytes | Pointer, bytes | Pointer] = {}

    def groups_of(self, rivals: Sequence[_Candidate]) -> NDArray[np.int64]:
        """Numbers of these, equal for those that are linked."""
        numbers: dict[bytes | Pointer, int] = {}
        return np.array([numbers.setdefault(self._find(said), n) for n, said in enumerate(rivals)])

    def __call__(self, links: Links, place: int, row: Reading, met: _Met) -> None:
        """Link a wording with those that its vector is near to, the nearest first, one of each group."""
        one, groups, places = met.rivals[place], met.groups, met.places
        asked = 0
        while (places := places[groups[places] != groups[place]]).size:
            at, places = int(places[0]), places[1:]
            other, read = met.rivals[at], met.rows[at]
            if read is None or not agree_firmly(row.wording, read.wording):
                continue
            pair = max(one.pointer, other.pointer), min(one.pointer, other.pointer)
            verdict = self._candidates.verdicts.get(pair)
            if verdict is None and self._judged and not is_given_up(self._candidates.given_up, pair):
                links.unjudged.append(pair)
                links.undecided.add(one.pointer)
            elif verdict is PairVerdict.SAME or (verdict is None and say_the_same(row.said, read.said)):
                links.same.append(pair)
                self._group[self._find(one)] = self._find(other)
                groups[groups == groups[place]] = groups[at]
            asked += self._judged
            if asked == ASKED_MAX:
                return

    def _find(self, said: _Candidate) -> bytes | Pointer:
        group: bytes | Pointer = said.pointer if said.fact is None else said.fact
        while group in self._group:
            group = self._group[group]
        return group


def _find_judged(canon: Canon) -> Iterator[Pair]:
    """Pairs that a model took for one while each was admitted by itself, or waits; what is one is known by now."""
    for pair in list(canon.unjoined):
        one, other = map(canon.occurrence, pair)
        holder = canon.holder(pair[0])
        is_one = holder is not None and holder is canon.holder(pair[1])
        is_same = canon.verdicts[pair] is PairVerdict.SAME
        if one is not None and other is not None and is_same and not is_one and _may_be_one(one, other):
            yield pair
        else:
            del canon.unjoined[pair]


def _may_be_one(one: Occurrence, other: Occurrence) -> bool:
    """Whether they speak of the same days, numbers and names; what a model says of others joins nothing (A14)."""
    return one.likeness.block == other.likeness.block and _kind_of(one).agrees(_kind_of(other))


def _compare(blocks: Iterable[list[_Candidate]]) -> Iterator[tuple[list[_Candidate], list[int]]]:
    """Wordings that may be one, and the places among them of what is new, to be compared with those before.

    A pair comes up once. Wordings of one kind are looked at together, so that a day with a thousand facts costs as
    much as it has kinds.
    """
    for block in blocks:
        kinds: dict[_Kind, list[_Candidate]] = {}
        for said in block:
            kinds.setdefault(_kind_of(said.occurrence), []).append(said)
        by_name = _index_names(kinds)
        for kind, members in kinds.items():
            if not members[-1].is_new:
                continue
            rivals = sorted(
                (said for other in _meet(kind, by_name) if kind.agrees(other) for said in kinds[other]),
                key=lambda said: said[:2],
            )
            own = {said.pointer for said in members if said.is_new}
            yield rivals, [place for place, said in enumerate(rivals) if said.pointer in own]


def _find_blocks(canon: Canon, fresh: Collection[FactId]) -> Iterator[list[_Candidate]]:
    """What is new with what is known of the same days, numbers and negation; without what is alone."""
    waiting: dict[Block, list[Occurrence]] = {}
    seen: set[Likeness] = set()
    for pointer in sorted(canon.waiting):
        occurrence = canon.waiting[pointer]
        if occurrence.likeness not in seen and canon.find(occurrence.likeness) is None:
            seen.add(occurrence.likeness)
            waiting.setdefault(occurrence.likeness.block, []).append(occurrence)
    for each in fresh:
        if each in canon.facts:
            waiting.setdefault(canon.facts[each].first.likeness.block, [])
    for block, occurrences in waiting.items():
        said = [_Candidate(True, each.pointer, each, None) for each in occurrences]
        known = canon.block(block)
        for fact in known if len(known) <= COMPARED_WITH_MAX else ():
            wordings = {each.likeness: each for each in reversed(fact.occurrences) if each.likeness.block == block}
            said += [_Candidate(fact.id in fresh, each.pointer, each, fact.id) for each in wordings.values()]
        if len(said) > 1:
            yield sorted(said, key=lambda each: each[:2])


def _index_names(kinds: Iterable[_Kind]) -> dict[str, list[_Kind]]:
    """The kinds that name or may name each; under "" those that surely name nobody."""
    by_name: dict[str, list[_Kind]] = {}
    for kind in kinds:
        for name in kind.named if kind.sure else (*kind.named, ""):
            by_name.setdefault(name, []).append(kind)
    return by_name


def _meet(kind: _Kind, by_name: Mapping[str, list[_Kind]]) -> Iterable[_Kind]:
    """The kinds that a kind may agree with: each has the rarest of its names, if it surely has any."""
    if kind.sure:
        return min((by_name[name] for name in kind.sure), key=len)
    return dict.fromkeys(each for name in (*sorted(kind.named), "") for each in by_name.get(name, ()))


def _kind_of(occurrence: Occurrence) -> _Kind:
    mentions, state = occurrence.mentions, occurrence.state
    return _Kind(
        frozenset(mention.label for mention in mentions if not mention.uncertain),
        frozenset(mention.label for mention in mentions),
        occurrence.role,
        None if state is None else (state.key.entity, canonical_attribute(state.key.attribute), state.stance),
    )
