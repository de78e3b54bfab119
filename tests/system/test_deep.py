"""Mode `deep` of a daemon process, whose model is the stub over HTTP: what it takes, and that it answers."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from memforest import AsyncClient
from memforest.errors import DaemonError
from memforest.types import Answer
from tests.stub_models.process import StubProcess, running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    a_turn,
    memforest,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
)

USER = "alice"
SESSIONS, TURNS = 3, 8
QUESTION = "Which lake did Kim visit with the old brown boat?"
# Of a question while a model hangs; the machine is shared.
ANSWERED_WITHIN_S = 20.0


async def fill(daemon: DaemonProcess) -> None:
    said = [
        "Kim visited lake number {} with the old brown boat.",
        "The harbour of town number {} was full of small boats.",
        "Rex the dog swims in river number {} every morning.",
        "We ate at restaurant number {} and talked about Lima.",
    ]
    messages = [
        a_turn(
            USER,
            f"s{session}",
            said[turn % 4].format(10 * session + turn),
            id=f"t{session}-{turn}",
            name="Alice",
            timestamp=f"2024-0{session}-01T09:{turn:02}:00Z",
        )
        for session in range(1, SESSIONS + 1)
        for turn in range(TURNS)
    ]
    async with daemon.client() as client:
        await client.ingest(messages)
        await until_recorded(client, USER, len(messages))
        for session in range(1, SESSIONS + 1):
            await client.close_session(USER, f"s{session}")
        await until_built(client, USER)


async def ask(client: AsyncClient, **more: Any) -> Answer:
    with anyio.fail_after(ANSWERED_WITHIN_S):
        return await client.query(USER, QUESTION, mode="deep", **more)


async def test_a_daemon_asks_the_model_for_a_query_and_answers_whatever_it_does() -> None:
    with short_folder() as folder:
        async with (
            running_stub_process() as stub,
            running_daemon(folder / "d", environ=stub.environ()) as daemon,
            daemon.client() as client,
        ):
            await fill(daemon)
            await _counts_what_it_asks(client, stub)
            await _browses_by_vectors(client, stub)
            await _is_the_same_again(client)
            await _is_asked_about_then(client)
            await _answers_without_the_model(client, stub)
            await _keeps_its_caps(client, stub)
            await _is_asked_on_the_command_line(daemon)
            await _judges_or_says_what_to_do(client, stub)


async def _counts_what_it_asks(client: AsyncClient, stub: StubProcess) -> None:
    await stub.reset()
    answer = await ask(client, explain=True)
    calls = (await stub.stats())["calls"]

    assert "boat" in answer.memories[0].text
    assert answer.calls == calls["plan"] + calls["rank"] + calls["check"]
    assert (calls["plan"], calls["check"]) == (1, 1)
    assert answer.rounds == calls["rank"] + calls["check"]
    assert answer.tokens is not None
    assert answer.tokens.prompt > 0
    assert (answer.mode, answer.capped, answer.fell_back) == ("deep", None, None)
    assert answer.explanation is not None
    assert answer.explanation.deep is not None
    assert answer.explanation.deep.sub_queries


async def _browses_by_vectors(client: AsyncClient, stub: StubProcess) -> None:
    """What is planned for each tree is embedded, and so is the question."""
    await stub.reset()
    answer = await ask(client, browse="emb", explain=True)
    calls = (await stub.stats())["calls"]

    assert answer.explanation is not None
    assert answer.explanation.deep is not None
    assert calls["embed"] >= 1 + len({each.query for each in answer.explanation.deep.sub_queries})
    assert "rank" not in calls
    assert "boat" in answer.memories[0].text


async def _is_the_same_again(client: AsyncClient) -> None:
    first, second = await ask(client), await ask(client)

    assert first == second


async def _answers_without_the_model(client: AsyncClient, stub: StubProcess) -> None:
    forest = await client.query(USER, QUESTION, mode="forest")
    for faults, reason in (("garbage@chat", "answer_unusable"), ("content_filter@chat", "answer_unusable")):
        await stub.set_faults(faults)
        answer = await ask(client)

        assert answer.fell_back == reason
        assert [each.id for each in answer.memories] == [each.id for each in forest.memories]
    await stub.set_faults("")
    right = await ask(client)
    await stub.set_faults("garbage@check")
    mended = await ask(client)
    assert (mended.fell_back, mended.memories) == (None, right.memories)
    assert (mended.calls, mended.rounds) == ((right.calls or 0) + 1, (right.rounds or 0) + 1)
    await stub.set_faults("401@chat")
    assert (await ask(client)).fell_back in ("model_away", "model_failed")
    await stub.set_faults()


async def _keeps_its_caps(client: AsyncClient, stub: StubProcess) -> None:
    await _until_it_answers(client)
    assert (await ask(client, calls_max=1)).calls == 1
    assert (await ask(client, model_tokens_max=10)).capped == "tokens"
    await stub.set_faults("hang@rank")
    answer = await ask(client, timeout_s=0.3)
    await stub.set_faults()

    assert answer.capped == "time"
    assert answer.memories


async def _until_it_answers(client: AsyncClient) -> None:
    """The endpoint is left alone for a moment after it refused."""

    async def answers() -> bool:
        return (await ask(client)).fell_back is None

    await until(answers, ANSWERED_WITHIN_S * 3, "the model was not asked again")


async def _is_asked_on_the_command_line(daemon: DaemonProcess) -> None:
    asked = ("query", USER, QUESTION, "--mode", "deep", "--no-planner", "--explain")
    shown = await memforest(daemon, *asked)
    as_json = await memforest(daemon, *asked, "--json")

    assert shown.code == 0, shown.errors
    assert "Round 1: rank" in shown.output
    assert json.loads(as_json.output)["calls"] >= 2


async def _is_asked_about_then(client: AsyncClient) -> None:
    then = await ask(client, vectors=False)
    later = a_turn(USER, "s9", "Kim visited the lake of Bern with the old brown boat.", id="t9", name="Alice")
    await client.ingest([later])
    await client.close_session(USER, "s9")
    await until_recorded(client, USER, SESSIONS * TURNS + 1)
    await until_built(client, USER)
    now = await ask(client, vectors=False)
    past = await ask(client, as_of=then.watermark.user_seq)
    told = await ask(client, as_of=then.watermark.user_seq, answer=True)

    assert any("Bern" in memory.text for memory in now.memories)
    assert past.memories == told.memories == then.memories
    assert (past.calls, past.rounds, past.fell_back) == (then.calls, then.rounds, None)
    assert told.unanswered is None
    assert told.answer or told.abstained


async def _judges_or_says_what_to_do(client: AsyncClient, stub: StubProcess) -> None:
    with pytest.raises(DaemonError, match="general, temporal, knowledge-update") as refused:
        await client.judge_answer(USER, "Where?", "Oslo", "Oslo", rubric="strict")
    await stub.set_faults("garbage@chat")
    with pytest.raises(DaemonError, match=r"ask once more.*models\.chat_model") as unusable:
        await client.judge_answer(USER, "Where?", "Oslo", "Oslo")
    await stub.set_faults()

    assert (refused.value.code, unusable.value.code) == ("invalid", "unavailable")
    assert (await client.judge_answer(USER, "Where?", "Oslo", "Oslo")).right


async def test_without_a_model_a_daemon_says_what_to_do() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon, daemon.client() as client:
            with pytest.raises(DaemonError, match=r"models\.chat_model") as raised:
                await ask(client)

    assert raised.value.code == "invalid"
