"""Tombstones from other stores, also such as no store of ours would write."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from events.erasure import Unerased, erase_slice, read_unerased
from events.gate import Verdict
from events.log import EventLog
from events.reading import read_user
from events.tombstones import Tombstone, forget_as_told, plant_tombstones, read_planted
from tests.builders import KEYS, MONDAY, a_turn, a_user_forgetting
from tests.stored import stored_rows

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")
GHOST = KEYS.user("ghost")
NO_SUCH_TIME = 2**63


async def plant(log: EventLog, *tombstones: Tombstone) -> int:
    return await log.write(partial(plant_tombstones, tombstones=tombstones))


async def forget_what_was_planted(log: EventLog) -> None:
    for tombstone in await log.read(read_planted):
        await log.append_event(forget_as_told(tombstone))


async def test_a_tombstone_that_cannot_be_stored_leaves_no_other_and_no_open_transaction(
    log: EventLog, log_path: Path
) -> None:
    with pytest.raises(OverflowError):
        await plant(log, Tombstone(S1, ALICE, MONDAY), Tombstone(None, GHOST, NO_SUCH_TIME))

    assert not await log.write(lambda db: db.in_transaction)
    assert stored_rows(log_path, "SELECT count(*) FROM tombstones") == [(0,)]
    assert (await log.append_event(a_turn())).verdict is Verdict.RECORDED


async def test_an_erasing_that_fails_in_an_unforeseen_way_leaves_no_open_transaction(log: EventLog) -> None:
    """It would stop every turn that comes after it."""
    with pytest.raises(TypeError):
        await log.write(partial(erase_slice, subject=GHOST))

    assert not await log.write(lambda db: db.in_transaction)
    assert (await log.append_event(a_turn())).verdict is Verdict.RECORDED


async def test_a_tombstone_with_a_wrong_user_forgets_the_session_of_the_user_that_is_known_here(
    log: EventLog,
) -> None:
    await log.append_event(a_turn())
    await plant(log, Tombstone(S1, GHOST, MONDAY))
    planted = await log.read(read_planted)
    await forget_what_was_planted(log)

    assert planted == (Tombstone(S1, ALICE, MONDAY),)
    assert await log.read(read_unerased) == (Unerased(ALICE, S1, forgotten=2),)
    types = [each.type for each in await log.read(partial(read_user, user=ALICE))]
    assert types == ["turn.recorded", "session.forgotten"]
    assert await log.read(partial(read_user, user=GHOST)) == []


@pytest.mark.parametrize("user_first", [True, False])
async def test_tombstones_of_a_user_and_of_its_session_are_met_once(
    log: EventLog, log_path: Path, user_first: bool
) -> None:
    told = [Tombstone(None, ALICE, MONDAY), Tombstone(S1, ALICE, MONDAY)]
    await log.append_event(a_turn())
    await plant(log, *(told if user_first else reversed(told)))
    await forget_what_was_planted(log)

    assert await log.read(read_planted) == ()
    assert stored_rows(log_path, "SELECT count(*) FROM tombstones") == [(0,)]
    types = [each.type for each in await log.read(partial(read_user, user=ALICE))]
    assert types == ["turn.recorded", "user.forgotten"]


async def test_the_tombstone_of_a_session_whose_user_was_forgotten_here_is_not_planted(
    log: EventLog, log_path: Path
) -> None:
    await log.append_event(a_turn())
    await log.append_event(a_user_forgetting())

    assert await plant(log, Tombstone(S1, ALICE, MONDAY)) == 0
    assert await log.read(read_planted) == ()
    assert stored_rows(log_path, "SELECT count(*) FROM tombstones") == [(0,)]
