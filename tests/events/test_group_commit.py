"""Appends that run at the same time: what shares a transaction, what is cancelled, what is left."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync

from events.appending import Batch, Outcome
from events.envelope import NewEvent, Reference
from events.errors import InvalidInput, LogClosed, StaleDecision
from events.gate import Verdict
from events.log import GROUP_EVENTS_MAX, READERS, EventLog
from events.memory import Pointer
from events.reading import read_user
from events.session import ChunkClosed
from tests.builders import (
    KEYS,
    SECRET,
    ManualClock,
    a_batch,
    a_partition,
    a_turn,
    an_admission,
    seeded_nonces,
)
from tests.stored import stored_bytes, stored_rows

# A thread that waits longer than this waits for ever.
PATIENCE_S = 10


class HeldWriter:
    """Nonces that can be kept from being given out, which stops the writer inside a transaction."""

    def __init__(self) -> None:
        self._holding = False
        self._inside = threading.Semaphore(0)
        self._passes = threading.Semaphore(0)

    def __call__(self, key: Reference) -> bytes:
        if self._holding:
            self._inside.release()
            assert self._passes.acquire(timeout=PATIENCE_S)
        return seeded_nonces(1)(key)

    def hold(self) -> None:
        self._holding = True

    async def wait_inside(self) -> None:
        """Return once the writer stands in a transaction, at its next event."""
        assert await run_sync(self._inside.acquire, True, PATIENCE_S)

    def let_one_through(self) -> None:
        self._passes.release()

    def let_go(self) -> None:
        self._holding = False
        self._passes.release()


@pytest.fixture
def held() -> HeldWriter:
    return HeldWriter()


@pytest.fixture
async def held_log(log_path: Path, clock: ManualClock, held: HeldWriter) -> AsyncIterator[EventLog]:
    log = await EventLog.open(log_path, clock, held, SECRET)
    yield log
    held.let_go()
    await log.close()


@asynccontextmanager
async def traced(log: EventLog) -> AsyncIterator[list[str]]:
    """The statements of the writer while the block runs."""
    statements: list[str] = []
    await log.write(lambda db: db.set_trace_callback(statements.append))
    yield statements
    await log.write(lambda db: db.set_trace_callback(None))


async def kinds(log: EventLog, user_id: str = "alice") -> list[str]:
    events = await log.read(partial(read_user, user=KEYS.user(user_id)))
    return [each.type for each in events]


async def test_many_concurrent_appends_share_few_transactions(log: EventLog) -> None:
    outcomes: dict[int, Outcome] = {}

    async def append(n: int) -> None:
        outcomes[n] = await log.append_event(a_turn(turn_id=f"t{n}"))

    async with traced(log) as statements, anyio.create_task_group() as tasks:
        for n in range(600):
            tasks.start_soon(append, n)

    assert [outcomes[n].user_seq for n in range(600)] == list(range(1, 601))
    commits = statements.count("COMMIT")
    assert 600 / GROUP_EVENTS_MAX <= commits <= 5
    assert statements.count("BEGIN IMMEDIATE") == commits


async def test_a_group_takes_no_more_events_than_its_limit_unless_one_batch_does(
    held_log: EventLog, held: HeldWriter
) -> None:
    sizes = [200, 56, 1, GROUP_EVENTS_MAX + 9, 3]
    async with traced(held_log) as statements, anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(held_log.append_event, a_turn(turn_id="first"))
        await held.wait_inside()
        for which, size in enumerate(sizes):
            batch = a_batch(*(a_turn(turn_id=f"{which}/{n}") for n in range(size)))
            tasks.start_soon(held_log.append, batch)
            await checkpoint()
        held.let_go()

    groups: list[int] = []
    for statement in statements:
        if statement == "BEGIN IMMEDIATE":
            groups.append(0)
        elif statement.startswith("INSERT INTO events"):
            groups[-1] += 1
    assert groups == [1, 256, 1, 265, 3]


async def test_a_batch_that_cannot_be_written_leaves_nothing_and_stops_no_other(
    held_log: EventLog, held: HeldWriter, log_path: Path
) -> None:
    unwritable = "words of someone"
    wrong: dict[str, NewEvent] = {
        "lone surrogate": a_turn(f"{unwritable} \ud800"),
        "lone surrogate in a name": replace(a_turn(), user_id="\udfff"),
        "time above 64 bits": replace(a_turn(), happened_at=1 << 63),
        "text for a number": replace(a_turn(), event=ChunkClosed(unwritable)),  # type: ignore[arg-type]
        "text for a basis": replace(a_turn(), basis="1"),  # type: ignore[arg-type]
        "turn without session": replace(a_turn(), session_id=None),
    }
    results: dict[str, object] = {}
    told: list[str] = []

    async def append(name: str, batch: Batch) -> None:
        try:
            results[name] = [each.verdict for each in await held_log.append(batch)]
        except InvalidInput as error:
            results[name] = type(error)
            told.append(f"{error!r} {error.__cause__!r} {error.__context__!r}")

    async with traced(held_log) as statements, anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(append, "first", a_batch(a_turn(turn_id="first")))
        await held.wait_inside()
        for name, event in wrong.items():
            batch = a_batch(a_turn(turn_id=f"before {name}"), replace(event, key=name), read_to=99)
            tasks.start_soon(append, name, batch)
            tasks.start_soon(append, f"after {name}", a_batch(a_turn(turn_id=f"after {name}")))
            await checkpoint()
        held.let_go()

    assert {name: results[name] for name in wrong} == dict.fromkeys(wrong, InvalidInput)
    assert {name: results[f"after {name}"] for name in wrong} == {name: [Verdict.RECORDED] for name in wrong}
    assert not any(unwritable in each for each in told)
    assert statements.count("COMMIT") == 2
    assert stored_rows(log_path, "SELECT seq FROM events ORDER BY seq") == [
        (seq,) for seq in range(1, len(wrong) + 2)
    ]
    assert await held_log.read_checkpoint("MEMFOREST") is None
    assert unwritable.encode() not in stored_bytes(log_path)
    assert len(await kinds(held_log)) == len(wrong) + 1  # the chain holds


async def test_decisions_of_two_planners_in_one_group_do_not_both_pass(
    held_log: EventLog, held: HeldWriter
) -> None:
    verdicts: list[object] = []

    async def decide(new: NewEvent) -> None:
        try:
            verdicts.append((await held_log.append_event(new)).verdict)
        except StaleDecision:
            verdicts.append(StaleDecision)

    async with anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(held_log.append_event, a_turn())
        await held.wait_inside()
        tasks.start_soon(decide, an_admission(Pointer(1, 0), basis=1))
        await checkpoint()
        tasks.start_soon(decide, a_partition(basis=1))
        await checkpoint()
        held.let_go()

    assert verdicts == [Verdict.RECORDED, StaleDecision]


async def test_an_append_cancelled_while_it_waits_leaves_nothing(
    held_log: EventLog, held: HeldWriter, log_path: Path
) -> None:
    scope = anyio.CancelScope()

    async def give_up() -> None:
        with scope:
            await held_log.append_event(a_turn("never written", turn_id="t2"))

    async with anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(held_log.append_event, a_turn())
        await held.wait_inside()
        tasks.start_soon(give_up)
        tasks.start_soon(held_log.append_event, a_turn(turn_id="t3"))
        await checkpoint()
        scope.cancel()
        await checkpoint()
        held.let_go()

    assert scope.cancelled_caught
    keys = stored_rows(log_path, "SELECT text FROM names WHERE kind = 'key' ORDER BY text")
    assert keys == [(b"turn/alice/s1/t1/0",), (b"turn/alice/s1/t3/0",)]
    assert b"never written" not in stored_bytes(log_path)


async def test_an_append_cancelled_during_its_commit_is_durable_and_so_are_those_beside_it(
    held_log: EventLog, held: HeldWriter, log_path: Path
) -> None:
    scope = anyio.CancelScope()
    reported: list[Outcome] = []

    async def append() -> None:
        with scope:
            reported.append(await held_log.append_event(a_turn()))

    async with anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(append)
        await held.wait_inside()
        scope.cancel()
        await checkpoint()
        held.let_go()

    assert reported == [Outcome(Verdict.RECORDED, 1, 1)]
    assert held_log.head == 1
    assert stored_rows(log_path, "SELECT count(*) FROM events") == [(1,)]
    assert (await held_log.append_event(a_turn())).verdict is Verdict.DUPLICATE
    assert not await held_log.write(lambda db: db.in_transaction)


async def test_an_append_cancelled_while_others_write_it_is_durable_and_asking_again_says_so(
    held_log: EventLog, held: HeldWriter
) -> None:
    scope = anyio.CancelScope()

    async def give_up() -> None:
        with scope:
            await held_log.append_event(a_turn(turn_id="t3"))

    async with anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(held_log.append_event, a_turn(turn_id="t1"))
        await held.wait_inside()
        tasks.start_soon(held_log.append_event, a_turn(turn_id="t2"))
        await checkpoint()
        tasks.start_soon(give_up)
        await checkpoint()
        held.let_one_through()
        await held.wait_inside()  # t2 is written now, and t3 with it
        scope.cancel()
        await checkpoint()
        held.let_go()

    assert scope.cancelled_caught
    assert await held_log.append_event(a_turn(turn_id="t3")) == Outcome(Verdict.DUPLICATE, 3, 3)


async def test_a_read_cancelled_half_way_gives_its_connection_back(log: EventLog) -> None:
    for _ in range(READERS + 1):
        started, go_on = threading.Event(), threading.Event()

        def work(
            db: sqlite3.Connection, started: threading.Event = started, go_on: threading.Event = go_on
        ) -> None:
            started.set()
            assert go_on.wait(PATIENCE_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.read, work)
            assert await run_sync(started.wait, PATIENCE_S)
            tasks.cancel_scope.cancel()
            go_on.set()

    with anyio.fail_after(PATIENCE_S):
        assert await log.read(lambda db: db.execute("SELECT 1").fetchone()) == (1,)


async def test_readers_do_not_wait_for_the_writer_and_see_only_what_is_committed(
    held_log: EventLog, held: HeldWriter
) -> None:
    async with anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(held_log.append_event, a_turn())
        await held.wait_inside()
        with anyio.fail_after(PATIENCE_S):
            assert await kinds(held_log) == []
        held.let_go()

    assert await kinds(held_log) == ["turn.recorded"]


async def test_closing_waits_for_readers_and_refuses_those_who_wait_to_write(
    held_log: EventLog, held: HeldWriter
) -> None:
    started, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    def work(db: sqlite3.Connection) -> None:
        started.set()
        assert go_on.wait(PATIENCE_S)
        assert db.execute("SELECT 1").fetchone() == (1,)

    async def note(name: str, call: Callable[[], object]) -> None:
        try:
            await call()  # type: ignore[misc]
        except LogClosed:
            name = f"{name} refused"
        ended.append(name)

    async with anyio.create_task_group() as tasks:
        held.hold()
        tasks.start_soon(note, "append", partial(held_log.append_event, a_turn()))
        await held.wait_inside()
        tasks.start_soon(note, "read", partial(held_log.read, work))
        assert await run_sync(started.wait, PATIENCE_S)
        tasks.start_soon(note, "close", held_log.close)
        await checkpoint()
        tasks.start_soon(note, "late append", partial(held_log.append_event, a_turn(turn_id="t2")))
        await checkpoint()
        held.let_go()
        go_on.set()

    assert ended.index("append") < ended.index("close")
    assert ended.index("read") < ended.index("close")
    assert "late append refused" in ended
