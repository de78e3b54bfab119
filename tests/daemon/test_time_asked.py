"""Questions about time, through the real write path with the built-in rules: what comes first, by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.asking.answer_types import Answer, MemoryShown
from events.errors import InvalidInput
from events.log import EventLog
from projections.eventtree.parameters import EventTreeParameters
from tests.builders import ManualClock, a_batch, a_closing, a_turn
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.daemon.test_opened_groups import Offline
from tests.daemon.time_stories import RESIDENCE, STORIES, WRONG_STILL
from tests.daemon.time_story import Case, Said, Story


def at_noon(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC, hour=12).timestamp() * 1000)


async def tell(parts: Parts, said: tuple[Said, ...]) -> None:
    """Each turn in a session of its own, in the order in which they came."""
    for number, each in enumerate(said):
        turn = a_turn(
            each.text,
            session_id=f"s{number}",
            turn_id=f"t{number}",
            name=each.name,
            happened_at=at_noon(each.day),
        )
        await parts.log.append(a_batch(turn))
        await parts.log.append_event(a_closing(f"s{number}", key=str(number)))
    await parts.until_done()


@asynccontextmanager
async def told(parts: Parts, story: Story) -> AsyncGenerator[Parts, None]:
    async with running(parts):
        await tell(parts, story.said)
        yield parts


def answers(case: Case, memories: list[MemoryShown]) -> bool:
    """Whether the first memory is the expected one and no other."""
    first = memories[0].text if memories else ""
    return case.first in first and not any(word in first for word in case.never)


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    trees = EventTreeParameters(ratio=0.7, member_caps=((100, 3),))
    return build_parts(log, clock, model=Offline(), eventtree=trees)


def test_there_are_more_than_fifty_cases_in_six_languages() -> None:
    assert sum(len(story.cases) for story in STORIES) >= 100
    assert len({case.question for story in STORIES for case in story.cases}) >= 100


@pytest.mark.parametrize(
    ("story", "mode"),
    [*((story, "agpr") for story in STORIES), (RESIDENCE, "forest")],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
async def test_what_is_asked_for_comes_first(parts: Parts, story: Story, mode: str) -> None:
    async with told(parts, story):
        wrong = [
            (case.question, case.first, [memory.text for memory in found[:2]])
            for case in story.cases
            if not answers(
                case, found := (await parts.ask(case.question, reference_date=case.on, mode=mode)).memories
            )
        ]

        assert wrong == []


@pytest.mark.parametrize("story", WRONG_STILL, ids=lambda story: story.name)
async def test_what_still_comes_out_wrong_is_known(parts: Parts, story: Story) -> None:
    async with told(parts, story):
        right = [
            case.question
            for case in story.cases
            if answers(case, (await parts.ask(case.question, reference_date=case.on)).memories)
        ]

        assert right == []


FACTS_AND_GROUPS: dict[str, Any] = {"filters": {"kinds": ["fact", "group"]}}


async def compacted(parts: Parts) -> None:
    """Boston and Davis are one trajectory then."""
    await tell(parts, tuple(each for each in RESIDENCE.said if "I live in B" in each.text or "moved" in each.text))
    await parts.compactor.compact(ALICE, 0.5)
    await parts.until_done()


async def test_of_a_trajectory_the_home_that_is_asked_for_answers(parts: Parts) -> None:
    async with running(parts):
        await compacted(parts)
        before = (await parts.ask("Where did Bob live before moving to Miami?", **FACTS_AND_GROUPS)).memories
        first = (await parts.ask("Where did Bob live first?", **FACTS_AND_GROUPS)).memories
        plain = (await parts.ask("Where did Bob live before moving to Miami?")).memories

        assert before[0].kind == "group"
        assert "Davis" in before[0].text
        assert "Boston" not in before[0].text
        assert [member.text for member in before[0].members or ()] == ["Bob moved to Davis this week."]
        assert "Boston" in first[0].text
        assert "Davis" not in first[0].text
        assert "Davis" in plain[0].text
        assert "Boston" not in plain[0].text


async def test_an_opened_trajectory_shows_all_of_its_homes_the_right_one_first(parts: Parts) -> None:
    async with running(parts):
        await compacted(parts)
        answer = await parts.ask("Where did Bob live before Miami?", open_groups=True, **FACTS_AND_GROUPS)
        members = [member.text for member in answer.memories[0].members or ()]

        assert members[0] == "Bob moved to Davis this week."
        assert "Bob lives in Boston." in members


async def test_how_often_tells_every_time_in_order(parts: Parts) -> None:
    async with told(parts, RESIDENCE):
        answer = await parts.ask("How often has Bob moved?")
        places = [word for memory in answer.memories for word in PLACES if word in memory.text]

        assert list(dict.fromkeys(places))[:3] == ["Boston", "Davis", "Miami"]


PLACES = ("Boston", "Davis", "Miami")


async def test_a_state_comes_with_its_interval(parts: Parts) -> None:
    async with told(parts, RESIDENCE):
        first = (await parts.ask("How long did Bob live in Davis?", **FACTS_AND_GROUPS)).memories[0]

        assert first.text == "Bob moved to Davis this week."
        assert first.time_start[:7] == "2023-05"
        assert first.valid_until is not None
        assert first.valid_until[:10] == "2024-07-01"


async def test_an_explanation_says_what_time_was_read_and_quotes_nothing(parts: Parts) -> None:
    async with told(parts, RESIDENCE):
        answer = await parts.ask("Where did Bob live before moving to Miami?", explain=True)
        dated = await parts.ask("Where did Bob live in January 2024?", explain=True)
        none = await parts.ask("What does Bob think of clam chowder in Boston?", explain=True)

        assert answer.explanation is not None
        assert dated.explanation is not None
        assert none.explanation is not None
        asked, days = answer.explanation.time, dated.explanation.time
        assert asked is not None
        assert days is not None
        assert (asked.kind, asked.anchor, asked.state, asked.told, asked.start) == (
            "predecessor",
            True,
            "home",
            2,
            None,
        )
        assert "Miami" not in repr(asked)
        assert (days.kind, days.start, days.end) == ("at", "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z")
        assert none.explanation.time is None
        lifted = answer.explanation.candidates[0]
        assert lifted.time > 0
        assert lifted.similarity == pytest.approx(
            (lifted.fused + lifted.smoothing + lifted.session) * (1 + lifted.named) + lifted.time, abs=2e-4
        )


async def first(parts: Parts, question: str, **more: Any) -> str:
    answer: Answer = await parts.ask(question, **more)
    return answer.memories[0].text


async def test_relative_dates_count_from_the_given_day_or_from_the_clock(parts: Parts, clock: ManualClock) -> None:
    said = (
        Said("2024-08-06", "I baked bread."),
        Said("2024-08-14", "I planted tomatoes."),
    )
    async with running(parts):
        await tell(parts, said)
        question = "What did Bob do yesterday?"

        assert "tomatoes" in await first(parts, question, reference_date="2024-08-15")
        assert "bread" in await first(parts, question, reference_date="2024-08-07")
        # Late in the evening of the 14th in New York it is the 15th in UTC.
        assert "tomatoes" in await first(parts, question, reference_date="2024-08-15T02:00:00+00:00")
        assert "bread" in await first(parts, question, reference_date="2024-08-07T23:00:00-05:00")
        clock.now = at_noon("2024-08-15")
        assert "tomatoes" in await first(parts, question)
        clock.now = at_noon("2024-08-07")
        assert "bread" in await first(parts, question)


async def test_in_a_past_memory_they_count_from_its_last_event(parts: Parts, clock: ManualClock) -> None:
    async with running(parts):
        clock.now = at_noon("2024-08-07")
        await tell(parts, (Said("2024-08-05", "I mended the fence."), Said("2024-08-06", "I baked bread.")))
        head = (await parts.memory()).user_seq
        clock.now = at_noon("2025-01-01")

        assert "bread" in await first(parts, "What did Bob do yesterday?", as_of=head)
        assert "fence" in await first(parts, "What did Bob do yesterday?", as_of=head, reference_date="2024-08-06")


@pytest.mark.parametrize("text", ["yesterday", "2024-02-30", "8.5.2024", ""])
async def test_a_reference_date_that_is_none_is_refused_without_being_quoted(parts: Parts, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await parts.ask("Where did Bob live last year?", reference_date=text)

    assert "reference_date is a date" in str(refused.value)
    assert not text or text not in str(refused.value)


async def test_time_finds_nothing_that_filters_keep_out(parts: Parts) -> None:
    async with told(parts, RESIDENCE):
        answer = await parts.ask(
            "Where did Bob live before moving to Miami?", filters={"not_sessions": ["s3"]}, k=50
        )

        assert not any("Davis" in memory.text for memory in answer.memories)


async def test_a_question_about_time_is_answered_the_same_again(parts: Parts) -> None:
    async with told(parts, RESIDENCE):
        for question in (
            "Where did Bob live before Miami?",
            "When did Bob move?",
            "Where did Bob live last year?",
        ):
            one = await parts.ask(question, reference_date="2024-08-15")

            assert await parts.ask(question, reference_date="2024-08-15") == one
