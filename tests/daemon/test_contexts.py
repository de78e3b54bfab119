"""How long a context is: by rule, more for scripts that tokenizers cut finer, and never above the budget."""

from __future__ import annotations

import random

import pytest

from daemon.asking.contexts import QUARTERS, Piece, context_line, count_quarters, fit_pieces
from tests.builders import MONDAY


@pytest.mark.parametrize(
    ("text", "quarters"), [("", 0), ("abcd", 4), ("é", 1), ("дом", 6), ("東京", 8), ("a東", 5), ("😀", 4)]
)
def test_a_quarter_of_a_token_for_a_latin_letter_and_a_token_for_a_sign(text: str, quarters: int) -> None:
    assert count_quarters(text) == quarters


def test_a_line_is_a_date_and_the_text() -> None:
    assert context_line(MONDAY, "Alice: Hi.") == "[1 July 2024] Alice: Hi."


@pytest.mark.parametrize("seed", range(5))
def test_the_longest_prefix_that_fits_with_its_line_ends_is_kept(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(50):
        lines = ["".join(chance.choices("ab é東д", k=chance.randrange(40))) for _ in range(12)]
        tokens = chance.randrange(1, 80)
        kept = fit_pieces([Piece(n, line, 1.0, head=True) for n, line in enumerate(lines)], tokens)
        lengths = [sum(count_quarters(line) + 1 for line in lines[:n]) for n in range(13)]

        assert kept == list(range(max(n for n in range(13) if lengths[n] <= tokens * QUARTERS)))


def test_pieces_behind_a_head_are_shown_by_what_they_are_worth_and_where_they_fit() -> None:
    pieces = [
        Piece("first", "a" * 9, 1.0, head=True),
        Piece("long", "b" * 90, 0.9, head=False),
        Piece("far", "c" * 9, 0.1, head=False),
        Piece("second", "d" * 9, 0.5, head=True),
    ]

    assert fit_pieces(pieces, 5) == ["first", "second"]
    assert fit_pieces(pieces, 8) == ["first", "second", "far"], "what does not fit is left out"
    assert fit_pieces(pieces, 40) == ["first", "long", "second", "far"]


def test_no_memory_is_shown_before_a_better_one_that_does_not_fit() -> None:
    pieces = [Piece(1, "a" * 90, 1.0, head=True), Piece(2, "b", 0.5, head=True), Piece(3, "c", 0.4, head=False)]

    assert fit_pieces(pieces, 5) == []


def test_what_others_carry_already_is_left_out_and_what_no_turn_carries_is_not() -> None:
    one, two = frozenset((1,)), frozenset((1, 2))
    pieces = [
        Piece("first", "a", 1.0, head=True, turns=two),
        Piece("again", "b", 0.9, head=False, turns=one),
        Piece("carried", "c", 0.8, head=True, turns=two),
        Piece("said", "d", 0.7, head=True),
    ]

    assert fit_pieces(pieces, 40) == ["first", "said"]


def test_what_stands_behind_a_head_that_others_carry_takes_no_room() -> None:
    turns = frozenset((1, 2))
    pieces = [
        Piece("first", "a" * 7, 1.0, head=True, turns=turns),
        Piece("carried", "b" * 7, 0.9, head=True, turns=turns),
        Piece("inside", "c" * 7, 0.8, head=False, behind="carried"),
        Piece("second", "d" * 7, 0.7, head=True),
        Piece("detail", "e" * 7, 0.6, head=False, behind="second"),
    ]

    assert fit_pieces(pieces, 4) == ["first", "second"]
    assert fit_pieces(pieces, 6) == ["first", "second", "detail"]
