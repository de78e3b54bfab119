"""A daemon whose models misbehave: what it does meanwhile, and what has become of every chunk afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from memforest import AsyncClient
from tests.stub_models.process import StubProcess, running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_close,
    a_turn,
    publisher_to,
    short_folder,
    until,
)

# Two chunks a session, two sessions a case; what is said has names, numbers, and words that no log may have.
SESSION_TURNS = 4
SESSIONS = ("s1", "s2")
CHUNKS = 4
WORDS = ("Quetzaltenango", "Ansgar", "bassoon", "tangerine")
ASKED = "How much did Ansgar pay for the bassoon?"
WARM_USER = "warm"
DIMENSIONS = 32
SEEN_WITHIN_S = 60.0
BUILT_WITHIN_S = 90.0
# Seldom: nine daemons that were asked all the time would do nothing else.
_wait = partial(until, poll_s=0.1)


class Ends(Enum):
    """What has to become of the chunks that were told during a fault, before anybody asks for a retry."""

    EXTRACTED = "all extracted, none parked"
    WAITED = "all extracted, after the endpoint had been left alone"
    PARKED = "all parked with a reason"
    EITHER = "each extracted or parked"


@dataclass(frozen=True, slots=True)
class Case:
    """One fault of the stub. `reason` is that of what has to be parked, `padding` makes turns longer."""

    name: str
    faults: str = ""
    ends: Ends = Ends.WAITED
    reason: str = ""
    padding: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that one daemon lives through, one after the other.

    `environ` is what the daemon begins with; one that has any, or `restarts`, is started anew when the fault is
    lifted, configured as usual.
    """

    cases: tuple[Case, ...]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    restarts: bool = False


@dataclass(slots=True)
class Outcome:
    """What was seen of one case: while the fault was on, after it, and after a retry of what was parked."""

    query_s: list[float] = field(default_factory=list[float])
    answers: list[str] = field(default_factory=list[str])
    grown_mb: float = 0.0
    status: dict[str, Any] = field(default_factory=dict[str, Any])
    sessions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    extracted: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    parked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    extracted_at_last: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    parked_at_last: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    log: str = ""
    error: Exception | None = None


def live_through(groups: Sequence[Group]) -> dict[str, Outcome]:
    """What was seen of each case, by its name. The groups run side by side: most of their time is waiting."""
    outcomes = {case.name: Outcome() for group in groups for case in group.cases}

    async def run_all() -> None:
        async with anyio.create_task_group() as tasks:
            for group in groups:
                tasks.start_soon(_run_group, group, outcomes)

    anyio.run(run_all)
    return outcomes


async def _run_group(group: Group, outcomes: Mapping[str, Outcome]) -> None:
    left = list(group.cases)
    try:
        async with AsyncExitStack() as opened:
            folder = opened.enter_context(short_folder())
            stub = await opened.enter_async_context(running_stub_process("--dimensions", str(DIMENSIONS)))
            environ = {key: value.replace("PORT", str(stub.port)) for key, value in group.environ.items()}
            daemon = DaemonProcess(folder / "d", environ={**_usual(stub), **environ})
            opened.push_async_callback(_stop, daemon)
            await daemon.start()
            publisher = await opened.enter_async_context(publisher_to(daemon.bus_url))
            if group.environ:
                await _open_embedder(daemon)
            else:
                await _warm_up(daemon, publisher)
            while left:
                await _Run(left[0], group, stub, daemon, publisher, outcomes[left[0].name]).live()
                left.pop(0)
    except Exception as error:  # it is told of every case that it kept from being seen, and of no other
        for case in left:
            outcomes[case.name].error = error


def _usual(stub: StubProcess) -> dict[str, str]:
    return {**stub.environ(), "MEMFOREST_MODELS_TIMEOUT_S": "2", "MEMFOREST_MODELS_CONCURRENCY": "8"}


async def _stop(daemon: DaemonProcess) -> None:
    with anyio.CancelScope(shield=True):
        if daemon.exit_code is None:
            await daemon.stop()


async def _warm_up(daemon: DaemonProcess, publisher: Publisher) -> None:
    """Both models at their best, once: afterwards it is known how JSON is asked for, and how wide vectors are."""
    await _tell(publisher, WARM_USER, "s0")
    async with daemon.client() as client:
        await _until_recorded(client, WARM_USER, SESSION_TURNS)
        await _until_built(client, WARM_USER)
        await _until_well(client, WARM_USER)


async def _open_embedder(daemon: DaemonProcess) -> None:
    """The first question of a process waits for the import of its client."""
    async with daemon.client() as client:
        await client.query(WARM_USER, ASKED)


