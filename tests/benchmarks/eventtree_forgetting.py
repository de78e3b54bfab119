"""How many groups are fused again when a session is forgotten: with the real fold, the real units and plans.

Two hundred made-up sessions of twenty turns and as many facts come one after the other and are compacted as they
come. Then a session is forgotten, all is folded again, and the units that are due are planned: each group that is
planned then is one more call of the model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray

from daemon.building.decided import make_partitions
from daemon.building.fusing import decide
from daemon.offline.embedder import HashingEmbedder
from events.envelope import NewEvent, Reference
from events.eventtree import NodesMerged, UnitId
from events.hindsight import Hindsight
from events.memory import ExtractedFact, FactId, FactsExtracted
from projections.eventtree.merging import UnitNodes
from projections.eventtree.online import Arrival, UnitSize, due_units, plan_unit, plan_units
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.unit_sums import UnitNode, UnitSums
from projections.facts.admission import plan_admissions
from projections.memory import Memory, MemoryParameters
from tests.benchmarks.measuring import Figure, Row, sized
from tests.benchmarks.samples import SESSION_GAP_MS, Speech, turns_of
from tests.builders import KEYS, MONDAY, a_closing, a_forgetting, an_admission, an_extraction, as_recorded

SESSIONS, SESSION_TURNS = 200, 20
# Sessions that are forgotten, one after the other: what one forgetting leaves undone another one has to do.
FORGOTTEN = 20
# What a session is about: some of so many subjects, each with words of its own, and of each some details. A fact
# has so many words of the subject and of the details that groups reach across sessions a little more than those of
# real facts do (LoCoMo's: of a session of 20 facts 8.5 groups fall, and 7.2 facts of other sessions are left).
SUBJECTS, SUBJECTS_A_SESSION, SUBJECT_WORDS, DETAIL_WORDS = 60, 3, 12, 6
OF_SUBJECT, OF_DETAILS, OF_ANYTHING = 2, 4, 2
GROUPS_AGAIN_MAX = 6
USER = KEYS.user("alice")
_Vector = NDArray[np.floating[Any]]


@dataclass
class _Store:
    """A log of one user with the Memory of it, and what planning needs beside."""

    parameters: EventTreeParameters
    log: list[NewEvent] = field(default_factory=list[NewEvent])
    memory: Memory = field(default_factory=lambda: Memory(USER, MemoryParameters()))
    vectors: dict[FactId, _Vector] = field(default_factory=dict[FactId, _Vector])
    sums: UnitSums = field(default_factory=UnitSums)
    forgotten: dict[Reference, int] = field(default_factory=dict[Reference, int])

    def tell(self, *events: NewEvent) -> None:
        for new in events:
            self.log.append(new)
            self.memory.apply(as_recorded(new, len(self.log)))

    def nodes(self, unit: UnitId) -> list[UnitNode]:
        """The nodes of a unit in time order."""
        units = self.memory.units
        held = dict.fromkeys(
            units.groups[units.group_of[fact]].members if fact in units.group_of else (fact,)
            for fact in units.facts_of.get(unit, ())
        )
        nodes = [
            UnitNode(facts, np.sum([self.vectors[fact] for fact in facts], axis=0), max(map(self.position, facts)))
            for facts in held
        ]
        return sorted(nodes, key=lambda node: (node.position, node.facts))

    def position(self, fact: FactId) -> int:
        """Which of all turns it is from: they come in the order of time."""
        return self.memory.canon.facts[fact].first.turns[-1]

    def place(self) -> None:
        """Facts that are in no unit find one."""
        facts = sorted(self.memory.units.unplaced, key=self.position)
        arrivals = [Arrival(fact, self.vectors[fact], self.position(fact)) for fact in facts]
        plan = plan_units(arrivals, self.sums, self.nodes, self.parameters)
        self.tell(*make_partitions(self.memory, plan.moved))
        for unit, nodes in plan.standing.items():
            self.sums.put(unit, nodes)

    def compact(self) -> int:
        """Fuse what is due until nothing is; how many groups that made."""
        made = 0
        in_vain: dict[UnitId, int] = {}
        while due := [unit for unit in self._due() if in_vain.get(unit) != self._count(unit)]:
            made += self._merge(due[0])
            in_vain[due[0]] = self._count(due[0])
        return made

    def _due(self) -> Sequence[UnitId]:
        units = self.memory.units
        sizes = [UnitSize(unit, len(facts), self._count(unit)) for unit, facts in units.facts_of.items()]
        return due_units(sizes, self.parameters)

    def _count(self, unit: UnitId) -> int:
        """Nodes of a unit."""
        group_of = self.memory.units.group_of
        return len({group_of.get(fact, fact) for fact in self.memory.units.facts_of[unit]})

    def _merge(self, unit: UnitId) -> int:
        nodes = self.nodes(unit)
        rows = np.array([node.vector / np.linalg.norm(node.vector) for node in nodes], dtype=np.float32)
        positions = [node.position for node in nodes]
        ids, counts = [node.facts[0] for node in nodes], [len(node.facts) for node in nodes]
        plan = plan_unit(UnitNodes(rows, positions, ids, [0] * len(nodes), counts), self.parameters)
        for group in plan.groups:
            members = tuple(fact for index in group for fact in nodes[index].facts)
            merged = NodesMerged(1, unit, members, (), "made up", f"Group {len(self.log)}.")
            self.tell(decide(self.memory, merged))
        return len(plan.groups)


def measure(share: float) -> list[Row]:
    """Groups fused again, on average over sessions."""
    store = _grow(sized(SESSIONS, share, 4))
    facts, groups = len(store.memory.canon.facts), len(store.memory.units.groups)
    cut = 1 - _count_nodes(store.memory) / facts
    chance = random.Random(7)
    chosen = chance.sample(list(store.memory.session_ids.values()), sized(FORGOTTEN, share, 2))
    found = [_forget(store, session_id) for session_id in chosen]
    fallen, torn, left, again = (fmean(each) for each in zip(*found, strict=True))
    figures = (
        Figure("groups", groups),
        Figure("cut_percent", 100 * cut),
        Figure("fallen", fallen),
        Figure("fallen_with_facts_left", torn),
        Figure("facts_left", left),
        Figure("fused_again_most", max(each[-1] for each in found)),
    )
    name = f"groups fused again when a session of {SESSION_TURNS} turns is forgotten, {len(found)} one by one"
    return [Row(name, again, f"one group; {facts:,} facts, cut by half", figures, goal=GROUPS_AGAIN_MAX)]


def _grow(sessions: int) -> _Store:
    store, speech, chance = _Store(EventTreeParameters()), Speech(3), random.Random(3)
    subjects = [speech.words(SUBJECT_WORDS) for _ in range(SUBJECTS)]
    embedder = HashingEmbedder()
    for number in range(sessions):
        session_id = f"s{number}"
        said = turns_of(speech, session_id, SESSION_TURNS, started_at=MONDAY + number * SESSION_GAP_MS)
        first = len(store.log) + 1
        store.tell(*said, a_closing(session_id))
        topics = [(subject, speech.words(DETAIL_WORDS)) for subject in chance.sample(subjects, SUBJECTS_A_SESSION)]
        at = (n * SUBJECTS_A_SESSION // SESSION_TURNS for n in range(SESSION_TURNS))
        texts = [_sentence(speech, chance, *topics[topic]) for topic in at]
        store.tell(_extraction(said, range(first, first + SESSION_TURNS), texts, session_id))
        seq = len(store.log)
        for decision, lineage in plan_admissions(store.memory.canon, 1):
            pointer = decision.admissions[0].occurrence
            store.tell(replace(an_admission(pointer), event=decision, lineage=tuple(sorted(lineage))))
        rows = anyio.run(embedder.embed, texts)
        for fact in store.memory.units.unplaced:
            pointer = store.memory.canon.facts[fact].first.pointer
            assert pointer.seq == seq
            store.vectors[fact] = rows[pointer.n]
        store.place()
        store.compact()
    return store


def _sentence(speech: Speech, chance: random.Random, subject: Sequence[str], details: Sequence[str]) -> str:
    words = chance.sample(subject, OF_SUBJECT) + chance.sample(details, OF_DETAILS) + speech.words(OF_ANYTHING)
    return f"{speech.person()} {' '.join(words)}."


def _extraction(said: Sequence[NewEvent], seqs: range, texts: Sequence[str], session_id: str) -> NewEvent:
    new = an_extraction(tuple(seqs), session_id=session_id)
    assert isinstance(new.event, FactsExtracted)
    facts = tuple(
        ExtractedFact(text, (n,), said[n].happened_at, said[n].happened_at) for n, text in enumerate(texts)
    )
    return replace(new, event=replace(new.event, facts=facts))


def _forget(store: _Store, session_id: str) -> tuple[int, int, int, int]:
    """Groups that fell, those with facts of other sessions, these facts, and groups that are fused then."""
    session = KEYS.session("alice", session_id)
    before = store.memory
    store.log.append(a_forgetting(session_id))
    store.forgotten[session] = len(store.log)
    store.memory = Memory(USER, MemoryParameters(), Hindsight(len(store.log), dict(store.forgotten)))
    for user_seq, new in enumerate(store.log, 1):
        gone = any(user_seq < store.forgotten.get(each, 0) for each in new.lineage)
        store.memory.apply(as_recorded(new, user_seq, erased=gone))
    known, standing = store.memory.canon.facts, store.memory.units.groups
    fallen = [group for key, group in before.units.groups.items() if key not in standing]
    left = [sum(fact in known for fact in group.members) for group in fallen]
    assert not store.memory.units.unplaced
    return len(fallen), sum(map(bool, left)), sum(left), store.compact()


def _count_nodes(memory: Memory) -> int:
    return len(memory.canon.facts) - len(memory.units.group_of) + len(memory.units.groups)
