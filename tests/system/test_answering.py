"""`answer: true` of a daemon process whose model is a stub: asked over JSON-RPC and HTTP, and as people ask it."""

from __future__ import annotations

import json
import socket
from typing import Any

from anyio import to_thread

from memforest.errors import RequestInvalid
from tests.stub_models.process import running_stub_process
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
QUESTION = "Where does Rex swim?"
SWIM = "My dog Rex can swim in the lake near Miami."


async def fill(daemon: DaemonProcess) -> None:
    said = [a_turn(USER, "s1", SWIM, id="t1", timestamp="2024-07-01T09:00:00Z", name="Alice")]
    said += [
        a_turn(
            USER, f"s{n}", f"Lunch number {n} was late again.", id=f"t{n}", timestamp=f"2024-07-{n:02}T09:00:00Z"
        )
        for n in range(2, 12)
    ]
    async with daemon.client() as client:
        await client.ingest(said)
        await until_recorded(client, USER, len(said))
        await client.close_session(USER, "s1")
        await until_built(client, USER)


def post(daemon: DaemonProcess, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """`POST /v1/query` over the socket: status and body."""
    content = json.dumps(body).encode()
    headers = f"Host: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    head = f"POST /v1/query HTTP/1.1\r\n{headers}\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(daemon.socket_path))
        connection.sendall(head.encode() + content)
        answer = b""
        while received := connection.recv(1 << 16):
            answer += received
    first, _, rest = answer.partition(b"\r\n")
    return int(first.split()[1]), dict(json.loads(rest.partition(b"\r\n\r\n")[2]))


async def test_an_answer_is_written_from_the_memories_and_cites_them() -> None:
    async with running_stub_process() as stub:
        with short_folder() as folder:
            async with running_daemon(folder / "d", environ=stub.environ()) as daemon:
                await fill(daemon)
                async with daemon.client() as client:
                    typed = await client.query(USER, QUESTION, answer=True)
                    abstained = await client.query(USER, "Xylophone zeppelin?", answer=True)
                    past = await client.query(USER, QUESTION, answer=True, as_of=1)
                    await stub.set_faults("unknown_ids@answer")
                    mended = await client.query(USER, QUESTION, answer=True)
                    await stub.set_faults("unknown_ids@answer,unknown_ids@repair")
                    unknown = await client.query(USER, QUESTION, answer=True)
                    await stub.set_faults("500@answer")
                    failed = await client.query(USER, QUESTION, answer=True)
                    await stub.set_faults()
                    spent = (await client.request("status", {}))["budget"]["all_users"]
                status, over_http = await to_thread.run_sync(
                    post, daemon, {"user_id": USER, "query": QUESTION, "answer": True, "k": 3}
                )
                printed = await memforest(daemon, "query", USER, QUESTION, "--answer")
                calls = (await stub.stats())["calls"]
            log = daemon.log_text()

    by_id = {memory.id: memory for memory in typed.memories}
    assert typed.answer is not None
    assert "swim in the lake" in typed.answer
    assert [("s1" in by_id[each].sessions) for each in typed.citations or ()] == [True]
    assert typed.answered_by is not None
    assert (typed.answered_by.model, typed.answered_by.spent.calls > 0) == ("endpoint-stub-chat", True)
    assert (abstained.answer, abstained.abstained, bool(abstained.memories)) == (None, True, True)
    assert past.answer is not None
    # What it cites is not there: it is asked once more, and then that is no answer.
    assert (mended.answer, mended.citations) == (typed.answer, typed.citations)
    assert (unknown.answer, unknown.abstained, unknown.unanswered) == (None, True, None)
    # The server answers others, and this question never.
    assert (failed.answer, failed.abstained, failed.unanswered) == (None, False, "model_failed")
    assert {each.id for each in failed.memories} >= set(typed.citations or ())
    assert (status, "swim" in over_http["answer"], len(over_http["memories"])) == (200, True, 3)
    assert printed.output.splitlines()[0] == typed.answer.replace("\n", " ")
    assert printed.output.splitlines()[1].startswith("1\t")
    assert calls["answer"] >= 7
    assert calls["repair"] == 2
    assert spent["spent_tokens"] > 0
    assert "swim" not in log
    assert QUESTION not in log


async def test_without_a_model_an_answer_is_refused_and_the_memories_are_there() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            await fill(daemon)
            refused = await memforest(daemon, "query", USER, QUESTION, "--answer")
            async with daemon.client() as client:
                try:
                    await client.query(USER, QUESTION, answer=True)
                    code = ""
                except RequestInvalid as error:
                    code = error.code
                plain = await client.query(USER, QUESTION)
            status, body = await to_thread.run_sync(
                post, daemon, {"user_id": USER, "query": QUESTION, "answer": True}
            )

    assert (refused.code, "models.chat_model" in refused.errors) == (1, True)
    assert code == "invalid"
    assert (status, "models.chat_model" in json.dumps(body)) == (400, True)
    assert (bool(plain.memories), plain.answer, plain.abstained) == (True, None, None)
