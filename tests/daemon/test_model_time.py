"""A client waits longer for an answer than the daemon does for the models that have a part in it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.asking.modes import Mode
from daemon.asking.query_params import QueryParams
from daemon.serving.handlers import JUDGE_DEADLINE_S, READ_DEADLINE_S
from memforest import AsyncClient, Client
from memforest.client import TIMEOUT_S
from memforest.errors import AnswerOverdue
from memforest.model_time import model_time_s
from tests.daemon.parts_in_use import Parts
from tests.memforest.fake_daemon import FakeDaemon

# What the daemon takes, and what the line does, is measured by two clocks.
MARGIN_S = 10.0


@pytest.fixture
def silent(path: Path) -> Iterator[FakeDaemon]:
    """A daemon that hears and says nothing."""
    with FakeDaemon(path) as daemon:
        daemon.hold = 2
        yield daemon


async def test_a_client_is_more_patient_than_the_daemon_in_every_mode(parts: Parts) -> None:
    for mode, answer, timeout_s in itertools.product(Mode, (False, True), (None, 0.5, 30.0, 120.0)):
        asked: dict[str, Any] = {"mode": mode.value, "answer": answer, "timeout_s": timeout_s}
        params = QueryParams(user_id="alice", query="?", **asked)
        within_s = READ_DEADLINE_S + parts.answerer.time_for_models(params)

        assert TIMEOUT_S + model_time_s("query", asked) >= within_s + MARGIN_S, asked
    assert TIMEOUT_S + model_time_s("answers.judge", {}) >= JUDGE_DEADLINE_S + MARGIN_S


def test_what_asks_no_model_is_not_waited_for_longer() -> None:
    assert model_time_s("query", {"mode": "forest", "timeout_s": 30.0}) == 0
    assert model_time_s("status", {"timeout_s": 30.0}) == 0
    assert model_time_s("query", {"mode": "deep", "timeout_s": 0.25}) == 0.25
    assert model_time_s("query", {"mode": "auto", "answer": True, "timeout_s": 3}) == 6
    for refused in (0, -1.0, float("inf"), float("nan"), "soon"):
        assert model_time_s("query", {"mode": "deep", "timeout_s": refused}) == 120


def test_a_question_to_a_model_is_waited_for_as_long_as_it_may_take(silent: FakeDaemon) -> None:
    with Client(silent.path, timeout_s=0.05) as client:
        began = time.monotonic()
        with pytest.raises(AnswerOverdue):
            client.query("alice", "Where?", mode="deep", answer=True, timeout_s=0.1)

        assert time.monotonic() - began >= 0.25


async def test_so_it_is_by_the_asynchronous_client(silent: FakeDaemon) -> None:
    async with AsyncClient(silent.path, timeout_s=0.05) as client:
        began = time.monotonic()
        with pytest.raises(AnswerOverdue):
            await client.query("alice", "Where?", mode="auto", timeout_s=0.2)

        assert time.monotonic() - began >= 0.25
