"""Which ways of asking a command asks for, and what the daemon is told of each."""

from __future__ import annotations

import pytest

from memforest.bench.rows import make_rows
from memforest.errors import InvalidInput

PLAIN = ["BM25", "hybrid"]


def test_plain_bm25_and_plain_hybrid_stand_before_what_is_asked_for() -> None:
    bm25, hybrid, ours = make_rows(["agpr"])

    assert [bm25.name, hybrid.name, ours.name] == [*PLAIN, "agpr"]
    assert bm25.params == {"mode": "flat", "vectors": False, "filters": {"kinds": ["chunk"]}}
    assert hybrid.params == {"mode": "flat", "filters": {"kinds": ["chunk"]}}
    assert ours.params == {"mode": "agpr"}


def test_each_set_of_families_is_a_row_of_the_modes_with_trees_alone() -> None:
    rows = make_rows(["agpr", "forest"], [["entity", "scene"], ["session"]])

    assert [row.name for row in rows] == [*PLAIN, "agpr", "forest entity+scene", "forest session"]
    assert rows[3].params == {"mode": "forest", "families": ["entity", "scene"]}


def test_the_ablation_of_browsing_is_four_rows() -> None:
    rows = make_rows(["deep"], browses=["emb", "llm"], planners=[True, False])

    assert [row.name for row in rows[2:]] == [
        "deep emb planner",
        "deep emb no planner",
        "deep llm planner",
        "deep llm no planner",
    ]
    assert rows[3].params == {"mode": "deep", "browse": "emb", "planner": False}
    assert all(row.asks_model for row in rows[2:])


def test_a_mode_that_is_named_twice_is_asked_once() -> None:
    assert [row.name for row in make_rows(["flat", "flat"])] == [*PLAIN, "flat"]


def test_options_for_none_of_the_modes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="--families"):
        make_rows(["agpr"], [["scene"]])
    with pytest.raises(InvalidInput, match="deep"):
        make_rows(["forest"], browses=["emb"])
