"""Groups that answers open: by their members, nearest first, no more than fit; and states of then inside them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.asking.answer_types import MemoryShown
from daemon.asking.contexts import QUARTERS, count_quarters
from daemon.folding import fold_from_nothing
from daemon.offline.extraction import extract_facts
from daemon.offline.language_model import OfflineLanguageModel
from events.log import EventLog
from projections.digests import digest_memory
from projections.eventtree.parameters import EventTreeParameters
from projections.ports import ChunkText, FactsRead, MemberText, TextWritten
from tests.builders import ManualClock, a_batch, a_closing, a_turn
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.scripted_models import ScriptedModel

GROUPS: dict[str, Any] = {"filters": {"kinds": "group"}}
TOLD = (
    ("2022-03-01", "I live in Boston."),
    ("2023-05-20", "I moved to Davis this week."),
    ("2024-07-01", "I just moved to Miami!"),
)
THINGS = (
    "The red boat of Kim sank near Davis after a long night of storms and waves.",
    "The red boat of Kim was bought by Nate from an old fisherman in the harbour.",
    "The red boat of Kim is called Zanzibar since it was painted by her brothers.",
)


class Offline(ScriptedModel):
    """Reads facts by the rules that come with the daemon, and puts members together by rule."""

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        await super().extract_facts(chunk)
        return FactsRead(extract_facts(chunk), self.usage)

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        await super().merge(members)
        return await OfflineLanguageModel().merge(members)


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    trees = EventTreeParameters(ratio=0.7, member_caps=((100, 3),))
    return build_parts(log, clock, model=Offline(), eventtree=trees)


async def say(parts: Parts, date: str, content: str, session: str | None = None) -> None:
    """A turn of that day, and its session is over."""
    at = int(datetime.fromisoformat(date).replace(tzinfo=UTC, hour=12).timestamp() * 1000)
    turn = a_turn(content, session_id=session or date, turn_id=f"t{date}", name="Bob", happened_at=at)
    await parts.log.append(a_batch(turn))
    await parts.log.append_event(a_closing(session or date, key=date))
    await parts.until_done()


async def tell_homes(parts: Parts) -> None:
    """Three homes, and the two that were left are one trajectory."""
    async with running(parts):
        for date, content in TOLD:
            await say(parts, date, content)
        await parts.compactor.compact(ALICE, 0.5)
        await parts.until_done()


async def tell_things(parts: Parts) -> None:
    """Three facts of three sessions, one group."""
    async with running(parts):
        for day, thing in enumerate(THINGS, start=1):
            await say(parts, f"2024-07-0{day}", thing)
        await parts.compactor.compact(ALICE)
        await parts.until_done()


async def groups(parts: Parts, question: str, **more: Any) -> list[MemoryShown]:
    return (await parts.ask(question, **GROUPS, **more)).memories


async def test_a_question_for_then_is_answered_by_the_home_of_then_and_not_by_all_of_them(parts: Parts) -> None:
    await tell_homes(parts)
    (then,) = await groups(parts, "Where does Bob live?", valid_at="2022-06-01")
    (later,) = await groups(parts, "Where does Bob live?", valid_at="2024-01-15")
    (both,) = await groups(parts, "Where does Bob live?", between=("2022-06-01", "2024-01-15"))
    (whole,) = await groups(parts, "Where does Bob live?")

    assert then.text == "[1 Mar 2022 – 15 May 2023] Bob lives in Boston."
    assert "Davis" in later.text
    assert "Boston" not in later.text
    assert then.members is not None
    assert [(member.text, member.valid_until) for member in then.members] == [
        ("Bob lives in Boston.", then.valid_until)
    ]
    assert (then.sessions, later.sessions) == (["2022-03-01"], ["2023-05-20"])
    assert [source.session_id for source in then.sources] == ["2022-03-01"]
    assert both.text == whole.text
    assert whole.valid_until == later.valid_until != then.valid_until
    assert await groups(parts, "Where does Bob live?", valid_at="2025-01-15") == []
    assert await groups(parts, "Where does Bob live?", valid_at="2021-01-15") == []


async def test_the_context_of_then_has_the_home_of_then_alone(parts: Parts) -> None:
    await tell_homes(parts)
    answer = await parts.ask("Where does Bob live?", valid_at="2022-06-01", **GROUPS)

    assert answer.context == "[1 March 2022] Bob lives in Boston."


async def test_a_home_that_is_forgotten_takes_the_trajectory_apart_and_nothing_tells_of_it(parts: Parts) -> None:
    await tell_homes(parts)
    async with running(parts):
        await parts.forgetter.forget("alice", "2024-07-01")
        await parts.until_done()
    answer = await parts.ask("Where does Bob live?", valid_at="2025-01-15", filters={"kinds": "fact"})
    live = digest_memory(await parts.memory())

    assert (await parts.memory()).units.groups == {}
    assert ["Davis" in memory.text for memory in answer.memories] == [True], "nobody knows that he left"
    assert digest_memory(await fold_from_nothing(parts.log, ALICE, SMALL)) == live


async def test_a_group_that_was_put_together_shows_its_members_the_nearest_first(parts: Parts) -> None:
    await tell_things(parts)
    (boat,) = await groups(parts, "Who bought it from the fisherman?")
    (named,) = await groups(parts, "Why is it called Zanzibar?")

    assert boat.members is not None
    assert named.members is not None
    assert boat.members[0].text.endswith(THINGS[1])
    assert named.members[0].text.endswith(THINGS[2])
    assert len(boat.members) == len(named.members) == 3
    assert boat.text == named.text, "all of it, in the order of time"
    assert [line.partition("] ")[2].removeprefix("Bob: ") for line in boat.text.splitlines()] == list(THINGS)


async def test_a_group_takes_no_more_room_than_its_useful_members(parts: Parts) -> None:
    await tell_things(parts)
    (member,) = await groups(parts, "Why is it called Zanzibar?", max_tokens=30)
    answer = await parts.ask("Why is it called Zanzibar?", max_tokens=30, **GROUPS)
    nothing = await groups(parts, "Why is it called Zanzibar?", max_tokens=10)

    assert [each.text.endswith(THINGS[2]) for each in member.members or ()] == [True]
    assert member.text.endswith(THINGS[2])
    assert (member.sessions, [source.session_id for source in member.sources]) == (["2024-07-03"], ["2024-07-03"])
    assert answer.context.startswith("[3 July 2024] ")
    assert count_quarters(answer.context) < 30 * QUARTERS
    assert nothing == []


async def test_each_member_stands_in_the_context_at_its_own_time(parts: Parts) -> None:
    await tell_things(parts)
    answer = await parts.ask("the red boat of Kim", **GROUPS)

    assert [line[:13] for line in answer.context.splitlines()] == [
        "[1 July 2024]",
        "[2 July 2024]",
        "[3 July 2024]",
    ]


async def test_a_group_of_a_models_words_is_opened_only_when_that_is_asked(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, eventtree=EventTreeParameters(ratio=0.7, member_caps=((100, 3),)))
    parts.model.queue.clear()
    await tell_things(parts)
    (closed,) = await groups(parts, "Why is it called Zanzibar?")
    (opened,) = await groups(parts, "Why is it called Zanzibar?", open_groups=True)
    (cut,) = await groups(parts, "Why is it called Zanzibar?", open_groups=True, max_tokens=100)
    answer = await parts.ask("Why is it called Zanzibar?", open_groups=True, max_tokens=100, **GROUPS)

    assert closed.members is None
    assert closed.text == opened.text == cut.text
    assert len(opened.members or ()) == 3
    assert [member.text for member in cut.members or ()] == [THINGS[2]]
    assert answer.context == f"[3 July 2024] {cut.text}\n- [3 July 2024] {THINGS[2]}"


async def test_a_past_memory_opens_its_groups_too(parts: Parts) -> None:
    await tell_homes(parts)
    then = (await parts.memory()).user_seq
    async with running(parts):
        await say(parts, "2025-03-01", "I moved to Reno.")
    (memory,) = await groups(parts, "Where does Bob live?", as_of=then, valid_at="2022-06-01")

    assert memory.text.endswith("Bob lives in Boston.")