@dataclass(frozen=True, slots=True)
class _Run:
    """One case on its way."""

    case: Case
    group: Group
    stub: StubProcess
    daemon: DaemonProcess
    publisher: Publisher
    seen: Outcome

    @property
    def user(self) -> str:
        """A user for each case."""
        return re.sub(r"\W", "-", self.case.name)

    async def live(self) -> None:
        """The fault comes, shows itself, and goes."""
        logged = len(self.daemon.log_text())
        await self.stub.reset()
        await self.stub.set_faults(self.case.faults)
        forget_peak(self.daemon.pid)
        before_mb = peak_mb(self.daemon.pid)
        async with self.daemon.client() as client:
            await self._suffer(client)
        self.seen.grown_mb = peak_mb(self.daemon.pid) - before_mb
        await self.stub.set_faults()
        if self.group.restarts or self.group.environ:
            await self.daemon.stop()
            self.daemon.environ.update(_usual(self.stub))
            await self.daemon.start()
        async with self.daemon.client() as client:
            await self._recover(client)
        self.seen.log = self.daemon.log_text()[logged:]

    async def _suffer(self, client: AsyncClient) -> None:
        """Turns come and questions are asked until the fault has shown itself."""
        for number, session in enumerate(SESSIONS, start=1):
            await _tell(self.publisher, self.user, session, self.case.padding)
            await _until_recorded(client, self.user, number * SESSION_TURNS)
            await self._ask(client)
        await _wait(partial(self._has_shown, client), SEEN_WITHIN_S, "nothing was to be seen of the fault")
        self.seen.status = await client.request("status", {"user_id": self.user})
        await self._ask(client)

    async def _has_shown(self, client: AsyncClient) -> bool:
        status = await client.request("status", {"user_id": self.user})
        models, worker = status["models"], status["worker"]
        match self.case.ends:
            case Ends.EXTRACTED:
                is_felt = status["watermark"]["pending"] == 0
            case Ends.WAITED:
                is_felt = worker["waiting_for_model"] > 0 or models["embedder_trouble"] is not None
            case Ends.PARKED:
                is_felt = worker["parked"] >= CHUNKS
            case Ends.EITHER:
                is_felt = worker["waiting_for_model"] + worker["parked"] > 0
        return is_felt and (not self.case.faults or bool((await self.stub.stats())["faults"]))

    async def _recover(self, client: AsyncClient) -> None:
        """Nothing is wrong any more: what waited gets done, and what was parked when somebody asks for it."""
        await _until_built(client, self.user)
        self.seen.extracted, self.seen.parked = await self._extracted(client), await self._parked(client)
        listed = await client.request("sessions.list", {"user_id": self.user})
        self.seen.sessions = listed["sessions"]
        if self.seen.parked:
            await client.request("parked.retry", {"user_id": self.user})
            await _until_built(client, self.user)
        self.seen.extracted_at_last = await self._extracted(client)
        self.seen.parked_at_last = await self._parked(client)
        await _until_well(client, self.user)

    async def _ask(self, client: AsyncClient) -> None:
        began = time.perf_counter()
        answer = await client.query(self.user, ASKED, k=10)
        self.seen.query_s.append(time.perf_counter() - began)
        self.seen.answers.append(" ".join(memory.text for memory in answer.memories))

    async def _extracted(self, client: AsyncClient) -> list[dict[str, Any]]:
        """What stands in the facts.extracted events."""
        found: list[dict[str, Any]] = []
        for session in SESSIONS:
            asked = {"user_id": self.user, "session_id": session}
            events = (await client.request("sessions.events", asked))["events"]
            found += [event["what"] for event in events if event["type"] == "facts.extracted"]
        return found

    async def _parked(self, client: AsyncClient) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await client.request("parked.list", {"user_id": self.user}))["parked"]
        return listed


async def _tell(publisher: Publisher, user: str, session: str, padding: str = "") -> None:
    """A session with two chunks, closed. No two sentences are the same, or one fact would stand for all turns."""
    for number in range(SESSION_TURNS):
        content = (
            f"In {1990 + number} I moved to {WORDS[0]} with {WORDS[1]} and a parrot. "
            f"{WORDS[1]} paid {300 + number} dollars for the {WORDS[2]} of session {session}. "
            f"We painted {600 + number} flutes in the colour of a {WORDS[3]} in session {session}.{padding}"
        )
        turn = a_turn(user, session, content, id=f"{session}-{number}", name="Alice")
        await publisher.send(turn, f"{user}-{session}-{number}")
    await publisher.send(a_close(user, session))


async def _until_recorded(client: AsyncClient, user: str, turns: int) -> None:
    async def is_recorded() -> bool:
        return {each.user_id: each.turns for each in await client.users()}.get(user, 0) >= turns

    await _wait(is_recorded, SEEN_WITHIN_S, f"{turns} turns did not arrive")


async def _until_built(client: AsyncClient, user: str) -> None:
    async def is_built() -> bool:
        mark = (await client.status(user)).watermark
        return mark is not None and mark.is_current

    await _wait(is_built, BUILT_WITHIN_S, "the memory was not built")


async def _until_well(client: AsyncClient, user: str) -> None:
    """Every vector is there, and `readyz` has nothing against anything."""

    async def is_well() -> bool:
        await client.query(user, ASKED, k=1)  # its Memory is here
        status = await client.request("status", {})
        return bool(status["models"]["vectors_waiting"] == 0 and status["health"]["state"] == "ready")

    await _wait(is_well, BUILT_WITHIN_S, "vectors are missing, or it is not ready")


def peak_mb(pid: int) -> float:
    """The most memory that a process had in use since its peak was forgotten (proc(5): VmHWM)."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def forget_peak(pid: int) -> None:
    """From now on the peak is that of what follows (proc(5): clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
