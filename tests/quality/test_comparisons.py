"""The tables of baselines, ablations and sweeps, on a talk that is made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from daemon.offline.embedder import HashingEmbedder
from projections.eventtree.parameters import EventTreeParameters
from projections.recall.agpr import PAPER, fuse, rank
from tests.quality.ablation_runs import ablations_of_ours, ablations_of_paper
from tests.quality.baselines import (
    Measured,
    Method,
    Sort,
    as_far_as,
    comparison_table,
    count_links,
    kept_table,
    measure_methods,
    methods_for,
    missed_bars,
)
from tests.quality.compression import AGPR, Outcome, eventtree, keep_all, settings_for
from tests.quality.compression_inputs import Embedding, Inputs, Kind, Memory, make_inputs
from tests.quality.compression_scores import Groups
from tests.quality.compression_sweeps import SEARCH_VALUES, TREE_VALUES, sweep_search, sweep_tree
from tests.quality.locomo import Category, Question
from tests.quality.merging_baselines import merge_halves
from tests.quality.ranking import rank_all
from tests.quality.tables import Table

SEED = 20_261_130
HOUR_MS = 3_600_000
SAID = (
    "Anna bought a red boat in Lisbon.",
    "Ben is learning to sail with Anna.",
    "Anna painted the boat with Eve.",
    "Ben met Eve in Porto about the harbour.",
    "The dentist was kind to Anna on Monday.",
    "Ben has a toothache and hates the dentist.",
    "Anna recommended her dentist to Ben.",
    "Ben went to the dentist in the end.",
    "Anna sold the boat to Eve in the summer.",
    "Ben moved to Porto for work.",
    "Anna visits Ben in Porto.",
    "Ben found a job at the harbour.",
)


@pytest.fixture(scope="module")
def talk() -> Inputs:
    memories = [
        Memory(text, (place // 4) * 100 * HOUR_MS + place, frozenset((f"D{place}",)), place, place // 4)
        for place, text in enumerate(SAID)
    ]
    asked = [
        Question("Who bought the boat of Anna?", Category.SINGLE_HOP, frozenset(("D0", "D8")), {}),
        Question("What does Ben do in Porto?", Category.MULTI_HOP, frozenset(("D9", "D11")), {}),
    ]
    return make_inputs("talk", Kind.FACTS, memories, asked, HashingEmbedder().rows)


def outcome(*shares: float) -> dict[str, Outcome]:
    return {AGPR.name: Outcome(np.array([shares]), (0.5,))}


def measured_of(**shares: Sequence[float]) -> Measured:
    by_name = {(name, 0.5): outcome(*each) for name, each in shares.items()}
    return Measured((0.5,), (AGPR,), outcome(*[1.0] * 100), by_name)


def method(name: str, sort: Sort) -> Method:
    return Method(name, sort, keep_all)


def test_memories_are_linked_to_who_is_named_but_not_to_those_who_are_always_named(talk: Inputs) -> None:
    # Anna, Ben, Porto and Eve are each in more than a fifth of them. Lisbon is left.
    assert count_links(talk) == (1, *[0] * 11)


def test_a_method_goes_as_far_as_another_one_reached(talk: Inputs) -> None:
    def capped(inputs: Inputs, _ratio: float, _seed: int) -> Groups:
        return keep_all(inputs, 0, 0)[:9]

    def tome(inputs: Inputs, ratio: float, _seed: int) -> Groups:
        return merge_halves(inputs.vectors, ratio)

    assert len(as_far_as(capped, tome)(talk, 0.7, 0)) == 9


def test_every_method_leaves_disjoint_groups_and_not_fewer_than_asked_for(talk: Inputs) -> None:
    methods = (
        *methods_for(Kind.FACTS, HashingEmbedder().rows),
        *ablations_of_ours(Kind.TURNS),
        *ablations_of_paper(),
    )
    for each in methods:
        for ratio in (0.3, 0.5, 0.7):
            groups = each.compress(talk, ratio, 1)
            members = [member for group in groups for member in group]

            assert len(members) == len(set(members)), each.name
            assert (len(members) < len(talk)) == (each.sort is Sort.PRUNING), each.name
            assert len(groups) >= len(talk) * (1 - ratio) - 1e-9, each.name


def test_a_method_without_randomness_gives_the_same_with_every_seed(talk: Inputs) -> None:
    for each in methods_for(Kind.FACTS, None):
        if not each.is_random:
            assert each.compress(talk, 0.5, 0) == each.compress(talk, 0.5, 1), each.name


def test_a_bar_is_missed_by_losing_to_pruning_or_by_a_point_to_merging() -> None:
    half = [1.0] * 50 + [0.0] * 50
    measured = measured_of(
        ours=half,
        worse=[0.0] * 100,
        same=half,
        merging_above=[1.0] * 52 + [0.0] * 48,
        merging_near=[1.0] * 50 + [0.5] + [0.0] * 49,
    )
    methods = (
        method("ours", Sort.OURS),
        method("worse", Sort.PRUNING),
        method("same", Sort.PAPER),
        method("merging_above", Sort.MERGING),
        method("merging_near", Sort.MERGING),
    )

    missed = missed_bars("bars", methods, measured)

    assert [(row[0], row[3]) for row in missed.rows] == [("same", "+0.0"), ("merging_above", "-2.0")]


def test_tables_say_what_is_kept_what_was_reached_and_how_sure_a_difference_is() -> None:
    measured = measured_of(ours=[1.0] * 90 + [0.0] * 10, other=[0.5] * 100)
    methods = (method("ours", Sort.OURS), method("other", Sort.PRUNING))

    kept = kept_table("kept", methods, measured)
    compared = comparison_table("compared", methods, measured, AGPR)

    assert list(kept.rows) == [("not compressed", "100.0", 1), ("ours", "90.0", 3), ("other", "50.0", 3)]
    # Of 100 questions 10 are at -.5 and 90 at +.5: .4, and a standard error of .03.
    name, cell = compared.rows[0]
    assert (name, str(cell)[:6], str(cell)[-8:]) == ("other", "+40.0 ", "p < .001")


def test_every_value_of_a_sweep_has_a_row(talk: Inputs) -> None:
    tree, search = (
        sweep_tree((talk,), Kind.FACTS, Embedding.HASHING),
        sweep_search((talk,), Kind.FACTS, Embedding.HASHING),
    )

    assert len(tree.rows) == sum(len(values) for _, _, values in TREE_VALUES)
    assert len(search.rows) == sum(len(values) for _, _, values in SEARCH_VALUES)
    assert_full(tree)
    assert_full(search)


def test_all_methods_are_measured_in_every_setting(talk: Inputs) -> None:
    methods = (Method("ours", Sort.OURS, eventtree(EventTreeParameters())), *methods_for(Kind.FACTS, None)[-2:])

    measured = measure_methods((talk,), methods, settings=settings_for(Embedding.STATIC))

    table = kept_table("kept", methods, measured)
    assert len(table.rows) == 4
    assert_full(table)


def assert_full(table: Table) -> None:
    assert all(len(row) == len(table.headings) for row in table.rows)


def test_all_questions_at_once_are_ranked_as_the_product_ranks_each() -> None:
    random = np.random.default_rng(SEED)
    print("seed", SEED)
    for case in range(40):
        nodes = int(random.integers(1, 300))
        # Many equal scores, as words give them; every fifth time a question that finds nothing.
        lexical = np.where(random.random((5, nodes)) < 0.6, 0, random.random((5, nodes)).round(2))
        lexical[0] *= case % 5 != 0
        cosines = random.random((5, nodes)).round(2)
        said_at = np.sort(random.integers(0, 50, nodes) * HOUR_MS // 2).astype(np.int64)
        parameters = replace(
            PAPER,
            gamma=float(random.choice((0.5, 0.9, 1.0))),
            cosine_weight=float(random.choice((0.0, 0.5, 1.0))),
            candidates_per_answer=int(random.choice((1, 4, 16))),
            anchor_share=float(random.choice((0.1, 0.2, 1.0))),
        )
        depth = int(random.choice((10, 50, 200)))

        ranked = rank_all(lexical, cosines, said_at, 10, depth, parameters).rows

        for words, similar, rows in zip(lexical, cosines, ranked, strict=True):
            scores = fuse(words, similar, parameters.cosine_weight)
            product = rank(scores, said_at, 10, parameters, np.arange(nodes), depth=depth)
            assert rows.tolist() == [each.row for each in product]
