"""Turns at their places in their last wordings, cut into chunks whose borders no edit moves."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from events.envelope import NewEvent, RecordedEvent
from events.hindsight import Hindsight
from events.memory import ExtractedFact, FactsExtracted
from events.withdrawal import Void
from projections.facts.chunking import make_chunk_key
from projections.memory import Memory, MemoryParameters
from projections.transcript import Transcript
from tests.builders import KEYS, MONDAY, a_closing, a_retraction, a_revision, a_turn, an_extraction, as_recorded

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")
PARAMETERS = MemoryParameters(chunk_turns=2)
DAY_MS = 86_400_000


def turn(number: int, content: str | None = None) -> NewEvent:
    return a_turn(
        content or f"turn {number}", turn_id=f"t{number}", name=None, happened_at=MONDAY + number * 60_000
    )


def reword(number: int, content: str, revision: int = 1, *, timed: bool = True) -> NewEvent:
    at = MONDAY + DAY_MS if timed else None
    return a_revision(content, revision, turn_id=f"t{number}", name=None, happened_at=at)


def recorded(*events: NewEvent) -> list[RecordedEvent]:
    return [as_recorded(new, user_seq) for user_seq, new in enumerate(events, 1)]


def fold(
    events: list[RecordedEvent],
    *,
    wordings: tuple[int, ...] = (),
    holes: tuple[int, ...] = (),
    voids: tuple[int, ...] = (),
) -> Memory:
    """A fold that knows beforehand which events are the last wordings, which places are empty, and what fell."""
    by_seq = {each.seq: each for each in events}
    standing = {}
    for seq in wordings:
        event = by_seq[seq].event
        assert event is not None
        standing[event.turn] = by_seq[seq]  # type: ignore[union-attr]
    hindsight = Hindsight(
        user_seq=len(events),
        voids={seq: Void(len(events), erases=seq in holes) for seq in (*voids, *holes)},
        holes=frozenset(holes),
        wordings=standing,
    )
    memory = Memory(ALICE, PARAMETERS, hindsight)
    for each in events:
        gone = each.seq in holes
        memory.apply(replace(each, event=None) if gone else each)
    return memory


def cut(memory: Memory) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(places, turns) of every closed chunk."""
    return [(chunk.places, chunk.turns) for chunk in memory.chunks.values()]


def test_a_revised_turn_stands_in_its_place_in_its_last_wording() -> None:
    events = recorded(turn(1), turn(2), turn(3), reword(1, "other"), reword(1, "last", 2))
    memory = fold(events, wordings=(5,), voids=(1, 4))

    assert cut(memory) == [((1, 2), (5, 2))]
    (chunk,) = memory.chunks.values()
    assert chunk.key == make_chunk_key([events[4].key, events[1].key])
    assert memory.open_chunk(S1) == (3,)
    assert not memory.needs_rebuild


def test_a_revision_in_an_open_chunk_opens_no_place() -> None:
    memory = fold(recorded(turn(1), reword(1, "other")), wordings=(2,), voids=(1,))

    assert cut(memory) == []
    assert memory.open_chunk(S1) == (2,)


def test_a_revision_without_a_time_keeps_the_time_of_its_turn_and_one_with_a_time_has_its_own() -> None:
    untimed = fold(recorded(turn(1), reword(1, "other", timed=False)), wordings=(2,), voids=(1,))
    timed = fold(recorded(turn(1), reword(1, "other")), wordings=(2,), voids=(1,))

    assert untimed.turns[2].said_at == MONDAY + 60_000
    assert timed.turns[2].said_at == MONDAY + DAY_MS


def test_a_revision_before_its_turn_has_the_place_and_the_turn_gets_none() -> None:
    memory = fold(recorded(reword(1, "other"), turn(1), turn(2)), wordings=(1,), voids=(2,))

    assert cut(memory) == [((1, 3), (1, 3))]


def test_the_last_wording_counts_whatever_came_after_it() -> None:
    memory = fold(recorded(turn(1), reword(1, "third", 3), reword(1, "second", 2)), wordings=(2,), voids=(1, 3))

    assert memory.open_chunk(S1) == (2,)


@pytest.mark.parametrize(
    ("holes", "chunks", "contexts"),
    [
        ((), [((1, 2), (1, 2)), ((3, 4), (3, 4)), ((5, 6), (5, 6))], [(), (2,), (4,)]),
        ((1,), [((1, 2), (2,)), ((3, 4), (3, 4)), ((5, 6), (5, 6))], [(), (2,), (4,)]),
        ((2,), [((1, 2), (1,)), ((3, 4), (3, 4)), ((5, 6), (5, 6))], [(), (1,), (4,)]),
        ((3, 4), [((1, 2), (1, 2)), ((5, 6), (5, 6))], [(), (2,)]),
        ((1, 2), [((3, 4), (3, 4)), ((5, 6), (5, 6))], [(), (4,)]),
        ((1, 2, 3, 4, 5, 6), [], []),
    ],
    ids=["none", "the first", "the last", "a chunk", "the first chunk", "all"],
)
def test_an_empty_place_moves_no_border_and_is_no_context(
    holes: tuple[int, ...],
    chunks: list[tuple[tuple[int, ...], tuple[int, ...]]],
    contexts: list[tuple[int, ...]],
) -> None:
    memory = fold(recorded(*(turn(number) for number in range(1, 8))), holes=holes)

    assert cut(memory) == chunks
    assert [memory.transcript.context_of(chunk) for chunk in memory.chunks.values()] == contexts
    assert memory.open_chunk(S1) == (7,)


