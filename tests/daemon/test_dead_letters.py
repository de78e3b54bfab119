"""`dead_letters.*`: pages, content, a retry that records once, and dropping that leaves no byte."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import msgspec
import pytest

from daemon.bus.bus_messages import BusMessage
from daemon.dead_letters import (
    DeadLetters,
    LetterDropped,
    LetterParams,
    LetterShown,
    LettersParams,
    LetterStillDead,
    LetterUnknown,
)
from daemon.decoders.decoding import Decoder
from daemon.untrusted import LIMIT_MAX
from events.dead_letters import DeadLetter
from events.erasure import truncate_wal
from events.errors import InvalidInput
from events.gate import Verdict
from events.log import EventLog
from events.session import TurnRecorded
from tests.builders import KEYS, MONDAY, a_batch, a_dead_letter, a_forgetting, a_place, a_turn
from tests.daemon.parts_in_use import Parts, event_types, running_forgetter
from tests.stored import stored_bytes, stored_rows

DECODER = Decoder(KEYS, UTC)
SUBJECT = "memforest.turns.alice.s1"


@pytest.fixture
def letters(log: EventLog) -> DeadLetters:
    return DeadLetters(log, DECODER)


def a_message(content: str = "I moved to Miami.", **more: object) -> bytes:
    """A turn that this release reads."""
    turn = {"type": "turn", "user_id": "alice", "session_id": "s1", "role": "user", "content": content}
    return msgspec.json.encode(turn | more)


def a_revivable(payload: bytes, *, seq: int = 1, message_id: str | None = None) -> DeadLetter:
    """What an earlier release could not read, kept as it came."""
    letter = a_dead_letter(payload, seq=seq)
    return replace(letter, published_at=MONDAY + 5, message_id=message_id)


def redelivered(letter: DeadLetter, seq: int | None = None) -> BusMessage:
    """The letter's message as the bus would hand it out again, perhaps at another place."""
    headers = {} if letter.message_id is None else {"Nats-Msg-Id": letter.message_id}
    place = letter.bus
    return BusMessage(letter.subject, letter.payload, headers, place.stream, seq or place.seq, letter.published_at)


async def keep(log: EventLog, *kept: DeadLetter) -> None:
    await log.append(a_batch(letters=kept))


async def listed(letters: DeadLetters, limit: int = 100, after: int = 0) -> tuple[list[int], object]:
    """The ids of a page, and where the next one begins."""
    page = await letters.list(LettersParams(limit=limit, after=after))
    return [one.id for one in page.dead_letters], page.next


async def test_pages_go_on_where_the_last_one_ended_and_the_last_one_says_so(
    letters: DeadLetters, log: EventLog
) -> None:
    await keep(log, *(a_dead_letter(seq=seq) for seq in range(1, 6)))

    assert await listed(letters, 2) == ([1, 2], 2)
    assert await listed(letters, 2, 2) == ([3, 4], 4)
    assert await listed(letters, 2, 4) == ([5], None)
    assert await listed(letters, 5) == ([1, 2, 3, 4, 5], None)
    assert await listed(letters, after=5) == ([], None)


async def test_a_line_of_the_list_tells_everything_but_the_content(letters: DeadLetters, log: EventLog) -> None:
    """Names are those of events: the letter of a user without any is told by its subject."""
    await log.append(a_batch(a_turn()))
    await keep(log, a_dead_letter(b"Xylophon", seq=7), a_dead_letter(b"", seq=8, user_id=None, session_id=None))
    page = await letters.list(LettersParams())

    reason = "the message is not valid JSON in UTF-8"
    at = "2024-07-01T09:00:00Z"
    assert page.dead_letters == [
        LetterShown(1, at, "alice", "s1", SUBJECT, reason, 8, "MEMFOREST", 7),
        LetterShown(2, at, None, None, "memforest.turns.None.None", reason, 0, "MEMFOREST", 8),
    ]


@pytest.mark.parametrize("limit", [-1, 0, LIMIT_MAX + 1])
async def test_a_page_of_no_or_too_many_letters_is_refused(letters: DeadLetters, limit: int) -> None:
    with pytest.raises(InvalidInput):
        await letters.list(LettersParams(limit=limit))


