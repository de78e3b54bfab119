"""Recording groups whose texts are there, several in one transaction, on the facts as they stand by then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import anyio

from daemon.building.fusing import Merge, decide
from daemon.building.live_nodes import may_be_merged
from daemon.building.work import Work
from daemon.logs import Report
from daemon.memories import Memories
from events.appending import Batch
from events.envelope import NewEvent, Reference
from events.errors import StaleDecision, StoreUnusable
from events.eventtree import NodesMerged
from events.faults import FaultInjected, fault_point
from events.gate import Verdict
from events.log import EventLog
from projections.memory import Memory

# Groups recorded in one transaction: folding one takes a fraction of a millisecond.
GROUPS_AT_ONCE: Final = 64


@dataclass(eq=False, slots=True)
class _Fused:
    """A group with its text, before it is recorded."""

    work: Merge
    merged: NodesMerged
    is_done: bool = False


class GroupRecorder:
    """Records groups of all users."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        planner: Callable[[Reference], anyio.Lock],
        report: Report,
        write_pause_s: float,
    ) -> None:
        self._log = log
        self._memories = memories
        self._planner = planner
        self._report = report
        self._write_pause_s = write_pause_s
        self._fused: dict[Reference, list[_Fused]] = {}

    async def record(self, work: Work, event: NewEvent) -> None:
        """Record a group, however often that takes: it was paid for. The first to come takes others along.

        One whose members changed meanwhile is dropped; a decision that is stale is made again, with the same text.
        """
        assert isinstance(work, Merge)
        assert isinstance(event.event, NodesMerged)
        user = work.origin.user
        fused = self._fused.setdefault(user, [])
        mine = _Fused(work, event.event)
        fused.append(mine)
        try:
            while not mine.is_done:
                await self._try(user, fused, mine)
        finally:
            if mine in fused:
                fused.remove(mine)
            if not fused:
                self._fused.pop(user, None)

    async def _try(self, user: Reference, fused: list[_Fused], mine: _Fused) -> None:
        try:
            async with self._planner(user):
                if not mine.is_done:
                    await self._record_some(user, fused)
        except (StoreUnusable, FaultInjected) as error:
            code = error.code if isinstance(error, StoreUnusable) else "unavailable"
            self._report("worker.write_failed", code=code)
            await anyio.sleep(self._write_pause_s)

    async def _record_some(self, user: Reference, fused: list[_Fused]) -> None:
        memory = await self._memories.catch_up(user)
        taken = fused[:GROUPS_AT_ONCE]
        # A member that was forgotten, retracted or grouped otherwise, or is to stay as it is.
        standing = [each for each in taken if all(may_be_merged(memory, node) for node in each.work.nodes)]
        fault_point("merge.before_append")
        dropped = len(taken) - len(standing)
        if standing:
            events = tuple(decide(memory, _in_its_unit(memory, each)) for each in standing)
            try:
                outcomes = await self._log.append(Batch(events=events))
            except StaleDecision:
                return  # decided again
            fault_point("merge.after_append")
            dropped += sum(each.verdict is Verdict.REFUSED for each in outcomes)
        for _ in range(dropped):
            self._report("worker.answer_dropped", task=taken[0].work.task)
        for each in taken:
            each.is_done = True
        fused[:] = [each for each in fused if not each.is_done]


def _in_its_unit(memory: Memory, fused: _Fused) -> NodesMerged:
    """A group goes where its facts went while it was fused; a trajectory is in no unit of others."""
    if fused.work.nodes[0].until is not None:
        return fused.merged
    unit = memory.units.unit_of.get(fused.merged.members[0], fused.merged.unit)
    return replace(fused.merged, unit=unit)
