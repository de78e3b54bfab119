from __future__ import annotations

import random
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from events import erasure
from events.envelope import NewEvent
from events.erasure import (
    SLICE_EVENTS,
    ErasureCounts,
    Unerased,
    count_erased,
    count_voided,
    erase_slice,
    read_unerased,
    truncate_wal,
)
from events.errors import StoreUnusable
from events.gate import Verdict
from events.log import READERS, EventLog
from events.reading import read_user
from events.registry import read_sessions, read_waiting_sessions
from events.session import SessionErased
from tests.builders import (
    KEYS,
    MONDAY,
    SECRET,
    ManualClock,
    a_batch,
    a_closing,
    a_dead_letter,
    a_forgetting,
    a_summary,
    a_turn,
    an_erasure,
    an_extraction,
    seeded_nonces,
)
from tests.stored import stored_bytes, stored_rows, stored_tables

S1 = KEYS.session("alice", "s1")
# What is never erased: the events themselves and what is counted of them.
TEXTS = ("words", "names", "letters")


async def erase(log: EventLog, session: bytes = S1) -> int:
    """Erase to the end; the number of slices it took."""
    slices = 1
    while not await log.write(partial(erase_slice, subject=session)):
        slices += 1
    assert await log.write(truncate_wal)
    return slices


async def counts(log: EventLog, session: bytes = S1) -> ErasureCounts:
    return await log.read(partial(count_erased, subject=session))


async def fill(log: EventLog) -> None:
    """Two sessions of alice and one of bob, an answer about s1, one about both, one about s2."""
    await log.append(
        a_batch(
            a_turn("private one", session_id="s1", turn_id="turn-p1", name=None),
            a_turn("kept one", session_id="s2", turn_id="k1"),
            a_turn("private two", session_id="s1", turn_id="turn-p2", name=None),
            a_turn("kept bob", user_id="bob", session_id="s1"),
            an_extraction((1, 3), ("private fact",), session_id="s1"),
            a_summary("private summary of both", ("s1", "s2"), node="both"),
            a_summary("kept summary", ("s2",), node="s2"),
            a_closing("s1"),
            letters=(
                a_dead_letter(b"private letter", seq=1),
                a_dead_letter(b"kept letter", seq=2, session_id="s2"),
                a_dead_letter(b"kept letter of nobody", seq=3, user_id=None, session_id=None),
            ),
        )
    )


async def test_exactly_what_came_from_the_session_goes_and_all_else_is_the_same_to_the_byte(
    log: EventLog, log_path: Path
) -> None:
    await fill(log)
    await log.append_event(a_forgetting("s1"))
    before = stored_tables(log_path)
    await erase(log)
    after = stored_tables(log_path)

    counted = {"sessions", "turns", "erasures", "unwanted"}
    assert {name for name in before if before[name] != after[name]} == {*TEXTS, *counted}
    assert [row[1] for row in after["turns"]] == [row[1] for row in before["turns"] if row[1] != S1]
    gone = [row for row in after["words"] if row[3] is None]
    kept = [row for row in after["words"] if row[3] is not None]
    assert sorted({row[0] for row in gone}) == [1, 3, 5, 6]
    assert {row[2] for row in gone} == {b""}
    assert kept == [row for row in before["words"] if row[0] not in (1, 3, 5, 6)]
    lost = {
        before_row[2] for before_row, row in zip(before["names"], after["names"], strict=True) if row != before_row
    }
    assert lost == {
        b"s1",
        b"turn/alice/s1/turn-p1/0",
        b"turn/alice/s1/turn-p2/0",
        b"extraction/alice/s1/(1, 3)",
        b"summary/alice/both",
        b"close/alice/s1/1",
        b"forget/alice/s1",
    }
    assert [row[5] for row in after["letters"]] == [None, b"kept letter", b"kept letter of nobody"]
    taken = ErasureCounts(words=3 + 3 + 2 + 2, names=7, dead_letters=1, bus_erased=0, bus_left=1)
    assert await counts(log) == taken
    forgotten = Unerased(KEYS.user("alice"), S1, forgotten=8)
    assert await log.read(read_unerased) == (forgotten,)
    assert await log.read(partial(count_voided, erased=forgotten)) == {
        "turn.recorded": (2, 1, 3), "facts.extracted": (1, 4, 4), "interval.summarised": (1, 5, 5),
        "session.closed": (1, 7, 7),
    }  # fmt: skip


