"""One run of a daemon whose models are the stub: sessions go in over the bus, and what each took is counted.

Daemon, bus and stub are processes of their own; the daemon has a ticker in its loop. What is summarised is counted
a second time, from the leaves alone (`tests.summary_recount`).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec

from daemon.folding import fold_from_nothing
from events.log import LogReader
from events.registry import read_user_references
from memforest import AsyncClient
from projections.memory import MemoryParameters
from tests.benchmarks.samples import SESSION_GAP_MS, TURN_MS, Speech
from tests.benchmarks.watched_daemon import Stalls
from tests.builders import MONDAY
from tests.stub_models.process import StubProcess, running_stub_process
from tests.summary_recount import Recount
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
EMBED_SHARE = 0.25
# As small real embedders have: in few dimensions vectors of strangers lie near each other by chance.
DIMENSIONS = 384
# The most that may be out; the stub's slots, where it has fewer.
SLOTS = 512
BUILT_WITHIN_S = 600.0

Session = list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a run: seconds a chat call, calls at once, characters up to which nodes are put together.

    Bounds of the write path are of facts and trees, so that nothing is compacted unless it is said.
    """

    latency_s: float
    slots: int = SLOTS
    concatenation_max: int | None = None  # None: as it is configured by default
    compacts: bool = False
    paper: bool = False  # whether somebody who asks for a compaction gets the literal one, pair by pair


class Counts(Counter[str]):
    """What a stretch took: calls by kind (`extract`, `summarise`, …; `chat`: all but `embed`), texts embedded,
    tokens of prompts and of embeddings, and the facts that came by it."""


@dataclass(slots=True)
class Built:
    """What was built: when it began and ended (monotonic clock), and what each session took; or all, at once.

    `user_seqs` and `heights`: the log's end after each, and the height of the largest tree.
    """

    began_s: float
    ended_s: float = 0.0
    sessions: list[Counts] = field(default_factory=list[Counts])
    walls_s: list[float] = field(default_factory=list[float])
    user_seqs: list[int] = field(default_factory=list[int])
    heights: list[int] = field(default_factory=list[int])

    @property
    def wall_s(self) -> float:
        """How long all of it took, without the counting in between."""
        return sum(self.walls_s)

    @property
    def total(self) -> Counts:
        """What all of it took."""
        return Counts(sum(self.sessions, Counter[str]()))


class WatchedDaemon(DaemonProcess):
    """The daemon with a ticker in its loop, configured by its environment."""

    @property
    def stalls_path(self) -> Path:
        """Where the ticker leaves its figures."""
        return self.folder.with_name("stalls.json")

    def command(self) -> list[str]:
        """See `tests.benchmarks.watched_daemon`."""
        return [sys.executable, "-m", "tests.benchmarks.watched_daemon", str(self.stalls_path)]


@dataclass(slots=True)
class Run:
    """A daemon that is up, with what it is fed by and asked through."""

    models: Models
    stub: StubProcess
    daemon: WatchedDaemon
    publisher: Publisher
    client: AsyncClient
    # What the daemon's ticker saw; here once it has ended.
    stalls: Stalls = field(default_factory=Stalls)

    async def build(self, sessions: Sequence[Session], *, at_once: bool = False) -> Built:
        """Publish the sessions of a user and return when nothing waits: after each, or after all `at_once`."""
        user, turns = str(sessions[0][0]["user_id"]), 0
        before = await self._count(user)
        built = Built(time.monotonic())
        began_s = built.began_s
        for number, session in enumerate(sessions, start=1):
            turns += len(session)
            await self.publish(session)
            if at_once and number < len(sessions):
                continue
            built.user_seqs.append(await self.until_built(user, turns))
            built.ended_s = time.monotonic()
            built.walls_s.append(built.ended_s - began_s)
            now = await self._count(user)
            built.sessions.append(_difference(now, before))
            built.heights.append(await self._height(user))
            before, began_s = now, time.monotonic()
        return built

    async def publish(self, session: Session) -> None:
        """The turns of a session, and its end."""
        for turn in session:
            await self.publisher.send(turn, str(turn["id"]))
        await self.publisher.send(a_close(str(session[0]["user_id"]), str(session[0]["session_id"])))

    async def until_built(self, user: str, turns: int) -> int:
        """Return the log's end when so many turns of a user are recorded and nothing of them waits.

        The daemon is asked only while it asks nothing itself: fifty answers a second took a tenth of its loop.
        """
        at = 0

        async def is_built() -> bool:
            nonlocal at
            await self.stub.until_idle(BUILT_WITHIN_S)
            mark = (await self.client.status(user)).watermark
            at = 0 if mark is None else mark.user_seq
            return mark is not None and mark.is_current

        await until_recorded(self.client, user, turns)
        await until(is_built, BUILT_WITHIN_S, "the memory was not built")
        return at

    async def facts(self, user: str) -> int:
        """How many facts a user has, each counted in every session that says it."""
        listed = await self.client.request("sessions.list", {"user_id": user})
        return sum(session["facts"] for session in listed["sessions"])

    async def recount(self, built: Built) -> list[int]:
        """The nodes that were new and wanted a summary after each session, counted from the leaves."""
        parameters = MemoryParameters()
        if self.models.concatenation_max is not None:
            parameters = MemoryParameters(concatenation_max=self.models.concatenation_max)
        recount, new = Recount(parameters.concatenation_max), list[int]()
        log = await LogReader.open_to_read(self.daemon.store_path)
        try:
            for user in await log.read(read_user_references):
                memory = await fold_from_nothing(log, user, parameters)
                if memory.user_id == USER:
                    for at in built.user_seqs:
                        memory = await fold_from_nothing(log, user, parameters, at)
                        new.append(len(await recount.count(log, memory)))
        finally:
            await log.close()
        return new

    def stalls_during(self, built: Built) -> Stalls:
        """What the ticker saw while it was built."""
        during = [built.began_s <= at_s <= built.ended_s for at_s in self.stalls.at_s]
        seen = (self.stalls.late_s, self.stalls.cpu_s, self.stalls.at_s)
        return Stalls(*(list(compress(each, during)) for each in seen))

    async def _height(self, user: str) -> int:
        listed = await self.client.request("trees.list", {"user_id": user, "limit": 1})
        return max((int(tree["height"]) for tree in listed["trees"]), default=0)

    async def _count(self, user: str) -> Counts:
        stats: dict[str, Any] = await self.stub.stats()
        counts = Counts(stats["calls"])
        counts["chat"] = sum(count for kind, count in stats["calls"].items() if kind != "embed")
        counts["texts"], counts["prompt_tokens"] = stats["texts_embedded"], stats["chat_prompt_tokens"]
        counts["embedding_tokens"] = stats["embedding_tokens"]
        counts["facts"] = await self.facts(user)
        return counts


