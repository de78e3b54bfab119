"""`memforest why` against a running daemon: each kind of memory down to its message on the bus, in each form."""

from __future__ import annotations

import json
from typing import Any

from anyio import to_thread
from click.testing import CliRunner

from memforest.cli import cli
from tests.memforest.dot_reading import read_dot
from tests.system.daemon_process import (
    DaemonProcess,
    a_close,
    a_turn,
    publisher_to,
    running_daemon,
    short_folder,
    until_built,
    until_recorded,
)

USER, TURNS = "alice", 24


async def learn(daemon: DaemonProcess) -> None:
    """Two sessions, compacted."""
    async with publisher_to(daemon.bus_url) as publisher:
        for number in range(TURNS):
            content = f'Zoe bought kite "{number % 12}" in Davis; she \\ likes {number} of them.'
            await publisher.send(a_turn(USER, f"s{number % 2}", content, id=f"t{number}"), f"m{number}")
        for number in range(2):
            await publisher.send(a_close(USER, f"s{number}"), f"close{number}")
    async with daemon.client() as client:
        await until_recorded(client, USER, TURNS)
        await until_built(client, USER)
        await client.compact(USER, 0.6)


async def shown(daemon: DaemonProcess, memory_id: str, *more: str) -> str:
    """What the command prints, in this process: what it imports takes longer than what it does."""
    given = ["why", USER, memory_id, *more, "--socket", str(daemon.socket_path)]
    ended = await to_thread.run_sync(CliRunner().invoke, cli, given)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


async def test_each_kind_of_memory_leads_to_the_bus_as_text_json_and_graph() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            await learn(daemon)
            async with daemon.client() as client:
                group = (await client.units(USER)).groups[0]
                tree = await client.tree(USER, "s0", "session")
                asked = {"user_id": USER, "query": "kite", "filters": {"kinds": ["chunk"]}}
                chunk = (await client.request("query", asked))["memories"][0]["id"]
                head = (await client.request("query", asked))["watermark"]["user_seq"]
            told: dict[str, dict[str, Any]] = {}
            for memory_id in (group.id, group.members[0], chunk, tree.root.id):
                told[memory_id] = json.loads(await shown(daemon, memory_id, "--format", "json"))
                graph = read_dot(await shown(daemon, memory_id, "--format", "dot"))
                labels = [node["label"] for node in graph.nodes.values()]
                text = await shown(daemon, memory_id)
                assert any(label.startswith("message\nMEMFOREST ") for label in labels), memory_id
                assert "of MEMFOREST on memforest.turns.alice.s" in text
            then = json.loads(await shown(daemon, chunk, "--format", "json", "--as-of", str(head)))

    assert {each["kind"] for each in told.values()} == {"group", "fact", "chunk", "summary"}
    assert told[group.members[0]]["group"]["id"] == group.id
    assert told[group.members[0]]["facts"][0]["readings"][0]["turns"][0]["bus"]["stream"] == "MEMFOREST"
    assert [tree["kind"] for tree in told[chunk]["trees"]] == ["session"]
    assert then == told[chunk]
