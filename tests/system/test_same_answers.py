"""Every mode answers the same, byte for byte: asked again, after a restart, and after a rebuild.

Each run of the daemon has another seed for Python's own hashes, so nothing may hang on the order of a set.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from typing import Any

import pytest

from memforest import AsyncClient
from tests.stub_models.process import running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
    verify,
)

USER, SESSIONS, TURNS = "alice", 6, 10
MODES = ("agpr", "flat", "forest", "roots")
WITH_TREES = ("forest", "roots", "deep")
# These ask a model, which answers the same question the same.
MODES_WITH_A_MODEL = ("deep", "auto")
# Nothing is planned in the background while it is asked: what waits is part of every answer.
ENVIRON = {"MEMFOREST_EVENTTREE_ONLINE": "false"}
PEOPLE, CITIES, THINGS = ("Zoe", "Rex", "Ann"), ("Oslo", "Davis", "Miami", "Lyon"), ("kite", "violin", "boat")
QUESTIONS = (
    "Which instruments does the family play?",
    "Where did Alice live before Davis?",
    "When did Zoe buy a kite for the first time?",
    "How often was Rex in Oslo?",
    "What did Ann do between 2024-07-02 and 2024-07-04?",
    "submarine",
)
# What comes beside the plain question: all that changes what is found or shown.
MORE: tuple[dict[str, Any], ...] = (
    {"vectors": False},
    {"families": ["session"]},
    {"max_tokens": 120},
    {"explain": True},
)


def said() -> list[tuple[str, str]]:
    """Sessions and what is said in them: states, repetitions, names."""
    turns = list[tuple[str, str]]()
    for number, (person, city, thing) in enumerate(
        itertools.islice(itertools.cycle(itertools.product(PEOPLE, CITIES, THINGS)), SESSIONS * TURNS)
    ):
        content = (
            f"{person} bought a {thing} in {city}.",
            f"I moved to {city}.",
            f"{person} plays the {thing} and lives near {city}.",
            f"It rained on {person} in {city}.",
        )[number % 4]
        turns.append((f"s{number // TURNS}", content))
    return turns


async def learn(daemon: DaemonProcess) -> None:
    """A memory with trees, groups and a state that changed."""
    async with publisher_to(daemon.bus_url) as publisher:
        for number, (session, content) in enumerate(said()):
            at = f"2024-07-0{number // TURNS + 1}T09:{number % TURNS:02}:00Z"
            turn = a_turn(USER, session, content, id=f"t{number}", name="Alice", timestamp=at)
            await publisher.send(turn, f"m{number}")
        for number in range(SESSIONS - 1):  # the last one is open
            await publisher.send(a_close(USER, f"s{number}"), f"close{number}")
    async with daemon.client() as client:
        await until_recorded(client, USER, SESSIONS * TURNS)
        await until_built(client, USER)
        await client.compact(USER, 0.4)


async def until_ready(client: AsyncClient) -> None:
    """Its Memory is here, nothing waits, and every node has its vector: while trees are being embedded, fewer
    are compared."""

    async def is_ready() -> bool:
        await client.query(USER, "anything", mode="forest")
        models = (await client.request("status", {}))["models"]
        return not any(models[name] for name in models if name.endswith("vectors_waiting"))

    await until_built(client, USER)
    await until(is_ready, 60, "vectors are missing")


def questions(modes: Sequence[str]) -> list[dict[str, Any]]:
    """Each question in each mode, plain and with one thing more, of which every mode sees all."""
    asked: list[dict[str, Any]] = []
    for (m, mode), (q, question) in itertools.product(enumerate(modes), enumerate(QUESTIONS)):
        fitting = [more for more in MORE if "families" not in more or mode in WITH_TREES]
        plain = {"user_id": USER, "query": question, "mode": mode, "reference_date": "2024-07-10"}
        asked += [plain, {**plain, **fitting[(m + q) % len(fitting)]}]
    return asked


async def ask(daemon: DaemonProcess, modes: Sequence[str] = MODES) -> dict[str, str]:
    """All questions; the answers to the byte, but for how long they took."""
    answers: dict[str, str] = {}
    async with daemon.client() as client:
        await until_ready(client)
        if "deep" in modes:  # the first question to a model finds out what it understands, which is a call
            await client.query(USER, "anything", mode="deep")
        for asked in questions(modes):
            answer = await client.request("query", asked)
            if answer.get("explanation"):
                del answer["explanation"]["timings_ms"]
            answers[json.dumps(asked)] = json.dumps(answer, ensure_ascii=False)
    return answers


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The questions whose answers differ, each with what differs."""
    found: list[str] = []
    for asked in one:
        if one[asked] != other[asked]:
            before, after = json.loads(one[asked]), json.loads(other[asked])
            parts = [
                f"{name}: {before[name]} != {after.get(name)}"
                for name in before
                if before[name] != after.get(name)
            ]
            found.append(f"{asked} {parts}")
    return found


