"""The labels of a user's facts, and which of them are one entity, as rows, and back."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from events.envelope import Reference
from events.memory import FactId
from events.session import TurnRecorded, TurnRevised
from projections.facts.aliases import Link
from projections.facts.labels import normalise_label
from projections.facts.scopes import EntityScopes, _Entity, _Label
from projections.frozen import Reader, Row, Section, SnapshotUnusable, Writer

T = TypeVar("T")

# An entity may hold most facts of a user: in one row they took 17 ms of the loop.
_ENTRIES_A_ROW: Final = 200


def freeze_scopes(scopes: EntityScopes, w: Writer) -> Iterator[Section]:
    """The sections of all labels and entities."""
    yield "aliases", (_freeze_link(link, w) for link in scopes.aliases.links())
    yield "label_entries", (_freeze_label(label, entry, w) for label, entry in scopes._labels.items())
    labels = list(enumerate(scopes._labels.values()))
    yield "label_facts", (row for n, entry in labels for row in _freeze_sets(n, _named(entry), w))
    yield "label_sessions", (row for n, entry in labels for row in _freeze_sessions(n, entry, w))
    yield "entities", (_freeze_entity(name, entity, w) for name, entity in scopes._entities.items())
    entities = list(enumerate(scopes._entities.values()))
    yield "entity_facts", (row for n, entity in entities for row in _freeze_sets(n, _held(entity), w))
    capitals = scopes._capitals
    words = capitals._lower.keys() | capitals._capital.keys() | capitals._names
    yield (
        "capitals",
        (
            (word, capitals._lower[word], capitals._capital[word], word in capitals._names)
            for word in sorted(words)
        ),
    )
    yield "owner_names", ((w.read_again(seq),) for seq in scopes._owner_names.values())


def thaw_scopes(r: Reader, scopes: EntityScopes) -> Iterator[None]:
    """Fill empty scopes."""
    for batch in r.batches("aliases"):
        for turn, n, label, alias, seq in batch:
            scopes.aliases.add((Link(turn, n, r.label(label), r.label(alias), seq),))
        yield
    labels: list[_Label] = []
    for batch in r.batches("label_entries"):
        labels += [scopes._keep(*_thaw_label(r, row)) for row in batch]
        yield
    for batch in r.batches("label_facts"):
        for n, kind, facts in batch:
            _named(labels[n])[kind].update(r.ids(facts))
        yield
    entities: list[_Entity] = []
    for batch in r.batches("entities"):
        entities += [_thaw_entity(r, scopes, *row) for row in batch]
        yield
    for batch in r.batches("entity_facts"):
        for n, kind, facts in batch:
            _held(entities[n])[kind].update(r.ids(facts))
        yield
    shared: dict[tuple[int, ...], frozenset[Reference]] = {}
    for batch in r.batches("label_sessions"):
        for n, said in batch:
            for fact, numbers in said:
                where = tuple(numbers)
                if where not in shared:
                    shared[where] = frozenset(r.ids(where))
                labels[n].sessions[r.id(fact)] = shared[where]
        yield
    capitals = scopes._capitals
    for batch in r.batches("capitals"):
        for word, lower, capital, is_name in batch:
            if lower:
                capitals._lower[word] = lower
            if capital:
                capitals._capital[word] = capital
            if is_name:
                capitals._names.add(word)
        yield
    for batch in r.batches("owner_names"):
        for (seq,) in batch:
            event = r.event(seq).event
            if not isinstance(event, TurnRecorded | TurnRevised) or not event.name:
                raise SnapshotUnusable
            scopes._owner_names[normalise_label(event.name)] = seq


def _freeze_label(label: str, entry: _Label, w: Writer) -> Row:
    return (
        w.label(label),
        w.ids(entry.sure_sessions),
        w.ids(entry.doubtful_sessions),
    )


def _thaw_label(r: Reader, row: Row) -> tuple[str, _Label]:
    label, sure, doubtful = row
    return r.label(label), _Label(sure_sessions=set(r.ids(sure)), doubtful_sessions=set(r.ids(doubtful)))


def _freeze_link(link: Link, w: Writer) -> Row:
    for name in (link.label, link.alias):
        w.place_label(name, link.pointer)
    return link.turn, link.n, w.label(link.label), w.label(link.alias), link.seq


def _freeze_entity(name: str, entity: _Entity, w: Writer) -> Row:
    counting = [w.label(label) for label in entity.counting]
    return w.label(name), None if entity.scope is None else w.scope(entity.scope), counting


def _thaw_entity(r: Reader, scopes: EntityScopes, label: int, scope: Row | None, counting: list[int]) -> _Entity:
    name = r.label(label)
    names = scopes.aliases.names_of(name)  # every change of names is followed by a look at the entity
    entity = scopes._entity_of(name)
    entity.scope, entity.names = None if scope is None else r.scope(*scope), names
    entity.counting = tuple(map(r.label, counting))
    return entity


def _named(entry: _Label) -> tuple[set[FactId], ...]:
    """All that a label holds facts in."""
    return entry.sure, entry.doubtful


def _held(entity: _Entity) -> tuple[set[FactId], ...]:
    """All that an entity holds facts in."""
    return entity.fresh, entity.gone, entity.held


def _freeze_sets(n: int, sets: Sequence[Iterable[FactId]], w: Writer) -> Iterator[Row]:
    for kind, facts in enumerate(sets):
        for some in _parts(facts):
            yield n, kind, w.ids(some)


def _freeze_sessions(n: int, entry: _Label, w: Writer) -> Iterator[Row]:
    for some in _parts(entry.sessions.items()):
        yield n, [(w.id(fact), w.ids(sessions)) for fact, sessions in some]


def _parts(entries: Iterable[T]) -> Iterator[list[T]]:
    """What one entity holds, in rows that are made in a moment."""
    left = iter(entries)
    while some := list(islice(left, _ENTRIES_A_ROW)):
        yield some
