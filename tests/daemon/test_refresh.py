"""The refresh at work: what it waits for, what waits for it, and what a slow or failed summary holds up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from daemon.building.engine import TRIES_MAX
from daemon.building.extractions import INLINE_CHARS_MAX
from daemon.building.worker import WorkerParameters
from daemon.models.limiter import FIRST_IN_A_ROW
from daemon.reading.recalled import GivenOut
from events.envelope import Reference
from events.log import EventLog
from events.memory import Digest, Task
from events.time import Instant
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.items import Node
from projections.ports import ChunkText, IntervalText, ModelUnavailable
from tests.builders import KEYS, ManualClock
from tests.daemon.parts_in_use import QUICK, Parts, build_parts, running
from tests.scripted_models import Call, ModelFailed, ScriptedModel
from tests.waiting import wait_until

MANY = replace(QUICK, concurrency=64)


def built(log: EventLog, clock: ManualClock, worker: WorkerParameters = MANY) -> Parts:
    """Parts whose model holds every answer back."""
    return build_parts(log, clock, model=ScriptedModel(held=True), worker=worker)


def own_tree(session_id: str = "s1") -> Scope:
    return Scope(ScopeKind.SESSION, KEYS.session("alice", session_id).hex())


def is_extraction(call: Call, word: str = "") -> bool:
    """Whether a call asks for the facts of a chunk that says this."""
    return isinstance(call.question, ChunkText) and any(word in turn.text for turn in call.question.turns)


def is_summary(call: Call, word: str = "") -> bool:
    """Whether a call asks for a summary of something that says this."""
    return isinstance(call.question, IntervalText) and any(word in child.text for child in call.question.children)


def is_of_facts(call: Call) -> bool:
    """Whether a call asks for a summary in a tree of facts; the chunks of a session's own tree name speakers."""
    return is_summary(call) and not is_summary(call, "Alice:")


async def say_chunks(parts: Parts, count: int, session_id: str = "s1", user_id: str = "alice") -> None:
    """So many closed chunks of two turns, each of one fact that names the owner; no two of them are alike."""
    for number in range(count):
        texts = (f"in {session_id} Alice did thing {number}a{half}." for half in (1, 2))
        await parts.say(*texts, session_id=session_id, user_id=user_id)


def is_in_the_trees(memory: Memory, chunks_left: int = 0) -> bool:
    """Whether all that was said so far is, but for so many chunks."""
    return (
        len(memory.waiting_chunks) == chunks_left
        and not memory.canon.waiting
        and not memory.placement.scenes.unrouted
    )


async def answer_until(
    parts: Parts, is_done: Callable[[], bool], *, but: Callable[[Call], bool] = lambda _: False
) -> None:
    """Answer every call but these until it is so, and nothing else is under way."""

    def answer_and_look() -> bool:
        waiting = [call for call in parts.model.waiting() if not but(call)]
        for call in waiting:
            call.answer()
        return not waiting and len(parts.worker.in_flight) == len(parts.model.waiting()) and is_done()

    for _ in range(2):  # a plan may be under way
        await wait_until(answer_and_look)


def asked(parts: Parts, which: Callable[[Call], bool]) -> int:
    """How many such calls were made so far."""
    return sum(which(call) for call in parts.model.calls)


def is_last_chunk(call: Call) -> bool:
    """Whether a call is about the last of six chunks."""
    return is_extraction(call, "thing 5")


async def test_trees_of_facts_wait_for_the_last_chunk_of_a_session_that_closed(
    log: EventLog, clock: ManualClock
) -> None:
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 6)
        await parts.close()
        memory = await parts.memory()
        await answer_until(
            parts,
            lambda: is_in_the_trees(memory, 1) and not memory.forest.dirty_count(own_tree()),
            but=is_last_chunk,
        )
        held = asked(parts, is_of_facts), memory.forest.dirty_count(USER_SCOPE)
        parts.model.release()
        await parts.until_done()

    assert held[0] == 0, "only the session's own tree is summarised: it has all its chunks"
    assert held[1] > 0, "there was something else to summarise all the while"
    nodes = {node.digest for tree in memory.forest.trees.values() for node in tree.nodes()}
    assert asked(parts, is_summary) == len(nodes), "no node was summarised twice"


class HeldUp(GivenOut):
    """Holds up who looks for our own lines in what a machine said, until `go_on`."""

    go_on = threading.Event()

    def knows(self, user: Reference, line: str, said_at: Instant) -> bool:
        return self.go_on.wait(timeout=60) and super().knows(user, line, said_at)


