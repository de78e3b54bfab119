"""What stands in the file against what the chain and the commitments say it is."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from events import integrity
from events.envelope import RecordedEvent, commit_to
from events.erasure import erase_slice
from events.errors import LogDamaged, StoreUnusable
from events.integrity import (
    CHAIN,
    COMMITMENT,
    LAST,
    MISSING,
    RUNNING,
    STRUCTURE,
    UNREADABLE,
    WORDS_MISSING,
    Damage,
    Walk,
    check_start,
    check_structure,
    describe,
    needs_structure_check,
)
from events.log import EventLog, LogReader
from events.reading import read_events, read_user
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_forgetting, a_turn, seeded_nonces
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


async def walked(path: Path, last_events: int | None = None) -> list[Damage]:
    """What a walk finds through a read-only connection."""
    reader = await LogReader.open_to_read(path)
    walk = Walk()
    try:
        await reader.read(partial(walk.begin, last_events=last_events))
        while not await reader.read(walk.step):
            pass
    finally:
        await reader.close()
    return walk.damages


@pytest.fixture(scope="module")
def large_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 turns of three users in turn: user_seq = (seq + 2) // 3."""
    path = tmp_path_factory.mktemp("large") / "events.db"

    async def grow() -> None:
        async with opened(path, ManualClock()) as log:
            users = ("alice", "bob", "carol")
            for start in range(0, 1500, 250):
                turns = (a_turn(user_id=users[n % 3], turn_id=f"t{n}") for n in range(start, start + 250))
                await log.append(a_batch(*turns))

    anyio.run(grow)
    return path


@pytest.fixture
def large(large_once: Path, log_path: Path) -> Path:
    """A copy of it to be damaged."""
    return Path(shutil.copy(large_once, log_path))


async def test_a_walk_over_a_sound_log_finds_nothing(large: Path) -> None:
    assert await walked(large) == []
    assert await walked(large, last_events=700) == []


async def test_a_walk_names_every_damaged_event_and_not_only_the_first(large: Path) -> None:
    damage(large, "UPDATE events SET happened_at = 1 WHERE seq IN (10, 1200)")
    damage(large, "UPDATE words SET text = x'41' WHERE seq = 20 AND n = 0")
    damage(large, "UPDATE words SET text = NULL WHERE seq = 30")
    damage(large, "UPDATE words SET nonce = zeroblob(16) WHERE seq = 601")
    damage(large, "UPDATE events SET body = x'7b7d' WHERE seq = 700")

    assert await walked(large) == [
        Damage(CHAIN, 10, 4),
        Damage(COMMITMENT, 20, 7),
        Damage(WORDS_MISSING, 30, 10),
        Damage(COMMITMENT, 601, 201),
        Damage(CHAIN, 700, 234),
        Damage(CHAIN, 1200, 400),
    ]


async def test_a_changed_chain_names_its_own_event_and_not_the_next_one(large: Path) -> None:
    damage(large, "UPDATE events SET chain = zeroblob(32) WHERE seq = 10")

    assert await walked(large) == [Damage(CHAIN, 10, 4), Damage(RUNNING)]


async def test_missing_events_are_named_with_their_place_also_at_the_end(large: Path) -> None:
    damage(large, "DELETE FROM events WHERE seq IN (4, 5, 900, 1500)")

    assert await walked(large) == [
        Damage(MISSING, 4),  # of alice or of bob: nothing tells which of the two
        Damage(MISSING, 5),
        Damage(MISSING, 900, 300),
        Damage(MISSING, 1500, 500),
        Damage(RUNNING),
    ]


async def test_an_event_given_to_another_user_is_named_once(large: Path) -> None:
    damage(large, "UPDATE events SET user = zeroblob(16) WHERE seq = 31")

    assert await walked(large) == [Damage(CHAIN, 31, 11)]


async def test_a_head_or_a_user_that_says_otherwise_is_named(large: Path) -> None:
    damage(large, "UPDATE users SET chain = zeroblob(32) WHERE user = ?", KEYS.user("bob"))
    damage(large, "UPDATE head SET running = zeroblob(32)")

    assert await walked(large) == [Damage(RUNNING), Damage(LAST, 1499, 500)]


