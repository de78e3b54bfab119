"""Hashed n-grams as unit vectors: near texts near, in any script, and the same on the loop and off it."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.offline.embedder import HashingEmbedder
from projections.ports import Embedder

TEXTS = ["Alice moved to Miami.", "Alice has moved to Miami!", "Bob likes cats.", "", "我搬到了迈阿密", "x", "🙂"]


def embedder(dimensions: int = 1024) -> Embedder:
    return HashingEmbedder(dimensions)


async def test_rows_are_unit_float32_in_the_order_given() -> None:
    rows = await embedder().embed(TEXTS)

    assert rows.shape == (len(TEXTS), 1024)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-6)


async def test_a_row_does_not_depend_on_its_neighbours_or_on_the_thread() -> None:
    together = await embedder().embed(TEXTS)
    alone = np.vstack([await embedder().embed([text]) for text in TEXTS])

    assert np.array_equal(together, alone)


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("Alice moved to Miami.", "Alice has moved to Miami!", "Bob likes cats."),
        ("我搬到了迈阿密。", "昨天我搬到迈阿密了", "他喜欢吃苹果"),
        ("先週、東京に引っ越した。", "東京に引っ越しました", "猫が好きです"),
        ("ＡＬＩＣＥ moved", "alice moved", "bob stayed"),
    ],
)
async def test_similar_texts_are_nearer_than_others(text: str, near: str, far: str) -> None:
    rows = await embedder().embed([text, near, far])

    assert rows[0] @ rows[1] > 0.3 > rows[0] @ rows[2]


async def test_texts_without_any_word_share_one_fixed_unit_row() -> None:
    rows = await embedder(64).embed(["", "   "])

    assert rows[:, 0].tolist() == [1.0, 1.0]
    assert not rows[:, 1:].any()


async def test_no_texts_give_no_rows() -> None:
    assert (await embedder(32).embed([])).shape == (0, 32)


def test_the_name_tells_the_width_and_the_cosines_do_not_rank() -> None:
    assert embedder(32).name != embedder(64).name
    assert embedder(32).dimensions == 32
    assert not embedder().ranks


def test_no_dimensions_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        HashingEmbedder(0)
