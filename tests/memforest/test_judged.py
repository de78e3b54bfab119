"""`judge_answer`: what goes over the socket, and what comes back as a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memforest import AsyncClient, Client, Judgement, Rubric, Unavailable
from memforest.origins import Spent
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

JUDGED: JsonObject = {
    "right": False,
    "reason": "partial",
    "model": "endpoint-m",
    "prompt": "grade-1",
    "spent": {"calls": 1, "prompt_tokens": 90, "cached_tokens": 0, "completion_tokens": 9, "cost": 0.1},
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        running.answers["answers.judge"] = lambda _: JUDGED
        yield running


def test_a_judgement_comes_back_as_a_record(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client:
        judgement = client.judge_answer("alice", "Where?", "Oslo", "In Norway")

    assert judgement == Judgement(False, "partial", "endpoint-m", "grade-1", Spent(1, 90, 0, 9, 0.1))
    assert daemon.requests == [
        ("answers.judge", {"user_id": "alice", "question": "Where?", "gold": "Oslo", "answer": "In Norway"})
    ]


async def test_golds_rubric_and_day_go_along_and_a_user_need_not(daemon: FakeDaemon) -> None:
    async with AsyncClient(daemon.path) as client:
        await client.judge_answer(None, "When?", ("May", "5"), "5", rubric=Rubric.TEMPORAL, asked_at="2023-06-01")

    assert daemon.requests[0][1] == {
        "question": "When?",
        "gold": ["May", "5"],
        "answer": "5",
        "rubric": "temporal",
        "asked_at": "2023-06-01",
    }


def test_what_is_paid_for_is_not_asked_again_when_the_line_breaks(daemon: FakeDaemon) -> None:
    daemon.lose_answer = 1
    with Client(daemon.path) as client, pytest.raises(Exception, match="closed the connection"):
        client.judge_answer("alice", "Where?", "Oslo", "Oslo")

    assert daemon.methods() == ["answers.judge"]


def test_without_a_model_the_daemons_sentence_arrives(daemon: FakeDaemon) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("unavailable", "set models.chat_url")

    daemon.answers["answers.judge"] = refuse
    with Client(daemon.path) as client, pytest.raises(Unavailable, match=r"models\.chat_url"):
        client.judge_answer("alice", "Where?", "Oslo", "Oslo")
