"""Whatever is killed, whenever: what was acknowledged is in the log exactly once, in order, and folds the same."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from events.appending import Keys
from events.log import LogReader
from events.reading import read_events, read_user
from events.session import TurnConflicted, TurnRecorded
from tests.nats_server import running_server
from tests.system.daemon_process import (
    DaemonProcess,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    run_command,
    running_daemon,
    short_folder,
    until_built,
    until_recorded,
    verify,
)

USER = "alice"
# Sessions are published side by side, each in its own order.
SESSIONS = 5
SEED = int(os.environ.get("MEMFOREST_TEST_SEED", "0")) or random.randrange(1, 2**31)


class Publishing:
    """Turns on their way, in step with what is killed: the n-th kill falls into the midst of its stage."""

    def __init__(self, turns: int, kills_at: Sequence[int]) -> None:
        """`kills_at` says after how many acknowledged turns each kill comes."""
        self.turns = turns
        self.kills_at = kills_at
        self.acknowledged: list[str] = []
        self.retries = 0
        self.reached = [anyio.Event() for _ in kills_at]
        self.survived = [anyio.Event() for _ in kills_at]

    def acknowledge(self, content: str) -> None:
        """The stream has it. Whoever waits to kill goes on at once, while other turns are under way."""
        self.acknowledged.append(content)
        for place, reached in zip(self.kills_at, self.reached, strict=True):
            if len(self.acknowledged) >= place:
                reached.set()

    async def until_allowed(self) -> None:
        """Not beyond the next kill before the last one is survived, or the kills would outlast the turns."""
        for place, survived in zip(self.kills_at[1:], self.survived, strict=False):
            if len(self.acknowledged) >= place:
                await survived.wait()


async def publish_session(publishing: Publishing, url: Callable[[], str], session: int) -> None:
    """One session's turns in order. Every other session's turns have no id, only their messages do."""
    session_id = f"s{session}"
    async with publisher_to(url) as publisher:
        for number in range(publishing.turns // SESSIONS):
            await publishing.until_allowed()
            content = f"In session {session} I said number {number}."
            ids = {"id": f"t{number}"} if session % 2 else {}
            await publisher.send(a_turn(USER, session_id, content, **ids), f"{session_id}-{number}")
            publishing.acknowledge(content)
        await publisher.send(a_close(USER, session_id), f"{session_id}-close")
        publishing.retries += publisher.retries


@asynccontextmanager
async def publishing_while(turns: int, kills: int, url: Callable[[], str]) -> AsyncGenerator[Publishing]:
    """Turns published in the background; every kill has its place among them, drawn from SEED."""
    rng = random.Random(SEED)
    step = turns // (kills + 1)
    publishing = Publishing(turns, [step * n + rng.randrange(step) for n in range(1, kills + 1)])
    print(f"\nseed {SEED}: kills after {list(publishing.kills_at)} turns")
    async with anyio.create_task_group() as tasks:
        for session in range(SESSIONS):
            tasks.start_soon(publish_session, publishing, url, session)
        yield publishing


async def check_log(daemon: DaemonProcess, publishing: Publishing) -> None:
    """The bar: each acknowledged publish once, per-session order kept, verify equal."""
    async with daemon.client() as client:
        await until_recorded(client, USER, publishing.turns)
        await until_built(client, USER)
    recorded = await recorded_turns(daemon.store_path)
    times = Counter(content for _, content in recorded)
    print(f"{len(publishing.acknowledged)} acknowledged, {len(recorded)} recorded, {publishing.retries} retries")

    assert len(publishing.acknowledged) == publishing.turns
    assert times == Counter(publishing.acknowledged)
    assert max(times.values()) == 1
    for session in range(SESSIONS):
        said = [content for session_id, content in recorded if session_id == f"s{session}"]
        assert said == [f"In session {session} I said number {number}." for number in range(len(said))]
    assert_equal(await verify(daemon.folder), users=1)


async def recorded_turns(path: Path) -> list[tuple[str | None, str]]:
    """Session and content of the user's turns in log order, read beside the daemon."""
    log = await LogReader.open_to_read(path)
    try:
        user = Keys(await log.read(read_secret)).user(USER)
        turns: list[tuple[str | None, str]] = []
        after = 0
        while page := await log.read(partial(read_user, user=user, after=after)):
            after = page[-1].user_seq
            events = await log.read(partial(read_events, seqs=[event.seq for event in page]))
            assert not [event for event in events.values() if isinstance(event.event, TurnConflicted)]
            turns += [
                (event.session_id, event.event.content) for event in page if isinstance(event.event, TurnRecorded)
            ]
        return turns
    finally:
        await log.close()


def read_secret(connection: sqlite3.Connection) -> bytes:
    (secret,) = connection.execute("SELECT secret FROM store").fetchone()
    return bytes(secret)


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


@pytest.mark.timeout(240)
async def test_ten_kills_of_daemon_and_server_lose_nothing_and_repeat_nothing() -> None:
    with short_folder() as folder:
        async with running_server(folder / "nats") as server:
            created = await run_command(
                "daemon", "doctor", "--create-stream", "--data", str(folder / "d"),
                environ={"MEMFOREST_BUS_URL": server.url},
            )  # fmt: skip
            assert created.code == 0, created

            async with running_daemon(folder / "d", server.url) as daemon:

                async def stop_daemon() -> None:
                    assert await daemon.stop() == 0

                kinds: list[tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]] = [
                    (daemon.kill, partial(daemon.start, None)),
                    (server.kill, server.start),
                    (stop_daemon, partial(daemon.start, None)),
                ]
                async with publishing_while(1000, 10, lambda: server.url) as publishing:
                    for number, reached in enumerate(publishing.reached):
                        await reached.wait()
                        end, start = kinds[number % len(kinds)]
                        await end()
                        await start()
                        publishing.survived[number].set()
                await check_log(daemon, publishing)


@pytest.mark.timeout(180)
async def test_three_kills_of_a_daemon_with_its_own_server_lose_nothing_and_leave_no_server() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            async with publishing_while(600, 3, daemon.bus_url) as publishing:
                for number, reached in enumerate(publishing.reached):
                    await reached.wait()
                    await daemon.kill()
                    await daemon.start()
                    publishing.survived[number].set()
            await check_log(daemon, publishing)
            # Those of the killed daemons are gone, only the last one's is there.
            assert len(nats_servers_of(folder)) == 1
        assert nats_servers_of(folder) == []
