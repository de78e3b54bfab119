"""`sessions.events`: all that happened in and because of a session, once each, in order, and as it comes."""

from __future__ import annotations

import dataclasses

import anyio
import pytest

from daemon.asking.session_events import (
    WAIT_MAX_S,
    EventPage,
    SessionEvents,
    SessionEventsParams,
)
from daemon.asking.words import measure_event, text_of
from daemon.erasure.receipts import SessionUnknown
from daemon.untrusted import LIMIT_MAX
from events.codec import EVENT_TYPES
from events.envelope import RecordedEvent
from events.erasure import erase_slice
from events.errors import InvalidInput
from events.log import EventLog
from events.memory import ExtractedFact, IntervalSummarised, Mention, Usage
from events.reading import read_user
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_batch,
    a_closing,
    a_forgetting,
    a_summary,
    a_turn,
    an_extraction,
)
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running

S1 = KEYS.session("alice", "s1")


async def ask(log: EventLog, session_id: str = "s1", **more: int | float) -> EventPage:
    params = SessionEventsParams(user_id="alice", session_id=session_id, **more)  # type: ignore[arg-type]
    return await SessionEvents(log).events(params)


async def grow(log: EventLog, clock: ManualClock) -> Parts:
    parts = build_parts(log, clock)
    async with running(parts):
        for session in ("s1", "s2"):
            await parts.say(*(f"In {session} came Zoe {number}." for number in range(4)), session_id=session)
            await parts.close(session)
        await parts.until_done()
    return parts


async def of_session(log: EventLog) -> list[RecordedEvent]:
    """The oracle: all events of the user, looked through."""
    recorded = await log.read(lambda db: read_user(db, ALICE, limit=10_000))
    return [each for each in recorded if each.session == S1 or S1 in each.lineage]


async def test_a_session_has_its_own_events_and_those_its_words_went_into(
    log: EventLog, clock: ManualClock
) -> None:
    await grow(log, clock)
    await log.append(a_batch(a_forgetting("s2")))
    page = await ask(log)

    assert [event.user_seq for event in page.events] == [each.user_seq for each in await of_session(log)]
    assert {"turn.recorded", "session.closed", "facts.extracted", "facts.admitted"} <= {
        event.type for event in page.events
    }
    assert (page.next, page.more) == (log.head, False)
    forgotten = (await ask(log, "s2")).events
    assert forgotten[-1].type == "session.forgotten", "which no lineage names"


async def test_answers_say_what_they_took_and_those_that_cost_nothing_do_not(
    log: EventLog, clock: ManualClock
) -> None:
    free = an_extraction((1, 2))
    paid = a_summary()
    usage = Usage(calls=2, prompt_tokens=90, cached_tokens=40, completion_tokens=7, cost_nano=500_000_000)
    assert isinstance(paid.event, IntervalSummarised)
    paid = dataclasses.replace(paid, event=dataclasses.replace(paid.event, usage=usage, request=b"asked"))
    await log.append(a_batch(a_turn(), a_turn(turn_id="t2"), free, paid))
    *_, first, second = (await ask(log)).events

    assert not {"calls", "tokens", "cost", "request"} & set(first.what)
    assert (second.what["calls"], second.what["tokens"], second.what["cost"]) == (2, 97, 0.5)
    assert second.what["request"] == b"asked".hex()


async def test_pages_put_together_are_the_whole(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)
    whole = (await ask(log)).events
    pages = [await ask(log, limit=3)]
    while pages[-1].more:
        pages.append(await ask(log, limit=3, after=pages[-1].next))

    assert [event for page in pages for event in page.events] == whole
    assert all(len(page.events) == 3 for page in pages[:-1])
    assert pages[-1].next == log.head


