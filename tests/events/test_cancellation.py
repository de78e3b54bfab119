"""Cancelled at every await there is: no open transaction, no ghost row, and everything usable afterwards.

Fault matrix row 42. Each test runs its work again and again and cancels it one suspension later each time, until
it comes to its end uncancelled. Cancelling a commit, or a wait on a lock, is where drivers of SQLite go wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

import anyio
import msgspec
import pytest

from daemon.bus.bus_messages import Batch as BusBatch
from daemon.bus.bus_messages import BusMessage
from daemon.bus.subjects import turn_subject
from daemon.decoders.decoding import Decoder
from daemon.ingest import Ingest
from daemon.logs import quiet
from daemon.memories import Memories
from events.appending import Outcome
from events.envelope import BusPosition
from events.gate import Verdict
from events.log import READERS, EventLog
from events.reading import read_user
from tests.builders import MONDAY, ManualClock, a_turn
from tests.daemon.parts_in_use import ALICE, SMALL, build_parts, event_types, running_forgetter
from tests.faults.checker import read_recorded
from tests.stored import stored_bytes

T = TypeVar("T")

# What is suspended more often than this runs for ever.
SUSPENSIONS_MAX = 500
PATIENCE_S = 10


class CancelledAt(Generic[T]):
    """Awaits some work inside a cancel scope that is cancelled at the work's n-th suspension."""

    def __init__(self, work: Awaitable[T], suspension: int) -> None:
        self.cancelled = False
        self._steps: Generator[Any, Any, T] = work.__await__()
        self._left = suspension
        self._scope = anyio.CancelScope()

    async def result(self) -> T | None:
        """What the work returned; None when it was cancelled before it could."""
        with self._scope:
            return await self
        return None

    def __await__(self) -> Generator[Any, Any, T]:
        """Every suspension of the work passes through here."""
        thrown: BaseException | None = None
        while True:
            try:
                waits_for = self._steps.send(None) if thrown is None else self._steps.throw(thrown)
            except StopIteration as done:
                returned: T = done.value
                return returned
            self._left -= 1
            if self._left == 0:
                self.cancelled = True
                self._scope.cancel()
            thrown = None
            try:
                yield waits_for
            except BaseException as error:
                thrown = error


async def at_each_suspension(once: Callable[[int], Awaitable[bool]]) -> int:
    """Call `once` with 1, 2, …, until it says that it was not cancelled; the number of times it was."""
    with anyio.fail_after(4 * PATIENCE_S):
        for suspension in range(1, SUSPENSIONS_MAX):
            if not await once(suspension):
                print(f"cancelled at each of {suspension - 1} suspensions")
                return suspension - 1
    raise AssertionError("it is suspended for ever")


async def turn_contents(log: EventLog) -> list[str]:
    """What of alice's turns is in the log."""
    events = await log.read(lambda db: read_user(db, ALICE, limit=10_000))
    return [each.event.content for each in events if each.event is not None and each.type == "turn.recorded"]  # type: ignore[union-attr]


async def assert_usable(log: EventLog) -> None:
    """No transaction is open and no connection lost; what was cancelled is not written by those who come later."""
    with anyio.fail_after(PATIENCE_S):
        before = await turn_contents(log)
        in_transaction = await log.write(lambda db: db.in_transaction)
        await log.append_event(a_turn("afterwards", turn_id=f"after {log.head}"))
        async with anyio.create_task_group() as tasks:
            for _ in range(READERS + 1):
                tasks.start_soon(log.read, lambda db: db.execute("SELECT 1").fetchone())
        after = await turn_contents(log)

    assert not in_transaction
    assert after == [*before, "afterwards"]


@pytest.mark.parametrize("ours_first", [True, False])
async def test_an_append_cancelled_anywhere_is_there_or_not_and_its_neighbours_are(
    log: EventLog, ours_first: bool
) -> None:
    """Neighbours share its transaction; being there and not knowing it is what asking again is for."""

    async def once(suspension: int) -> bool:
        outcomes: dict[str, Outcome] = {}

        async def neighbour(name: str) -> None:
            outcomes[name] = await log.append_event(a_turn(name, turn_id=name))

        ours = f"ours {suspension}"
        cancelled = CancelledAt(log.append_event(a_turn(ours, turn_id=ours)), suspension)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(neighbour, f"first {suspension}")
            tasks.start_soon(neighbour, f"second {suspension}")
            if not ours_first:
                await anyio.lowlevel.checkpoint()
            outcome = await cancelled.result()
            tasks.start_soon(neighbour, f"third {suspension}")
        there = await turn_contents(log)
        await assert_usable(log)
        again = await log.append_event(a_turn(ours, turn_id=ours))

        assert [outcomes[name].verdict for name in sorted(outcomes)] == [Verdict.RECORDED] * 3
        assert all(there.count(name) == 1 for name in outcomes)
        assert there.count(ours) <= 1
        assert outcome is None or there.count(ours) == 1, "it was told that the event is durable"
        assert again.verdict is (Verdict.DUPLICATE if ours in there else Verdict.RECORDED)
        return cancelled.cancelled

    assert await at_each_suspension(once) >= 1


