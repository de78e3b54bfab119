"""What stands in the file against what the chain and the commitments say it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from events.envelope import RecordedEvent, commit_to
from events.errors import LogDamaged, StoreUnusable
from events.log import EventLog
from events.reading import read_events, read_user
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_turn, seeded_nonces
from tests.stored import damage, stored_rows

PRIVATE = "a private sentence"


@asynccontextmanager
async def opened(path: Path, clock: ManualClock) -> AsyncIterator[EventLog]:
    log = await EventLog.open(path, clock, seeded_nonces(1), SECRET)
    try:
        yield log
    finally:
        await log.close()


@pytest.fixture
async def store(log_path: Path, clock: ManualClock) -> Path:
    """Five turns of alice at seqs 1, 3, 4, 5, 6; one of bob at seq 2."""
    async with opened(log_path, clock) as log:
        await log.append(
            a_batch(
                a_turn(PRIVATE, turn_id="t1"),
                a_turn(user_id="bob"),
                *(a_turn(turn_id=f"t{n}") for n in range(2, 6)),
            )
        )
    return log_path


async def read_alice(path: Path, clock: ManualClock, after: int = 0) -> list[RecordedEvent]:
    async with opened(path, clock) as log:
        return await log.read(partial(read_user, user=KEYS.user("alice"), after=after))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("session", b"x" * 16),
        ("session", None),
        ("type", "session.closed"),
        ("version", 0),
        ("key", b"y" * 16),
        ("happened_at", 1),
        ("recorded_at", 1),
        ("caused_by", 1),
        ("lineage", b""),
        ("basis", 0),
        ("bus_stream", "OTHER"),
        ("bus_epoch", "e2"),
        ("bus_seq", 9),
        ("body", b"{}"),
        ("commitment", commit_to(b"", ())),
        ("chain", bytes(32)),
    ],
)
async def test_a_changed_field_of_an_envelope_is_found_and_its_event_named(
    store: Path, clock: ManualClock, column: str, value: object
) -> None:
    damage(store, f"UPDATE events SET {column} = ? WHERE seq = 4", value)

    with pytest.raises(LogDamaged, match=r"seq 4 \(user_seq 3\)"):
        await read_alice(store, clock)
    with pytest.raises(LogDamaged, match=r"seq 4 \(user_seq 3\)"):
        await read_alice(store, clock, after=2)


async def test_damage_of_one_user_keeps_no_other_from_being_read(store: Path, clock: ManualClock) -> None:
    damage(store, "UPDATE events SET happened_at = 1 WHERE seq = 4")

    async with opened(store, clock) as log:
        assert len(await log.read(partial(read_user, user=KEYS.user("bob")))) == 1


async def test_a_missing_event_is_found_and_named(store: Path, clock: ManualClock) -> None:
    damage(store, "DELETE FROM events WHERE seq = 4")

    with pytest.raises(LogDamaged, match="user_seq 3 is missing"):
        await read_alice(store, clock)
    with pytest.raises(LogDamaged, match="user_seq 3 is missing"):
        await read_alice(store, clock, after=3)


async def test_events_that_changed_places_are_found(store: Path, clock: ManualClock) -> None:
    for seq, user_seq in ((4, 99), (5, 3), (4, 4)):
        damage(store, "UPDATE events SET user_seq = ? WHERE seq = ?", user_seq, seq)

    with pytest.raises(LogDamaged):
        await read_alice(store, clock)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE words SET text = x'ff' WHERE seq = 1 AND n = 0",  # not even UTF-8
        "UPDATE words SET text = CAST(text || x'20' AS BLOB) WHERE seq = 1 AND n = 0",
        "UPDATE words SET text = CAST(text || x'ff' AS TEXT) WHERE seq = 1 AND n = 0",  # one bit of its header
        "UPDATE words SET text = NULL WHERE seq = 1 AND n = 1",  # erased is all of an event or nothing
        "DELETE FROM words WHERE seq = 1 AND n = 2",
        "UPDATE words SET n = 9 WHERE seq = 1 AND n = 0",
        "UPDATE words SET nonce = zeroblob(16) WHERE seq = 1",
        "INSERT INTO words VALUES (1, 99, x'00', x'41')",
    ],
)
async def test_changed_words_are_found_by_every_way_of_reading_and_never_told(
    store: Path, clock: ManualClock, statement: str
) -> None:
    damage(store, statement)

    async with opened(store, clock) as log:
        for read in (
            partial(read_events, seqs=[1, 3]),
            partial(read_user, user=KEYS.user("alice")),
        ):
            with pytest.raises(LogDamaged, match="words of the event at seq 1") as caught:
                await log.read(read)
            assert "private" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
        assert len(await log.read(partial(read_events, seqs=[3, 4]))) == 2


async def test_a_page_that_is_no_page_any_more_is_said_to_be_unreadable(store: Path, clock: ManualClock) -> None:
    spoil_page(store, *stored_rows(store, "SELECT rootpage FROM sqlite_master WHERE name = 'words'")[0])

    async with opened(store, clock) as log:
        with pytest.raises(StoreUnusable, match="could not be read: SQLITE_CORRUPT"):
            await log.read(partial(read_events, seqs=[1]))


def spoil_page(path: Path, page: int, size: int = 4096) -> None:
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\x7f" * size
    path.write_bytes(content)
