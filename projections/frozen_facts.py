"""Facts and all that is made of them as rows, and back: occurrences, disclaimers, labels, units and groups."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from events.decisions import PairVerdict
from events.memory import FactRole, Mention, Pointer
from projections.facts.canonical import Canon, Likeness, Occurrence
from projections.facts.corrections import Disclaimer, Disclaimers
from projections.facts.scopes import ScopeKind
from projections.facts.wording import Wording
from projections.frozen import Reader, Row, Section, SnapshotUnusable, Writer
from projections.frozen_scenes import freeze_scenes, thaw_scenes
from projections.frozen_scopes import freeze_scopes, thaw_scopes
from projections.frozen_units import freeze_units, thaw_units
from projections.frozen_validity import freeze_state, freeze_validity, thaw_state, thaw_validity
from projections.placement import Placement
from projections.spaces import Space
from projections.texts import text_of_fact

T = TypeVar("T")

_ROLES: Final = tuple(FactRole)
_ROLE_NUMBERS: Final = {role: n for n, role in enumerate(_ROLES)}
_VERDICTS: Final = tuple(PairVerdict)
_VERDICT_NUMBERS: Final = {verdict: n for n, verdict in enumerate(_VERDICTS)}


def freeze_placement(placement: Placement, w: Writer) -> Iterator[Section]:
    """The sections of all facts."""
    yield from _freeze_canon(placement.canon, w)
    yield from _freeze_disclaimers(placement.disclaimers, w)
    yield from freeze_scopes(placement.scopes, w)
    yield (
        "members",
        (
            (w.scope(scope), w.ids(facts))
            for scope, facts in placement.members.items()
            if scope.kind is not ScopeKind.SCENE
        ),
    )
    yield from freeze_scenes(placement.scenes, w)
    yield from freeze_validity(placement.validity, w)
    yield from freeze_units(placement.units, w)
    yield "spaces", placement.spaces.known
    yield "space_of", placement.spaces.number_of.items()


def thaw_placement(r: Reader, placement: Placement) -> Iterator[None]:
    """Fill an empty placement."""
    yield from _thaw_canon(r, placement.canon)
    for pointer in placement.canon.waiting:
        placement._waiting_texts[pointer] = _read_text(r, pointer)
    yield from _thaw_disclaimers(r, placement.disclaimers)
    yield from thaw_scopes(r, placement.scopes)
    yield from thaw_validity(r, placement.validity, placement.canon)
    for batch in r.batches("members"):
        placement.members.update((r.scope(*scope), set(r.ids(facts))) for scope, facts in batch)
        yield
    yield from thaw_scenes(r, placement)
    yield from thaw_units(r, placement.units)
    placement.units.index(placement.canon.facts)
    for batch in r.batches("spaces"):
        for space in batch:
            placement.spaces.add(Space(*space))
    for batch in r.batches("space_of"):
        placement.spaces.number_of.update(batch)
        yield


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
    yield "verdicts", ((*one, *other, _VERDICT_NUMBERS[each]) for (one, other), each in canon.verdicts.items())
    yield "given_up", ((seqs,) for seqs in canon.given_up)
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
            for each in occurrences:
                canon._join(fact, _thaw_occurrence(r, each, mentions))
        yield
    for batch in r.batches("waiting_facts"):
        for *row, _ in batch:
            occurrence = _thaw_occurrence(r, row, mentions)
            canon.waiting[occurrence.pointer] = occurrence
        yield
    facts = list(canon.facts.values())
    for batch in r.batches("verdicts"):
        canon.take_verdicts(
            ((Pointer(*pair[:2]), Pointer(*pair[2:])), _VERDICTS[verdict]) for *pair, verdict in batch
        )
        yield
    for batch in r.batches("given_up"):
        canon.given_up.update((tuple(seqs), None) for (seqs,) in batch)
    canon._by_likeness.clear()
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
        freeze_state(each.state, each.pointer, w),
    )


def _thaw_occurrence(r: Reader, row: Sequence[Any], mentions: dict[int, Mention]) -> Occurrence:
    *row, corrected, pinned, state = row
    seq, n, origin, session, turns, said_at, start, end, role, named, likeness, leaf_key, length = row
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
        corrected,
        pinned,
        thaw_state(state, r),
    )


def _read_text(r: Reader, pointer: Pointer) -> str:
    """The text of a fact that waits for its admission."""
    text = text_of_fact(r.event(pointer.seq).event, pointer.n)
    if text is None:
        raise SnapshotUnusable
    return text


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
                each.wording.order,
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
        for key, likeness, turns, words, firm, order in batch:
            wording = Wording(frozenset(words), frozenset(firm), tuple(order))
            standing.append(Disclaimer(r.id(key), Likeness(*likeness), frozenset(turns), wording))
        yield
    for each in standing:
        disclaimers._disclaimed.setdefault(each.likeness, []).append(each)
    for batch in r.batches("disclaimed_turns"):
        disclaimers._by_turn.update((turn, [standing[n] for n in numbers]) for turn, numbers in batch)
    for batch in r.batches("said"):
        disclaimers._said.update(Likeness(*each) for each in batch)
