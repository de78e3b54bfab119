"""Which nodes may answer: by what is marked on them at the fold, by kind, and by time. Before any ranking.

A mark is a keyed hash of something that is so of a node, such as a role among its source turns. `turn_marks`
and `label_marks` make those that the fold puts in (kind and sessions a node set knows itself).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from events.envelope import Reference
from events.session import MemoryImported, TurnRecorded, TurnRevised
from events.time import Instant
from projections.facts.labels import normalise_label
from projections.recall.nodes import NodeKind, NodeSet, SearchNode

Rows: TypeAlias = NDArray[np.intp]
Mark: TypeAlias = tuple[str, ...]
Hash: TypeAlias = Callable[..., int]

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


@dataclass(frozen=True, slots=True)
class Passed:
    """How many nodes were left after a filter; the first one is called `nodes` and is before all of them."""

    name: str
    nodes: int


def passing_rows(
    nodes: NodeSet, filters: Filters, hidden: frozenset[Reference] = frozenset()
) -> tuple[Rows, list[Passed]]:
    """The rows that may answer, ascending, and how many each filter left."""
    rows = nodes.live_rows(hidden)
    passed = [Passed("nodes", rows.size)]
    for name, mask in _masks(nodes, filters):
        rows = rows[mask[rows]]
        passed.append(Passed(name, rows.size))
    return rows, passed


def _masks(nodes: NodeSet, filters: Filters) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """For each filter, whether each row passes it."""
    size = nodes.size
    for wanted in filters.wanted:
        mask = np.full(size, wanted.excluded)
        for mark in wanted.marks:
            for each in nodes.marks.alike(nodes.mark(*mark)):
                mask[nodes.marks.rows(each)] = not wanted.excluded
        yield wanted.name, mask
    if filters.kinds is None and filters.said is None and filters.about is None:
        return
    every = np.arange(size, dtype=np.intp)
    if filters.kinds is not None:
        yield "kinds", nodes.of_kinds(every, filters.kinds)
    if filters.said is not None:
        said_at = nodes.said_at(every)
        yield "said", _lies_in(said_at, said_at, filters.said)
    if filters.about is not None:
        yield "about", _is_about(nodes, every, filters.about)


def lies_in(node: SearchNode, span: Span) -> bool:
    """Whether the time at which a node holds has an instant in common with a span."""
    last = node.time_end if node.holds_until is None else node.holds_until - 1
    return (span.start is None or last >= span.start) and (span.end is None or node.time_start < span.end)


def _is_about(nodes: NodeSet, every: Rows, span: Span) -> NDArray[np.bool_]:
    """Whether each row is about a span of time; of a group that reaches beyond it, whether a member is.

    States of one chain follow each other, and between two of them none may have held.
    """
    first, last = nodes.time_start(every), nodes.valid_end(every)
    mask = _lies_in(first, last, span)
    beyond = np.zeros(every.size, dtype=np.bool_)
    if span.start is not None:
        beyond |= first < span.start
    if span.end is not None:
        beyond |= last >= span.end
    doubtful = every[mask & beyond]
    groups = doubtful[nodes.of_kinds(doubtful, {NodeKind.GROUP})]
    for row, group in zip(groups.tolist(), nodes.outlines(groups), strict=True):
        inside = nodes.inside(group.id)
        mask[row] = not inside or any(lies_in(member, span) for member, _ in inside)
    return mask


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
