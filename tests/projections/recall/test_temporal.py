"""What time does to the candidates of a question: order by hand, and what holds for any of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, Recollection, prepare, recall, score_rows
from projections.recall.filters import Filters, Span
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.temporal import find_anchor
from projections.recall.time_question import Order, TimeKind, TimeQuestion
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id

DAY_MS = 86_400_000
SAID = (
    "Bob swam in the lake",
    "Bob ran the marathon",
    "Bob swam in the river",
    "Bob painted the fence",
    "Bob swam in the sea",
)


def a_set(texts: tuple[str, ...] = SAID) -> NodeSet:
    """A fact a day, each in a session of its own."""
    nodes = NodeSet(b"alice")
    for number, text in enumerate(texts):
        at = MONDAY + number * DAY_MS
        session = frozenset((KEYS.session("alice", f"s{number}"),))
        turns = (number,)
        node = SearchNode(
            an_id(f"n{number}"), NodeKind.FACT, TurnsText(turns), turns, session, at, at, at, len(text)
        )
        nodes.add(node, text)
    return nodes


def ask(
    nodes: NodeSet, question: str, time: TimeQuestion | None, told: tuple[int, ...] = (), k: int = 5
) -> list[int]:
    """The numbers of the memories, best first."""
    return numbers(recall(nodes, a_request(question, time, told, k)))


def a_request(question: str, time: TimeQuestion | None, told: tuple[int, ...] = (), k: int = 5) -> RecallRequest:
    by = tuple((an_id(f"n{number}"),) for number in told)
    return RecallRequest(question, k, NO_EMBEDDER, time=time, told_by=by)


def numbers(found: Recollection) -> list[int]:
    return [memory.node.turns[0] for memory in found.memories]


def days(first: int, last: int) -> Span:
    return Span(MONDAY + first * DAY_MS, MONDAY + (last + 1) * DAY_MS)


def test_what_tells_the_state_stands_first_in_its_order() -> None:
    nodes, question = a_set(), "Where did Bob swim?"
    asked = TimeQuestion(TimeKind.PREDECESSOR, rest=question)
    plain = ask(nodes, question, None)

    assert set(plain[:3]) == {0, 2, 4}
    assert ask(nodes, question, asked, told=(3, 1))[:2] == [3, 1]
    assert ask(nodes, question, asked, told=(3, 1))[2:] == [each for each in plain if each not in (1, 3)]


def test_what_may_not_answer_does_not_for_its_time() -> None:
    nodes = a_set()
    request = RecallRequest(
        "Where did Bob swim?",
        5,
        NO_EMBEDDER,
        filters=Filters(said=days(0, 2)),
        time=TimeQuestion(TimeKind.LATEST, rest="Where did Bob swim?"),
        told_by=((an_id("n4"),), (an_id("nobody"),), (an_id("n1"),)),
    )

    assert numbers(recall(nodes, request))[0] == 1
    assert 4 not in numbers(recall(nodes, request))


def test_what_lies_in_the_days_that_are_asked_for_comes_before_its_like() -> None:
    nodes, question = a_set(), "Where did Bob swim?"

    for number in (0, 2, 4):
        asked = TimeQuestion(TimeKind.AT, span=days(number, number), rest=question)
        assert ask(nodes, question, asked)[0] == number
    assert ask(nodes, question, TimeQuestion(TimeKind.BEFORE, span=days(2, 3), rest=question))[0] == 0
    assert ask(nodes, question, TimeQuestion(TimeKind.AFTER, span=days(2, 3), rest=question))[0] == 4


def test_where_nothing_else_is_asked_the_days_decide_in_the_order_of_time() -> None:
    asked = TimeQuestion(TimeKind.AT, span=days(1, 3), rest="What did happen?")

    assert ask(a_set(), "What did happen?", asked)[:3] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "order", "first"),
    [(TimeKind.LAST, Order.LATEST_FIRST, [4, 2, 0]), (TimeKind.HOW_OFTEN, Order.EARLIEST_FIRST, [0, 2, 4])],
)
def test_of_what_says_as_much_the_end_that_is_asked_for_comes_first(
    kind: TimeKind, order: Order, first: list[int]
) -> None:
    question = "Where did Bob swim?"

    assert ask(a_set(), question, TimeQuestion(kind, order=order, rest=question))[:3] == first


def test_beside_what_happened_the_right_side_comes_first() -> None:
    nodes = a_set()
    before = TimeQuestion(TimeKind.BEFORE, anchor="the marathon", rest="Where did Bob swim?")
    after = TimeQuestion(TimeKind.AFTER, anchor="painting the fence", rest="Where did Bob swim?")

    assert ask(nodes, "Where did Bob swim before the marathon?", before)[0] == 0
    assert ask(nodes, "Where did Bob swim after painting the fence?", after)[0] == 4, "and not the fence itself"
    assert find_anchor(nodes, nodes.live_rows(), "the marathon") == MONDAY + DAY_MS
    assert find_anchor(nodes, nodes.live_rows(), "the wedding") is None


def test_what_was_said_before_of_what_was_to_come_is_on_the_right_side() -> None:
    nodes, plan = a_set(), "Bob wants to swim in the ocean next week"
    session = frozenset((KEYS.session("alice", "plan"),))
    coming = MONDAY + 9 * DAY_MS
    nodes.add(
        SearchNode(
            an_id("plan"), NodeKind.FACT, TurnsText((9,)), (9,), session, MONDAY, coming, coming, len(plan)
        ),
        plan,
    )
    asked = TimeQuestion(TimeKind.BEFORE, anchor="the marathon", rest="Where did Bob swim?")
    ranked = ask(nodes, "Where did Bob swim before the marathon?", asked, k=6)

    assert set(ranked[:2]) == {0, 9}, "the river and the sea came after it"


def test_where_nothing_else_is_asked_the_nearest_on_that_side_comes_first() -> None:
    asked = TimeQuestion(TimeKind.BEFORE, anchor="painting the fence", rest="What did happen?")

    assert ask(a_set(), "What did happen before painting the fence?", asked)[:3] == [2, 1, 0]


def test_what_says_when_comes_before_its_like_for_who_asks_when() -> None:
    nodes = a_set(("Bob met Grace at the harbour", "Bob met Grace at the station yesterday", "Bob sang"))
    question = "Bob met Grace?"

    assert ask(nodes, question, TimeQuestion(TimeKind.WHEN, rest=question))[0] == 1
    assert ask(nodes, question, TimeQuestion(TimeKind.LATEST, rest=question))[0] == 0


def a_question(chance: random.Random) -> TimeQuestion:
    first = chance.randrange(20)
    return TimeQuestion(
        kind=chance.choice(list(TimeKind)),
        span=chance.choice((None, days(first, first + chance.randrange(5)))),
        anchor=chance.choice((None, f"word{chance.randrange(9)}", "nothing of it")),
        order=chance.choice((None, *Order)),
        rest=" ".join(f"word{chance.randrange(12)}" for _ in range(chance.randrange(4))),
    )


def test_time_never_loses_a_candidate_and_keeps_the_best_first() -> None:
    seed = 8
    print("seed", seed)
    chance = random.Random(seed)
    nodes = a_set(tuple(" ".join(f"word{chance.randrange(12)}" for _ in range(6)) for _ in range(20)))
    for _ in range(200):
        time = a_question(chance)
        told = tuple(chance.sample(range(20), chance.randrange(3)))
        question = " ".join(f"word{chance.randrange(12)}" for _ in range(3))
        with_time, without = a_request(question, time, told, 3), a_request(question, None, k=3)
        leading = score_rows(prepare(nodes, with_time), with_time)
        plain = score_rows(prepare(nodes, without), without)

        assert set(plain.rows.tolist()) <= set(leading.rows.tolist())
        assert len(set(leading.rows.tolist())) == leading.rows.size
        assert is_falling(leading.smoothed)
        assert [nodes.row_of[an_id(f"n{each}")] for each in told] == leading.rows[: len(told)].tolist()
        if leading.timed is not None:
            untimed = dict(zip(leading.rows.tolist(), (leading.smoothed - leading.timed).tolist(), strict=True))
            for row, score in zip(plain.rows.tolist(), plain.smoothed.tolist(), strict=True):
                assert untimed[row] == pytest.approx(score, abs=1e-6)


def is_falling(scores: NDArray[np.float64]) -> bool:
    return bool((np.diff(scores.round(5)) <= 0).all())
