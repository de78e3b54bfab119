"""One random history: the next step by lot, and what it must leave behind according to the simplest model."""

from __future__ import annotations

import random
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from daemon.building.correction_plans import FactUnknown
from daemon.building.corrections import CorrectParams, FactParams, PinParams
from daemon.erasure.receipts import UserUnknown
from daemon.parked import ResumeParams
from events.appending import Batch
from events.codec import Event
from events.decisions import FactsRouted, Route, ScenesMerged
from events.envelope import NewEvent, Reference
from events.errors import StaleDecision
from events.gate import Verdict
from events.memory import ParkReason, Task
from events.registry import read_session_rows
from events.session import TurnRecorded, TurnRetracted, TurnRevised
from projections.facts.chunking import open_turns
from projections.facts.scenes import found_scene
from projections.ports import AnswerUnusable
from projections.texts import turn_line
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_closed_chunk,
    a_closing,
    a_forgetting,
    a_retraction,
    a_revision,
    a_turn,
    a_user_forgetting,
)
from tests.scripted_models import UNREADABLE, ModelFailed
from tests.simulation.regrouping import change_policy, merge_nodes, move_facts, undo_some
from tests.simulation.said import Session, mark_of
from tests.simulation.world import PARAMETERS, Daemon

USERS: Final = ("alice", "bob", "carol")
SESSIONS_PER_USER = 5
HOUR_MS = 3_600_000
QUESTIONS = ("What does Nate like?", "Who was in Miami on day 3?", "Rex")
# Said in several sessions, so that facts are shared and entities become active.
SHARED = (
    "Nate likes Miami.",
    "We saw Rex in Miami on day {day}.",
    "Nate met Rex on day {day}.",
    "Oslo is far, says Nate.",
    "They rex the nate.",
    "Miami has rain, says Rex.",
    "Rex is short for Rexford.",
    "Roxane, known as Rex, sings.",
)


def marker_of(user_id: str, number: int) -> str:
    """A session's id, and a word that is said in this session alone."""
    return f"q{user_id}{number}q"


