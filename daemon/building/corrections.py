"""What people say of facts: this is not so, this is so instead, this is to stay.

Each is an event, one for each reading of the fact, with that reading's session and turns: it goes with them, and
what stands on other turns stays corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from daemon.asking.fact_listing import FactShown
from daemon.asking.listings import find_user
from daemon.asking.structures import Structures
from daemon.building.correction_plans import (
    Change,
    FactUnknown,
    Plan,
    Reading,
    make_events,
    plan_correction,
    plan_pin,
    plan_retraction,
    plan_unpinning,
    read_fact,
)
from daemon.building.worker import Worker
from daemon.memories import Memories
from daemon.untrusted import Params
from events.appending import Batch
from events.envelope import Reference
from events.errors import InvalidInput, StaleDecision
from events.gate import Verdict
from events.log import EventLog
from events.memory import (
    FactId,
)
from events.reading import read_events
from events.time import EARLIEST, LATEST, Instant, from_datetime
from projections.facts.canonical import Fact, read_likeness
from projections.memory import Memory

# A fact is a sentence or two; what is longer is a document.
TEXT_CHARACTERS_MAX = 4_000


class FactParams(Params, frozen=True, kw_only=True):
    """For methods about one fact."""

    user_id: str
    fact_id: str


class CorrectParams(Params, frozen=True, kw_only=True):
    """Parameters of `facts.correct`: what is so instead. Times are ISO 8601 with their offset."""

    user_id: str
    fact_id: str
    text: str | None = None
    time_start: str | None = None
    time_end: str | None = None


class PinParams(Params, frozen=True, kw_only=True):
    """Parameters of `facts.pin`; with `pinned` false the fact is let go again."""

    user_id: str
    fact_id: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class FactSettled:
    """The fact as it is now; null when it is known no more. `replaces` is the id that was asked about."""

    fact: FactShown | None
    replaces: str


class Corrections:
    """Records what people say of facts, and shows them."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        worker: Worker,
        structures: Structures,
        clock: Callable[[], Instant],
    ) -> None:
        self._log = log
        self._memories = memories
        self._worker = worker
        self._structures = structures
        self._clock = clock

    async def get(self, params: FactParams) -> FactShown:
        """One fact; raises `UserUnknown` or `FactUnknown`."""
        user = await find_user(self._log, params.user_id)
        async with self._memories.use(user) as memory:
            shown = await self._show(memory, _find_fact(memory, _read_id(params.fact_id)))
        if shown is None:
            raise FactUnknown
        return shown

    async def retract(self, params: FactParams) -> FactSettled:
        """A fact is not so. Raises `UserUnknown`, `FactUnknown`."""
        user = await find_user(self._log, params.user_id)
        await self._decide(user, _read_id(params.fact_id), plan_retraction)
        return FactSettled(None, params.fact_id)

    async def correct(self, params: CorrectParams) -> FactSettled:
        """Something else is so. Raises `UserUnknown`, `FactUnknown`, `InvalidInput`."""
        change = _read_change(params)
        user = await find_user(self._log, params.user_id)
        fact, readings = await self._decide(
            user, _read_id(params.fact_id), partial(plan_correction, change=change)
        )
        memory = await self._memories.catch_up(user)
        corrected = memory.canon.find(read_likeness(change.apply(readings[0].says), memory.user))
        if corrected is not None and fact.pinned and not corrected.pinned:
            await self._decide(user, corrected.id, plan_pin)
            memory = await self._memories.catch_up(user)
        return FactSettled(await self._show(memory, corrected), params.fact_id)

    async def pin(self, params: PinParams) -> FactSettled:
        """A fact is to stay as it is, or may change again. Raises `UserUnknown`, `FactUnknown`."""
        user = await find_user(self._log, params.user_id)
        plan = plan_pin if params.pinned else plan_unpinning
        fact, readings = await self._decide(user, _read_id(params.fact_id), plan)
        # What had joined the fact through a pin that is undone is admitted anew.
        memory = await self._worker.deciding.decide(user, await self._memories.catch_up(user))
        now = memory.canon.facts.get(fact.id) or memory.canon.find(read_likeness(readings[0].says, memory.user))
        return FactSettled(await self._show(memory, now), params.fact_id)

    async def _decide(self, user: Reference, fact_id: FactId, plan: Plan) -> tuple[Fact, list[Reading]]:
        """Record what a plan makes of a fact, and return once it is known: the fact and readings of before.

        Costs no model call, so a stale plan is simply made again.
        """
        async with self._worker.planner(user):
            while True:
                memory = await self._memories.catch_up(user)
                basis, fact = memory.user_seq, _find_fact(memory, fact_id)
                was = replace(fact, occurrences=list(fact.occurrences))  # the Memory may be folded on meanwhile
                sessions = dict(memory.session_ids)
                seqs = [each.pointer.seq for each in was.occurrences]
                readings = read_fact(was, sessions, await self._log.read(partial(read_events, seqs=seqs)))
                events = make_events(memory.user_id, basis, plan(memory, was, readings), self._clock())
                try:
                    outcomes = await self._log.append(Batch(events=events))
                except StaleDecision:
                    continue
                if any(outcome.verdict is Verdict.REFUSED for outcome in outcomes):
                    raise FactUnknown
                await self._memories.catch_up(user)
                return was, readings

    async def _show(self, memory: Memory, fact: Fact | None) -> FactShown | None:
        if fact is None or not memory.shows(fact):
            return None
        shown = await self._structures.show(memory, [fact])
        return shown[0] if shown else None


def _find_fact(memory: Memory, fact_id: FactId) -> Fact:
    fact = memory.canon.facts.get(fact_id)
    if fact is None or not memory.shows(fact):
        raise FactUnknown
    return fact


def _read_id(text: str) -> FactId:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise FactUnknown from None


def _read_change(params: CorrectParams) -> Change:
    text = None if params.text is None else params.text.strip()
    if (text, params.time_start, params.time_end) == (None, None, None):
        raise InvalidInput("say what is so instead: text, time_start or time_end")
    if text is not None and not 1 <= len(text) <= TEXT_CHARACTERS_MAX:
        raise InvalidInput(f"text has 1 to {TEXT_CHARACTERS_MAX} characters; to take a fact away, retract it")
    return Change(text, _read_instant(params.time_start), _read_instant(params.time_end))


def _read_instant(text: str | None) -> Instant | None:
    if text is None:
        return None
    try:
        at = from_datetime(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidInput("a time is ISO 8601 with its offset (2024-07-01T09:00:00Z)") from None
    if not EARLIEST <= at <= LATEST:
        raise InvalidInput("a time is of the years 1 to 9999")
    return at
