"""Which states a question asks for: the one before Miami, the first, the one that holds now.

States of an entity follow each other; a question names one of them, a time, or an end of them. Pure: reads what
the fold knows of chains (`projections.facts.validity`) and no text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from events.memory import FactId
from events.time import Instant
from projections.facts.attributes import NAMED, canonical_attribute, holds_several
from projections.facts.regions import places_in
from projections.facts.scopes import EntityScopes
from projections.facts.stances import Stance
from projections.facts.states import State, StateKey
from projections.facts.supersession import Sameness, compare
from projections.facts.validity import FOR_EVER, Told, Validity
from projections.recall.filters import Span
from projections.recall.keyed import hash_terms
from projections.recall.time_question import BACKWARDS, FORWARDS, Order, TimeKind, TimeQuestion
from projections.recall.tokens import query_terms, terms

# As somebody is known whose turns carry no name.
NAMELESS: Final = "user"
# States of one question, at most: more than anybody reads, and each is lifted by itself.
STATES_MAX: Final = 50


@dataclass(slots=True)
class Run:
    """States of a chain that say the same, one after the other; from when until when that held."""

    key: StateKey
    # Hashes of the words by which its attribute is told from others of its family: of "pet dog" that for "dog".
    kind: frozenset[int]
    told: list[Told] = field(default_factory=list[Told])
    names: set[frozenset[int]] = field(default_factory=set[frozenset[int]])
    until: Instant = FOR_EVER

    @property
    def begun(self) -> Instant:
        """By then it held."""
        return self.told[0].begun

    def holds_in(self, span: Span) -> Instant:
        """How much of a span it holds, in milliseconds."""
        start = self.begun if span.start is None else max(self.begun, span.start)
        end = self.until if span.end is None else min(self.until, span.end)
        return max(0, end - start)

    def says(self, asked: frozenset[int]) -> int:
        """How many words of its value are among hashes of words; 0 when its name is not whole among them."""
        named = max((len(name) for name in self.names if name and name <= asked), default=0)
        if self.key.attribute in NAMED or named:
            return named
        words = max(len((told.state.words | told.state.numbers) & asked) for told in self.told)
        return max(len(self.kind & asked), 0 if self.names else words)

    def take(self, told: Told, before: Collection[frozenset[int]]) -> None:
        """Another state that says the same; `before` are the names of the one that this one followed."""
        self.told.append(told)
        self.names.update([name for name in told.state.names if name not in before] or told.state.names)


@dataclass(frozen=True, slots=True)
class States:
    """The states of the entities that a question speaks of; `others` are of another kind than is asked for."""

    asked: TimeQuestion
    runs: Sequence[Run]
    others: Sequence[Run]
    anchor: frozenset[int]
    words: frozenset[int]


def find_states(
    validity: Validity, scopes: EntityScopes, question: str, asked: TimeQuestion, key: bytes
) -> States | None:
    """The states that a question may be about; None when it speaks of none that is known.

    `key`: the user's reference, under which words of states are hashed.
    """
    known = {each.entity for each in validity.states}
    entities = _entities_of(scopes, asked.rest or question, asked, known)
    if not entities:
        return None
    # What the question names may have happened to somebody else.
    beside = entities | {scopes.aliases.canonical(label) for label in scopes.named_in(asked.anchor or "")}
    chains = {each: chain for each, chain in validity.states.items() if each.entity in beside}
    wanted = {each for each in chains if each.entity in entities and _is_asked(each.attribute, asked, question)}
    names = {term for entity in entities for name in scopes.aliases.names_of(entity) for term in terms(name)}
    words = frozenset(hash_terms(key, _terms_of(question) - names))
    anchor = frozenset(hash_terms(key, _terms_of(asked.anchor or "") - names))
    runs = _runs_of({each: chains[each] for each in chains if each in wanted}, validity, key)
    others = _runs_of({each: chains[each] for each in chains if each not in wanted}, validity, key)
    return States(asked, runs, others, anchor, words)


def choose_states(
    states: States, anchor_at: Instant | None = None, shows: Callable[[FactId], bool] = lambda _: True
) -> list[FactId]:
    """The facts that tell what is asked for, the best first; empty when no state is.

    `anchor_at`: when what the question names happened, if no state of it is known.
    """
    # What holds is told best by who told it last: in a few words of the same another value may be.
    at = -1 if states.asked.kind in (TimeKind.LAST, TimeKind.LATEST) else 0
    facts = (run.told[at].fact for run in _choose(states, anchor_at))
    return list(dict.fromkeys(fact for fact in facts if shows(fact)))[:STATES_MAX]


def _terms_of(text: str) -> set[str]:
    """The terms of a text, and those by which states know the places in it."""
    return set(terms(text)).union(*map(terms, places_in(text)))


def _choose(states: States, anchor_at: Instant | None) -> list[Run]:
    asked, runs = states.asked, states.runs
    if asked.kind is TimeKind.WHEN:
        return _told_when(states)
    if asked.kind is TimeKind.HOW_LONG:
        return _lasting(states)
    if not runs:
        return []
    if asked.kind in (TimeKind.FIRST, TimeKind.HOW_OFTEN):
        return list(runs) if asked.kind is TimeKind.HOW_OFTEN else [runs[0]]
    if asked.kind in (TimeKind.LAST, TimeKind.LATEST):
        return [runs[-1]]
    at = _find(runs, states.anchor)
    beside = None if at is not None or not states.anchor else _find(states.others, states.anchor)
    when = asked.span
    if beside is not None:
        when = Span(states.others[beside].begun, states.others[beside].until)
    elif when is None and anchor_at is not None:
        when = Span(anchor_at, anchor_at + 1)
    if asked.kind in BACKWARDS:
        return _before(states, at, when)
    if asked.kind in FORWARDS:
        return _after(states, at, when)
    if at is not None:
        return [runs[at]]
    if when is None:
        return []
    held = [run for run in runs if run.holds_in(when)]
    return sorted(held, key=lambda run: -run.holds_in(when)) if asked.kind is TimeKind.AT else held


def _before(states: States, at: int | None, when: Span | None) -> list[Run]:
    """The one before that, then what it gave way to."""
    runs = states.runs
    if at is not None:
        return [runs[at - 1], runs[at]] if at else []
    if when is not None and when.start is not None:
        return [run for run in reversed(runs) if run.begun < when.start]
    if states.anchor:
        return []  # something that nobody told of
    return list(reversed(runs[:-1])) if runs[-1].until == FOR_EVER else list(reversed(runs))


def _after(states: States, at: int | None, when: Span | None) -> list[Run]:
    """The one after that; since a day, the one that held when it was over, and those after it."""
    runs = states.runs
    if at is not None:
        return list(runs[at + 1 : at + 2])
    if when is None or when.start is None:
        return []
    if states.asked.span is None:
        later = [run for run in runs if run.begun >= when.start]
        return later or [run for run in runs if run.until > when.start]
    end = when.end if states.asked.kind is TimeKind.AFTER and when.end is not None else when.start
    return [run for run in runs if run.until > end]


def _told_when(states: States) -> list[Run]:
    """The one whose value the question names: when it began."""
    named = [run for run in states.runs if run.says(states.words)]
    return named[-1:] if states.asked.order is Order.LATEST_FIRST else named[:1]


def _lasting(states: States) -> list[Run]:
    """The one whose value the question names, and what it gave way to: from when until when it held."""
    runs = states.runs
    found = _find(runs, states.words)
    if found is None:
        return []
    return [runs[found], *runs[found + 1 : found + 2]]


def _find(runs: Sequence[Run], words: frozenset[int]) -> int | None:
    """The run that says most of these words, the last of equal ones."""
    said = [(run.says(words), at) for at, run in enumerate(runs)]
    best = max(said, default=(0, 0))
    return best[1] if best[0] else None


def _runs_of(chains: Mapping[StateKey, Sequence[Told]], validity: Validity, key: bytes) -> list[Run]:
    """The states of some chains in time order; those that say the same behind each other are one."""
    runs: list[Run] = []
    merged = sorted(((told, of) for of, chain in chains.items() for told in chain), key=lambda each: each[0][:3])
    for told, of in merged:
        if told.state.stance is Stance.ENDED:
            continue
        last = next((run for run in reversed(runs) if run.key == of), None)
        if last is not None and not _differ(told.state, last, of.attribute):
            last.take(told, ())
        elif of.attribute not in NAMED or told.state.names:
            run = Run(of, frozenset(hash_terms(key, set(terms(of.attribute.partition(" ")[2])))))
            run.take(told, () if last is None else last.names)
            runs.append(run)
    for at, run in enumerate(runs):
        run.until = _end_of(run, runs[at + 1 :], validity)
    return runs


def _differ(state: State, run: Run, attribute: str) -> bool:
    """Whether a state has another value than those before it; of homes and employers, only when that is sure.

    Unlike where one ends the other, a name is enough: who traded a Subaru for a Tesla names both.
    """
    if attribute in NAMED or not state.names or not run.names:
        return compare(state, run.told[0].state, attribute) is Sameness.DIFFERENT
    return any(not any(name <= known or known <= name for known in run.names) for name in state.names)


def _end_of(run: Run, later: Sequence[Run], validity: Validity) -> Instant:
    ends = [validity.until(told.fact) for told in run.told]
    if None not in ends:
        return max(end for end in ends if end is not None)
    if not holds_several(run.key.attribute):
        return next((each.begun for each in later if each.key == run.key), FOR_EVER)
    return FOR_EVER


def _entities_of(scopes: EntityScopes, question: str, asked: TimeQuestion, known: Collection[str]) -> set[str]:
    """Whose states a question asks for: whom it names, else whoever asks."""
    named = {scopes.aliases.canonical(label) for label in scopes.named_in(question)} & set(known)
    if named or not asked.of_self:
        return named
    own = scopes.owner
    return {own if own is not None else NAMELESS} & set(known)


def _is_asked(attribute: str, asked: TimeQuestion, question: str) -> bool:
    """Whether a chain is of the kind that is asked for; one without a list here is when the question names it."""
    if asked.attribute is not None:
        known = canonical_attribute(attribute)
        return known == asked.attribute or known.split(" ")[0] == asked.attribute
    own = set(query_terms(attribute))
    return bool(own) and own <= set(query_terms(question))
