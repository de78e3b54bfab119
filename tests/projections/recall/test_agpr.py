from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from events.errors import InvalidInput
from projections.recall.agpr import (
    ANY_EMBEDDER,
    MULTILINGUAL,
    NO_EMBEDDER,
    PAPER,
    STATIC,
    AgprParameters,
    RankedRow,
    TimeUnit,
    fuse,
    minmax,
    rank,
    smooth,
    top_rows,
)

SEED = 910
HOUR = 3_600_000


def column(*values: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)


def whole(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def rounded(value: float) -> float:
    return float(np.round(value, 5))


def rank_by_hand(
    scores: list[float], said_at: list[int], k: int, parameters: AgprParameters, ties: list[int]
) -> list[tuple[int, float]]:
    """Eq. 9-10 with loops."""
    by_score = sorted(range(len(scores)), key=lambda row: (-rounded(scores[row]), ties[row]))
    candidates = by_score[: parameters.candidates_per_answer * k]
    anchors = candidates[: math.ceil(round(parameters.anchor_share * k, 9))]
    values: dict[int, float] = {}
    for row in candidates:
        reached = [math.exp(-abs(said_at[row] - said_at[a]) / parameters.time_unit.ms) for a in anchors]
        propagation = rounded(sum(reached) / len(reached))
        values[row] = rounded(parameters.gamma * rounded(scores[row]) + (1 - parameters.gamma) * propagation)
    return sorted(values.items(), key=lambda item: (-item[1], ties[item[0]]))[:k]


def test_minmax_stretches_a_column_to_one() -> None:
    assert minmax(column(2, 4, 3)).tolist() == [0.0, 1.0, 0.5]
    assert minmax(column(-1, 0)).tolist() == [0.0, 1.0]


def test_a_column_that_says_nothing_is_zero() -> None:
    assert minmax(column(7, 7, 7)).tolist() == [0.0, 0.0, 0.0]
    assert minmax(column(3)).tolist() == [0.0]
    assert minmax(column()).tolist() == []


def test_fused_scores_are_the_convex_sum_of_both_columns() -> None:
    lexical, cosine = column(0, 10, 5), column(0.2, 0.2, 0.6)

    assert fuse(lexical, cosine, 0.5).tolist() == [0.0, 0.5, 0.75]
    assert fuse(lexical, cosine, 1).tolist() == [0.0, 0.0, 1.0]
    assert fuse(lexical, cosine, 0).tolist() == [0.0, 1.0, 0.5]
    assert fuse(lexical, None, 0.5).tolist() == [0.0, 1.0, 0.5]
    assert fuse(column(4, 4, 4), cosine, 0.5).tolist() == [0.0, 0.0, 0.5]


def test_smoothing_adds_a_share_of_the_neighbours_in_the_session() -> None:
    # Rows 0-2 are one session, row 3 the next, row 4 is no chunk.
    previous, following = np.array([-1, 0, 1, -1, -1]), np.array([1, 2, -1, -1, -1])

    smoothed = smooth(column(1, 0, 2, 4, 8), previous, following, 0.5)

    assert smoothed.tolist() == [1.0, 1.5, 2.0, 4.0, 8.0]


def test_smoothing_without_weight_or_rows_gives_the_scores_back() -> None:
    none = np.array([], dtype=np.intp)

    assert smooth(column(1, 2), np.array([-1, 0]), np.array([1, -1]), 0).tolist() == [1.0, 2.0]
    assert smooth(column(), none, none, 0.6).tolist() == []


def test_a_row_near_an_anchor_in_time_overtakes_its_equals() -> None:
    said_at = whole(0, 1_000 * HOUR, HOUR // 2)

    ranked = rank(column(1, 0.5, 0.5), said_at, 3, NO_EMBEDDER, whole(0, 1, 2))

    # One anchor, row 0: p = 1, 0, exp(-1/2) = .60653; v = .85 s + .15 p.
    assert ranked == (
        RankedRow(0, 1.0, 1.0, 1.0),
        RankedRow(2, 0.51598, 0.5, 0.60653),
        RankedRow(1, 0.425, 0.5, 0.0),
    )


def test_ranking_equals_the_equations_written_as_loops() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for _ in range(400):
        size = rng.choice([0, 1, 2, 7, 60, 700])
        # Few distinct scores and instants, so that ties are the rule.
        scores = [rng.randrange(12) / 11 * rng.choice([0, 1]) for _ in range(size)]
        said_at = [1_700_000_000_000 + rng.randrange(40) * rng.choice([1, 30_000, HOUR]) for _ in range(size)]
        ties = rng.sample(range(size), size)
        k = rng.choice([1, 3, 10])
        parameters = AgprParameters(
            candidates_per_answer=rng.choice([1, 2, 4]),
            anchor_share=rng.choice([0.01, 0.2, 0.5, 1.0]),
            time_unit=rng.choice(list(TimeUnit)),
            gamma=rng.choice([0.0, 0.5, 0.85, 1.0]),
        )

        ranked = rank(column(*scores), whole(*said_at), k, parameters, whole(*ties))

        assert [(one.row, one.score) for one in ranked] == rank_by_hand(scores, said_at, k, parameters, ties)


def test_in_seconds_nothing_propagates_between_turns_and_in_hours_it_does() -> None:
    scores, ties = column(1, 0.6, 0.61, 0.3), whole(0, 1, 2, 3)
    said_at = whole(0, 30_000, 400 * HOUR, 400 * HOUR + 30_000)

    in_seconds = rank(scores, said_at, 4, replace(NO_EMBEDDER, time_unit=TimeUnit.SECONDS), ties)
    in_hours = rank(scores, said_at, 4, NO_EMBEDDER, ties)

    assert [one.row for one in in_seconds] == [0, 2, 1, 3]
    assert [one.propagation for one in in_seconds] == [1.0, 0.0, 0.0, 0.0]
    assert [one.row for one in in_hours] == [0, 1, 2, 3]


def test_with_every_place_an_anchor_the_share_of_each_shrinks() -> None:
    said_at = whole(0, 1_000 * HOUR, 0)
    all_anchors = replace(NO_EMBEDDER, anchor_share=1.0)

    ranked = rank(column(1, 0.9, 0.8), said_at, 2, all_anchors, whole(0, 1, 2))

    # Anchors are the first k = 2, not the L k candidates: each row is near one of two.
    assert [(one.row, one.propagation) for one in ranked] == [(0, 0.5), (1, 0.5)]


@pytest.mark.parametrize(("share", "k", "anchors"), [(0.2, 10, 2), (0.2, 11, 3), (0.07, 100, 7), (0.01, 3, 1)])
def test_anchors_are_the_ceiling_of_their_share(share: float, k: int, anchors: int) -> None:
    size = 2 * k
    # Rows are so far apart that each is near itself only.
    said_at = np.arange(size, dtype=np.int64) * 1_000 * HOUR
    parameters = AgprParameters(anchor_share=share)

    ranked = rank(np.linspace(1, 0, size), said_at, k, parameters, np.arange(size, dtype=np.int64))

    assert sum(one.propagation > 0 for one in ranked) == anchors
    assert ranked[0].propagation == rounded(1 / anchors)


def test_equal_scores_are_ordered_by_their_tie_whatever_its_kind() -> None:
    scores, said_at = column(0.5, 0.5, 0.5, 0.9), whole(0, 0, 0, 0)
    ids = np.array([b"\x02c", b"\x00a", b"\x01b", b"\xff\x00"], dtype="S2")

    by_rank = rank(scores, said_at, 3, NO_EMBEDDER, whole(2, 0, 1, 3))
    by_id = rank(scores, said_at, 3, NO_EMBEDDER, ids)

    assert [one.row for one in by_rank] == [3, 1, 2]
    assert by_id == by_rank


def test_scores_closer_than_the_rounding_are_equal() -> None:
    scores = column(0.5, 0.500001, 0.50002)

    assert top_rows(scores, 3, whole(0, 1, 2)).tolist() == [2, 0, 1]
    assert top_rows(scores, 2, whole(0, 1, 2)).tolist() == [2, 0]


def test_the_best_rows_are_those_of_a_full_sort() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    for size in (1, 40, 41, 2_559, 2_560, 6_001):
        columns = {
            "distinct": rng.normal(size=size),
            "few levels": rng.integers(0, 5, size) / 4,
            "mostly zero": np.where(rng.random(size) < 0.002, rng.random(size), 0.0),
            "within a step": 0.5 + rng.random(size) * 3e-5,
            "all equal": np.full(size, 0.25),
        }
        for name, scores in columns.items():
            ties, levels = rng.permutation(size).astype(np.int64), np.round(scores, 5)
            expected = sorted(range(size), key=lambda row: (-levels[row], ties[row]))

            for count in (1, 40, 80):
                assert top_rows(scores, count, ties).tolist() == expected[:count], (name, size, count)


def test_where_a_row_stands_does_not_matter() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    scores, ties = np.round(rng.random(300), 2), np.arange(300, dtype=np.int64)
    said_at = rng.integers(0, 100, 300) * HOUR
    order = rng.permutation(300)

    straight = rank(scores, said_at, 10, NO_EMBEDDER, ties)
    shuffled = rank(scores[order], said_at[order], 10, NO_EMBEDDER, ties[order])

    assert [(int(order[one.row]), one.score) for one in shuffled] == [(one.row, one.score) for one in straight]


def test_no_rows_give_no_answer_and_few_rows_give_all() -> None:
    assert rank(column(), whole(), 10, NO_EMBEDDER, whole()) == ()
    assert [one.row for one in rank(column(0, 1), whole(0, 0), 10, NO_EMBEDDER, whole(0, 1))] == [1, 0]
    assert top_rows(column(1, 2), 0, whole(0, 1)).tolist() == []


def test_a_deeper_answer_has_the_same_anchors() -> None:
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    scores, ties = rng.random(200), np.arange(200, dtype=np.int64)
    said_at = rng.integers(0, 100, 200) * HOUR

    answer = rank(scores, said_at, 10, NO_EMBEDDER, ties)
    deeper = rank(scores, said_at, 10, NO_EMBEDDER, ties, depth=60)

    assert deeper[:10] == answer
    assert len(deeper) == 60
    assert rank(scores, said_at, 60, NO_EMBEDDER, ties)[:10] != answer


def test_an_answer_of_nothing_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="k must"):
        rank(column(1), whole(0), 0, NO_EMBEDDER, whole(0))
    with pytest.raises(ValueError, match="depth must"):
        rank(column(1), whole(0), 2, NO_EMBEDDER, whole(0), depth=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("candidates_per_answer", 0),
        ("anchor_share", 0.0),
        ("anchor_share", 1.1),
        ("gamma", -0.1),
        ("gamma", math.nan),
        ("smoothing", -0.1),
        ("smoothing", math.inf),
        ("cosine_weight", 1.5),
    ],
)
def test_a_parameter_out_of_its_range_is_named(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        AgprParameters(**{name: value})  # type: ignore[arg-type]  # a name from the table, a number it takes


def test_presets_are_those_of_the_table() -> None:
    hours = TimeUnit.HOURS

    assert AgprParameters(4, 0.2, hours, 0.85, 0.6, 0.0, 0.3, 0.2) == NO_EMBEDDER == AgprParameters()
    assert AgprParameters(4, 0.2, hours, 0.85, 0.3, 0.4, 0.3, 0.2) == STATIC
    assert AgprParameters(4, 0.2, hours, 0.85, 0.2, 0.5, 0.3, 0.2) == MULTILINGUAL == ANY_EMBEDDER
    assert AgprParameters(4, 0.2, hours, 0.9, 0.0, 1.0, 0.0, 0.0) == PAPER
    assert [unit.ms for unit in TimeUnit] == [1_000, 60_000, 3_600_000, 86_400_000, 604_800_000]
