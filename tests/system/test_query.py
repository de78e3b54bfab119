"""`query` of a daemon process: the same bytes after a restart and after a rebuild, and as people ask it."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from anyio import to_thread

from memforest.errors import RequestInvalid
from tests.system.daemon_process import (
    DaemonProcess,
    a_turn,
    memforest,
    running_daemon,
    short_folder,
    until_built,
    until_recorded,
)

USER = "alice"
TURNS = 36
RECEIVE_BYTES = 1 << 16
QUESTIONS: Sequence[dict[str, Any]] = (
    {"query": "Where does Rex swim?"},
    {"query": "Where does Rex swim?", "mode": "flat", "k": 3},
    {"query": "Rex", "max_tokens": 60},
    {"query": "Who is Kim?", "filters": {"roles": "user", "metadata": {"channel": ["mail"]}}, "k": 20},
    {"query": "Kim", "filters": {"entities": "kim", "not_sessions": ["s1"]}},
    {"query": "Rex", "between": ["2024-07-01", "2024-07-03"], "k": 50},
    {"query": "What of 東京?", "as_of": 20},
)


def messages() -> list[dict[str, object]]:
    """Three sessions, a day apart each."""
    said = [
        "Rex swims in the lake near Miami.",
        "Kim moved to Boston in May 2023.",
        "We saw 東京 together with Kim.",
        "Nothing much happened today.",
    ]
    return [
        a_turn(
            USER,
            f"s{1 + number % 3}",
            f"{said[number % 4]} That was number {number}.",
            id=f"t{number}",
            role="user" if number % 2 else "assistant",
            name="Alice" if number % 2 else None,
            timestamp=f"2024-07-0{1 + number % 3}T09:{number:02}:00Z",
            metadata={"channel": "mail" if number % 5 else "sms"},
        )
        for number in range(TURNS)
    ]


async def fill(daemon: DaemonProcess) -> None:
    async with daemon.client() as client:
        await client.ingest(messages())
        await until_recorded(client, USER, TURNS)
        for session in ("s1", "s2", "s3"):
            await client.close_session(USER, session)
        await until_built(client, USER)


async def answers(daemon: DaemonProcess) -> list[bytes]:
    """The bare answers, as bytes off the socket."""
    return [await to_thread.run_sync(ask, daemon, number, question) for number, question in enumerate(QUESTIONS)]


def ask(daemon: DaemonProcess, number: int, question: dict[str, Any]) -> bytes:
    params = {"user_id": USER, **question}
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "query", "params": params}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(daemon.socket_path))
        connection.sendall(line)
        answer = b""
        while not answer.endswith(b"\n"):
            answer += connection.recv(RECEIVE_BYTES)
    assert b'"result"' in answer, answer
    return answer


async def test_an_answer_is_the_same_to_the_byte_after_a_restart_and_after_a_rebuild() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            await fill(daemon)
            first, again = await answers(daemon), await answers(daemon)
            await daemon.stop()
            await daemon.start()
            restarted = await answers(daemon)
            await daemon.kill()
            for derived in daemon.folder.glob("derived.db*"):
                derived.unlink()
            await daemon.start()
            rebuilt = await answers(daemon)

    assert first == again
    assert first == restarted
    assert first == rebuilt
    assert all(json.loads(answer)["result"]["memories"] for answer in first), "or nothing was compared"


async def test_people_ask_with_filters_and_see_why() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            await fill(daemon)
            only = ("--session", "s1", "--role", "user", "--kind", "chunk")
            filtered = await memforest(daemon, "query", USER, "Rex", *only, "-k", "50", "--json")
            wrong = await memforest(daemon, "query", USER, "Rex", "--since", "yesterday")
            async with daemon.client() as client:
                with pytest.raises(RequestInvalid, match="sessions, not_sessions"):
                    await client.query(USER, "Rex", filters={"session": "s1"})
                typed = await client.query(USER, "Rex", filters={"sessions": "s1"}, explain=True, k=3)

    memories = json.loads(filtered.output)["memories"]
    assert memories
    assert all(memory["sessions"] == ["s1"] and memory["kind"] == "chunk" for memory in memories)
    assert (wrong.code, "--since" in wrong.errors) == (1, True)
    assert typed.explanation is not None
    assert {left.name for left in typed.explanation.filters} == {"nodes", "sessions"}
    assert typed.confidence is not None
