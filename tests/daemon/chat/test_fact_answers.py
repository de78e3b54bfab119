"""Facts are checked field by field: what has another form is no fact, and never an answer of no facts."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from daemon.chat.fact_answers import FACT_CHARS_MAX, FACTS_PER_TURN_MAX, AnswerInvalid, join_facts, read_facts
from daemon.chat.json_text import JsonCut, JsonUnusable
from events.memory import ExtractedFact, FactRole, Mention, StateOf
from events.time import Instant, from_datetime
from projections.ports import ChunkText, TurnText


def at(day: int, hour: int = 0) -> Instant:
    return from_datetime(datetime(2023, 5, day, hour, tzinfo=UTC))


CHUNK = ChunkText(
    (
        TurnText("user", "Ann", at(8, 13), "I moved to Oslo yesterday."),
        TurnText("assistant", None, at(8, 14), "How nice."),
    )
)
WHOLE = {
    "text": "Ann moved to Oslo yesterday.",
    "turns": [1],
    "role": "state",
    "names": ["Ann", "Oslo", "Ann"],
    "topics": ["moving"],
    "when": "yesterday",
    "entity": "Ann",
    "attribute": "home",
}


def facts_of(*facts: object, chunk: ChunkText = CHUNK) -> tuple[ExtractedFact, ...]:
    return read_facts(json.dumps({"facts": facts}), chunk)


def fault_of(text: str) -> str:
    with pytest.raises((AnswerInvalid, JsonUnusable)) as raised:
        read_facts(text, CHUNK)
    return str(raised.value)


def test_a_whole_fact_has_all_that_the_model_said_and_its_day_by_code() -> None:
    (fact,) = facts_of(WHOLE)

    assert fact == ExtractedFact(
        "Ann moved to Oslo yesterday.",
        (0,),
        at(7),
        at(8) - 1,
        FactRole.STATE,
        (Mention("Ann"), Mention("Oslo")),
        ("moving",),
        StateOf("Ann", "home"),
    )


def test_no_facts_is_an_answer() -> None:
    assert facts_of() == ()


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"result": "Ann moved."}, '"facts"'),
        ({"facts": {}}, '"facts"'),
        ({"facts": None}, '"facts"'),
        ({"facts": "Ann moved."}, '"facts"'),
        ({"facts": ["Ann moved."]}, "fact 1 is no object"),
        ({"facts": [WHOLE, {}]}, 'fact 2 has no "text"'),
        ({"facts": [{**WHOLE, "text": " \n\x00 "}]}, 'no "text"'),
        ({"facts": [{**WHOLE, "text": 7}]}, 'no "text"'),
        ({"facts": [{**WHOLE, "text": "x" * (FACT_CHARS_MAX + 1)}]}, "longer"),
        ({"facts": [{**WHOLE, "turns": []}]}, 'no "turns"'),
        ({"facts": [{**WHOLE, "turns": None}]}, 'no "turns"'),
        ({"facts": [{**WHOLE, "turns": [0]}, {**WHOLE, "turns": [2]}]}, "from 1 to 2"),
        ({"facts": [{**WHOLE, "turns": [1, 3]}]}, "from 1 to 2"),
        ({"facts": [{**WHOLE, "turns": ["m-17"]}]}, "from 1 to 2"),
        ({"facts": [{**WHOLE, "turns": [True]}]}, "from 1 to 2"),
        ({"facts": [{**WHOLE, "turns": [1.5]}]}, "from 1 to 2"),
        ({"facts": [{**WHOLE, "text": f"{n}"} for n in range(2 * FACTS_PER_TURN_MAX + 1)]}, "more than 200"),
        ({"facts": [{**WHOLE, "text": ""}]}, 'no "text"'),
        ({"facts": [{**WHOLE, "turns": float("inf")}]}, 'no "turns"'),
        ({"role": "assistant", "content": '{"facts": []}'}, '"facts"'),
        ({"properties": {"facts": {"type": "array"}}}, '"facts"'),
        ([WHOLE, 7], ""),
        (7, ""),
    ],
)
def test_an_answer_of_another_form_is_refused_with_what_to_mend(answer: object, fault: str) -> None:
    said = fault_of(json.dumps(answer))

    assert fault in said
    assert "Ann" not in said


def test_an_answer_that_is_cut_is_no_answer() -> None:
    with pytest.raises(JsonCut):
        read_facts(json.dumps({"facts": [WHOLE, WHOLE]})[:-30], CHUNK)


OTHER = {"text": "Bob is glad.", "turns": [2]}


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps([WHOLE, OTHER]),
        json.dumps(json.dumps({"facts": [WHOLE, OTHER]})),
        json.dumps({"facts": json.dumps([WHOLE, OTHER])}),
        json.dumps({"facts": {"facts": [WHOLE, OTHER]}}),
        json.dumps({"memories": [WHOLE, OTHER]}),
        json.dumps({"Facts": [{key.upper(): value for key, value in WHOLE.items()}, OTHER]}),
        f"{json.dumps({'facts': [WHOLE]})}\n{json.dumps({'facts': [OTHER]})}",
        f"{json.dumps(WHOLE)}\n{json.dumps(OTHER)}\n",
        f"{json.dumps(WHOLE)}\n" * 150 + json.dumps(OTHER),
        f"First a draft: {json.dumps({'facts': []})}, and then {json.dumps({'facts': [WHOLE, OTHER]})}",
        f"<facts>{json.dumps([WHOLE, OTHER])}</facts>",
        json.dumps({"facts": [WHOLE, OTHER, {**WHOLE, "text": "", "names": [""]}]}),
        json.dumps({"facts": [WHOLE, OTHER] * 2_000}),
        str({"facts": [WHOLE, OTHER]}),
    ],
)
def test_what_small_models_make_of_the_form_is_read_when_it_can_mean_one_thing_only(answer: str) -> None:
    assert read_facts(answer, CHUNK) == facts_of(WHOLE, OTHER)


@pytest.mark.parametrize("between", ["\nand for the second turn:\n", "\n```\nthen\n```json\n"])
def test_two_answers_of_which_one_may_be_a_draft_are_none(between: str) -> None:
    parts = f"```json\n{json.dumps({'facts': [WHOLE]})}{between}{json.dumps({'facts': [OTHER]})}\n```"

    assert "several places" in fault_of(parts)


def test_a_fact_may_stand_alone_and_its_keys_may_have_other_names() -> None:
    renamed = {
        "fact": WHOLE["text"],
        "turn": "turn 1",
        "type": "STATE",
        "entities": [{"name": "Ann"}, {"name": "Oslo"}],
    }

    assert read_facts(json.dumps(WHOLE), CHUNK) == facts_of(WHOLE)
    assert read_facts(json.dumps({"facts": WHOLE}), CHUNK) == facts_of(WHOLE)
    assert facts_of(renamed) == facts_of({**WHOLE, "topics": [], "when": "", "entity": ""})
    assert facts_of("Ann moved.", chunk=ChunkText(CHUNK.turns[:1]))[0].text == "Ann moved."


def test_turns_counted_from_0_are_shifted_where_0_can_only_be_the_first() -> None:
    previous = ChunkText(CHUNK.turns, CHUNK.turns[1])
    answer = json.dumps({"facts": [{**WHOLE, "turns": [0]}, {**OTHER, "turns": [1]}]})

    assert read_facts(answer, CHUNK) == facts_of(WHOLE, OTHER)
    with pytest.raises(AnswerInvalid):  # it may be the turn before, which has no number
        read_facts(answer, previous)


@pytest.mark.parametrize(
    "names",
    [
        [{"name": "Ann", "type": "person"}, {"label": "Oslo"}],
        {"people": ["Ann"], "places": ["Oslo"]},
        "Ann, Oslo",
        ["Ann", ["Oslo"], 7, None],
    ],
)
def test_names_of_any_form_are_names(names: object) -> None:
    assert facts_of({**WHOLE, "names": names})[0].mentions == (Mention("Ann"), Mention("Oslo"))


def test_what_nobody_sees_is_taken_out_of_a_fact() -> None:
    text = "An\u200bn \u202emoved\u202c\U000e0041\U000e0042 home with \U0001f468\u200d\U0001f467."

    assert facts_of({**WHOLE, "text": text})[0].text == "Ann moved home with \U0001f468\u200d\U0001f467."


@pytest.mark.parametrize("turns", [[1, 2], ["2", 1], [2.0, 1, 1], "1, 2", ["turn 1", "#2"], [{"n": 2}, {"n": 1}]])
def test_turns_are_positions_in_order_each_once(turns: list[object]) -> None:
    assert facts_of({**WHOLE, "turns": turns})[0].turns == (0, 1)


def test_a_turn_may_stand_without_its_list_and_the_only_one_need_not_be_named() -> None:
    alone = ChunkText(CHUNK.turns[:1])

    assert facts_of({**WHOLE, "turns": 2})[0].turns == (1,)
    assert facts_of({"text": "Ann moved."}, chunk=alone)[0].turns == (0,)
    assert facts_of({"text": "Ann moved.", "turns": []}, chunk=alone)[0].turns == (0,)


@pytest.mark.parametrize("role", ["Belief", "", None, 7, ["event"]])
def test_an_unknown_role_is_a_detail(role: object) -> None:
    fact = facts_of({**WHOLE, "role": role})[0]

    assert (fact.role, fact.state) == (FactRole.DETAIL, None)
    assert facts_of({**WHOLE, "role": " Plan "})[0].role is FactRole.PLAN


@pytest.mark.parametrize("when", ["", None, 7, "some time or other", "1970-01-01", "x" * 500, "2023-02-31"])
def test_a_time_that_is_not_understood_is_the_time_of_the_turns(when: object) -> None:
    fact = facts_of({**WHOLE, "turns": [1, 2], "when": when})[0]

    assert (fact.time_start, fact.time_end) == (at(8, 13), at(8, 14))


def test_labels_are_bounded_and_what_is_none_is_left_out() -> None:
    fact = facts_of(
        {
            **WHOLE,
            "names": [f"Name {n}" for n in range(40)],
            "topics": ["a\nb", "x" * 81, 7, "", "c", "d", "e"],
            "entity": "x" * 81,
        }
    )[0]
    odd = facts_of({**WHOLE, "names": "Ann", "topics": {"a": 1}, "entity": 7})[0]

    assert [mention.label for mention in fact.mentions] == [f"Name {n}" for n in range(12)]
    assert (fact.topics, fact.state) == (("a b", "c", "d"), None)
    assert (odd.mentions, odd.topics, odd.state) == ((Mention("Ann"),), (), None)


@pytest.mark.parametrize("entity", ["user", "The user", "I", "me"])
@pytest.mark.parametrize(
    ("speakers", "turns", "whose"),
    [
        (("Ann", "Bob"), [1], "Ann"),
        (("Ann", "Bob"), [2], "Bob"),
        (("Ann", "Bob"), [1, 2], None),
        ((None, None), [1], "user"),
    ],
)
def test_a_state_of_who_speaks_is_under_their_name(
    entity: str, speakers: tuple[str | None, str | None], turns: list[int], whose: str | None
) -> None:
    chunk = ChunkText(tuple(TurnText("user", speaker, at(8), "I moved to Oslo.") for speaker in speakers))
    (fact,) = facts_of({**WHOLE, "entity": entity, "turns": turns}, chunk=chunk)

    assert fact.state == (None if whose is None else StateOf(whose, "home"))


def test_an_assistant_has_no_state_and_the_user_of_whom_it_speaks_has() -> None:
    of_itself, of_user = (facts_of({**WHOLE, "entity": entity, "turns": [2]})[0] for entity in ("I", "user"))

    assert (of_itself.state, of_user.state) == (None, StateOf("user", "home"))


def test_what_no_store_takes_is_cleaned_out_of_every_field() -> None:
    text = '{"facts": [{"text": "A\\u0000nn \\ud83d moved.\\n", "turns": [1], "names": ["An\\ud83dn"]}]}'
    fact = read_facts(text, CHUNK)[0]

    assert fact.text == "A nn \ufffd moved."
    assert fact.mentions == (Mention("An\ufffdn"),)
    assert f"{fact}".encode()


def test_facts_stand_in_the_order_of_their_turns_and_each_once() -> None:
    later, earlier = (
        {**WHOLE, "text": "Bob is glad.", "turns": [2]},
        {**WHOLE, "text": "ANN MOVED TO OSLO YESTERDAY"},
    )
    facts = facts_of(later, WHOLE, earlier, {**WHOLE, "turns": [1, 2]})

    assert [(fact.text, fact.turns) for fact in facts] == [
        ("Ann moved to Oslo yesterday.", (0,)),
        ("Ann moved to Oslo yesterday.", (0, 1)),
        ("Bob is glad.", (1,)),
    ]
    assert join_facts(facts, facts) == facts


@pytest.mark.parametrize(
    "text", ["安娜昨天搬到了奥斯陆。", "アンは昨日オスロに引っ越した。", "앤은 어제 오슬로로 이사했다."]
)
def test_a_fact_keeps_the_language_that_it_was_written_in(text: str) -> None:
    assert facts_of({**WHOLE, "text": text})[0].text == text
