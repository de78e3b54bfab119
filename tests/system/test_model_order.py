"""Answers of a model that come in any order and at any time, some of them asked for twice, make the same facts.

The reference code of the MemTree paper builds another forest each time (its defect C5). Here the log has the order
in which answers came; ids of facts, cuts of trees and scenes follow from it, and whoever folds it gets the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from tests.benchmarks.samples import Speech
from tests.stub_models.process import StubProcess, running_stub_process
from tests.system.daemon_process import (
    Publisher,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    running_daemon,
    short_folder,
    until_built,
    until_recorded,
    verify,
)

USER = "alice"
SESSIONS, TURNS = 2, 10
BEGAN_MS = 1_719_824_400_000
STEP_MS = 60_000
# One call after the other; and many at once, of which some are slow and some come to nothing at first.
WAYS = (("--slots", "1"), ("--seed", "5", "--faults", "slow=0.2@chat*0.4,503=0@chat*0.2,garbage@extract*0.2"))


async def build(folder: Path, *arguments: str) -> dict[str, Any]:
    """All that a conversation became in the store of a folder."""
    async with (
        running_stub_process(*arguments) as stub,
        running_daemon(folder, environ=chat_of(stub)) as daemon,
        daemon.client() as client,
    ):
        async with publisher_to(daemon.bus_url) as publisher:
            await publish(publisher)
        await until_recorded(client, USER, SESSIONS * TURNS)
        await until_built(client, USER)
        shown = [
            (await client.request(method, {"user_id": USER, "limit": 1000}))[method.partition(".")[0]]
            for method in ("facts.list", "trees.list", "parked.list")
        ]
    facts, trees, parked = shown
    assert parked == []
    return {
        "facts": sorted((each["text"], each["time_start"], each["time_end"], each["sessions"]) for each in facts),
        # Which facts meet in a scene follows from the order in which they came.
        "trees": sorted(
            (each["kind"], each["scope"], each["leaves"], each["dirty"])
            for each in trees
            if each["kind"] != "scene"
        ),
    }


async def publish(publisher: Publisher) -> None:
    """The same conversation each time."""
    speech = Speech(7)
    for number in range(SESSIONS * TURNS):
        said = {"id": f"t{number}", "name": "Alice", "timestamp": BEGAN_MS + number * STEP_MS}
        await publisher.send(a_turn(USER, f"s{number // TURNS}", speech.turn(), **said), f"t{number}")
    for number in range(SESSIONS):
        await publisher.send(a_close(USER, f"s{number}"), f"c{number}")


def chat_of(stub: StubProcess) -> dict[str, str]:
    """The environ of a daemon whose chat model alone is the stub."""
    return {key: value for key, value in stub.environ().items() if "EMBED" not in key}


async def test_answers_in_any_order_make_the_same_facts_and_each_memory_is_what_its_log_says() -> None:
    built: dict[int, dict[str, Any]] = {}
    with short_folder() as folder:

        async def run(number: int) -> None:
            built[number] = await build(folder / str(number), *WAYS[number])

        async with anyio.create_task_group() as tasks:
            for number in range(len(WAYS)):
                tasks.start_soon(run, number)
        for number in built:
            assert_equal(await verify(folder / str(number)), users=1)

    assert len(built[0]["facts"]) > SESSIONS * TURNS
    assert built[0] == built[1]
