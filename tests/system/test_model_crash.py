"""Row 31 of the fault matrix: the daemon dies between a model's answer and its commit."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from tests.stored import stored_rows
from tests.stub_models.process import running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    run_command,
    short_folder,
    until,
    until_built,
    verify,
)

USER, SESSION = "alice", "s1"
CHUNKS = 12
CONCURRENCY = 4
# At which answer the process dies; the deep sweep tries more of them.
ANSWERS = (1, 2, 3, 5, 8, 12) if os.environ.get("MF_TORTURE") == "1" else (5,)
DEAD_WITHIN_S = 30.0


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_kill_between_answer_and_commit_repeats_no_more_calls_than_were_out_and_records_each_once(
    answer: int,
) -> None:
    fault = {"MF_FAULT": f"answer.before_append:kill:{answer}"}
    async with running_stub_process("--latency", "0.05") as stub:
        with short_folder() as folder:
            usual = {**stub.environ(), "MEMFOREST_MODELS_CONCURRENCY": str(CONCURRENCY)}
            daemon = DaemonProcess(folder / "d", environ={**usual, **fault})
            await daemon.start()
            async with publisher_to(daemon.bus_url) as publisher:
                for number in range(2 * CHUNKS):
                    content = f"This is the sentence number {number} of a long conversation."
                    await publisher.send(a_turn(USER, SESSION, content, id=f"t{number}"), f"m{number}")
                await publisher.send(a_close(USER, SESSION), "close")

                async def is_dead() -> bool:
                    return daemon.exit_code is not None

                await until(is_dead, DEAD_WITHIN_S, "the fault was not met")
            killed_by = daemon.exit_code
            daemon.environ = usual
            await daemon.start()
            async with daemon.client() as client:
                await until_built(client, USER)
                status = await client.request("status", {"user_id": USER})
            calls = (await stub.stats())["calls"]
            await daemon.stop()
            answers = Counter(kind for (kind,) in stored_rows(daemon.store_path, "SELECT type FROM events"))
            covered = stored_rows(
                daemon.store_path, "SELECT count(DISTINCT extraction), count(*) FROM turns WHERE closing = 0"
            )

            assert killed_by == -signal.SIGKILL
            assert answers["facts.extracted"] == CHUNKS, "one event for each chunk"
            assert covered == [(CHUNKS, 2 * CHUNKS)], "nothing is lost"
            assert answers["work.parked"] == status["worker"]["parked"] == 0
            assert CHUNKS <= calls["extract"] <= CHUNKS + CONCURRENCY

            await stub.reset()
            replayed = await run_command("daemon", "replay", "--data", str(daemon.folder), "--user", USER)
            assert_equal(await verify(daemon.folder), users=1)
            calls = (await stub.stats())["calls"]

            assert replayed.code == 0, replayed.errors
            assert sum(calls.values()) == 0, "folding the log asks no model"
