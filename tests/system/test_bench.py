"""`memforest bench` through a real daemon: the three formats, a run that is killed, answers in words.

The data sets here are written for these tests: each word of a question stands in the turn that answers it alone.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
import pytest_asyncio
from anyio import to_thread
from click.testing import CliRunner, Result

from memforest.cli import cli
from tests.stub_models.process import running_stub_process
from tests.system.daemon_process import (
    ROOT,
    DaemonProcess,
    a_turn,
    command_environment,
    running_daemon,
    short_folder,
    until,
)

THINGS = ("kettle", "ladder", "violin", "canoe", "lantern", "anvil", "trumpet", "saddle", "barrel", "compass")
PLACES = ("Lisbon", "Tartu", "Bergen", "Gdansk", "Varna", "Leuven", "Porto", "Turku", "Graz", "Nantes")
COME_WITHIN_S = 60.0
# For the daemon that all of them use but one.
pytestmark = pytest.mark.asyncio(loop_scope="module")


def write_locomo(folder: Path, conversations: int, sessions: int) -> Path:
    """Who bought what where, a purchase a session; four questions of each, and every one has one gold turn."""
    found = []
    for number in range(1, conversations + 1):
        conversation: dict[str, Any] = {}
        questions: list[dict[str, Any]] = []
        for session in range(1, sessions + 1):
            thing, place = THINGS[session % 10], PLACES[(session + session // 10) % 10]
            conversation[f"session_{session}_date_time"] = f"1:00 pm on {1 + session % 28} May, {2000 + session}"
            conversation[f"session_{session}"] = [
                {"speaker": "Ines", "dia_id": f"D{session}:1", "text": f"I bought the {thing} in {place}."},
                {"speaker": "Tom", "dia_id": f"D{session}:2", "text": "That is good to hear."},
                {"speaker": "Ines", "dia_id": f"D{session}:3", "text": "Yes, we will see how long it lasts."},
            ]
            if session <= 3:
                questions.append(
                    {
                        "question": f"Who bought the {thing} in {place}?",
                        "answer": "Ines",
                        "evidence": [f"D{session}:1"],
                        "category": 4 if session % 2 else 2,
                    }
                )
        questions.append({"question": "Who sold the harp?", "evidence": ["D1:1"], "category": 5})
        found.append({"sample_id": f"conv-{number}", "conversation": conversation, "qa": questions})
    path = folder / "locomo.json"
    path.write_text(json.dumps(found), "utf-8")
    return path


def write_longmemeval(folder: Path) -> Path:
    sessions = [
        [
            {"role": "user", "content": f"I keep the {thing} in {place}.", "has_answer": thing == "violin"},
            {"role": "assistant", "content": "Noted."},
        ]
        for thing, place in zip(THINGS, PLACES, strict=True)
    ]
    item = {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Where do I keep the violin?",
        "answer": "Bergen",
        "question_date": "2023/05/30 (Tue) 21:40",
        "answer_session_ids": ["s2"],
        "haystack_dates": [f"2023/04/{day:02} (Sat) 10:00" for day in range(1, 11)],
        "haystack_session_ids": [f"s{number}" for number in range(10)],
        "haystack_sessions": sessions,
    }
    path = folder / "longmemeval.json"
    path.write_text(json.dumps([item]), "utf-8")
    return path


def write_personamem(folder: Path) -> Path:
    """Of two questions one is asked before the persona moves."""
    context = [
        {"role": "system", "content": "Current user persona: a musician."},
        {"role": "user", "content": "User: I keep my violin in Bergen."},
        {"role": "assistant", "content": "Assistant: I see."},
        {"role": "user", "content": "User: I carried my violin over to Porto."},
    ]
    columns = ("question_id", "question_type", "user_question_or_message", "correct_answer", "all_options",
               "shared_context_id", "end_index_in_shared_context")  # fmt: skip
    options = str(["(a) It is in Porto.", "(b) It is in Bergen."])
    questions = [
        ("early", "recall_user_shared_facts", "Where is my violin?", "(b)", options, "ctx", 3),
        ("late", "recall_user_shared_facts", "Where is my violin?", "(a)", options, "ctx", 4),
    ]
    with (folder / "questions_32k.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *questions])
    (folder / "shared_contexts_32k.jsonl").write_text(json.dumps({"ctx": context}) + "\n", "utf-8")
    return folder


async def invoke(daemon: DaemonProcess, *arguments: str) -> Result:
    """The command in this process: what it imports takes longer than most runs here."""
    given = ["bench", *arguments]
    environ = {"MEMFOREST_SOCKET_PATH": str(daemon.socket_path)}
    return await to_thread.run_sync(lambda: CliRunner().invoke(cli, given, env=environ))


async def run_bench(daemon: DaemonProcess, data_set: str, data: Path, *more: str) -> dict[str, Any]:
    """The tables of a whole run, by name, with their figures by row."""
    ended = await invoke(daemon, data_set, "--data", str(data), "--format", "json", *more)
    assert ended.exit_code == 0, ended.stderr
    printed: dict[str, Any] = json.loads(ended.stdout)
    return printed


def figures(printed: dict[str, Any], table: str) -> dict[str, dict[str, float | None]]:
    """The values of a table by row and column."""
    return {
        row["row"]: {name: cell and cell["mean"] for name, cell in row["figures"].items()}
        for row in printed["tables"][table]["rows"]
    }


async def users_of(daemon: DaemonProcess) -> set[str]:
    async with daemon.client() as client:
        return {user.user_id for user in await client.users()}


def lines_of(log: Path, kind: str) -> list[dict[str, Any]]:
    """The whole lines of a log of one type."""
    text = log.read_text("utf-8") if log.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if line["type"] == kind]


@asynccontextmanager
async def bench_process(daemon: DaemonProcess, *arguments: str) -> AsyncGenerator[anyio.abc.Process]:
    """The command as a process, killed on the way out."""
    process = await anyio.open_process(
        [sys.executable, "-m", "memforest.cli", "bench", *arguments],
        env=command_environment({"MEMFOREST_SOCKET_PATH": str(daemon.socket_path)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()


async def kill_when(happened: Callable[[], Awaitable[bool]], daemon: DaemonProcess, *arguments: str) -> None:
    """Run the command and kill it as soon as something happened."""
    async with bench_process(daemon, *arguments) as process:
        await until(happened, COME_WITHIN_S, "the run did not come so far", poll_s=0.01)
        assert process.returncode is None
        process.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon() -> AsyncGenerator[DaemonProcess]:
    """A daemon without a chat model."""
    with short_folder() as folder:
        async with running_daemon(folder / "d") as started:
            yield started


@pytest.fixture(scope="module")
def locomo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two conversations of four questions each."""
    return write_locomo(tmp_path_factory.mktemp("locomo"), 2, 12)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(daemon: DaemonProcess, locomo: Path) -> dict[str, Any]:
    """What a run prints that nobody kills."""
    return await run_bench(daemon, "locomo", locomo)


