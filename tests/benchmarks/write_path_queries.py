"""Queries while sessions are built, against the same ones to the same daemon when nothing is left to do.

Both with the same pauses between them. Each waits for the vector of its question, from the stub.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle, islice

import anyio

from tests.benchmarks.measuring import Figure, Row, ms, percentile, sized
from tests.benchmarks.stub_run import USER, Models, Run, Session, running
from tests.benchmarks.write_path import SESSIONS, read_sessions

LATENCY_S, QUICK_LATENCY_S = 1.0, 0.02
PAUSE_S = 0.1
P50_MAX, P99_MAX = 1.5, 10.0


def measure(share: float) -> list[Row]:
    """The median and the slow ones."""
    sessions = read_sessions()[: sized(SESSIONS, share)]
    latency_s = LATENCY_S if share == 1 else QUICK_LATENCY_S
    during, idle = anyio.run(ask_both, Models(latency_s), sessions)
    return [
        query_row("a query while sessions are built, p50", 0.5, during, idle, P50_MAX),
        query_row("a query while sessions are built, p99", 0.99, during, idle, P99_MAX),
    ]


async def ask_both(models: Models, sessions: Sequence[Session]) -> tuple[list[float], list[float]]:
    """Seconds each query took while the sessions were built, and each of the same when they were."""
    questions = [str(turn["content"]) for session in sessions for turn in session]
    during = list[float]()
    async with running(models) as up:
        # Before its first turn there is nobody to ask about.
        await up.build(sessions[:1])
        async with anyio.create_task_group() as tasks:

            async def ask_on() -> None:
                for question in cycle(questions):
                    during.append(await _ask(up, question))

            tasks.start_soon(ask_on)
            await up.build(sessions[1:] or sessions)
            tasks.cancel_scope.cancel()
        during = during or [await _ask(up, questions[0])]
        idle = [await _ask(up, question) for question in islice(cycle(questions), len(during))]
    return during, idle


async def _ask(up: Run, question: str) -> float:
    """Seconds that one query takes, after the pause before it."""
    await anyio.sleep(PAUSE_S)
    began_s = time.monotonic()
    await up.client.query(USER, question)
    return time.monotonic() - began_s


def query_row(name: str, share: float, during: Sequence[float], idle: Sequence[float], most: float | None) -> Row:
    """What the query took at this percentile, against the same without anything to do."""
    each = [percentile(samples, share) for samples in (during, idle)]
    figures = (
        Figure("queries", len(during)),
        Figure("while_building_ms", ms(each[0])),
        Figure("idle_ms", ms(each[1])),
    )
    return Row(name, each[0] / each[1], "idle", figures, most)
