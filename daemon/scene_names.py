"""What scenes are called: what their members name most, and else how one of them reads.

A name is made when somebody looks. Labels are those of the fold; topics and texts are read from the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from events.envelope import RecordedEvent
from events.memory import FactId, Pointer
from projections.facts.labels import normalise_label
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.steps import Steps, at_once, each_of
from projections.texts import fact_in, text_of_fact

# Of a scene so many members are read again, evenly over its time: there may be a thousand scenes in a list.
READINGS_MAX = 12
LABELS_MAX = 2
# A name is short enough for a column.
CHARACTERS_MAX = 60
# What fewer than one in so many members name is not what a scene is about.
NAMED_BY_ONE_IN = 3


@dataclass(frozen=True, slots=True)
class SceneNaming:
    """What a scene's name is made of: labels that the fold knows, and readings that are still to be read."""

    labels: tuple[str, ...]
    readings: tuple[Pointer, ...]

    @property
    def seqs(self) -> frozenset[int]:
        """The events to read."""
        return frozenset(pointer.seq for pointer in self.readings)

    def write(self, recorded: Mapping[int, RecordedEvent]) -> str:
        """The name; what was erased meanwhile has no part in it."""
        read = [(pointer.n, recorded[pointer.seq].event) for pointer in self.readings if pointer.seq in recorded]
        facts = [fact_in(event, n) for n, event in read if event is not None]
        topics = (map(normalise_label, fact.topics) for fact in facts if fact is not None)
        # Topics are scattered; one that is named twice says more than none.
        named = [*self.labels, *_most_named(topics, min(2, len(facts)))[:1]]
        if named:
            return ", ".join(dict.fromkeys(named))
        texts = [text for n, event in read if (text := text_of_fact(event, n)) is not None]
        return " ".join(texts[len(texts) // 2].split())[:CHARACTERS_MAX] if texts else ""


def look_at_scene(memory: Memory, scope: Scope) -> SceneNaming:
    """What the name of a scene is made of."""
    return at_once(scene_in_steps(memory, scope))


def scene_in_steps(memory: Memory, scope: Scope) -> Steps[SceneNaming]:
    """The same in small steps: a scene may be half of all facts. The Memory must not change in between."""
    facts = memory.canon.facts
    placed = yield from each_of(memory.members.get(scope, ()), lambda fact: (facts[fact].first.time_start, fact))
    members = [fact for _, fact in sorted(placed)]
    yield
    step = max(1, -(-len(members) // READINGS_MAX))
    readings = tuple(facts[fact].first.pointer for fact in members[step // 2 :: step])
    named = yield from each_of(members, partial(_named_by, memory))
    return SceneNaming(_labels_of(named), readings)


def find_labels(memory: Memory, members: Iterable[FactId]) -> tuple[str, ...]:
    """The entities that many of these facts name, by their labels; never the owner, whom all of them are about."""
    return _labels_of([_named_by(memory, fact) for fact in members])


def _named_by(memory: Memory, fact: FactId) -> list[str]:
    owner = memory.scopes.owner
    return [
        mention.label
        for mention in memory.canon.facts[fact].first.mentions
        if mention.label != owner
        # What only its place in the sentence made a capital counts once it is known as a name.
        and (not mention.uncertain or Scope(ScopeKind.ENTITY, mention.label) in memory.members)
    ]


def _labels_of(named: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(_most_named(named, -(-len(named) // NAMED_BY_ONE_IN))[:LABELS_MAX])


def _most_named(named: Iterable[Iterable[str]], times_min: int) -> list[str]:
    """What at least so many members name, the most frequent first, then what was named first."""
    counts = Counter(chain.from_iterable(map(dict.fromkeys, named)))
    return [label for label, times in counts.most_common() if times >= times_min]