async def test_no_summary_is_asked_before_a_chunk_that_was_begun_and_is_still_read(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, worker=MANY, given_out=(held_up := HeldUp(KEYS.secret, clock)))
    async with running(parts):
        await say_chunks(parts, 2)
        await parts.say("Then Alice asked for the long list.")
        await parts.say("There is more to say of each thing.\n" * (INLINE_CHARS_MAX // 20), role="assistant")
        await parts.close()
        memory = await parts.memory()
        await wait_until(lambda: is_in_the_trees(memory, 1))
        held_up.go_on.set()
        await parts.until_done()

    tasks = [call.task for call in parts.model.calls]
    assert tasks[:3] == [Task.EXTRACT] * 3
    assert set(tasks[3:]) == {Task.SUMMARISE}


async def test_a_chunk_that_waits_for_a_model_does_not_keep_all_trees_dirty(
    log: EventLog, clock: ManualClock
) -> None:
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 6)
        await parts.close()
        memory = await parts.memory()
        await answer_until(parts, lambda: is_in_the_trees(memory, 1), but=is_last_chunk)
        clock.advance(int(MANY.idle_s * 1000))
        await answer_until(parts, lambda: not memory.forest.dirty_count(), but=is_last_chunk)

    assert memory.waiting_chunks, "its facts are still to come"
    assert memory.forest.root_refs(USER_SCOPE)


async def test_a_chunk_that_is_given_up_holds_nothing_up(log: EventLog, clock: ManualClock) -> None:
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 6)
        await parts.close()
        memory = await parts.memory()
        await answer_until(parts, lambda: is_in_the_trees(memory, 1), but=is_last_chunk)
        for _ in range(TRIES_MAX):
            await answer_until(parts, lambda: bool(parts.model.waiting()), but=is_last_chunk)
            for call in parts.model.waiting():
                call.fail(ModelFailed())
            await wait_until(lambda call=call: call.let_go.is_set() and call not in parts.model.waiting())  # type: ignore[misc]
        await answer_until(parts, parts.is_done)

    assert parts.reported.fields("worker.work_parked") == [{"task": Task.EXTRACT, "reason": "model_failed"}]
    assert memory.forest.root_refs(USER_SCOPE)


async def test_the_next_session_is_extracted_while_the_last_one_is_summarised_and_its_nodes_wait(
    log: EventLog, clock: ManualClock
) -> None:
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 6, "one")
        await parts.close("one")
        memory = await parts.memory()
        await answer_until(parts, lambda: is_in_the_trees(memory), but=is_summary)
        summaries = parts.model.waiting()
        await say_chunks(parts, 6, "two")
        await answer_until(
            parts,
            lambda: asked(parts, lambda call: is_extraction(call, "two")) == 6 and is_in_the_trees(memory),
            but=is_summary,
        )
        during = parts.model.waiting()
        await answer_until(parts, lambda: not parts.worker.in_flight)
        left = memory.forest.dirty_count(USER_SCOPE), asked(parts, lambda call: is_summary(call, "two"))
        await parts.close("two")
        parts.model.release()
        await parts.until_done()

    assert summaries
    assert during == summaries, "all of the second session was extracted, and not one summary was answered"
    assert left[0] > 0
    assert left[1] == 0, "nodes with the second session's facts wait for its end"
    assert memory.forest.root_refs(USER_SCOPE)


async def test_what_is_wanted_on_demand_is_summarised_while_the_session_goes_on(
    log: EventLog, clock: ManualClock
) -> None:
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 6)
        memory = await parts.memory()
        await answer_until(parts, lambda: is_in_the_trees(memory))
        before = asked(parts, is_summary)
        parts.worker.refresh(KEYS.user("alice"))
        await answer_until(parts, lambda: not memory.forest.dirty_count())

    assert before == 0
    assert memory.forest.root_refs(USER_SCOPE)
    assert memory.forest.root_refs(own_tree())


async def test_one_slow_summary_delays_its_own_ancestors_and_nothing_else(
    log: EventLog, clock: ManualClock
) -> None:
    """Paper B: a node waits for its own children, not for a level and not for another tree."""
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 24)
        await parts.close()
        memory = await parts.memory()
        await answer_until(parts, lambda: is_in_the_trees(memory), but=is_of_facts)
        slow = next(call for call in parts.model.waiting() if is_summary(call, "thing 7a1"))
        await answer_until(parts, lambda: parts.model.waiting() == [slow], but=lambda call: call is slow)
        nodes = {node.digest: node for tree in memory.forest.trees.values() for node in tree.nodes()}
        missing = {digest for digest, node in nodes.items() if memory.forest.state_of(node) == "dirty"}

    lowest = min((nodes[digest] for digest in missing), key=lambda node: node.level)
    assert max(tree.height for tree in memory.forest.trees.values()) >= 3, "there are levels to wait for"
    assert lowest.level == 1
    assert missing == {digest for digest, node in nodes.items() if lowest.digest in below(node)}


