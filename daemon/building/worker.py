"""The worker: plans what each Memory still wants, and has the engine do it.

Every answer grows the log, which changes the Memory, which is planned again; so a tree node is summarised as soon
as its own children are. Work that cannot be asked now is not kept: it is planned again when its time has come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from daemon.building.compacting import Compacting
from daemon.building.deciding import Deciding
from daemon.building.engine import Engine, Pace
from daemon.building.extractions import plan_extractions
from daemon.building.fusing import Merge
from daemon.building.line import Line, Turn
from daemon.building.quiet import close_quiet_chunks
from daemon.building.recording import GroupRecorder
from daemon.building.refreshing import Refresh, read_standing
from daemon.building.replaying import end_replays
from daemon.building.summaries import plan_summaries
from daemon.building.work import Means, Origin, Work
from daemon.folding import Slices
from daemon.logs import Report, place_of
from daemon.memories import Memories
from daemon.models.budget import Budget
from daemon.models.limiter import PRIORITY
from daemon.reading.recalled import GivenOut, make_ready
from events.envelope import NewEvent, Reference
from events.errors import LogDamaged, StoreUnusable
from events.eventtree import NodesMerged
from events.log import EventLog
from events.memory import Task
from events.registry import read_user_references
from events.time import Instant
from projections.memory import Memory
from projections.memtree.dirty import Bare
from projections.ports import LanguageModel, ModelUnavailable

# Users planned at once; each of the others may be one whose log is long.
PLANNERS = 4
# Pieces under way per model slot: enough that a slot never waits for planning, few enough to re-plan often.
STARTED_PER_SLOT = 2
# How often idle sessions are looked for, and users whose work had to wait.
TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerParameters(Pace):
    """When work becomes due, and at what pace it is done."""

    idle_s: float = 30.0
    refresh_age_s: float = 600.0
    tick_s: float = TICK_S


class Worker:
    """Plans extraction, admission and refresh of all users; the engine asks for them within its limits."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        model: LanguageModel,
        parameters: WorkerParameters,
        clock: Callable[[], Instant],
        report: Report,
        *,
        budget: Budget | None = None,
        given_out: GivenOut | None = None,
        deciding: Deciding | None = None,
    ) -> None:
        """Without a `budget` there is no limit; `given_out` knows the lines that our own answers said lately.

        Without a `deciding` facts are compared by the built-in embedder. Where it has units, they are compacted.
        """
        self._line = Line()
        means = Means(log, model, given_out or GivenOut(log.keys.secret, clock), self._line.end_reading)
        self.engine = Engine(means, budget or Budget(0, 0, clock), parameters, report)
        self.deciding = deciding or Deciding(log, memories)
        self.in_flight: set[tuple[Reference, bytes]] = set()
        # Pieces that were turned away, until their user is planned anew: some may be moot by then.
        self._turned_away: dict[Reference, set[bytes]] = {}
        self._log = log
        self._memories = memories
        self._parameters = parameters
        self._clock = clock
        self._report = report
        idle_s, age_s = parameters.idle_s, parameters.refresh_age_s
        self._refreshes = defaultdict[Reference, Refresh](lambda: Refresh(int(idle_s * 1000), int(age_s * 1000)))
        self.engine.on_answering = self._line.release_all
        self.deciding.on_ready = self._line.want
        self.compacting: Compacting | None = None
        self.recorder = GroupRecorder(log, memories, self.planner, report, parameters.write_pause_s)
        if self.deciding.partitioning is not None:
            self.compacting = Compacting(memories, self.deciding.partitioning, clock, report, idle_s, age_s)
            self.compacting.on_ready = self._line.want
        # Merges under way, and whether one of them goes before everything else.
        self._merging, self._is_one_ahead = 0, False
        memories.on_let_go, memories.on_undone = self._let_go, self._forget

    @property
    def waiting_for_model(self) -> int:
        """Pieces that have to wait for the model or for a budget, as far as they were planned.

        More may wait behind them; of each user who has to wait one counts at least.
        """
        begun = self._turned_away
        return sum(map(len, begun.values())) + len(self._line.held_back.keys() - begun.keys())

    async def run(self) -> None:
        """Work for ever. What an earlier run left undone is found again, user by user."""
        await self._begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notice_changes, name="worker.notice_changes")
            tasks.start_soon(self._notice_time, name="worker.notice_time")
            tasks.start_soon(self.engine.under_way.watch, name="worker.under_way")
            tasks.start_soon(self.deciding.run, name="worker.deciding")
            for number in range(PLANNERS):
                tasks.start_soon(self._plan_for_ever, tasks, name=f"worker.planner_{number}")

    def planner(self, user: Reference) -> anyio.Lock:
        """Held by whoever decides on the facts of a user; never across a model call."""
        return self.deciding.planner(user)

    def refresh(self, user: Reference) -> None:
        """Have all nodes summarised that want it now, without waiting for a session's close."""
        self._refreshes[user].is_demanded = True
        self._line.want(user)

    async def _begin(self) -> None:
        await self.engine.note_day()
        await anyio.to_thread.run_sync(make_ready)
        for each in await self._log.read(read_user_references):
            self._line.want(each)

    async def _plan_for_ever(self, tasks: TaskGroup) -> None:
        """Plan one user after the other. Several do so, since one user's first fold may take its time."""
        line = self._line
        while True:
            woken = line.woken
            turn = line.take_next(self._has_room(), self._may_merge())
            if turn is None:
                await woken.wait()
                continue
            try:
                await self._plan_user(turn, tasks)
            finally:
                line.leave(turn)

    def _has_room(self) -> bool:
        return len(self.in_flight) < self._parameters.concurrency * STARTED_PER_SLOT

    def _may_merge(self) -> bool:
        """Whether another merge may begin: half of the slots are for what somebody waits for."""
        return self._merging < max(1, self._parameters.concurrency // 2)

    async def _notice_changes(self) -> None:
        while True:
            changed = self._memories.changed
            for user in self._memories.take_changed():
                memory = self._memories.peek(user)
                if memory is None or memory.user_seq != self._refreshes[user].planned_to:
                    self._line.want(user)
            await changed.wait()

    async def _notice_time(self) -> None:
        """Close chunks of quiet sessions, and look again at users whose refresh or waiting may be over."""
        after = 0
        while True:
            await anyio.sleep(self._parameters.tick_s)
            try:
                await self.engine.note_day()
                now, chunk_turns = self._clock(), self._memories.parameters.chunk_turns
                users, after = await close_quiet_chunks(
                    self._log, chunk_turns, now, self._parameters.idle_s, after
                )
                for user in users:
                    if not self._line.waits(user):
                        self._line.want(user)
            except StoreUnusable as error:
                self._report("worker.write_failed", code=error.code)
            if not self.engine.blocks():
                self._line.release(self.engine.blocks)
            now, age_ms = self._clock(), int(self._parameters.refresh_age_s * 1000)
            for user, refresh in self._refreshes.items():
                # Further ahead than any refresh: the clock was set back since. Then it is worked out anew.
                due = refresh.due_at is not None and not 0 < refresh.due_at - now <= age_ms
                if due and not self._line.waits(user):
                    self._line.want(user)
            for user in () if self.compacting is None else self.compacting.find_due(self._line.held_back):
                self._line.want(user)

    async def _plan_user(self, turn: Turn, tasks: TaskGroup) -> None:
        """Plan one user; what is wrong with one user's events or with the disk must not stop the others."""
        try:
            await self._plan(turn, tasks)
        except LogDamaged as error:
            self._report("memory.fold_failed", reason=str(error))
        except StoreUnusable as error:
            self._report("worker.write_failed", code=error.code)
        except Exception as error:  # a task's top: a fault in planning one user must not end the daemon
            self._report("worker.plan_failed", error=type(error).__name__, place=place_of(error))

    async def _plan(self, turn: Turn, tasks: TaskGroup) -> None:
        """Start what a user's Memory wants, as far as there is room; the rest is planned again later."""
        user, slices = turn.user, Slices()
        async with self._memories.use(user):
            # Only a Memory that stands at the log's end is planned on: another would ask again what was answered
            # just now, or ask about a session that it only hides, under a basis behind the forgetting.
            seq = (memory := await self._memories.advance(user)).user_seq
            memory = await self.deciding.decide(user, memory)
            memory = await end_replays(self._log, self._memories, self.planner(user), memory)
            if memory.needs_rebuild:
                self._line.want(user)  # edits came meanwhile; others are planned first
                return
            origin = Origin(user, memory.user_id, memory.user_seq, memory.parameters.generation)
            if not self.engine.blocks(user):
                self._turned_away.pop(user, None)
            self._refreshes[user].planned_to = seq
            if self._begin_ahead(user, memory, tasks):
                return
            wanted: Iterator[Work] = chain(
                plan_extractions(memory, origin),
                self.deciding.judging.plan(memory, origin),
                self._plan_refresh(user, memory, origin),
                self._plan_merges(memory),
            )
            for work in wanted:
                if (user, work.request) in self.in_flight:
                    continue
                if self.engine.blocks(user):
                    self._refreshes[user].note_blocked()
                    self._line.hold_back(user)
                    return
                priority, has_room = PRIORITY[work.task], self._has_room()
                has_room &= work.task is not Task.MERGE or self._may_merge()
                if not has_room or not self._line.take_room(turn, priority):
                    self._line.crowd_out(turn, priority)
                    return
                self._begin_work(user, work, tasks)
                if await slices.give_way() and not origin.stands(memory):  # not before something was begun
                    self._line.want(user)
                    return
            self._line.give_up_claims(user)
            self._turned_away.pop(user, None)

    def _begin_work(self, user: Reference, work: Work, tasks: TaskGroup, priority: int | None = None) -> None:
        self.in_flight.add((user, work.request))
        if work.task is Task.EXTRACT:
            self._line.begin_reading(user, work.request)
        if isinstance(work, Merge) and self.compacting is not None:
            self._merging += 1
            self.compacting.begin(work)
        tasks.start_soon(self._do, user, work, priority, name=f"worker.{work.task}")

    def _begin_ahead(self, user: Reference, memory: Memory, tasks: TaskGroup) -> bool:
        """Begin a merge that waited longer than any refresh may, if there is one, as a fresh turn: one at a time.

        Otherwise a daemon that is never quiet would never compact.
        """
        if self.compacting is None or self._is_one_ahead or not self.compacting.is_overdue(user):
            return False
        if self.engine.blocks(user) or (work := next(self._plan_merges(memory), None)) is None:
            return False
        self._is_one_ahead = True
        self._begin_work(user, work, tasks, PRIORITY[Task.EXTRACT])
        self._line.want(user)
        return True

    def _plan_merges(self, memory: Memory) -> Iterator[Merge]:
        """The groups that are due."""
        return iter(()) if self.compacting is None else self.compacting.plan(memory, self.in_flight)

    def _plan_refresh(self, user: Reference, memory: Memory, origin: Origin) -> Iterator[Work]:
        """The summaries that are due, and those that go ahead. Those under way cost nothing to pass over."""
        refresh, now = self._refreshes[user], self._clock()
        standing = read_standing(memory, now, refresh.idle_ms)
        refresh.slots_are_short |= self.engine.is_short
        refresh.goes_ahead = user not in self._line.reading
        refresh.take_up(memory.forest.dirty_digests(), standing, now)
        if not refresh.wants_any:
            return

        def is_wanted(bare: Bare) -> bool:
            return refresh.wants(bare, memory) and (user, bare.node.digest) not in self.in_flight

        yield from plan_summaries(memory, origin, is_wanted)

    def remembers(self, user: Reference) -> bool:
        """Whether anything is known of a user beside the Memory, but for vectors."""
        others = (self.deciding, self.compacting)
        return user in self._refreshes or any(each is not None and each.remembers(user) for each in others)

    def count_planned(self, user: Reference) -> int:
        """Groups of a user that are to be fused in the background."""
        compacting, wanted = self.compacting, self._line.wants(user)
        return 0 if compacting is None else compacting.count_planned(user, is_wanted=wanted)

    def _forget(self, user: Reference) -> None:
        """Something was undone: nothing that was made of a user's words is kept beside the Memory."""
        self.deciding.forget(user)
        if self.compacting is not None:
            self.compacting.forget(user)

    def _let_go(self, user: Reference) -> None:
        """A Memory goes: what is known of its user beside goes with it."""
        self.deciding.let_go(user)
        if self.compacting is not None:
            self.compacting.let_go(user)
        refresh = self._refreshes.get(user)
        if refresh is not None and not refresh.is_waiting:
            del self._refreshes[user]

    async def _do(self, user: Reference, work: Work, priority: int | None = None) -> None:
        """Do one piece of work to its end: answered, dropped, parked, or put off."""
        waits = True
        try:
            await self.engine.do(user, work, self._record, priority)
            # In flight until the Memory knows of the answer: a plan under way may have read the log before it.
            await self._memories.advance(user)
            waits = False
        except ModelUnavailable:
            self._turned_away.setdefault(user, set()).add(work.request)
        except LogDamaged as error:
            self._report("memory.fold_failed", reason=str(error))
        except StoreUnusable as error:  # nothing could be read
            self._report("worker.write_failed", code=error.code)
            await anyio.sleep(self._parameters.write_pause_s)
        finally:
            self.in_flight.discard((user, work.request))
            self._line.end_reading(user, work.request)
            if isinstance(work, Merge) and self.compacting is not None:
                self._merging -= 1
                if priority is not None:
                    self._is_one_ahead = False
                self.compacting.end(work, waits=waits)
            self._line.want(user)

    async def _record(self, work: Work, event: NewEvent) -> None:
        """Record an answer or a parking: a group on the facts as they stand, all else as it was asked for."""
        record = self.recorder.record if isinstance(event.event, NodesMerged) else self.engine.record
        await record(work, event)
