"""What was decided on the facts of conversations: which were joined, which scenes they are in, what ended what.

Counted, and spelt out for people to judge: none of the data sets says which facts are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from sklearn.metrics import adjusted_rand_score

from daemon.texts import read_texts
from events.decisions import SceneId
from events.log import EventLog
from events.memory import FactId
from events.reading import read_events
from events.session import TurnRecorded
from events.time import Instant
from projections.facts.canonical import Fact
from projections.memory import Memory
from projections.ports import Embedder
from projections.texts import FactText
from tests.quality.growing import events_of, gardener
from tests.quality.locomo import Conversation
from tests.quality.tables import Cell, Table


@dataclass(frozen=True, slots=True)
class FactSeen:
    """A canonical fact: its text, other wordings that joined it, its turns, its scenes, the nearest first."""

    text: str
    joined: tuple[str, ...]
    again: int  # readings in the very same words, beside the first
    turn_ids: frozenset[str]
    scenes: tuple[SceneId, ...]
    time_start: Instant


@dataclass(frozen=True, slots=True)
class Ended:
    """A state, what came in its place (its text; None when it just ended), and when."""

    state: FactSeen
    by: FactSeen | None
    until: Instant | None


@dataclass(frozen=True, slots=True)
class Decided:
    """All that was decided on one conversation."""

    name: str
    facts: Mapping[FactId, FactSeen]
    ended: tuple[Ended, ...]

    def scene_sizes(self) -> list[int]:
        """Facts a scene, the largest first."""
        return sorted(
            Counter(scene for fact in self.facts.values() for scene in fact.scenes).values(), reverse=True
        )

    def scenes_of_turns(self) -> dict[str, frozenset[SceneId]]:
        """All scenes of the facts of each turn."""
        found: dict[str, frozenset[SceneId]] = {}
        for fact in self.facts.values():
            for turn_id in fact.turn_ids:
                found[turn_id] = found.get(turn_id, frozenset()).union(fact.scenes)
        return found

    def scene_of_turns(self) -> dict[str, SceneId]:
        """The scene of the first fact of each turn, where it has one."""
        found: dict[str, SceneId] = {}
        for fact in self.facts.values():
            for turn_id in sorted(fact.turn_ids) if fact.scenes else ():
                found.setdefault(turn_id, fact.scenes[0])
        return found


async def decide_on(conversation: Conversation, embedder: Embedder | None = None) -> Decided:
    """Grow a conversation and read what was decided, by the built-in embedder unless another is given."""
    async with gardener(embedder=embedder) as growing:
        memory: Memory | None = None
        for events in events_of(conversation):
            memory = await growing.grow(events, conversation.conversation_id)
        assert memory is not None
        return await _read(growing.log, memory, conversation.conversation_id)


def decisions_table(decided: Iterable[tuple[Conversation, Decided]]) -> Table:
    """A row a conversation; the last two columns are `evidence_together`."""
    headings = (
        "conversation",
        "facts",
        "joined, same words",
        "joined, other words",
        "scenes",
        "of one fact",
        "mean size",
        "largest",
        "facts in no scene",
        "in two",
        "states ended",
        "evidence together",
        "any two turns",
    )
    return Table("What was decided on facts, offline models", headings, [_row(*each) for each in decided])


def scenes_agree(one: Decided, other: Decided) -> float:
    """How alike two languages' scenes are over the turns that have one in both: adjusted Rand index.

    1 for the same scenes, about 0 for scenes by chance.
    """
    scenes, others = one.scene_of_turns(), other.scene_of_turns()
    both = sorted(scenes.keys() & others.keys())
    return float(adjusted_rand_score([scenes[each].hex() for each in both], [others[each].hex() for each in both]))


class Together(NamedTuple):
    """Shares of pairs of turns that have a scene in common: those that answer one question, and all pairs."""

    evidence: float
    any_two: float


def evidence_together(conversation: Conversation, decided: Decided) -> Together:
    """Whether scenes bring together what is asked for together; only pairs of turns that have facts count."""
    scenes = decided.scenes_of_turns()
    asked = {
        pair
        for question in conversation.questions
        for pair in combinations(sorted(question.gold & scenes.keys()), 2)
    }
    every = combinations(sorted(scenes), 2)
    return Together(_share(asked, scenes), _share(every, scenes))


def _share(pairs: Iterable[tuple[str, str]], scenes: Mapping[str, frozenset[SceneId]]) -> float:
    met = [not scenes[one].isdisjoint(scenes[other]) for one, other in pairs]
    return fmean(met) if met else 0.0


def joins_agree(one: Decided, other: Decided) -> tuple[int, int, int]:
    """Pairs of turns with a common fact: in both languages, in the first only, in the other only."""
    pairs, others = _joined_pairs(one), _joined_pairs(other)
    return len(pairs & others), len(pairs - others), len(others - pairs)


def _joined_pairs(decided: Decided) -> set[tuple[str, str]]:
    """Turns that said the same; turns of one sentence's context say nothing of that."""
    joined = [sorted(fact.turn_ids) for fact in decided.facts.values() if fact.joined or fact.again]
    return {(one, other) for turns in joined for n, one in enumerate(turns) for other in turns[n + 1 :]}


def _row(conversation: Conversation, decided: Decided) -> Sequence[Cell]:
    together = evidence_together(conversation, decided)
    sizes, facts = decided.scene_sizes(), decided.facts.values()
    return (
        decided.name,
        len(facts),
        sum(fact.again for fact in facts),
        sum(len(fact.joined) for fact in facts),
        len(sizes),
        sizes.count(1),
        fmean(sizes) if sizes else 0.0,
        sizes[0] if sizes else 0,
        sum(not fact.scenes for fact in facts),
        sum(len(fact.scenes) > 1 for fact in facts),
        len(decided.ended),
        together.evidence if conversation.questions else "",
        together.any_two,
    )


async def _read(log: EventLog, memory: Memory, name: str) -> Decided:
    facts = list(memory.canon.facts.values())
    recorded = await log.read(lambda db: read_events(db, {seq for fact in facts for seq in fact.turns}))
    said = {seq: each.event.turn_id for seq, each in recorded.items() if isinstance(each.event, TurnRecorded)}
    seen: dict[FactId, FactSeen] = {}
    for fact in facts:
        texts = await read_texts(log, [FactText(each.pointer) for each in fact.occurrences])
        seen[fact.id] = _see(fact, [text or "" for text in texts], said, memory)
    ended = tuple(
        Ended(seen[each.fact], None if each.by is None else seen.get(each.by), each.until)
        for each in memory.placement.validity.superseded.values()
        if each.fact in seen
    )
    return Decided(name, seen, ended)


def _see(fact: Fact, texts: Sequence[str], said: Mapping[int, str | None], memory: Memory) -> FactSeen:
    same = [each.likeness == fact.first.likeness for each in fact.occurrences[1:]]
    return FactSeen(
        texts[0],
        tuple(text for text, is_same in zip(texts[1:], same, strict=True) if not is_same),
        sum(same),
        frozenset(turn_id for seq in fact.turns if (turn_id := said[seq])),
        memory.placement.scenes.scenes_of(fact.id),
        fact.first.time_start,
    )