def below(node: Node) -> set[Digest]:
    """The digests of a node and of all nodes below it."""
    found = {node.digest}
    for child in node.children:
        if isinstance(child, Node):
            found |= below(child)
    return found


@pytest.mark.parametrize("failure", [ModelFailed, lambda: ModelUnavailable("too busy", 0.05)])
async def test_a_failed_summary_keeps_its_parent_dirty_and_unasked(
    log: EventLog, clock: ManualClock, failure: Callable[[], Exception]
) -> None:
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 8)
        await parts.close()
        memory = await parts.memory()
        await answer_until(parts, lambda: is_in_the_trees(memory), but=is_of_facts)
        first = next(call for call in parts.model.waiting() if is_summary(call, "thing 3a1"))
        first.fail(failure())

        def is_it(call: Call) -> bool:
            return call.order == first.order

        await answer_until(parts, lambda: bool(parts.model.waiting()), but=is_it)
        states = {memory.forest.state_of(node) for node in memory.forest.trees[USER_SCOPE].nodes()}
        root_before, tries = memory.forest.root_refs(USER_SCOPE), asked(parts, is_it)
        parts.model.release()
        await parts.until_done()

    assert tries == 2, "it is asked again"
    assert states == {"summarised", "dirty"}
    assert root_before == ()
    assert memory.forest.root_refs(USER_SCOPE)


async def test_a_summary_of_what_a_tree_was_is_never_taken_for_what_it_is(
    log: EventLog, clock: ManualClock
) -> None:
    parts = built(log, clock)
    async with running(parts):
        await say_chunks(parts, 1)
        await parts.close()
        memory = await parts.memory()
        await answer_until(parts, lambda: is_in_the_trees(memory) and bool(parts.model.waiting()), but=is_summary)
        (stale,) = parts.model.waiting()
        await say_chunks(parts, 1, "more")
        await answer_until(
            parts, lambda: is_in_the_trees(memory) and memory.user_seq > 8, but=lambda call: call is stale
        )
        stale.answer()
        await answer_until(parts, lambda: stale.answered and bool(memory.forest.summaries))
        between = memory.forest.root_refs(USER_SCOPE), memory.forest.dirty_count(USER_SCOPE)
        await parts.close("more")
        parts.model.release()
        await parts.until_done()

    root = memory.forest.trees[USER_SCOPE].root
    assert isinstance(root, Node)
    assert between == ((), 1), "the tree has facts more: its root wants a summary of its own"
    assert memory.forest.root_refs(USER_SCOPE) == (memory.forest.summaries[root.digest],)


async def test_all_users_share_the_slots_and_fresh_turns_come_before_summaries(
    log: EventLog, clock: ManualClock
) -> None:
    parts = built(log, clock, replace(QUICK, concurrency=1))
    async with running(parts):
        await say_chunks(parts, 9)
        await parts.close()
        memory = await parts.memory()

        def is_stuck(call: Call) -> bool:
            return is_in_the_trees(memory) and is_summary(call)

        await wait_until(lambda: is_stuck_now(parts, is_stuck))
        await say_chunks(parts, 1, "bobs", "bob")
        await wait_until(lambda: KEYS.user("bob") in parts.memories.loaded())
        order: list[Call] = []
        while not any(is_extraction(call, "bobs") for call in order):
            await parts.until_asked(1)
            (call,) = parts.model.waiting()
            order.append(call)
            call.answer()

    assert memory.forest.dirty_count() > len(order)
    assert len(order) <= 3, "no more than what was started already goes before"


def is_stuck_now(parts: Parts, is_stuck: Callable[[Call], bool]) -> bool:
    """Answer what waits until such a call does."""
    for call in parts.model.waiting():
        if is_stuck(call):
            return True
        call.answer()
    return False


async def test_while_one_user_imports_for_hours_the_trees_of_another_get_their_summaries(
    log: EventLog, clock: ManualClock
) -> None:
    parts = built(log, clock, replace(QUICK, concurrency=2))
    bob = KEYS.user("bob")
    async with running(parts):
        await say_chunks(parts, 3, "bobs", "bob")
        await wait_until(lambda: bob in parts.memories.loaded())
        theirs = parts.memories.loaded()[bob]
        await answer_until(parts, lambda: is_in_the_trees(theirs))
        await say_chunks(parts, 80)
        await parts.close("bobs", "bob")
        order: list[Call] = []
        while theirs.closings == 0 or theirs.forest.dirty_count():
            await parts.until_asked(1)
            (call, *_) = parts.model.waiting()
            call.answer()
            order.append(call)
        chunks_left = len((await parts.memory()).waiting_chunks)

    summaries = sum(map(is_summary, order))
    assert theirs.forest.root_refs(USER_SCOPE)
    assert chunks_left > 0, "the other one still imports"
    assert 0 < summaries <= len(order) / FIRST_IN_A_ROW, "fresh turns have most of the slots"