async def test_an_event_tells_its_numbers_its_text_and_what_caused_it(log: EventLog) -> None:
    await log.append(a_batch(a_turn("Zoe, on other users' business.", user_id="bob")))
    await log.append(a_batch(a_turn("I moved to Miami."), a_turn("And then?", turn_id="t2")))
    extraction = an_extraction((2, 3), ("Alice moved to Miami.", "She is happy."))
    await log.append(a_batch(dataclasses.replace(extraction, caused_by=3)))
    await log.append(a_batch(a_summary("About Miami.")))
    turn, _, facts, summary = (await ask(log)).events

    assert (turn.user_seq, turn.type, turn.words, turn.caused_by) == (1, "turn.recorded", "kept", None)
    assert (turn.at, turn.happened_at) == ("2024-07-01T09:00:00Z", "2024-07-01T09:00:00Z")
    assert (turn.text, turn.what["characters"]) == ("Alice: I moved to Miami.", 17)
    assert (facts.text, facts.what["facts"]) == ("Alice moved to Miami.\nShe is happy.", 2)
    assert facts.caused_by == 2, "the user_seq, since nobody outside knows the seq"
    assert (summary.text, summary.what["generation"]) == ("About Miami.", 1)


async def test_words_are_erased_from_the_moment_of_forgetting_on(log: EventLog) -> None:
    await log.append(a_batch(a_turn("Zoe's secret."), a_turn("Another.", session_id="s2")))
    await log.append(a_batch(a_summary("Zoe's secret in short.", ("s1", "s2"))))
    await log.append(a_batch(a_forgetting("s1")))
    forgotten = await ask(log)
    of_the_other = await ask(log, "s2")
    await log.write(lambda db: erase_slice(db, S1))

    assert [(event.words, event.text, event.what) for event in forgotten.events[:2]] == [("erased", None, {})] * 2
    assert [event.words for event in of_the_other.events] == ["kept", "erased"]
    assert (await ask(log)).events == forgotten.events


async def test_nothing_new_is_waited_for_and_told_when_it_comes(log: EventLog) -> None:
    await log.append(a_batch(a_turn("First.")))
    pages: list[EventPage] = []
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            pages.append(await ask(log, after=1, wait_s=WAIT_MAX_S))

        tasks.start_soon(follow)
        await log.append(a_batch(a_turn("Another's.", user_id="bob")))
        await log.append(a_batch(a_turn("Of another session.", session_id="s2")))
        await log.append(a_batch(a_closing("s1")))

    assert [(event.user_seq, event.type) for event in pages[0].events] == [(3, "session.closed")]


async def test_when_nothing_comes_the_wait_ends_and_says_where_to_go_on(log: EventLog) -> None:
    await log.append(a_batch(a_turn("First."), a_turn("Of another session.", session_id="s2")))
    page = await ask(log, after=1, wait_s=0.05)

    assert (page.events, page.next, page.more) == ([], 2, False)


async def test_a_stop_answers_whoever_waits_and_keeps_nobody_waiting_after_it(log: EventLog) -> None:
    await log.append(a_batch(a_turn("First.")))
    session_events, pages = SessionEvents(log), list[EventPage]()
    params = SessionEventsParams(user_id="alice", session_id="s1", after=1, wait_s=WAIT_MAX_S)

    async def follow() -> None:
        pages.append(await session_events.events(params))

    with anyio.fail_after(WAIT_MAX_S / 3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            session_events.stop()
        await follow()

    assert pages == [EventPage([], 1, more=False)] * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", 0), ("limit", LIMIT_MAX + 1), ("after", -1), ("after", 2**70), ("wait_s", -1), ("wait_s", 31)],
)
async def test_what_is_asked_for_is_bounded(log: EventLog, name: str, value: int) -> None:
    params = SessionEventsParams(user_id="alice", session_id="s1", **{name: value})
    with pytest.raises(InvalidInput):
        await SessionEvents(log).events(params)


async def test_a_session_that_nobody_knows_is_not_found(log: EventLog) -> None:
    await log.append(a_batch(a_turn("First.")))
    with pytest.raises(SessionUnknown):
        await ask(log, "s9")


def test_no_number_of_an_event_is_a_word() -> None:
    """Whatever its type: strings are told by their length alone."""
    fact = ExtractedFact("Zoe's secret.", (0,), MONDAY, MONDAY, mentions=(Mention("zoe"),), topics=("secret",))
    told = measure_event(fact)  # type: ignore[arg-type]

    assert told["characters"] == 13
    assert told["role"] == "detail"
    assert "oe" not in "".join(str(each) for each in told.values()).replace("detail", "")
    assert text_of(fact) == "Zoe's secret."  # type: ignore[arg-type]


def test_every_event_type_can_be_measured() -> None:
    assert all(dataclasses.is_dataclass(kind) for kind in EVENT_TYPES.values())
