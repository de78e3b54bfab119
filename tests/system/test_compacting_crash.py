"""The daemon dies while facts are compacted: planned, fused, recorded. It goes on, and pays for nothing twice."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from events.eventtree import NodesMerged
from events.log import LogReader
from events.reading import read_user
from events.registry import read_user_references
from tests.faults.publishing import create_stream
from tests.nats_server import running_server
from tests.stub_models.process import StubProcess, running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    short_folder,
    until,
    until_built,
    verify,
)

SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
USER = "alice"
TURNS = 40
MONDAY_S = 1_700_000_000
DEAD_WITHIN_S = 60.0
# Where the lives end that hear the second session: when the first groups are written, and before any more are. The
# model has two slots, or all groups might be written at once.
FAULTS = ("merge.after_append:kill:1", "merge.before_append:kill:1")
DEEP_LIVES = 12
# Of what is merged without a kill. A user a few nodes above the ratio is left there, and a plan may end earlier.
LEFT_MIN = 0.8
THINGS = ("kite", "lamp", "bridge", "boat", "violin", "carpet", "ladder", "kettle")
# Nobody falls quiet by the clock: the same facts are put into units together, whoever is how slow.
ENVIRON = {"MEMFOREST_MEMTREE_IDLE_S": "25"}


@dataclass(frozen=True)
class Ended:
    """What a store holds in the end, and what its model was asked for."""

    removed: int  # nodes less than facts
    merged: int
    twice: int  # groups that were made again though they stood
    asked: int


async def say(publisher: Publisher, session: int, sentences: Sequence[str]) -> None:
    """One session, and its end."""
    for number, text in enumerate(sentences):
        name = f"t{session}-{number}"
        # Two that were said in the same millisecond would be nearer to each other in one run than in another.
        timestamp = MONDAY_S + 86_400 * session + 60 * number
        await publisher.send(a_turn(USER, f"s{session}", text, id=name, timestamp=timestamp), name)
    await publisher.send(a_close(USER, f"s{session}"), f"close-{session}")


def sentences_of(rng: random.Random, session: int) -> list[str]:
    """Things that were bought, in numbers that no two sentences share."""
    return [
        f"I bought {1_000 * session + number} pieces of {rng.choice(THINGS)} in Davis yesterday."
        for number in range(TURNS)
    ]


async def until_dead(daemon: DaemonProcess) -> None:
    """Return once the life has ended at its point."""

    async def is_dead() -> bool:
        return daemon.exit_code is not None

    await until(is_dead, DEAD_WITHIN_S, f"the fault {daemon.environ['MF_FAULT']} was not met (seed {SEED})")
    assert daemon.exit_code == -signal.SIGKILL, f"seed {SEED}"


async def until_compacted(daemon: DaemonProcess, sessions: int) -> None:
    """Return when so many sessions are over and nothing waits; an answer is of facts and groups, as ever."""
    async with daemon.client() as client:

        async def are_over() -> bool:
            listed = (await client.request("sessions.list", {"user_id": USER}))["sessions"]
            return [each["state"] for each in listed] == ["closed"] * sessions

        await until(are_over, DEAD_WITHIN_S, "the sessions are not over")
        await until_built(client, USER)
        answer = await client.request("query", {"user_id": USER, "query": "Who bought a kite?", "k": 20})
    assert answer["memories"]


async def read_end(daemon: DaemonProcess, stub: StubProcess) -> Ended:
    """What the store holds; a fold from nothing says what the daemon says."""
    verdicts = await verify(daemon.folder)
    asked = (await stub.stats())["calls"]["merge"]
    await daemon.stop()
    log = await LogReader.open_to_read(daemon.store_path)
    try:
        (user,) = await log.read(read_user_references)
        events = [each.event for each in await log.read(lambda db: read_user(db, user, limit=100_000))]
    finally:
        await log.close()
    merged = [event for event in events if isinstance(event, NodesMerged)]
    standing: set[frozenset[bytes]] = set()
    for event in merged:
        members = frozenset(event.members)
        standing = {held for held in standing if not held & members} | {members}
    twice = sum(count - 1 for count in Counter(frozenset(event.members) for event in merged).values())
    assert_equal(verdicts, users=1)
    return Ended(sum(len(held) - 1 for held in standing), len(merged), twice, asked)


async def run_lives(faults: Sequence[str]) -> Ended:
    """Two sessions; the lives of the second end at `faults`, and the last one ends well."""
    rng = random.Random(SEED)
    async with AsyncExitStack() as opened:
        stub = await opened.enter_async_context(running_stub_process("--latency", "0.02", "--slots", "2"))
        folder = opened.enter_context(short_folder())
        # A bus of its own: a life that ends before all was said leaves the rest there for the next one.
        server = await opened.enter_async_context(running_server(folder))
        await create_stream(server.url)
        daemon = DaemonProcess(folder / "d", server.url, environ={**stub.environ(), **ENVIRON, "MF_FAULT": ""})
        publisher = await opened.enter_async_context(publisher_to(server.url))
        await daemon.start()
        await say(publisher, 0, sentences_of(rng, 0))
        await until_compacted(daemon, 1)
        for fault in faults:
            if daemon.exit_code is None:
                await daemon.stop()
            daemon.environ["MF_FAULT"] = fault
            await daemon.launch()
            if fault is faults[0]:
                await say(publisher, 1, sentences_of(rng, 1))
            await until_dead(daemon)
        if faults:
            daemon.environ["MF_FAULT"] = ""
            await daemon.launch()
        else:
            await say(publisher, 1, sentences_of(rng, 1))
        await daemon.until_ready()
        await until_compacted(daemon, 2)
        return await read_end(daemon, stub)


async def test_kills_while_facts_are_compacted_cost_no_answer_that_was_recorded_and_leave_nothing_undone() -> None:
    """Which groups there are depends on what was made when a unit was planned: after a kill they may be others."""
    whole = await run_lives(())
    killed = await run_lives(FAULTS)

    assert killed.twice == 0, f"seed {SEED}"
    assert whole.removed > 10
    assert killed.removed >= LEFT_MIN * whole.removed, f"seed {SEED}"
    # What was with the model, or had an answer that was not written yet, when it died.
    assert killed.asked <= killed.merged + 8 * len(FAULTS), f"seed {SEED}"


@pytest.mark.timeout(1_200)
@pytest.mark.skipif(os.environ.get("MF_TORTURE") != "1", reason="a dozen lives take minutes")
async def test_a_dozen_kills_while_facts_are_compacted_leave_nothing_undone() -> None:
    whole = await run_lives(())
    rng = random.Random(SEED)
    killed = await run_lives([f"merge.{rng.choice(('before', 'after'))}_append:kill" for _ in range(DEEP_LIVES)])

    assert killed.twice == 0, f"seed {SEED}"
    assert killed.removed >= LEFT_MIN * whole.removed, f"seed {SEED}"


def test_the_faults_are_of_different_points() -> None:
    assert len(set(FAULTS)) == len(FAULTS)