async def test_each_data_set_is_built_asked_and_forgotten_and_nobody_else_is_touched(
    daemon: DaemonProcess, whole: dict[str, Any], tmp_path: Path
) -> None:
    async with daemon.client() as client:
        await client.ingest([a_turn("bench-mine", "s", "I bought the kettle in Tartu.", id="1")])
    modes = ("--mode", "agpr,flat")
    longmemeval = await run_bench(daemon, "longmemeval", write_longmemeval(tmp_path), *modes)
    log = tmp_path / "log.jsonl"
    personamem = await run_bench(daemon, "personamem", write_personamem(tmp_path), "--keep", "--log", str(log))
    seen = {each["case_id"]: len(each["memories"]) for each in lines_of(log, "asked")}
    left = await users_of(daemon)

    # Every question shares its words with its gold turn, which ranks first whichever way.
    for printed, rows in ((whole, ["BM25", "hybrid", "agpr"]), (longmemeval, ["BM25", "hybrid", "agpr", "flat"])):
        found = figures(printed, "evidence")
        assert list(found) == rows
        assert all(row["R@5"] == row["2,000"] == 100 and row["MRR"] == 1 for row in found.values())
    assert whole["questions"] == 8
    assert figures(longmemeval, "sessions")["BM25"]["R@5"] == 100
    assert personamem["questions"] == 2
    # Two turns a memory: the third turn is one alone where the fourth was not said yet.
    assert seen["early"] < seen["late"]
    assert "bench-mine" in left
    assert [each.startswith("bench-personamem-") for each in left - {"bench-mine"}] == [True]


