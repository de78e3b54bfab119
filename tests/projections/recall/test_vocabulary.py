"""Words as vectors: which are related, that nothing stays of words that nobody says, whatever came in between."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.recall.nodes import NodeSet
from projections.recall.vocabulary import WORDS_MIN, Hashed, Vocabulary, split_words, to_whole
from tests.builders import an_id

DIMENSIONS = 16


def vector_of(word: int) -> NDArray[np.int8]:
    random_row = np.random.default_rng(word).normal(size=DIMENSIONS)
    return to_whole(random_row / np.linalg.norm(random_row))


def put(vocabulary: Vocabulary, name: str, words: set[int]) -> None:
    hashed = [Hashed(word, word % 40) for word in sorted(words)]
    vocabulary.put(an_id(name), hashed, {each.word: vector_of(each.word) for each in hashed})


def asked(word: int) -> list[tuple[Hashed, NDArray[np.int8]]]:
    return [(Hashed(word, word % 40), vector_of(word))]


def test_words_are_distinct_small_and_mean_something() -> None:
    words = split_words("The Violin and the VIOLIN, he played on 1 May; she's plays a clarinet's 小提琴")

    assert [each.text for each in words] == ["violin", "played", "plays", "clarinet"]
    assert [each.term for each in words] == ["violin", "play", "play", "clarinet"]


def test_a_word_is_related_to_what_points_the_same_way_from_the_mean() -> None:
    vocabulary = Vocabulary(b"alice", 4)
    # The first dimension is what all words have in common, and what tells nothing.
    rows = {n: [0.9, *(np.eye(3)[n % 3] * 0.4)] for n in range(60)}
    for n, row in rows.items():
        vocabulary.put(an_id(str(n)), [Hashed(n, 100 + n)], {n: to_whole(np.array(row))})
    related = vocabulary.related([(Hashed(0, 100), to_whole(np.array(rows[0])))], 20)

    assert set(related) == {100}
    assert set(related[100]) <= {100 + n for n in range(3, 60, 3)}, "only of its own kind, and not itself"
    assert len(related[100]) == 19
    assert min(related[100].values()) == pytest.approx(1.0, abs=0.01)


def test_few_words_have_no_mean_worth_the_name() -> None:
    vocabulary = Vocabulary(b"alice", DIMENSIONS)
    put(vocabulary, "a", set(range(WORDS_MIN - 1)))

    assert vocabulary.related(asked(3), 20) == {}


def test_what_is_left_after_any_history_is_what_a_fresh_one_would_be() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(20):
        vocabulary, said = Vocabulary(b"alice", DIMENSIONS), dict[str, set[int]]()
        for step in range(60):
            if said and chance.random() < 0.4:
                gone = chance.choice(sorted(said))
                del said[gone]
                vocabulary.remove(an_id(gone))
            said[str(step)] = {chance.randrange(120) for _ in range(chance.randrange(12))}
            put(vocabulary, str(step), said[str(step)])
        fresh = Vocabulary(b"alice", DIMENSIONS)
        for name in sorted(said, key=lambda _: chance.random()):
            put(fresh, name, said[name])

        assert len(vocabulary) == len(fresh) == len(set().union(*said.values()))
        assert all(vocabulary.related(asked(word), 9) == fresh.related(asked(word), 9) for word in range(120))


def test_nothing_is_kept_of_a_word_that_nobody_says_any_more() -> None:
    vocabulary = Vocabulary(b"alice", DIMENSIONS)
    put(vocabulary, "a", {1, 2})
    put(vocabulary, "b", {2, 3})
    vocabulary.remove(an_id("a"))
    vocabulary.remove(an_id("a"))

    assert [vocabulary.knows(word) for word in (1, 2, 3)] == [False, True, True]
    assert an_id("a") not in vocabulary
    held = {name: getattr(vocabulary, name) for name in ("_vectors", "_terms", "_total")}
    assert sorted(np.flatnonzero(held["_terms"]).tolist()) == [1, 2]
    assert held["_total"].tolist() == (vector_of(2).astype(int) + vector_of(3)).tolist()
    assert np.count_nonzero(held["_vectors"].any(axis=1)) == 2


@pytest.mark.parametrize("count", [WORDS_MIN + 1, 3_000])
def test_cosines_are_those_of_plain_arithmetic_whatever_the_sum_of_all_words_is(count: int) -> None:
    """All point nearly the same way, so that the sum of all is as large as it gets."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rows = np.random.default_rng(seed).integers(-30, 30, size=(count, DIMENSIONS)) + 90
    whole = rows.astype(np.int8)
    vocabulary = Vocabulary(b"alice", DIMENSIONS)
    for n, row in enumerate(whole):
        vocabulary.put(an_id(str(n)), [Hashed(n, n)], {n: row})
    vocabulary.remove(an_id("7"))
    left = np.delete(rows, 7, axis=0) - np.delete(rows, 7, axis=0).mean(axis=0)
    question = rows[7] - np.delete(rows, 7, axis=0).mean(axis=0)
    expected = left @ question / np.linalg.norm(left, axis=1) / np.linalg.norm(question)
    near = vocabulary.related([(Hashed(count, count), whole[7])], count)[count]

    terms_of = [n for n in range(count) if n != 7]
    by_hand = {n: cosine for n, cosine in zip(terms_of, expected.tolist(), strict=True) if cosine >= 0.2}
    assert near == pytest.approx(by_hand, abs=2e-4)


def test_what_it_takes_is_counted_with_its_node_set() -> None:
    nodes = NodeSet()
    before = nodes.size_bytes
    nodes.words = Vocabulary(b"alice", DIMENSIONS)
    put(nodes.words, "a", set(range(1000)))

    assert nodes.size_bytes - before > 1000 * DIMENSIONS
