"""Units and groups in the fold: what falls, what stays and what comes back, whatever is undone around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from events.decisions import ScenesMerged
from events.envelope import NewEvent
from events.eventtree import CompactionUndone, Policy, PolicyChanged, UnitMembers, UnitsPartitioned
from events.hindsight import Hindsight
from events.memory import ExtractedFact, FactCorrected, FactId, FactPinned, FactRetracted
from events.session import TurnRecorded
from events.withdrawal import Void
from projections.digests import digest_memory
from projections.memory import Memory
from projections.recall.nodes import NodeKind
from projections.texts import WrittenText
from tests.builders import KEYS, MONDAY, a_forgetting, a_user_forgetting, an_id, as_recorded, lineage_of
from tests.projections.folded import ALICE, Fold, again, found
from tests.projections.thawing import thawed

S1, S2, S3 = (KEYS.session("alice", name) for name in ("s1", "s2", "s3"))
CHUNK, FACT, GROUP = NodeKind.CHUNK, NodeKind.FACT, NodeKind.GROUP
SWIMS, RUNS, SINGS, DRAWS = "Alice swims.", "Alice runs.", "Alice sings.", "Alice draws."


def said(text: str) -> ExtractedFact:
    return ExtractedFact(text, (0,), MONDAY, MONDAY)


def of_person(fold: Fold, event: FactCorrected | FactRetracted | FactPinned, session: str = "s1") -> NewEvent:
    key = f"said/{len(fold.events)}"
    lineage = lineage_of([session])
    return NewEvent("alice", session, event, key, MONDAY, lineage=lineage, basis=fold.memory.user_seq)


def retract(fold: Fold, fact: FactId, text: str, session: str = "s1") -> None:
    turns = fold.memory.canon.facts[fact].first.turns
    fold.apply(of_person(fold, FactRetracted(fact, turns, turns, said(text)), session))


def correct(fold: Fold, fact: FactId, text: str, says: str) -> None:
    turns = fold.memory.canon.facts[fact].first.turns
    fold.apply(of_person(fold, FactCorrected(fact, turns, turns, said(text), said(says))))


def pin(fold: Fold, fact: FactId, text: str, *, undoes: int | None = None) -> None:
    turns = fold.memory.canon.facts[fact].first.turns
    fold.apply(of_person(fold, FactPinned(fact, undoes is None, undoes, turns, turns, said(text))))


def place(fold: Fold, unit: str, facts: Sequence[FactId], session: str) -> None:
    event = UnitsPartitioned(1, (UnitMembers(an_id(unit), tuple(facts)),))
    fold.apply(fold.decided(event, (session,)))


def undo(fold: Fold, *facts: FactId) -> None:
    event = CompactionUndone(1, facts)
    key = f"undone/{len(fold.events)}"
    fold.apply(NewEvent("alice", None, event, key, MONDAY, lineage=(), basis=fold.memory.user_seq))


def groups_of(memory: Memory) -> list[tuple[FactId, ...]]:
    return [group.members for group in memory.units.groups.values()]


def forgotten(fold: Fold, session: str) -> Memory:
    """The Memory once a session is forgotten and all is folded again."""
    fold.apply(a_forgetting(session))
    return again(fold, **{session: len(fold.events)})


def test_a_group_replaces_its_facts_in_the_search() -> None:
    fold = Fold()
    facts = fold.tell(SWIMS, RUNS)
    fold.merge(facts, "Alice swims and jogs.")
    (group,) = fold.memory.units.groups.values()
    node = fold.memory.nodes.node(fold.memory.nodes.row_of[group.id])

    assert found(fold.memory, "jogs") == [GROUP]
    assert found(fold.memory, "runs") == []
    assert (node.ref, node.turns, node.sessions) == (WrittenText(5), (1,), frozenset((S1,)))
    assert len(fold.memory.canon.facts) == 2


def test_a_group_put_together_by_rule_is_found_as_its_best_member_would_be() -> None:
    fold = Fold()
    facts = fold.tell(SWIMS, RUNS, SINGS)
    fold.merge(facts, "\n".join((SWIMS, RUNS, SINGS)), extractive=True)
    nodes = fold.memory.nodes
    (group,) = fold.memory.units.groups
    score = nodes.lexical.scores(["swim"], nodes.size)[nodes.row_of[group]]
    weights = nodes.lexical.weights(["swim"])
    of_members = [nodes.lexical.score_counts(weights, each.counts) for each in nodes.inside(group)]

    assert sorted(of_members) == pytest.approx([0, 0, score])
    assert [found(fold.memory, word) for word in ("swims", "runs", "sings")] == [[GROUP]] * 3


def test_a_larger_group_takes_a_smaller_one() -> None:
    fold = Fold()
    facts = fold.tell(SWIMS, RUNS, SINGS)
    fold.merge(facts[:2], "Alice swims and runs.")
    fold.merge(facts, "Alice does much.")

    assert groups_of(fold.memory) == [tuple(facts)]
    assert found(fold.memory, "swims runs sings") == []
    assert len(fold.memory.nodes) == 2  # the chunk and the group


def test_units_are_what_was_recorded_last() -> None:
    fold = Fold()
    facts = fold.tell(SWIMS, RUNS)
    place(fold, "one", facts, "s1")
    place(fold, "two", facts[1:], "s1")

    assert fold.memory.units.unit_of == {facts[0]: an_id("one"), facts[1]: an_id("two")}


class TestForgetting:
    """A session goes: its groups with it, and nothing else."""

    def test_only_groups_with_a_member_of_that_session_fall_and_what_is_left_of_them_is_searched(self) -> None:
        fold = Fold()
        one, five, six = fold.tell(SWIMS, "Alice cooks.", "Alice bakes.")
        two, three, four = fold.tell(RUNS, SINGS, DRAWS, session="s2")
        fold.merge([one, two], "Alice swims and jogs.", ("s1", "s2"))
        fold.merge([five, six], "Alice cooks and bakes well.")
        fold.merge([three, four], "Alice sings and paints.", ("s2",))
        memory = forgotten(fold, "s1")

        assert groups_of(memory) == [(three, four)]
        assert [*memory.canon.facts] == [two, three, four]
        assert found(memory, "runs") == [FACT]
        assert found(memory, "jogs cooks bakes well swims") == []
        assert found(memory, "paints") == [GROUP]

    def test_who_is_left_stays_in_the_unit_though_the_fact_it_is_called_after_is_gone(self) -> None:
        fold = Fold()
        (one,), (two,), (three,) = fold.tell(SWIMS), fold.tell(RUNS, session="s2"), fold.tell(SINGS, session="s3")
        unit = one.hex()
        for fact, session in ((one, "s1"), (two, "s2"), (three, "s3")):
            place(fold, unit, [fact], session)
        fold.merge([one, two], "Alice swims and jogs.", ("s1", "s2"))
        memory = forgotten(fold, "s1")
        place(fold, unit, [two], "s2")  # what moves afterwards finds it there

        assert memory.units.facts_of == {an_id(unit): {two: None, three: None}}
        assert list(memory.units.unplaced) == []
        assert again(fold, s1=len(fold.events) - 1).units.facts_of == {an_id(unit): {three: None, two: None}}

    def test_a_unit_that_nobody_is_left_in_is_gone(self) -> None:
        fold = Fold()
        (one,) = fold.tell(SWIMS)
        place(fold, "one", [one], "s1")
        memory = forgotten(fold, "s1")

        assert (memory.units.facts_of, memory.units.unit_of) == ({}, {})

    def test_who_is_left_of_a_group_is_searched_at_once_before_all_is_folded_again(self) -> None:
        fold = Fold()
        (one,), (two,) = fold.tell(SWIMS), fold.tell(RUNS, session="s2")
        fold.merge([one, two], "Alice swims and jogs.", ("s1", "s2"))
        memory = fold.apply(a_forgetting("s1"))
        rows = memory.nodes.live_rows(memory.hidden)
        shown = [node.id for node in memory.nodes.nodes_at(rows.tolist()) if node.kind is not CHUNK]

        assert shown == [two]
        assert memory.needs_rebuild

    def test_the_group_of_a_fact_that_was_said_elsewhere_too_falls_and_its_new_fact_waits_for_a_unit_once(
        self,
    ) -> None:
        fold = Fold()
        (one,), (two,) = fold.tell(SWIMS), fold.tell(RUNS, session="s2")
        fold.tell(SWIMS, session="s3")  # joins the first
        place(fold, "one", [one], "s1")
        place(fold, "one", [two], "s2")
        fold.merge([one, two], "Alice swims and jogs.", ("s1", "s2"))
        fold.memory = forgotten(fold, "s1")
        (new,) = fold.admit()

        assert new != one
        assert groups_of(fold.memory) == []
        assert list(fold.memory.units.unplaced) == [new]
        assert fold.memory.units.unit_of == {two: an_id("one")}
        assert sorted(found(fold.memory, "swims runs")) == [FACT, FACT]

    def test_a_group_stays_when_a_session_is_forgotten_that_said_a_member_again(self) -> None:
        fold = Fold()
        one, two = fold.tell(SWIMS, RUNS)
        fold.merge([one, two], "Alice swims and jogs.")
        fold.tell(SWIMS, session="s2")
        (group,) = fold.memory.units.groups
        both = fold.memory.nodes.node(fold.memory.nodes.row_of[group]).sessions
        memory = forgotten(fold, "s2")

        assert both == {S1, S2}
        assert groups_of(memory) == [(one, two)]
        assert memory.nodes.node(memory.nodes.row_of[group]).sessions == {S1}

    def test_the_smaller_group_stands_again_that_a_forgotten_one_had_taken_in(self) -> None:
        fold = Fold()
        one, two = fold.tell(SWIMS, RUNS)
        (three,) = fold.tell(SINGS, session="s2")
        fold.merge([one, two], "Alice swims and jogs.")
        fold.merge([one, two, three], "Alice swims, jogs and hums.", ("s1", "s2"))
        memory = forgotten(fold, "s2")

        assert groups_of(memory) == [(one, two)]
        assert found(memory, "jogs") == [GROUP]
        assert found(memory, "hums") == []

    def test_a_group_never_comes_back_without_a_member_whatever_sessions_its_event_names(self) -> None:
        fold = Fold()
        (one,), (two,) = fold.tell(SWIMS), fold.tell(RUNS, session="s2")
        fold.merge([one, two], "Alice swims and jogs.", ("s1", "s2"))
        fold.merge([one, two], "Alice swims, then jogs.", ("s2",))
        memory = forgotten(fold, "s1")

        assert memory.units.groups == {}
        assert found(memory, "jogs") == []
        assert sorted(found(memory, "runs Miami")) == [CHUNK, FACT]

    def test_an_old_partition_of_several_sessions_takes_places_along_but_no_groups(self) -> None:
        """Version 1 wrote one event a unit: who was in it waits for a unit again, in a group or not."""
        fold = Fold()
        (one,), (two, three) = fold.tell(SWIMS), fold.tell(RUNS, SINGS, session="s2")
        event = UnitsPartitioned(1, (UnitMembers(an_id("one"), (one, two, three)),))
        fold.apply(fold.decided(event, ("s1", "s2")))
        fold.merge([two, three], "Alice jogs and hums.", ("s2",))
        memory = forgotten(fold, "s1")

        assert groups_of(memory) == [(two, three)]
        assert list(memory.units.unplaced) == [two, three]

    def test_a_forgotten_user_who_comes_back_is_compressed_as_configured(self) -> None:
        fold = Fold()
        policy = PolicyChanged(Policy(ratio=300))
        fold.apply(NewEvent("alice", None, policy, "policy", MONDAY, lineage=(), basis=0))
        before = fold.memory.units.policy
        fold.apply(a_user_forgetting())
        hindsight = Hindsight(tombstones={ALICE: len(fold.events)})
        memory = Memory(ALICE, fold.memory.parameters, hindsight)
        for user_seq, new in enumerate(fold.events, 1):
            memory.apply(as_recorded(new, user_seq, erased=isinstance(new.event, TurnRecorded)))

        assert before == Policy(ratio=300)
        assert memory.units.policy == Policy()


class TestWhatPeopleSay:
    """Facts are corrected, retracted, pinned: their groups fall, their neighbours stay where they are."""

    @pytest.fixture
    def fold(self) -> Fold:
        """Two groups of two in one unit."""
        fold = Fold()
        facts = fold.tell(SWIMS, RUNS, SINGS, DRAWS)
        place(fold, "one", facts, "s1")
        fold.merge(facts[:2], "Alice swims and jogs.")
        fold.merge(facts[2:], "Alice sings and paints.")
        return fold

    def test_the_group_of_a_retracted_fact_falls(self, fold: Fold) -> None:
        one, two, three, four = fold.memory.canon.facts
        retract(fold, one, SWIMS)

        assert groups_of(fold.memory) == [(three, four)]
        assert found(fold.memory, "runs swims") == [FACT]
        assert fold.memory.units.facts_of == {an_id("one"): dict.fromkeys((two, three, four))}

    def test_a_corrected_fact_leaves_its_group_and_the_new_one_waits_for_a_unit(self, fold: Fold) -> None:
        _, two, three, four = facts = list(fold.memory.canon.facts)
        correct(fold, facts[0], SWIMS, "Alice rows.")
        (new,) = fold.memory.canon.facts.keys() - set(facts)

        assert groups_of(fold.memory) == [(three, four)]
        assert list(fold.memory.units.unplaced) == [new]
        assert fold.memory.units.unit_of.keys() == {two, three, four}
        assert [*map(len, fold.memory.units.facts_of.values())] == [3]

    def test_so_it_is_when_only_the_spelling_was_corrected(self, fold: Fold) -> None:
        one, two, three, four = fold.memory.canon.facts
        correct(fold, one, SWIMS, "ALICE swims.")
        (new,) = fold.memory.canon.facts.keys() - {two, three, four}

        assert groups_of(fold.memory) == [(three, four)]
        assert list(fold.memory.units.unplaced) == [new]
        assert sorted(found(fold.memory, "swims runs")) == [FACT, FACT]

    def test_a_pinned_fact_stays_in_its_unit_and_in_no_group(self, fold: Fold) -> None:
        one, two, three, four = fold.memory.canon.facts
        pin(fold, one, SWIMS)
        fold.merge([one, two], "Alice swims and jogs.")

        assert groups_of(fold.memory) == [(three, four)]
        assert fold.memory.units.unit_of.keys() == {one, two, three, four}
        assert list(fold.memory.units.unplaced) == []

    def test_its_group_comes_back_once_it_is_no_longer_pinned(self, fold: Fold) -> None:
        one, two, three, four = fold.memory.canon.facts
        pin(fold, one, SWIMS)
        pinned = len(fold.events)
        pin(fold, one, SWIMS, undoes=pinned)
        voids = {pinned: Void(since=len(fold.events), erases=False)}
        memory = Memory(ALICE, fold.memory.parameters, Hindsight(user_seq=len(fold.events), voids=voids))
        for user_seq, new in enumerate(fold.events, 1):
            memory.apply(as_recorded(new, user_seq))

        assert groups_of(memory) == [(one, two), (three, four)]

    def test_it_comes_back_with_the_forgetting_of_what_was_said_against_it(self, fold: Fold) -> None:
        one, two, three, four = fold.memory.canon.facts
        retract(fold, one, SWIMS)
        fold.events[-1] = replace(fold.events[-1], session_id="s2", lineage=lineage_of(["s2"]))
        memory = forgotten(fold, "s2")

        assert groups_of(memory) == [(one, two), (three, four)]
        assert found(memory, "jogs") == [GROUP]

    def test_a_fact_that_is_taken_up_by_another_leaves_its_group(self, fold: Fold) -> None:
        _, two, three, four = facts = list(fold.memory.canon.facts)
        (elder,) = fold.tell("Alice is a swimmer.", session="s2")
        first = fold.memory.canon.facts[facts[0]].first
        fold.join(elder, first.pointer, ("s1", "s2"))

        assert groups_of(fold.memory) == [(three, four)]
        assert fold.memory.units.unit_of.keys() == {two, three, four}
        assert forgotten_groups(fold) == [(facts[0], two), (three, four)]

    def test_scenes_that_are_merged_change_no_group(self, fold: Fold) -> None:
        before = groups_of(fold.memory)
        merged = ScenesMerged(1, an_id("scene"), (an_id("another"),))
        fold.apply(NewEvent("alice", None, merged, "scenes", MONDAY, basis=fold.memory.user_seq))

        assert groups_of(fold.memory) == before

    def test_of_a_group_with_a_withdrawn_turn_the_rest_is_searched_at_once(self) -> None:
        fold = Fold()
        (one,), (two,) = fold.tell(SWIMS), fold.tell(RUNS, session="s2")
        fold.merge([one, two], "Alice swims and jogs.", ("s1", "s2"))
        memory = fold.memory
        (turn,) = (key for key, each in memory.transcript.placed.items() if each.seq == 1)
        memory.withdraw_turn(turn)
        shown = [memory.nodes.node(row).id for row in memory.nodes.live_rows(memory.hidden).tolist()]

        assert two in shown
        assert one not in shown
        assert found(memory, "jogs swims") == []


def forgotten_groups(fold: Fold) -> list[tuple[FactId, ...]]:
    """The groups after the second session is forgotten."""
    return groups_of(forgotten(fold, "s2"))


class TestUndoing:
    """Groups that somebody took apart stay so until they are asked for again, whatever else is undone."""

    @pytest.fixture
    def fold(self) -> Fold:
        """A group of two sessions that had taken in a smaller one."""
        fold = Fold()
        one, two = fold.tell(SWIMS, RUNS)
        (three,) = fold.tell(SINGS, session="s2")
        fold.merge([one, two], "Alice swims and jogs.")
        fold.merge([one, two, three], "Alice swims, jogs and hums.", ("s1", "s2"))
        return fold

    def test_its_facts_are_searched_again_and_kept_apart(self, fold: Fold) -> None:
        facts = list(fold.memory.canon.facts)
        undo(fold, *facts)

        assert fold.memory.units.groups == {}
        assert list(fold.memory.units.apart) == facts
        assert found(fold.memory, "swims runs sings") == [FACT, FACT, FACT]

    def test_a_merge_that_somebody_asks_for_takes_them_again(self, fold: Fold) -> None:
        one, two, three = fold.memory.canon.facts
        undo(fold, one, two, three)
        fold.merge([one, two], "Alice swims and jogs, after all.")

        assert groups_of(fold.memory) == [(one, two)]
        assert list(fold.memory.units.apart) == [three]

    def test_forgetting_brings_no_smaller_group_back_and_leaves_apart_who_is_left(self, fold: Fold) -> None:
        one, two, three = fold.memory.canon.facts
        undo(fold, one, two, three)
        memory = forgotten(fold, "s2")

        assert memory.units.groups == {}
        assert list(memory.units.apart) == [one, two]

    def test_what_is_forgotten_first_is_not_kept_apart(self, fold: Fold) -> None:
        one, two, _ = fold.memory.canon.facts
        fold.memory = forgotten(fold, "s2")
        undo(fold, one, two)

        assert fold.memory.units.groups == {}
        assert list(fold.memory.units.apart) == [one, two]
        assert digest_memory(again(fold, s2=len(fold.events) - 1)) == digest_memory(fold.memory)

    def test_one_of_its_facts_is_enough(self, fold: Fold) -> None:
        one, two, _ = fold.memory.canon.facts
        undo(fold, two)

        assert fold.memory.units.groups == {}
        assert list(fold.memory.units.apart) == [two]
        assert one in fold.memory.nodes.row_of

    def test_a_retracted_fact_is_apart_no_more(self, fold: Fold) -> None:
        one, two, three = fold.memory.canon.facts
        undo(fold, one, two, three)
        retract(fold, one, SWIMS)

        assert list(fold.memory.units.apart) == [two, three]

    @pytest.mark.parametrize("way", ["undone", "policy"])
    def test_live_folded_anew_and_loaded_from_a_snapshot_it_is_the_same(self, fold: Fold, way: str) -> None:
        before = digest_memory(fold.memory)
        if way == "undone":
            undo(fold, *fold.memory.canon.facts)
        else:
            event = PolicyChanged(Policy(ratio=300, never_merged=()))
            fold.apply(NewEvent("alice", None, event, "policy", MONDAY, basis=fold.memory.user_seq))
        log = [as_recorded(new, user_seq) for user_seq, new in enumerate(fold.events, 1)]
        live, folded, loaded = map(digest_memory, (fold.memory, again(fold), thawed(fold.memory, log)))

        assert live == folded == loaded
        assert live.units != before.units
        assert live.facts == before.facts


def test_what_comes_after_a_snapshot_is_folded_into_its_groups() -> None:
    fold = Fold()
    facts = fold.tell(SWIMS, RUNS, SINGS)
    place(fold, "one", facts, "s1")
    fold.merge(facts[:2], "Alice swims and jogs.")
    log = [as_recorded(new, user_seq) for user_seq, new in enumerate(fold.events, 1)]
    loaded = thawed(fold.memory, log)
    fold.merge(facts, "Alice swims, jogs and hums.")
    undo(fold, facts[2])
    fold.merge(facts[1:], "Alice jogs and hums.")
    for user_seq, new in enumerate(fold.events[len(log) :], len(log) + 1):
        loaded.apply(as_recorded(new, user_seq))

    assert digest_memory(loaded) == digest_memory(fold.memory)
    assert found(loaded, "jogs swims") == found(fold.memory, "jogs swims") == [GROUP, FACT]
