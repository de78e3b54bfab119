"""Random histories of facts that say nearly the same: none is lost, and none counts twice."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import random
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from events.decisions import JudgedPair, PairsJudged, PairVerdict
from events.memory import FactsExtracted, ParkReason, Pointer, Task, WorkParked
from events.schema import open_writer
from events.session import MemoryImported
from projections.digests import digest_memory
from projections.facts.canonical import Occurrence
from projections.facts.near import Nearness
from projections.facts.saying import read_said, say_the_same
from projections.recall.nodes import NodeKind
from tests.builders import MONDAY, SECRET, a_turn, an_id
from tests.projections.facts.fact_world import FactWorld
from tests.projections.facts.planning import plan_near
from tests.projections.facts.test_corrections import History, check, shown
from tests.projections.thawing import thawed

HISTORIES = int(os.environ.get("CANON_HISTORIES", "24"))
STEPS = 24
# By rule the first four say the same, and so do the two behind them.
VARIANTS = ("has a cat", "has a cat now", "now has the cat", "has the cat already", "does not own a dog",
            "doesn't own a dog", "owns a dog", "has 2 cats")  # fmt: skip


class NearHistory(History):
    """Texts of which many say nearly the same, of several sessions; with judgements and imports, if not plain."""

    def __init__(self, world: FactWorld, rng: random.Random, *, plain: bool) -> None:
        super().__init__(world, rng)
        plain_steps = {
            self.say: 5, self.extract: 6, self.admit: 3, self.compare: 5, self.forget: 2, self.revise: 1,
            self.take_back: 1, self.replay: 1, self.route: 2, self.merge_scenes: 2,
        }  # fmt: skip
        more = {self.bring: 2, self.judge: 4, self.give_up: 2}
        kept = [(weight, act) for weight, act in self.steps if act not in plain_steps]
        self.steps = [(weight, act) for act, weight in plain_steps.items()]
        if not plain:
            self.steps += [*kept, *((weight, act) for act, weight in more.items())]

    def text(self) -> str:
        return f"{self.rng.choice(['Alice', 'Bob'])} {self.rng.choice(VARIANTS)}."

    def bring(self) -> None:
        """A memory from elsewhere."""
        name = f"x{self.world.memory.user_seq}"
        new = a_turn(session_id="import", turn_id=name, happened_at=MONDAY)
        self.world.write(replace(new, event=MemoryImported(self.text(), name)))

    def judge(self) -> None:
        """A model says something of any two readings, by whatever reason they were asked about."""
        pair = self._pair()
        if pair is not None:
            one, other = pair
            judged = JudgedPair(one.pointer, other.pointer, self.rng.choice(list(PairVerdict)))
            event = PairsJudged(1, (judged,), (one.pointer.seq, other.pointer.seq), "m")
            self.world.write(self.world._decided(event, {one.session, other.session}))

    def give_up(self) -> None:
        pair = self._pair()
        if pair is not None:
            seqs = tuple(sorted({each.pointer.seq for each in pair}))
            event = WorkParked(Task.JUDGE, an_id(repr(pair)), ParkReason.REFUSED, seqs)
            self.world.write(self.world._decided(event, {each.session for each in pair}))

    def _pair(self) -> tuple[Occurrence, Occurrence] | None:
        canon = self.world.memory.canon
        held = [each for fact in canon.facts.values() for each in fact.occurrences]
        pointers = sorted({each.pointer for each in (*held, *canon.waiting.values()) if each.pointer.seq > 0})
        if len(pointers) < 2:
            return None
        one, other = (canon.occurrence(each) for each in sorted(self.rng.sample(pointers, 2), reverse=True))
        return None if one is None or other is None else (one, other)


def standing(world: FactWorld) -> set[Pointer]:
    """The readings of extractions that are in force, as the log tells."""
    memory = world.memory
    return {
        Pointer(each.seq, n)
        for each in world.events
        if isinstance(each.event, FactsExtracted)
        and not memory.is_forgotten(each)
        and each.seq not in memory.hindsight.voids
        and (each.event.replaces is None or each.event.replaces in memory.hindsight.voids)
        for n in range(len(each.event.facts))
    }


def check_occurrences(world: FactWorld, *, all_of_them: bool) -> None:
    """Each reading stands once, those of nobody forgotten, and what is shown is somebody's words who is not."""
    canon, tombstones = world.memory.canon, world.memory.hindsight.tombstones
    held = [each for fact in canon.facts.values() for each in fact.occurrences]
    everywhere = [each.pointer for each in (*held, *canon.waiting.values())]
    assert len(everywhere) == len(set(everywhere))
    assert not any(each.session in tombstones for each in (*held, *canon.waiting.values()))
    assert all(fact.first in fact.occurrences and world.text_of(fact) for fact in canon.facts.values())
    for each in held:
        holder = canon.holder(each.pointer)
        assert holder is not None
        assert each in holder.occurrences
    if all_of_them:
        assert set(everywhere) == standing(world)


