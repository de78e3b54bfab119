"""Chunks close at b turns or by an event, and the registry's rows give the same chunks as the fold."""

from __future__ import annotations

import random

import pytest

from events.registry import RowKind, SessionRow
from projections.facts.chunking import Cutter, cut_chunks, make_chunk_key, open_turns
from tests.builders import MONDAY, an_id


def a_row(seq: int, kind: RowKind = RowKind.TURN, last_turn: int | None = None) -> SessionRow:
    return SessionRow(seq, kind, last_turn, MONDAY)


def test_a_chunk_closes_at_its_last_turn_and_the_next_turn_opens_another() -> None:
    cutter = Cutter(2)

    assert [cutter.add_turn(seq) for seq in (3, 5, 8)] == [None, (3, 5), None]
    assert cutter.open == [8]


def test_with_one_turn_a_chunk_every_turn_is_a_closed_chunk() -> None:
    cutter = Cutter(1)

    assert [cutter.add_turn(seq) for seq in (3, 5)] == [(3,), (5,)]
    assert cutter.open == []


def test_closing_takes_what_is_open_once() -> None:
    cutter = Cutter(3)
    cutter.add_turn(4)

    assert cutter.close() == (4,)
    assert cutter.close() is None


def test_a_closing_for_quiet_is_void_when_a_turn_came_meanwhile() -> None:
    cutter = Cutter(3)
    cutter.add_turn(4)
    cutter.add_turn(6)

    assert cutter.close(last_turn=4) is None
    assert cutter.open == [4, 6]
    assert cutter.close(last_turn=6) == (4, 6)


def test_rows_of_a_session_are_cut_in_log_order() -> None:
    rows = [
        a_row(1), a_row(2), a_row(3), a_row(4, RowKind.SESSION_CLOSED), a_row(5, RowKind.SESSION_CLOSED),
        a_row(6), a_row(7, RowKind.CHUNK_CLOSED, 6), a_row(8), a_row(9), a_row(10),
    ]  # fmt: skip

    assert cut_chunks(rows, 2) == [(1, 2), (3,), (6,), (8, 9)]
    assert open_turns(rows, 2) == (a_row(10),)


def test_nothing_is_open_when_every_chunk_is_closed() -> None:
    assert open_turns([a_row(1), a_row(2)], 2) == ()
    assert open_turns([], 2) == ()


@pytest.mark.parametrize("seed", range(5))
def test_every_turn_is_in_one_chunk_in_order_and_closed_chunks_never_reopen(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    size = chance.randint(1, 4)
    rows: list[SessionRow] = []
    closed: list[tuple[int, ...]] = []
    for seq in range(1, 80):
        kind = chance.choice([RowKind.TURN, RowKind.TURN, RowKind.SESSION_CLOSED, RowKind.CHUNK_CLOSED])
        turns = [row.seq for row in rows if row.kind is RowKind.TURN]
        last = chance.choice(turns[-2:]) if kind is RowKind.CHUNK_CLOSED and turns else None
        rows.append(a_row(seq, kind, last))
        chunks = cut_chunks(rows, size)
        taken = [turn for chunk in chunks for turn in chunk] + [row.seq for row in open_turns(rows, size)]

        assert chunks[: len(closed)] == closed
        assert taken == [row.seq for row in rows if row.kind is RowKind.TURN]
        assert all(len(chunk) <= size for chunk in chunks)
        closed = chunks


def test_a_chunk_is_known_by_its_turns_and_their_order() -> None:
    one, two = an_id("one"), an_id("two")

    assert make_chunk_key([one, two]) == make_chunk_key((one, two))
    assert len({make_chunk_key(keys) for keys in ([one, two], [two, one], [one], [two])}) == 4