async def test_an_erased_event_keeps_its_place_and_the_chain_still_verifies(log: EventLog) -> None:
    await fill(log)
    await log.append_event(a_forgetting("s1"))
    await erase(log)
    await log.append_event(a_turn("kept two", session_id="s2", turn_id="k2"))

    events = await log.read(partial(read_user, user=KEYS.user("alice")))
    assert [each.user_seq for each in events] == list(range(1, 10))
    assert [each.user_seq for each in events if each.event is None] == [1, 3, 4, 5]
    assert {each.session_id for each in events if each.session == S1} == {None}
    assert {each.user_id for each in events} == {"alice"}


async def test_nothing_of_the_session_is_left_in_the_files(log: EventLog, log_path: Path) -> None:
    await fill(log)
    await log.append_event(a_forgetting("s1"))
    assert b"private" in stored_bytes(log_path)
    await erase(log)

    left = stored_bytes(log_path)
    for text in (b"private", b"alice/s1", b"alice.s1", b"turn-p1", b"turn-p2", b"Alice moved to Miami"):
        assert text not in left
    for text in (b"kept one", b"kept bob", b"kept summary", b"kept letter", b"turn/bob/s1"):
        assert text in left


@pytest.mark.parametrize("seed", range(3))
async def test_no_copy_stays_in_pages_that_sqlite_has_split_and_balanced(
    log: EventLog, log_path: Path, seed: int
) -> None:
    """secure_delete clears freed cells, not the copies that remain when cells move to another page."""
    chance = random.Random(seed)
    sessions = [f"session-{n}" for n in range(8)]
    todo = [(session, n) for session in sessions for n in range(120)]
    chance.shuffle(todo)
    while todo:
        size = chance.choice([1, 7, 60, 250])
        part, todo = todo[:size], todo[size:]
        await log.append(
            a_batch(
                *(
                    a_turn(
                        f"said in {session}: {'x' * chance.choice([0, 9, 99, 999, 9999])}",
                        session_id=session,
                        turn_id=f"{n}",
                        name=f"name in {session}",
                    )
                    for session, n in part
                ),
                letters=tuple(
                    a_dead_letter(f"letter of {session}".encode(), seq=len(todo) * 300 + n, session_id=session)
                    for n, (session, _) in enumerate(part[:5])
                ),
            )
        )
    for session in chance.sample(sessions, 4):
        await log.append_event(a_forgetting(session))
        await erase(log, KEYS.session("alice", session))

        found = stored_bytes(log_path).count(session.encode())
        assert found == 0, f"seed {seed}: {found} copies of {session} are left"


async def test_erasing_in_slices_may_stop_after_any_of_them(
    log_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "SLICE_EVENTS", 2)
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    await fill(log)
    await log.append_event(a_forgetting("s1"))
    slices = 0
    done = False
    seen: list[ErasureCounts] = []
    while not done:
        done = await log.write(partial(erase_slice, subject=S1))
        seen.append(await counts(log))
        slices += 1
        await log.close()
        log = await EventLog.open(log_path, clock, seeded_nonces(1))
        assert await log.read(read_unerased) == (Unerased(KEYS.user("alice"), S1, 8),)
    await log.write(partial(erase_slice, subject=S1))  # stopped before the receipt: once more
    again = await counts(log)
    await log.close()

    assert slices == 3
    assert [each.words for each in seen] == [6, 10, 10]
    assert again == seen[-1] == ErasureCounts(words=10, names=7, dead_letters=1, bus_erased=0, bus_left=1)


@pytest.mark.parametrize("turns", [0, 1, SLICE_EVENTS - 1, SLICE_EVENTS, SLICE_EVENTS + 1])
async def test_a_slice_holds_so_many_events_and_no_session_is_too_small_or_too_large(
    log: EventLog, turns: int
) -> None:
    await log.append(a_batch(*(a_turn(turn_id=f"t{n}") for n in range(turns))))
    await log.append_event(a_forgetting())

    assert await erase(log) == turns // SLICE_EVENTS + 1
    assert (await counts(log)).words == turns * 4


async def test_turns_come_in_between_slices(log: EventLog) -> None:
    await log.append(a_batch(*(a_turn(turn_id=f"t{n}") for n in range(SLICE_EVENTS + 5))))
    await log.append_event(a_forgetting())

    assert not await log.write(partial(erase_slice, subject=S1))
    assert (await log.append_event(a_turn(session_id="s2"))).verdict is Verdict.RECORDED
    assert (await log.append_event(a_turn(turn_id="late"))).verdict is Verdict.REFUSED
    assert await log.write(partial(erase_slice, subject=S1))


