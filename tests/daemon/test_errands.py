"""Errands: what is done beside the plans, and who is planned again when."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from daemon.building.errands import PROBING_MAX, Errands
from events.envelope import Reference
from projections.ports import EmbedderUnavailable
from tests.builders import KEYS
from tests.bus_in_use import Reported
from tests.waiting import wait_until

SOON_S = 0.1
USERS = [KEYS.user(f"user {n}") for n in range(10 * PROBING_MAX)]


@dataclass
class Planned:
    """Users who want an errand each time they are planned, until one of theirs is done."""

    errands: Errands = field(default_factory=lambda: Errands(Reported(), failed_pause_s=SOON_S))
    away: bool = True
    calls: int = 0
    done: set[Reference] = field(default_factory=set[Reference])
    wants_none: set[Reference] = field(default_factory=set[Reference])

    def plan(self, user: Reference) -> None:
        if user not in self.done | self.wants_none:
            self.errands.begin(user, "any", lambda: self._do(user))

    async def _do(self, user: Reference) -> None:
        self.calls += 1
        if self.away:
            raise EmbedderUnavailable("it is away")
        self.done.add(user)


@asynccontextmanager
async def planned() -> AsyncGenerator[Planned]:
    seen = Planned()
    seen.errands.on_done = seen.plan
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(seen.errands.run)
        await anyio.lowlevel.checkpoint()
        yield seen
        tasks.cancel_scope.cancel()


async def test_while_the_embedder_is_away_only_a_few_users_are_planned_to_find_out() -> None:
    async with planned() as seen:
        for user in USERS:
            seen.plan(user)
        await wait_until(lambda: seen.errands.is_away(USERS[0]))
        first = seen.calls
        await wait_until(lambda: seen.calls > first)
        probes = seen.calls - first

    assert probes <= 2 * PROBING_MAX


async def test_when_it_is_back_everybody_is_planned_also_behind_users_who_want_nothing_any_more() -> None:
    async with planned() as seen:
        for user in USERS:
            seen.plan(user)
        await wait_until(lambda: seen.errands.is_away(USERS[0]))
        seen.wants_none |= set(USERS[: 3 * PROBING_MAX])
        seen.away = False
        await wait_until(lambda: len(seen.done) == len(USERS) - 3 * PROBING_MAX)

        assert not seen.errands.is_away(USERS[-1])
