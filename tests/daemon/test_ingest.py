"""From a real bus into a real log: whole messages, the checkpoint with them, nothing lost and nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import msgspec
import pytest

from daemon.bus.bus_messages import Batch as BusBatch
from daemon.bus.bus_messages import BusMessage
from daemon.bus.nats_bus import NatsBus
from daemon.bus.subjects import control_subject, turn_subject
from daemon.decoders.decoding import Decoder, make_forget_key
from daemon.ingest import Ingest
from daemon.memories import Memories
from events.appending import Batch, Outcome
from events.envelope import BusPosition
from events.erasure import erase_retracted
from events.log import GROUP_EVENTS_MAX, EventLog
from tests.builders import MONDAY, ManualClock, seeded_nonces
from tests.bus_in_use import Reported, bus_with_stream, unattended_server
from tests.daemon.parts_in_use import ALICE, SMALL, unwritable
from tests.stored import stored_rows
from tests.waiting import wait_until

STREAM = "MEMFOREST"


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with unattended_server(tmp_path / "nats") as url:
        yield url


class Ingesting:
    """An Ingest, what it reported, and the Memories it tells of forgetting."""

    def __init__(self, bus: NatsBus, log: EventLog) -> None:
        self.reported = Reported()
        self.memories = Memories(log, SMALL, self.reported)
        decoder = Decoder(log.keys, ZoneInfo("UTC"))
        self.ingest = Ingest(bus, STREAM, log, self.memories, decoder, self.reported, write_pause_s=0.05)


async def run_until(ingesting: Ingesting, seq: int) -> None:
    """Run the ingest until it has read the stream up to this sequence."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingesting.ingest.run)
        await wait_until(lambda: (ingesting.ingest.position or BusPosition("", "", 0)).seq >= seq)
        tasks.cancel_scope.cancel()


def a_turn_body(content: str, turn_id: str | None = None, session_id: str = "s1") -> bytes:
    body = {"type": "turn", "user_id": "alice", "session_id": session_id, "role": "user", "content": content}
    return msgspec.json.encode({**body, "timestamp": 1719824400} | ({"id": turn_id} if turn_id else {}))


def turns_body(count: int, session_id: str = "s1") -> bytes:
    turns = [{"role": "user", "content": f"turn {number}"} for number in range(count)]
    return msgspec.json.encode({"type": "turns", "user_id": "alice", "session_id": session_id, "turns": turns})


async def publish(bus: NatsBus, *bodies: bytes, session_id: str = "s1", kind: str = "turns") -> None:
    subject = (turn_subject if kind == "turns" else control_subject)("alice", session_id)
    for body in bodies:
        await bus.publish(subject, body)


def contents(path: Path) -> list[str]:
    rows = stored_rows(
        path, "SELECT w.text FROM words w JOIN events e USING (seq) WHERE n = 0 AND type = 'turn.recorded'"
    )
    return [bytes(text).decode() for (text,) in rows]


def checkpoint_of(path: Path) -> int:
    rows = stored_rows(path, "SELECT seq FROM bus_checkpoint")
    return int(rows[0][0]) if rows else 0


async def test_turns_come_in_order_with_the_checkpoint_and_are_acknowledged(
    url: str, log: EventLog, log_path: Path
) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, *(a_turn_body(f"turn {number}", f"t{number}") for number in range(30)))
        ingesting = Ingesting(bus, log)
        await run_until(ingesting, 30)

        assert contents(log_path) == [f"turn {number}" for number in range(30)]
        assert checkpoint_of(log_path) == 30
        recorded = ingesting.reported.fields("ingest.batch_recorded")
        assert sum(int(str(fields["recorded"])) for fields in recorded) == 30
        assert await ingesting.ingest.lag_messages() == 0


async def test_a_restart_goes_on_behind_the_checkpoint(url: str, log: EventLog, log_path: Path) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, a_turn_body("one"), a_turn_body("two"))
        await run_until(Ingesting(bus, log), 2)
        await publish(bus, a_turn_body("three"))
        later = Ingesting(bus, log)
        await run_until(later, 3)

        assert contents(log_path) == ["one", "two", "three"]
        assert [fields["messages"] for fields in later.reported.fields("ingest.batch_recorded")] == [1]


async def test_a_stream_read_again_from_its_start_adds_nothing(url: str, log: EventLog, log_path: Path) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, a_turn_body("with an id", "t1"), a_turn_body("without one"), b"no JSON")
        await run_until(Ingesting(bus, log), 3)
        await log.write(lambda db: db.execute("DELETE FROM bus_checkpoint"))
        again = Ingesting(bus, log)
        await run_until(again, 3)

        assert contents(log_path) == ["with an id", "without one"]
        assert again.reported.fields("ingest.batch_recorded")[0]["duplicates"] == 2
        assert stored_rows(log_path, "SELECT count(*) FROM letters") == [(1,)]


