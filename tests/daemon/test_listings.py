"""Listings and structures: users, sessions, facts, trees, units, and the digest."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from daemon.asking.fact_listing import FactShown, look_at_fact, show_fact
from daemon.asking.listings import (
    Listings,
    NoParams,
    SessionParams,
    SessionShown,
    UserParams,
    find_user,
)
from daemon.asking.structures import (
    FactsParams,
    PageParams,
    Structures,
)
from daemon.asking.tree_listing import TreeShown
from daemon.asking.tree_nodes import NODE_TEXT_MAX
from daemon.asking.unit_listing import GroupShown, UnitShown
from daemon.erasure.receipts import SessionUnknown, UserUnknown
from events.errors import InvalidInput
from events.memory import Usage
from events.reading import read_events
from projections.digests import digest_memory
from tests.builders import KEYS, a_forgetting
from tests.daemon.model_answers import Answers
from tests.daemon.parts_in_use import ALICE, Parts, running, running_forgetter


@pytest.fixture
def listings(parts: Parts) -> Listings:
    return Listings(parts.log, parts.memories)


@pytest.fixture
def structures(parts: Parts) -> Structures:
    return Structures(parts.log, parts.memories)


async def learn(parts: Parts, *contents: str, session_id: str = "s1") -> None:
    """Turns whose sentences are extracted, admitted and summarised."""
    async with running(parts):
        await parts.say(*contents, session_id=session_id)
        await parts.close(session_id)
        await parts.until_done()


async def facts_of(structures: Structures, **more: Any) -> tuple[list[FactShown], str | None]:
    page = await structures.facts(FactsParams(user_id="alice", **more))
    return page.facts, page.next


async def test_users_are_listed_by_name_with_what_they_have(parts: Parts, listings: Listings) -> None:
    await parts.say("one", "two", user_id="bob")
    await parts.say("three", user_id="alice")
    users = (await listings.users(NoParams())).users

    assert [(user.user_id, user.user_seq, user.sessions, user.turns) for user in users] == [
        ("alice", 1, 1, 1),
        ("bob", 2, 1, 2),
    ]


async def test_sessions_are_listed_with_state_counts_and_times(parts: Parts, listings: Listings) -> None:
    await learn(parts, "One thing.", "Another thing.", "A third thing.", session_id="s1")
    await parts.say("still open", session_id="s2")
    await parts.memory()
    listed = await listings.sessions(UserParams(user_id="alice"))
    first, second = listed.sessions

    assert (first.session_id, first.state, first.turns, first.chunks, first.facts) == ("s1", "closed", 3, 2, 3)
    assert first.bytes == len("One thing.Another thing.A third thing.")
    assert (first.first_at, first.last_at) == ("2024-07-01T09:01:00Z", "2024-07-01T09:03:00Z")
    assert (second.session_id, second.state, second.turns, second.chunks) == ("s2", "open", 1, 0)
    assert listed.forgotten == 0
    assert await listings.session(SessionParams(user_id="alice", session_id="s1")) == first


async def test_a_forgotten_session_is_counted_and_not_named(parts: Parts, listings: Listings) -> None:
    async with running_forgetter(parts):
        await parts.say("one", session_id="s1")
        await parts.say("two", session_id="s2")
        await parts.forgetter.forget("alice", "s1")
        listed = await listings.sessions(UserParams(user_id="alice"))
        asked = await listings.session(SessionParams(user_id="alice", session_id="s1"))

    assert [session.session_id for session in listed.sessions] == ["s2"]
    assert listed.forgotten == 1
    assert (asked.state, asked.chunks, asked.facts, asked.first_at) == ("forgotten", 0, 0, None)


async def by_name(listings: Listings) -> list[SessionShown]:
    """Alice's sessions in the order of their names."""
    shown = await listings.sessions(UserParams(user_id="alice"))
    return sorted(shown.sessions, key=lambda session: session.session_id)


