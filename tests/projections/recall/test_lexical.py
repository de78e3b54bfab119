from __future__ import annotations

import math
import random

import numpy as np
import pytest

from projections.recall.lexical import LexicalIndex
from projections.recall.tokens import query_terms, terms

SEED = 8051


def bm25_by_hand(rows: dict[int, list[str]], query: set[str], size: int, k1: float, b: float) -> list[float]:
    """The formula, row by row and term by term."""
    scores = [0.0] * size
    mean = sum(map(len, rows.values())) / len(rows) if rows else 0.0
    holding = {term: sum(term in words for words in rows.values()) for term in query}
    for row, words in rows.items():
        for term, holders in holding.items():
            count = words.count(term)
            if count and row < size:
                idf = math.log(1 + (len(rows) - holders + 0.5) / (holders + 0.5))
                scores[row] += idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(words) / mean))
    return scores


def some_words(rng: random.Random) -> list[str]:
    return rng.choices(
        [f"w{number}" for number in range(40)], [1 / (n + 1) for n in range(40)], k=rng.randrange(15)
    )


def built(rows: dict[int, list[str]]) -> LexicalIndex:
    index = LexicalIndex()
    for row, words in rows.items():
        index.add(row, words)
    return index


def test_a_score_is_the_one_of_the_formula() -> None:
    index = built({0: ["cat", "cat", "dog"], 1: ["dog"]})

    # idf = ln(1 + 1.5 / 1.5) = ln 2; length 3 of mean 2: 1.2 (.25 + .75 * 1.5) = 1.65
    assert index.scores(["cat"], 2).tolist() == pytest.approx([math.log(2) * 2 * 2.2 / (2 + 1.65), 0.0])


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4), (2.0, 0.0), (1.5, 1.0), (0.0, 0.75)])
def test_scores_equal_those_of_the_naive_formula(k1: float, b: float) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for _ in range(20):
        rows = {row: some_words(rng) for row in rng.sample(range(60), rng.randrange(1, 40))}
        index = LexicalIndex(k1=k1, b=b)
        for row, words in rows.items():
            index.add(row, words)
        query = some_words(rng)

        assert index.scores(query, 60).tolist() == pytest.approx(
            bm25_by_hand(rows, set(query), 60, k1, b), rel=1e-12, abs=1e-15
        )


def test_an_index_that_lived_scores_to_the_last_bit_like_one_built_from_its_live_rows() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    index = LexicalIndex()
    live: dict[int, list[str]] = {}
    for step in range(1_500):
        row = rng.randrange(50)
        before = [gap for gap in range(row) if gap not in live]
        if row in live and before and step % 3 == 0:
            gap = rng.choice(before)
            index.move(row, gap)
            live[gap] = live.pop(row)
        elif row in live:
            assert index.remove(row) == built({row: live.pop(row)}).counts_of(row)
        else:
            live[row] = some_words(rng)
            index.add(row, live[row])
        if step % 10 == 0:
            shuffled = built({row: live[row] for row in rng.sample(sorted(live), len(live))})
            query = some_words(rng)

            assert np.array_equal(index.scores(query, 50), shuffled.scores(query, 50))
            assert index.vocabulary == shuffled.vocabulary
            assert len(index) == len(live)


def test_a_row_that_stands_for_several_texts_is_as_long_as_one_and_holds_what_any_of_them_does() -> None:
    texts = (["boat", "red", "kim"], ["boat", "boat", "nate"], ["harbour", "sank", "storm"])
    index = built({0: ["cat", "dog"]})
    index.add_together(7, [built({0: text}).counts_of(0) for text in texts])
    thawed = LexicalIndex.thaw(index.freeze(), b"")
    # idf = ln(1 + 1.5 / 1.5) = ln 2; length 3 of mean 2.5: 1.2 (.25 + .75 * 1.2) = 1.38
    twice, once = (pytest.approx(math.log(2) * count * 2.2 / (count + 1.38)) for count in (2, 1))

    for each in (index, thawed):
        assert [each.scores([term], 8)[7] for term in ("boat", "kim", "storm")] == [twice, once, once]
    index.remove(7)
    assert index.scores(["cat"], 1).tolist() == built({0: ["cat", "dog"]}).scores(["cat"], 1).tolist()
    assert not index.knows("boat")


def test_the_order_of_a_question_and_its_repetitions_change_no_bit() -> None:
    rng = random.Random(SEED)
    index = built({row: some_words(rng) for row in range(50)})
    query = [f"w{number}" for number in range(12)]

    assert np.array_equal(index.scores(query, 50), index.scores([*reversed(query), "w3", "w3"], 50))


