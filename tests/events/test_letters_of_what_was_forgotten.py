"""Dead letters of retracted turns, and what is known by dead letters alone: nothing of it stays."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from events.bus_copies import read_unwanted
from events.dead_letters import DeadLetter
from events.envelope import Reference
from events.erasure import erase_retracted, erase_slice, has_retracted, truncate_wal
from events.log import EventLog
from events.registry import knows_session, knows_user
from events.tombstones import Tombstone, forget_as_told, plant_tombstones, read_planted
from tests.builders import (
    KEYS,
    MONDAY,
    a_batch,
    a_dead_letter,
    a_forgetting,
    a_retraction,
    a_turn,
    a_user_forgetting,
)
from tests.stored import stored_bytes, stored_rows

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")
MARKER = b"zqx"


def a_letter_of(turn_id: str, seq: int) -> DeadLetter:
    """A wording of a turn that could not be read."""
    letter = a_dead_letter(b'{"content": "zqx', seq=seq)
    return replace(letter, key=f"turn/alice/s1/{turn_id}/1", turn=f"turn/alice/s1/{turn_id}/0", message_id="zqx")


async def erase_turns(log: EventLog) -> None:
    while await log.write(erase_retracted):
        pass
    await log.write(truncate_wal)


async def erase(log: EventLog, subject: Reference) -> None:
    while not await log.write(partial(erase_slice, subject=subject)):
        pass
    await log.write(truncate_wal)


async def unwanted(log: EventLog) -> list[int]:
    return [place.seq for place in await log.read(partial(read_unwanted, subject=None))]


async def test_the_dead_letters_of_a_retracted_turn_go_with_it_and_those_of_others_stay(
    log: EventLog, log_path: Path
) -> None:
    kept = replace(a_letter_of("t2", 6), payload=b"kept", message_id=None)
    await log.append(a_batch(a_turn(), letters=(a_letter_of("t1", 5), kept)))
    await log.append_event(a_retraction())
    waits = await log.read(has_retracted)
    await erase_turns(log)

    assert waits
    assert MARKER not in stored_bytes(log_path)
    assert stored_rows(log_path, "SELECT payload FROM dead_letters") == [(b"kept",)]
    assert await unwanted(log) == [5]
    assert not await log.read(has_retracted)


async def test_letters_alone_are_reason_enough_to_erase(log: EventLog, log_path: Path) -> None:
    """The turn never came in a wording that could be read."""
    await log.append(a_batch(letters=(a_letter_of("t1", 5),)))
    await log.append_event(a_retraction())
    waits = await log.read(has_retracted)
    await erase_turns(log)

    assert waits
    assert MARKER not in stored_bytes(log_path)


async def test_a_later_letter_of_a_retracted_turn_is_not_kept_and_its_message_is_unwanted(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(a_turn(), a_retraction()))
    await log.append(a_batch(letters=(a_letter_of("t1", 7),), read_to=7))

    assert stored_rows(log_path, "SELECT count(*) FROM letters") == [(0,)]
    assert stored_rows(log_path, "SELECT seq FROM bus_checkpoint") == [(7,)]
    assert await unwanted(log) == [7]
    assert MARKER not in stored_bytes(log_path)


async def test_a_user_known_by_dead_letters_alone_can_be_forgotten(log: EventLog, log_path: Path) -> None:
    letter = a_dead_letter(b"zqx", user_id="zqx-user", session_id="zqx-session")
    user, session = KEYS.user("zqx-user"), KEYS.session("zqx-user", "zqx-session")
    await log.append(a_batch(letters=(letter,)))
    known = [
        await log.read(partial(knows_user, user=user)),
        await log.read(partial(knows_session, session=session)),
        await log.read(partial(knows_user, user=ALICE)),
    ]
    await log.append_event(a_user_forgetting("zqx-user"))
    await erase(log, user)

    assert known == [True, True, False]
    assert MARKER not in stored_bytes(log_path)
    assert not await log.read(partial(knows_user, user=user))


async def test_a_session_known_by_dead_letters_alone_can_be_forgotten(log: EventLog, log_path: Path) -> None:
    await log.append(a_batch(letters=(a_dead_letter(b"zqx", session_id="zqx-session"),)))
    await log.append_event(a_forgetting("zqx-session"))
    await erase(log, KEYS.session("alice", "zqx-session"))

    assert MARKER not in stored_bytes(log_path)
    assert stored_rows(log_path, "SELECT text FROM names WHERE kind = 'user'") == [(b"alice",)]


async def test_a_tombstone_from_elsewhere_takes_a_session_of_dead_letters_alone(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(letters=(a_dead_letter(b"zqx"), a_dead_letter(b"zqx", seq=2))))
    await log.write(partial(plant_tombstones, tombstones=[Tombstone(S1, ALICE, MONDAY)]))
    (planted,) = await log.read(read_planted)
    await log.append_event(forget_as_told(planted))
    await erase(log, S1)

    assert planted == Tombstone(S1, ALICE, MONDAY)
    assert MARKER not in stored_bytes(log_path)
    assert await log.read(read_planted) == ()


async def test_a_tombstone_from_elsewhere_takes_a_user_of_dead_letters_alone(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(letters=(a_dead_letter(b"zqx"),)))
    await log.write(partial(plant_tombstones, tombstones=[Tombstone(None, ALICE, MONDAY)]))
    (planted,) = await log.read(read_planted)
    await log.append_event(forget_as_told(planted))
    await erase(log, ALICE)

    assert planted == Tombstone(None, ALICE, MONDAY)
    assert MARKER not in stored_bytes(log_path)