async def test_a_session_has_what_was_spent_on_it_alone(parts: Parts, listings: Listings) -> None:
    answers, usage = Answers(parts.log), Usage(2, 1000, 600, 50, 7_000_000, 900)
    await answers.extract(2, usage)
    await answers.extract(1, usage, session_id="s2")
    await answers.summarise(usage, "s1")
    await answers.summarise(usage, "s1", "s2")
    await answers.park(Usage(calls=3), "s2")
    first, second = await by_name(listings)

    assert (first.model_calls, first.tokens, first.cost) == (4, 2100, 0.014)
    assert (second.model_calls, second.tokens, second.cost) == (5, 1050, 0.007)
    assert await listings.session(SessionParams(user_id="alice", session_id="s2")) == second


async def test_chunks_that_were_read_and_hold_no_fact_are_counted_by_session(
    parts: Parts, listings: Listings
) -> None:
    answers = Answers(parts.log)
    for facts in (0, 2, 0):
        await answers.extract(facts)
    await answers.extract(0, skipped=True)
    await answers.extract(0, session_id="s2")
    await answers.park(session_id="s2")
    first, second = await by_name(listings)

    assert (first.zero_chunks, second.zero_chunks) == (2, 1)


async def test_a_forgotten_session_has_no_costs(parts: Parts, listings: Listings) -> None:
    answers, asked = Answers(parts.log), SessionParams(user_id="alice", session_id="s1")
    await answers.extract(0, Usage(calls=5, prompt_tokens=10))
    await parts.log.append_event(a_forgetting("s1"))
    forgotten = await listings.session(asked)

    assert forgotten.state == "forgotten"
    assert (forgotten.model_calls, forgotten.tokens, forgotten.zero_chunks) == (0, 0, 0)


async def test_whom_nobody_knows_is_not_found_and_not_quoted(
    parts: Parts, listings: Listings, structures: Structures
) -> None:
    await parts.say("one")
    with pytest.raises(SessionUnknown):
        await listings.session(SessionParams(user_id="alice", session_id="Xylophon"))
    with pytest.raises(UserUnknown) as raised:
        await structures.digest(UserParams(user_id="Xylophon"))

    assert (raised.value.code, "Xylophon" in str(raised.value)) == ("not_found", False)
    assert await find_user(parts.log, "alice") == ALICE


async def test_of_a_user_whom_nobody_knows_every_list_is_empty(
    parts: Parts, listings: Listings, structures: Structures
) -> None:
    await parts.say("one")
    page = FactsParams(user_id="nobody")

    assert (await listings.sessions(UserParams(user_id="nobody"))).sessions == []
    assert (await structures.facts(page)).facts == []
    assert (await structures.trees(page)).trees == []
    assert (await structures.units(page)).units == []
    assert (await parts.ask("one", "nobody")).memories == []


async def test_facts_come_in_time_order_page_by_page(parts: Parts, structures: Structures) -> None:
    await learn(parts, *(f"thing on day {day}." for day in (5, 3, 9, 1, 7)))
    first, more = await facts_of(structures, limit=2)
    second, even_more = await facts_of(structures, limit=2, after=more)
    third, end = await facts_of(structures, limit=2, after=even_more)

    shown = [fact.text for fact in (*first, *second, *third)]
    assert shown == [f"thing on day {day}." for day in (1, 3, 5, 7, 9)]
    assert end is None
    assert first[0].time_start == "1970-01-02T00:00:00Z"
    assert (first[0].said_at, first[0].group) == ("2024-07-01T09:04:00Z", None)
    assert [(source.session_id, source.turn_id) for source in first[0].sources] == [("s1", "t4")]


async def test_a_fact_that_was_said_twice_is_one_fact_with_both_sources(
    parts: Parts, structures: Structures
) -> None:
    await learn(parts, "Rex is a dog on day 3.", session_id="s1")
    await learn(parts, "Rex is a dog on day 3.", session_id="s2")
    (fact,), _ = await facts_of(structures)

    assert fact.sessions == ["s1", "s2"]
    assert [source.turn_id for source in fact.sources] == ["t1", "t2"]
    assert fact.entities == ["rex"]