def check_grown(world: FactWorld) -> None:
    """The growing Memory is the rebuilt one, and the search has a row for what is known and for nothing else."""
    memory, again = world.memory, world.rebuilt()
    assert digest_memory(memory) == digest_memory(again)
    assert shown(memory) == shown(again)
    assert list(memory.canon.waiting) == list(again.canon.waiting)
    nodes = [memory.nodes.node(row) for row in memory.nodes.row_of.values()]
    grouped = memory.units.group_of.keys()
    assert {each.id for each in nodes if each.kind == NodeKind.FACT} == memory.canon.facts.keys() - grouped


def groups_by_hand(world: FactWorld) -> list[set[Pointer]]:
    """Which standing readings are one fact, by comparing each with each."""
    canon = world.memory.canon
    said = [each for fact in canon.facts.values() for each in fact.occurrences]
    words = {each.pointer: read_said(world.text_at(each.pointer)) for each in said}
    groups = [{each.pointer} for each in said]
    for one, other in combinations(said, 2):
        if one.likeness == other.likeness or (
            one.likeness.block == other.likeness.block
            and {each.label for each in one.mentions} == {each.label for each in other.mentions}
            and say_the_same(words[one.pointer], words[other.pointer])
        ):
            first, second = (next(g for g in groups if each.pointer in g) for each in (one, other))
            if first is not second:
                first |= second
                groups.remove(second)
    return sorted(groups, key=min)


@contextmanager
def history_of(seed: int, tmp_path: Path, *, plain: bool) -> Generator[NearHistory, None, None]:
    with closing(open_writer(tmp_path / f"{seed}.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield NearHistory(FactWorld(connection), random.Random(seed), plain=plain)


def seeds(part: int) -> list[int]:
    only = os.environ.get("CANON_SEED")
    return [int(only)] if only else list(range(part, HISTORIES, 2))


@pytest.mark.parametrize("part", range(2))
def test_no_reading_is_lost_or_stands_twice_and_a_snapshot_plans_what_the_log_plans(
    part: int, tmp_path: Path
) -> None:
    for seed in seeds(part):
        with history_of(seed, tmp_path, plain=False) as history:
            done: list[str] = []
            try:
                for n in range(STEPS):
                    done.append(history.step())
                    check_occurrences(history.world, all_of_them=False)
                    if n % 8 == 7:
                        check_grown(history.world)
                memory, again = thawed(history.world.memory, history.world.events), history.world.rebuilt()

                assert digest_memory(memory) == digest_memory(again)
                for nearness in (None, Nearness({}, 0.9), Nearness({}, 0.9, judged=True)):
                    plans = [plan_near(each.canon, nearness) for each in (history.world.memory, memory)]
                    plans.append(plan_near(again.canon, nearness))

                    assert plans[0] == plans[1] == plans[2]
            except BaseException:
                print(f"CANON_SEED={seed}: {' '.join(done)}")
                raise


@pytest.mark.parametrize("part", range(2))
def test_whatever_was_forgotten_the_readings_that_are_left_are_the_facts_they_would_be_alone(
    part: int, tmp_path: Path
) -> None:
    for seed in seeds(part):
        with history_of(seed, tmp_path, plain=True) as history:
            done: list[str] = []
            try:
                for _ in range(STEPS):
                    done.append(history.step())
                    check_occurrences(history.world, all_of_them=True)
                history.world.compare()
                history.world.compare()
                facts = history.world.memory.canon.facts.values()
                found = sorted(({each.pointer for each in fact.occurrences} for fact in facts), key=min)

                assert not history.world.memory.canon.waiting
                assert found == groups_by_hand(history.world)
                check(history.world)
            except BaseException:
                print(f"CANON_SEED={seed}: {' '.join(done)}")
                raise
