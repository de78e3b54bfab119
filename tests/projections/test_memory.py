"""The fold of one user: one event, look at the state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from events.envelope import NewEvent, Reference
from events.errors import LogDamaged
from events.eventtree import UnitMembers, UnitsPartitioned
from events.memory import (
    Admission,
    ExtractedFact,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    Mention,
    ParkReason,
    Pointer,
    Task,
    WorkParked,
)
from events.session import SessionErased
from projections.digests import MemoryDigest, digest_memory
from projections.facts.admission import plan_admissions
from projections.facts.chunking import make_chunk_key
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from projections.memtree.items import Node
from projections.recall.nodes import NodeKind
from projections.texts import FactText, TurnsText, WrittenText
from tests.builders import (
    KEYS,
    MONDAY,
    a_closed_chunk,
    a_closing,
    a_forgetting,
    a_turn,
    an_erasure,
    an_extraction,
    an_id,
    as_recorded,
)
from tests.projections.folded import Fold, again, found

S1, S2 = (KEYS.session("alice", name) for name in ("s1", "s2"))
IN_S1, IN_BOTH = frozenset((S1,)), frozenset((S1, S2))


def session_scope(session: Reference) -> Scope:
    return Scope(ScopeKind.SESSION, session.hex())


def test_a_turn_can_be_searched_at_once_in_the_open_chunk() -> None:
    fold = Fold()
    fold.say(1)
    memory = fold.memory
    (node,) = [memory.nodes.node(row) for row in memory.nodes.live_rows().tolist()]

    assert found(memory, "Miami") == [NodeKind.CHUNK]
    assert (node.ref, node.turns, node.sessions) == (TurnsText((1,)), (1,), IN_S1)
    assert memory.open_chunk(S1) == (1,)
    assert (memory.chunks, memory.forest.trees, memory.pending()) == ({}, {}, 0)
    assert (memory.user_id, memory.session_ids) == ("alice", {S1: "s1"})


def test_a_full_chunk_replaces_the_open_one_and_waits_for_extraction() -> None:
    fold = Fold()
    fold.say(2)
    memory = fold.memory
    key = make_chunk_key(turn.key for turn in memory.turns.values())

    assert list(memory.chunks) == list(memory.waiting_chunks) == list(memory.nodes.row_of) == [key]
    assert memory.chunks[key].turns == (1, 2)
    assert (memory.chunks[key].time_start, memory.chunks[key].time_end) == (MONDAY, MONDAY + 1000)
    assert len(memory.forest.trees[session_scope(S1)]) == 1
    assert (memory.pending(), memory.open_chunk(S1)) == (1, ())


def test_chunks_of_a_session_know_the_turn_before_them() -> None:
    fold = Fold()
    fold.say(1, "s1")
    fold.say(2, "s2")
    fold.say(3, "s1")

    context_of = fold.memory.transcript.context_of
    assert [(chunk.turns, chunk.places, context_of(chunk)) for chunk in fold.memory.chunks.values()] == [
        ((2, 3), (2, 3), ()), ((1, 4), (1, 4), ()), ((5, 6), (5, 6), (4,)),
    ]  # fmt: skip


def test_closing_a_session_closes_its_chunk_and_makes_refresh_due() -> None:
    fold = Fold()
    fold.say(1)
    assert fold.memory.active_sessions == {S1: MONDAY}
    memory = fold.apply(a_closing())

    assert [chunk.turns for chunk in memory.chunks.values()] == [(1,)]
    assert (memory.active_sessions, memory.closings) == ({}, 2)
    assert list(memory.nodes.row_of) == list(memory.chunks)


def test_closing_a_session_that_nobody_spoke_in_makes_no_chunk() -> None:
    assert Fold().apply(a_closing()).chunks == {}


@pytest.mark.parametrize(("last_turn", "closed"), [(1, 0), (2, 1)])
def test_a_chunk_closes_for_quiet_unless_a_turn_came_meanwhile(last_turn: int, closed: int) -> None:
    fold = Fold()
    fold.say(3)
    fold.apply(a_closing())
    fold.say(1)
    memory = fold.apply(a_closed_chunk(4 + (last_turn - 1)))

    assert len(memory.chunks) == 2 + closed


def test_an_extraction_takes_its_chunk_and_its_facts_wait() -> None:
    fold = Fold()
    fold.say(2)
    fold.extract((1, 2), "Alice moved.", "Alice lives in Miami.")
    memory = fold.memory

    assert memory.waiting_chunks == {}
    assert list(memory.canon.waiting) == [Pointer(3, 0), Pointer(3, 1)]
    assert memory.pending() == 2
    assert found(memory, "Miami") == [NodeKind.CHUNK]


def test_an_extraction_without_facts_leaves_nothing_to_do() -> None:
    fold = Fold()
    fold.say(2)
    fold.extract((1, 2))

    assert fold.memory.pending() == 0


@pytest.mark.parametrize(("task", "waiting"), [(Task.EXTRACT, 0), (Task.SUMMARISE, 1)])
def test_a_parked_extraction_takes_its_chunk_too(task: Task, waiting: int) -> None:
    fold = Fold()
    fold.say(2)
    parked = WorkParked(task, an_id("request"), ParkReason.MODEL_FAILED, (1, 2), (1, 2))
    memory = fold.apply(fold.decided(parked, ("s1",)))

    assert len(memory.waiting_chunks) == waiting


def test_admitted_facts_are_searched_and_shown_with_their_turns() -> None:
    fold = Fold()
    (fact,) = fold.tell("Alice lives in Miami.")
    node = fold.memory.nodes.node(fold.memory.nodes.row_of[fact])

    assert sorted(found(fold.memory, "lives Miami")) == [NodeKind.CHUNK, NodeKind.FACT]
    assert (node.ref, node.turns, node.sessions) == (FactText(Pointer(3, 0)), (1,), IN_S1)
    assert fold.memory.pending() == 1  # it is in no scene yet


def test_an_occurrence_that_joins_adds_its_source_and_no_row() -> None:
    fold = Fold()
    (fact,) = fold.tell("Alice lives in Miami.")
    rows = len(fold.memory.nodes)
    assert fold.tell("alice lives in miami.", session="s2") == [fact]
    node = fold.memory.nodes.node(fold.memory.nodes.row_of[fact])

    assert len(fold.memory.nodes) == rows + 1  # the chunk of s2
    assert (node.turns, node.sessions) == ((1, 5), IN_BOTH)
    assert node.ref == FactText(Pointer(3, 0))


def test_an_entity_has_a_tree_from_three_facts_and_two_sessions_on() -> None:
    fold = Fold()
    miami = Scope(ScopeKind.ENTITY, "miami")
    first = fold.tell("Miami is hot.", "Miami is far.", labels=("Miami",))
    assert miami not in fold.memory.members
    facts = first + fold.tell("Miami is wet.", session="s2", labels=("Miami",))

    assert fold.memory.members[miami] == set(facts)
    assert len(fold.memory.forest.trees[miami]) == 3


def test_the_owners_facts_are_the_scope_user_until_another_name_comes() -> None:
    fold = Fold()
    facts = fold.tell("Alice swims.", "Alice runs.", "Alice sings.", labels=("Alice",))
    assert fold.memory.members == {USER_SCOPE: set(facts)}

    fold.apply(a_turn("I am Bob.", session_id="s2", turn_id="b", name="Bob"))
    assert fold.memory.members == {}
    assert USER_SCOPE not in fold.memory.forest.trees

    fold.tell("Alice sings.", session="s3", labels=("Alice",))
    assert fold.memory.members == {Scope(ScopeKind.ENTITY, "alice"): set(facts)}


def test_the_same_text_about_two_intervals_of_one_answer_can_be_folded() -> None:
    fold = Fold()
    fold.say(2)
    new = an_extraction((1, 2), ())
    assert isinstance(new.event, FactsExtracted)
    day = 86_400_000
    facts = tuple(
        ExtractedFact("Alice is away.", (0,), MONDAY, MONDAY + n * day, mentions=(Mention("Alice"),))
        for n in (0, 1)
    )
    fold.apply(replace(new, event=replace(new.event, facts=facts)))
    fold.admit()

    assert len(fold.memory.forest.trees[USER_SCOPE]) == 2


def test_a_summary_is_for_its_digest_and_a_parked_one_is_not_pending() -> None:
    for event_of in (summary_of, parking_of):
        fold = Fold(concatenation_max=0)
        fold.say(4)
        fold.extract((1, 2))
        fold.extract((3, 4))
        root = fold.memory.forest.trees[session_scope(S1)].root
        assert isinstance(root, Node)
        assert fold.memory.pending() == 1

        memory = fold.apply(fold.decided(event_of(root.digest), ("s1",)))
        assert memory.pending() == 0
        assert (memory.forest.summaries == {root.digest: WrittenText(7)}) is (event_of is summary_of)


def summary_of(digest: bytes) -> IntervalSummarised:
    return IntervalSummarised(1, digest, (), "offline", "Two chunks.")


def parking_of(digest: bytes) -> WorkParked:
    return WorkParked(Task.SUMMARISE, digest, ParkReason.MODEL_FAILED)


def test_a_forgotten_session_is_hidden_at_once_and_asks_for_a_new_fold() -> None:
    fold = Fold()
    fold.say(2)
    fold.say(2, "s2")
    memory = fold.apply(a_forgetting("s1"))

    assert memory.hidden == {S1}
    assert memory.needs_rebuild
    assert [memory.nodes.node(row).sessions for row in memory.nodes.live_rows(memory.hidden).tolist()] == [{S2}]


def test_voided_events_are_passed_over_and_the_rest_is_as_if_they_had_never_been() -> None:
    fold = Fold()
    fold.tell("Alice swims.", "Alice runs.")
    fold.tell("Alice swims.", session="s2")
    fold.apply(a_forgetting("s1"))
    fold.say(1, "s3")
    memory = again(fold, s1=len(fold.events) - 1)

    assert memory.user_seq == len(fold.events)
    assert not memory.needs_rebuild
    assert list(memory.session_ids) == [S2, KEYS.session("alice", "s3")]
    assert memory.canon.facts == {}
    assert list(memory.canon.waiting) == [Pointer(7, 0)]
    assert found(memory, "runs") == []
    assert session_scope(S1) not in memory.forest.trees


def test_what_is_said_after_the_forgetting_is_not_voided_by_it() -> None:
    memory = Fold(tombstones={S1: 1}).apply(a_forgetting("s1"), a_turn())

    assert list(memory.turns) == [2]


@pytest.mark.parametrize("user_seq", [0, 1, 3])
def test_an_event_out_of_order_is_refused_and_changes_nothing(user_seq: int) -> None:
    fold = Fold()
    fold.say(1)
    before = digest_memory(fold.memory)
    with pytest.raises(LogDamaged, match=f"user_seq {user_seq} came after 1"):
        fold.memory.apply(as_recorded(a_turn(turn_id="t9"), user_seq, seq=9))

    assert digest_memory(fold.memory) == before
    assert list(fold.memory.turns) == [1]


def test_missing_words_without_a_tombstone_are_damage() -> None:
    with pytest.raises(LogDamaged, match="seq 1"):
        Fold().apply(a_turn(), erased=True)
    with pytest.raises(LogDamaged, match="seq 1"):
        Fold(tombstones={S2: 9}).apply(a_turn(), erased=True)


def test_events_that_change_nothing_move_the_position_all_the_same() -> None:
    fold = Fold()
    memory = fold.apply(NewEvent("alice", None, SessionErased(1, an_erasure()), "erased/1", MONDAY))

    assert memory.user_seq == 1
    assert digest_memory(memory) == replace(digest_memory(Fold().memory), user_seq=1)


def a_full_fold() -> Fold:
    fold = Fold(concatenation_max=0)
    facts = fold.tell("Alice swims.", "Alice runs.", labels=("Alice",))
    fold.tell("Alice sings.", session="s2", labels=("Alice",))
    fold.apply(fold.decided(UnitsPartitioned(1, (UnitMembers(an_id("unit"), tuple(facts)),)), ("s1",)))
    fold.merge(facts, "Alice swims and runs.")
    return fold


def test_two_folds_of_one_log_have_one_digest() -> None:
    fold = a_full_fold()

    assert digest_memory(again(fold)) == digest_memory(fold.memory)


def extract_more(fold: Fold) -> None:
    fold.extract((1, 2), "Alice draws.")


def admit_more(fold: Fold) -> None:
    fold.tell("Alice draws.", labels=("Alice",))


def summarise_root(fold: Fold) -> None:
    root = fold.memory.forest.trees[USER_SCOPE].root
    assert isinstance(root, Node)
    fold.apply(fold.decided(summary_of(root.digest), ("s1", "s2")))


def move_unit(fold: Fold) -> None:
    facts = tuple(fold.memory.canon.facts)[:1]
    fold.apply(fold.decided(UnitsPartitioned(1, (UnitMembers(an_id("another unit"), facts),)), ("s1",)))


def merge_all(fold: Fold) -> None:
    fold.merge(list(fold.memory.canon.facts), "Alice does much.", ("s1", "s2"))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (extract_more, {"facts"}),
        (admit_more, {"facts", "scopes", "trees"}),
        (summarise_root, {"trees"}),
        (move_unit, {"units"}),
        (merge_all, {"units"}),
        (lambda fold: fold.say(2), {"trees"}),
        (lambda fold: fold.say(1), set()),
    ],
    ids=["extraction", "admission", "summary", "partition", "merge", "chunk", "turn"],
)
def test_a_digest_changes_with_the_part_that_changed_and_no_other(
    change: Callable[[Fold], None], parts: set[str]
) -> None:
    fold = a_full_fold()
    before = digest_memory(fold.memory)
    change(fold)
    after = digest_memory(fold.memory)

    assert changed_parts(before, after) == {"user_seq", *parts}


def changed_parts(one: MemoryDigest, other: MemoryDigest) -> set[str]:
    names = ("user_seq", "facts", "scopes", "trees", "units")
    return {name for name in names if getattr(one, name) != getattr(other, name)}


def test_admitting_what_waits_changes_the_digest_of_the_facts() -> None:
    fold = a_full_fold()
    extract_more(fold)
    before = digest_memory(fold.memory)
    ((decision, _),) = plan_admissions(fold.memory.canon, 1)
    fold.admit()

    assert isinstance(decision, FactsAdmitted)
    assert isinstance(decision.admissions[0], Admission)
    assert digest_memory(fold.memory).facts != before.facts
