"""Erasing what retractions, forgotten users and tombstones from elsewhere took: these words and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from events.envelope import NewEvent
from events.erasure import (
    Unerased,
    count_voided,
    erase_retracted,
    erase_slice,
    has_emptied,
    has_retracted,
    read_unerased,
    settle_retracted,
    truncate_wal,
)
from events.gate import Verdict
from events.log import EventLog
from events.reading import read_user
from events.registry import knows_session, knows_user, read_sessions, read_user_references, read_users
from events.tombstones import Tombstone, plant_tombstones, read_own_tombstones, read_planted, read_tombstone
from tests.builders import (
    KEYS,
    MONDAY,
    a_batch,
    a_closing,
    a_dead_letter,
    a_forgetting,
    a_merge,
    a_place,
    a_retraction,
    a_revision,
    a_summary,
    a_turn,
    a_user_forgetting,
    an_extraction,
)
from tests.stored import stored_bytes, stored_rows, stored_tables

ALICE, BOB = KEYS.user("alice"), KEYS.user("bob")
S1, S2 = KEYS.session("alice", "s1"), KEYS.session("alice", "s2")
MARKER = b"zqx"


async def erase_turns(log: EventLog) -> None:
    while await log.write(erase_retracted):
        pass
    assert await log.read(has_emptied)
    assert await log.write(truncate_wal)
    await log.write(settle_retracted)


async def erase(log: EventLog, subject: bytes) -> None:
    while not await log.write(partial(erase_slice, subject=subject)):
        pass
    assert await log.write(truncate_wal)


async def verdicts(log: EventLog, *events: NewEvent) -> list[Verdict]:
    return [(await log.append_event(each)).verdict for each in events]


async def fill(log: EventLog) -> None:
    """Two turns of s1, the first in two wordings and with a conflict, what was made of both, and of the second."""
    await log.append(
        a_batch(
            a_turn("zqx one", turn_id="zqx1", name="zqx name"),
            a_turn("kept turn", turn_id="k2", session_id="s2"),
            a_revision("zqx two", turn_id="zqx1"),
        )
    )
    await log.append_event(a_revision("zqx not two", turn_id="zqx1", bus=a_place(9)))  # 4, a conflict
    await log.append_event(replace(an_extraction((3,), ("zqx fact",), covers=(1,), basis=4), key="zqx extraction"))
    await log.append_event(an_extraction((2,), ("kept fact",), session_id="s2", basis=5))
    await log.append_event(a_summary("zqx of both", ("s1", "s2"), node="zqx", sources=(3, 2), basis=6))
    await log.append_event(a_summary("kept summary", ("s1", "s2"), node="kept", sources=(2,), basis=7))
    await log.append_event(a_merge("zqx group", ("s1", "s2"), sources=(5, 6), basis=8))
    await log.append_event(a_merge("kept group", ("s1", "s2"), sources=(6,), basis=9))


def words_of(path: Path, seqs: Sequence[int]) -> list[tuple[object, ...]]:
    marks = ",".join("?" * len(seqs))
    return stored_rows(path, f"SELECT * FROM words WHERE seq IN ({marks}) ORDER BY seq, n", *seqs)


async def test_what_was_taken_back_is_in_no_file_and_what_was_not_made_of_it_is_the_same_to_the_byte(
    log: EventLog, log_path: Path
) -> None:
    await fill(log)
    kept = (2, 6, 8, 10)
    before, events = words_of(log_path, kept), stored_rows(log_path, "SELECT * FROM events ORDER BY seq")
    assert MARKER in stored_bytes(log_path)
    await log.append_event(replace(a_retraction("zqx1"), key="retract/1"))
    assert await log.read(has_retracted)
    await erase_turns(log)

    assert stored_bytes(log_path).count(MARKER) == 0
    assert words_of(log_path, kept) == before
    assert {row[2:] for row in words_of(log_path, (1, 3, 4, 5, 7, 9))} == {(b"", None)}
    assert stored_rows(log_path, "SELECT * FROM events ORDER BY seq")[:-1] == events, "the chain covers the rest"
    assert not await log.read(has_retracted)


async def test_events_whose_words_were_taken_back_keep_their_place_and_the_chain_verifies(log: EventLog) -> None:
    await fill(log)
    await log.append_event(a_retraction("zqx1"))
    await erase_turns(log)

    events = await log.read(partial(read_user, user=ALICE))
    assert [each.user_seq for each in events if each.event is None] == [1, 3, 4, 5, 7, 9]
    assert {each.session_id for each in events if each.session == S1} == {"s1"}, "the session is still there"


async def test_what_is_erased_stays_refused(log: EventLog, log_path: Path) -> None:
    turn = a_turn("zqx one", turn_id="t9")
    await log.append(a_batch(turn, replace(a_retraction("t9"), key="r")))
    await erase_turns(log)

    assert await verdicts(log, turn, a_revision("zqx", turn_id="t9")) == [Verdict.REFUSED] * 2
    assert MARKER not in stored_bytes(log_path)


async def test_a_session_that_is_forgotten_after_a_retraction_goes_with_it(log: EventLog, log_path: Path) -> None:
    await fill(log)
    await log.append(a_batch(replace(a_retraction("zqx1"), key="zqx retraction"), a_forgetting()))
    await erase_turns(log)
    await erase(log, S1)

    assert MARKER not in stored_bytes(log_path)
    assert b"kept summary" not in stored_bytes(log_path), "its lineage names the session"
    assert b"kept turn" in stored_bytes(log_path)


async def test_a_session_of_retractions_alone_is_known_and_can_be_forgotten(log: EventLog, log_path: Path) -> None:
    await log.append_event(a_retraction("zqx", "zqx-session"))
    session = KEYS.session("alice", "zqx-session")
    assert await log.read(partial(knows_session, session=session))
    await log.append_event(a_forgetting("zqx-session"))
    await erase(log, session)

    assert MARKER not in stored_bytes(log_path)


async def fill_users(log: EventLog) -> None:
    """zqx says things in two sessions, and so does bob."""
    for user_id, marker in (("zqx", "zqx"), ("bob", "kept")):
        await log.append(
            a_batch(
                a_turn(
                    f"{marker} one", user_id=user_id, session_id=f"{marker}1", name=None, bus=a_place(len(marker))
                ),
                a_turn(f"{marker} two", user_id=user_id, session_id=f"{marker}2", turn_id="t2", name=None),
                a_closing(f"{marker}1", user_id=user_id),
                a_summary(f"{marker} summary", (f"{marker}1", f"{marker}2"), user_id=user_id),
                letters=(a_dead_letter(f"{marker} letter".encode(), seq=len(user_id), user_id=user_id),),
            )
        )


async def test_a_forgotten_user_goes_with_every_session_and_the_name_and_others_stay_to_the_byte(
    log: EventLog, log_path: Path
) -> None:
    await fill_users(log)
    user = KEYS.user("zqx")
    before = stored_tables(log_path)
    outcome = await log.append_event(a_user_forgetting("zqx"))
    forgotten = Unerased(user, user, forgotten=5)
    assert outcome.user_seq == 5
    assert await log.read(read_unerased) == (forgotten,)
    await erase(log, user)

    assert stored_bytes(log_path).count(MARKER) == 0
    after = stored_tables(log_path)
    for table in ("words", "names", "letters", "users", "sessions", "turns"):
        bobs = [row for row in before[table] if b"kept" in repr(row).encode() or BOB in row]
        assert [row for row in after[table] if row in bobs] == bobs
    assert await log.read(partial(count_voided, erased=forgotten)) == {
        "turn.recorded": (2, 1, 2), "session.closed": (1, 3, 3), "interval.summarised": (1, 4, 4),
    }  # fmt: skip
    assert [each.user_id for each in await log.read(read_users)] == ["bob"]
    assert await log.read(read_user_references) == (BOB,)
    assert not await log.read(partial(knows_user, user=user))


async def test_sessions_of_a_forgotten_user_that_never_had_a_turn_lose_their_names_too(
    log: EventLog, log_path: Path
) -> None:
    await log.append(
        a_batch(
            a_retraction("t1", "zqx-of-a-retraction"),
            letters=(a_dead_letter(b"zqx", seq=3, session_id="zqx-of-a-letter"),),
        )
    )
    await log.append_event(a_user_forgetting())
    await erase(log, ALICE)

    assert MARKER not in stored_bytes(log_path)


async def test_nothing_of_a_forgotten_user_is_taken_any_more(log: EventLog, log_path: Path) -> None:
    await log.append(a_batch(a_turn("zqx"), a_turn("kept", user_id="bob"), a_user_forgetting()))
    late = [
        a_turn("zqx", bus=a_place(7)), a_turn("zqx new", session_id="s9", bus=a_place(8)), a_revision("zqx"),
        a_retraction(), a_closing(), a_summary("zqx", sources=(1,)), an_extraction((1,), ("zqx",)),
    ]  # fmt: skip

    assert await verdicts(log, *late) == [Verdict.REFUSED] * len(late)
    assert await verdicts(log, a_user_forgetting(), a_forgetting(), a_forgetting("s9")) == [Verdict.DUPLICATE] * 3
    assert await verdicts(log, a_turn("more", user_id="bob", turn_id="t2")) == [Verdict.RECORDED]
    assert stored_rows(log_path, "SELECT seq FROM unwanted ORDER BY seq") == [(7,), (8,)]
    await log.append(a_batch(letters=(a_dead_letter(b"zqx", seq=12),), read_to=12))
    assert stored_rows(log_path, "SELECT count(*) FROM letters") == [(0,)]


async def test_a_tombstone_from_elsewhere_closes_the_gate_before_anything_is_recorded(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(a_turn("old"), a_turn(user_id="bob")))
    planted = [
        Tombstone(S1, ALICE, MONDAY),
        Tombstone(S2, ALICE, MONDAY),
        Tombstone(None, KEYS.user("eve"), MONDAY),
    ]

    assert await log.write(partial(plant_tombstones, tombstones=planted)) == 3
    assert await log.write(partial(plant_tombstones, tombstones=planted)) == 0
    refused = [a_turn("zqx", turn_id="t2"), a_turn("zqx", session_id="s2"), a_turn("zqx", user_id="eve")]
    assert await verdicts(log, *refused) == [Verdict.REFUSED] * 3
    assert (
        await verdicts(log, a_turn(session_id="s3"), a_turn(user_id="bob", turn_id="t2")) == [Verdict.RECORDED] * 2
    )
    assert await log.read(read_planted) == (planted[0],), "of the others nothing is here"
    assert set(await log.read(read_own_tombstones)) == set(planted)
    assert MARKER not in stored_bytes(log_path)


async def test_a_tombstone_becomes_a_forgetting_and_is_not_planted_again(log: EventLog) -> None:
    await log.append_event(a_turn())
    tombstone = Tombstone(S1, ALICE, MONDAY - 5)
    await log.write(partial(plant_tombstones, tombstones=[tombstone]))
    by_reference = replace(a_forgetting(key="tombstone"), user_id=None, session_id=None, user=ALICE, session=S1)
    assert await verdicts(log, by_reference) == [Verdict.RECORDED]

    assert await log.read(read_planted) == ()
    assert await log.write(partial(plant_tombstones, tombstones=[tombstone])) == 0
    assert await log.read(read_unerased) == (Unerased(ALICE, S1, 2),)
    assert await log.read(partial(read_tombstone, subject=S1)) == Tombstone(S1, ALICE, MONDAY)
    (session,) = await log.read(partial(read_sessions, user=ALICE))
    assert session.state == "forgotten"
