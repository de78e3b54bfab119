"""`diff`: what became known of a user, and what no longer is, between two positions of the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from anyio import to_thread

from daemon.asking.history import History, agree, count_redacted, locate
from daemon.asking.listings import find_user
from daemon.building.compacted import LOSS_UNIT
from daemon.folding import read_in_slices
from daemon.scene_names import SceneNaming, scene_in_steps
from daemon.untrusted import Params
from events.decisions import Supersession
from events.envelope import RecordedEvent, Reference
from events.hindsight import Hindsight, read_hindsight
from events.log import EventLog
from events.memory import FactId, Pointer
from events.reading import read_events
from events.time import Instant, to_iso
from projections.eventtree.units import Group
from projections.facts.canonical import Fact
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.steps import Steps
from projections.texts import FactText, TextRef, WrittenText, compose, events_behind

# Entries of each list that an answer holds; how many there are besides stands in `left_off`.
ENTRIES_MAX = 1_000


class DiffParams(Params, frozen=True, kw_only=True):
    """Parameters of `diff`: two positions, each a user_seq or an instant with its offset; `b` is now."""

    user_id: str
    a: int | str
    b: int | str | None = None


@dataclass(frozen=True, slots=True)
class FactThen:
    """A fact as it was known; `text` is null once its words are gone."""

    id: str
    text: str | None
    said_at: str
    time_start: str
    time_end: str


@dataclass(frozen=True, slots=True)
class FactChanged:
    """A fact known at both: how many times it was read, and what it said."""

    id: str
    occurrences_before: int
    occurrences: int
    text_before: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class ScopeDifference:
    """Facts that the scope of an entity, a scene or the user has more and fewer; their ids.

    `name` is that of a scene, whose `scope` is an id.
    """

    scope: str
    kind: str
    name: str | None
    joined: list[str]
    left: list[str]


@dataclass(frozen=True, slots=True)
class StateEnded:
    """A state that holds no more: until when it held, and the id of the fact that ended it."""

    id: str
    text: str | None
    until: str | None
    by: str | None


@dataclass(frozen=True, slots=True)
class GroupThen:
    """A group with the facts it stood for."""

    id: str
    text: str | None
    members: list[str]
    loss_bound: float = 0.0
    extractive: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """What `diff` returns. `redacted`: events up to the later position whose words are gone.

    `ended` are states known at `b` that ended since `a`, or otherwise than before; `standing` those that had ended
    and hold again.
    """

    a: int
    b: int
    came: list[FactThen]
    went: list[FactThen]
    changed: list[FactChanged]
    scopes: list[ScopeDifference]
    groups_made: list[GroupThen]
    groups_undone: list[GroupThen]
    ended: list[StateEnded]
    standing: list[FactThen]
    left_off: int
    redacted: int


@dataclass(frozen=True, slots=True)
class _FactOutline:
    """What is compared of a fact."""

    ref: TextRef
    occurrences: tuple[Pointer, ...]
    said_at: Instant
    time_start: Instant
    time_end: Instant


@dataclass(frozen=True, slots=True)
class _Outline:
    """What is compared of a Memory, so that the Memory itself may be folded on."""

    facts: dict[FactId, _FactOutline]
    scopes: dict[Scope, frozenset[FactId]]
    scenes: dict[Scope, SceneNaming]
    groups: dict[bytes, Group]
    superseded: dict[FactId, Supersession]


_Recorded: TypeAlias = Mapping[int, RecordedEvent]


class Differences:
    """Compares past Memories."""

    def __init__(self, log: EventLog, history: History) -> None:
        self._log = log
        self._history = history

    async def diff(self, params: DiffParams) -> Difference:
        """What the memory knew at `b` and not at `a`, and the other way round.

        Raises `UserUnknown`, `InvalidInput`, `LogDamaged`.
        """
        user = await find_user(self._log, params.user_id)
        a, b = await self._log.read(lambda db: _locate_both(db, user, params))
        while True:
            # The earlier one first: the later one is folded on from it.
            outlines: dict[int, tuple[_Outline, Hindsight]] = {}
            for position in sorted({a, b}):
                async with self._history.at(user, position) as memory:
                    outlined = await read_in_slices(memory, partial(outline, memory))
                    outlines[position] = outlined, memory.hindsight
            before, after = outlines[a][0], outlines[b][0]
            seqs = await to_thread.run_sync(_seqs_to_read, before, after)
            recorded, known_now, redacted = await self._log.read(
                lambda db: (
                    read_events(db, seqs),  # noqa: B023
                    {each: read_hindsight(db, user, each) for each in {a, b}},
                    count_redacted(db, max(a, b), read_hindsight(db, user, max(a, b))),
                )
            )
            if all(agree(outlines[each][1], hindsight) for each, hindsight in known_now.items()):
                return await to_thread.run_sync(compare, (a, before), (b, after), recorded, redacted)


def _locate_both(connection: sqlite3.Connection, user: Reference, params: DiffParams) -> tuple[int, int]:
    (head,) = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone()
    a = locate(connection, user, params.a)
    return a, (head if params.b is None else locate(connection, user, params.b))


def outline(memory: Memory) -> Steps[_Outline]:
    """What `compare` needs of a Memory, in small steps. It must not change in between."""
    facts: dict[FactId, _FactOutline] = {}
    for fact in memory.canon.facts.values():
        facts[fact.id] = _outline_fact(fact)
        yield
    scopes: dict[Scope, frozenset[FactId]] = {}
    scenes: dict[Scope, SceneNaming] = {}
    for scope, members in memory.members.items():
        scopes[scope] = frozenset(members)
        yield
        if scope.kind is ScopeKind.SCENE:
            scenes[scope] = yield from scene_in_steps(memory, scope)
    return _Outline(facts, scopes, scenes, dict(memory.units.groups), dict(memory.placement.validity.superseded))


def _outline_fact(fact: Fact) -> _FactOutline:
    first = fact.first
    pointers = tuple(occurrence.pointer for occurrence in fact.occurrences)
    return _FactOutline(FactText(first.pointer), pointers, first.said_at, first.time_start, first.time_end)


def _changed_refs(a: _Outline, b: _Outline) -> Iterable[TextRef]:
    for one, other in ((a, b), (b, a)):
        yield from (fact.ref for key, fact in one.facts.items() if other.facts.get(key) != fact)
        yield from (WrittenText(group.seq) for key, group in one.groups.items() if key not in other.groups)
    ended, standing = _compare_states(a, b)
    yield from (b.facts[fact].ref for fact in (*ended, *standing))


def _seqs_to_read(a: _Outline, b: _Outline) -> set[int]:
    return events_behind(_changed_refs(a, b)) | _seqs_of_names(a, b)


def _seqs_of_names(a: _Outline, b: _Outline) -> set[int]:
    """The events that the names of changed scenes are made of."""
    changed = (scope for scope in (a.scenes | b.scenes) if _moved(a, b, scope))
    return {seq for scope in changed for seq in _naming(a, b, scope).seqs}


def _naming(before: _Outline, after: _Outline, scope: Scope) -> SceneNaming:
    return after.scenes.get(scope) or before.scenes[scope]


def compare(a: tuple[int, _Outline], b: tuple[int, _Outline], recorded: _Recorded, redacted: int) -> Difference:
    """The difference of two outlines, each with its user_seq; lists are in the order of time, then of ids."""
    (at_a, before), (at_b, after) = a, b
    came, went = _only_in(after.facts, before.facts), _only_in(before.facts, after.facts)
    changed = [key for key, fact in after.facts.items() if key in before.facts and before.facts[key] != fact]
    scopes = [scope for scope in sorted({*before.scopes, *after.scopes}) if _moved(before, after, scope)]
    made = sorted(after.groups.keys() - before.groups.keys())
    undone = sorted(before.groups.keys() - after.groups.keys())
    ended, standing = _compare_states(before, after)
    lists = (came, went, changed, scopes, made, undone, ended, standing)
    return Difference(
        a=at_a,
        b=at_b,
        came=[_show_fact(key, after.facts[key], recorded) for key in came[:ENTRIES_MAX]],
        went=[_show_fact(key, before.facts[key], recorded) for key in went[:ENTRIES_MAX]],
        changed=[
            _show_changed(key, before.facts[key], after.facts[key], recorded) for key in changed[:ENTRIES_MAX]
        ],
        scopes=[_show_scope(before, after, scope, recorded) for scope in scopes[:ENTRIES_MAX]],
        groups_made=[_show_group(key, after, recorded) for key in made[:ENTRIES_MAX]],
        groups_undone=[_show_group(key, before, recorded) for key in undone[:ENTRIES_MAX]],
        ended=[_show_ended(key, after, recorded) for key in ended[:ENTRIES_MAX]],
        standing=[_show_fact(key, after.facts[key], recorded) for key in standing[:ENTRIES_MAX]],
        left_off=sum(max(0, len(each) - ENTRIES_MAX) for each in lists),
        redacted=redacted,
    )


def _only_in(facts: dict[FactId, _FactOutline], others: dict[FactId, _FactOutline]) -> list[FactId]:
    return sorted(facts.keys() - others.keys(), key=lambda key: (facts[key].time_start, key))


def _compare_states(before: _Outline, after: _Outline) -> tuple[list[FactId], list[FactId]]:
    """The states that ended or ended otherwise, and those that hold again, of what is known afterwards."""
    moved = [
        key
        for key in before.superseded.keys() | after.superseded.keys()
        if key in after.facts and before.superseded.get(key) != after.superseded.get(key)
    ]
    moved.sort(key=lambda key: (after.facts[key].time_start, key))
    return [key for key in moved if key in after.superseded], [key for key in moved if key not in after.superseded]


def _moved(before: _Outline, after: _Outline, scope: Scope) -> bool:
    return scope.kind is not ScopeKind.SESSION and before.scopes.get(scope) != after.scopes.get(scope)


def _show_fact(key: FactId, fact: _FactOutline, recorded: _Recorded) -> FactThen:
    return FactThen(
        id=key.hex(),
        text=compose(fact.ref, recorded),
        said_at=to_iso(fact.said_at),
        time_start=to_iso(fact.time_start),
        time_end=to_iso(fact.time_end),
    )


def _show_ended(key: FactId, held: _Outline, recorded: _Recorded) -> StateEnded:
    ended = held.superseded[key]
    return StateEnded(
        id=key.hex(),
        text=compose(held.facts[key].ref, recorded),
        until=None if ended.until is None else to_iso(ended.until),
        by=None if ended.by is None else ended.by.hex(),
    )


def _show_changed(key: FactId, before: _FactOutline, after: _FactOutline, recorded: _Recorded) -> FactChanged:
    return FactChanged(
        id=key.hex(),
        occurrences_before=len(before.occurrences),
        occurrences=len(after.occurrences),
        text_before=compose(before.ref, recorded),
        text=compose(after.ref, recorded),
    )


def _show_scope(before: _Outline, after: _Outline, scope: Scope, recorded: _Recorded) -> ScopeDifference:
    was, is_now = before.scopes.get(scope, frozenset()), after.scopes.get(scope, frozenset())
    return ScopeDifference(
        scope=scope.name or "user",
        kind=scope.kind,
        name=_naming(before, after, scope).write(recorded) if scope.kind is ScopeKind.SCENE else None,
        joined=sorted(fact.hex() for fact in is_now - was),
        left=sorted(fact.hex() for fact in was - is_now),
    )


def _show_group(key: bytes, held: _Outline, recorded: _Recorded) -> GroupThen:
    group = held.groups[key]
    text, members = compose(WrittenText(group.seq), recorded), [member.hex() for member in group.members]
    return GroupThen(key.hex(), text, members, group.loss / LOSS_UNIT, group.extractive)
