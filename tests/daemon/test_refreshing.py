"""When which nodes are due for their summaries: the rule alone, with the instants told."""

from __future__ import annotations

import pytest

from daemon.building.refreshing import Refresh, Standing, is_of_closed_session, read_standing
from events.envelope import NewEvent
from events.memory import Digest
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from tests.builders import KEYS, MONDAY, ManualClock, a_closed_chunk, a_closing, an_extraction, an_id
from tests.daemon.parts_in_use import MINUTE_MS, Parts, running
from tests.waiting import wait_until

IDLE_MS, AGE_MS = 30_000, 600_000
NOW = MONDAY
QUIET = Standing(closings=0, heard_at=0)
# Somebody talks at NOW, in a session that is not closed.
TALKING = Standing(closings=0, heard_at=NOW)


def nodes(*names: str) -> frozenset[Digest]:
    return frozenset(an_id(name) for name in names)


def all_are_routed(parts: Parts) -> bool:
    """Whether all that was said is in its trees, and nothing is left to do but summaries."""
    (memory,) = parts.memories.loaded().values()
    return memory.user_seq == parts.log.head and memory.pending() == memory.forest.dirty_count()


@pytest.fixture
def rule() -> Refresh:
    return Refresh(IDLE_MS, AGE_MS)


def test_where_all_has_its_summary_nothing_is_due_and_no_time_is_waited_for(rule: Refresh) -> None:
    rule.take_up(nodes(), QUIET, NOW)

    assert (rule.due, rule.due_at) == (nodes(), None)


def test_while_turns_keep_coming_nodes_wait_for_quiet(rule: Refresh) -> None:
    rule.take_up(nodes("a"), TALKING, NOW)
    before = rule.due, rule.due_at
    rule.take_up(nodes("a", "b"), TALKING, NOW + IDLE_MS - 1)
    almost = rule.due
    rule.take_up(nodes("a", "b"), TALKING, NOW + IDLE_MS)

    assert before == (nodes(), NOW + IDLE_MS)
    assert almost == nodes()
    assert rule.due == nodes("a", "b")


def test_a_node_waits_for_no_longer_than_the_age_however_much_is_said(rule: Refresh) -> None:
    for waited_ms in range(0, AGE_MS, IDLE_MS):
        rule.take_up(nodes("a"), TALKING._replace(heard_at=NOW + waited_ms), NOW + waited_ms)
        assert rule.due == nodes()
    rule.take_up(nodes("a"), TALKING._replace(heard_at=NOW + AGE_MS), NOW + AGE_MS)

    assert rule.due == nodes("a")


def test_a_session_that_closes_makes_all_that_is_dirty_due_though_others_talk(rule: Refresh) -> None:
    rule.take_up(nodes("a"), TALKING, NOW)
    rule.take_up(nodes("a", "b"), TALKING._replace(closings=7), NOW)

    assert rule.due == nodes("a", "b")


def test_what_becomes_dirty_later_is_not_due_with_it(rule: Refresh) -> None:
    """The next session is talked in while the last one is summarised; its nodes wait for its own end."""
    rule.take_up(nodes("a", "root"), TALKING._replace(closings=7), NOW)
    rule.take_up(nodes("root", "next"), TALKING._replace(closings=7), NOW)
    during = rule.due
    rule.take_up(nodes("next"), TALKING._replace(closings=9), NOW)

    assert during == nodes("a", "root"), "what was due stays due"
    assert rule.due == nodes("next")


def test_what_is_due_waits_for_the_rest_of_a_session_that_is_over(rule: Refresh) -> None:
    closed = TALKING._replace(closings=7)
    rule.take_up(nodes("a"), closed._replace(rest_from=NOW), NOW)
    held = rule.rest_from, rule.due, rule.due_at
    rule.take_up(nodes("a", "b"), closed, NOW + 1)

    assert held == (NOW, nodes(), NOW + IDLE_MS)
    assert (rule.rest_from, rule.due) == (None, nodes("a", "b"))


def test_the_rest_is_waited_for_as_long_as_for_quiet_and_then_once_in_so_long(rule: Refresh) -> None:
    stuck = TALKING._replace(closings=7, rest_from=NOW)
    rule.take_up(nodes("a"), stuck, NOW)
    rule.take_up(nodes("a"), stuck, NOW + IDLE_MS - 1)
    almost = rule.due
    rule.take_up(nodes("a"), stuck, NOW + IDLE_MS)
    after = rule.due
    rule.take_up(nodes("b"), stuck, NOW + IDLE_MS + 1)
    later = rule.due, rule.rest_from
    rule.take_up(nodes("b"), stuck, NOW + 2 * IDLE_MS)

    assert (almost, after) == (nodes(), nodes("a"))
    assert later == (nodes("a"), NOW), "what is new waits as long again: no summary for every chunk that comes"
    assert rule.due == nodes("b")