@pytest.mark.parametrize(
    ("payload", "encoding", "shown"),
    [
        ("Grüße \x00".encode(), "utf-8", "Grüße \x00"),
        (b"", "utf-8", ""),
        (b"\xff\x00Xy", "base64", b64encode(b"\xff\x00Xy").decode()),
    ],
)
async def test_the_content_is_text_where_it_is_text_and_base64_otherwise(
    letters: DeadLetters, log: EventLog, payload: bytes, encoding: str, shown: str
) -> None:
    await keep(log, a_dead_letter(payload))
    content = await letters.get(LetterParams(id=1))

    assert (content.encoding, content.payload, content.letter.bytes) == (encoding, shown, len(payload))


async def test_a_retry_records_the_turn_and_the_letter_is_gone(
    letters: DeadLetters, log: EventLog, log_path: Path
) -> None:
    await keep(log, a_revivable(a_message(id="t1"), seq=3))
    done = await letters.retry(LetterParams(id=1))

    assert (done.id, done.recorded, done.other) == (1, 1, 0)
    assert await event_types(log) == ["turn.recorded"]
    assert await listed(letters) == ([], None)
    rows = stored_rows(log_path, "SELECT bus_seq, happened_at FROM events")
    assert rows == [(3, MONDAY + 5)], "where and when it was published, not when it was retried"
    with pytest.raises(LetterUnknown):
        await letters.retry(LetterParams(id=1))


async def test_a_retry_records_every_turn_of_a_message_and_those_that_are_there_only_once(
    letters: DeadLetters, log: EventLog
) -> None:
    turns = [{"role": "user", "content": f"Turn {n}.", "id": f"t{n}"} for n in range(3)]
    message = {"type": "turns", "user_id": "alice", "session_id": "s1", "turns": turns}
    known = DECODER.decode(redelivered(a_revivable(a_message("Turn 1.", id="t1"))), "e1")
    assert not isinstance(known, DeadLetter)
    await log.append(a_batch(*known))
    await keep(log, a_revivable(msgspec.json.encode(message), seq=2))
    done = await letters.retry(LetterParams(id=1))

    assert (done.recorded, done.other) == (2, 1)
    assert await event_types(log) == ["turn.recorded"] * 3


@pytest.mark.parametrize("message_id", ["of the publisher", None])
async def test_a_retry_that_was_cut_short_records_nothing_twice(
    letters: DeadLetters, log: EventLog, message_id: str | None
) -> None:
    """The turns were written and the letter was not emptied: the same as a daemon killed in between."""
    letter = a_revivable(a_message(), message_id=message_id)
    await keep(log, letter)
    first = DECODER.decode(redelivered(letter), "e1")
    assert not isinstance(first, DeadLetter)
    await log.append(a_batch(*first))
    done = await letters.retry(LetterParams(id=1))

    assert (done.recorded, done.other) == (0, 1)
    assert await event_types(log) == ["turn.recorded"]
    assert await listed(letters) == ([], None)


async def test_a_message_without_ids_keeps_the_key_of_its_message_id(letters: DeadLetters, log: EventLog) -> None:
    """Published again under its id it stands elsewhere on the bus, at another time: it is still the same."""
    letter = a_revivable(a_message(), message_id="of the publisher")
    await keep(log, letter)
    await letters.retry(LetterParams(id=1))
    again = replace(redelivered(letter, seq=9), published_at=MONDAY + 99)
    stranger = replace(again, headers={"Nats-Msg-Id": "another"})
    verdicts: list[Verdict] = []
    for message in (again, stranger):
        events = DECODER.decode(message, "e1")
        assert not isinstance(events, DeadLetter)
        verdicts += [outcome.verdict for outcome in await log.append(a_batch(*events))]

    assert verdicts == [Verdict.DUPLICATE, Verdict.RECORDED]


async def test_a_redelivery_of_a_message_that_was_dealt_with_makes_no_new_letter(
    letters: DeadLetters, log: EventLog
) -> None:
    retried, dropped = a_revivable(a_message(id="t1"), seq=1), a_dead_letter(b"Xylophon", seq=2)
    await keep(log, retried, dropped)
    await letters.retry(LetterParams(id=1))
    await letters.drop(LetterParams(id=2))
    await keep(log, retried, dropped)

    assert await listed(letters) == ([], None)