async def test_a_fact_that_is_said_again_while_its_words_are_read_is_listed_as_it_was(parts: Parts) -> None:
    await learn(parts, "Alice likes tea.", session_id="s1")
    (fact,) = (await parts.memory()).canon.facts.values()
    standing = look_at_fact(await parts.memory(), fact)
    recorded = await parts.log.read(partial(read_events, seqs=standing.seqs))
    await learn(parts, "Alice likes tea.", session_id="s2")
    shown = show_fact(standing, recorded)

    assert len(fact.turns) == 2
    assert shown is not None
    assert shown.sessions == ["s1"]


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"after": "no hex"}, {"after": "00ff"}])
async def test_a_page_that_cannot_be_is_refused(
    parts: Parts, structures: Structures, wrong: dict[str, Any]
) -> None:
    await parts.say("one")
    with pytest.raises(InvalidInput):
        await facts_of(structures, **wrong)


async def test_trees_are_listed_the_largest_first_with_the_text_of_their_root(
    parts: Parts, structures: Structures
) -> None:
    await learn(parts, *(f"Bob said {number}." for number in range(8)), session_id="s1")
    await learn(parts, *(f"Then Bob went to {number}." for number in range(4)), session_id="s2")
    trees = (await structures.trees(PageParams(user_id="alice"))).trees

    assert [tree.leaves for tree in trees] == sorted((tree.leaves for tree in trees), reverse=True)
    by_name = {tree.scope: tree for tree in trees}
    assert isinstance(by_name["s1"], TreeShown)
    assert (by_name["s1"].kind, by_name["s1"].leaves, by_name["s1"].dirty) == ("session", 4, 0)
    assert by_name["bob"].kind == "entity"
    root = by_name["s1"].root_text
    assert root
    assert len(root) <= NODE_TEXT_MAX
    limited = (await structures.trees(PageParams(user_id="alice", limit=1))).trees
    assert limited == trees[:1]


async def test_a_root_without_a_summary_has_no_text_yet(parts: Parts, structures: Structures) -> None:
    await parts.say(*(f"turn {number}" for number in range(8)))
    (tree,) = (await structures.trees(PageParams(user_id="alice"))).trees

    assert tree.dirty > 0
    assert tree.root_text is None


async def test_units_and_groups_name_their_members(parts: Parts, structures: Structures) -> None:
    await learn(parts, *(f"thing {number}." for number in range(20)))
    result = await parts.compactor.compact(ALICE, 0.5)
    shown = await structures.units(PageParams(user_id="alice"))
    facts, _ = await facts_of(structures)
    units: list[UnitShown] = shown.units
    groups: list[GroupShown] = shown.groups

    assert (sum(unit.facts for unit in units), sum(unit.nodes for unit in units)) == (20, result.nodes_after)
    assert sum(unit.groups for unit in units) == len(groups) > 0
    texts = {fact.id: fact.text for fact in facts}
    for group in groups:
        assert group.text == " ".join(texts[member] for member in group.members)
        assert all(fact.group == group.id for fact in facts if fact.id in group.members)


async def test_the_digest_is_that_of_the_memory_at_the_logs_end(parts: Parts, structures: Structures) -> None:
    await learn(parts, "One thing.", "Another thing.")

    assert await structures.digest(UserParams(user_id="alice")) == digest_memory(await parts.memory())


async def test_what_was_just_forgotten_stands_in_no_listing(
    parts: Parts, listings: Listings, structures: Structures
) -> None:
    """Before the Memory is folded anew: the old one still holds it."""
    for session in ("s1", "s2"):
        await learn(parts, *(f"In {session} came Zoe {number}." for number in range(4)), session_id=session)
    await parts.compactor.compact(ALICE, 0.5)
    await parts.log.append_event(a_forgetting("s1"))
    parts.memories.hide(ALICE, KEYS.session("alice", "s1"))
    facts, _ = await facts_of(structures)
    trees = (await structures.trees(PageParams(user_id="alice"))).trees
    units = await structures.units(PageParams(user_id="alice"))

    assert {fact.text[:5] for fact in facts} == {"In s2"}
    assert {tree.scope for tree in trees} == {"s2"}, "an entity may be known from the forgotten session alone"
    assert all(tree.root_text is None or "s1" not in tree.root_text for tree in trees)
    assert units.groups == []