async def test_a_batch_that_waits_alone_and_is_cancelled_anywhere_is_written_whole_or_not_at_all(
    log: EventLog, log_path: Path
) -> None:
    async def once(suspension: int) -> bool:
        cancelled = CancelledAt(
            log.append_event(a_turn(f"alone {suspension}", turn_id=f"{suspension}")), suspension
        )
        outcome = await cancelled.result()
        there = await turn_contents(log)
        await assert_usable(log)

        assert outcome is None or f"alone {suspension}" in there
        assert f"alone {suspension}" in there or f"alone {suspension}".encode() not in stored_bytes(log_path)
        return cancelled.cancelled

    assert await at_each_suspension(once) >= 1


@pytest.mark.parametrize("way", ["read", "write"])
async def test_reading_and_upkeep_cancelled_anywhere_give_their_connection_back(log: EventLog, way: str) -> None:
    await log.append_event(a_turn("there"))

    async def once(suspension: int) -> bool:
        work = getattr(log, way)(lambda db: db.execute("SELECT count(*) FROM events").fetchone())
        cancelled = CancelledAt(work, suspension)
        await cancelled.result()
        await assert_usable(log)
        return cancelled.cancelled

    assert await at_each_suspension(once) >= 1


async def test_a_query_cancelled_anywhere_leaves_a_memory_that_answers_as_if_it_had_not_been_asked(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    await parts.say(*(f"Alice saw ship {number} in Miami." for number in range(20)))
    expected = await parts.ask("ship 7", k=5)
    await log.append_event(a_turn("afterwards", turn_id="after 20"))

    async def once(suspension: int) -> bool:
        cold = build_parts(log, clock)  # nothing is loaded, so the query folds the log first
        cancelled = CancelledAt(cold.ask("ship 7", k=5), suspension)
        await cancelled.result()
        with anyio.fail_after(PATIENCE_S):
            answer = await cold.ask("ship 7", k=5)

        assert not await log.write(lambda db: db.in_transaction)
        assert [memory.text for memory in answer.memories] == [memory.text for memory in expected.memories]
        return cancelled.cancelled

    assert await at_each_suspension(once) >= 3


async def test_forgetting_that_is_cancelled_anywhere_is_done_whole_or_not_begun(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)

    async def once(suspension: int) -> bool:
        secret = f"The secret is xylophon{suspension}x."
        await parts.say(secret, session_id=f"secret{suspension}")
        cancelled = CancelledAt(parts.forgetter.forget("alice", f"secret{suspension}"), suspension)
        await cancelled.result()
        asked = (await event_types(log, ALICE)).count("session.forgotten")
        if asked < suspension:
            assert secret in await turn_contents(log)
        with anyio.fail_after(PATIENCE_S):
            receipt = await parts.forgetter.forget("alice", f"secret{suspension}")  # waits for the erasing

        assert receipt.complete
        assert f"xylophon{suspension}x".encode() not in stored_bytes(log_path)
        assert (await event_types(log, ALICE)).count("session.forgotten") == suspension
        await assert_usable(log)
        return cancelled.cancelled

    async with running_forgetter(parts):
        assert await at_each_suspension(once) >= 3


class ListedBus:
    """A stream of messages; whoever asks gets some of those behind its position, as from the real one."""

    def __init__(self, bodies: list[bytes]) -> None:
        self._bodies = bodies
        self.at_end = anyio.Event()

    async def fetch(self, after: BusPosition | None) -> BusBatch:
        first = after.seq if after else 0
        if first >= len(self._bodies):
            self.at_end.set()
            await anyio.sleep_forever()
        messages = tuple(
            BusMessage(turn_subject("alice", "s1"), body, {}, "MEMFOREST", first + n, MONDAY)
            for n, body in enumerate(self._bodies[first : first + 4], start=1)
        )
        return BusBatch(messages, BusPosition("MEMFOREST", "e1", first + len(messages)), reset=False)

    async def acknowledge(self, batch: BusBatch) -> None:
        await anyio.lowlevel.checkpoint()


async def test_ingest_that_is_cancelled_anywhere_goes_on_with_each_message_once(
    tmp_path: Path, clock: ManualClock
) -> None:
    contents = [f"number {number}" for number in range(12)]
    turn = {"type": "turn", "user_id": "alice", "session_id": "s1", "role": "user"}
    bodies = [msgspec.json.encode({**turn, "content": content}) for content in contents]

    async def once(suspension: int) -> bool:
        path = tmp_path / f"{suspension}.db"
        log = await EventLog.open(path, clock)
        bus = ListedBus(bodies)

        def ingest() -> Ingest:
            decoder = Decoder(log.keys, ZoneInfo("UTC"))
            return Ingest(bus, "MEMFOREST", log, Memories(log, SMALL, quiet), decoder, quiet)  # type: ignore[arg-type]

        # It never ends by itself: at its end it waits for more, and that is suspended once.
        cancelled = CancelledAt(ingest().run(), suspension)
        await cancelled.result()
        came_to_the_end = bus.at_end.is_set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ingest().run)
            with anyio.fail_after(PATIENCE_S):
                await bus.at_end.wait()
            tasks.cancel_scope.cancel()
        in_transaction = await log.write(lambda db: db.in_transaction)
        await log.close()

        assert not in_transaction
        assert (await read_recorded(path)).turns == {("alice", "s1"): contents}
        return not came_to_the_end

    assert await at_each_suspension(once) >= 6