async def test_what_cannot_be_decoded_is_a_dead_letter_and_the_rest_goes_on(
    url: str, log: EventLog, log_path: Path
) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, a_turn_body("before"), b"Xylophon is no JSON", a_turn_body("Xylophon", session_id="s9"))
        await publish(bus, a_turn_body("after"))
        ingesting = Ingesting(bus, log)
        await run_until(ingesting, 4)

        assert contents(log_path) == ["before", "after"]
        assert stored_rows(log_path, "SELECT payload, bus_seq FROM dead_letters") == [
            (b"Xylophon is no JSON", 2),
            (a_turn_body("Xylophon", session_id="s9"), 3),
        ]
        assert [fields["seq"] for fields in ingesting.reported.fields("ingest.dead_letter")] == [2, 3]
        assert "Xylophon" not in str(ingesting.reported.events)


async def test_a_time_that_exists_in_no_utc_year_does_not_stop_the_fold(url: str, log: EventLog) -> None:
    """It was written once, and would have to be folded at every start."""
    async with bus_with_stream(url) as bus:
        body = msgspec.json.decode(a_turn_body("the beginning", "t1")) | {"timestamp": "0001-01-01T00:00:00+14:00"}
        await publish(bus, msgspec.json.encode(body), a_turn_body("after", "t2"))
        ingesting = Ingesting(bus, log)
        await run_until(ingesting, 2)

        assert (await ingesting.memories.catch_up(ALICE)).user_seq == 1
        assert len(ingesting.reported.fields("ingest.dead_letter")) == 1


async def test_the_same_key_with_other_content_is_reported_and_the_first_stands(
    url: str, log: EventLog, log_path: Path
) -> None:
    async with bus_with_stream(url) as bus:
        await publish(
            bus, a_turn_body("the first", "t1"), a_turn_body("the second", "t1"), a_turn_body("the first", "t1")
        )
        ingesting = Ingesting(bus, log)
        await run_until(ingesting, 3)

        assert contents(log_path) == ["the first"]
        assert ingesting.reported.fields("ingest.turn_conflicted") == [{"seq": 1}]
        assert stored_rows(log_path, "SELECT type FROM events") == [("turn.recorded",), ("turn.conflicted",)]


async def test_the_wish_to_forget_hides_its_session_before_anything_is_folded(url: str, log: EventLog) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, a_turn_body("a secret"), a_turn_body("another"))
        ingesting = Ingesting(bus, log)
        await run_until(ingesting, 2)
        memory = await ingesting.memories.catch_up(ALICE)
        forget = msgspec.json.encode({"type": "session.forget", "user_id": "alice", "session_id": "s1"})
        await publish(bus, forget, kind="control")
        await publish(bus, a_turn_body("too late", "t9"))
        await run_until(ingesting, 4)

        assert memory.user_seq == 2, "nothing followed the log"
        assert memory.nodes.live_rows(memory.hidden).size == 0
        assert sum(int(str(f["refused"])) for f in ingesting.reported.fields("ingest.batch_recorded")) == 1
        assert (await log.append(Batch()), make_forget_key("alice", "s1")) == ((), "forget/alice/s1")


