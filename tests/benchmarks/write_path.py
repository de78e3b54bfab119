"""The write path against a model with latency: from the first turn on the bus to a Memory for which nothing waits.

LoCoMo's conv-26, sessions 1 to 8, where LOCOMO_DIR names the data set, else made-up talk of that size; the stub of
`tests/stub_models` for both models, an embedding call taking a quarter of a chat call; daemon, bus and stub are
processes of their own. The bound is what nobody can beat who waits for each session: one extraction, summaries up
a tree of fixed depth, two calls for embeddings. It knows no compaction, which is off but for the rows that say so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from tests.benchmarks.measuring import Figure, Row, ms, percentile, sized
from tests.benchmarks.samples import SESSION_GAP_MS
from tests.benchmarks.stub_run import (
    EMBED_SHARE,
    SLOTS,
    USER,
    Built,
    Models,
    Run,
    Session,
    cpu_s,
    make_sessions,
    make_turn,
    running,
)
from tests.benchmarks.watched_daemon import Stalls
from tests.benchmarks.write_path_counts import Counted, count_rows
from tests.builders import MONDAY
from tests.quality.locomo import load_conversations, locomo_file
from tests.stub_models.sentences import Said, facts_of
from tests.system.daemon_process import until

SAMPLE = "conv-26"
# Levels of summaries that wait for each other in each session, without concatenation: fixed, and not read from the
# code that is measured.
DEPTHS = (2, 2, 2, 2, 2, 2, 2, 3)
SESSIONS = len(DEPTHS)
# Turns of a session of made-up talk; eight have about as many as LoCoMo's.
SESSION_TURNS = 22
LATENCIES_S = (1.0, 0.2)
QUICK_LATENCY_S = 0.02
GOALS = {1.0: 1.15, 0.2: 1.4}
GOALS_AT_ONCE = {1.0: 1.3}
FEW_SLOTS, GOAL_FEW_SLOTS = 8, 1.25
GOAL_CONCATENATION = 1.0
STALL_MS_MAX = 20.0
# One session whose facts are waited for, each turn of which says one thing.
SEARCHED_TURNS, GOAL_SEARCHABLE = 20, 1.15
SEARCHABLE_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running it. `at_once`: all sessions are published before the first is waited for."""

    models: Models
    at_once: bool = False

    @property
    def name(self) -> str:
        """What the rows of this way are called."""
        order = "all sessions at once" if self.at_once else "session by session"
        joined = "" if self.models.concatenation_max is None else ", no concatenation"
        few = "" if self.models.slots == SLOTS else f", {self.models.slots} slots"
        compacts = ", with compaction" if self.models.compacts else ""
        return f"{order}, L = {self.models.latency_s:g} s{joined}{few}{compacts}"

    @property
    def goal(self) -> float | None:
        """The ratio that is aimed at, if one is."""
        if self.models.compacts:
            return None
        if self.models.slots != SLOTS:
            return GOAL_FEW_SLOTS
        return (GOALS_AT_ONCE if self.at_once else GOALS).get(self.models.latency_s)

    def bound_s(self, calls: Sequence[int]) -> float:
        """The shortest time there can be for so many chat calls in each session (or in all, at once)."""
        depths = [max(DEPTHS)] if self.at_once else DEPTHS[: len(calls)]
        return sum(
            self.models.latency_s * max(1 + depth + 2 * EMBED_SHARE, count / self.models.slots)
            for depth, count in zip(depths, calls, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run took, what was counted, and how the daemon's loop fared."""

    way: Way
    built: Built
    counted: Counted
    stalls: Stalls
    cpu_s: float  # of the daemon, all its threads
    searchable_s: float

    @property
    def bound_s(self) -> float:
        """What nobody can beat."""
        return self.way.bound_s([counts["chat"] for counts in self.built.sessions])


def measure(share: float) -> list[Row]:
    """Each way of running it, and what all of it took."""
    sessions = read_sessions()[: sized(SESSIONS, share)]
    if share < 1:
        outcomes = [anyio.run(run, Way(Models(QUICK_LATENCY_S)), sessions)]
        return [row for seen in outcomes for row in _rows(seen, sessions)]
    ways = [
        *(Way(Models(latency_s, concatenation_max=0)) for latency_s in LATENCIES_S),
        Way(Models(LATENCIES_S[1], FEW_SLOTS, concatenation_max=0)),
        *(Way(Models(latency_s), at_once) for at_once in (False, True) for latency_s in LATENCIES_S),
        Way(Models(LATENCIES_S[1], compacts=True)),
    ]
    outcomes = [anyio.run(run, way, sessions) for way in ways]
    rows = [row for seen in outcomes for row in _rows(seen, sessions)]
    by_way = {seen.way: seen for seen in outcomes}
    for latency_s in LATENCIES_S:
        plain, joined = by_way[Way(Models(latency_s, concatenation_max=0))], by_way[Way(Models(latency_s))]
        rows.append(_concatenation_row(plain, joined))
    plain, joined = by_way[ways[0]], by_way[Way(Models(LATENCIES_S[0]))]
    return [*rows, *count_rows(plain.counted, joined.counted)]


def read_sessions() -> list[Session]:
    """The turns of each session, as native messages."""
    path = locomo_file()
    if path is None:
        return make_sessions(SESSIONS, SESSION_TURNS)
    conversation = next(one for one in load_conversations(path) if one.conversation_id == SAMPLE)
    return [
        [
            make_turn(
                session.session_id, turn.turn_id.replace(":", "-"), turn.speaker, turn.text, turn.said_at - MONDAY
            )
            for turn in session.turns
        ]
        for session in conversation.sessions[:SESSIONS]
    ]


async def run(way: Way, sessions: Sequence[Session]) -> Outcome:
    """Build the sessions, and then one more whose facts are waited for."""
    async with running(way.models) as up:
        before_s = cpu_s(up.daemon.pid)
        built = await up.build(sessions, at_once=way.at_once)
        spent_s = cpu_s(up.daemon.pid) - before_s
        stats = await up.stub.stats()
        counted = Counted(built, tuple(await up.recount(built)), stats)
        searchable_s = await _time_to_searchable(up)
    return Outcome(way, built, counted, up.stalls_during(built), spent_s, searchable_s)


async def _time_to_searchable(up: Run) -> float:
    """Seconds from a session's first turn on the bus until its facts are there, with their vectors."""
    before, began_s = await up.facts(USER), time.monotonic()
    await up.publish(_searched_session())

    async def is_searchable() -> bool:
        if await up.facts(USER) < before + SEARCHED_TURNS:
            return False
        return int((await up.client.request("status", {}))["models"]["vectors_waiting"]) == 0

    await until(is_searchable, SEARCHABLE_WITHIN_S, "the facts of a session were not searchable")
    return time.monotonic() - began_s


def _searched_session() -> Session:
    """Each turn says one thing, no two of them alike."""
    things = ("kite", "lamp", "bridge", "boat", "violin", "carpet", "ladder", "kettle", "mirror", "basket")
    return [
        make_turn(
            "searched",
            f"searched-{at}",
            "Alice",
            f"I bought {at + 20} pieces of {things[at % len(things)]} number {at + 50} today.",
            2 * SESSIONS * SESSION_GAP_MS + at * 60_000,
        )
        for at in range(SEARCHED_TURNS)
    ]


def _rows(seen: Outcome, sessions: Sequence[Session]) -> list[Row]:
    way, built, stats, total = seen.way, seen.built, seen.counted.stats, seen.built.total
    figures = (
        Figure("wall_s", built.wall_s),
        Figure("bound_s", seen.bound_s),
        *(Figure(f"calls_{kind}", count) for kind, count in dict(stats["calls"]).items()),
        Figure("calls_summarise_recounted", sum(seen.counted.new_nodes)),
        Figure("texts_embedded", stats["texts_embedded"]),
        Figure("prompt_tokens", stats["chat_prompt_tokens"]),
        Figure("cached_tokens", stats["chat_cached_tokens"]),
        Figure("completion_tokens", stats["chat_completion_tokens"]),
        Figure("embedding_tokens", stats["embedding_tokens"]),
        Figure("chat_in_flight_peak", stats["in_flight_peak"]["chat"]),
        Figure("repeated_requests", stats["repeated"]),
        Figure("facts", total["facts"]),
        Figure("sentences", _sentences(sessions)),
        Figure("daemon_cpu_s", seen.cpu_s),
    )
    late, cpu = seen.stalls.late_s, seen.stalls.cpu_s
    stall_ms = ms(percentile(cpu, 0.99))
    stalls = (
        Figure("stall_cpu_ms_p50", ms(percentile(cpu, 0.5))),
        Figure("stall_cpu_ms_p99", stall_ms),
        Figure("stall_cpu_ms_max", ms(max(cpu))),
        Figure("late_ms_p99", ms(percentile(late, 0.99))),
        Figure("late_ms_max", ms(max(late))),
    )
    extraction_s = way.models.latency_s * (1 + EMBED_SHARE)
    found = (Figure("searchable_s", seen.searchable_s), Figure("bound_s", extraction_s))
    goal = GOAL_SEARCHABLE if way.models == Models(LATENCIES_S[0]) and not way.at_once else None
    return [
        Row(f"{way.name}, wall", built.wall_s / seen.bound_s, "the bound", figures, way.goal),
        Row(f"{way.name}, stall of the loop, p99", stall_ms / STALL_MS_MAX, f"{STALL_MS_MAX:g} ms", stalls, 1.0),
        Row(
            f"{way.name}, then until {SEARCHED_TURNS} turns are searchable as facts",
            seen.searchable_s / extraction_s,
            "L + L / 4",
            found,
            goal,
        ),
    ]


def _concatenation_row(plain: Outcome, joined: Outcome) -> Row:
    figures = (Figure("with_s", joined.built.wall_s), Figure("without_s", plain.built.wall_s))
    name = f"wall with concatenation, L = {plain.way.models.latency_s:g} s"
    return Row(name, joined.built.wall_s / plain.built.wall_s, "without", figures, GOAL_CONCATENATION)


def _sentences(sessions: Sequence[Session]) -> int:
    """The facts that the stub finds in all that was said, before any two of them are found to be one."""
    return len(facts_of(Said(0, "", str(turn["content"])) for session in sessions for turn in session))