def let_go_of_memories(daemon: DaemonProcess) -> None:
    """Away with what a Memory is loaded from but the log: it is folded from nothing. Its vectors stay."""
    with closing(sqlite3.connect(daemon.folder / "derived.db")) as derived:
        derived.execute("DELETE FROM snapshots")
        derived.execute("DELETE FROM pieces")
        derived.commit()


def vectors_of(daemon: DaemonProcess) -> int:
    with closing(sqlite3.connect(daemon.folder / "derived.db")) as derived:
        (count,) = derived.execute("SELECT count(*) FROM vectors").fetchone()
        return int(count)


# With how the daemon ends before it is started again: as it should, or by kill -9.
EMBEDDERS: Sequence[object] = (
    ("hashing", True),
    pytest.param(
        "static", False, marks=pytest.mark.skipif(find_spec("wordllama") is None, reason="it is not installed")
    ),
)


@pytest.mark.parametrize(("embedder", "in_order"), EMBEDDERS)
async def test_answers_are_the_same_again_after_a_restart_and_after_a_rebuild(
    embedder: str, in_order: bool
) -> None:
    environ = {"MEMFOREST_MODELS_EMBEDDER": embedder, "PYTHONHASHSEED": "1", **ENVIRON}
    with short_folder() as folder:
        async with running_daemon(folder / "d", environ=environ) as daemon:
            await learn(daemon)
            first, again = await ask(daemon), await ask(daemon)
            await (daemon.stop() if in_order else daemon.kill())
            daemon.environ["PYTHONHASHSEED"] = "2"
            await daemon.start()
            restarted = await ask(daemon)
            await daemon.stop()
            let_go_of_memories(daemon)
            before = vectors_of(daemon)
            daemon.environ["PYTHONHASHSEED"] = "3"
            await daemon.start()
            rebuilt = await ask(daemon)
            await daemon.stop()
            assert_equal(await verify(daemon.folder), users=1)

    assert len(first) == 2 * len(QUESTIONS) * len(MODES)
    assert sum('"memories": []' not in answer for answer in first.values()) > len(first) // 2
    for name, answers in (("again", again), ("restarted", restarted), ("rebuilt", rebuilt)):
        assert differences(first, answers) == [], name
    assert bool(before) == (embedder == "static")


async def test_so_are_those_that_a_model_has_a_say_in_as_long_as_it_says_the_same() -> None:
    with short_folder() as folder:
        async with (
            running_stub_process() as stub,
            running_daemon(folder / "d", environ={**stub.environ(), "PYTHONHASHSEED": "1", **ENVIRON}) as daemon,
        ):
            await learn(daemon)
            first, again = await ask(daemon, MODES_WITH_A_MODEL), await ask(daemon, MODES_WITH_A_MODEL)
            await daemon.stop()
            daemon.environ["PYTHONHASHSEED"] = "2"
            await daemon.start()
            restarted = await ask(daemon, MODES_WITH_A_MODEL)
            await daemon.stop()
            let_go_of_memories(daemon)
            daemon.environ["PYTHONHASHSEED"] = "3"
            await daemon.start()
            rebuilt = await ask(daemon, MODES_WITH_A_MODEL)

    assert sum('"rounds": 0' not in answer and '"rounds"' in answer for answer in first.values()) > len(QUESTIONS)
    for name, answers in (("again", again), ("restarted", restarted), ("rebuilt", rebuilt)):
        assert differences(first, answers) == [], name
