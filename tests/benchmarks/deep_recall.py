"""What mode `deep` asks of a model: calls, rounds that wait for one another, and wall, on eight sessions.

Against the bars of the issue. At seconds a call of .2 the papers' public code takes 124 calls and 6.3 s (issue 8).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from statistics import mean, median
from typing import Final

import anyio

from memforest.types import Answer
from tests.benchmarks.measuring import Figure, Row, ms, percentile, sized
from tests.benchmarks.stub_run import EMBED_SHARE, USER, Models, Session, running
from tests.benchmarks.write_path import SAMPLE, read_sessions
from tests.quality.locomo import locomo_file

SESSIONS: Final = 8
QUESTIONS: Final = 40
LATENCY_S: Final = 0.2
# While the memory is built nobody measures.
BUILT_AT_LATENCY_S: Final = 0.01
# A vector of the question comes before the first round, and another where it is searched again.
WALL_GOAL: Final = 1.5


def measure(share: float) -> list[Row]:
    """Questions one after the other, each asked of a model that takes .2 s a call."""
    sessions = read_sessions()[: sized(SESSIONS, share)]
    height, asked = anyio.run(ask_all, sessions, questions_about(sessions)[: sized(QUESTIONS, share)])
    answers, walls = [answer for answer, _ in asked], [wall_s for _, wall_s in asked]
    calls, rounds = [each.calls or 0 for each in answers], [each.rounds or 0 for each in answers]
    tokens = [each.tokens.prompt + each.tokens.completion for each in answers if each.tokens is not None]
    waited = [wall_s / (count * LATENCY_S) for wall_s, count in zip(walls, rounds, strict=True) if count]
    figures = (
        Figure("questions", len(asked)),
        Figure("height", height),
        Figure("most", max(calls)),
        Figure("mean", round(mean(calls), 2)),
        Figure("tokens_p50", round(median(tokens))),
        Figure("tokens_most", max(tokens)),
    )
    walls_shown = (
        Figure("rounds_mean", round(mean(rounds), 2)),
        Figure("wall_ms_p50", ms(median(walls))),
        Figure("wall_ms_p99", ms(percentile(walls, 0.99))),
        Figure("fell_back", sum(each.fell_back is not None or each.capped is not None for each in answers)),
    )
    return [
        Row("calls of a deep query, most", max(calls) / (1 + 2 * height), "1 + 2 x height", figures, 1.0),
        Row("its rounds that wait for one another, most", max(rounds) / (1 + height), "1 + height", (), 1.0),
        Row("its wall at .2 s a call, p50", median(waited), "its rounds x .2 s", walls_shown, WALL_GOAL),
    ]


async def ask_all(sessions: Sequence[Session], questions: Sequence[str]) -> tuple[int, list[tuple[Answer, float]]]:
    """The height of the highest tree, and each answer with the seconds it took."""
    asked: list[tuple[Answer, float]] = []
    async with running(Models(BUILT_AT_LATENCY_S)) as up:
        built = await up.build(sessions, at_once=True)
        slow = [f"slow={LATENCY_S - BUILT_AT_LATENCY_S}@{kind}" for kind in ("plan", "rank", "check", "repair")]
        slow.append(f"slow={LATENCY_S * EMBED_SHARE}@embed")
        await up.client.query(USER, questions[0], mode="deep")  # what comes once in the life of a process
        await up.stub.set_faults(",".join(slow))
        for question in questions:
            began_s = time.monotonic()
            answer = await up.client.query(USER, question, mode="deep")
            asked.append((answer, time.monotonic() - began_s))
    return built.heights[-1], asked


def questions_about(sessions: Sequence[Session]) -> list[str]:
    """LoCoMo's own questions about the conversation; without the file, what was said."""
    path = locomo_file()
    if path is None:
        return [str(turn["content"]) for session in sessions for turn in session]
    found = next(each for each in json.loads(path.read_bytes()) if each["sample_id"] == SAMPLE)
    return [str(each["question"]) for each in found["qa"]]
