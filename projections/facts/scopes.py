"""Which scope a fact belongs to, by rule and without a model call (paper B, Eq. B6).

An entity is active from 3 facts and 2 sessions on. The owner's own name is the scope `user`. A label whose
capital may only come from its place in a sentence counts once the user's own turns show that it is a name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from events.envelope import Reference
from events.memory import FactId, Mention
from projections.facts.labels import CapitalCounts, first_word, normalise_label

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
    """The facts that name an entity; `doubtful` ones only with a capital that may not mean a name."""

    sure: dict[FactId, frozenset[Reference]] = field(default_factory=dict[FactId, "frozenset[Reference]"])
    doubtful: dict[FactId, frozenset[Reference]] = field(default_factory=dict[FactId, "frozenset[Reference]"])


@dataclass(frozen=True, slots=True)
class Membership:
    """Which facts an entity's scope should hold now; empty while it is not active."""

    scope: Scope
    facts: frozenset[FactId]


class EntityScopes:
    """The labels of one user's facts, and what each label's scope holds."""

    def __init__(self) -> None:
        self._labels: dict[str, _Label] = {}
        self._by_first_word: dict[str, set[str]] = {}
        self._capitals = CapitalCounts()
        self._owner_names: Counter[str] = Counter()

    def count_turn(self, text: str, role: str, name: str | None) -> set[str]:
        """Learn from a turn; the labels whose scope may hold other facts now."""
        owner = self.owner
        changed = self._capitals.count(text)
        if role == "user" and name:
            self._owner_names[normalise_label(name)] += 1
        labels: set[str] = set()
        for word in changed & self._by_first_word.keys():
            labels.update(label for label in self._by_first_word[word] if self._labels[label].doubtful)
        if owner != self.owner:
            labels.update(label for label in (owner, self.owner) if label)
        return labels

    def add_fact(self, fact: FactId, mentions: tuple[Mention, ...], sessions: frozenset[Reference]) -> set[str]:
        """Note who a fact names; those labels."""
        for mention in mentions:
            entry = self._labels.setdefault(mention.label, _Label())
            self._by_first_word.setdefault(first_word(mention.label), set()).add(mention.label)
            if fact in entry.sure or not mention.uncertain:
                entry.sure[fact] = sessions
                entry.doubtful.pop(fact, None)
            else:
                entry.doubtful[fact] = sessions
        return {mention.label for mention in mentions}

    @property
    def owner(self) -> str | None:
        """The owner's label, when the user's turns carry exactly one name."""
        return next(iter(self._owner_names)) if len(self._owner_names) == 1 else None

    def membership(self, label: str) -> Membership:
        """What the entity scope of a label should hold now."""
        scope = Scope(ScopeKind.ENTITY, label)
        facts = self._facts_of(label)
        sessions = {session for of_fact in facts.values() for session in of_fact}
        active = len(facts) >= ENTITY_FACTS_MIN and len(sessions) >= ENTITY_SESSIONS_MIN
        return Membership(scope, frozenset(facts if active and label != self.owner else ()))

    def user_membership(self) -> Membership:
        """What the scope `user` should hold now: the facts that name the owner."""
        return Membership(USER_SCOPE, frozenset(self._facts_of(self.owner) if self.owner else ()))

    def _facts_of(self, label: str) -> dict[FactId, frozenset[Reference]]:
        entry = self._labels.get(label)
        if entry is None:
            return {}
        if entry.doubtful and self._capitals.is_name(label):
            return entry.sure | entry.doubtful
        return entry.sure
