"""A memory that grows by lot, and what it answered at each position on the way, in every mode without a model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.query_params import QueryParams
from daemon.asking.structures import FactsParams, Structures
from daemon.building.corrections import Corrections, CorrectParams, FactParams, PinParams
from events.envelope import NewEvent
from tests.builders import ManualClock, a_batch, a_closing, a_forgetting, a_retraction, a_revision, a_turn
from tests.daemon.parts_in_use import ALICE, Parts, running
from tests.waiting import wait_until

DAY_MS: Final = 86_400_000
MODES: Final = ("agpr", "flat", "forest", "roots")
# With words of the memory, of time in several ways, and of nothing.
QUESTIONS: Final = (
    "Who likes Rex?",
    "Where did Bob live before Davis?",
    "Where does Bob live now?",
    "What was in Oslo last week?",
    "When did Zoe meet Ann for the first time?",
    "How often did it rain?",
    "submarine",
)
CITIES: Final = ("Boston", "Davis", "Miami", "Oslo", "Lyon")
SENTENCES: Final = (
    "I moved to {city}.",
    "I live in {city}.",
    "Zoe likes Rex.",
    "Zoe met Ann in {city}.",
    "{city} is far, says Zoe.",
    "It rained on Rex in {city}.",
    "Zoe likes Rex a lot, I think.",
    "Rex is a dog.",
    "Yesterday Ann met Zoe in {city}.",
)
SESSIONS: Final = 6


@dataclass
class Life:
    """One user's memory as a seed has it grow; times pass only with what is said, as the clock says when."""

    parts: Parts
    clock: ManualClock
    chance: random.Random
    said: list[NewEvent] = field(default_factory=list[NewEvent])
    # A session that is forgotten is never spoken in again: another one takes its place.
    sessions: list[str] = field(default_factory=lambda: [f"s{number}" for number in range(SESSIONS)])
    # The answer to each question, by user_seq, mode and question.
    turns: int = 0
    answers: dict[tuple[int, str, str], Answer] = field(default_factory=dict[tuple[int, str, str], Answer])

    def __post_init__(self) -> None:
        parts = self.parts
        structures = Structures(parts.log, parts.memories)
        self.structures = structures
        self.corrections = Corrections(parts.log, parts.memories, parts.worker, structures, self.clock)

    async def live(self, steps: int, *, undoing: bool = False, questions: int = 0) -> None:
        """So many steps; `undoing`: words may go, too. After each, as many questions are asked in every mode."""
        async with running(self.parts):
            for _ in range(steps):
                await self._step(undoing=undoing)
                await self._folded()
                if questions:
                    await self.ask(self.chance.sample(QUESTIONS, questions))
            await self._build()

    async def ask(self, questions: list[str]) -> None:
        """Ask by words alone, in every mode, and keep what was answered with the position it was answered at."""
        for mode in MODES:
            for question in questions:
                answer = await self.parts.ask(question, mode=mode, vectors=False, k=8)
                if answer.watermark.user_seq == answer.watermark.projected_user_seq:  # it was the head
                    self.answers[answer.watermark.user_seq, mode, question] = answer

    async def _step(self, *, undoing: bool) -> None:
        steps = {
            self._say: 30, self._close: 6, self._build: 6, self._compact: 3, self._revise: 4,
            self._correct: 4, self._pin: 2, self._forget: 2 * undoing, self._retract: 3 * undoing,
        }  # fmt: skip
        (step,) = self.chance.choices(list(steps), list(steps.values()))
        await step()

    async def _folded(self) -> None:
        """What an edit undoes is hidden at once, and gone once all is folded again: only that is a position."""
        await self.parts.memory()
        await wait_until(lambda: not any(each.needs_rebuild for each in self.parts.memories.loaded().values()))

    def _session(self) -> str:
        return self.chance.choice(self.sessions)

    async def _say(self) -> None:
        self.clock.advance(self.chance.choice((60_000, 3_600_000, DAY_MS, 5 * DAY_MS)))
        content = self.chance.choice(SENTENCES).format(city=self.chance.choice(CITIES))
        turn = a_turn(
            content,
            session_id=self._session(),
            turn_id=f"t{self.turns}",
            name=self.chance.choice(("Bob", "Bob", "Bob", "Ann")),
            happened_at=self.clock(),
        )
        self.turns += 1
        self.said.append(turn)
        await self.parts.log.append(a_batch(turn))

    async def _close(self) -> None:
        await self.parts.log.append(a_batch(a_closing(self._session(), key=f"{self.chance.random()}")))

    async def _build(self) -> None:
        """A closed session is due at once; the rest waits for a clock that stands still."""
        for session in self.sessions:
            await self.parts.log.append(a_batch(a_closing(session, key=f"{self.chance.random()}")))
        await self.parts.memory()
        await self.parts.until_done()

    async def _compact(self) -> None:
        if (await self.parts.memory()).canon.facts:
            await self.parts.compactor.compact(ALICE, 0.4)

    def _a_turn(self) -> tuple[str, str] | None:
        if not self.said:
            return None
        turn = self.chance.choice(self.said)
        return str(getattr(turn.event, "turn_id", "")), turn.session_id or ""

    async def _revise(self) -> None:
        found = self._a_turn()
        if found is not None:
            content = self.chance.choice(SENTENCES).format(city=self.chance.choice(CITIES))
            revision = self.chance.randrange(1, 10**6)
            event = a_revision(content, turn_id=found[0], session_id=found[1], revision=revision)
            await self.parts.log.append(a_batch(event))

    async def _retract(self) -> None:
        found = self._a_turn()
        if found is not None:
            await self.parts.log.append(a_batch(a_retraction(found[0], session_id=found[1])))

    async def _forget(self) -> None:
        place = self.chance.randrange(SESSIONS)
        session, self.sessions[place] = self.sessions[place], f"s{place}/{self.chance.random()}"
        self.said = [turn for turn in self.said if turn.session_id != session]
        await self.parts.log.append(a_batch(a_forgetting(session)))

    async def _correct(self) -> None:
        page = await self.structures.facts(FactsParams(user_id="alice", limit=1000))
        if not page.facts:
            return
        fact = self.chance.choice(page.facts)
        if self.chance.random() < 0.3:
            await self.corrections.retract(FactParams(user_id="alice", fact_id=fact.id))
        else:
            text = f"Bob lives in {self.chance.choice(CITIES)} for sure."
            await self.corrections.correct(CorrectParams(user_id="alice", fact_id=fact.id, text=text))

    async def _pin(self) -> None:
        page = await self.structures.facts(FactsParams(user_id="alice", limit=1000))
        if page.facts:
            fact = self.chance.choice(page.facts)
            await self.corrections.pin(
                PinParams(user_id="alice", fact_id=fact.id, pinned=self.chance.random() < 0.7)
            )


async def ask_past(answerer: Answerer, user_seq: int, mode: str, question: str) -> Answer:
    """What was known at a position."""
    params = QueryParams(user_id="alice", query=question, mode=mode, vectors=False, k=8, as_of=user_seq)
    return await answerer.query(params)


def comparable(answer: Answer) -> dict[str, Any]:
    """An answer without what says when it was asked: the watermark, and how many words are gone since."""
    watermark = replace(answer.watermark, user_seq=0, pending=0, lag_s=0.0)
    plain: dict[str, Any] = msgspec.to_builtins(replace(answer, watermark=watermark, redacted=None))
    return plain
