"""The engine: every question to the language model goes through here, whoever planned it.

What was answered before is not asked again; what fails is tried again and then parked; what the model or a budget
has no room for now waits, and costs nothing meanwhile. Nothing is held while a model is asked: no lock, no
transaction, no reader; and while work waits, no words: they are read again when its time has come.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import anyio

from daemon.building.under_way import UnderWay
from daemon.building.work import Means, WordsGone, Work, hash_request
from daemon.logs import Report
from daemon.models.budget import Budget
from daemon.models.limiter import PRIORITY, AdaptiveLimiter
from events.envelope import NewEvent, RecordedEvent, Reference
from events.errors import InvalidInput, LogClosed, LogDamaged, MemForestError, StoreUnusable
from events.faults import FaultInjected, fault_point
from events.gate import Verdict, is_moot
from events.ledger import Answer, find_answer
from events.memory import FactsExtracted, ParkReason, Usage
from events.reading import read_events
from projections.ports import AnswerUnusable, ModelFailed, ModelUnavailable

# Tries of one piece of work before it is parked, and the first pause between them (doubling).
TRIES_MAX: Final = 3
FIRST_PAUSE_S: Final = 0.5
# All of one piece with its repairs and parts. Adapters have deadlines of their own for each call; this one is so
# that one that hangs all the same does not keep its slot for ever.
ASK_WITHIN_S: Final = 1800.0
WRITE_PAUSE_S: Final = 5.0  # before an answer is written again that could not be written
# A model that is not there is asked again after this long at the latest, and never sooner than the least.
RETRY_MAX_S: Final = 60.0
RETRY_MIN_S: Final = 0.05
# Questions whose answers are looked up in one read.
LOOKED_UP_MAX: Final = 256
# Pieces whose tries are remembered while they wait; of more, the oldest begin to count anew.
TRIED_MAX: Final = 10_000


# What becomes of an event while its slot is held.
Finish: TypeAlias = Callable[[Work, NewEvent], Awaitable[None]]


class BudgetSpent(ModelUnavailable):
    """The tokens of today are used up; the work waits for midnight UTC."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many questions are out at once, and the pauses after failures.

    `ahead`: questions that are got ready meanwhile, for a model that lets only `concurrency` out: else it would
    stand idle while answers are written and the next words are read.
    """

    concurrency: int = 16
    ahead: int = 0
    first_pause_s: float = FIRST_PAUSE_S
    write_pause_s: float = WRITE_PAUSE_S


@dataclass(frozen=True, slots=True)
class _Tried:
    """What a piece of work took so far."""

    tries: int = 0
    usage: Usage = field(default_factory=Usage)


class Engine:
    """Asks one language model for all users, and records what it answers."""

    def __init__(self, means: Means, budget: Budget, pace: Pace, report: Report) -> None:
        self.slots = AdaptiveLimiter(pace.concurrency + pace.ahead)
        self.under_way = UnderWay(means.log)
        self.budget = budget
        # Since the start: questions put to the model, those that came to nothing, and answers that the log had.
        self.questions = self.questions_failed = self.recorded = 0
        # Called when the model answers again.
        self.on_answering: Callable[[], None] = lambda: None
        self._means = means
        self._pace = pace
        self._report = report
        # While the model is not to be had: why, and until when it is left alone (on the loop's clock).
        self._away: str | None = None
        self._away_until = 0.0
        self._tried: OrderedDict[tuple[Reference, bytes], _Tried] = OrderedDict()

    async def note_day(self) -> None:
        """Take over what was spent today. Call it before the first question, and now and then."""
        await self.budget.load(self._means.log)

    @property
    def away(self) -> str | None:
        """Why the model is not asked now, in a sentence; None when it is."""
        return self._away if anyio.current_time() < self._away_until else None

    @property
    def is_short(self) -> bool:
        """Whether questions wait for others to be answered."""
        return self.slots.in_flight + self.slots.waiting > self._pace.concurrency

    def blocks(self, user: Reference | None = None) -> bool:
        """Whether nothing can be asked now for a user (None: for anybody).

        What is started all the same raises `ModelUnavailable`.
        """
        return self.away is not None or self.budget.is_spent(user)

    async def do(
        self, user: Reference, work: Work, finish: Finish | None = None, priority: int | None = None
    ) -> None:
        """Ask and record, or park. A slot is held from the question until the answer is on the disk.

        So a crash repeats as many questions as there are slots, at most, and a disk that takes nothing lets no
        more answers be paid for. With a `finish` that records answers and parkings; with a `priority` it has that
        one, and else its kind's. Raises `ModelUnavailable` when the work has to wait, and what reading the log
        raises.
        """
        await self._do(user, work, finish or self.record, priority)

    async def answer(self, user: Reference, work: Work) -> NewEvent | None:
        """The event of an answer or of a parking, to be recorded by the caller; None when nothing is left to ask.

        Raises as `do` does.
        """
        return await self._do(user, work, _leave_to_the_caller)

    async def find_recorded(self, user: Reference, works: Sequence[Work]) -> list[bool]:
        """Whether the log has an answer to each of these already, so that it would cost nothing."""
        model = self._means.model
        known: list[bool] = []
        for at in range(0, len(works), LOOKED_UP_MAX):
            requests = [hash_request(work, model) for work in works[at : at + LOOKED_UP_MAX]]

            def look(connection: sqlite3.Connection, requests: list[bytes] = requests) -> list[bool]:
                return [find_answer(connection, user, request) is not None for request in requests]

            known += await self._means.log.read(look)
        return known

    async def record(self, work: Work, event: NewEvent) -> None:
        """Write an answer or a parking, however often that takes: it was paid for."""
        left: NewEvent | None = event
        while left is not None:
            left = await self._append(work, left)

    async def _do(
        self, user: Reference, work: Work, finish: Finish, priority: int | None = None
    ) -> NewEvent | None:
        tried = self._tried.pop((user, work.request), _Tried())
        while tried.tries < TRIES_MAX:
            if tried.tries:
                await anyio.sleep(self._pace.first_pause_s * 2 ** (tried.tries - 1))
            try:
                async with self.slots.hold(PRIORITY[work.task] if priority is None else priority):
                    answered = await self._find_or_ask(user, work, tried)
                    if isinstance(answered, NewEvent):
                        await finish(work, answered)
            except ModelUnavailable as error:
                self._remember(user, work, replace(tried, usage=tried.usage + error.usage))
                raise
            except StoreUnusable:
                self._remember(user, work, tried)
                raise
            if not isinstance(answered, _Tried):
                return answered
            tried = answered
        parked = self._park(work, ParkReason.MODEL_FAILED, tried.usage)
        await finish(work, parked)
        return parked

    async def _find_or_ask(self, user: Reference, work: Work, tried: _Tried) -> NewEvent | _Tried | None:
        """What is recorded of this question already, or else one try; None when there is nothing to ask any more.

        What it is about may have been forgotten or edited while it waited, though the words are still there; or
        that happens while it is asked, and then it is broken off.
        """
        request = hash_request(work, self._means.model)
        parking = work.park(ParkReason.MODEL_FAILED, Usage())

        def look(connection: sqlite3.Connection) -> tuple[bool, RecordedEvent | None]:
            if is_moot(connection, parking, user):
                return True, None
            seq = find_answer(connection, user, request)
            return False, None if seq is None else read_events(connection, (seq,)).get(seq)

        with self.under_way.breakable(user, parking):
            moot, found = await self._means.log.read(look)
            if moot:
                return None
            known = None if found is None or found.event is None else work.reuse(found.event)
            if known is not None:
                self.recorded += 1
                return known
            await self.note_day()  # the clock may have been set to another
            self._check(user)
            return await self._ask(user, work, tried)
        self._report("worker.answer_dropped", task=work.task)
        return None

    async def _ask(self, user: Reference, work: Work, tried: _Tried) -> NewEvent | _Tried | None:
        """One try: the event of the answer or of a parking, None when the words are gone, or what it took."""
        self.questions += 1
        try:
            with anyio.fail_after(ASK_WITHIN_S):
                event = await work.ask(self._means)
        except WordsGone:
            self.questions -= 1
            return None
        except (StoreUnusable, LogDamaged, LogClosed):
            raise
        except ModelUnavailable as error:
            self.budget.spend(user, error.usage)
            self._leave_alone(error)
            raise
        except AnswerUnusable as error:
            self.questions_failed += 1
            self.budget.spend(user, error.usage)
            return self._park(work, error.reason, tried.usage + error.usage)
        except Exception as error:  # whatever an adapter raises: it is counted, reported and parked in the end
            self.questions_failed += 1
            tries, usage = tried.tries + 1, error.usage if isinstance(error, ModelFailed) else Usage()
            code = error.code if isinstance(error, MemForestError) else type(error).__name__
            self._report("worker.question_failed", task=work.task, tries=tries, code=code)
            self.budget.spend(user, usage)
            return _Tried(tries, tried.usage + usage)
        return self._take(user, event, tried)

    def _take(self, user: Reference, event: NewEvent, tried: _Tried) -> NewEvent:
        """Count an answer; what the tries before it took stands in it, too."""
        answer = event.event
        assert isinstance(answer, Answer)
        self.budget.spend(user, answer.usage)
        by_rule = isinstance(answer, FactsExtracted) and answer.skipped
        if self._away is not None and not by_rule:
            self._away, self._away_until = None, 0.0
            self.on_answering()
        return replace(event, event=replace(answer, usage=tried.usage + answer.usage))

    def _check(self, user: Reference) -> None:
        """Raise `ModelUnavailable` while nothing can be asked for a user."""
        reason = self.away
        if reason is not None:
            raise ModelUnavailable(reason, self._away_until - anyio.current_time())
        block = self.budget.blocked(user)
        if block is not None:
            raise BudgetSpent(block.reason, block.in_s)

    def _leave_alone(self, error: ModelUnavailable) -> None:
        """Ask nothing for as long as the model wants, within limits; what is out may still be answered."""
        wait_s = min(max(error.retry_in_s, RETRY_MIN_S), RETRY_MAX_S)
        self._away = error.reason
        self._away_until = max(self._away_until, anyio.current_time() + wait_s)

    def _remember(self, user: Reference, work: Work, tried: _Tried) -> None:
        """What the tries of waiting work took, for when its time has come."""
        if tried != _Tried():
            self._tried[user, work.request] = tried
            while len(self._tried) > TRIED_MAX:
                self._tried.popitem(last=False)

    async def _append(self, work: Work, event: NewEvent) -> NewEvent | None:
        """Write an event; what is still to be written."""
        try:
            fault_point("answer.before_append")
            outcome = await self._means.log.append_event(event)
        except InvalidInput:
            # What no event holds, such as half a surrogate.
            return self._park(work, ParkReason.ANSWER_INVALID, _usage_of(event))
        except (StoreUnusable, FaultInjected) as error:
            code = error.code if isinstance(error, StoreUnusable) else "unavailable"
            self._report("worker.write_failed", code=code)
            await anyio.sleep(self._pace.write_pause_s)
            return event
        if outcome.verdict is Verdict.REFUSED:
            self._report("worker.answer_dropped", task=work.task)
        return None

    def _park(self, work: Work, reason: ParkReason, usage: Usage) -> NewEvent:
        self._report("worker.work_parked", task=work.task, reason=reason)
        return work.park(reason, usage)


async def _leave_to_the_caller(_: Work, __: NewEvent) -> None:
    """Whoever asked records the answer, together with others."""


def _usage_of(event: NewEvent) -> Usage:
    answer = event.event
    return answer.usage if isinstance(answer, Answer) else Usage()
