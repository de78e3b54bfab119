"""Taking groups apart again: one event names their facts, which are kept apart until somebody compacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from daemon.memories import Memories
from events.appending import Batch
from events.envelope import NewEvent, Reference, identify
from events.errors import MemForestError, StaleDecision
from events.eventtree import CompactionUndone, GroupId
from events.log import EventLog
from events.time import Instant
from projections.memory import Memory

# Groups that one event names: folding it takes a few milliseconds of the loop, not more.
GROUPS_AN_EVENT = 16


class GroupUnknown(MemForestError):
    """There is no group of this id (any more); `units.list` names those there are."""

    code = "not_found"


@dataclass(frozen=True, slots=True)
class Undone:
    """How many groups stand no more, and how many facts are searched by themselves again."""

    groups: int
    facts: int


async def undo_groups(
    log: EventLog,
    memories: Memories,
    planner: anyio.Lock,
    user: Reference,
    groups: Sequence[str] | None,
    now: Instant,
) -> Undone:
    """Undo these groups of a user (None: all), and return once the Memory knows of it. Raises `GroupUnknown`.

    Costs no model call, so a stale decision is simply taken again.
    """
    wanted = None if groups is None else list(dict.fromkeys(map(_read_id, groups)))
    async with planner:
        while True:
            memory = await memories.catch_up(user)
            found = list(memory.units.groups) if wanted is None else wanted
            if any(group not in memory.units.groups for group in found):
                raise GroupUnknown
            facts = sum(len(memory.units.groups[group].members) for group in found)
            events = [
                _undo(memory, tuple(found[at : at + GROUPS_AN_EVENT]), now)
                for at in range(0, len(found), GROUPS_AN_EVENT)
            ]
            try:
                await log.append(Batch(events=tuple(events)))
            except StaleDecision:
                continue
            await memories.catch_up(user)
            return Undone(len(found), facts)


def _undo(memory: Memory, groups: tuple[GroupId, ...], now: Instant) -> NewEvent:
    """It names no session: whoever is forgotten, what was undone stays so."""
    basis = memory.user_seq
    what = identify(b"mf.undo", *groups, basis.to_bytes(8, "big")).hex()
    facts = tuple(fact for group in groups for fact in memory.units.groups[group].members)
    return NewEvent(
        user_id=memory.user_id,
        session_id=None,
        event=CompactionUndone(memory.parameters.generation, facts),
        key=f"{CompactionUndone.wire_name}/{what}",
        happened_at=now,
        lineage=(),
        basis=basis,
    )


def _read_id(text: str) -> GroupId:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise GroupUnknown from None
