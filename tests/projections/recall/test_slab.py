"""Vectors: kept as whole steps, scanned roughly, scored exactly, and gone when they are taken out."""

from __future__ import annotations

import gc
import random
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.recall.products import integer_products, numpy_products, side_by_side
from projections.recall.rooms import Room, SearchOptions
from projections.recall.slab import BLOCK_ROWS, Slab, VectorRefused, quantise, restore

WIDTH = 24


def unit_rows(seed: int, count: int, width: int = WIDTH) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((count, width), dtype=np.float32)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def cosines_by_hand(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of what float16 keeps of both."""
    halves: NDArray[np.float64] = vectors.astype(np.float16).astype(np.float64)
    found: NDArray[np.float64] = halves @ query.astype(np.float16).astype(np.float64)
    return found


def filled(vectors: NDArray[np.float32], room: Room | None = None) -> Slab:
    slab = Slab(vectors.shape[1], room)
    slab.put(np.arange(len(vectors)), slab.check(vectors))
    return slab


def asked(query: NDArray[np.float32]) -> NDArray[np.float32]:
    return query.reshape(1, -1)


@pytest.mark.parametrize("width", [3, 24, 384, 1536])
def test_exact_cosines_are_those_of_float16_and_rough_ones_are_near(width: int) -> None:
    vectors, query = unit_rows(1, 200, width), unit_rows(2, 1, width)[0]
    picture = filled(vectors).picture(200)
    expected = cosines_by_hand(vectors, query)

    assert np.abs(picture.cosines(np.arange(200), quantise(asked(query))) - expected).max() < 3e-5
    assert np.abs(picture.scan(quantise(asked(query))) - expected).max() < picture.error(quantise(asked(query)))
    assert picture.error(quantise(asked(query))) < 0.05 / width**0.35


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_many_vectors_are_kept_as_each_by_itself(dtype: type[np.floating]) -> None:
    vectors = unit_rows(6, 300).astype(dtype)
    together, alone = quantise(vectors), [quantise(each.reshape(1, -1)) for each in vectors]

    assert together.high.tolist() == [each.high[0].tolist() for each in alone]
    assert together.low.tolist() == [each.low[0].tolist() for each in alone]
    assert together.steps.tolist() == [float(each.steps[0]) for each in alone]
    assert np.abs(restore(together) - vectors.astype(np.float16).astype(np.float64)).max() < 1 / 32_000


def test_some_rows_are_answered_in_their_order_across_blocks() -> None:
    vectors, query = unit_rows(3, BLOCK_ROWS + 500), unit_rows(4, 1)[0]
    picture = filled(vectors).picture(len(vectors))
    rows = np.array([BLOCK_ROWS + 7, 0, BLOCK_ROWS - 1, BLOCK_ROWS, 0])

    assert np.allclose(
        picture.cosines(rows, quantise(asked(query))), cosines_by_hand(vectors[rows], query), atol=3e-5, rtol=0
    )


@pytest.mark.parametrize("count", [0, 1, 9, 400])
def test_rows_of_several_blocks_are_taken_as_they_were_put_in_any_order_and_repeated(count: int) -> None:
    size = 2 * BLOCK_ROWS + 500
    slab = filled(unit_rows(13, size))
    slab.clear(BLOCK_ROWS + 3)
    picture, query = slab.picture(size), quantise(unit_rows(14, 1))
    rows = np.random.default_rng(count).integers(0, size, count)
    rows[: count // 2] = BLOCK_ROWS + 3  # repeated, and without a vector
    taken, every = picture.take(rows), quantise(unit_rows(13, size))
    expected = [0 if row == BLOCK_ROWS + 3 else every.steps[row] for row in rows.tolist()]

    assert taken.high.shape == taken.low.shape == (count, WIDTH)
    assert taken.steps.tolist() == expected
    for row, high, low in zip(rows.tolist(), taken.high, taken.low, strict=True):
        assert not high.any() if row == BLOCK_ROWS + 3 else np.array_equal(high, every.high[row])
        assert not low.any() if row == BLOCK_ROWS + 3 else np.array_equal(low, every.low[row])
    assert picture.cosines(rows, query).tolist() == [
        float(picture.cosines(np.array([row]), query)[0]) for row in rows.tolist()
    ]


@pytest.mark.parametrize("batch", [1, 7, 5_000])
def test_a_scan_is_the_exact_products_of_the_high_bytes_however_the_vectors_came(batch: int) -> None:
    size = BLOCK_ROWS + 300
    slab, query = Slab(WIDTH), quantise(unit_rows(16, 1))
    for rows in np.array_split(np.random.default_rng(batch).permutation(size), -(-size // batch)):
        slab.put(rows, slab.check(unit_rows(15, size)[rows]))
    kept = quantise(unit_rows(15, size))
    products = kept.high.astype(np.int64) @ query.high[0].astype(np.int64)
    expected = products.astype(np.float32) * (kept.steps * np.float32(65536.0 * query.steps[0]))

    assert slab.picture(size).scan(query).tolist() == expected.tolist()


def test_what_came_as_float16_is_kept_to_the_same_bits() -> None:
    vectors = unit_rows(5, 50)
    one, other = quantise(vectors), quantise(vectors.astype(np.float16))

    assert np.array_equal(one.high, other.high)
    assert np.array_equal(one.low, other.low)
    assert np.array_equal(one.steps, other.steps)
    assert np.abs(restore(one) - vectors.astype(np.float16)).max() < 2e-5


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        ([0.0, 0.0, 0.0], "zeros"),
        ([1e-9, 0.0, 0.0], "zeros"),  # nothing of it is left in float16
        ([1.0, float("nan"), 0.0], "finite"),
        ([float("inf"), 0.0, 0.0], "finite"),
        ([-float("inf"), 0.0, 0.0], "finite"),
        ([1e9, 0.0, 0.0], "finite"),
        ([1.0, 0.0], "2 dimensions where others have 3"),
        ([1.0, 0.0, 0.0, 0.0], "4 dimensions where others have 3"),
    ],
)
def test_a_vector_that_says_nothing_is_refused_with_the_reason(vector: list[float], why: str) -> None:
    slab = filled(np.eye(3, dtype=np.float32))

    with pytest.raises(VectorRefused, match=why):
        slab.check(np.array([[0.0, 1.0, 0.0][: len(vector)] + [0.0] * (len(vector) - 3), vector], np.float32))


def test_numpy_and_numkong_agree_to_the_last_bit() -> None:
    chance = np.random.default_rng(6)
    for left, right, width in [(1, 3000, 384), (2, 70, 3000), (1, 1, 1), (3, 0, 8)]:
        codes = chance.integers(-128, 128, (left, width)).astype(np.int8)
        others = chance.integers(-128, 128, (right, width)).astype(np.int8)
        whole = codes.astype(np.int64) @ others.astype(np.int64).T
        beside = side_by_side(codes, others)

        assert np.array_equal(beside.T, whole)
        for out in (np.zeros((left, right)), np.zeros((left, right), np.float32)):
            integer_products(codes, others, out)
            again = np.zeros_like(out)
            numpy_products(codes, others, again)

            assert np.array_equal(out, whole.astype(out.dtype))
            assert np.array_equal(again, out)


def test_exact_cosines_are_the_same_in_whatever_order_rows_are_asked_for() -> None:
    slab, chance = filled(unit_rows(7, 300)), np.random.default_rng(8)
    picture, query = slab.picture(300), quantise(unit_rows(9, 1))
    rows = chance.permutation(np.repeat(np.arange(300), 2))
    cosines = picture.cosines(rows, query)
    one_by_one = [float(picture.cosines(np.array([row]), query)[0]) for row in rows.tolist()]

    assert cosines.tolist() == one_by_one


def test_a_row_that_was_taken_out_is_all_zeros() -> None:
    slab = filled(unit_rows(7, 10))
    slab.clear(4)
    slab.clear(4)
    slab.clear(99)
    left = slab.picture(10).take(np.arange(10))

    assert not left.high[4].any()
    assert not left.low[4].any()
    assert left.steps[4] == 0
    assert slab.filled(12).tolist() == [True] * 4 + [False] + [True] * 5 + [False] * 2
    assert [slab.has(row) for row in (3, 4, 99, BLOCK_ROWS * 3)] == [True, False, False, False]


@pytest.mark.parametrize("seed", range(2))
def test_a_picture_stays_as_it_was_whatever_is_written_later(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    vectors = unit_rows(seed, BLOCK_ROWS + 300)
    query = quantise(unit_rows(99, 1))
    slab = filled(vectors)
    pictures = []
    for _ in range(12):
        size = chance.randrange(1, len(vectors))
        picture = slab.picture(size)
        pictures.append((picture, picture.scan(query), picture.cosines(np.arange(0, size, 7), query)))
        for row in chance.sample(range(len(vectors)), 5):
            if chance.random() < 0.5:
                slab.clear(row)
            else:
                slab.put(np.array([row]), slab.check(unit_rows(chance.randrange(10**6), 1)))

    for picture, rough, exact in pictures:
        assert np.array_equal(picture.scan(query), rough)
        assert np.array_equal(picture.cosines(np.arange(0, picture.size, 7), query), exact)


@pytest.mark.parametrize("pictured", [False, True])
def test_a_block_is_copied_only_for_a_picture_that_lives(pictured: bool) -> None:
    slab = filled(unit_rows(8, 500))
    picture = slab.picture(500)
    kept = [picture] if pictured else []
    del picture
    gc.collect()
    tracemalloc.start()
    slab.clear(3)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (most > 500 * WIDTH) == pictured
    assert len(kept) == pictured


def test_a_picture_is_read_in_another_thread_while_rows_change() -> None:
    vectors, query = unit_rows(9, 3000), quantise(unit_rows(10, 1))
    slab = filled(vectors)
    picture = slab.picture(3000)
    expected = picture.scan(query)
    found: list[bool] = []
    reader = threading.Thread(
        target=lambda: found.extend(np.array_equal(picture.scan(query), expected) for _ in range(200))
    )
    reader.start()
    for row in range(2000):
        slab.clear(row)
    reader.join()

    assert all(found)
    assert len(found) == 200


def test_above_a_size_vectors_lie_in_a_file_without_a_name(tmp_path: Path) -> None:
    vectors, query = unit_rows(11, 2 * BLOCK_ROWS, 256), quantise(unit_rows(12, 1, 256))
    in_memory = filled(vectors).picture(len(vectors))
    mapped = filled(vectors, Room(SearchOptions(map_from_mb=1, folder=tmp_path))).picture(len(vectors))

    assert list(tmp_path.iterdir()) == []
    assert (
        "mf-vectors-" in Path("/proc/self/maps").read_text()
        or str(tmp_path) in Path("/proc/self/maps").read_text()
    )
    assert np.array_equal(mapped.scan(query), in_memory.scan(query))
    del mapped
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_a_folder_that_cannot_be_written_leaves_vectors_in_memory(tmp_path: Path) -> None:
    slab = filled(unit_rows(13, 6000, 256), Room(SearchOptions(map_from_mb=1, folder=tmp_path / "missing")))

    assert slab.filled(6000).all()
