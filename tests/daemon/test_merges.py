"""The pairs that a merge model learns from: which groups, in which order, page by page, and never what is gone."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.asking.merges import PAGE_CHARACTERS_MAX, MergedPage, Merges, MergesParams
from events.errors import InvalidInput
from events.memory import ParkReason
from projections.ports import AnswerUnusable
from tests.daemon.parts_in_use import ALICE, Parts, running, running_forgetter


@pytest.fixture
def merges(parts: Parts) -> Merges:
    return Merges(parts.log, parts.memories)


async def learn(parts: Parts, facts: int, session_id: str = "s1", text: str = "thing {} of {}.") -> None:
    async with running(parts):
        await parts.say(*(text.format(n, session_id) for n in range(facts)), session_id=session_id)
        await parts.close(session_id)
        await parts.until_done()


async def page_of(merges: Merges, **more: Any) -> MergedPage:
    return await merges.merges(MergesParams(user_id="alice", **more))


async def test_each_group_comes_with_its_members_texts_in_time_order_and_its_own(
    parts: Parts, merges: Merges
) -> None:
    await learn(parts, 20)
    result = await parts.compactor.compact(ALICE, 0.5)
    page = await page_of(merges)

    assert (len(page.merges), page.next) == (result.groups, None)
    for pair in page.merges:
        assert pair.text == " ".join(pair.members), "as the scripted model has it"
        assert pair.members == sorted(pair.members, key=lambda text: int(text.split()[1]))
        assert (pair.model, pair.extractive) == ("scripted", False)
    assert [pair.user_seq for pair in page.merges] == sorted(pair.user_seq for pair in page.merges)


async def test_pages_hold_all_of_them_once(parts: Parts, merges: Merges) -> None:
    await learn(parts, 40)
    await parts.compactor.compact(ALICE, 0.5)
    whole = (await page_of(merges)).merges
    found, after = [], None
    while True:
        page = await page_of(merges, limit=3, after=after)
        assert len(page.merges) <= 3
        found += page.merges
        after = page.next
        if after is None:
            break

    assert found == whole
    assert len(whole) > 6


async def test_texts_that_no_model_wrote_come_only_when_they_are_asked_for(parts: Parts, merges: Merges) -> None:
    await learn(parts, 20)
    parts.model.queue.append(AnswerUnusable(ParkReason.ANSWER_INVALID))
    await parts.compactor.compact(ALICE, 0.5)
    written, every = (await page_of(merges)).merges, (await page_of(merges, extractive=True)).merges

    assert len(every) == len(written) + 1
    assert [pair.extractive for pair in every].count(True) == 1


async def test_a_page_ends_before_its_texts_are_too_long_for_an_answer(parts: Parts, merges: Merges) -> None:
    long = "thing {} of {} " + "x" * (PAGE_CHARACTERS_MAX // 8) + "."
    await learn(parts, 6, text=long)
    await parts.compactor.compact(ALICE, 0.5)
    first = await page_of(merges)
    second = await page_of(merges, after=first.next)

    assert len(first.merges) >= 1
    assert first.next is not None
    assert len(second.merges) >= 1


async def test_what_was_forgotten_or_undone_is_no_pair_any_more(parts: Parts, merges: Merges) -> None:
    await learn(parts, 10, "s1")
    await learn(parts, 10, "s2")
    await parts.compactor.compact(ALICE, 0.5)
    one = (await page_of(merges)).merges[0]
    await parts.compactor.undo(ALICE, [one.group])
    async with running_forgetter(parts):
        await parts.forgetter.forget("alice", "s1")
    left = (await page_of(merges)).merges

    assert left
    assert all("s1" not in text for pair in left for text in (pair.text, *pair.members))
    assert one.group not in {pair.group for pair in left}


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"after": -1}, {"after": 2**63}])
async def test_a_page_that_cannot_be_is_refused(parts: Parts, merges: Merges, wrong: dict[str, Any]) -> None:
    await parts.say("one")
    with pytest.raises(InvalidInput):
        await page_of(merges, **wrong)


async def test_of_a_user_whom_nobody_knows_there_is_nothing(merges: Merges) -> None:
    assert await merges.merges(MergesParams(user_id="ghost")) == MergedPage([], None)
