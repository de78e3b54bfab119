"""What a daemon process spent on questions outlasts its end, a kill and a rebuild, and is on the budget then."""

from __future__ import annotations

from typing import Any

from memforest import AsyncClient
from tests.stored import stored_rows
from tests.stub_models.process import running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    a_turn,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
    verify,
)

USER, QUESTION = "alice", "Where does Rex swim?"
QUERY_TASKS = ("plan", "rank", "check", "answer", "grade")
JUDGED = {"user_id": USER, "question": QUESTION, "gold": "in the lake", "answer": "In the lake."}


async def fill(client: AsyncClient) -> None:
    said = [
        a_turn(USER, f"s{n}", f"My dog Rex can swim in lake number {n}.", id=f"t{n}", name="Alice")
        for n in range(1, 4)
    ]
    await client.ingest(said)
    await until_recorded(client, USER, len(said))
    for n in range(1, 4):
        await client.close_session(USER, f"s{n}")
    await until_built(client, USER)


async def ask(client: AsyncClient) -> None:
    """In all ways in which a model is asked."""
    await client.query(USER, QUESTION, mode="deep", answer=True)
    await client.request("answers.judge", JUDGED)


async def spent(client: AsyncClient) -> dict[str, Any]:
    """What `status` says of questions, ever, and of the budgets of the day."""
    status = await client.request("status", {"user_id": USER})
    budget = status["budget"]
    assert status["ledger"]["today"] == status["ledger"]["in_all"], "midnight passed in the middle of a test"
    return {
        **{task: status["ledger"]["in_all"][task] for task in QUERY_TASKS},
        "budgets": (budget["all_users"]["spent_tokens"], budget["user"]["spent_tokens"]),
        "user_seq": status["watermark"]["user_seq"],
    }


async def until_kept(daemon: DaemonProcess, calls: int) -> None:
    async def is_kept() -> bool:
        return stored_rows(daemon.store_path, "SELECT coalesce(sum(calls), 0) FROM query_usage") == [(calls,)]

    await until(is_kept, message="what was spent is not kept")


def calls_of(shown: dict[str, Any]) -> int:
    return sum(int(shown[task]["calls"]) for task in QUERY_TASKS)


async def test_what_questions_took_outlasts_a_kill_an_end_and_a_rebuild_and_is_on_the_budget() -> None:
    async with running_stub_process() as stub:
        with short_folder() as folder:
            async with running_daemon(folder / "d", environ=stub.environ()) as daemon:
                async with daemon.client() as client:
                    await fill(client)
                    before = await spent(client)
                    past = await client.query(USER, QUESTION, as_of=before["user_seq"])
                    await ask(client)
                    first = await spent(client)
                await until_kept(daemon, calls_of(first))
                await daemon.kill()
                await daemon.start()
                async with daemon.client() as client:
                    after_kill = await spent(client)
                    metrics = (await client.request("metrics", {}))["text"]
                    await ask(client)
                    second = await spent(client)
                await daemon.stop()  # within the second in which it is not kept yet
                for derived in daemon.folder.glob("derived.db*"):
                    derived.unlink()
                await verify(daemon.folder)
                daemon.environ["MEMFOREST_MODELS_TOKENS_PER_DAY"] = "1"
                await daemon.start()
                async with daemon.client() as client:
                    after_rebuild = await spent(client)
                    past_again = await client.query(USER, QUESTION, as_of=before["user_seq"])
                    await stub.reset()
                    fell_back = (await client.query(USER, QUESTION, mode="deep")).fell_back
                    await client.forget_user(USER)
                    forgotten = await client.request("status", {})
                asked = (await stub.stats())["calls"]
                await until_kept(daemon, calls_of(second))
                rows = stored_rows(daemon.store_path, "SELECT DISTINCT user FROM query_usage")

    assert calls_of(before) == 0
    assert all(first[task]["calls"] > 0 for task in QUERY_TASKS)
    assert first["budgets"][0] > before["budgets"][0]
    assert after_kill == first
    assert f'memforest_model_calls_total{{task="grade"}} {first["grade"]["calls"]:.1f}' in metrics
    assert calls_of(second) > calls_of(first)
    assert after_rebuild == second
    assert before["user_seq"] == second["user_seq"], "a question moves no memory"
    assert past_again == past
    assert fell_back == "budget"
    assert "plan" not in asked
    assert rows == [(b"",)]
    assert forgotten["ledger"]["in_all"]["plan"] == second["plan"]
