"""Which scope a fact belongs to, by rule and without a model call (paper B, Eq. B6).

An entity is active from 3 facts and 2 sessions on. The owner's own name is the scope `user`. A label whose
capital may only come from its place in a sentence counts once the user's own turns show that it is a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from events.envelope import Reference
from events.memory import FactId, Mention
from projections.facts.labels import CapitalCounts, first_word, labels_in, normalise_label

# Below these a label is a passing mention, not worth a tree (paper B; reference-code.md 2.5).
ENTITY_FACTS_MIN = 3
ENTITY_SESSIONS_MIN = 2


class ScopeKind(StrEnum):
    """What a MemTree is about."""

    SESSION = "session"
    ENTITY = "entity"
    USER = "user"


class Scope(NamedTuple):
    """One scope: its kind and name (a session's reference in hex, an entity's label, nothing for `user`)."""

    kind: ScopeKind
    name: str


USER_SCOPE = Scope(ScopeKind.USER, "")


@dataclass(slots=True)
class _Label:
    """The facts that name an entity, and what its tree holds of them.

    `doubtful` facts have a capital that may not mean a name; they count once the word is known as one.
    """

    sure: set[FactId] = field(default_factory=set[FactId])
    doubtful: set[FactId] = field(default_factory=set[FactId])
    sure_sessions: set[Reference] = field(default_factory=set[Reference])
    doubtful_sessions: set[Reference] = field(default_factory=set[Reference])
    # Where each fact was said when it named the entity last.
    sessions: dict[FactId, frozenset[Reference]] = field(default_factory=dict[FactId, frozenset[Reference]])
    # Facts that came and went since it was last looked at; what the tree of `scope` holds because of the label.
    fresh: set[FactId] = field(default_factory=set[FactId])
    gone: set[FactId] = field(default_factory=set[FactId])
    held: set[FactId] = field(default_factory=set[FactId])
    scope: Scope | None = None
    counts_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """Facts that join or leave the tree of a scope."""

    scope: Scope
    joining: frozenset[FactId]
    leaving: frozenset[FactId]


class EntityScopes:
    """The labels of one user's facts, and which facts each label's scope holds."""

    def __init__(self, key: bytes = b"") -> None:
        """`key`: the user's reference, under which words of turns are hashed."""
        self._labels: dict[str, _Label] = {}
        # How many labels have so many characters.
        self._lengths: Counter[int] = Counter()
        self._capitals = CapitalCounts(key)
        # By the number of a label's first word.
        self._by_first_word: dict[int, set[str]] = {}
        # The names that the user's turns carry, and the first turn with each.
        self._owner_names: dict[str, int] = {}

    def count_turn(self, text: str, role: str, name: str | None, seq: int = 0) -> set[str]:
        """Learn from the turn at a seq; the labels whose scope may hold other facts now."""
        owner = self.owner
        changed = self._capitals.count(text)
        if role == "user" and name:
            self._owner_names.setdefault(normalise_label(name), seq)
        labels: set[str] = set()
        for word in changed & self._by_first_word.keys():
            labels.update(label for label in self._by_first_word[word] if self._labels[label].doubtful)
        if owner != self.owner:
            labels.update(label for label in (owner, self.owner) if label in self._labels)
        return labels

    def add_fact(self, fact: FactId, mentions: tuple[Mention, ...], sessions: frozenset[Reference]) -> set[str]:
        """Note who a fact names; those labels."""
        for mention in mentions:
            entry = self._labels.get(mention.label) or self._keep(mention.label, _Label())
            if fact in entry.sure or not mention.uncertain:
                entry.sure.add(fact)
                entry.sure_sessions |= sessions
                entry.doubtful.discard(fact)
            else:
                entry.doubtful.add(fact)
                entry.doubtful_sessions |= sessions
            entry.sessions[fact] = sessions
            entry.fresh.add(fact)
        return {mention.label for mention in mentions}

    def remove_fact(self, fact: FactId, labels: Iterable[str]) -> set[str]:
        """A fact that named these labels is known no more; the labels."""
        removed = {label for label in labels if label in self._labels}
        for label in removed:
            entry = self._labels[label]
            _take_out(entry, fact)
            entry.gone.add(fact)
        return removed

    def named_in(self, text: str) -> list[str]:
        """The labels of facts that a text names, by rule; those that may be no names are left out."""
        labels = labels_in(normalise_label(text), self._labels.keys(), self._lengths)
        return [label for label in labels if self._labels[label].sure]

    @property
    def owner(self) -> str | None:
        """The owner's label, when the user's turns carry exactly one name."""
        return next(iter(self._owner_names)) if len(self._owner_names) == 1 else None

    def changes(self, label: str) -> list[ScopeChange]:
        """What joins and leaves scopes because of a label since this was last asked.

        Costs as much as came since then. Only when the label itself turns into something else (a name, the
        owner, active) all of its facts are looked at.
        """
        entry = self._labels.get(label)
        if entry is None:  # no fact names it any more
            return []
        doubtful = bool(entry.doubtful) and self._capitals.is_name(label)
        scope = self._scope_of(label, entry, doubtful=doubtful)
        same = scope == entry.scope and doubtful == entry.counts_doubtful
        candidates = entry.fresh if same else entry.sure | entry.doubtful
        counted = candidates if doubtful else candidates & entry.sure
        changes: list[ScopeChange] = []
        if scope != entry.scope and entry.scope is not None:
            changes.append(ScopeChange(entry.scope, frozenset(), frozenset(entry.held)))
            entry.held = set()
        if scope is not None:
            leaving = frozenset(entry.held & entry.gone if same else entry.held - counted)
            changes.append(ScopeChange(scope, frozenset(counted - entry.held), leaving))
            entry.held |= counted
            entry.held -= leaving
        entry.fresh, entry.gone = set(), set()
        entry.scope, entry.counts_doubtful = scope, doubtful
        if not entry.sessions:
            self._drop(label)
        return [change for change in changes if change.joining or change.leaving]

    def _keep(self, label: str, entry: _Label) -> _Label:
        """A fact names it for the first time."""
        self._labels[label] = entry
        self._lengths[len(label)] += 1
        self._by_first_word.setdefault(self._first_number(label), set()).add(label)
        return entry

    def _drop(self, label: str) -> None:
        """No fact names it any more."""
        del self._labels[label]
        self._lengths[len(label)] -= 1
        if not self._lengths[len(label)]:
            del self._lengths[len(label)]
        number = self._first_number(label)
        named = self._by_first_word[number]
        named.discard(label)
        if not named:
            del self._by_first_word[number]

    def _first_number(self, label: str) -> int:
        return self._capitals.number(first_word(label))

    def _scope_of(self, label: str, entry: _Label, *, doubtful: bool) -> Scope | None:
        """The scope that a label's facts are in now; None while the entity is not active."""
        if label == self.owner:
            return USER_SCOPE
        facts = len(entry.sure) + (len(entry.doubtful) if doubtful else 0)
        sessions = entry.sure_sessions | entry.doubtful_sessions if doubtful else entry.sure_sessions
        active = facts >= ENTITY_FACTS_MIN and len(sessions) >= ENTITY_SESSIONS_MIN
        return Scope(ScopeKind.ENTITY, label) if active else None


def _take_out(entry: _Label, fact: FactId) -> None:
    """A fact, and the sessions in which nothing else names the entity. Rare, so it may look at all facts."""
    for facts in (entry.sure, entry.doubtful, entry.fresh):
        facts.discard(fact)
    entry.sessions.pop(fact, None)
    entry.sure_sessions = {session for each in entry.sure for session in entry.sessions[each]}
    entry.doubtful_sessions = {session for each in entry.doubtful for session in entry.sessions[each]}