def test_a_removed_row_leaves_no_word_and_no_score() -> None:
    index = built({0: ["secret", "shared"], 1: ["shared", "other"]})
    index.remove(0)

    assert index.knows("shared")
    assert index.knows("other")
    assert not index.knows("secret")
    assert len(index.vocabulary) == 2
    assert 0 not in index
    assert index.scores(["secret"], 2).tolist() == [0.0, 0.0]
    assert index.scores(["shared"], 2)[0] == 0.0
    assert index.scores(["shared"], 2)[1] > 0.0


def test_an_emptied_index_is_an_empty_one() -> None:
    index = built({3: ["a", "b"], 1: ["b"]})
    index.remove(3)
    index.remove(1)

    assert index.vocabulary == frozenset()
    assert len(index) == 0
    assert index.scores(["a", "b"], 4).tolist() == [0.0] * 4


def test_a_live_row_is_not_added_again() -> None:
    index = built({0: ["cat"], 1: ["dog"]})
    before = index.scores(["cat", "dog"], 2)

    with pytest.raises(ValueError, match="live"):
        index.add(0, ["dog"])
    with pytest.raises(ValueError, match="negative"):
        index.add(-1, ["dog"])
    assert np.array_equal(index.scores(["cat", "dog"], 2), before)


def test_a_row_that_is_not_live_cannot_be_removed() -> None:
    index = built({0: ["cat"], 2: []})
    before = index.scores(["cat"], 3)

    for row in (1, 3, -1):
        with pytest.raises(KeyError):
            index.remove(row)
    assert np.array_equal(index.scores(["cat"], 3), before)


def test_a_row_without_terms_is_live_and_counts() -> None:
    with_empty = built({0: ["cat"], 1: []})

    assert 1 in with_empty
    assert with_empty.scores(["cat"], 2).tolist() == pytest.approx(
        bm25_by_hand({0: ["cat"], 1: []}, {"cat"}, 2, 1.2, 0.75)
    )
    assert built({0: [], 1: []}).scores(["cat"], 2).tolist() == [0.0, 0.0]


def test_scores_are_given_for_as_many_rows_as_are_asked_for() -> None:
    index = built({0: ["cat"], 5: ["cat"]})

    assert index.scores(["cat"], 3).shape == (3,)
    assert index.scores(["cat"], 9).shape == (9,)
    assert index.scores(["cat"], 0).shape == (0,)
    assert LexicalIndex().scores(["cat"], 2).tolist() == [0.0, 0.0]


def test_given_scores_do_not_change_with_the_index() -> None:
    index = built({0: ["cat"], 1: ["dog"]})
    scores = index.scores(["cat"], 2)
    before = scores.copy()
    index.remove(0)

    assert np.array_equal(scores, before)


@pytest.mark.parametrize(("k1", "b"), [(-0.1, 0.75), (1.2, -0.1), (1.2, 1.1)])
def test_parameters_without_a_meaning_are_refused(k1: float, b: float) -> None:
    with pytest.raises(ValueError, match="k1"):
        LexicalIndex(k1=k1, b=b)


def test_chinese_is_found_by_any_part_of_it() -> None:
    texts = ["安娜搬到了迈阿密，她喜欢猫。", "鲍勃住在波士顿，他养狗。", "Anna moved to Miami."]
    index = built({row: terms(text) for row, text in enumerate(texts)})

    for question, row in [("迈阿密", 0), ("猫", 0), ("养狗", 1), ("住在哪里？波士顿", 1), ("Miami", 2)]:
        scores = index.scores(query_terms(question), 3)
        assert int(scores.argmax()) == row
        assert scores[row] > 0.0
    assert not index.scores(query_terms("密她"), 3).any()


def test_a_word_said_dozens_of_times_counts_as_often_as_it_was_said() -> None:
    rows = {0: ["cat"] * 30, 1: ["cat"] * 31, 2: ["cat"] * 500 + ["dog"], 3: ["dog"] * 31, 4: []}
    index = built(rows)

    for query in (["cat"], ["dog"], ["cat", "dog"]):
        assert index.scores(query, 5).tolist() == pytest.approx(bm25_by_hand(rows, set(query), 5, 1.2, 0.75))
    index.remove(2)
    del rows[2]
    assert index.scores(["cat", "dog"], 5).tolist() == pytest.approx(
        bm25_by_hand(rows, {"cat", "dog"}, 5, 1.2, 0.75)
    )
    assert sorted(index.counts_of(1).values()) == [31]
    index.move(3, 2)
    rows[2] = rows.pop(3)
    assert index.scores(["cat", "dog"], 5).tolist() == pytest.approx(
        bm25_by_hand(rows, {"cat", "dog"}, 5, 1.2, 0.75)
    )
    assert list(index.remove(2).values()) == [31]


