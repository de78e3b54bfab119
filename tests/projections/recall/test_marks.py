"""Marks: rows by what filters ask for, ascending, and nothing of a mark that no row carries."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.recall.keyed import hash_mark, hash_terms
from projections.recall.marks import MarkIndex


def test_rows_of_a_mark_come_ascending_whatever_the_order_they_came_in() -> None:
    marks = MarkIndex()
    for row in (5, 1, 9, 3, 1):
        marks.add(row, [7])

    assert marks.rows(7).tolist() == [1, 3, 5, 9]
    assert marks.entries == 4
    assert marks.rows(8).tolist() == []


def test_given_rows_do_not_change_with_the_index() -> None:
    marks = MarkIndex()
    marks.add(1, [7])
    rows = marks.rows(7)
    marks.add(2, [7])
    marks.remove(1, [7])

    assert rows.tolist() == [1]


def test_a_mark_without_rows_is_forgotten() -> None:
    marks = MarkIndex()
    marks.add(1, [7, 8])
    marks.remove(1, [7])

    assert 7 not in marks
    assert 8 in marks
    assert len(marks) == 1


@pytest.mark.parametrize(("row", "mark"), [(1, 9), (2, 7), (0, 7)])
def test_a_mark_that_a_row_has_not_cannot_be_taken_off(row: int, mark: int) -> None:
    marks = MarkIndex()
    marks.add(1, [7])

    with pytest.raises(KeyError):
        marks.remove(row, [mark])
    assert marks.rows(7).tolist() == [1]


@pytest.mark.parametrize("seed", range(5))
def test_any_history_leaves_what_was_left_and_freezes_to_the_same(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    marks, expected = MarkIndex(), dict[int, set[int]]()
    for _ in range(600):
        mark, row = chance.randrange(2**64 - 9, 2**64), chance.randrange(40)
        if row in expected.get(mark, ()):
            marks.remove(row, [mark])
            expected[mark].discard(row)
        else:
            marks.add(row, [mark])
            expected.setdefault(mark, set()).add(row)
    thawed = MarkIndex.thaw(marks.freeze())

    for index in (marks, thawed):
        assert {mark: set(index.rows(mark).tolist()) for mark in expected} == expected
        assert index.entries == sum(map(len, expected.values()))
        assert len(index) == sum(map(bool, expected.values()))
    assert thawed.freeze() == marks.freeze()


@pytest.mark.parametrize("seed", range(3))
def test_a_column_says_which_rows_carry_a_mark_and_stays_as_it_was_given(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    marks, given = MarkIndex(), list[tuple[NDArray[np.float32], list[float]]]()
    for size in range(1, 200):
        marks.add(size - 1, chance.sample(range(8), 3))
        if chance.random() < 0.3:
            row, mark = chance.randrange(size), chance.randrange(8)
            if row in marks.rows(mark).tolist():
                marks.remove(row, [mark])
        for mark in chance.choices(range(9), k=3):
            rows = set(marks.rows(mark).tolist())
            given.append((marks.column(mark, size), [float(row in rows) for row in range(size)]))

    assert all(column.tolist() == expected for column, expected in given)
    assert not given[0][0].flags.writeable


def test_a_hash_depends_on_key_kind_and_the_cut_of_its_parts() -> None:
    hashes = [
        hash_mark(b"", "role", ("user",)),
        hash_mark(b"k", "role", ("user",)),
        hash_mark(b"", "roleuser", ()),
        hash_mark(b"", "role", ("us", "er")),
        hash_mark(b"", "role", ("user", "")),
        *hash_terms(b"", ["user"]),
        *hash_terms(b"k", ["user"]),
    ]

    assert len(set(hashes)) == len(hashes)
    assert hash_mark(b"k", "role", ("user",)) == hashes[1]
    assert all(0 <= each < 2**64 for each in hashes)


def test_half_a_character_is_hashed_like_any_other() -> None:
    assert len(set(hash_terms(b"", ["\ud800", "\ud801", ""]))) == 3


def test_marks_that_say_the_same_stand_for_one_another_until_they_are_set_anew() -> None:
    marks = MarkIndex()
    marks.add(1, [7])
    marks.set_alike((), [(9, 7), (4, 5)])

    assert [marks.alike(mark) for mark in (7, 9, 5, 8)] == [(7, 9), (7, 9), (4, 5), (8,)]
    assert marks.rows(9).tolist() == [], "the rows are as they were"
    marks.set_alike((7, 8, 9), [(9, 8)])
    assert [marks.alike(mark) for mark in (7, 8, 9, 4)] == [(7,), (8, 9), (8, 9), (4, 5)]