@asynccontextmanager
async def running(models: Models) -> AsyncGenerator[Run]:
    """A daemon that has answered once: what comes once in the life of a process is not what is measured."""
    arguments = ["--latency", str(models.latency_s), "--embed-latency", str(models.latency_s * EMBED_SHARE)]
    arguments += ["--dimensions", str(DIMENSIONS)]
    async with AsyncExitStack() as opened:
        folder = opened.enter_context(short_folder())
        stub = await opened.enter_async_context(running_stub_process(*arguments, "--slots", str(models.slots)))
        daemon = WatchedDaemon(folder / "d", environ=_environ(models, stub, folder / "d"))
        try:
            await daemon.start()
            publisher = await opened.enter_async_context(publisher_to(daemon.bus_url))
            client = await opened.enter_async_context(daemon.client())
            run = Run(models, stub, daemon, publisher, client)
            await run.build([_warm_up()])
            await stub.reset()
            yield run
            await daemon.stop()
            run.stalls = msgspec.json.decode(daemon.stalls_path.read_bytes(), type=Stalls)
        finally:
            if daemon.exit_code is None:
                await daemon.stop()


def cpu_s(pid: int) -> float:
    """CPU of another process so far, all its threads (proc(5): utime and stime, in clock ticks of 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def make_sessions(count: int, turns: int, seed: int = 1) -> list[Session]:
    """Made-up talk: so many sessions of so many turns."""
    speech = Speech(seed)
    return [
        [
            make_turn(f"session_{n}", f"{n}:{at}", "Alice", speech.turn(), n * SESSION_GAP_MS + at * TURN_MS)
            for at in range(turns)
        ]
        for n in range(count)
    ]


def make_turn(session: str, turn: str, name: str, text: str, after_ms: int) -> dict[str, object]:
    """A turn as it is published."""
    return a_turn(USER, session, text, id=turn, name=name, timestamp=MONDAY + after_ms)


def _warm_up() -> Session:
    """One chunk of somebody else."""
    return [a_turn("bob", "s1", "I moved from Davis to Miami in May.", id=f"w{n}", name="Bob") for n in range(2)]


def _environ(models: Models, stub: StubProcess, folder: Path) -> dict[str, str]:
    chosen = {
        **stub.environ(),
        "MEMFOREST_DATA_DIR": str(folder),
        "MEMFOREST_BUS_EMBEDDED": "true",
        "MEMFOREST_MODELS_CONCURRENCY": str(models.slots),
        "MEMFOREST_MEMTREE_IDLE_S": "30",
        "MEMFOREST_EVENTTREE_ONLINE": str(models.compacts).lower(),
        "MEMFOREST_EVENTTREE_PRESET": "paper" if models.paper else "default",
        # As the daemon's unit sets them: one core for arithmetic.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if models.concatenation_max is not None:
        chosen["MEMFOREST_MEMTREE_CONCATENATION_MAX"] = str(models.concatenation_max)
    return chosen


def _difference(now: Counts, before: Counts) -> Counts:
    return Counts({kind: count - before[kind] for kind, count in now.items()})
