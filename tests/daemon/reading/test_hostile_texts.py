"""A text of one character over and over costs no more than its length: rules run beside the loop's other work."""

from __future__ import annotations

from time import process_time

import pytest

from daemon.reading import coverage, kept, recalled, small_chunks, times
from projections.ports import ChunkText, TurnText
from tests.builders import MONDAY

LENGTH = 100_000
# A quadratic rule takes minutes for such a text, a linear one a quarter of a second on a slow machine.
CPU_S_MAX = 3.0


def read_all(text: str) -> None:
    """What is done to a chunk and to the text of a group, with `text` in each place."""
    turn = TurnText("assistant", text, MONDAY, text)
    recalled.strip_chunk(ChunkText((turn,), turn), lambda line, said_at: False)
    recalled.GivenOut(b"key", lambda: MONDAY).note(b"alice", text)
    small_chunks.says_nothing(ChunkText((turn,), turn))
    times.resolve(text, MONDAY)
    times.resolve_in("2021-05-05", MONDAY, text)
    coverage.missed([text], [text[:100]])
    kept.lost([text], "nothing")
    kept.invented([text[:100]], text)
    kept.invented_names([text[:100]], text[:8_000])  # as long as a group's text may be
    kept.left_out([text], text[:8_000])
    kept.is_translated([text], text)


@pytest.mark.parametrize(
    "piece", [*"aA1. \n<中年['-", "A ", "1 May ", "- ", "<memories>", "1:", "a@", "ten ", "not "]
)
def test_a_hundred_thousand_characters_of_one_piece(piece: str) -> None:
    read_all(piece)  # patterns are compiled
    text = (piece * LENGTH)[:LENGTH]
    began = process_time()
    read_all(text)

    assert process_time() - began < CPU_S_MAX