def test_a_closing_counts_until_what_its_session_changed_has_been_due(rule: Refresh) -> None:
    stuck = TALKING._replace(closings=7, rest_from=NOW)
    rule.take_up(nodes("a"), stuck, NOW)
    rule.take_up(nodes("a"), stuck, NOW + IDLE_MS)
    rule.take_up(nodes(), stuck, NOW + IDLE_MS)
    rule.take_up(nodes("late"), stuck._replace(rest_from=None, heard_at=NOW + IDLE_MS), NOW + IDLE_MS + 1)
    due = rule.due
    rule.take_up(nodes("more"), TALKING._replace(closings=7, heard_at=NOW + IDLE_MS), NOW + IDLE_MS + 2)

    assert due == nodes("late"), "the chunk that was stuck is in the trees now"
    assert rule.due == nodes("late"), "and with it the session is through: what others say waits for them"


def test_a_session_that_changed_nothing_makes_nothing_due_that_comes_later(rule: Refresh) -> None:
    rule.take_up(nodes(), TALKING._replace(closings=7), NOW)
    rule.take_up(nodes("a"), TALKING._replace(closings=7), NOW)

    assert rule.due == nodes()


def test_on_demand_all_that_is_dirty_is_due_at_once_and_what_comes_later_is_not(rule: Refresh) -> None:
    rule.is_demanded = True
    rule.take_up(nodes("a"), TALKING._replace(rest_from=NOW), NOW)
    asked = rule.due, rule.rest_from
    rule.take_up(nodes("a", "b"), TALKING, NOW)

    assert asked == (nodes("a"), None)
    assert rule.due == nodes("a")


def test_a_demand_for_which_there_is_nothing_to_do_is_over(rule: Refresh) -> None:
    rule.is_demanded = True
    rule.take_up(nodes(), TALKING, NOW)
    rule.take_up(nodes("a"), TALKING, NOW)

    assert rule.due == nodes()


def test_while_nothing_can_be_asked_the_rest_is_not_waited_for(rule: Refresh) -> None:
    """A model that is back has the chunks to extract first: only then does the wait begin."""
    stuck = TALKING._replace(closings=7, rest_from=NOW)
    rule.take_up(nodes("a"), stuck, NOW)
    rule.note_blocked()
    rule.take_up(nodes("a"), stuck, NOW + IDLE_MS)

    assert (rule.rest_from, rule.due) == (NOW, nodes())


def test_a_clock_that_was_set_back_makes_nothing_wait_for_ever(rule: Refresh) -> None:
    rule.take_up(nodes("a"), TALKING, NOW)
    back = NOW - 86_400_000
    heard = TALKING._replace(heard_at=0)  # a turn from the future counts as heard long ago
    rule.take_up(nodes("a"), heard._replace(closings=7, rest_from=NOW), back)
    held_until = rule.due_at
    rule.take_up(nodes("a"), heard._replace(closings=7, rest_from=NOW), back + IDLE_MS)

    assert held_until == back + IDLE_MS
    assert rule.due == nodes("a")


OWN_TREE = Scope(ScopeKind.SESSION, KEYS.session("alice", "s1").hex())
SAID_AT = MONDAY + MINUTE_MS  # the first turn


@pytest.mark.parametrize(
    ("ending", "waited_ms", "expected"),
    [
        (None, IDLE_MS - 1, Standing(0, NOW, None)),
        # It fell quiet, and its last chunk is about to be closed.
        (None, IDLE_MS, Standing(0, NOW, SAID_AT)),
        # That was done, and the chunk waits to be extracted.
        (a_closed_chunk(1), IDLE_MS, Standing(0, NOW, SAID_AT)),
        (a_closing(), 0, Standing(2, 0, SAID_AT)),
        # The clock was set back.
        (None, -1, Standing(0, 0, SAID_AT)),
    ],
)
async def test_a_session_is_over_when_it_closed_or_fell_quiet(
    parts: Parts, clock: ManualClock, ending: NewEvent | None, waited_ms: int, expected: Standing
) -> None:
    await parts.say("I moved to Miami.")
    if ending is not None:
        await parts.log.append_event(ending)
    memory = await parts.memory()

    assert read_standing(memory, clock() + waited_ms, IDLE_MS) == expected