@dataclass
class History:
    """What a seed says: the next step, and what was forgotten so far."""

    seed: int
    chance: random.Random
    # Whether people say things of facts; what they said when is then part of what came of it.
    corrects: bool
    clock: ManualClock = field(default_factory=ManualClock)
    said: dict[str, Session] = field(default_factory=dict[str, Session])
    # Every wording ever handed to the log, to be handed to it again.
    sent: list[NewEvent] = field(default_factory=list[NewEvent])
    forgotten: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    users_forgotten: set[str] = field(default_factory=set[str])
    failed: set[str] = field(default_factory=set[str])

    async def step(self, daemon: Daemon) -> None:
        """Do one thing, drawn by lot."""
        self.clock.advance(self.chance.randrange(HOUR_MS))
        steps = {
            self.say: 34, self.edit: 10, self.repeat: 5, self.retract: 9, self.close: 8, self.close_chunk: 6,
            self.correct: 8 if self.corrects else 0, self.answer: 40, self.fail: 4, self.give_up: 6,
            self.resume: 4, self.route: 4, self.merge_scenes: 3, self.compact: 6, self.regroup: 10,
            self.forget: 5, self.forget_user: 1, self.ask: 6,
        }  # fmt: skip
        (step,) = self.chance.choices(list(steps), list(steps.values()))
        await step(daemon)
        if self.chance.random() < 0.6:
            await daemon.settle()

    def a_session(self) -> tuple[str, str]:
        (user_id,) = self.chance.choices(USERS, [6, 2, 1])
        return user_id, marker_of(user_id, self.chance.randrange(SESSIONS_PER_USER))

    def is_forgotten(self, user_id: str, session_id: str) -> bool:
        """Whether nothing of a session may be taken any more."""
        return user_id in self.users_forgotten or (user_id, session_id) in self.forgotten

    async def say(self, daemon: Daemon) -> None:
        """Some turns of a session in any order; one may come twice, and once more with other content."""
        user_id, session_id = self.a_session()
        last = max(self.said.get(session_id, Session()).wordings, default=0)
        numbers = list(range(last + 1, last + self.chance.randint(2, 9)))
        if self.chance.random() < 0.3:
            self.chance.shuffle(numbers)
        # Here and there an edit comes before the turn itself.
        wordings = [(number, self.chance.choices([0, 1, 2], [20, 1, 1])[0]) for number in numbers]
        events = [self.a_wording(user_id, session_id, number, revision) for number, revision in wordings]
        if self.chance.random() < 0.2:
            events.append(events[0])
            assert isinstance(events[0].event, TurnRecorded | TurnRevised)
            other = replace(events[0].event, content=f"Not so, {session_id}. {mark_of(session_id, numbers[0], 9)}")
            events.append(replace(events[0], event=other))
        await self.append(daemon, session_id, *events)

    async def edit(self, daemon: Daemon) -> None:
        """A later wording of a turn, or one that was overtaken; of the last turn more often than of others."""
        user_id, session_id = self.a_session()
        known = sorted(self.said.get(session_id, Session()).wordings)
        if known:
            number = self.chance.choice([*known, *known[-2:] * 2])
            revision = self.chance.choices([0, 1, 2, 3], [2, 4, 2, 1])[0]
            if revision not in self.said[session_id].wordings[number]:
                await self.append(daemon, session_id, self.a_wording(user_id, session_id, number, revision))

    async def repeat(self, daemon: Daemon) -> None:
        """Something is delivered again."""
        if self.sent:
            again = self.chance.choice(self.sent)
            assert again.session_id is not None
            await self.append(daemon, again.session_id, again)

    async def append(self, daemon: Daemon, session_id: str, *events: NewEvent) -> None:
        """Hand wordings to the log, which refuses what was taken back and knows what it has."""
        session = self.said.setdefault(session_id, Session())
        outcomes = await daemon.log.append(Batch(events))
        for new, outcome in zip(events, outcomes, strict=True):
            event = new.event
            assert isinstance(event, TurnRecorded | TurnRevised)
            assert new.user_id is not None
            assert event.turn_id is not None
            number, line = int(event.turn_id), turn_line(event)
            known = session.wordings.get(number, {}).get(event.revision)
            expected = Verdict.RECORDED if known is None else Verdict.DUPLICATE
            if known not in (None, line):
                expected = Verdict.CONFLICTING
            if self.is_forgotten(new.user_id, session_id) or number in session.retracted:
                expected = Verdict.REFUSED

            assert outcome.verdict is expected
            if expected is Verdict.RECORDED:
                session.take(number, event.revision, line)
                self.sent.append(new)
            elif expected is Verdict.CONFLICTING:
                session.conflicting.setdefault(number, []).append(line)

    def a_wording(self, user_id: str, session_id: str, number: int, revision: int) -> NewEvent:
        shared, more = (self.chance.choice(SHARED).format(day=self.chance.randint(1, 2)) for _ in range(2))
        own = f"I kept {session_id} in {mark_of(session_id, number, revision)}."
        bad = f"{UNREADABLE} noise from {session_id}."
        contents = [shared, own, f"{shared} {own}", f"{own} {shared}", f"{shared} {more}", bad]
        content = self.chance.choices(contents, [4, 2, 4, 2, 4, 1])[0]
        name = self.chance.choices([user_id.title(), f"Guest {session_id}", None], [12, 1, 4])[0]
        role = self.chance.choice(["user", "user", "assistant"])
        at = MONDAY + self.chance.randrange(24) * HOUR_MS
        turn_id = str(number)
        turn = a_turn(
            content,
            user_id=user_id,
            session_id=session_id,
            turn_id=turn_id,
            role=role,
            name=name,
            happened_at=at,
        )
        if not revision:
            return turn
        timed = self.chance.random() < 0.5
        return a_revision(
            content,
            revision,
            user_id=user_id,
            session_id=session_id,
            turn_id=turn_id,
            role=role,
            name=name,
            happened_at=at if timed else None,
        )

    async def retract(self, daemon: Daemon) -> None:
        """A turn is taken back, perhaps before it came; Memory is told at once, or finds it in the log."""
        user_id, session_id = self.a_session()
        session = self.said.setdefault(session_id, Session())
        number = self.chance.randint(1, max(session.wordings, default=0) + 2)
        wish = a_retraction(str(number), session_id, user_id=user_id)
        outcome = await daemon.log.append_event(wish)
        if self.is_forgotten(user_id, session_id):
            assert outcome.verdict is Verdict.REFUSED
            return
        assert outcome.verdict is (Verdict.DUPLICATE if number in session.retracted else Verdict.RECORDED)
        session.retracted.add(number)
        if self.chance.random() < 0.5:
            assert isinstance(wish.event, TurnRetracted)
            daemon.memories.hide_turn(KEYS.user(user_id), wish.event.turn)
            answer = await daemon.ask(user_id, self.chance.choice(QUESTIONS))
            shown = answer.context + repr(answer.memories)
            assert not [mark for mark in session.gone() if mark in shown]

    async def close(self, daemon: Daemon) -> None:
        user_id, session_id = self.a_session()
        await self.close_session(daemon, user_id, session_id, str(self.clock.now))

    async def close_session(self, daemon: Daemon, user_id: str, session_id: str, key: str) -> None:
        outcome = await daemon.log.append_event(a_closing(session_id, user_id=user_id, key=key))
        if outcome.verdict is Verdict.RECORDED and session_id in self.said:
            self.said[session_id].close()

    async def close_chunk(self, daemon: Daemon) -> None:
        """What the worker does with a session that went quiet."""
        user_id, session_id = self.a_session()
        rows = await daemon.log.read(partial(read_session_rows, session=KEYS.session(user_id, session_id)))
        opened = open_turns(rows, PARAMETERS.chunk_turns)
        if opened:
            basis = (await daemon.memories.catch_up(KEYS.user(user_id))).user_seq
            await daemon.log.append_event(a_closed_chunk(opened[-1].seq, session_id, user_id=user_id, basis=basis))
            self.said[session_id].close()

    async def answer(self, daemon: Daemon) -> None:
        """Let some of the waiting calls have their answers, in any order."""
        lots = [self.chance.random() for _ in range(self.chance.randint(1, 10))]
        for lot in lots:
            waiting = daemon.model.waiting()
            if waiting:
                waiting[int(lot * len(waiting))].answer()

    async def fail(self, daemon: Daemon) -> None:
        """A call comes to nothing, once a question: it is asked again. A failed merge would end its run."""
        lot = self.chance.random()
        waiting = [
            call
            for call in daemon.model.waiting()
            if call.task is not Task.MERGE and call.order not in self.failed
        ]
        if waiting:
            call = waiting[int(lot * len(waiting))]
            self.failed.add(call.order)
            call.fail(ModelFailed())

    async def give_up(self, daemon: Daemon) -> None:
        """An answer that cannot be used: the work is parked at once. A merge, when there is one; they are rare."""
        lot = self.chance.random()
        waiting = daemon.model.waiting()
        waiting = [call for call in waiting if call.task is Task.MERGE] or waiting
        if waiting:
            waiting[int(lot * len(waiting))].fail(AnswerUnusable(ParkReason.REFUSED))

    async def resume(self, daemon: Daemon) -> None:
        """Somebody has the parked work of a user tried again, or all there is."""
        user_id = self.chance.choice([*USERS, None])
        with suppress(UserUnknown):
            await daemon.parked.retry(ResumeParams(user_id=user_id))

    async def compact(self, daemon: Daemon) -> None:
        daemon.compact_soon(self.chance.choice(USERS))

    async def regroup(self, daemon: Daemon) -> None:
        """Facts go into other units, nodes become one, groups are taken apart; or another policy counts."""
        user_id = self.chance.choice(USERS)
        user, way = KEYS.user(user_id), self.chance.randrange(6)
        if way < 2:
            await move_facts(daemon, self.chance, user)
        elif way < 4:
            await merge_nodes(daemon, self.chance, user)
        elif way == 4:
            await undo_some(daemon, self.chance, user, self.clock.now)
        else:
            await change_policy(daemon, self.chance, user_id, self.clock.now)

    async def forget(self, daemon: Daemon) -> None:
        """Over the socket, waiting or not; over the bus; or with a stop before anybody took notice."""
        user_id, session_id = self.a_session()
        way = self.chance.randrange(4)
        if way == 0:
            if await daemon.forget(user_id, session_id):
                self.forgotten.add((user_id, session_id))
            await self.ask(daemon)
            return
        self.forgotten.add((user_id, session_id))
        await daemon.log.append_event(a_forgetting(session_id, user_id=user_id))
        if way == 1:
            daemon.memories.hide(KEYS.user(user_id), KEYS.session(user_id, session_id))
            await self.ask(daemon)
        elif way == 2:
            daemon.forget_soon(user_id, session_id)

    async def forget_user(self, daemon: Daemon) -> None:
        """One who says little, so that the history goes on; waiting for it or not."""
        user_id = USERS[-1]
        if self.chance.random() < 0.5:
            if not await daemon.forget_user(user_id):
                return
        else:
            await daemon.log.append_event(a_user_forgetting(user_id))
            daemon.memories.hide_user(KEYS.user(user_id))
        self.users_forgotten.add(user_id)
        self.forgotten |= {(user_id, marker_of(user_id, number)) for number in range(SESSIONS_PER_USER)}

    async def correct(self, daemon: Daemon) -> None:
        """Somebody says of a fact that it is not so, what is so instead, or that it is to stay or not."""
        user_id = self.chance.choice(USERS)
        facts = sorted((await daemon.memories.catch_up(KEYS.user(user_id))).canon.facts)
        way, place, day = self.chance.randrange(4), self.chance.random(), self.chance.randint(1, 2)
        if not facts:
            return
        fact_id = facts[int(place * len(facts))].hex()
        with suppress(FactUnknown, UserUnknown):
            if way == 0:
                await daemon.corrections.retract(FactParams(user_id=user_id, fact_id=fact_id))
            elif way == 1:
                text = f"Nate met Oslo on day {day}."
                await daemon.corrections.correct(CorrectParams(user_id=user_id, fact_id=fact_id, text=text))
            else:
                await daemon.corrections.pin(PinParams(user_id=user_id, fact_id=fact_id, pinned=way == 2))

    async def route(self, daemon: Daemon) -> None:
        """Other thresholds than ours would have put some facts elsewhere: to scenes there are, or to new ones."""
        user_id = self.chance.choice(USERS)
        memory = await daemon.memories.catch_up(KEYS.user(user_id))
        facts, scenes = list(memory.canon.facts), sorted(memory.placement.scenes.members)
        some = self.chance.sample(facts, min(len(facts), self.chance.randint(1, 3)))
        routes: list[Route] = []
        for fact in some:
            places = [*scenes, found_scene(fact, memory.placement.scenes.absorbed)]
            count = min(len(places), self.chance.randint(1, 2))
            routes.append(Route(fact, tuple(dict.fromkeys(self.chance.sample(places, count)))))
        sessions = {session for fact in some for session in memory.canon.facts[fact].sessions}
        if routes:
            await self.decide(daemon, user_id, FactsRouted(1, tuple(routes)), memory.user_seq, sessions)

    async def merge_scenes(self, daemon: Daemon) -> None:
        """Two scenes or three are one from now on; one of them may have been absorbed before."""
        user_id = self.chance.choice(USERS)
        memory = await daemon.memories.catch_up(KEYS.user(user_id))
        scenes = sorted({*memory.placement.scenes.members, *memory.placement.scenes.absorbed})
        if len(scenes) > 2:
            kept, *absorbed = self.chance.sample(scenes, self.chance.randint(2, 3))
            await self.decide(daemon, user_id, ScenesMerged(1, kept, tuple(absorbed)), memory.user_seq, ())

    async def decide(
        self, daemon: Daemon, user_id: str, event: Event, basis: int, sessions: Collection[Reference]
    ) -> None:
        """A decision as another planner would write it; it may have become stale."""
        key = f"{event.wire_name}/of the history/{self.clock.now}/{basis}"
        lineage = tuple(sorted(sessions))
        with suppress(StaleDecision):
            await daemon.log.append_event(
                NewEvent(user_id, None, event, key, self.clock.now, lineage=lineage, basis=basis)
            )

    async def ask(self, daemon: Daemon) -> None:
        """An answer speaks of nothing that was forgotten, whatever is under way."""
        user_id = self.chance.choice(USERS)
        hidden = await self.known_as_forgotten(daemon, user_id)
        answer = await daemon.ask(user_id, self.chance.choice(QUESTIONS))

        shown = answer.context + " ".join(f"{each.text} {each.sessions}" for each in answer.memories)
        assert not [session_id for session_id in hidden if session_id in shown]

    async def known_as_forgotten(self, daemon: Daemon, user_id: str) -> list[str]:
        """The forgotten sessions of a user that its Memory hides or never held."""
        async with daemon.memories.use(KEYS.user(user_id)) as memory:
            shown = set(memory.session_ids) - memory.hidden
        of_user = [session_id for owner, session_id in self.forgotten if owner == user_id]
        return [session_id for session_id in of_user if KEYS.session(user_id, session_id) not in shown]