def test_shares_of_a_few_rows_are_those_of_the_scores_to_the_last_bit() -> None:
    rng = random.Random(SEED)
    index = built({row: some_words(rng) + ["w0"] * (40 * (row % 3 == 0)) for row in range(50)})
    holders, shares = index.shares(["w0", "w3", "never"], range(50))

    for place, term in enumerate(["w0", "w3", "never"]):
        assert shares[place].tolist() == index.scores([term], 50).tolist()
        assert holders[place] == int(np.count_nonzero(shares[place]))


def test_who_holds_a_term_is_told_of_a_few_rows_however_often_they_hold_it() -> None:
    index = built({0: ["cat"], 3: ["cat"] * 31 + ["dog"], 7: ["cat"] * 90, 8: ["owl"], 9: []})
    numbers, holders = index.number(["cat", "dog", "owl", "cow"])

    assert holders == [3, 1, 1, 0]
    assert index.held(numbers, [7, 3, 8, 0, 9, 5, 99]) == [
        [True, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [True, False, False, False],
        [False, False, False, False],
        [False, False, False, False],
        [False, False, False, False],
    ]


@pytest.mark.parametrize("seed", range(3))
def test_terms_come_and_go_by_thousands_and_freeze_to_the_same(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    index, live = LexicalIndex(b"key"), dict[int, list[str]]()
    for number in range(900):
        row = rng.randrange(120)
        if row in live:
            index.remove(row)
            del live[row]
        else:
            live[row] = [f"w{rng.randrange(4_000)}" for _ in range(12)] + [f"only{number}"] * rng.randrange(40)
            index.add(row, live[row])
    thawed = LexicalIndex.thaw(index.freeze(), b"key")
    afresh = LexicalIndex(b"key")
    for row, words in live.items():
        afresh.add(row, words)

    assert thawed.freeze() == index.freeze()
    assert index.vocabulary == afresh.vocabulary == thawed.vocabulary
    for words in [*live.values()][:20]:
        assert index.knows(words[0])
        assert np.array_equal(index.scores(words, 120), afresh.scores(words, 120))
        assert np.array_equal(index.scores(words, 120), thawed.scores(words, 120))
    assert not index.knows("w4000")


def test_two_users_have_no_hash_of_a_word_in_common() -> None:
    one, other = LexicalIndex(b"alice"), LexicalIndex(b"bob")
    one.add(0, ["cat", "dog"])
    other.add(0, ["cat", "dog"])

    assert not one.vocabulary & other.vocabulary
    assert one.scores(["cat"], 1).tolist() == other.scores(["cat"], 1).tolist()


def many_rows(count: int) -> dict[int, list[str]]:
    """Rows of two loud words, of one that a tenth has, and of rare ones."""
    chance = random.Random(count)
    return {
        row: [word for word, share in (("jon", 0.6), ("gina", 0.4), ("cat", 0.1)) if chance.random() < share]
        + [f"w{chance.randrange(500)}" for _ in range(3)]
        for row in range(count)
    }


def test_what_most_rows_hold_is_scored_the_same_to_the_last_bit_however_often_it_is_asked_for() -> None:
    rows = many_rows(5_000)
    index, questions = built(rows), (["jon", "cat", "w3"], ["w7", "gina", "jon", "w8", "w9"], ["gina"], ["w1"])
    first = [index.scores(asked, 5_000).tobytes() for asked in questions]
    again = [[index.scores(asked, 5_000).tobytes() for asked in questions] for _ in range(3)]

    assert again == [first] * 3
    by_hand = bm25_by_hand(rows, set(questions[1]), 5_000, 1.2, 0.75)
    assert np.frombuffer(first[1]).tolist() == pytest.approx(by_hand)


def test_what_most_rows_hold_is_scored_anew_after_a_change_and_old_hits_stay() -> None:
    rows = many_rows(5_000)
    index = built(rows)
    sizes = [index.size_bytes]
    for _ in range(2):
        index.hits(["jon", "w3"])
        sizes.append(index.size_bytes)
    hits = index.hits(["jon", "w3"])
    before = hits.add_up(5_000).tobytes()
    index.remove(17)
    index.add(17, ["jon"] * 9)
    fresh = built(rows | {17: ["jon"] * 9})
    after = [index.scores(["jon", "w3"], 5_000).tobytes() for _ in range(3)]

    assert after == [fresh.scores(["jon", "w3"], 5_000).tobytes()] * 3
    assert hits.add_up(5_000).tobytes() == before != after[0]
    # Not for the first question: the next one may come after another change.
    assert [size - sizes[0] for size in sizes] == [0, 0, 8 * 5_000]
