"""kill -9 at each named point of the way from the bus into the log (fault matrix rows 1-6).

Each life of the daemon begins with a fault armed and a few turns waiting on the stream, and ends at that fault;
the next life begins where it ended.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.faults.checker import Said, check, checkpoint_of, read_recorded, until_arrived
from tests.faults.publishing import create_stream
from tests.nats_server import OutsideServer, running_server
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_close,
    a_turn,
    publisher_to,
    running_daemon,
    short_folder,
    until,
)

# At which passing of its point each life ends. The deep sweep takes many more lives.
POINTS = (
    "append.before_begin",
    "append.after_insert",
    "append.before_commit",
    "append.after_commit",
    "ingest.before_append",
    "ingest.after_append",
    "ingest.after_ack",
)
DEEP = os.environ.get("MF_TORTURE") == "1"
PASSINGS = (1, 2, 3, 5, 8) if DEEP else (1,)
# A later one where a transaction passes the point often enough to be cut in two.
FAULTS = [*((point, passing) for passing in PASSINGS for point in POINTS), ("append.after_insert", 4)]
SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
TURNS_A_LIFE = 6
DEAD_WITHIN_S = 30.0


class Conversation:
    """Turns of three sessions of two users, published in order."""

    def __init__(self, publisher: Publisher) -> None:
        self.said = Said()
        self._publisher = publisher
        self._rng = random.Random(SEED)
        self._number = 0

    async def go_on(self, turns: int = TURNS_A_LIFE) -> None:
        """A few turns, each of a session drawn at random, the last of them sent twice, and one that is none."""
        for _ in range(turns):
            self._number += 1
            session = self._rng.randrange(3)
            place = (f"user{session % 2}", f"s{session}")
            content = f"This is number {self._number}."
            turn = a_turn(*place, content, id=f"t{self._number}")
            await self._publisher.send(turn, f"m{self._number}")
            self.said.turns[place].append(content)
        await self._publisher.send(turn, f"m{self._number}-again")
        rubbish = f"rubbish {self._number}".encode()
        await self._publisher.publish("memforest.turns.user0.s0", rubbish, f"m{self._number}-rubbish")
        self.said.undecodable.add(rubbish)

    async def end(self) -> None:
        """Close all sessions, so that their memory can be built to the end."""
        for user_id, session_id in self.said.turns:
            await self._publisher.send(a_close(user_id, session_id), f"{session_id}-close")


@asynccontextmanager
async def conversing(folder: Path) -> AsyncGenerator[tuple[OutsideServer, Conversation]]:
    """A server, its stream, and turns to publish."""
    async with running_server(folder / "nats") as server:
        await create_stream(server.url)
        async with publisher_to(server.url) as publisher:
            yield server, Conversation(publisher)


async def live_until(daemon: DaemonProcess, fault: str, conversation: Conversation) -> None:
    """One life with a fault armed, fed until the fault ends it."""
    daemon.environ["MF_FAULT"] = fault
    await daemon.launch()
    with anyio.fail_after(DEAD_WITHIN_S):
        while daemon.exit_code is None:
            before = checkpoint_of(daemon.store_path)

            async def has_moved(before: int = before) -> bool:
                return daemon.exit_code is not None or checkpoint_of(daemon.store_path) > before

            await until(has_moved, DEAD_WITHIN_S)
            if daemon.exit_code is None:
                await conversation.go_on(2)  # the point is passed again only when something comes
    assert daemon.exit_code == -signal.SIGKILL, daemon.log_text()
    del daemon.environ["MF_FAULT"]


@pytest.mark.timeout(600 if DEEP else 120)
async def test_a_kill_at_any_point_between_bus_and_log_loses_nothing_and_repeats_nothing() -> None:
    print(f"\nSIMULATION_SEED={SEED}")
    with short_folder() as folder:
        async with conversing(folder) as (server, conversation):
            daemon = DaemonProcess(folder / "d", server.url)
            for point, passing in FAULTS:
                await conversation.go_on()
                await live_until(daemon, f"{point}:kill:{passing}", conversation)
                # What is there is a beginning of each session: nothing twice, nothing left out.
                recorded = await read_recorded(daemon.store_path)
                for place, turns in recorded.turns.items():
                    assert turns == conversation.said.turns[place][: len(turns)], (point, passing)
            await conversation.end()
            async with running_daemon(folder / "d", server.url) as survivor:
                await check(survivor, conversation.said)
                armed = survivor.logged("daemon.fault_armed")

    assert [line["point"] for line in armed] == [point for point, _ in FAULTS], (
        "each was said, and none is left on"
    )
    assert {line["level"] for line in armed} == {"warning"}


@pytest.mark.timeout(120)
async def test_a_kill_before_the_last_checkpoint_and_a_failure_after_a_commit_lose_and_repeat_nothing() -> None:
    """The first leaves a write-ahead log to the next start; after the second, a group is taken for lost."""
    with short_folder() as folder:
        async with conversing(folder) as (server, conversation):
            await conversation.go_on()
            fault = {"MF_FAULT": "log.before_checkpoint:kill"}
            async with running_daemon(folder / "d", server.url, environ=fault) as daemon:
                await until_arrived(daemon, conversation.said)
                ended = await daemon.stop()
            left = daemon.store_path.with_name("events.db-wal").stat().st_size
            await conversation.go_on()
            await conversation.end()
            fault = {"MF_FAULT": "append.after_commit:raise"}
            async with running_daemon(folder / "d", server.url, environ=fault) as daemon:
                await check(daemon, conversation.said)
                failed = daemon.logged("ingest.write_failed") + daemon.logged("worker.write_failed")

    assert ended == -signal.SIGKILL
    assert left > 0, "this was no kill before the checkpoint"
    assert failed, "a group was durable, and reported as failed to whoever shared it"
