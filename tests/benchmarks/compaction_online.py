"""Compaction in the background, while sessions arrive: its calls, how far it comes, and who waits for it.

The sessions are those of the write path. Nothing but groups may come later because of them: what else there is of
a session is timed by when the log had it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median

import anyio

from events.envelope import RecordedEvent
from events.eventtree import NodesMerged, UnitsPartitioned
from events.log import LogReader
from events.reading import read_user
from events.registry import read_user_references
from memforest.structures import Compaction
from tests.benchmarks.measuring import Figure, Row, sized
from tests.benchmarks.stub_run import USER, Built, Models, Run, Session, running
from tests.benchmarks.write_path import SESSIONS, read_sessions
from tests.benchmarks.write_path_queries import ask_both, query_row

LATENCY_S, QUICK_LATENCY_S = 0.2, 0.02
RATIO = 0.5
CALLS_MAX, QUERY_MAX = 0.5, 1.5
EVENTS_MAX = 1_000_000
# With and without compaction in turn.
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """One way of building the sessions: what it took, until when all but groups was there, and what it came to."""

    built: Built
    all_but_groups_s: float
    nodes: Compaction  # of a dry run afterwards


def measure(share: float) -> list[Row]:
    """Calls and cut; the wall with and without it; queries meanwhile."""
    sessions = read_sessions()[: sized(SESSIONS, share)]
    if share < 1:
        return _cost_rows(anyio.run(_build, Models(QUICK_LATENCY_S, compacts=True), sessions, False))
    rows: list[Row] = []
    ways = Models(LATENCY_S, compacts=True), Models(LATENCY_S)
    for at_once in (False, True):
        seen = [[anyio.run(_build, way, sessions, at_once) for way in ways] for _ in range(REPEATS)]
        if not at_once:
            rows += _cost_rows(seen[0][0])
        rows += _wall_rows("all sessions at once" if at_once else "session by session", seen)
    asked = [[anyio.run(ask_both, way, sessions) for way in ways] for _ in range(REPEATS)]
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        for way, runs in zip(ways, zip(*asked, strict=True), strict=True):
            during, idle = ([took for run in runs for took in run[at]] for at in (0, 1))
            meanwhile = "facts are compacted" if way.compacts else "the same is built without compaction"
            most = QUERY_MAX if way.compacts else None
            rows.append(query_row(f"a query while {meanwhile}, {name}", part, during, idle, most))
    return rows


async def _build(models: Models, sessions: Sequence[Session], at_once: bool) -> Seen:
    async with running(models) as up:
        built = await up.build(sessions, at_once=at_once)
        events = await _read_events(up)
        nodes = await up.client.compact(USER, RATIO, dry_run=True)
    return Seen(built, _seconds_without_groups(built, events), nodes)


async def _read_events(up: Run) -> list[RecordedEvent]:
    """All that the log has of the user."""
    log = await LogReader.open_to_read(up.daemon.store_path)
    try:
        for user in await log.read(read_user_references):
            events = await log.read(partial(read_user, user=user, after=0, limit=EVENTS_MAX))
            if events[0].user_id == USER:
                return events
    finally:
        await log.close()
    return []


def _seconds_without_groups(built: Built, events: Sequence[RecordedEvent]) -> float:
    """From a session's first event to its last that is not of compaction, summed; or of all at once."""
    total_ms = 0
    for after, upto in pairwise([0, *built.user_seqs]):
        during = [event for event in events if after < event.user_seq <= upto]
        others = [event for event in during if not isinstance(event.event, NodesMerged | UnitsPartitioned)]
        total_ms += others[-1].recorded_at - during[0].recorded_at
    return total_ms / 1000


def _cost_rows(seen: Seen) -> list[Row]:
    total, nodes = seen.built.total, seen.nodes
    calls, facts = total["merge"] + total["repair"], total["facts"]
    cut = 1 - nodes.nodes_before / nodes.facts
    figures = (Figure("calls", calls), Figure("repairs", total["repair"]), Figure("facts", facts))
    left = (Figure("cut", cut), Figure("nodes", nodes.nodes_before), Figure("facts", nodes.facts))
    return [
        Row(f"in the background at {RATIO:.0%}, calls", calls / facts, "facts added", figures, CALLS_MAX),
        Row(f"in the background at {RATIO:.0%}, cut", cut / RATIO, "the ratio", left),
    ]


def _wall_rows(order: str, seen: Sequence[Sequence[Seen]]) -> list[Row]:
    """Medians of the runs with compaction and of those without, which were in turn."""
    compacted, plain = zip(*seen, strict=True)
    walls, others = (
        (Figure("with_s", median(map(took, compacted))), Figure("without_s", median(map(took, plain))))
        for took in (lambda each: each.built.wall_s, lambda each: each.all_but_groups_s)
    )
    return [
        Row(f"{order}, until all but groups is there", _share(*others), "without compaction", others),
        Row(f"{order}, wall with compaction", _share(*walls), "without", walls),
    ]


def _share(one: Figure, other: Figure) -> float:
    return one.value / max(other.value, 1e-3)