async def test_a_failed_write_is_reported_and_tried_again_until_nothing_is_missing(
    url: str, log: EventLog, log_path: Path
) -> None:
    async with bus_with_stream(url) as bus:
        ingesting = Ingesting(bus, log)
        await publish(bus, a_turn_body("one"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ingesting.ingest.run)
            await wait_until(lambda: checkpoint_of(log_path) == 1)
            with unwritable(log_path):
                await publish(bus, a_turn_body("two"), a_turn_body("three"), b"no JSON")
                await wait_until(lambda: len(ingesting.reported.fields("ingest.write_failed")) >= 2)
            await wait_until(lambda: checkpoint_of(log_path) == 4)
            tasks.cancel_scope.cancel()

        assert contents(log_path) == ["one", "two", "three"]
        assert stored_rows(log_path, "SELECT bus_seq FROM dead_letters") == [(4,)]
        assert set(map(str, ingesting.reported.fields("ingest.write_failed"))) == {"{'code': 'unavailable'}"}


class RecordingLog(EventLog):
    """Keeps the batches it was handed."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.batches: list[Batch] = []

    async def append(self, batch: Batch) -> tuple[Outcome, ...]:
        self.batches.append(batch)
        return await super().append(batch)


class ListedBus:
    """What ingest uses of a bus: hands out batches, and notes what was committed at each acknowledgement."""

    def __init__(self, batches: Sequence[BusBatch], path: Path) -> None:
        self._batches = list(batches)
        self._path = path
        self.committed_at_acknowledgement: list[int] = []
        self.done = anyio.Event()

    async def fetch(self, after: BusPosition | None) -> BusBatch:
        if not self._batches:
            self.done.set()
            await anyio.sleep_forever()
        return self._batches.pop(0)

    async def acknowledge(self, batch: BusBatch) -> None:
        self.committed_at_acknowledgement.append(checkpoint_of(self._path))


def a_bus_batch(*bodies: bytes, first: int = 1, reset: bool = False) -> BusBatch:
    messages = tuple(
        BusMessage(turn_subject("alice", "s1"), body, {}, STREAM, first + number, MONDAY + number)
        for number, body in enumerate(bodies)
    )
    return BusBatch(messages, BusPosition(STREAM, "e1", first + len(bodies) - 1), reset)


async def ingest_all(listed: ListedBus, log: EventLog) -> Ingesting:
    ingesting = Ingesting(listed, log)  # type: ignore[arg-type]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingesting.ingest.run)
        await listed.done.wait()
        tasks.cancel_scope.cancel()
    return ingesting


@pytest.fixture
async def recording(log_path: Path, clock: ManualClock) -> AsyncIterator[RecordingLog]:
    log = await RecordingLog.open(log_path, clock, seeded_nonces(1))
    assert isinstance(log, RecordingLog)
    yield log
    await log.close()


async def test_a_batch_is_split_into_transactions_of_whole_messages_each_with_its_checkpoint(
    recording: RecordingLog, log_path: Path
) -> None:
    sizes = (100, 100, 100, 256, 1, 200, 56)
    bodies = [turns_body(size) for size in sizes]
    bodies.insert(3, b"no JSON")
    listed = ListedBus([a_bus_batch(*bodies)], log_path)
    await ingest_all(listed, recording)

    assert [len(batch.events) for batch in recording.batches] == [200, 100, 256, 201, 56]
    assert all(len(batch.events) <= GROUP_EVENTS_MAX for batch in recording.batches)
    assert [batch.checkpoint and batch.checkpoint.seq for batch in recording.batches] == [2, 4, 5, 7, 8]
    assert [len(batch.dead_letters) for batch in recording.batches] == [0, 1, 0, 0, 0]
    assert len(contents(log_path)) == sum(sizes)
    assert listed.committed_at_acknowledgement == [8], "once, when all of it is durable"


async def test_each_batch_is_acknowledged_after_its_commit(recording: RecordingLog, log_path: Path) -> None:
    batches = [a_bus_batch(a_turn_body("a"), first=1), a_bus_batch(a_turn_body("b"), a_turn_body("c"), first=2)]
    listed = ListedBus(batches, log_path)
    await ingest_all(listed, recording)

    assert listed.committed_at_acknowledgement == [1, 3]


async def test_a_new_epoch_is_stored_even_without_messages(recording: RecordingLog, log_path: Path) -> None:
    nothing = BusBatch((), BusPosition(STREAM, "e2", 0), reset=True)
    await ingest_all(ListedBus([nothing, BusBatch((), None, reset=False)], log_path), recording)

    assert stored_rows(log_path, "SELECT stream, epoch, seq FROM bus_checkpoint") == [(STREAM, "e2", 0)]
    assert len(recording.batches) == 1, "a fetch that brought nothing costs no transaction"


async def test_edits_come_over_the_bus_and_the_copies_of_what_was_taken_back_are_known(
    url: str, log: EventLog, log_path: Path
) -> None:
    async with bus_with_stream(url) as bus:
        first = a_turn_body("Xylophon", "t1")
        later = msgspec.json.encode({**msgspec.json.decode(first), "revision": 1, "content": "Marimba"})
        retract = {"type": "turn.retract", "user_id": "alice", "session_id": "s1", "turn_id": "t1"}
        ingesting = Ingesting(bus, log)
        await publish(bus, first, a_turn_body("Oslo", "t2"), later, first)
        await run_until(ingesting, 4)
        memory = await ingesting.memories.catch_up(ALICE)
        shown = [turn.key for turn in memory.turns.values()]
        await publish(bus, msgspec.json.encode(retract), kind="control")
        await run_until(ingesting, 5)
        hidden = (await ingesting.memories.catch_up(ALICE)).turns
        await publish(bus, later, first)
        await run_until(ingesting, 7)
        await log.write(erase_retracted)

    keys = [log.keys.key(f"turn/alice/s1/{turn}") for turn in ("t1/1", "t2/0")]
    assert sorted(shown) == sorted(keys)
    assert [turn.key for turn in hidden.values()] == keys[1:]
    types = [row[0] for row in stored_rows(log_path, "SELECT type FROM events ORDER BY seq")]
    assert types == ["turn.recorded", "turn.recorded", "turn.revised", "turn.retracted"]
    unwanted = stored_rows(log_path, "SELECT seq FROM unwanted ORDER BY seq")
    assert unwanted == [(1,), (3,), (4,), (6,), (7,)], "every message that says it, but not the wish itself"
