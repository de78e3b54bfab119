"""Memories that bring vectors of their own, through the real daemon: asked, compacted, restarted, forgotten."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memforest import Answer
from memforest.errors import DaemonError
from tests.memforest.importing.video_graph import GraphNode, VideoGraph, dump
from tests.system.daemon_process import (
    DaemonProcess,
    assert_equal,
    memforest,
    publisher_to,
    running_daemon,
    short_folder,
    until_built,
    verify,
)

FILM, CHAT = "film-model", "chat-model"
USER = "robot"
ROOMS = ("kitchen", "garden", "cellar", "attic", "garage", "hall")
SECRET = "Quexalto"


def a_vector(number: int, width: int) -> list[float]:
    """A direction of its own for each room, and a little noise: sentences of one room are near to each other."""
    room, noise = number % len(ROOMS), np.random.default_rng((number, width)).normal(size=width) / 20
    vector = noise
    vector[room] += 1
    return [float(each) for each in vector]


def film(folder: Path) -> Path:
    """A graph of two dozen sentences about six rooms, eight numbers each, as M3-Agent leaves it."""
    nodes = [
        GraphNode(n, "episodic", [f"The robot sees thing {n} in the {ROOMS[n % 6]}."], [a_vector(n, 8)], n // 4)
        for n in range(24)
    ]
    path = folder / "bedroom_01.pkl"
    path.write_bytes(dump(VideoGraph(nodes), 4))
    return path


def points(folder: Path) -> Path:
    """Points of a vector store, twelve numbers each."""
    listed = [
        {
            "id": f"p-{n}",
            "vector": a_vector(n, 12),
            "payload": {
                "data": f"Ann keeps object {n} in her {ROOMS[n % 6]}.",
                "created_at": "2024-01-02T00:00:00Z",
            },
        }
        for n in range(24)
    ]
    path = folder / "points.json"
    path.write_text(json.dumps({"points": listed}))
    return path


async def imported(daemon: DaemonProcess, file: Path, *more: str) -> dict[str, Any]:
    ended = await memforest(daemon, "import", str(file), "--user", USER, "--wait", "--json", *more)
    assert ended.code == 0, ended
    shown: dict[str, Any] = json.loads(ended.output)
    return shown


async def ask(daemon: DaemonProcess, question: str, **more: Any) -> Answer:
    async with daemon.client() as client:
        return await client.query(USER, question, **more)


def reached(answer: Answer) -> dict[str | None, tuple[int, bool]]:
    return {space.model: (space.memories, space.reached) for space in answer.spaces or () if not space.ours}


async def test_memories_of_two_models_and_our_own_are_asked_compacted_and_forgotten() -> None:
    with short_folder() as folder:
        graph, store = film(folder), points(folder)
        # Compacted when it is asked for, so that there is something left to do.
        async with running_daemon(folder / "d", environ={"MEMFOREST_EVENTTREE_ONLINE": "false"}) as daemon:
            begins = ("--embedding-model", FILM, "--begins", "2024-07-01T09:00:00Z")
            first = await imported(daemon, graph, *begins)
            again = await imported(daemon, graph, *begins)
            await imported(daemon, store, "--embedding-model", CHAT, "--session", "store")
            await memforest(daemon, "add", USER, "I keep my keys in the garden.", "--session", "own", "--wait")
            near = a_vector(1, 8)
            by_film = await ask(daemon, "Where?", k=4, embedding=near, embedding_model=FILM)
            by_chat = await ask(daemon, "Where?", k=4, embedding=a_vector(2, 12))
            by_words = await ask(daemon, "What does Ann keep in her cellar?", k=3)
            async with daemon.client() as client:
                with pytest.raises(DaemonError, match="8 numbers, and those of its embedding_model have 12"):
                    await client.query(USER, "Where?", embedding=near, embedding_model=CHAT)
            compacted = await memforest(daemon, "compact", "--user", USER, "--ratio", "0.5", "--json")
            assert compacted.code == 0, compacted
            grouped = await ask(daemon, "Where?", k=4, embedding=near, embedding_model=FILM, open_groups=True)
            repeated = await ask(daemon, "Where?", k=4, embedding=near, embedding_model=FILM, open_groups=True)
            await daemon.kill()
            await daemon.start()
            restarted = await ask(daemon, "Where?", k=4, embedding=near, embedding_model=FILM, open_groups=True)
            async with daemon.client() as client:
                groups = [memory for memory in grouped.memories if memory.kind == "group"]
                sessions = {memory.id: set(memory.sessions) for memory in groups}
                receipt = await client.forget_session(USER, "bedroom_01")
                after = await ask(daemon, "Where?", k=4, embedding=near, embedding_model=FILM)
        verdicts = await verify(folder / "d")
        left = residue(folder / "d", [a_vector(n, 8) for n in range(24)])
        kept = residue(folder / "d", [a_vector(n, 12) for n in range(24)])

    assert (first["memories"], first["embeddings"], again["duplicates"]) == (24, 24, 24)
    assert {memory.text.rsplit(" ", 1)[1] for memory in by_film.memories} == {"garden."}
    assert reached(by_film) == {FILM: (24, True), CHAT: (24, False)}
    assert all("Ann keeps" in memory.text and "cellar" in memory.text for memory in by_chat.memories)
    assert reached(by_words) == {FILM: (24, False), CHAT: (24, False)}
    assert "cellar" in by_words.memories[0].text
    assert groups
    assert all(len(each) == 1 for each in sessions.values()), "no group mixes what is in two spaces"
    assert grouped == repeated == restarted
    assert receipt.events_voided >= 24
    assert not any("bedroom_01" in memory.sessions for memory in after.memories)
    assert reached(after).keys() == {CHAT}
    assert_equal(verdicts, 1)
    assert left == []
    assert kept, "the other's are where they were"


def residue(folder: Path, vectors: list[list[float]]) -> list[str]:
    """The files in which a piece of one of these embeddings stands: as sent, as base64, or in the cache."""
    needles: list[bytes] = []
    for vector in vectors:
        packed = struct.pack(f"<{len(vector)}f", *vector)
        unit = np.array(vector) / np.linalg.norm(np.frombuffer(packed, dtype="<f4").astype(np.float64))
        needles += [
            json.dumps(vector)[1:40].encode(),
            b64encode(packed)[:24],
            packed[:12],
            unit.astype(np.float32).astype(np.float16).tobytes()[:12],
        ]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(needle in path.read_bytes() for needle in needles)]


async def test_an_embedding_that_does_not_fit_is_a_dead_letter_on_the_bus_and_refused_on_the_socket() -> None:
    def memory(number: int, vector: list[float], **more: Any) -> dict[str, Any]:
        content = f"Fact {number}."
        return {
            "type": "memory",
            "id": f"x-{number}",
            "user_id": USER,
            "session_id": "s1",
            "content": content,
            "embedding": vector,
            "embedding_model": FILM,
            **more,
        }

    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon, publisher_to(daemon.bus_url) as publisher:
            bad = [
                memory(1, [1.0, 2.0]),
                memory(2, [0.0, 0.0, 0.0]),
                memory(3, [1e-60, 0.0, 0.0]),
                *(memory(10 + n, [1.0], embedding_model=f"m{n}") for n in range(8)),
            ]
            good = [memory(0, [1.0, 0.0, 0.5]), memory(99, [0.0, 1.0, 0.5])]
            for body in (good[0], *bad, good[1]):
                await publisher.publish(f"memforest.turns.{USER}.s1", json.dumps(body).encode(), body["id"])
            async with daemon.client() as client:
                await client.query(USER, "fact", wait_for=f"turn/{USER}/s1/x-99/0")
                await until_built(client, USER)
                letters = (await client.request("dead_letters.list", {}))["dead_letters"]
                answer = await client.query(USER, "fact", k=20, embedding=[0.0, 1.0, 0.4], embedding_model=FILM)
                refused: list[str] = []
                for body in bad[:3]:
                    with pytest.raises(DaemonError) as raised:
                        await client.request("ingest", {"messages": [body]})
                    refused.append(f"{raised.value.code}: {raised.value}")
                retried = await memforest(daemon, "dlq", "retry", str(letters[0]["id"]))
                held = await client.request("dead_letters.get", {"id": letters[0]["id"]})

    reasons = [letter["reason"] for letter in letters]
    assert len(reasons) == 4, reasons
    assert "has 2 numbers, and those of its embedding_model have 3" in reasons[0]
    assert reasons[1] == reasons[2] == "the embedding is all zeros in 32 bits, and has no direction to compare by"
    assert "embeddings of 8 models already" in reasons[3]
    assert json.loads(held["payload"])["content"] == "Fact 1.", "nothing is lost"
    assert answer.memories[0].text == "Fact 99."
    assert len(answer.memories) == 9
    assert all(each.startswith("invalid: message 0: the embedding") for each in refused), refused
    assert (retried.code, "cannot be taken" in retried.errors) == (1, True), retried
