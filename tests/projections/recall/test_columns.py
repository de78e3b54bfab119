"""Columns that are lent, and values that rows share."""

from __future__ import annotations

import random

import numpy as np
import pytest

from projections.recall.columns import Columns, Shared


@pytest.mark.parametrize("seed", range(5))
def test_what_was_lent_never_changes_whatever_is_written_later(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    columns, expected = Columns({"a": "i8", "b": "S4"}), list[tuple[int, bytes]]()
    lent: list[tuple[list[int], list[bytes], tuple[np.ndarray, ...]]] = []
    for _ in range(600):
        if not expected or chance.random() < 0.3:
            assert columns.append() == len(expected)
            expected.append((0, b""))
        row = chance.randrange(len(expected))
        expected[row] = (chance.randrange(99), b"%d" % chance.randrange(99))
        columns.set("a", row, expected[row][0])
        columns.set("b", row, expected[row][1])
        if chance.random() < 0.1:
            arrays = columns.lend(*chance.choice([("a",), ("b",), ("a", "b")]))
            lent.append((columns["a"].tolist(), columns["b"].tolist(), arrays))

    assert columns["a"].tolist() == [a for a, _ in expected]
    assert columns["b"].tolist() == [b for _, b in expected]
    for a, b, arrays in lent:
        for array in arrays:
            assert array.tolist() == (a if array.dtype.kind == "i" else b)
    again = Columns({"a": "i8", "b": "S4"})
    again.thaw(columns.freeze())
    assert again.freeze() == columns.freeze()
    assert again.append() == len(expected)


def test_a_new_row_copies_nothing_that_was_lent() -> None:
    columns = Columns({"a": "i8"})
    columns.append()
    (lent,) = columns.lend("a")
    columns.set("a", columns.append(), 7)

    assert np.shares_memory(lent, columns["a"])
    columns.set("a", 0, 9)
    assert not np.shares_memory(lent, columns["a"])
    assert lent.tolist() == [0]


def test_a_value_is_kept_once_and_let_go_of_with_its_last_row() -> None:
    shared: Shared[str] = Shared()
    one, same, other = shared.take("one"), shared.take("one"), shared.take("other")
    shared.give_back(one)

    assert one == same != other
    assert shared[same] == "one"
    shared.give_back(same)
    assert shared.values == [None, "other"]
    assert shared.take("third") == one
