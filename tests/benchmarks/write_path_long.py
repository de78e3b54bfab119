"""The write path over two hundred sessions of one user: what a session takes must not grow with all before it.

Made-up talk, with names that come up in it again and again; each session is waited for. The bound of a session is
one extraction, summaries up as many levels as the largest tree has by then, and two calls for embeddings.
"""

from __future__ import annotations

import anyio

from tests.benchmarks.measuring import Figure, Row, sized
from tests.benchmarks.stub_run import EMBED_SHARE, Built, Counts, Models, make_sessions, running
from tests.benchmarks.write_path_counts import growth_row

SESSIONS, SESSION_TURNS = 200, 10
SESSIONS_MIN = 2
# A session costs some tenths of a second of CPU on two slow cores, which no scheduler hides behind less latency.
LATENCY_S, QUICK_LATENCY_S = 0.5, 0.02
WALL_MAX = 1.2
# Where growth is looked at: so many sessions up to each of these.
EARLY, LATE, WINDOW = 20, 200, 10
CALLS_MAX = 1.5


def measure(share: float) -> list[Row]:
    """The wall against its bound, and what a new fact takes at the end against what it took early."""
    count = sized(SESSIONS, share, SESSIONS_MIN)
    models = Models(LATENCY_S if share == 1 else QUICK_LATENCY_S, concatenation_max=0)
    return _rows(models, anyio.run(_build, models, count))


async def _build(models: Models, count: int) -> Built:
    async with running(models) as up:
        return await up.build(make_sessions(count, SESSION_TURNS))


def _rows(models: Models, built: Built) -> list[Row]:
    bound_s = sum(
        models.latency_s * max(1 + height + 2 * EMBED_SHARE, counts["chat"] / models.slots)
        for height, counts in zip(built.heights, built.sessions, strict=True)
    )
    figures = (
        Figure("sessions", len(built.sessions)),
        Figure("wall_s", built.wall_s),
        Figure("bound_s", bound_s),
        Figure("facts", built.total["facts"]),
        Figure("calls", built.total["chat"]),
        Figure("texts_embedded", built.total["texts"]),
        Figure("first_wall_s", built.walls_s[0]),
        Figure("last_wall_s", built.walls_s[-1]),
    )
    rows = [Row("two hundred sessions, wall", built.wall_s / bound_s, "the bound", figures, WALL_MAX)]
    early, late = (_window(built, end) for end in (EARLY, LATE))
    rows.append(growth_row("chat calls", "chat", early, late, CALLS_MAX))
    rows.append(growth_row("texts embedded", "texts", early, late, CALLS_MAX))
    return rows


def _window(built: Built, end: int) -> Counts:
    """What the sessions up to this one took; of a shorter run the last ones."""
    end = min(end, len(built.sessions))
    total = Counts()
    for counts in built.sessions[max(0, end - WINDOW) : end]:
        total.update(counts)
    return total
