"""Facts and all that is made of them as rows, and back: occurrences, disclaimers, labels, units and groups."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from events.envelope import Reference
from events.memory import FactCorrected, FactId, FactPinned, FactRole, FactsExtracted, Mention, Pointer
from events.session import MemoryImported, TurnRecorded, TurnRevised
from projections.eventtree.units import Group, Units
from projections.facts.canonical import Canon, Fact, Likeness, Occurrence
from projections.facts.corrections import Disclaimer, Disclaimers, Wording
from projections.facts.labels import normalise_label
from projections.facts.scopes import EntityScopes, _Label
from projections.frozen import Reader, Row, Section, SnapshotUnusable, Writer
from projections.placement import Placement

T = TypeVar("T")

# An entity may hold most facts of a user: in one row they took 17 ms of the loop.
_ENTRIES_A_ROW: Final = 200
_ROLES: Final = tuple(FactRole)
_ROLE_NUMBERS: Final = {role: n for n, role in enumerate(_ROLES)}


def freeze_placement(placement: Placement, w: Writer) -> Iterator[Section]:
    """The sections of all facts."""
    yield from _freeze_canon(placement.canon, w)
    yield from _freeze_disclaimers(placement.disclaimers, w)
    yield from _freeze_scopes(placement.scopes, w)
    yield "members", ((w.scope(scope), w.ids(facts)) for scope, facts in placement.members.items())
    units = placement.units
    yield "unit_of", ((w.id(fact), w.id(unit)) for fact, unit in units.unit_of.items())
    yield (
        "groups",
        (
            (w.id(group.id), w.id(group.unit), w.ids(group.members), group.seq, group.length)
            for group in units.groups.values()
        ),
    )
    yield "parked_merges", ((group,) for group in units.parked)


def thaw_placement(r: Reader, placement: Placement) -> Iterator[None]:
    """Fill an empty placement."""
    yield from _thaw_canon(r, placement.canon)
    for pointer in placement.canon.waiting:
        placement._waiting_texts[pointer] = _read_text(r, pointer)
    yield from _thaw_disclaimers(r, placement.disclaimers)
    yield from _thaw_scopes(r, placement.scopes)
    for batch in r.batches("members"):
        placement.members.update((r.scope(*scope), set(r.ids(facts))) for scope, facts in batch)
        yield
    yield from _thaw_units(r, placement.units)


def _thaw_units(r: Reader, units: Units) -> Iterator[None]:
    for batch in r.batches("unit_of"):
        units.unit_of.update((r.id(fact), r.id(unit)) for fact, unit in batch)
        yield
    for batch in r.batches("groups"):
        for number, unit, members, seq, length in batch:
            group = Group(r.id(number), r.id(unit), tuple(r.ids(members)), seq, length)
            units.groups[group.id] = group
            units.group_of.update(dict.fromkeys(group.members, group.id))
        yield
    for batch in r.batches("parked_merges"):
        units.parked.update((group, None) for (group,) in batch)


def _freeze_canon(canon: Canon, w: Writer) -> Iterator[Section]:
    numbers = {fact: n for n, fact in enumerate(canon.facts)}
    yield (
        "facts",
        (
            (w.id(fact.id), [_freeze_occurrence(each, w) for each in fact.occurrences])
            for fact in canon.facts.values()
        ),
    )
    yield (
        "waiting_facts",
        ((*_freeze_occurrence(each, w), w.read_again(each.pointer.seq)) for each in canon.waiting.values()),
    )
    # Which occurrence of which fact speaks for what it says.
    yield (
        "likenesses",
        (
            (numbers[fact], [each.likeness for each in canon.facts[fact].occurrences].index(likeness))
            for likeness, fact in canon._by_likeness.items()
        ),
    )


def _thaw_canon(r: Reader, canon: Canon) -> Iterator[None]:
    mentions: dict[int, Mention] = {}
    for batch in r.batches("facts"):
        for number, occurrences in batch:
            fact = r.id(number)
            canon.facts[fact] = Fact(fact, [_thaw_occurrence(r, each, mentions) for each in occurrences])
        yield
    for batch in r.batches("waiting_facts"):
        for *row, _ in batch:
            occurrence = _thaw_occurrence(r, row, mentions)
            canon.waiting[occurrence.pointer] = occurrence
        yield
    facts = list(canon.facts.values())
    for batch in r.batches("likenesses"):
        for number, n in batch:
            canon._by_likeness[facts[number].occurrences[n].likeness] = facts[number].id


def _freeze_occurrence(each: Occurrence, w: Writer) -> Row:
    for mention in each.mentions:
        w.place_label(mention.label, each.pointer)
    return (
        *each.pointer,
        w.id(each.origin),
        w.id(each.session),
        each.turns,
        each.said_at,
        each.time_start,
        each.time_end,
        _ROLE_NUMBERS[each.role],
        [2 * w.label(mention.label) + mention.uncertain for mention in each.mentions],
        each.likeness,
        w.id(each.leaf_key),
        each.length,
        each.corrected,
        each.pinned,
    )


def _thaw_occurrence(r: Reader, row: Sequence[Any], mentions: dict[int, Mention]) -> Occurrence:
    seq, n, origin, session, turns, said_at, start, end, role, named, likeness, leaf_key, length, *stated = row
    for each in named:
        if each not in mentions:
            mentions[each] = Mention(r.label(each // 2), bool(each % 2))
    return Occurrence(
        Pointer(seq, n),
        r.id(origin),
        r.id(session),
        tuple(turns),
        said_at,
        start,
        end,
        _ROLES[role],
        tuple([mentions[each] for each in named]),
        Likeness(*likeness),
        r.id(leaf_key),
        length,
        *stated,
    )


def _read_text(r: Reader, pointer: Pointer) -> str:
    """The text of a fact that waits for its admission."""
    match r.event(pointer.seq).event:
        case FactsExtracted(facts=facts) if pointer.n < len(facts):
            return facts[pointer.n].text
        case FactCorrected(says=says) | FactPinned(says=says):
            return says.text
        case MemoryImported(content=content):
            return content
        case _:
            raise SnapshotUnusable


def _freeze_disclaimers(disclaimers: Disclaimers, w: Writer) -> Iterator[Section]:
    standing = list(disclaimers.standing())
    numbers = {id(each): n for n, each in enumerate(standing)}
    yield (
        "disclaimers",
        (
            (
                w.id(each.key),
                each.likeness,
                sorted(each.turns),
                sorted(each.wording.words),
                sorted(each.wording.firm),
            )
            for each in standing
        ),
    )
    yield (
        "disclaimed_turns",
        ((turn, [numbers[id(each)] for each in about]) for turn, about in disclaimers._by_turn.items()),
    )
    yield "said", sorted(disclaimers._said)


def _thaw_disclaimers(r: Reader, disclaimers: Disclaimers) -> Iterator[None]:
    standing: list[Disclaimer] = []
    for batch in r.batches("disclaimers"):
        for key, likeness, turns, words, firm in batch:
            wording = Wording(frozenset(words), frozenset(firm))
            standing.append(Disclaimer(r.id(key), Likeness(*likeness), frozenset(turns), wording))
        yield
    for each in standing:
        disclaimers._disclaimed.setdefault(each.likeness, []).append(each)
    for batch in r.batches("disclaimed_turns"):
        disclaimers._by_turn.update((turn, [standing[n] for n in numbers]) for turn, numbers in batch)
    for batch in r.batches("said"):
        disclaimers._said.update(Likeness(*each) for each in batch)


def _freeze_scopes(scopes: EntityScopes, w: Writer) -> Iterator[Section]:
    yield "entities", (_freeze_label(label, entry, w) for label, entry in scopes._labels.items())
    labels = list(enumerate(scopes._labels.values()))
    yield "entity_facts", (row for n, entry in labels for row in _freeze_named(n, entry, w))
    yield "entity_sessions", (row for n, entry in labels for row in _freeze_sessions(n, entry, w))
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


def _thaw_scopes(r: Reader, scopes: EntityScopes) -> Iterator[None]:
    labels: list[_Label] = []
    for batch in r.batches("entities"):
        labels += [scopes._keep(*_thaw_label(r, row)) for row in batch]
        yield
    for batch in r.batches("entity_facts"):
        for n, kind, facts in batch:
            _named(labels[n])[kind].update(r.ids(facts))
        yield
    shared: dict[tuple[int, ...], frozenset[Reference]] = {}
    for batch in r.batches("entity_sessions"):
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
        None if entry.scope is None else w.scope(entry.scope),
        entry.counts_doubtful,
    )


def _thaw_label(r: Reader, row: Row) -> tuple[str, _Label]:
    label, sure, doubtful, scope, counts_doubtful = row
    entry = _Label(sure_sessions=set(r.ids(sure)), doubtful_sessions=set(r.ids(doubtful)))
    entry.scope, entry.counts_doubtful = None if scope is None else r.scope(*scope), counts_doubtful
    return r.label(label), entry


def _named(entry: _Label) -> tuple[set[FactId], ...]:
    """All that a label holds facts in."""
    return entry.sure, entry.doubtful, entry.fresh, entry.gone, entry.held


def _freeze_named(n: int, entry: _Label, w: Writer) -> Iterator[Row]:
    for kind, facts in enumerate(_named(entry)):
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
