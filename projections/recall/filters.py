"""Which nodes may answer: by what is marked on them at the fold, by kind, and by time. Before any ranking.

A mark is a keyed hash of something that is so of a node, such as a role among its source turns. `turn_marks`
and `label_marks` make those that the fold puts in (kind and sessions a node set knows itself).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from events.envelope import Reference
from events.session import MemoryImported, TurnRecorded, TurnRevised
from events.time import Instant
from projections.facts.labels import normalise_label
from projections.recall.nodes import Aside, NodeKind, NodeSet, SearchNode

Rows: TypeAlias = NDArray[np.intp]
Mark: TypeAlias = tuple[str, ...]
Hash: TypeAlias = Callable[..., int]
# The marks on something, but for those of its sessions, and these.
Marked: TypeAlias = tuple[Iterable[int], Iterable[Reference]]
# The marks of a filter, and the sessions.
_Marks: TypeAlias = tuple[frozenset[int], frozenset[Reference]]
T = TypeVar("T")

# Pairs of one turn's metadata that can be asked for; a sender must not decide how long a row of marks is.
METADATA_PAIRS_MAX = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """One filter: the parameter it came in as, and the marks of which a node has one (or, excluded, none)."""

    name: str
    marks: tuple[Mark, ...]
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open stretch of time, `start` in it and `end` not; None is without end."""

    start: Instant | None = None
    end: Instant | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """All of these must let a node pass. `said`: when it was said; `about`: what time it is about.

    A state is about all of the time from its own on until another one ended it.
    """

    wanted: tuple[Wanted, ...] = ()
    kinds: frozenset[NodeKind] | None = None
    said: Span | None = None
    about: Span | None = None


NO_FILTERS: Final = Filters()


@dataclass(frozen=True, slots=True)
class Passed:
    """How many nodes were left after a filter; the first one is called `nodes` and is before all of them."""

    name: str
    nodes: int


