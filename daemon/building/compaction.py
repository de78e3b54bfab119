"""Compaction that somebody asks for: plan groups on vectors, fuse each group with one model call, record both.

The plan costs no call; a crash or a forgotten session in the middle leaves the groups that were fused, and
asking again goes on from there (algorithms.md 2, way 2). Preset "paper" fuses pair by pair (`pairwise`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import anyio
import anyio.to_thread
import numpy as np

from daemon.building.compacted import (
    LOSS_UNIT,
    CompactionResult,
    CompactionRunning,
    Counts,
    Progress,
    ProgressShown,
    tell,
)
from daemon.building.compaction_plans import (
    EMBED_TEXTS_MAX,
    Basis,
    Plan,
    Planned,
    PlannedGroup,
    Start,
    ToldPlans,
    copy_start,
    find_starts,
    plan_compaction,
    rules_of,
)
from daemon.building.decided import make_partitions
from daemon.building.engine import RETRY_MIN_S, BudgetSpent
from daemon.building.estimates import begin_estimate
from daemon.building.fusing import Merge, plan_merge, plan_trajectory
from daemon.building.live_nodes import LiveNode, MergeRules, Stays, count_nodes, due_trajectories, may_be_merged
from daemon.building.pairwise import Pairwise
from daemon.building.undoing import Undone, undo_groups
from daemon.building.worker import Worker
from daemon.folding import in_slices
from daemon.memories import Memories
from daemon.vector_source import VectorSource, Wanted
from events.appending import Batch
from events.envelope import Reference
from events.errors import StaleDecision
from events.eventtree import NodesMerged, UnitMembers
from events.log import EventLog
from events.time import Instant
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory
from projections.ports import ModelUnavailable, Vectors
from projections.steps import each_of
from projections.texts import FactText

# Groups that a dry run looks at on the loop in one go: two milliseconds.
LOOKED_AT_MAX = 256
# How long somebody who asked for a compaction waits for a model that is not there; then they are told what waits.
PATIENCE_S = 60.0

# How a planned group becomes work, once a slot is free for it: by the Memory of then.
PlanWork: TypeAlias = Callable[[Memory], Merge | None]


@dataclass(slots=True)
class _Run:
    """The groups of one compaction that are still to be asked for, and what became of the others."""

    progress: Progress
    left: deque[PlanWork]
    counts: Counts = field(default_factory=Counts)
    failures: list[Exception] = field(default_factory=list[Exception])
    # On the loop's clock: the model answered last, or the run began.
    answered_at: float = field(default_factory=anyio.current_time)


class Compactor:
    """Compacts users when they ask for it, one run a user at a time."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        worker: Worker,
        source: VectorSource,
        parameters: EventTreeParameters,
        clock: Callable[[], Instant],
        patience_s: float = PATIENCE_S,
        *,
        asks_endpoint: bool = True,
    ) -> None:
        """`asks_endpoint`: a question to the model costs something."""
        # Who is being compacted now, and how far that is.
        self.running: dict[Reference, Progress] = {}
        self._log = log
        self._memories = memories
        self._worker = worker
        self._engine = worker.engine
        self._source = source
        self._parameters = parameters
        self._clock = clock
        self._patience_s = patience_s
        self._asks_endpoint = asks_endpoint
        self._told = ToldPlans()

    def show_progress(self, user: Reference) -> ProgressShown | None:
        """How far the compaction of a user is; None when none runs."""
        progress = self.running.get(user)
        return None if progress is None else ProgressShown(progress.groups, progress.fused, progress.parked)

    def count_planned(self, user: Reference) -> int:
        """Groups of a user that are planned and not fused yet."""
        progress = self.running.get(user)
        return 0 if progress is None else progress.left

    async def compact(
        self, user: Reference, ratio: float | None = None, *, reindex: bool = False
    ) -> CompactionResult:
        """Merge nodes until the ratio is reached or no merge is allowed any more.

        Without a `ratio` that of the user's policy counts. With `reindex` the units are made anew first; else they
        stay where they are. A model that is not there is waited for a while, and then the result says what waits;
        nobody waits for a budget. Raises `CompactionRunning`, `InvalidInput`, and what the embedder or the log
        raises: then the groups that it did make stay, and the next run goes on from there.
        """
        with self._hold(user) as progress:
            await self._let_background_end(user)
            memory = await self._memories.catch_up(user)
            parameters = self._parameters_of(memory, ratio)
            groups_before, nodes_before = set(memory.units.groups), count_nodes(memory)
            rules = rules_of(parameters, self._clock())
            plan, stays = await self._find_plan(memory, Basis(memory.user_seq, parameters, rules, reindex))
            await self._record_units(user, plan.moved)
            if parameters.preset == "paper":
                pairwise = Pairwise(self._memories, self._worker, self._source, self._patience_s)
                counts = await pairwise.run(user, parameters, rules, progress, self._load_starts)
            else:
                memory = await self._memories.catch_up(user)
                planned = _works_of(plan, memory, rules, parameters)
                counts = await self._fuse_all(user, planned, progress)
            memory = await self._memories.catch_up(user)
            result = tell(memory, parameters, nodes_before, count_nodes(memory), stays, counts)
            return replace(result, groups=len(memory.units.groups.keys() - groups_before))

    async def preview(
        self, user: Reference, ratio: float | None = None, *, reindex: bool = False
    ) -> CompactionResult:
        """What `compact` would do and take now; nothing is changed and no model is asked.

        Raises `CompactionRunning`, `InvalidInput`, and what the embedder or the log raises.
        """
        with self._hold(user):
            memory = await self._memories.catch_up(user)
            parameters = self._parameters_of(memory, ratio)
            rules = rules_of(parameters, self._clock())
            basis = Basis(memory.user_seq, parameters, rules, reindex)
            plan, stays = await self._plan(memory, basis)
            self._told.keep(user, basis, (plan, stays))
            found = begin_estimate(memory, pairwise=parameters.preset == "paper")
            planned = _works_of(plan, memory, rules, parameters)
            for at in range(0, len(planned), LOOKED_AT_MAX):
                works = [work for each in planned[at : at + LOOKED_AT_MAX] if (work := each(memory)) is not None]
                found.take(memory, works, await self._engine.find_recorded(user, works))
            counts = Counts(found.parked)
            if self._asks_endpoint:
                counts.calls, counts.tokens = found.calls, found.tokens
            result = tell(memory, parameters, count_nodes(memory), found.nodes_after, stays, counts)
            unit_of = memory.units.unit_of | {fact: each.unit for each in plan.moved for fact in each.facts}
            units, loss_bound = len(dict.fromkeys(unit_of.values())), found.loss / LOSS_UNIT
            return replace(result, dry_run=True, groups=found.groups, units=units, loss_bound=loss_bound)

    async def undo(self, user: Reference, groups: Sequence[str] | None = None) -> Undone:
        """Take groups apart again, by their ids in hex, or all of them: their facts are searched at once.

        The background leaves them apart; `compact` takes them again. Raises `CompactionRunning`, `GroupUnknown`.
        """
        if user in self.running:
            raise CompactionRunning
        planner = self._worker.planner(user)
        return await undo_groups(self._log, self._memories, planner, user, groups, self._clock())

    async def _let_background_end(self, user: Reference) -> None:
        """Wait a while for the merges that the background has begun: their nodes would be fused twice."""
        background = self._worker.compacting
        with anyio.move_on_after(self._patience_s):
            while background is not None and background.is_asking(user):
                await self._memories.wait_a_moment(self._memories.changed)

    @contextmanager
    def _hold(self, user: Reference) -> Generator[Progress]:
        if user in self.running:
            raise CompactionRunning
        progress = self.running[user] = Progress()
        try:
            yield progress
        finally:
            del self.running[user]

    def _parameters_of(self, memory: Memory, ratio: float | None) -> EventTreeParameters:
        parameters = self._parameters.with_policy(memory.units.policy)
        return parameters if ratio is None else replace(parameters, ratio=ratio)

    async def _find_plan(self, memory: Memory, basis: Basis) -> Planned:
        """The plan that a dry run told, if it is still the one; a plan takes as long as a wave of calls."""
        return self._told.take(memory.user, basis) or await self._plan(memory, basis)

    async def _plan(self, memory: Memory, basis: Basis) -> Planned:
        """Units and groups of all spaces, planned in a thread; how many nodes stay as they are, and why."""
        starts, stays = await self._load_starts(memory, basis.rules)
        groups: list[PlannedGroup] = []
        moved: list[UnitMembers] = []
        for start in starts:
            rows, vectors = await self._embed(memory, start)
            work = partial(plan_compaction, start, rows, vectors, basis.parameters, reindex=basis.reindex)
            plan = await anyio.to_thread.run_sync(work)
            groups += plan.groups
            moved += plan.moved
        return Plan(tuple(groups), tuple(moved)), stays

    async def _load_starts(self, memory: Memory, rules: MergeRules) -> tuple[list[Start], Mapping[Stays, int]]:
        """What a compaction starts from, space by space, and what stays by itself."""
        copied = copy_start(memory, partial(self._source.space_of, memory))
        return await anyio.to_thread.run_sync(find_starts, copied, rules)

    async def _embed(self, memory: Memory, start: Start) -> tuple[dict[FactText, int], Vectors]:
        """The vectors of the facts of all nodes, in pieces of at most `EMBED_TEXTS_MAX`, and the row of each."""
        nodes, known = start.torn.nodes, memory.canon.facts
        rows = {node.member_refs[0]: row for row, node in enumerate(nodes)}
        found: list[Vectors] = []

        def want(node: LiveNode) -> Wanted:
            # What was forgotten meanwhile is in no group in the end, whatever it is taken for.
            return self._source.want(memory, node.id) if node.id in known else Wanted(node.ref, None)

        for at in range(0, len(nodes), EMBED_TEXTS_MAX):
            wanted = await in_slices(each_of(nodes[at : at + EMBED_TEXTS_MAX], want))
            found.append(await self._source.find(memory.user, wanted))
        return rows, np.concatenate(found) if found else np.zeros((0, 0), dtype=np.float32)

    async def _record_units(self, user: Reference, moved: Sequence[UnitMembers]) -> None:
        """Record which facts are in other units from now on."""
        while moved:
            async with self._worker.planner(user):
                memory = await self._memories.catch_up(user)
                try:
                    events = await anyio.to_thread.run_sync(make_partitions, memory, moved)
                    await self._log.append(Batch(events=tuple(events)))
                except (KeyError, StaleDecision):  # something was undone meanwhile
                    continue
            return

    async def _fuse_all(self, user: Reference, planned: list[PlanWork], progress: Progress) -> Counts:
        """Fuse all groups of a plan, as many at once as there are slots. Raises the first failure, in the end.

        Slots are taken again while what was answered is written, by as many more at most.
        """
        run = _Run(progress, deque(planned))
        progress.groups = len(run.left)
        async with anyio.create_task_group() as fusing:
            for _ in range(min(len(run.left), 2 * self._engine.slots.limit)):
                fusing.start_soon(self._fuse_for_ever, user, run, name="compaction.fuse")
        if run.failures:
            raise run.failures[0]
        return run.counts

    async def _fuse_for_ever(self, user: Reference, run: _Run) -> None:
        """Fuse one group after the other until none is left, or what is left has to wait."""
        while run.left:
            planned = run.left.popleft()
            try:
                await self._fuse(user, planned, run)
            except ModelUnavailable as error:
                await self._put_off(planned, run, error)
                continue
            except Exception as error:  # the other groups' calls are paid for and go on
                run.failures.append(error)
            run.progress.done += 1

    async def _fuse(self, user: Reference, planned: PlanWork, run: _Run) -> None:
        """Have one text made for a group and record it, unless its members changed meanwhile."""
        memory = await self._memories.catch_up(user)
        work = planned(memory)
        # By the policy of now: somebody may have said meanwhile what is never merged.
        rules = rules_of(self._parameters_of(memory, None), self._clock())
        if work is None or not all(may_be_merged(memory, node, rules) for node in work.nodes):
            return
        if work.request in memory.units.parked:
            self._note_parked(run)
            return
        event = await self._engine.answer(user, work)
        run.answered_at = anyio.current_time()
        if event is None:
            return
        if isinstance(event.event, NodesMerged):
            run.counts.take(event.event)
            await self._worker.recorder.record(work, event)
            memory = await self._memories.catch_up(user)
            run.progress.fused += work.request in memory.units.groups
        else:
            self._note_parked(run)
            await self._engine.record(work, event)

    def _note_parked(self, run: _Run) -> None:
        run.counts.parked += 1
        run.progress.parked += 1

    async def _put_off(self, planned: PlanWork, run: _Run, error: ModelUnavailable) -> None:
        """Wait for the model, or give all that is left up for this run once it is clear that it does not come."""
        waited_s = anyio.current_time() - run.answered_at
        if isinstance(error, BudgetSpent) or waited_s >= self._patience_s:
            run.counts.waiting += 1 + len(run.left)
            run.left.clear()
            run.counts.waits_for = error.reason
            return
        run.left.appendleft(planned)
        await anyio.sleep(min(max(error.retry_in_s, RETRY_MIN_S), self._patience_s - waited_s))


def _works_of(plan: Plan, memory: Memory, rules: MergeRules, parameters: EventTreeParameters) -> list[PlanWork]:
    """The groups of a plan, and the trajectories that are due, as work to be made of the Memory of then.

    Trajectories are ours: preset "paper" leaves states by themselves.
    """
    planned: list[PlanWork] = [
        partial(plan_merge, nodes=each.nodes, unit=each.unit, loss=each.loss) for each in plan.groups
    ]
    if parameters.preset != "paper":
        due = due_trajectories(memory, rules, every=True)
        planned += [partial(plan_trajectory, states=states) for states in due]
    return planned
