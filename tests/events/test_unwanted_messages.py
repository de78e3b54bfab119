"""Messages on the bus that must go: each belongs to one erasing, and that one's receipt counts it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from events.bus_copies import count_unwanted, note_unwanted, read_unwanted, read_unwanted_subjects, settle_unwanted
from events.envelope import BusPosition, NewEvent, Reference
from events.erasure import count_erased, erase_retracted, erase_slice
from events.gate import Verdict
from events.log import EventLog
from tests.builders import (
    KEYS,
    a_batch,
    a_dead_letter,
    a_forgetting,
    a_place,
    a_retraction,
    a_turn,
    a_user_forgetting,
)

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")


async def erase(log: EventLog, subject: Reference) -> None:
    while not await log.write(partial(erase_slice, subject=subject)):
        pass


async def forget(log: EventLog, wish: NewEvent, subject: Reference) -> None:
    """The wish is recorded, and done as far as the tables go."""
    await log.append_event(wish)
    await erase(log, subject)


async def append(log: EventLog, new: NewEvent) -> Verdict:
    return (await log.append_event(new)).verdict


async def unwanted(log: EventLog, subject: Reference | None) -> list[int]:
    """The sequences of the messages that are of one erasing."""
    return [place.seq for place in await log.read(partial(read_unwanted, subject=subject))]


async def test_the_message_of_a_retracted_turn_is_of_the_session_once_that_is_forgotten(log: EventLog) -> None:
    await log.append(a_batch(a_turn(bus=a_place(1)), a_retraction()))
    await log.write(erase_retracted)
    before = await unwanted(log, None)
    await forget(log, a_forgetting(), S1)

    assert before == [1]
    assert (await unwanted(log, None), await unwanted(log, S1)) == ([], [1])
    assert (await log.read(partial(count_erased, subject=S1))).bus_left == 1


async def test_a_message_that_the_bus_kept_of_a_session_is_of_the_user_once_that_is_forgotten(
    log: EventLog,
) -> None:
    await log.append_event(a_turn(bus=a_place(1)))
    await forget(log, a_forgetting(), S1)
    before = await unwanted(log, S1)
    await forget(log, a_user_forgetting(), ALICE)

    assert before == [1]
    assert (await unwanted(log, S1), await unwanted(log, ALICE)) == ([], [1])
    assert (await log.read(partial(count_erased, subject=ALICE))).bus_left == 1


async def test_no_retraction_takes_a_message_from_a_forgetting(log: EventLog) -> None:
    await forget(log, a_forgetting(), S1)
    for subject in (S1, None):
        await log.write(partial(note_unwanted, place=a_place(1), subject=subject))

    assert (await unwanted(log, None), await unwanted(log, S1)) == ([], [1])


@pytest.mark.parametrize(
    ("wish", "subject"), [(a_forgetting(), S1), (a_user_forgetting(), ALICE)], ids=["session", "user"]
)
async def test_a_late_message_of_what_was_forgotten_is_left_until_it_is_deleted(
    log: EventLog, wish: NewEvent, subject: Reference
) -> None:
    await log.append_event(a_turn())
    await forget(log, wish, subject)
    late = a_turn("late words", turn_id="t2", bus=a_place(2))
    letter = a_dead_letter(b"late words", seq=3)
    verdict = await append(log, late)
    await log.append(a_batch(letters=(letter,)))
    left = await log.read(partial(count_erased, subject=subject))
    await log.write(partial(settle_unwanted, subject=subject, gone=[a_place(2), a_place(3)]))
    after = await log.read(partial(count_erased, subject=subject))

    assert verdict is Verdict.REFUSED
    assert (left.bus_left, left.bus_erased) == (2, 0)
    assert (after.bus_left, after.bus_erased) == (0, 2)


@pytest.mark.parametrize(
    ("wish", "subject"), [(a_forgetting(), S1), (a_user_forgetting(), ALICE)], ids=["session", "user"]
)
async def test_a_wish_that_is_published_twice_leaves_no_message_that_names_the_forgotten(
    log: EventLog, wish: NewEvent, subject: Reference
) -> None:
    await log.append_event(a_turn(bus=a_place(1)))
    await forget(log, replace(wish, bus=a_place(2)), subject)
    again = await append(log, replace(wish, bus=a_place(3)))

    assert again is Verdict.DUPLICATE
    assert await unwanted(log, subject) == [1, 2, 3]


async def test_a_wish_for_a_session_whose_user_is_forgotten_already_is_of_the_user(log: EventLog) -> None:
    await log.append_event(a_turn(bus=a_place(1)))
    await forget(log, a_user_forgetting(), ALICE)

    assert await append(log, replace(a_forgetting(), bus=a_place(2))) is Verdict.DUPLICATE
    assert await unwanted(log, ALICE) == [1, 2]


async def test_messages_are_read_page_by_page_behind_those_that_the_bus_keeps(log: EventLog) -> None:
    places = [BusPosition(stream, epoch, seq) for stream in "AB" for epoch in ("e1", "e2") for seq in (1, 20, 3)]
    for place in places:
        await log.write(partial(note_unwanted, place=place, subject=None))
    pages: list[list[BusPosition]] = []
    after: BusPosition | None = None
    while page := await log.read(partial(read_unwanted, subject=None, after=after, limit=5)):
        pages.append(page)
        after = page[-1]

    assert [len(page) for page in pages] == [5, 5, 2]
    assert [place for page in pages for place in page] == sorted(places, key=lambda p: (p.stream, p.epoch, p.seq))


async def test_what_a_receipt_left_is_known_as_such_and_what_an_erasing_works_on_is_not(log: EventLog) -> None:
    await log.append_event(a_turn(bus=a_place(1)))
    await forget(log, a_forgetting(), S1)
    under_way = await log.read(count_unwanted), await log.read(read_unwanted_subjects)
    await log.write(lambda db: db.execute("UPDATE erasures SET erased = 3"))

    assert under_way == (0, [])
    assert (await log.read(count_unwanted), await log.read(read_unwanted_subjects)) == (1, [S1])
