"""Imported memories: facts at once, with the names of their text; gone with their session, or taken back."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest

from events.envelope import NewEvent
from events.hindsight import read_hindsight
from events.log import EventLog
from events.memory import Mention
from events.reading import read_user
from events.session import MemoryImported
from projections.digests import digest_memory
from projections.facts.imported import find_names, read_embedding
from projections.memory import Memory, MemoryParameters
from projections.recall.nodes import NodeKind
from tests.builders import (
    KEYS,
    MONDAY,
    a_batch,
    a_forgetting,
    a_retraction,
    a_turn,
)

ALICE = KEYS.user("alice")
NUTS = "Alice is allergic to nuts."


def a_memory(content: str = NUTS, memory_id: str = "x-1", *, session_id: str = "import") -> NewEvent:
    turn = a_turn(session_id=session_id, turn_id=memory_id)
    return replace(turn, event=MemoryImported(content, memory_id))


async def folded(log: EventLog) -> Memory:
    memory = Memory(ALICE, MemoryParameters(), await log.read(lambda db: read_hindsight(db, ALICE)))
    for recorded in await log.read(lambda db: read_user(db, ALICE, limit=1000)):
        memory.apply(recorded)
    return memory


async def followed(log: EventLog, events: list[NewEvent]) -> Memory:
    """A Memory that was there from the beginning, and took each event as it came."""
    memory = Memory(ALICE, MemoryParameters())
    for new in events:
        await log.append(a_batch(new))
        for recorded in await log.read(lambda db: read_user(db, ALICE, memory.user_seq, limit=10)):
            memory.apply(recorded)
    return memory


async def test_a_memory_is_a_fact_at_once_that_rests_on_itself(log: EventLog) -> None:
    await log.append(a_batch(a_memory()))
    memory = await folded(log)
    (fact,) = memory.canon.facts.values()
    node = memory.nodes.node(memory.nodes.row_of[fact.id])

    assert fact.turns == (1,)
    assert fact.sessions == {KEYS.session("alice", "import")}
    assert (node.kind, node.turns, node.said_at, node.time_start, node.time_end) == (
        *(NodeKind.FACT, (1,), MONDAY, MONDAY, MONDAY),
    )
    assert fact.labels == {"alice"}
    assert (memory.canon.waiting, memory.waiting_chunks) == ({}, {}), "nobody is asked for anything"


async def test_the_same_text_twice_is_one_fact_and_nothing_is_cut(log: EventLog) -> None:
    await log.append(a_batch(a_memory(), a_memory(memory_id="x-2"), a_turn(session_id="import", turn_id="t")))
    memory = await folded(log)
    (fact,) = memory.canon.facts.values()

    assert fact.turns == (1, 2)
    assert memory.open_chunk(KEYS.session("alice", "import")) == (3,)


async def test_names_that_are_known_are_found_in_a_text_that_writes_them_small(log: EventLog) -> None:
    await log.append(a_batch(a_memory("Alice painted with Bob Ross."), a_memory("bob ross paints", "x-2")))
    memory = await folded(log)
    _, second = memory.canon.facts.values()

    assert second.labels == {"bob ross"}


async def test_forgetting_its_session_and_taking_it_back_leave_nothing(log: EventLog) -> None:
    events = [a_memory(), a_memory("Bob likes tea.", "x-2", session_id="other"), a_retraction("x-1", "import")]
    live = await followed(log, events)
    hidden = [live.shows(fact) for fact in live.canon.facts.values()]
    retracted = await folded(log)
    await log.append(a_batch(a_forgetting("other")))
    forgotten = await folded(log)

    assert hidden == [False, True]
    assert live.needs_rebuild
    assert [fact.turns for fact in retracted.canon.facts.values()] == [(2,)]
    assert forgotten.canon.facts == {}
    assert forgotten.nodes.live_rows(frozenset()).size == 0


async def test_a_memory_that_was_taken_back_before_it_came_is_refused(log: EventLog) -> None:
    await log.append(a_batch(a_retraction("x-1", "import"), a_memory()))

    assert (await folded(log)).canon.facts == {}


async def test_the_growing_state_is_the_one_folded_from_nothing(log: EventLog) -> None:
    texts = [f"Alice met Bob in Oslo on day {number}." for number in range(20)]
    events = [a_memory(text, f"x-{n}", session_id=f"s{n % 3}") for n, text in enumerate(texts)]
    live = await followed(log, events)

    assert digest_memory(live) == digest_memory(await folded(log))
    assert len(live.canon.facts) == 20
    assert sorted(scope.name for scope in live.members) == ["bob", "oslo"], "entities have their trees"


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("Yesterday Alice met Bob.", [("yesterday alice", False), ("bob", False)]),
        ("She lives in New York and I like it.", [("she", True), ("new york", False)]),
        ("Tea is good. Alice's dog barks.", [("tea", True), ("alice", True)]),
        ("爱丽丝住在迈阿密", []),
        ("", []),
    ],
)
def test_capitals_name_somebody_and_a_lone_first_word_may_not(text: str, mentions: list[tuple[str, bool]]) -> None:
    assert find_names(text) == [Mention(label, uncertain) for label, uncertain in mentions]


def test_an_embedding_is_used_by_the_model_that_made_it_alone() -> None:
    packed = b64encode(np.array([3.0, 4.0], dtype="<f4").tobytes()).decode()
    event = MemoryImported(NUTS, "x-1", embedding=packed, embedding_model="small-2")
    vector = read_embedding(event, "small-2", 2)

    assert vector is not None
    assert vector.tolist() == pytest.approx([0.6, 0.8])
    assert read_embedding(event, "other", 2) is None
    assert read_embedding(event, "small-2", 3) is None
    assert read_embedding(MemoryImported(NUTS, "x-1"), "small-2", 2) is None
    for scale in (3e38, 1e-40):
        extreme = b64encode(np.array([scale, scale], dtype="<f4").tobytes()).decode()
        found = read_embedding(replace(event, embedding=extreme), "small-2", 2)
        assert found is not None
        assert found.tolist() == pytest.approx([0.5**0.5] * 2)
    zero = replace(event, embedding=b64encode(bytes(8)).decode())
    assert read_embedding(zero, "small-2", 2) is None