async def test_the_receipt_ends_the_erasing_without_bringing_the_name_back(log: EventLog, log_path: Path) -> None:
    await fill(log)
    await log.append_event(a_forgetting("s1"))
    await erase(log)
    await log.append_event(a_receipt(await counts(log)))

    assert await log.read(read_unerased) == ()
    assert stored_rows(log_path, "SELECT text FROM names WHERE reference = ?", S1) == [(None,)]
    (session,) = await log.read(partial(read_sessions, user=KEYS.user("alice"), session=S1))
    assert (session.session_id, session.state, session.bytes, session.first_at) == (None, "forgotten", 0, None)
    assert [each.session_id for each in await log.read(read_waiting_sessions)] == ["s2", "s1"]  # bob's s1


def a_receipt(taken: ErasureCounts) -> NewEvent:
    return NewEvent(
        user_id="alice",
        session_id=None,
        session=S1,
        event=SessionErased(8, an_erasure(words=taken.words, names=taken.names)),
        key=f"erased/{S1.hex()}/8",
        happened_at=MONDAY,
    )


async def test_what_was_erased_is_known_by_its_key_and_never_comes_back(log: EventLog, log_path: Path) -> None:
    turn = a_turn("private one")
    await log.append(a_batch(turn, a_closing(), a_forgetting()))
    await erase(log)

    again = [
        turn,
        replace(a_turn("private other words")),
        a_closing(),
        a_forgetting(),
        a_forgetting(key="private"),
    ]
    outcomes = [(await log.append_event(each)).verdict for each in again]
    assert outcomes == [Verdict.REFUSED] * 3 + [Verdict.DUPLICATE] * 2
    assert (await log.append_event(a_turn("private three", turn_id="t3"))).verdict is Verdict.REFUSED
    assert b"private" not in stored_bytes(log_path)


async def test_the_sessions_of_one_name_of_two_users_are_erased_apart(log: EventLog, log_path: Path) -> None:
    await log.append(a_batch(a_turn("private"), a_turn("kept", user_id="bob"), a_forgetting("s1")))
    await erase(log)

    assert b"private" not in stored_bytes(log_path)
    (bob,) = await log.read(partial(read_user, user=KEYS.user("bob")))
    assert bob.event is not None
    assert bob.session_id == "s1"


async def test_freed_bytes_are_overwritten_on_every_connection_that_writes(log: EventLog, log_path: Path) -> None:
    assert await log.write(lambda db: db.execute("PRAGMA secure_delete").fetchone()) == (1,)
    assert await log.write(lambda db: db.execute("PRAGMA temp_store").fetchone()) == (2,)
    assert await log.read(lambda db: db.execute("PRAGMA temp_store").fetchone()) == (2,)


async def test_a_slice_that_fails_changes_nothing(log: EventLog, log_path: Path) -> None:
    await fill(log)
    await log.append_event(a_forgetting("s1"))
    before = stored_tables(log_path)

    def fail_at_the_end(db: sqlite3.Connection) -> bool:
        db.execute("CREATE TEMP TRIGGER no BEFORE UPDATE ON main.sessions BEGIN SELECT RAISE(FAIL, 'no'); END")
        try:
            return erase_slice(db, S1)
        finally:
            db.execute("DROP TRIGGER no")

    with pytest.raises(StoreUnusable, match="could not be written"):
        await log.write(fail_at_the_end)
    assert stored_tables(log_path) == before


def run(db: sqlite3.Connection, statement: str) -> None:
    db.execute(statement).fetchone()


async def test_a_reader_in_the_way_keeps_the_log_from_being_emptied_and_the_writer_for_a_moment_only(
    log: EventLog,
) -> None:
    await log.append_event(a_turn())
    for statement in ("BEGIN", "SELECT count(*) FROM events"):
        for _ in range(READERS):
            await log.read(partial(run, statement=statement))
    await log.append_event(a_turn(turn_id="t2"))

    assert not await log.write(truncate_wal)
    assert await log.write(lambda db: db.execute("PRAGMA busy_timeout").fetchone()) == (250,)
    for _ in range(READERS):
        await log.read(partial(run, statement="COMMIT"))
    assert await log.write(truncate_wal)
