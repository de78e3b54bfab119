"""Which scope a fact belongs to, by rule and without a model call (paper B, Eq. B6).

An entity is active from 3 facts and 2 sessions on, over all its names. The owner's own names are the scope `user`.
A label whose capital may only come from its place in a sentence counts once the user's own turns show that it is a
name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from events.envelope import Reference
from events.memory import FactId, Mention
from projections.facts.aliases import NAMES_MAX, Aliases, Link
from projections.facts.labels import CapitalCounts, can_name, first_word, labels_in, normalise_label

# Below these a label is a passing mention, not worth a tree (paper B; reference-code.md 2.5).
ENTITY_FACTS_MIN = 3
ENTITY_SESSIONS_MIN = 2


class ScopeKind(StrEnum):
    """What a MemTree is about."""

    SESSION = "session"
    ENTITY = "entity"
    SCENE = "scene"
    USER = "user"


class Scope(NamedTuple):
    """One scope: its kind and name.

    A session's reference or a scene's id in hex, an entity's label, nothing for `user`.
    """

    kind: ScopeKind
    name: str


USER_SCOPE = Scope(ScopeKind.USER, "")


# Facts that name an entity, and the sessions in which they do.
_Counts: TypeAlias = tuple[set[FactId], set[Reference]]


@dataclass(slots=True)
class _Label:
    """The facts that name an entity by this label.

    `doubtful` facts have a capital that may not mean a name; they count once the word is known as one.
    """

    sure: set[FactId] = field(default_factory=set[FactId])
    doubtful: set[FactId] = field(default_factory=set[FactId])
    sure_sessions: set[Reference] = field(default_factory=set[Reference])
    doubtful_sessions: set[Reference] = field(default_factory=set[Reference])
    # Where each fact was said when it named the entity last.
    sessions: dict[FactId, frozenset[Reference]] = field(default_factory=dict[FactId, frozenset[Reference]])


@dataclass(slots=True)
class _Entity:
    """What the tree of an entity holds, whatever its names are, and what came since it was last looked at.

    Without `has_tree` it is a number, a date or the like.
    """

    has_tree: bool
    fresh: set[FactId] = field(default_factory=set[FactId])
    gone: set[FactId] = field(default_factory=set[FactId])
    # What the tree of `scope` holds because of these names; of those in `counting` doubtful facts, too.
    held: set[FactId] = field(default_factory=set[FactId])
    scope: Scope | None = None
    names: tuple[str, ...] = ()
    counting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """Facts that join or leave the tree of a scope."""

    scope: Scope
    joining: frozenset[FactId]
    leaving: frozenset[FactId]


class EntityScopes:
    """The labels of one user's facts, which of them are one entity, and which facts each entity's scope holds."""

    def __init__(self, key: bytes = b"") -> None:
        """`key`: the user's reference, under which words of turns are hashed."""
        self.aliases = Aliases()
        self._labels: dict[str, _Label] = {}
        # By the name under which each is known.
        self._entities: dict[str, _Entity] = {}
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
        return labels | self._moved_owner(owner)

    def link(self, links: Sequence[Link]) -> set[str]:
        """Learn that names are of one entity; the labels whose scope may hold other facts now."""
        changed = self.aliases.add(links)
        for label in changed & self._labels.keys():
            self._entity_of(label)  # there may be none of that name yet
        return changed

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
            self._entity_of(mention.label).fresh.add(fact)
        return {mention.label for mention in mentions}

    def remove_fact(self, fact: FactId, labels: Iterable[str]) -> set[str]:
        """A fact that named these labels is known no more; the labels."""
        removed = {label for label in labels if label in self._labels}
        for label in removed:
            _take_out(self._labels[label], fact)
            entity = self._entity_of(label)
            entity.fresh.discard(fact)
            entity.gone.add(fact)
        return removed

    def named_in(self, text: str) -> list[str]:
        """The labels of facts, and their other names, that a text names; those that may be no names are left out.

        As they stand in the text: that they are one entity's is not for whoever asks to settle for ever.
        """
        folded = normalise_label(text)
        known = {name for names in self.aliases.groups().values() for name in names}
        labels = labels_in(folded, self._labels.keys(), self._lengths)
        sure = [label for label in labels if self._labels[label].sure]
        return sorted({*sure, *labels_in(folded, known, {len(name) for name in known})})

    @property
    def owner(self) -> str | None:
        """The owner as an entity, when all names that the user's turns carry are of one; None otherwise."""
        names = self._owner_names
        if not 0 < len(names) <= NAMES_MAX:
            return None
        first = self.aliases.canonical(next(iter(names)))
        return first if len(names) == 1 or all(self.aliases.canonical(name) == first for name in names) else None

    def changes(self, label: str) -> list[ScopeChange]:
        """What joins and leaves scopes because of a label since this was last asked.

        Costs as much as came since then. Only when its entity turns into something else (a name, the owner,
        active, one with other names) all of its facts are looked at.
        """
        # A label that became another one's alias has a tree of its own to be emptied.
        entities = dict.fromkeys((label, self.aliases.canonical(label)))
        return [change for name in entities for change in self._changes_of(name)]

    def _changes_of(self, name: str) -> list[ScopeChange]:
        entity = self._entities.get(name)
        if entity is None:  # no fact names it any more
            return []
        names = self.aliases.names_of(name) if self.aliases.canonical(name) == name else ()
        labels = {each: self._labels[each] for each in names if each in self._labels}
        counting = tuple([each for each in labels if labels[each].doubtful and self._capitals.is_name(each)])
        counts = [(entry.sure, entry.sure_sessions) for entry in labels.values()]
        counts += [(labels[each].doubtful, labels[each].doubtful_sessions) for each in counting]
        scope = self._scope_of(name, entity, counts)
        same = scope == entity.scope and names == entity.names and counting == entity.counting
        counted: set[FactId] = set()
        for facts, _ in counts:
            counted |= entity.fresh & facts if same else facts
        changes: list[ScopeChange] = []
        if scope != entity.scope and entity.scope is not None:
            changes.append(ScopeChange(entity.scope, frozenset(), frozenset(entity.held)))
            entity.held = set()
        if scope is not None:
            leaving = frozenset(entity.held & entity.gone if same else entity.held - counted)
            changes.append(ScopeChange(scope, frozenset(counted - entity.held), leaving))
            entity.held |= counted
            entity.held -= leaving
        if not same:
            entity.scope, entity.names, entity.counting = scope, names, counting
        if entity.gone or not labels:
            self._drop_unused(name, labels)
        entity.fresh.clear()
        entity.gone.clear()
        return [change for change in changes if change.joining or change.leaving]

    def _drop_unused(self, name: str, labels: dict[str, _Label]) -> None:
        """What no fact names any more is not kept, and no entity without any label."""
        unused = [each for each, entry in labels.items() if not entry.sessions]
        for each in unused:
            self._drop(each)
        if len(unused) == len(labels):
            del self._entities[name]

    def _entity_of(self, label: str) -> _Entity:
        name = self.aliases.canonical(label)
        entity = self._entities.get(name)
        if entity is None:
            entity = self._entities[name] = _Entity(can_name(name))
        return entity

    def _moved_owner(self, before: str | None) -> set[str]:
        """The entities that are or were the owner's, when that is another than before."""
        now = self.owner
        return set() if before == now else {each for each in (before, now) if each in self._entities}

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

    def _scope_of(self, name: str, entity: _Entity, counts: Collection[_Counts]) -> Scope | None:
        """The scope that an entity's facts are in now; None while it is not active."""
        if name == self.owner and counts:
            return USER_SCOPE
        if not entity.has_tree:
            return None
        active = _have((facts for facts, _ in counts), ENTITY_FACTS_MIN)
        active = active and _have((sessions for _, sessions in counts), ENTITY_SESSIONS_MIN)
        return Scope(ScopeKind.ENTITY, name) if active else None


def _have(sets: Iterable[set[bytes]], least: int) -> bool:
    """Whether sets have so many elements together; looks at no large set but for its size."""
    together: set[bytes] = set()
    for each in sets:
        if len(each) >= least:
            return True
        together |= each
    return len(together) >= least


def _take_out(entry: _Label, fact: FactId) -> None:
    """A fact, and the sessions in which nothing else names the entity; knowing one may cost a look at all."""
    gone = entry.sessions.pop(fact, frozenset())
    for facts, sessions in ((entry.sure, entry.sure_sessions), (entry.doubtful, entry.doubtful_sessions)):
        facts.discard(fact)
        # Most sessions have another one, which is found soon.
        sessions -= {each for each in gone & sessions if not any(each in entry.sessions[other] for other in facts)}