async def test_a_run_that_is_killed_again_and_again_ends_with_the_figures_of_one_that_is_not(
    daemon: DaemonProcess, locomo: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    log, before = tmp_path / "log.jsonl", await users_of(daemon)
    command = ("locomo", "--data", str(locomo), "--log", str(log))
    async with daemon.client() as client:

        async def is_heard(name: str) -> bool:
            return any(user.user_id.endswith(name) and user.turns >= 9 for user in await client.users())

        async def is_asked() -> bool:
            return len(lines_of(log, "asked")) >= 5

        await kill_when(partial(is_heard, "conv-1"), daemon, *command)
        assert lines_of(log, "built") == []
        await kill_when(is_asked, daemon, *command)
        first = lines_of(log, "asked")
        await kill_when(partial(is_heard, "conv-2"), daemon, *command)
        assert len(lines_of(log, "built")) == 1
    killed = await run_bench(daemon, "locomo", locomo, "--log", str(log))
    asked = lines_of(log, "asked")

    assert asked[: len(first)] == first
    assert len({(each["row"], each["case_id"]) for each in asked}) == len(asked) == 2 * 4 * 3
    assert killed["tables"]["evidence"] == whole["tables"]["evidence"]
    assert figures(killed, "built")["memory"]["turns"] == figures(whole, "built")["memory"]["turns"] == 36
    assert await users_of(daemon) == before


async def test_answers_are_worded_judged_and_scored_and_their_model_is_the_one_that_is_named(
    tmp_path: Path,
) -> None:
    with short_folder() as folder:
        async with running_stub_process() as stub, running_daemon(folder / "d", environ=stub.environ()) as daemon:
            locomo, log = write_locomo(tmp_path, 1, 6), tmp_path / "log.jsonl"
            words = ("--answer", "--judge", "--samples", "2", "--questions", "2", "--log", str(log))
            named = ("--merge-models", "stub-chat", "--socket", f"stub-chat={daemon.socket_path}")
            printed = await run_bench(daemon, "locomo", locomo, *words, *named)
            lines = lines_of(log, "asked")
            chosen = await run_bench(daemon, "personamem", write_personamem(tmp_path), "--answer")
            misnamed = ("--merge-models", "gpt", "--socket", f"gpt={daemon.socket_path}")
            wrong = await invoke(daemon, "locomo", "--data", str(locomo), *misnamed)

    # The stub answers with the memory that shares most words with the question, which names Ines.
    assert [len(line["worded"]) for line in lines] == [2] * 6
    assert {worded["marks"]["judged"] for line in lines for worded in line["worded"]} == {True}
    assert all(worded["cited"] for line in lines for worded in line["worded"])
    assert figures(printed, "accuracy")["agpr"]["All"] == 100
    assert figures(printed, "cost")["agpr"]["answer calls"] == 1
    assert figures(chosen, "accuracy")["agpr"]["All"] is not None
    assert wrong.exit_code == 2
    assert "stub-chat" in wrong.stderr


async def test_answers_in_words_need_a_model(daemon: DaemonProcess, locomo: Path) -> None:
    before = await users_of(daemon)
    ended = await invoke(daemon, "locomo", "--data", str(locomo), "--answer")

    assert ended.exit_code == 1
    assert "models.chat_model" in ended.stderr
    assert await users_of(daemon) == before
