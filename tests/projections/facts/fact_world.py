"""A real log in which people talk and correct, and a Memory that follows it; without daemon, worker and models."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from daemon.building.correction_plans import (
    Change,
    Plan,
    make_events,
    plan_correction,
    plan_pin,
    plan_retraction,
    plan_unpinning,
    read_fact,
)
from events.appending import Batch, append_batches
from events.codec import Event
from events.decisions import FactsRouted, Route, SceneId, ScenesMerged
from events.envelope import NewEvent, RecordedEvent, Reference
from events.eventtree import CompactionUndone, NodesMerged, UnitMembers, UnitsPartitioned
from events.gate import Verdict
from events.hindsight import read_hindsight
from events.memory import (
    Admission,
    Alias,
    ExtractedFact,
    FactId,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    Mention,
    Pointer,
)
from events.reading import read_events, read_user
from events.session import ReplayStarted, SessionReplayed
from projections.facts.admission import plan_admissions
from projections.facts.canonical import Fact
from projections.facts.chunking import Chunk
from projections.facts.near import Nearness, Reading
from projections.facts.saying import read_said
from projections.facts.wording import read_wording
from projections.memory import Memory, MemoryParameters
from projections.memtree.shape import TreeShape
from projections.texts import FactText, compose, events_behind
from tests.builders import KEYS, MONDAY, a_turn, an_id, seeded_nonces
from tests.projections.facts.planning import plan_near, wanted_readings

ALICE = KEYS.user("alice")
DAY_MS = 86_400_000
SMALL = MemoryParameters(chunk_turns=2, shape=TreeShape(3), concatenation_max=60)


def a_fact(text: str, turns: tuple[int, ...] = (0,), day: int = 0) -> ExtractedFact:
    """A fact that names whatever is written with a capital."""
    at = MONDAY + day * DAY_MS
    names = dict.fromkeys(word.strip(".,") for word in text.split() if word[0].isupper())
    return ExtractedFact(text, turns, at, at, mentions=tuple(map(Mention, names)))


@dataclass
class FactWorld:
    """What the worker and people would write next, written; `memory` grows with the log."""

    connection: sqlite3.Connection
    memory: Memory = field(default_factory=lambda: Memory(ALICE, SMALL))
    events: list[RecordedEvent] = field(default_factory=list[RecordedEvent])
    turns: int = 0

    def write(self, *events: NewEvent) -> list[Verdict]:
        """Append in one transaction and follow; raises what the gate raises."""
        (result,), _ = append_batches(self.connection, [Batch(events)], KEYS, seeded_nonces(1), MONDAY)
        if isinstance(result, Exception):
            raise result
        self.follow()
        return [outcome.verdict for outcome in result]

    def follow(self) -> None:
        """Fold what came, and all anew when something was undone: as the daemon does."""
        for recorded in read_user(self.connection, ALICE, after=self.memory.user_seq, limit=10_000):
            self.events.append(recorded)
            self.memory.apply(recorded)
        if self.memory.needs_rebuild:
            self.memory = self.rebuilt()

    def rebuilt(self) -> Memory:
        """The log folded from nothing."""
        memory = Memory(ALICE, SMALL, read_hindsight(self.connection, ALICE))
        for recorded in self.events:
            memory.apply(recorded)
        return memory

    def say(self, *contents: str, session: str = "s1") -> None:
        for content in contents:
            self.turns += 1
            at = MONDAY + self.turns * 1000
            self.write(a_turn(content, session_id=session, turn_id=f"t{self.turns}", happened_at=at))

    def extract(
        self,
        *facts: ExtractedFact,
        chunk: Chunk | None = None,
        replaces: int | None = None,
        aliases: tuple[Alias, ...] = (),
    ) -> None:
        """A model's answer about a chunk: the first that waits, unless given."""
        read = chunk or next(iter(self.memory.waiting_chunks.values()))
        context = self.memory.transcript.context_of(read)
        event = FactsExtracted(
            1, read.key, read.turns, context, read.places, replaces, "offline", facts, aliases=aliases
        )
        self.write(self._decided(event, (read.session,), read.session))

    def admit(self) -> None:
        self.write(
            *(
                self._decided(event, lineage, n=n)
                for n, (event, lineage) in enumerate(plan_admissions(self.memory.canon, 1))
            )
        )

    def compare(self) -> None:
        """Admit what waits and join what is nearly the same, by a vector to which all is near."""
        canon = self.memory.canon
        fresh = tuple(canon.facts)
        readings: dict[Pointer, Reading] = {}
        for pointer in wanted_readings(canon, fresh):
            text = self.text_at(pointer)
            occurrence = canon.occurrence(pointer)
            assert occurrence is not None
            labels = [mention.label for mention in occurrence.mentions]
            wording, said = read_wording(text, labels, ALICE), read_said(text, ALICE)
            readings[pointer] = Reading(np.ones(1, np.float32), wording, said)
        plan = plan_near(canon, Nearness(readings, 0.9, fresh=fresh))
        self.write(*(self._decided(event, lineage, n=n) for n, (event, lineage) in enumerate(plan)))

    def learn(self, *texts: str, session: str = "s1") -> None:
        """Two turns, the facts read from the first one, and their admission."""
        self.say("Hello.", "Well.", session=session)
        self.extract(*map(a_fact, texts))
        self.admit()

    def correct(self, fact: Fact, plan: Plan) -> None:
        """What a person says of a fact, as the daemon writes it."""
        recorded = read_events(self.connection, [each.pointer.seq for each in fact.occurrences])
        planned = plan(self.memory, fact, read_fact(fact, self.memory.session_ids, recorded))
        self.write(*make_events("alice", self.memory.user_seq, planned, MONDAY))

    def retract(self, text: str) -> None:
        self.correct(self.fact(text), plan_retraction)

    def reword(self, text: str, instead: str) -> None:
        self.correct(self.fact(text), partial(plan_correction, change=Change(instead)))

    def pin(self, text: str) -> None:
        self.correct(self.fact(text), plan_pin)

    def unpin(self, text: str) -> None:
        self.correct(self.fact(text), plan_unpinning)

    def merge(self, *facts: FactId) -> None:
        """One group of these facts, and of those in groups with them."""
        units = self.memory.units
        groups = dict.fromkeys(units.groups[units.group_of[fact]] for fact in facts if fact in units.group_of)
        alone = [fact for fact in facts if fact not in units.group_of]
        members = (*(fact for group in groups for fact in group.members), *alone)
        sources = (*(group.seq for group in groups), *(self._first(fact)[0] for fact in alone))
        unit = an_id("unit")
        self.write(
            self._decided(UnitsPartitioned(1, (UnitMembers(unit, members),)), self._sessions(members), n=0),
            self._decided(
                NodesMerged(1, unit, members, tuple(sorted(sources)), "offline", "All of it."),
                self._sessions(members),
                n=1,
            ),
        )

    def undo(self) -> None:
        """Take all groups apart, as somebody asks for."""
        self.write(self._decided(CompactionUndone(1, tuple(self.memory.units.group_of)), ()))

    def join(self, taken_up: FactId, by: FactId) -> None:
        """Two facts turn out to say the same: all that one rests on goes to the other."""
        facts = self.memory.canon.facts
        admission = Admission(by, facts[taken_up].first.pointer)
        self.write(self._decided(FactsAdmitted(1, (admission,)), facts[taken_up].sessions | facts[by].sessions))

    def route(self, *routes: Route) -> None:
        """Facts are in these scenes from now on; an event for each lineage."""
        by_lineage: dict[frozenset[Reference], list[Route]] = {}
        for each in routes:
            by_lineage.setdefault(self.memory.canon.facts[each.fact].sessions, []).append(each)
        self.write(
            *(
                self._decided(FactsRouted(1, tuple(some)), lineage, n=n)
                for n, (lineage, some) in enumerate(by_lineage.items())
            )
        )

    def merge_scenes(self, kept: SceneId, *absorbed: SceneId) -> None:
        """These scenes are one from now on."""
        self.write(self._decided(ScenesMerged(1, kept, absorbed), ()))

    def summarise(self) -> None:
        """Write every summary that can be written now."""
        self.write(
            *(
                self._decided(
                    IntervalSummarised(
                        1,
                        work.digest,
                        tuple(sorted(events_behind(ref for child in work.children for ref in child.refs))),
                        "offline",
                        "So it was.",
                    ),
                    work.lineage,
                    n=n,
                )
                for n, work in enumerate(self.memory.forest.plan_summaries())
            )
        )

    def replay(self, session: Reference, *facts: ExtractedFact) -> None:
        """Extract a session again; each of its chunks says these facts now."""
        self.write(self._decided(ReplayStarted(), (session,), session))
        started = self.memory.replays.running[session].started
        for chunk, replaced, _ in list(self.memory.replays.remaining(session, self.memory.chunks)):
            self.extract(*facts, chunk=chunk, replaces=replaced)
        replaced_ones = self.memory.replays.running[session].replacements
        self.write(self._decided(SessionReplayed(started, replaced_ones), (session,), session))

    def fact(self, text: str) -> Fact:
        """The fact that says this."""
        return next(fact for fact in self.memory.canon.facts.values() if self.text_of(fact) == text)

    def text_of(self, fact: Fact) -> str:
        return self.text_at(fact.first.pointer)

    def text_at(self, pointer: Pointer) -> str:
        ref = FactText(pointer)
        text = compose(ref, read_events(self.connection, events_behind([ref])))
        assert text is not None
        return text

    def known(self) -> list[str]:
        """What is known, in words."""
        return sorted(map(self.text_of, self.memory.canon.facts.values()))

    def _first(self, fact: FactId) -> tuple[int, int]:
        return self.memory.canon.facts[fact].first.pointer

    def _sessions(self, facts: Iterable[FactId]) -> set[Reference]:
        return {self.memory.canon.facts[fact].first.session for fact in facts}

    def _decided(
        self, event: Event, sessions: Iterable[Reference], session: Reference | None = None, n: int = 0
    ) -> NewEvent:
        return NewEvent(
            user_id="alice",
            session_id=None if session is None else self.memory.session_ids[session],
            event=event,
            key=f"{event.wire_name}/{self.memory.user_seq}/{n}",
            happened_at=MONDAY,
            lineage=tuple(sorted(set(sessions))),
            basis=self.memory.user_seq,
        )
