"""Whatever is killed, whenever: what was acknowledged is in the log exactly once, in order, and folds the same.

Fault matrix row 7. MF_TORTURE=1 runs the long one (75 kills, 4,500 turns); SIMULATION_SEED=n draws the kills and
what is published from that seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from tests.faults.checker import check
from tests.faults.publishing import Crowd, create_stream, kills_among
from tests.nats_server import OutsideServer, running_server
from tests.system.daemon_process import DaemonProcess, running_daemon, short_folder

SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
SESSIONS, USERS = 24, 6
# A daemon that is not waited for is killed next while it starts, reads its store or catches up.
IMPATIENT_ONE_IN = 2
KINDS = ("kill daemon", "stop daemon", "kill server", "restart server")


@dataclass(slots=True)
class Killer:
    """Ends daemon and server in the four ways, and starts them again."""

    rng: random.Random
    daemon: DaemonProcess
    server: OutsideServer
    done: Counter[str] = field(default_factory=Counter)
    _to_come: list[str] = field(default_factory=list)

    async def strike(self) -> None:
        """One of the four; each comes once before any comes again."""
        if not self._to_come:
            self._to_come = self.rng.sample(KINDS, len(KINDS))
        kind = self._to_come.pop()
        self.done[kind] += 1
        match kind:
            case "kill server":
                await self.server.restart()
            case "restart server":
                await self.server.stop()
                await self.server.start()
            case _:
                await self._end_daemon(clean=kind == "stop daemon")
                await self.daemon.launch()
                if self.rng.randrange(IMPATIENT_ONE_IN):
                    await self.daemon.until_ready(None)

    async def _end_daemon(self, *, clean: bool) -> None:
        if not clean:
            await self.daemon.kill()
            return
        # One that does not listen to signals yet is ended by them, which is as good.
        assert await self.daemon.stop() in (0, -15)


@asynccontextmanager
async def publishing(crowd: Crowd) -> AsyncGenerator[None]:
    """The crowd at work in the background; on the way out all of it is published."""
    print(f"\nSIMULATION_SEED={SEED}: {len(crowd.kills_at)} kills after {list(crowd.kills_at)} turns")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crowd.publish)
        yield
    print(f"{crowd.said.count} turns acknowledged, {crowd.repeated} sent again, {crowd.retries} retries")


async def torture(kills: int, turns: int) -> None:
    """So many kills among so many turns, and the checker at the end."""
    rng = random.Random(SEED)
    with short_folder() as folder:
        async with running_server(folder / "nats") as server:
            await create_stream(server.url)
            async with running_daemon(folder / "d", server.url) as daemon:
                crowd = Crowd(rng, lambda: server.url, SESSIONS, USERS, turns, kills_among(rng, turns, kills))
                killer = Killer(random.Random(SEED), daemon, server)
                async with publishing(crowd):
                    for reached, survived in zip(crowd.reached, crowd.survived, strict=True):
                        await reached.wait()
                        await killer.strike()
                        survived.set()
                print(dict(killer.done))
                await daemon.until_ready()

                assert crowd.said.count == turns
                await check(daemon, crowd.said)


@pytest.mark.timeout(120)
async def test_six_kills_of_daemon_and_server_lose_nothing_and_repeat_nothing() -> None:
    await torture(kills=6, turns=400)


@pytest.mark.timeout(1800)
@pytest.mark.skipif(os.environ.get("MF_TORTURE") != "1", reason="the long torture runs with MF_TORTURE=1")
async def test_seventy_five_kills_in_4500_turns_lose_nothing_and_repeat_nothing() -> None:
    await torture(kills=75, turns=4500)


@pytest.mark.timeout(120)
async def test_a_killed_daemon_with_its_own_server_loses_nothing_and_leaves_no_server() -> None:
    rng = random.Random(SEED)
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            crowd = Crowd(rng, daemon.bus_url, 5, 1, 200, kills_among(rng, 200, 2))
            async with publishing(crowd):
                for reached, survived in zip(crowd.reached, crowd.survived, strict=True):
                    await reached.wait()
                    await daemon.kill()
                    await daemon.start()
                    survived.set()
            await check(daemon, crowd.said)
            # Those of the killed daemons are gone, only the last one's is there.
            assert len(nats_servers_of(folder)) == 1
        assert nats_servers_of(folder) == []


def nats_servers_of(folder: Path) -> list[int]:
    """The processes of nats-server that run on a store in `folder`."""
    found: list[int] = []
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"nats-server" in command and os.fsencode(folder) in command:
            found.append(int(process.name))
    return found
