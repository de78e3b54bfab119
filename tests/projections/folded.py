"""A Memory that a test folds by hand, one event after the other, with decisions made on the Memory itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from events.envelope import NewEvent, Reference
from events.eventtree import NodesMerged, UnitsPartitioned
from events.hindsight import Hindsight
from events.memory import (
    Admission,
    ExtractedFact,
    FactId,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    Mention,
    Pointer,
    WorkParked,
)
from projections.facts.admission import plan_admissions
from projections.memory import Memory, MemoryParameters
from projections.recall.nodes import NodeKind
from projections.recall.tokens import query_terms
from tests.builders import KEYS, MONDAY, a_turn, an_admission, an_extraction, an_id, as_recorded, lineage_of

ALICE = KEYS.user("alice")


class Fold:
    """A Memory that is given events as a log would hold them, with decisions made on the Memory itself."""

    def __init__(self, *, concatenation_max: int = 800, tombstones: dict[Reference, int] | None = None) -> None:
        parameters = MemoryParameters(concatenation_max=concatenation_max)
        self.memory = Memory(ALICE, parameters, Hindsight(tombstones=tombstones or {}))
        self.events: list[NewEvent] = []

    def apply(self, *events: NewEvent, erased: bool = False) -> Memory:
        for new in events:
            self.events.append(new)
            self.memory.apply(as_recorded(new, len(self.events), erased=erased))
        return self.memory

    def say(self, count: int = 2, session: str = "s1", content: str = "I moved to Miami.") -> None:
        for _ in range(count):
            at = MONDAY + len(self.events) * 1000
            number = f"t{len(self.events)}"
            self.apply(a_turn(content, session_id=session, turn_id=number, happened_at=at))

    def extract(
        self, turns: tuple[int, ...], *texts: str, session: str = "s1", labels: tuple[str, ...] = ()
    ) -> None:
        """A model read these facts, all of which name the labels."""
        new = an_extraction(turns, texts, session_id=session)
        assert isinstance(new.event, FactsExtracted)
        mentions = tuple(map(Mention, labels))
        facts = tuple(ExtractedFact(text, (0,), MONDAY, MONDAY, mentions=mentions) for text in texts)
        self.apply(replace(new, event=replace(new.event, facts=facts)))

    def admit(self) -> list[FactId]:
        """Admit what waits; the facts it went into."""
        facts: list[FactId] = []
        for decision, lineage in plan_admissions(self.memory.canon, 1):
            facts += [admission.fact for admission in decision.admissions]
            self.apply(replace(an_admission(Pointer(len(self.events), 0)), event=decision, lineage=tuple(lineage)))
        return facts

    def tell(self, *texts: str, session: str = "s1", labels: tuple[str, ...] = ()) -> list[FactId]:
        """Two turns, their extraction and its admission."""
        self.say(2, session)
        self.extract((len(self.events) - 1, len(self.events)), *texts, session=session, labels=labels)
        return self.admit()

    def merge(
        self, members: list[FactId], text: str, sessions: Iterable[str] = ("s1",), *, extractive: bool = False
    ) -> None:
        event = NodesMerged(1, an_id("unit"), tuple(members), (), "offline", text, extractive=extractive)
        self.apply(self.decided(event, sessions))

    def join(self, fact: FactId, occurrence: Pointer, sessions: Iterable[str]) -> None:
        """What was admitted is of this fact from now on, with all of the fact that it stood in."""
        event = FactsAdmitted(1, (Admission(fact, occurrence),))
        self.apply(replace(an_admission(Pointer(len(self.events), 0)), event=event, lineage=lineage_of(sessions)))

    def decided(
        self, event: NodesMerged | UnitsPartitioned | IntervalSummarised | WorkParked, sessions: Iterable[str]
    ) -> NewEvent:
        key = f"decision/{len(self.events)}"
        return NewEvent("alice", None, event, key, MONDAY, lineage_of(sessions), basis=self.memory.user_seq)


def again(fold: Fold, **tombstones: int) -> Memory:
    """The same log folded from nothing, with these sessions forgotten at these user_seqs."""
    known = {KEYS.session("alice", session): at for session, at in tombstones.items()}
    memory = Memory(ALICE, fold.memory.parameters, Hindsight(tombstones=known))
    for user_seq, new in enumerate(fold.events, 1):
        erased = any(user_seq < known.get(session, 0) for session in new.lineage)
        memory.apply(as_recorded(new, user_seq, erased=erased))
    return memory


def found(memory: Memory, question: str) -> list[NodeKind]:
    """The kinds of the nodes that share a word with the question."""
    scores = memory.nodes.lexical.scores(query_terms(question), memory.nodes.size)
    return [memory.nodes.node(row).kind for row in memory.nodes.live_rows().tolist() if scores[row] > 0]
