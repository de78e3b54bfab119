"""Frozen, or set back: the daemon, its database, or the server's store (fault matrix rows 19, 23 and 43)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tests.faults.checker import RECORDED_WITHIN_S, Said, check, checkpoint_of, until_arrived
from tests.faults.publishing import Crowd, create_stream
from tests.nats_server import OutsideServer, running_server
from tests.system.daemon_process import a_close, a_turn, publisher_to, running_daemon, short_folder
from tests.waiting import wait_until

SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
FROZEN_S = 5.0 if os.environ.get("MF_TORTURE") == "1" else 2.0
PLACE = ("alice", "s1")


async def publish(server: OutsideServer, said: Said, numbers: Sequence[int], *, close: bool = False) -> int:
    """Turns of one session; the stream's sequence of the last message."""
    last = 0
    async with publisher_to(server.url) as publisher:
        for number in numbers:
            content = f"I said number {number}."
            last = await publisher.send(a_turn(*PLACE, content, id=f"t{number}"), f"m{number}")
            said.turns[PLACE].append(content)
        if close:
            last = await publisher.send(a_close(*PLACE), "close")
    return last


@pytest.mark.timeout(120)
async def test_a_daemon_frozen_in_the_midst_of_ingest_goes_on_with_nothing_twice_and_all_in_order() -> None:
    print(f"\nSIMULATION_SEED={SEED}")
    with short_folder() as folder:
        async with running_server(folder / "nats") as server:
            await create_stream(server.url)
            # Each commit takes a while, so that the daemon is stopped between BEGIN and COMMIT.
            slow = {"MF_FAULT": "append.before_commit:sleep:0.02"}
            async with running_daemon(folder / "d", server.url, environ=slow) as daemon:
                crowd = Crowd(random.Random(SEED), lambda: server.url, 8, 2, 300, kills_at=[100])
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(crowd.publish)
                    await crowd.reached[0].wait()
                    os.kill(daemon.pid, signal.SIGSTOP)
                    thaws_at = anyio.current_time() + FROZEN_S
                    await wait_until(lambda: crowd.said.count == 300)
                    behind = checkpoint_of(daemon.store_path)
                    await wait_until(lambda: anyio.current_time() >= thaws_at)
                    os.kill(daemon.pid, signal.SIGCONT)
                await check(daemon, crowd.said)

    assert behind < 300, "it was not in the midst of anything"


@pytest.mark.timeout(120)
async def test_a_database_set_back_to_an_older_copy_is_read_on_from_its_own_checkpoint() -> None:
    """The stream went on meanwhile, and everything was acknowledged to it long ago."""
    said = Said()
    with short_folder() as folder:
        async with running_server(folder / "nats") as server:
            await create_stream(server.url)
            async with running_daemon(folder / "d", server.url) as daemon:
                await publish(server, said, range(20))
                await until_arrived(daemon, said)
                older = checkpoint_of(daemon.store_path)
                copy = folder / "copy.db"
                copy_store(daemon.store_path, copy)
                last = await publish(server, said, range(20, 50), close=True)
                await wait_until(lambda: checkpoint_of(daemon.store_path) == last)
                await daemon.kill()
                for suffix in ("", "-wal", "-shm"):
                    daemon.store_path.with_name(f"events.db{suffix}").unlink(missing_ok=True)
                shutil.move(copy, daemon.store_path)
                assert checkpoint_of(daemon.store_path) == older < last
                before = len(daemon.logged("ingest.batch_recorded"))
                await daemon.start()
                await check(daemon, said)
                batches = daemon.logged("ingest.batch_recorded")[before:]

    assert sum(batch["messages"] for batch in batches) == last - older, (
        "read again from the checkpoint, not from 1"
    )
    assert sum(batch["duplicates"] for batch in batches) == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("published_instead", "patience_s"),
    [
        pytest.param(10, RECORDED_WITHIN_S, id="fewer than were lost"),
        pytest.param(40, RECORDED_WITHIN_S, id="more than were lost"),
    ],
)
async def test_a_server_set_back_to_an_older_store_reuses_sequences_and_nothing_new_is_taken_for_known(
    published_instead: int, patience_s: float
) -> None:
    """What the server lost is in the log and stays; what takes the lost sequences is new, whatever its number."""
    said = Said()
    with short_folder() as folder:
        async with running_server(folder / "nats") as server:
            await create_stream(server.url)
            async with running_daemon(folder / "d", server.url) as daemon:
                await publish(server, said, range(15))
                await until_arrived(daemon, said)
                await server.stop()
                shutil.copytree(server.folder, folder / "older")
                await server.start()
                await publish(server, said, range(15, 40))
                await until_arrived(daemon, said)
                await server.kill()
                shutil.rmtree(server.folder)
                shutil.move(folder / "older", server.folder)
                # Frozen, so that it cannot look at the stream before the lost numbers are taken again.
                os.kill(daemon.pid, signal.SIGSTOP)
                await server.start()
                last = await publish(server, said, range(40, 40 + published_instead), close=True)
                os.kill(daemon.pid, signal.SIGCONT)
                await until_arrived(daemon, said, patience_s)
                await check(daemon, said)
                changed = daemon.logged("bus.epoch_changed")

    assert last == 15 + published_instead + 1
    assert [line["seq_before"] for line in changed] == [40]


def copy_store(path: Path, copy: Path) -> None:
    """A consistent copy of a store in use, as a backup makes it."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