async def test_an_unreadable_page_names_the_events_on_it_and_the_others_are_still_looked_at(large: Path) -> None:
    damage(large, "UPDATE events SET happened_at = 1 WHERE seq = 1490")
    spoil_page(large, page_with(large, "SELECT chain FROM events WHERE seq = 750"))
    found = await walked(large)

    unreadable = [each.seq for each in found if each.check == UNREADABLE]
    assert unreadable
    assert unreadable == list(range(min(map(int, unreadable)), max(map(int, unreadable)) + 1))  # type: ignore[arg-type]
    assert {each.check for each in found} == {UNREADABLE, CHAIN, RUNNING}
    assert [each for each in found if each.check == CHAIN] == [Damage(CHAIN, 1490, 497)]
    assert any(sentence.startswith(f"each event from seq {unreadable[0]} to ") for sentence in describe(found))


async def test_an_unreadable_page_of_words_names_its_events_too(large: Path) -> None:
    spoil_page(large, page_with(large, "SELECT nonce FROM words WHERE seq = 750 AND n = 0"))
    found = await walked(large)

    assert found
    assert {each.check for each in found} == {UNREADABLE}
    assert all(each.user_seq == (each.seq + 2) // 3 for each in found if each.seq)


async def test_words_that_were_erased_are_no_damage(large: Path, clock: ManualClock) -> None:
    async with opened(large, clock) as log:
        await log.append(a_batch(a_forgetting(user_id="bob")))
        while not await log.write(partial(erase_slice, subject=KEYS.session("bob", "s1"))):
            pass

    assert stored_rows(large, "SELECT count(*) FROM words WHERE text IS NULL")[0][0] > 500
    assert await walked(large) == []


async def test_a_start_looks_at_the_end_of_the_log_and_at_its_structure(large: Path) -> None:
    async def start() -> None:
        reader = await LogReader.open_to_read(large)
        try:
            await reader.read(check_start)
        finally:
            await reader.close()

    await start()
    damage(large, "UPDATE events SET happened_at = 1 WHERE seq = 10")
    await start()  # `doctor --deep` and whoever reads alice finds that one
    damage(large, "UPDATE events SET happened_at = 1 WHERE seq IN (501, 1500)")
    with pytest.raises(
        LogDamaged, match=r"seq 501 \(user_seq 167\) does not match its chain; the event at seq 1500"
    ):
        await start()
    spoil_page(large, page_with(large, "SELECT chain FROM events WHERE seq = 750"))
    with pytest.raises((LogDamaged, StoreUnusable), match=f"{STRUCTURE}|CORRUPT"):
        await start()


async def test_a_large_file_is_looked_at_after_the_start_and_refused_then(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "START_CHECK_BYTES_MAX", 4096)
    spoil_page(large, page_with(large, "SELECT chain FROM events WHERE seq = 50"))
    reader = await LogReader.open_to_read(large)
    try:
        await reader.read(check_start)
        left = await reader.read(needs_structure_check)
        with pytest.raises((LogDamaged, StoreUnusable), match=f"{STRUCTURE}|CORRUPT"):
            await reader.read(check_structure)
    finally:
        await reader.close()

    assert left


async def test_a_check_of_the_structure_ends_when_nobody_waits_for_it_any_more(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "_STEPS", 1)
    spoil_page(large, page_with(large, "SELECT chain FROM events WHERE seq = 50"))
    reader = await LogReader.open_to_read(large)
    try:
        await reader.read(partial(check_structure, given_up=lambda: True))
        head = await reader.read(lambda db: db.execute("SELECT seq FROM head").fetchone()[0])
    finally:
        await reader.close()

    assert head == 1500, "the connection goes on to be used"


def page_with(path: Path, statement: str) -> int:
    """The page that holds the bytes which a statement selects."""
    ((found,),) = stored_rows(path, statement)
    return path.read_bytes().index(found) // 4096 + 1


def spoil_page(path: Path, page: int, size: int = 4096) -> None:
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\x7f" * size
    path.write_bytes(content)
