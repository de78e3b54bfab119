"""The daemon dies while facts are decided on: routed, compared, given vectors. The next life decides each once."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from events.codec import Event
from events.decisions import FactsRouted
from events.log import LogReader
from events.memory import FactsAdmitted, FactsExtracted, IntervalSummarised
from events.reading import read_user
from events.registry import read_user_references
from tests.faults.publishing import create_stream
from tests.nats_server import running_server
from tests.stub_models.process import StubProcess, running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    short_folder,
    until,
    until_built,
    verify,
)

SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
USER = "alice"
# Where each life ends. The long run takes thirty, and half of them end somewhere.
FAULTS: tuple[str | None, ...] = (
    "decide.before_append:kill:2",
    "vectors.after_keep:kill",
    "decide.after_append:kill:2",
)
DEEP_LIVES = 30
TURNS_A_LIFE = 8
DEAD_WITHIN_S = 30.0
THINGS = ("kite", "lamp", "bridge", "boat", "violin", "carpet", "ladder", "kettle")


class Talk:
    """Sessions of a few turns each, every one of which says something new or something that was said before."""

    def __init__(self, publisher: Publisher, rng: random.Random) -> None:
        self._publisher = publisher
        self._rng = rng
        self.turns = 0
        self.sessions = 0

    async def go_on(self) -> None:
        """One more session, and its end."""
        session = f"s{self.sessions}"
        for _ in range(TURNS_A_LIFE):
            number = self._rng.randrange(self.turns + 1)
            text = f"I bought {number} pieces of {self._rng.choice(THINGS)} in Davis yesterday."
            await self._publisher.send(a_turn(USER, session, text, id=f"t{self.turns}"), f"m{self.turns}")
            self.turns += 1
        await self._publisher.send(a_close(USER, session), f"close-{session}")
        self.sessions += 1


async def live_and_die(daemon: DaemonProcess, talk: Talk, fault: str | None, rng: random.Random) -> None:
    """One life of the daemon: it hears a session, and is killed at a point, or at some time."""
    daemon.environ["MF_FAULT"] = fault or ""
    await daemon.launch()
    if fault is None:
        await daemon.until_ready()
        await talk.go_on()
        await anyio.sleep(rng.uniform(0.0, 1.5))
        await daemon.kill()
        return

    async def is_dead() -> bool:
        return daemon.exit_code is not None

    await talk.go_on()
    await until(is_dead, DEAD_WITHIN_S, f"the fault {fault} was not met (seed {SEED})")
    assert daemon.exit_code == -signal.SIGKILL, f"seed {SEED}"


async def live_to_the_end(daemon: DaemonProcess) -> dict[str, int]:
    """A life without a fault, until nothing waits; what is under way or waits then."""
    daemon.environ["MF_FAULT"] = ""
    await daemon.start()
    async with daemon.client() as client:
        await until_built(client, USER)
        worker = (await client.request("status", {"user_id": USER}))["worker"]
    return {key: worker[key] for key in ("in_flight", "waiting_for_model", "parked")}


async def recorded(path: Path) -> list[Event]:
    """What the log has of its only user, in order."""
    log = await LogReader.open_to_read(path)
    try:
        (user,) = await log.read(read_user_references)
        events = await log.read(lambda db: read_user(db, user, limit=100_000))
        return [each.event for each in events if each.event is not None]
    finally:
        await log.close()


def decided(events: list[Event]) -> Iterator[tuple[str, object]]:
    """Each thing that was asked of a model, or decided, as it must be there once."""
    for event in events:
        match event:
            case FactsExtracted(turns=turns):
                yield "extracted", turns
            case IntervalSummarised(digest=digest):
                yield "summarised", digest
            case FactsAdmitted(admissions=admissions):
                yield from (("admitted", each) for each in admissions)
            case FactsRouted(routes=routes):
                yield from (("routed", each.fact) for each in routes)
            case _:
                pass


async def check(daemon: DaemonProcess, stub: StubProcess, turns: int, left: dict[str, int]) -> None:
    """All was heard and decided once, and a fold from nothing says what the daemon says."""
    verdicts = await verify(daemon.folder)
    asked = (await stub.stats())["calls"]
    await daemon.stop()
    events = await recorded(daemon.store_path)
    counts = Counter(decided(events))
    read = [turn for event in events if isinstance(event, FactsExtracted) for turn in event.turns]
    kinds = Counter(kind for kind, _ in counts)

    assert {key for key, count in counts.items() if count > 1} == set(), f"seed {SEED}"
    assert len(read) == len(set(read)) == turns, f"nothing is lost, nothing is read twice (seed {SEED})"
    assert set(left.values()) == {0}, f"seed {SEED}: {left}"
    assert kinds["routed"] == len({key[1].fact for key in counts if key[0] == "admitted"})  # type: ignore[attr-defined]
    assert asked["extract"] >= kinds["extracted"] > 0
    assert_equal(verdicts, users=1)


async def run_lives(faults: tuple[str | None, ...]) -> None:
    """One life after the other on the same store, and a last one that ends well."""
    rng = random.Random(SEED)
    async with AsyncExitStack() as opened:
        stub = await opened.enter_async_context(running_stub_process("--latency", "0.02"))
        folder = opened.enter_context(short_folder())
        # A bus of its own: a life that ends before all was said leaves the rest there for the next one.
        server = await opened.enter_async_context(running_server(folder))
        await create_stream(server.url)
        daemon = DaemonProcess(folder / "d", server.url, environ={**stub.environ()})
        publisher = await opened.enter_async_context(publisher_to(server.url))
        talk = Talk(publisher, rng)
        for fault in faults:
            await live_and_die(daemon, talk, fault, rng)
        left = await live_to_the_end(daemon)
        await check(daemon, stub, talk.turns, left)


async def test_a_kill_while_facts_are_decided_on_loses_nothing_and_decides_nothing_twice() -> None:
    await run_lives(FAULTS)


@pytest.mark.timeout(1_200)
@pytest.mark.skipif(os.environ.get("MF_TORTURE") != "1", reason="thirty lives take minutes")
async def test_thirty_kills_while_facts_are_decided_on_lose_nothing_and_decide_nothing_twice() -> None:
    await run_lives(
        tuple(random.Random(SEED).choices((*FAULTS, "vectors.before_keep:kill", None, None, None), k=DEEP_LIVES))
    )
