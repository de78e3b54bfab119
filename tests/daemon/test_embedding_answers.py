"""What an endpoint answers: taken when it is exactly what was asked, refused with a reason otherwise (row 30)."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import numpy as np
import pytest

from daemon.models.embedding_answers import read_vectors
from daemon.models.failures import AnswerRefused


def answer(*embeddings: object, indexes: list[object] | None = None) -> bytes:
    items: list[dict[str, Any]] = [{"object": "embedding", "embedding": each} for each in embeddings]
    for item, index in zip(items, list(range(len(items))) if indexes is None else indexes, strict=True):
        item["index"] = index
    return json.dumps({"object": "list", "data": items, "usage": {"prompt_tokens": 3}}).encode()


def packed(*values: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def test_vectors_come_out_with_length_1_in_the_order_of_the_texts() -> None:
    rows, _ = read_vectors(answer([3, 4], [0, -2]), 2)

    assert rows.dtype == np.float32
    assert rows.tolist() == [pytest.approx([0.6, 0.8]), [0.0, -1.0]]


def test_shuffled_answers_are_put_in_order_by_their_index() -> None:
    rows, _ = read_vectors(answer([0, 1], [1, 0], indexes=[1, 0]), 2)

    assert rows.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_without_any_index_their_order_counts() -> None:
    rows, _ = read_vectors(answer([0, 1], [1, 0], indexes=[None, None]), 2)

    assert rows.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_base64_is_read_though_numbers_were_asked_for() -> None:
    rows, _ = read_vectors(answer(packed(3, 4), [0, 2]), 2, dimensions=2)

    assert rows.tolist() == [pytest.approx([0.6, 0.8]), [0.0, 1.0]]


def test_large_and_small_numbers_keep_their_direction() -> None:
    rows, _ = read_vectors(answer([3e300, 4e300], [3e-5, 4e-5]), 2)

    assert rows == pytest.approx(np.array([[0.6, 0.8], [0.6, 0.8]], dtype=np.float32))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"Xylophon", "not the JSON"),
        (b'{"data": [', "not the JSON"),
        (b"\xff\xfe{}", "not the JSON"),
        (b'{"data": {}}', "not the JSON"),
        (b'{"error": "Xylophon"}', "not the JSON"),
        (b"[" * 100_000, "not the JSON"),
        (answer(), "0 vectors for 2"),
        (answer([1, 0]), "1 vectors for 2"),
        (answer([1, 0], [1, 0], [1, 0]), "3 vectors for 2"),
        (answer([1, 0], [1, 0, 0]), "differ in width"),
        (answer([], []), "0 dimensions"),
        (answer([1, 0, 0], [1, 0, 0]), "3 dimensions where 2"),
        (answer([1, 0], [0, 0]), "zero"),
        (answer([1, 0], [1e-9, 0]), "zero"),
        (answer([1, 0], [float("nan"), 0]), "no finite number"),
        (answer([1, 0], [float("inf"), 0]), "no finite number"),
        (answer([1, 0], packed(1, 0)).replace(packed(1, 0).encode(), packed(1, float("nan")).encode()), "finite"),
        (answer([1, 0], [None, 0]), "missing"),
        (answer([1, 0], None), "missing"),
        (answer([1, 0], ["1", "0"]), "not the JSON"),
        (answer([1, 0], "no base64!"), "base64"),
        (answer([1, 0], packed(1, 0)[:4]), "base64"),
        (answer([1, 0], [0, 1], indexes=[0, 0]), "indexes"),
        (answer([1, 0], [0, 1], indexes=[1, 2]), "indexes"),
        (answer([1, 0], [0, 1], indexes=[0, None]), "indexes"),
    ],
)
def test_what_is_not_exactly_right_is_refused_with_a_reason_that_quotes_nothing(body: bytes, reason: str) -> None:
    with pytest.raises(AnswerRefused, match=reason) as refused:
        read_vectors(body, 2, dimensions=0 if "width" in reason or "0 dim" in reason else 2)

    assert "Xylophon" not in str(refused.value)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [("{}", 0), ("null", 0), ("3", 0), ('{"prompt_tokens": -1}', 0), ('{"prompt_tokens": "3"}', 0)],
)
def test_what_a_server_says_of_its_tokens_is_counted_when_it_is_a_number(usage: str, tokens: int) -> None:
    odd = answer([1, 0]).replace(b'{"prompt_tokens": 3}', usage.encode())

    assert read_vectors(answer([1, 0]), 1)[1] == 3
    assert read_vectors(odd, 1)[1] == tokens