def test_the_context_of_a_chunk_is_the_last_wording_before_it() -> None:
    events = recorded(turn(1), turn(2), turn(3), turn(4), reword(2, "other"))
    memory = fold(events, wordings=(5,), voids=(2,))

    contexts = [memory.transcript.context_of(chunk) for chunk in memory.chunks.values()]
    assert contexts == [(), (5,)]


@pytest.mark.parametrize("seed", range(20))
def test_borders_are_those_of_a_session_where_nothing_was_taken_back(seed: int) -> None:
    """Against chunks cut from all places by the plainest rule, with what stands picked out afterwards."""
    print("seed", seed)
    chance = random.Random(seed)
    transcript = Transcript(2, Hindsight())
    expected: list[tuple[int, ...]] = []
    open_places: list[int] = []
    holes = set[int]()
    for seq in range(1, 40):
        if chance.random() < 0.2:
            transcript.close_chunk(S1, None)
            done = bool(open_places)
        else:
            each = as_recorded(turn(seq), seq)
            if chance.random() < 0.4:
                holes.add(seq)
                transcript.leave_hole(S1, seq)
            else:
                transcript.place_turn(each, each)
            open_places.append(seq)
            done = len(open_places) == 2
        if done:
            expected.append(tuple(open_places))
            open_places = []

    standing = [place for place in expected if not holes.issuperset(place)]
    assert [chunk.places for chunk in transcript.chunks.values()] == standing
    assert [chunk.turns for chunk in transcript.chunks.values()] == [
        tuple(seq for seq in place if seq not in holes) for place in standing
    ]
    assert transcript.open_chunk(S1) == tuple(seq for seq in open_places if seq not in holes)


@pytest.mark.parametrize("edit", [reword(1, "other"), a_retraction("t1")], ids=["revised", "retracted"])
def test_a_living_memory_hides_what_an_edit_touches_at_once_and_asks_to_be_folded_again(edit: NewEvent) -> None:
    memory = Memory(ALICE, PARAMETERS)
    for each in recorded(turn(1), turn(2), turn(3), turn(4), edit):
        memory.apply(each)

    rows = memory.nodes.live_rows(frozenset())
    assert [memory.nodes.node(int(row)).turns for row in rows] == [(3, 4)]
    assert memory.needs_rebuild
    assert memory.hidden_turns == {1}


@pytest.mark.parametrize(
    "edit", [reword(9, "other"), a_retraction("t9"), reword(1, "first", 1)], ids=["new", "unknown", "overtaken"]
)
def test_an_edit_that_undoes_nothing_folds_nothing_again(edit: NewEvent) -> None:
    memory = Memory(ALICE, PARAMETERS)
    for each in recorded(reword(1, "second", 2), turn(2), edit):
        memory.apply(each)

    assert not memory.needs_rebuild
    assert not memory.hidden_turns


def test_an_extraction_of_another_wording_covers_nothing_and_its_facts_are_not_known() -> None:
    texts = ("Alice moved.",)
    events = recorded(
        turn(1),
        turn(2),
        an_extraction((1, 2), texts),
        reword(1, "other"),
        an_extraction((4, 2), texts, covers=(1, 2)),
    )
    waiting = fold(events[:4], wordings=(4,), voids=(1, 3))
    done = fold(events, wordings=(4,), voids=(1, 3))

    assert [chunk.turns for chunk in waiting.waiting_chunks.values()] == [(4, 2)]
    assert not waiting.canon.waiting
    assert not done.waiting_chunks
    assert [occurrence.turns for occurrence in done.canon.waiting.values()] == [(4,)]


def test_a_session_of_which_nothing_stands_has_no_tree_and_no_chunk() -> None:
    memory = fold(recorded(turn(1), turn(2), a_closing(), a_retraction("t1"), a_retraction("t2")), holes=(1, 2))

    assert (memory.chunks, memory.forest.trees, memory.nodes.row_of, memory.turns) == ({}, {}, {}, {})
    assert memory.pending() == 0


def test_a_fact_of_a_reworded_turn_was_said_when_the_turn_was() -> None:
    fact = ExtractedFact("Alice moved.", (0,), MONDAY, MONDAY)
    extraction = an_extraction((3, 2), covers=(1, 2))
    assert isinstance(extraction.event, FactsExtracted)
    new = replace(extraction, event=replace(extraction.event, facts=(fact,)))
    memory = fold(recorded(turn(1), turn(2), reword(1, "other", timed=False), new), wordings=(3,), voids=(1,))

    (occurrence,) = memory.canon.waiting.values()
    assert (occurrence.turns, occurrence.said_at) == ((3,), MONDAY + 60_000)
