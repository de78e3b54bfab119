"""The write path against a model with latency: from the first turn on the bus to a Memory for which nothing waits.

LoCoMo's conv-26, sessions 1 to 8, where LOCOMO_DIR names the data set, else made-up talk of that size; the stub of
`tests/stub_models` for both models, an embedding call taking a quarter of a chat call; daemon, bus and stub are
processes of their own. The bound is what nobody can beat who waits for each session: one extraction, summaries up
a tree of fixed depth, two calls for embeddings.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

import anyio
import msgspec

from tests.benchmarks.measuring import Figure, Row, ms, percentile, sized
from tests.benchmarks.samples import SESSION_GAP_MS, TURN_MS, Speech
from tests.benchmarks.watched_daemon import Stalls
from tests.builders import MONDAY
from tests.quality.locomo import load_conversations, locomo_file
from tests.stub_models.process import StubProcess, running_stub_process
from tests.stub_models.sentences import Said, facts_of
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_close,
    a_turn,
    publisher_to,
    short_folder,
    until,
    until_recorded,
)

USER = "alice"
SAMPLE = "conv-26"
# Levels of summaries that wait for each other in each session, without concatenation: fixed, and not read from the
# code that is measured.
DEPTHS = (2, 2, 2, 2, 2, 2, 2, 3)
SESSIONS = len(DEPTHS)
# Turns of a session of made-up talk; eight have about as many as LoCoMo's.
SESSION_TURNS = 22
SLOTS = 512
LATENCIES_S = (1.0, 0.2)
QUICK_LATENCY_S = 0.02
EMBED_SHARE = 0.25
BUILT_WITHIN_S = 600.0
GOALS = {1.0: 1.15, 0.2: 1.4}
GOALS_AT_ONCE = {1.0: 1.3}
FEW_SLOTS, GOAL_FEW_SLOTS = 8, 1.25
PROMPT_TOKENS_MAX = 800
STALL_MS_MAX = 20.0

Session = list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running it. `at_once`: all sessions are published before the first is waited for."""

    latency_s: float
    at_once: bool = False
    concatenation_max: int | None = None  # None: as it is configured by default
    slots: int = SLOTS

    @property
    def name(self) -> str:
        """What the rows of this way are called."""
        order = "all sessions at once" if self.at_once else "session by session"
        joined = "" if self.concatenation_max is None else ", no concatenation"
        few = "" if self.slots == SLOTS else f", {self.slots} slots"
        return f"{order}, L = {self.latency_s:g} s{joined}{few}"

    @property
    def goal(self) -> float | None:
        """The ratio that is aimed at, if one is; with concatenation a run has to be no slower than without."""
        if self.slots != SLOTS:
            return GOAL_FEW_SLOTS
        return (GOALS_AT_ONCE if self.at_once else GOALS).get(self.latency_s)

    def bound_s(self, calls: Sequence[int]) -> float:
        """The shortest time there can be for so many chat calls in each session."""
        depths: Sequence[int] = DEPTHS[: len(calls)]
        if self.at_once:
            depths, calls = [max(depths)], [sum(calls)]
        return sum(
            self.latency_s * max(1 + depth + 2 * EMBED_SHARE, count / self.slots)
            for depth, count in zip(depths, calls, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run took, what the stub saw of it, and how the daemon's loop fared."""

    wall_s: float
    stats: dict[str, Any]
    stalls: Stalls
    facts: int
    calls: tuple[int, ...]  # chat calls of each session
    cpu_s: float  # of the daemon, all its threads


@dataclass(frozen=True, slots=True)
class _Built:
    """One stretch of building: its begin and end on the machine's monotonic clock, the facts at its end, and how
    many chat calls each session took."""

    began_s: float
    ended_s: float
    facts: int
    calls: tuple[int, ...]


class WatchedDaemon(DaemonProcess):
    """The daemon with a ticker in its loop, configured by its environment."""

    @property
    def stalls_path(self) -> Path:
        """Where the ticker leaves its figures."""
        return self.folder.with_name("stalls.json")

    def command(self) -> list[str]:
        """See `tests.benchmarks.watched_daemon`."""
        return [sys.executable, "-m", "tests.benchmarks.watched_daemon", str(self.stalls_path)]


def measure(share: float) -> list[Row]:
    """Each way of running it, and how long the prompts are."""
    sessions = read_sessions()[: sized(SESSIONS, share)]
    if share < 1:
        ways = [Way(QUICK_LATENCY_S)]
    else:
        ways = [
            *(Way(latency_s, concatenation_max=0) for latency_s in LATENCIES_S),
            Way(LATENCIES_S[1], concatenation_max=0, slots=FEW_SLOTS),
            *(Way(latency_s, at_once) for at_once in (False, True) for latency_s in LATENCIES_S),
        ]
    outcomes = [(way, anyio.run(_run, way, sessions)) for way in ways]
    rows = [row for way, seen in outcomes for row in _rows(way, sessions, seen)]
    return [*rows, _prompt_row(outcomes[0][1])]


def read_sessions() -> list[Session]:
    """The turns of each session, as native messages."""
    path = locomo_file()
    if path is None:
        speech = Speech(1)
        return [
            [
                _turn(f"session_{n}", f"{n}:{at}", "Alice", speech.turn(), n * SESSION_GAP_MS + at * TURN_MS)
                for at in range(SESSION_TURNS)
            ]
            for n in range(SESSIONS)
        ]
    conversation = next(one for one in load_conversations(path) if one.conversation_id == SAMPLE)
    return [
        [
            _turn(
                session.session_id, turn.turn_id.replace(":", "-"), turn.speaker, turn.text, turn.said_at - MONDAY
            )
            for turn in session.turns
        ]
        for session in conversation.sessions[:SESSIONS]
    ]


def _turn(session: str, turn: str, name: str, text: str, after_ms: int) -> dict[str, object]:
    return a_turn(USER, session, text, id=turn, name=name, timestamp=MONDAY + after_ms)


async def _run(way: Way, sessions: Sequence[Session]) -> Outcome:
    arguments = ["--latency", str(way.latency_s), "--embed-latency", str(way.latency_s * EMBED_SHARE)]
    async with AsyncExitStack() as opened:
        folder = opened.enter_context(short_folder())
        stub = await opened.enter_async_context(running_stub_process(*arguments, "--slots", str(way.slots)))
        daemon = WatchedDaemon(folder / "d", environ=_environ(way, stub, folder / "d"))
        try:
            await daemon.start()
            publisher = await opened.enter_async_context(publisher_to(daemon.bus_url))
            # What comes once in the life of a process is not what is measured: imports, the probe, connections.
            await _build(way, stub, daemon, publisher, [_warm_up()])
            await stub.reset()
            before_s = _cpu_s(daemon.pid)
            built = await _build(way, stub, daemon, publisher, sessions)
            stats, cpu_s = await stub.stats(), _cpu_s(daemon.pid) - before_s
        finally:
            if daemon.exit_code is None:
                await daemon.stop()
        stalls = msgspec.json.decode(daemon.stalls_path.read_bytes(), type=Stalls)
        during = [built.began_s <= at_s <= built.ended_s for at_s in stalls.at_s]
        seen = Stalls(*(list(compress(each, during)) for each in (stalls.late_s, stalls.cpu_s, stalls.at_s)))
        return Outcome(built.ended_s - built.began_s, stats, seen, built.facts, built.calls, cpu_s)


def _warm_up() -> Session:
    """One chunk of somebody else."""
    return [a_turn("bob", "s1", "I moved from Davis to Miami in May.", id=f"w{n}", name="Bob") for n in range(2)]


def _environ(way: Way, stub: StubProcess, folder: Path) -> dict[str, str]:
    chosen = {
        **stub.environ(),
        "MEMFOREST_DATA_DIR": str(folder),
        "MEMFOREST_BUS_EMBEDDED": "true",
        "MEMFOREST_MODELS_CONCURRENCY": str(SLOTS),
        "MEMFOREST_MEMTREE_IDLE_S": "30",
        # As the daemon's unit sets them: one core for arithmetic.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if way.concatenation_max is not None:
        chosen["MEMFOREST_MEMTREE_CONCATENATION_MAX"] = str(way.concatenation_max)
    return chosen


async def _build(
    way: Way, stub: StubProcess, daemon: DaemonProcess, publisher: Publisher, sessions: Sequence[Session]
) -> _Built:
    """Publish the sessions and return when nothing waits."""
    user = str(sessions[0][0]["user_id"])
    async with daemon.client() as client:
        turns, calls = 0, list[int]()

        async def is_built() -> bool:
            mark = (await client.status(user)).watermark
            return mark is not None and mark.is_current

        async def wait() -> None:
            await until_recorded(client, user, turns)
            await until(is_built, BUILT_WITHIN_S, "the memory was not built")

        began_s = time.monotonic()
        for session in sessions:
            for turn in session:
                await publisher.send(turn, str(turn["id"]))
            await publisher.send(a_close(user, str(session[0]["session_id"])))
            turns += len(session)
            if not way.at_once:
                await wait()
            calls.append(await _chat_calls(stub))
        await wait()
        ended_s = time.monotonic()
        calls[-1] = await _chat_calls(stub)
        each = tuple(now - before for before, now in pairwise([0, *calls]))
        listed = await client.request("sessions.list", {"user_id": user})
        return _Built(began_s, ended_s, sum(one["facts"] for one in listed["sessions"]), each)


async def _chat_calls(stub: StubProcess) -> int:
    calls = (await stub.stats())["calls"]
    return sum(count for kind, count in calls.items() if kind != "embed")


def _rows(way: Way, sessions: Sequence[Session], seen: Outcome) -> list[Row]:
    stats, calls = seen.stats, dict(seen.stats["calls"])
    bound_s = way.bound_s(seen.calls)
    figures = (
        Figure("wall_s", seen.wall_s),
        Figure("bound_s", bound_s),
        *(Figure(f"calls_{kind}", count) for kind, count in calls.items()),
        Figure("texts_embedded", stats["texts_embedded"]),
        Figure("prompt_tokens", stats["chat_prompt_tokens"]),
        Figure("cached_tokens", stats["chat_cached_tokens"]),
        Figure("completion_tokens", stats["chat_completion_tokens"]),
        Figure("embedding_tokens", stats["embedding_tokens"]),
        Figure("chat_in_flight_peak", stats["in_flight_peak"]["chat"]),
        Figure("repeated_requests", stats["repeated"]),
        Figure("facts", seen.facts),
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
    return [
        Row(f"{way.name}, wall", seen.wall_s / bound_s, "the bound", figures, way.goal),
        Row(f"{way.name}, stall of the loop, p99", stall_ms / STALL_MS_MAX, f"{STALL_MS_MAX:g} ms", stalls, 1.0),
    ]


def _prompt_row(seen: Outcome) -> Row:
    stats = seen.stats
    tokens = stats["prompt_tokens"]["extract"] / stats["calls"]["extract"]
    figures = (Figure("mean", tokens), Figure("longest", stats["prompt_tokens_max"]["extract"]))
    return Row("prompt tokens of an extraction", tokens / PROMPT_TOKENS_MAX, str(PROMPT_TOKENS_MAX), figures, 1.0)


def _sentences(sessions: Sequence[Session]) -> int:
    """The facts that the stub finds in all that was said, before any two of them are found to be one."""
    return len(facts_of(Said(0, "", str(turn["content"])) for session in sessions for turn in session))


def _cpu_s(pid: int) -> float:
    """CPU of another process so far, all its threads (proc(5): utime and stime, in clock ticks of 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100
