"""Admission: extracted facts become canonical ones. It is decided on the fold and costs no model call."""

from __future__ import annotations

import anyio

from daemon.memories import Memories
from events.appending import Batch
from events.envelope import NewEvent
from events.errors import StaleDecision
from events.log import EventLog
from projections.memory import Memory


async def admit(log: EventLog, memories: Memories, planner: anyio.Lock, memory: Memory) -> Memory:
    """Admit what waits, and return the Memory with it.

    A stale plan is simply made again. A Memory that has to be folded again is returned as it is.
    """
    if memory.needs_rebuild or not memory.canon.waiting:
        return memory
    async with planner:
        while True:
            memory = await memories.advance(memory.user)
            if memory.needs_rebuild:
                return memory
            try:
                await log.append(Batch(events=tuple(_plan(memory))))
            except StaleDecision:
                continue
            return await memories.advance(memory.user)


def _plan(memory: Memory) -> list[NewEvent]:
    decisions = memory.canon.plan_admissions(memory.parameters.generation)
    basis, waiting = memory.user_seq, memory.canon.waiting
    return [
        NewEvent(
            user_id=memory.user_id,
            session_id=None,
            event=decision,
            # Planned again from a later state it is another one.
            key=f"admission/{basis}/{first.seq}/{first.n}",
            happened_at=max(waiting[each.occurrence].said_at for each in decision.admissions),
            lineage=tuple(sorted(lineage)),
            basis=basis,
        )
        for decision, lineage in decisions
        for first in (decision.admissions[0].occurrence,)
    ]