async def test_what_still_cannot_be_decoded_stays_as_it_was(
    letters: DeadLetters, log: EventLog, log_path: Path
) -> None:
    await keep(log, a_dead_letter(b'{"type": "turn", "Xylophon": 1}'))
    before = stored_rows(log_path, "SELECT * FROM letters")
    with pytest.raises(LetterStillDead) as raised:
        await letters.retry(LetterParams(id=1))

    assert raised.value.code == "conflict"
    assert "Xylophon" not in str(raised.value)
    assert stored_rows(log_path, "SELECT * FROM letters") == before
    assert (log.head, await listed(letters)) == (0, ([1], None))


async def test_a_turn_of_another_subject_is_not_revived_under_this_one(
    letters: DeadLetters, log: EventLog
) -> None:
    await keep(log, a_revivable(a_message(id="t1", session_id="s2")))
    with pytest.raises(LetterStillDead):
        await letters.retry(LetterParams(id=1))

    assert log.head == 0


async def test_no_file_of_the_log_holds_what_was_dropped(
    letters: DeadLetters, log: EventLog, log_path: Path
) -> None:
    kept = replace(a_dead_letter(b"Marimba", seq=1), message_id="Marimba-id")
    gone = replace(a_dead_letter(b"Xylophon" * 2000, seq=2), message_id="Xylophon-id")
    await keep(log, kept, gone, a_dead_letter(b"Xylophon", seq=3, session_id="Xylophon"))
    before = stored_bytes(log_path)
    dropped = await letters.drop(LetterParams(id=2))
    emptied = await log.write(truncate_wal)
    after = stored_bytes(log_path)

    assert (dropped, emptied) == (LetterDropped(2), True)
    assert await listed(letters) == ([1, 3], None)
    assert (b"Xylophon" * 5 in before, b"Xylophon-id" in before) == (True, True)
    assert (b"Xylophon" * 5 in after, b"Xylophon-id" in after) == (False, False)
    assert b"Marimba-id" in after


@pytest.mark.parametrize("letter", [-1, 0, 2])
async def test_a_letter_that_nobody_knows_is_told_apart_and_nothing_changes(
    letters: DeadLetters, log: EventLog, letter: int
) -> None:
    await keep(log, a_dead_letter())
    for method in (letters.get, letters.retry, letters.drop):
        with pytest.raises(LetterUnknown) as raised:
            await method(LetterParams(id=letter))
        assert raised.value.code == "not_found"

    assert await listed(letters) == ([1], None)


async def test_a_number_that_no_letter_can_have_is_unknown_too(letters: DeadLetters) -> None:
    with pytest.raises(LetterUnknown):
        await letters.get(LetterParams(id=2**63))


async def test_dropping_twice_tells_that_it_is_gone(letters: DeadLetters, log: EventLog) -> None:
    await keep(log, a_dead_letter())
    await letters.drop(LetterParams(id=1))
    with pytest.raises(LetterUnknown):
        await letters.drop(LetterParams(id=1))

    assert log.head == 0


async def test_the_letters_of_a_forgotten_session_are_gone_and_others_stay(
    letters: DeadLetters, parts: Parts
) -> None:
    await keep(
        parts.log,
        a_revivable(a_message(id="t1")),
        a_dead_letter(seq=2, session_id="s2"),
        a_dead_letter(seq=3, user_id="bob"),
    )
    async with running_forgetter(parts):
        await parts.forgetter.forget("alice", "s1")

    assert await listed(letters) == ([2, 3], None)
    with pytest.raises(LetterUnknown):
        await letters.retry(LetterParams(id=1))


async def test_a_retry_brings_nothing_of_a_forgotten_session_back(letters: DeadLetters, log: EventLog) -> None:
    """Between the wish and the erasing the letter is still there."""
    await keep(log, a_revivable(a_message(id="t1")))
    await log.append_event(a_forgetting("s1"))
    done = await letters.retry(LetterParams(id=1))

    assert (done.recorded, done.other) == (0, 1)
    assert await event_types(log) == ["session.forgotten"]
    assert await listed(letters) == ([], None)


async def test_what_a_retry_records_is_what_the_message_says(letters: DeadLetters, log: EventLog) -> None:
    letter = a_revivable(a_message("Grüße", id="t1", name="Alice"), seq=4)
    await keep(log, letter)
    told = DECODER.decode(redelivered(letter), "e1")
    await letters.retry(LetterParams(id=1))

    assert not isinstance(told, DeadLetter)
    assert isinstance(told[0].event, TurnRecorded)
    assert (await log.append(a_batch(*told)))[0].verdict is Verdict.DUPLICATE
    assert told[0].bus == a_place(4)