class Sieve:
    """Tells of what is in no row by itself whether it passes: of members of groups, and of wordings of facts.

    The row of a group passes each filter by any of its members. It stays if one of them passes all filters, and of
    it those alone are shown that do.
    """

    def __init__(self, nodes: NodeSet, filters: Filters) -> None:
        """Of these nodes as they stand."""
        self._nodes, self._said, self._about = nodes, filters.said, filters.about
        wanted, unwanted = list[_Marks](), list[_Marks]()
        for each in filters.wanted:
            marks = frozenset(_marks_alike(nodes, each)), _sessions_in(each)
            (unwanted if each.excluded else wanted).append(marks)
        self._wanted, self._unwanted = wanted, unwanted
        self._besides_about = len(filters.wanted) + (self._said is not None)

    def passes(self, member: Aside) -> bool:
        """Whether a member of a group may be shown."""
        node, marks = member.node, member.marks
        for wanted in self._wanted:  # many thousand times for a question: no generator
            if not _has_one(wanted, marks, node.sessions):
                return False
        for unwanted in self._unwanted:
            if _has_one(unwanted, marks, node.sessions):
                return False
        return (self._said is None or _meets(node.said_at, node.said_at, self._said)) and (
            self._about is None or _meets(node.time_start, _last_of(node), self._about)
        )

    def narrow(self, told: list[T], marks_of: Callable[[T], Marked]) -> list[T]:
        """Of several that tell a thing which passes, those that pass, by the marks on each and its sessions.

        Two filters may be met by two of them: then those that meet the first.
        """
        for wanted in self._wanted:
            told = [each for each in told if _has_one(wanted, *marks_of(each))] or told
        return told

    def leaves_out(self, group: bytes) -> bool:
        """Whether a group has members that must not be shown."""
        return self.leaves_something and not all(map(self.passes, self._nodes.inside(group)))

    def keep_groups(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether there is anything to show of each of these rows: of a group it is the members that pass."""
        kept = np.ones(rows.size, dtype=np.bool_)
        if self.leaves_something:
            groups = np.flatnonzero(self._nodes.of_kinds(rows, {NodeKind.GROUP}) & self._reach_beyond(rows))
            for place, group in zip(groups.tolist(), self._nodes.ids(rows[groups]), strict=True):
                inside = self._nodes.inside(group)
                kept[place] = not inside or any(map(self.passes, inside))
        return kept

    def _reach_beyond(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether these rows may be about a time that does not pass; with other filters any row may."""
        span = self._about
        if span is None or self._besides_about:
            return np.ones(rows.size, dtype=np.bool_)
        before = False if span.start is None else self._nodes.time_start(rows) < span.start
        beyond: NDArray[np.bool_] = np.zeros(rows.size, dtype=np.bool_) | before
        return beyond if span.end is None else beyond | (self._nodes.valid_end(rows) >= span.end)

    @property
    def leaves_something(self) -> bool:
        """Whether of anything that passes a part may not."""
        return self._besides_about > 0 or self._about is not None

    @property
    def may_take_all(self) -> bool:
        """Whether a group may pass of which no member does: by two filters, or by a time, as states of one chain
        follow each other, and between two of them none may have held."""
        return self._besides_about > 1 or self._about is not None


def passing_rows(
    nodes: NodeSet, filters: Filters, hidden: frozenset[Reference] = frozenset()
) -> tuple[Rows, list[Passed]]:
    """The rows that may answer, ascending, and how many each filter left."""
    rows = nodes.live_rows(hidden)
    passed = [Passed("nodes", rows.size)]
    for name, mask in _masks(nodes, filters):
        rows = rows[mask[rows]]
        passed.append(Passed(name, rows.size))
    sieve = Sieve(nodes, filters)
    if sieve.may_take_all:
        rows = rows[sieve.keep_groups(rows)]
        passed[-1] = Passed(passed[-1].name, rows.size)
    return rows, passed


def _masks(nodes: NodeSet, filters: Filters) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """For each filter, whether each row passes it."""
    size = nodes.size
    for wanted in filters.wanted:
        mask = np.full(size, wanted.excluded)
        for mark in _marks_alike(nodes, wanted):
            mask[nodes.marks.rows(mark)] = not wanted.excluded
        if wanted.excluded:
            _let_groups_in(nodes, mask, ~mask, Filters((wanted,)))
        yield wanted.name, mask
    if filters.kinds is None and filters.said is None and filters.about is None:
        return
    every = np.arange(size, dtype=np.intp)
    if filters.kinds is not None:
        yield "kinds", nodes.of_kinds(every, filters.kinds)
    if filters.said is not None:
        said_at = nodes.said_at(every)
        mask = _lies_in(said_at, said_at, filters.said)
        if filters.said.end is not None:
            _let_groups_in(nodes, mask, said_at >= filters.said.end, Filters(said=filters.said))
        yield "said", mask
    if filters.about is not None:
        yield "about", _lies_in(nodes.time_start(every), nodes.valid_end(every), filters.about)


def _let_groups_in(nodes: NodeSet, mask: NDArray[np.bool_], among: NDArray[np.bool_], filters: Filters) -> None:
    """Let groups among these rows pass of which a member does: a group has the marks of all its members, and was
    said when the last of them was."""
    sieve, rows = Sieve(nodes, filters), np.flatnonzero(among)
    groups = rows[nodes.of_kinds(rows, {NodeKind.GROUP})]
    for row, group in zip(groups.tolist(), nodes.ids(groups), strict=True):
        mask[row] = any(map(sieve.passes, nodes.inside(group)))


def _meets(first: Instant, last: Instant, span: Span) -> bool:
    return (span.start is None or last >= span.start) and (span.end is None or first < span.end)


def _last_of(node: SearchNode) -> Instant:
    """The last instant at which a node holds."""
    return node.time_end if node.holds_until is None else node.holds_until - 1


def _marks_alike(nodes: NodeSet, wanted: Wanted) -> Iterator[int]:
    """The marks of a filter as nodes carry them."""
    for mark in wanted.marks:
        yield from nodes.marks.alike(nodes.mark(*mark))


def _sessions_in(wanted: Wanted) -> frozenset[Reference]:
    return frozenset(bytes.fromhex(mark[1]) for mark in wanted.marks if mark[0] == "session")


def _has_one(wanted: _Marks, marks: Iterable[int], sessions: Iterable[Reference]) -> bool:
    return not (wanted[0].isdisjoint(marks) and wanted[1].isdisjoint(sessions))


def _lies_in(first: NDArray[np.int64], last: NDArray[np.int64], span: Span) -> NDArray[np.bool_]:
    """Whether first .. last, both included, has an instant in common with the span."""
    mask = np.ones(first.size, dtype=np.bool_)
    if span.start is not None:
        mask &= last >= span.start
    if span.end is not None:
        mask &= first < span.end
    return mask


def turn_marks(turn: TurnRecorded | TurnRevised | MemoryImported, mark: Hash) -> tuple[int, ...]:
    """What a turn marks the nodes with that rest on it, in its standing wording."""
    found = [] if isinstance(turn, MemoryImported) else [role_mark(turn.role)]
    if turn.agent_id is not None:
        found.append(agent_mark(turn.agent_id))
    if turn.metadata is not None:
        found += islice(metadata_marks(json.loads(turn.metadata)), METADATA_PAIRS_MAX)
    return tuple(sorted({mark(*each) for each in found}))


def label_marks(labels: Iterable[str], mark: Hash) -> set[int]:
    """What the entities (in normal form) mark a node with that names them."""
    return {mark("entity", label) for label in labels}


def session_mark(session: Reference) -> Mark:
    """A turn of this session is among the sources."""
    return "session", session.hex()


def role_mark(role: str) -> Mark:
    """A turn of this role is among the sources."""
    return "role", role


def agent_mark(agent_id: str) -> Mark:
    """A turn with this agent is among the sources."""
    return "agent", agent_id


def entity_mark(label: str) -> Mark:
    """The node names this entity, in whatever case and by whichever of its names."""
    return "entity", normalise_label(label)


def metadata_marks(metadata: Mapping[str, object]) -> Iterator[Mark]:
    """A mark for each scalar of a JSON object, under its path (`device.os`); elements of a list share theirs.

    Numbers are equal by value (1 and 1.0), never to their text ("1"). Deterministic: in the object's order.
    """
    for path, value in _scalars(metadata, ""):
        yield "metadata", path, json.dumps(_plain(value))


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _scalars(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[str, object]", value).items():
            yield from _scalars(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for part in cast("list[object]", value):
            yield from _scalars(part, path)
    else:
        yield path, value
