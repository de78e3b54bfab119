"""What queries ask a model besides answers: plans, rankings, checks; read strictly, and asked within limits."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from daemon.asking.deep.times import time_of
from daemon.chat.asking.checking import Checked, checking_question, read_check
from daemon.chat.asking.planning import PlannedTime, read_plan
from daemon.chat.asking.question import SEARCH_CHARS_MAX, Question
from daemon.chat.asking.ranking import TEXT_CHARS_MAX, TreeTexts, ranking_question, read_ranking
from daemon.chat.calls import ROOM_LEAST, Spending, estimate_tokens
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.json_text import JsonUnusable
from daemon.models.limiter import PRIORITY
from daemon.models.query_tasks import Cap, QueryTask
from events.memory import ParkReason, Task, Usage
from events.time import to_iso
from projections.ports import AnswerUnusable, MemberText
from projections.recall.time_question import Order, TimeKind
from tests.daemon.chat.asking import asking, at, is_repair, members_of
from tests.openai_stub import OpenAiStub, running_stub

QUESTION = "Where did Bob live before moving to Miami?"


def a_ranking(texts: int = 3, most: int = 2) -> Question[tuple[int, ...]]:
    return ranking_question(
        QUESTION, "2024-07-01", [TreeTexts("bob", "home", members_of(*["text"] * texts))], most
    )


def body_of(question: Question[Any]) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(question.prompt.messages[1][1])
    return body


@pytest.mark.parametrize(
    ("said", "places"),
    [
        ('{"best": [2, 1]}', (1, 0)),
        ('{"best": [2, 2, 1, 3]}', (1, 0)),  # each once, and no more than may go on
        ('{"Best": ["3", {"n": 1}]}', (2, 0)),
        ('```json\n{"best": [1.0]}\n```', (0,)),
        ('{"best": []}', ()),
    ],
)
def test_a_ranking_is_the_places_of_what_was_shown(said: str, places: tuple[int, ...]) -> None:
    assert a_ranking().read(said) == places


@pytest.mark.parametrize(
    "said",
    [
        '{"best": [0]}',
        '{"best": [4]}',
        '{"best": [true]}',
        '{"best": ["one"]}',
        '{"best": 1}',
        '{"worst": [1]}',
        "1",
    ],
)
def test_a_ranking_of_what_was_not_shown_is_none(said: str) -> None:
    with pytest.raises((AnswerInvalid, JsonUnusable)):
        read_ranking(said, 3, 2)


def test_texts_of_all_trees_are_counted_through_and_cut() -> None:
    trees = [
        TreeTexts("a\nb", "x", (MemberText("one", at(1), at(2)),)),
        TreeTexts("c", "y", (MemberText("z" * 1_000, at(3), at(3)), MemberText("two", at(4), at(4)))),
    ]
    shown = body_of(ranking_question(QUESTION, "2024-07-01", trees, 5))

    assert [text["n"] for tree in shown["trees"] for text in tree["texts"]] == [1, 2, 3]
    assert shown["trees"][0]["about"] == "a b"
    assert shown["trees"][0]["texts"][0]["time"] == "2023-05-01/2023-05-02"
    assert len(shown["trees"][1]["texts"][0]["text"]) == TEXT_CHARS_MAX


def test_a_plan_is_a_text_for_some_of_the_trees() -> None:
    said = {
        "queries": [
            {"n": 2, "query": "home\nof Bob"},
            {"n": 2, "query": "Davis"},
            {"n": 1, "query": " "},
            {"n": "3", "query": "x" * 1_000},
        ],
        "time": {"kind": "before", "anchor": "moving to Miami", "from": "2024-07", "to": ""},
    }
    plan = read_plan(json.dumps(said), 3, QUESTION)

    assert plan.queries == {1: "home of Bob Davis", 2: "x" * SEARCH_CHARS_MAX}
    assert plan.time == PlannedTime("before", "moving to Miami", "2024-07", "")


@pytest.mark.parametrize(
    "queries", ["none", [1], [{"n": 4, "query": "x"}], [{"n": 0, "query": "x"}], [{"query": "x"}]]
)
def test_a_plan_for_a_tree_that_was_not_shown_is_none(queries: object) -> None:
    with pytest.raises(AnswerInvalid):
        read_plan(json.dumps({"queries": queries}), 3, QUESTION)


@pytest.mark.parametrize("time", [None, "before", {"kind": "soon"}, {"kind": 7}, {}])
def test_a_time_that_is_none_costs_no_plan(time: object) -> None:
    plan = read_plan(json.dumps({"queries": [{"n": 1, "query": "x"}], "time": time}), 1, QUESTION)

    assert plan.queries == {0: "x"}
    assert plan.time == PlannedTime()


def test_an_anchor_is_words_of_the_question_or_none() -> None:
    def read(anchor: str) -> str:
        time = {"kind": "before", "anchor": anchor, "from": "", "to": ""}
        return read_plan(json.dumps({"queries": [], "time": time}), 1, QUESTION).time.anchor

    assert read("Moving  to miami") == "Moving  to miami"
    assert read("the secret of Ann") == ""


def test_planned_days_are_half_open_and_days_that_there_are_not_are_none() -> None:
    def span(start: str, end: str = "", kind: str = "between") -> tuple[str | None, str | None] | None:
        found = time_of(PlannedTime(kind, "", start, end), QUESTION)
        if found is None or found.span is None:
            return None
        assert found.span.start is not None
        assert found.span.end is not None
        return to_iso(found.span.start)[:10], to_iso(found.span.end)[:10]

    assert span("2024-02-29") == ("2024-02-29", "2024-03-01")
    assert span("2024-12") == ("2024-12-01", "2025-01-01")
    assert span("2023", "2024-05-02") == ("2023-01-01", "2024-05-03")
    assert span("", "2024-05-02") == ("2024-05-02", "2024-05-03")
    assert span("2023-02-29") is None
    assert span("2024-05-02", "2023") is None
    assert span("soon") is None
    assert time_of(PlannedTime(), QUESTION) is None
    assert time_of(PlannedTime("none"), QUESTION) is None


def test_a_planned_time_says_which_end_of_time_is_wanted() -> None:
    last = time_of(PlannedTime("last"), QUESTION)
    before = time_of(PlannedTime("before", "moving to Miami"), QUESTION)

    assert last is not None
    assert (last.kind, last.order) == (TimeKind.LAST, Order.LATEST_FIRST)
    assert before is not None
    assert (before.anchor, before.order, before.rest) == (
        "moving to Miami",
        None,
        "Where did Bob live before ?",
    )


@pytest.mark.parametrize(
    ("said", "checked"),
    [
        ('{"enough": true, "query": "whatever"}', Checked(True)),
        ('{"enough": "no", "query": " Bob\\nDavis "}', Checked(False, "Bob Davis")),
        ('{"enough": false, "query": "x"}', Checked(False, "x")),
    ],
)
def test_a_check_says_enough_or_what_else_to_look_for(said: str, checked: Checked) -> None:
    assert read_check(said) == checked


@pytest.mark.parametrize("said", ['{"enough": false, "query": ""}', '{"enough": 1}', '{"enough": null}', "{}"])
def test_a_check_that_says_neither_is_none(said: str) -> None:
    with pytest.raises((AnswerInvalid, JsonUnusable)):
        read_check(said)


def test_who_waits_for_an_answer_goes_first() -> None:
    assert all(PRIORITY[task] < PRIORITY[other] for task in QueryTask for other in Task)


async def ask_stub(
    act: Callable[[OpenAiStub], None], question: Question[Any], spending: Spending
) -> tuple[object, OpenAiStub]:
    """What comes of a question to a model over real HTTP, and the stub afterwards."""
    async with running_stub() as stub, asking(stub) as model:
        act(stub)
        try:
            return await model.ask(question, spending), stub
        except AnswerUnusable as unusable:
            return unusable.reason, stub


async def test_an_answer_of_no_use_is_mended_once() -> None:
    def act(stub: OpenAiStub) -> None:
        stub.chat = lambda asked: '{"best": [1]}' if is_repair(asked) else '{"best": [99]}'

    spending = Spending()
    answer, stub = await ask_stub(act, a_ranking(), spending)

    assert answer == (0,)
    assert (len(stub.asked), spending.usage.calls, spending.usage.repairs) == (2, 2, 1)
    assert stub.asked[0].body["temperature"] == 0
    assert stub.asked[0].body["response_format"]["json_schema"]["name"] == "ranking"


async def test_nonsense_is_asked_for_twice_and_no_more() -> None:
    def act(stub: OpenAiStub) -> None:
        stub.chat = lambda _: "Miami, I think."

    answer, stub = await ask_stub(act, checking_question(QUESTION, "", members_of("x")), Spending())

    assert answer is ParkReason.ANSWER_INVALID
    assert len(stub.asked) == 2


async def test_a_cap_on_calls_counts_repairs() -> None:
    def act(stub: OpenAiStub) -> None:
        stub.chat = lambda _: "nonsense"

    whole = Spending(calls_left=1)
    answer, stub = await ask_stub(act, a_ranking(), Spending(part_of=whole))

    assert answer is ParkReason.TOO_LONG
    assert (len(stub.asked), whole.capped, whole.usage.calls) == (1, Cap.CALLS, 1)


def test_questions_that_are_out_together_keep_within_the_tokens_together() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    for _ in range(50):
        whole = Spending(tokens_max=dice.randrange(1, 20_000))
        out: list[tuple[Spending, int, int]] = []
        most = 0
        while whole.capped is None:
            if out and dice.random() < 0.4:
                each, room, reserved = out.pop(dice.randrange(len(out)))
                each.end_call(reserved)
                each.add(Usage(prompt_tokens=reserved - room, completion_tokens=dice.randrange(room + 1)))
            each = Spending(part_of=whole)
            try:
                out.append((each, *each.begin_call(a_ranking(dice.randrange(1, 30)).prompt, 3_000)))
            except AnswerUnusable:
                assert each.usage.calls == 0
            most = max(most, whole.usage.tokens + whole.reserved)

        assert whole.tokens_max is not None
        assert most <= whole.tokens_max
        assert whole.capped in (Cap.TOKENS, Cap.CALLS)
        assert all(room >= ROOM_LEAST for _, room, _ in out)


def test_what_a_prompt_takes_is_estimated_from_its_bytes() -> None:
    prompt = a_ranking().prompt

    assert estimate_tokens(prompt) == -(-sum(len(text.encode()) for _, text in prompt.messages) // 4)
