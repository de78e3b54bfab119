"""Recall by rank and by length, and the reciprocal rank: figures worked out by hand."""

from __future__ import annotations

from memforest.bench.evidence import Retrieved, find_sessions, measure, recall_at, recall_within, reciprocal_rank


def retrieved(turns: str, characters: int = 10) -> Retrieved:
    return Retrieved(frozenset(turns.split()), "x" * characters)


RANKING = [retrieved("a b"), retrieved("c"), retrieved("d e"), retrieved("f")]


def test_recall_at_k_is_the_share_of_gold_turns_that_the_first_k_carry() -> None:
    gold = frozenset(("b", "d", "z"))

    assert recall_at(RANKING, gold, 1) == 1 / 3
    assert recall_at(RANKING, gold, 2) == 1 / 3
    assert recall_at(RANKING, gold, 3) == 2 / 3
    assert recall_at(RANKING, gold, 99) == 2 / 3


def test_the_first_text_that_does_not_fit_ends_what_is_within_a_length() -> None:
    ranking = [retrieved("a", 30), retrieved("b", 50), retrieved("c", 10)]
    gold = frozenset("abc")

    assert recall_within(ranking, gold, 29) == 0
    assert recall_within(ranking, gold, 30) == 1 / 3
    assert recall_within(ranking, gold, 79) == 1 / 3  # c would fit, and stands behind b
    assert recall_within(ranking, gold, 90) == 1


def test_the_reciprocal_rank_is_of_the_first_memory_with_a_gold_turn() -> None:
    assert reciprocal_rank(RANKING, frozenset("e")) == 1 / 3
    assert reciprocal_rank(RANKING, frozenset("ac")) == 1
    assert reciprocal_rank(RANKING, frozenset("z")) == 0


def test_each_measure_is_of_the_answer_to_its_own_question() -> None:
    empty: list[Retrieved] = []
    by_rank = (RANKING, [retrieved("x"), *RANKING], [*RANKING[:1], retrieved("z")])
    found = measure(by_rank, (empty, RANKING[:1], RANKING), frozenset(("a", "c", "z")))

    assert (found.recall_5, found.recall_10, found.recall_20) == (2 / 3, 2 / 3, 2 / 3)
    assert (found.within_2000, found.within_4000, found.within_8000) == (0, 1 / 3, 2 / 3)
    assert found.mrr == 1 / 2


def test_sessions_are_found_when_a_memory_is_from_them() -> None:
    memories = [frozenset({"s1"}), *[frozenset({"s9"})] * 5, frozenset({"s2", "s3"})]
    found = find_sessions([memories] * 3, frozenset(("s1", "s2")))

    assert (found.recall_5, found.recall_10, found.recall_20) == (1 / 2, 1, 1)
