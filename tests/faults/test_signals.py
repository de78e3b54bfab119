"""SIGTERM at bad moments: a session is being erased, a storm of it, memories are being folded (matrix row 8)."""

from __future__ import annotations

import os
import random
import signal

import anyio
import pytest

from tests.faults.checker import check, checkpoint_of
from tests.faults.publishing import Crowd, create_stream
from tests.nats_server import running_server
from tests.stored import stored_bytes, stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    a_turn,
    publisher_to,
    running_daemon,
    short_folder,
    until,
    until_recorded,
)
from tests.waiting import wait_until

SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
# What a supervisor waits before it kills.
STOPPED_WITHIN_S = 45.0
TURNS = 150


def events_of(daemon: DaemonProcess, kind: str) -> int:
    ((count,),) = stored_rows(daemon.store_path, "SELECT count(*) FROM events WHERE type = ?", kind)
    return int(count)


@pytest.mark.timeout(120)
async def test_a_daemon_that_is_stopped_while_it_erases_ends_with_0_and_finishes_after_its_start() -> None:
    slow = {"MF_FAULT": "erase.after_slice:sleep:1"}
    with short_folder() as folder:
        async with (
            running_daemon(folder / "d", environ=slow) as daemon,
            publisher_to(daemon.bus_url) as publisher,
            daemon.client() as client,
        ):
            for number in range(10):
                await publisher.send(a_turn("alice", "s1", f"Xylophon {number}.", id=f"t{number}"))
            await until_recorded(client, "alice", 10)

            # Over the bus, so that no request is in work, which a stop would wait for.
            forget = {"type": "session.forget", "user_id": "alice", "session_id": "s1"}
            await publisher.send(forget, "forget")
            await wait_until(lambda: events_of(daemon, "session.forgotten") == 1)
            with anyio.fail_after(STOPPED_WITHIN_S):
                ended = await daemon.stop()
            unfinished = events_of(daemon, "session.erased")
            del daemon.environ["MF_FAULT"]
            await daemon.start()

            async def is_erased() -> bool:
                return events_of(daemon, "session.erased") == 1

            await until(is_erased, 20, "the erasing was not finished")
            left = stored_bytes(daemon.store_path).count(b"Xylophon")

    assert (ended, unfinished) == (0, 0)
    assert left == 0


@pytest.mark.timeout(120)
async def test_a_storm_of_signals_in_the_midst_of_ingest_and_at_the_start_loses_and_repeats_nothing() -> None:
    """The second signal ends a daemon at once, so this is also a daemon that dies while it stops."""
    print(f"\nSIMULATION_SEED={SEED}")
    slow = {"MF_FAULT": "append.before_commit:sleep:0.01"}
    with short_folder() as folder:
        async with running_server(folder / "nats") as server:
            await create_stream(server.url)
            async with running_daemon(folder / "d", server.url, environ=slow) as daemon:
                crowd = Crowd(random.Random(SEED), lambda: server.url, 6, 2, TURNS, kills_at=[TURNS // 3])
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(crowd.publish)
                    await crowd.reached[0].wait()
                    await wait_until(lambda: checkpoint_of(daemon.store_path) > 0)
                    storm(daemon)
                    in_storm = await daemon.ended()
                behind = checkpoint_of(daemon.store_path)
                # Again while it folds what there is, which it begins as soon as it runs.
                await daemon.launch()
                before = len(daemon.logged("daemon.started"))
                await wait_until(lambda: len(daemon.logged("daemon.started")) > before, 60)
                with anyio.fail_after(STOPPED_WITHIN_S):
                    while_folding = await daemon.stop()
                await daemon.start()
                await check(daemon, crowd.said)

    assert in_storm in (0, 1)
    assert behind < TURNS, "it was not in the midst of anything"
    assert while_folding == 0


def storm(daemon: DaemonProcess) -> None:
    """Twenty signals, as fast as they can be sent."""
    for _ in range(20):
        if daemon.exit_code is None:
            os.kill(daemon.pid, signal.SIGTERM)