async def test_facts_that_are_not_admitted_yet_are_waited_for_too(parts: Parts) -> None:
    await parts.say("Rex is old.", "Rex barks.")
    await parts.close()
    memory = await parts.memory()
    (chunk,) = memory.waiting_chunks.values()
    await parts.log.append_event(an_extraction(chunk.turns, basis=memory.user_seq))
    memory = await parts.memory()

    assert (len(memory.waiting_chunks), len(memory.canon.waiting)) == (0, 1)
    assert read_standing(memory, NOW, IDLE_MS).rest_from == MONDAY


async def test_only_a_closed_sessions_own_tree_is_known_to_be_complete(parts: Parts) -> None:
    await parts.say("Rex is old.", "Rex barks.")
    talking = is_of_closed_session(await parts.memory(), OWN_TREE)
    await parts.close()
    memory = await parts.memory()
    closed = is_of_closed_session(memory, OWN_TREE), is_of_closed_session(memory, USER_SCOPE)
    await parts.say("Rex is back.")

    assert (talking, closed) == (False, (True, False))
    assert not is_of_closed_session(await parts.memory(), OWN_TREE), "it goes on"


@pytest.mark.parametrize("slots_are_short", [False, True])
async def test_where_slots_are_short_what_lies_before_the_rest_goes_ahead(
    parts: Parts, rule: Refresh, slots_are_short: bool
) -> None:
    """Or they stand empty while the last chunks are extracted."""
    for number in range(24):
        await parts.say(f"here Alice did {number}.")
    async with running(parts):
        await wait_until(lambda: len(parts.model.calls) == 12 and not parts.worker.in_flight)
        await wait_until(lambda: all_are_routed(parts))
    memory = await parts.memory()
    tree = memory.forest.trees[USER_SCOPE]
    rest_from = tree.leaves()[12].time_start
    rule.slots_are_short = slots_are_short
    rule.take_up(memory.forest.dirty_digests(), QUIET._replace(closings=99, rest_from=rest_from), NOW)
    planned = list(memory.forest.plan_summaries(lambda bare: rule.wants(bare, memory)))

    lowest = [node for node in tree.nodes() if node.level == 1]
    before = [node for node in lowest if node.time_end < rest_from]
    assert 0 < len(before) < len(lowest)
    went_ahead = [node for node in lowest if node.digest in {work.digest for work in planned}]
    assert went_ahead == (before if slots_are_short else [])


async def test_nothing_goes_ahead_of_chunks_that_were_just_begun(parts: Parts, rule: Refresh) -> None:
    await parts.say("Rex is old.", "Rex barks.", *("More is said." for _ in range(8)))
    await parts.close()
    memory = await parts.memory()
    rule.take_up(memory.forest.dirty_digests(), QUIET._replace(closings=99, rest_from=NOW), NOW)
    ahead = list(memory.forest.plan_summaries(lambda bare: rule.wants(bare, memory)))
    rule.goes_ahead = False

    assert {work.scope for work in ahead} == {OWN_TREE}
    assert not list(memory.forest.plan_summaries(lambda bare: rule.wants(bare, memory)))


async def test_what_may_grow_does_not_go_ahead_though_it_lies_before_the_rest(parts: Parts, rule: Refresh) -> None:
    await parts.say("so Alice has 3 dogs.", "and Alice has 5 birds.")
    async with running(parts):
        await wait_until(lambda: len(parts.model.calls) == 1 and not parts.worker.in_flight)
        await wait_until(lambda: all_are_routed(parts))
    memory = await parts.memory()
    rule.slots_are_short = True
    rule.take_up(memory.forest.dirty_digests(), QUIET._replace(closings=99, rest_from=NOW + AGE_MS), NOW)
    planned = list(memory.forest.plan_summaries(lambda bare: rule.wants(bare, memory)))

    assert memory.forest.dirty_count(USER_SCOPE) == 1
    assert planned == []


def test_slots_are_short_until_all_is_in_the_trees(rule: Refresh) -> None:
    rule.slots_are_short = True
    rule.take_up(nodes("a"), QUIET._replace(closings=7, rest_from=NOW), NOW)
    meanwhile = rule.slots_are_short
    rule.take_up(nodes("a"), QUIET._replace(closings=7), NOW)

    assert (meanwhile, rule.slots_are_short) == (True, False)
