"""The worker: plans what each Memory still wants, asks models concurrently, and appends their answers.

Nothing is held while a model is asked: no lock, no transaction, no reader. Every answer grows the log, which
changes the Memory, which is planned again; so a tree node is summarised as soon as its own children are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import anyio
from anyio.abc import TaskGroup

from daemon.building.replaying import end_replays
from daemon.building.work import AnswerInvalid, Origin, WordsGone, Work, plan_extractions, plan_summaries
from daemon.logs import Report, place_of
from daemon.memories import Memories
from events.appending import Batch
from events.envelope import NewEvent, Reference, identify
from events.errors import InvalidInput, LogClosed, LogDamaged, MemForestError, StaleDecision, StoreUnusable
from events.gate import Verdict
from events.log import EventLog
from events.memory import ParkReason
from events.registry import (
    SessionRow,
    WaitingSession,
    read_session_rows,
    read_user_references,
    read_waiting_sessions,
)
from events.session import ChunkClosed
from events.time import Instant
from projections.facts.chunking import open_turns
from projections.memory import Memory
from projections.ports import LanguageModel

# Tries of one piece of work before it is parked, and the first pause between them (doubling).
ATTEMPTS_MAX = 3
FIRST_PAUSE_S = 0.5
# All of one call, whatever the adapter's own timeouts; a call that hangs would keep its slot for ever.
CALL_WITHIN_S = 120.0
# Users planned at once; each of the others may be one whose log is long.
PLANNERS = 4
# Quiet sessions looked at per tick.
QUIET_SESSIONS_MAX = 64
# Pieces under way per model slot: enough that a slot never waits for planning, few enough to re-plan often.
STARTED_PER_SLOT = 2
WRITE_PAUSE_S = 5.0  # before an answer is written again that could not be written
# How often idle sessions are looked for.
TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerParameters:
    """When work becomes due, and how many model calls go out at once."""

    concurrency: int = 16
    idle_s: float = 30.0
    refresh_age_s: float = 600.0
    first_pause_s: float = FIRST_PAUSE_S
    write_pause_s: float = WRITE_PAUSE_S
    tick_s: float = TICK_S


@dataclass(slots=True)
class _User:
    """What the worker remembers of a user between plans."""

    planning: anyio.Lock = field(default_factory=anyio.Lock)
    refreshed_closings: int = 0
    dirty_since: Instant | None = None
    due_at: Instant | None = None  # when its refresh falls due, if nothing else makes it due before


class Worker:
    """Runs extraction, admission and refresh of all users under one limiter."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        model: LanguageModel,
        parameters: WorkerParameters,
        clock: Callable[[], Instant],
        report: Report,
    ) -> None:
        self.in_flight: set[tuple[Reference, bytes]] = set()
        self.calls = self.calls_failed = 0  # of the model, since the start
        self._log = log
        self._memories = memories
        self._model = model
        self._parameters = parameters
        self._clock = clock
        self._report = report
        self.slots = anyio.CapacityLimiter(parameters.concurrency)
        self._users: dict[Reference, _User] = {}
        self._wanted: dict[Reference, None] = {}
        # Users whose work found no room, the one that waits longest first.
        self._crowded_out: dict[Reference, None] = {}
        # Users being planned: one plan a user at a time.
        self._planned_now: set[Reference] = set()
        self._woken = anyio.Event()

    async def run(self) -> None:
        """Work for ever. What an earlier run left undone is found again, user by user."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notice_changes, name="worker.notice_changes")
            tasks.start_soon(self._notice_silence, name="worker.notice_silence")
            for each in await self._log.read(read_user_references):
                self._want(each)
            for number in range(PLANNERS):
                tasks.start_soon(self._plan_for_ever, tasks, name=f"worker.planner_{number}")

    def planner(self, user: Reference) -> anyio.Lock:
        """Held by whoever decides on the facts of a user; never across a model call."""
        return self._users.setdefault(user, _User()).planning

    async def _plan_for_ever(self, tasks: TaskGroup) -> None:
        """Plan one user after the other. Several do so, since one user's first fold may take its time."""
        while True:
            woken = self._woken
            user = self._take_next()
            if user is None:
                await woken.wait()
                continue
            self._planned_now.add(user)
            try:
                await self._plan_user(user, tasks)
            finally:
                self._planned_now.discard(user)
            self._wake()  # someone may have wanted this user meanwhile

    def _take_next(self) -> Reference | None:
        """Whom to plan now. Once there is room, those who found none come before those who had some."""
        waiting = self._crowded_out if self._crowded_out and self._has_room() else self._wanted
        user = next((each for each in waiting if each not in self._planned_now), None)
        if user is not None:
            del waiting[user]
        return user

    def _has_room(self) -> bool:
        return len(self.in_flight) < self._parameters.concurrency * STARTED_PER_SLOT

    def _want(self, user: Reference) -> None:
        self._wanted[user] = None
        self._wake()

    def _wake(self) -> None:
        woken, self._woken = self._woken, anyio.Event()
        woken.set()

    async def _notice_changes(self) -> None:
        while True:
            changed = self._memories.changed
            for user in self._memories.take_changed():
                self._want(user)
            await changed.wait()

    async def _notice_silence(self) -> None:
        """Close the chunks of quiet sessions, and look again at users whose refresh may be due."""
        after = 0
        while True:
            await anyio.sleep(self._parameters.tick_s)
            try:
                after = await self._close_quiet_chunks(after)
            except StoreUnusable as error:
                self._report("worker.write_failed", code=error.code)
            now, age_ms = self._clock(), int(self._parameters.refresh_age_s * 1000)
            for user, state in self._users.items():
                # Further ahead than any refresh: the clock was set back since. Then it is worked out anew.
                if state.due_at is not None and not 0 < state.due_at - now <= age_ms:
                    self._want(user)

    async def _close_quiet_chunks(self, after: int) -> int:
        """Close the open chunks of some quiet sessions; where to go on with others (0: from the first).

        The registry alone tells what waits, so no Memory has to be here for it.
        """
        now, idle_ms = self._clock(), int(self._parameters.idle_s * 1000)
        quiet = partial(read_waiting_sessions, quiet_since=now - idle_ms, ahead_from=now + idle_ms)
        sessions = await self._log.read(partial(quiet, after=after, limit=QUIET_SESSIONS_MAX))
        closings: list[NewEvent] = []
        for waiting in sessions:
            rows = await self._log.read(partial(read_session_rows, session=waiting.session))
            opened = open_turns(rows, self._memories.parameters.chunk_turns)
            if opened:
                closings.append(_close_chunk(waiting, opened[-1]))
            self._want(waiting.user)  # a chunk that is closed already may wait for a Memory that went
        if closings:
            await self._log.append(Batch(events=tuple(closings)))
        return sessions[-1].first_turn if len(sessions) == QUIET_SESSIONS_MAX else 0

    async def _plan_user(self, user: Reference, tasks: TaskGroup) -> None:
        """Plan one user; what is wrong with one user's events or with the disk must not stop the others."""
        try:
            await self._plan(user, tasks)
        except LogDamaged as error:
            self._report("memory.fold_failed", reason=str(error))
        except StoreUnusable as error:
            self._report("worker.write_failed", code=error.code)
        except Exception as error:  # a task's top: a fault in planning one user must not end the daemon
            self._report("worker.plan_failed", error=type(error).__name__, place=place_of(error))

    async def _plan(self, user: Reference, tasks: TaskGroup) -> None:
        """Start what a user's Memory wants, as far as there is room; the rest is planned again later."""
        async with self._memories.use(user):
            # Only a Memory that stands at the log's end is planned on: another would ask again what was answered
            # just now, or ask about a session that it only hides, under a basis behind the forgetting.
            memory = await self.admit(user, await self._memories.advance(user))
            memory = await end_replays(self._log, self._memories, self.planner(user), memory)
            if memory.needs_rebuild:
                self._want(user)  # edits came meanwhile; others are planned first
                return
            origin = Origin(memory.user_id, memory.user_seq, memory.parameters.generation)
            for work in chain(plan_extractions(memory, origin), self._plan_refresh(user, memory, origin)):
                if not self._has_room():
                    self._crowded_out[user] = None
                    return
                if (user, work.request) not in self.in_flight:
                    self.in_flight.add((user, work.request))
                    tasks.start_soon(self._do, user, work, name=f"worker.{work.task}")

    def _plan_refresh(self, user: Reference, memory: Memory, origin: Origin) -> Iterator[Work]:
        """Summaries, when they are due: a session was closed, all fell quiet, or the oldest waits too long."""
        state = self._users.setdefault(user, _User())
        if not memory.forest.dirty_count():
            state.dirty_since = state.due_at = None
            if not memory.waiting_chunks and not memory.canon.waiting:
                state.refreshed_closings = memory.closings
            return
        now = self._clock()
        state.dirty_since = min(state.dirty_since or now, now)
        # A turn from the future was recorded before the clock was set back, nobody knows how long ago.
        heard_at = max((at for at in memory.active_sessions.values() if at <= now), default=0)
        quiet_at = heard_at + int(self._parameters.idle_s * 1000)
        old_at = state.dirty_since + int(self._parameters.refresh_age_s * 1000)
        state.due_at = min(quiet_at, old_at)
        if memory.closings > state.refreshed_closings or now >= state.due_at:
            yield from plan_summaries(memory, origin)

    async def admit(self, user: Reference, memory: Memory) -> Memory:
        """Turn extracted facts into canonical ones, and return the Memory with them.

        Costs no model call, so a stale plan is simply made again.
        """
        if memory.needs_rebuild or not memory.canon.waiting:
            return memory
        async with self.planner(user):
            while True:
                memory = await self._memories.advance(user)
                if memory.needs_rebuild:
                    return memory
                decisions = memory.canon.plan_admissions(memory.parameters.generation)
                events = [
                    NewEvent(
                        user_id=memory.user_id,
                        session_id=None,
                        event=decision,
                        key=_decision_key("admission", memory.user_seq, decision.admissions[0].occurrence),
                        happened_at=max(memory.canon.waiting[a.occurrence].said_at for a in decision.admissions),
                        lineage=tuple(sorted(lineage)),
                        basis=memory.user_seq,
                    )
                    for decision, lineage in decisions
                ]
                try:
                    await self._log.append(Batch(events=tuple(events)))
                except StaleDecision:
                    continue
                return await self._memories.advance(user)

    async def _do(self, user: Reference, work: Work) -> None:
        """Do one piece of work to its end: answered, dropped or parked."""
        try:
            event = await self._ask(work)
            while event is not None:
                event = await self._append(work, event)
            # In flight until the Memory knows of the answer: a plan under way may have read the log before it.
            await self._memories.advance(user)
        except LogDamaged as error:
            self._report("memory.fold_failed", reason=str(error))
        except StoreUnusable as error:  # nothing could be read
            self._report("worker.write_failed", code=error.code)
            await anyio.sleep(self._parameters.write_pause_s)
        finally:
            self.in_flight.discard((user, work.request))
            self._want(user)

    async def _ask(self, work: Work) -> NewEvent | None:
        """The event of the answer, or of the parking; None when there is nothing to ask any more."""
        reason = ParkReason.MODEL_FAILED
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await anyio.sleep(self._parameters.first_pause_s * 2 ** (attempt - 1))
            try:
                async with self.slots:
                    self.calls += 1
                    with anyio.fail_after(CALL_WITHIN_S):
                        return await work.ask(self._log, self._model)
            except WordsGone:
                return None
            except (StoreUnusable, LogDamaged, LogClosed):
                raise
            except AnswerInvalid:
                reason = ParkReason.ANSWER_INVALID
            except Exception as error:  # whatever an adapter raises: it is counted, reported and parked
                code = error.code if isinstance(error, MemForestError) else type(error).__name__
                self._report("worker.call_failed", task=work.task, attempt=attempt + 1, code=code)
                reason = ParkReason.MODEL_FAILED
            self.calls_failed += 1
        return self._park(work, reason)

    async def _append(self, work: Work, event: NewEvent) -> NewEvent | None:
        """Write an answer; what is still to be written: the answer was paid for and is not asked for again."""
        try:
            outcome = await self._log.append_event(event)
        except InvalidInput:
            return self._park(work, ParkReason.ANSWER_INVALID)  # what no event holds, such as half a surrogate
        except StoreUnusable as error:
            self._report("worker.write_failed", code=error.code)
            await anyio.sleep(self._parameters.write_pause_s)
            return event
        if outcome.verdict is Verdict.REFUSED:
            self._report("worker.answer_dropped", task=work.task)
        return None

    def _park(self, work: Work, reason: ParkReason) -> NewEvent:
        self._report("worker.work_parked", task=work.task, reason=reason)
        return work.park(reason)


def _close_chunk(session: WaitingSession, last: SessionRow) -> NewEvent:
    key = identify(b"mf.closing", session.session, last.seq.to_bytes(8, "big")).hex()
    return NewEvent(
        user_id=session.user_id,
        session_id=session.session_id,
        event=ChunkClosed(last.seq),
        key=f"chunk/{key}",
        happened_at=last.recorded_at,
        lineage=(session.session,),
    )


def _decision_key(kind: str, basis: int, first: tuple[int, int]) -> str:
    """The key of a decision: planned again from a later state it is another one."""
    return f"{kind}/{basis}/{first[0]}/{first[1]}"
