"""How long a context is: by rule, more for scripts that tokenizers cut finer, and never above the budget."""

from __future__ import annotations

import random

import pytest

from daemon.asking.contexts import QUARTERS, context_line, count_quarters, fit_tokens
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
        kept = list(fit_tokens([(n, line) for n, line in enumerate(lines)], tokens))
        lengths = [sum(count_quarters(line) + 1 for line in lines[:n]) for n in range(13)]

        assert kept == list(range(max(n for n in range(13) if lengths[n] <= tokens * QUARTERS)))
