"""The three data sets as conversations and cases; what is in the files here is written for these tests."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memforest.bench.data_sets import DATA_SETS, Selection, look_through
from memforest.bench.datasets.conversations import BadDataSet, Conversation
from memforest.bench.datasets.locomo import turn_ids_of
from memforest.errors import InvalidInput

SECRET = "Zanzibar"


def conversations(name: str, path: Path, **limits: int) -> list[Conversation]:
    return list(Selection(DATA_SETS[name], path, **limits).read())


def a_locomo(**more: Any) -> dict[str, Any]:
    return {
        "sample_id": "conv-1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ines", "dia_id": "D1:1", "text": "I planted a pear tree."},
                {"speaker": "Tom", "dia_id": "D1:2", "text": "Mine has fruit."},
            ],
        },
        "qa": [
            {"question": "What did Ines plant?", "answer": "a pear tree", "evidence": ["D1:1"], "category": 4},
            {"question": "How many?", "answer": 1, "evidence": ["D1:01; D1:2", "D"], "category": 1},
            {"question": "What did Tom sell?", "adversarial_answer": "fruit", "evidence": ["D1:2"], "category": 5},
        ],
        **more,
    }


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), "utf-8")
    return path


def test_a_locomo_question_has_its_gold_turns_and_an_adversarial_one_has_none(tmp_path: Path) -> None:
    (found,) = conversations("locomo", write_json(tmp_path / "l.json", [a_locomo()]))
    single, multi, adversarial = found.cases

    assert (single.category, set(single.gold), single.answers) == ("single-hop", {"D1:1"}, ("a pear tree",))
    assert (multi.category, set(multi.gold), multi.answers) == ("multi-hop", {"D1:1", "D1:2"}, ("1",))
    assert multi.gold_sessions == {"session_1"}
    assert (adversarial.answerable, adversarial.gold, adversarial.answers) == (False, frozenset(), ())
    assert [each["type"] for each in found.stages[0].messages] == ["turn", "turn", "session.close"]


@pytest.mark.parametrize(
    ("evidence", "gold"),
    [
        (["D8:6; D9:17"], {"D8:6", "D9:17"}),
        (["D30:05"], {"D30:5"}),
        (["D:11:26"], {"D11:26"}),
        (["D", "D1:99"], set[str]()),
    ],
)
def test_malformed_evidence_of_locomo_is_read_as_it_is_meant(evidence: list[str], gold: set[str]) -> None:
    known: dict[str, str] = dict.fromkeys(["D8:6", "D9:17", "D30:5", "D11:26"], "s")

    assert turn_ids_of(evidence, known) == gold


def a_haystack(name: str = "q1", **more: Any) -> dict[str, Any]:
    return {
        "question_id": name,
        "question_type": "temporal-reasoning",
        "question": "When did I buy the bicycle?",
        "answer": "in March",
        "question_date": "2023/05/30 (Tue) 21:40",
        "answer_session_ids": ["s2"],
        "haystack_dates": ["2023/03/01 (Wed) 10:00", "2023/03/20 (Mon) 02:21"],
        "haystack_session_ids": ["s1", "s2"],
        "haystack_sessions": [
            [{"role": "user", "content": "Which tea is green?", "has_answer": True}],
            [
                {"role": "user", "content": "I bought a bicycle today.", "has_answer": True},
                {"role": "assistant", "content": "Ride safely."},
            ],
        ],
        **more,
    }


def test_a_longmemeval_question_is_a_conversation_with_the_marked_turns_of_its_sessions_as_gold(
    tmp_path: Path,
) -> None:
    path = write_json(tmp_path / "m.json", [a_haystack(), a_haystack("q2_abs", answer="never said")])
    first, second = conversations("longmemeval", path)
    (asked,), (abstained,) = first.cases, second.cases

    assert (set(asked.gold), set(asked.gold_sessions)) == ({"s2:0"}, {"s2"})
    assert asked.asked_at == "2023-05-30T21:40:00Z"
    assert (abstained.category, abstained.answerable, abstained.gold) == ("abstention", False, frozenset())
    assert abstained.answers == ("never said",)


def test_questions_that_share_a_haystack_are_asked_of_one_conversation(tmp_path: Path) -> None:
    shared = a_haystack(questions=["Which tea?", "Which bicycle?"], answers=["green", 7])
    shared |= {"answer_session_ids": [["s1"], ["s2"]]}
    del shared["question"], shared["answer"]
    (found,) = conversations("longmemeval", write_json(tmp_path / "m.json", [shared]))

    assert [(each.case_id, set(each.gold), each.answers) for each in found.cases] == [
        ("q1/1", {"s1:0"}, ("green",)),
        ("q1/2", {"s2:0"}, ("7",)),
    ]


COLUMNS = ("question_id", "question_type", "user_question_or_message", "correct_answer", "all_options",
           "shared_context_id", "end_index_in_shared_context")  # fmt: skip


def a_row(name: str, end: object, **more: str) -> dict[str, object]:
    options = "['(a) I would row.', '(b) I\\'d swim.']"
    values = (name, "suggest_new_ideas", "What shall I do?", "(b)", options, "ctx", end)
    return {**dict(zip(COLUMNS, values, strict=True)), **more}


CONTEXT = [
    {"role": "system", "content": "Current user persona: a swimmer."},
    {"role": "user", "content": "User: I like lakes."},
    {"role": "assistant", "content": "Assistant: Then swim."},
    {"role": "user", "content": "User: I moved to the sea."},
    {"role": "system", "content": "Current user persona: a swimmer."},
    {"role": "user", "content": "User: I sold my boat."},
]


def write_personamem(folder: Path, rows: list[dict[str, object]]) -> Path:
    with (folder / "questions_32k.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *(list(row.values()) for row in rows)])
    (folder / "shared_contexts_32k.jsonl").write_text(json.dumps({"ctx": CONTEXT}) + "\n", "utf-8")
    return folder


def test_a_personamem_question_is_asked_when_its_context_is_as_far_as_it_sees(tmp_path: Path) -> None:
    write_personamem(tmp_path, [a_row("q-late", 6), a_row("q-early", 3)])
    (found,) = conversations("personamem", tmp_path)
    early, late = found.stages

    assert [case.case_id for case in early.cases] == ["q-early"]
    assert [case.case_id for case in late.cases] == ["q-late"]
    assert [(each["session_id"], each["id"]) for each in early.messages] == [
        ("session_1", "m1"),
        ("session_1", "m2"),
        ("session_1", "m3"),
        ("session_1", "session_1:close"),
    ]
    assert [(each["session_id"], each["id"]) for each in late.messages] == [
        ("session_2", "m4"),
        ("session_2", "session_2:close"),
        ("session_3", "m5"),
        ("session_3", "m6"),
        ("session_3", "session_3:close"),
    ]


def test_what_no_personamem_question_sees_is_not_published(tmp_path: Path) -> None:
    write_personamem(tmp_path, [a_row("q", 2)])
    (found,) = conversations("personamem", tmp_path)

    assert [each["id"] for stage in found.stages for each in stage.messages] == ["m1", "m2", "session_1:close"]


@pytest.mark.parametrize(
    "options", ["['(a) I would row.', '(b) I\\'d swim.']", '["(a) I would row.", "(b) I\'d swim."]']
)
def test_options_of_personamem_are_read_as_python_and_as_json(tmp_path: Path, options: str) -> None:
    (found,) = conversations("personamem", write_personamem(tmp_path, [a_row("q", 2, all_options=options)]))
    (case,) = found.cases

    assert case.options == ("I would row.", "I'd swim.")
    assert (case.right_option, case.answers) == (1, ("I'd swim.",))


@pytest.mark.parametrize("name", ["questions_32k.csv", "shared_contexts_32k.jsonl", ""])
def test_either_file_of_personamem_or_their_folder_names_both(tmp_path: Path, name: str) -> None:
    write_personamem(tmp_path, [a_row("q", 2)])

    assert len(conversations("personamem", tmp_path / name)) == 1


def of_locomo(**more: Any) -> Callable[[Path], tuple[str, Path]]:
    return lambda folder: ("locomo", write_json(folder / "l.json", [a_locomo(**more)]))


def of_longmemeval(**more: Any) -> Callable[[Path], tuple[str, Path]]:
    return lambda folder: ("longmemeval", write_json(folder / "m.json", [a_haystack(**more)]))


def of_personamem(**more: str) -> Callable[[Path], tuple[str, Path]]:
    return lambda folder: ("personamem", write_personamem(folder, [a_row("q0", 2), a_row("q", 2, **more)]))


def a_question(**more: Any) -> dict[str, Any]:
    return {"question": SECRET, "answer": SECRET, "evidence": ["D1:1"], "category": 4, **more}


@pytest.mark.parametrize(
    ("write", "place", "field"),
    [
        (of_locomo(qa=[a_question(category=9)]), "question 1", "category"),
        (of_locomo(qa=[a_question(), a_question(answer=None)]), "question 2", "answer"),
        (of_locomo(qa=[a_question(evidence=SECRET)]), "question 1", "evidence"),
        (of_locomo(qa={SECRET: 1}), "item 1", "qa"),
        (of_longmemeval(question_type=SECRET), "item 1", "question_type"),
        (of_longmemeval(question_date=SECRET), "item 1", "question_date"),
        (of_longmemeval(haystack_dates=["2023/03/01 (Wed) 10:00", SECRET]), "item 1, session 2", "date"),
        (of_longmemeval(answer_session_ids=[1]), "item 1", "answer_session_ids"),
        (of_personamem(all_options=f"[{SECRET}]"), "row 2", "all_options"),
        (of_personamem(all_options=f"['(a) {SECRET}', '(a) {SECRET}']"), "row 2", "all_options"),
        (of_personamem(correct_answer="(c)"), "row 2", "correct_answer"),
        (of_personamem(end_index_in_shared_context="-1"), "row 2", "end_index_in_shared_context"),
        (of_personamem(user_question_or_message=" "), "row 2", "user_question_or_message"),
        (of_personamem(question_id="q0"), "row 2", "question_id"),
        (of_personamem(end_index_in_shared_context="99"), "line 1", "end_index_in_shared_context"),
        (of_personamem(shared_context_id=SECRET), "questions_32k.csv", "shared_context_id"),
    ],
)
def test_what_is_wrong_is_named_by_its_place_and_field_and_never_quoted(
    tmp_path: Path, write: Callable[[Path], tuple[str, Path]], place: str, field: str
) -> None:
    name, path = write(tmp_path)
    with pytest.raises(InvalidInput) as raised:
        look_through(Selection(DATA_SETS[name], path))

    assert place in str(raised.value)
    assert field in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = write_json(tmp_path / "m.json", [a_haystack()])
    with pytest.raises(InvalidInput):
        look_through(Selection(DATA_SETS["locomo"], path))
    with pytest.raises(BadDataSet, match=r"questions_SIZE\.csv"):
        look_through(Selection(DATA_SETS["personamem"], path))


def test_two_conversations_of_one_id_are_refused(tmp_path: Path) -> None:
    path = write_json(tmp_path / "l.json", [a_locomo(), a_locomo(qa=[])])
    with pytest.raises(BadDataSet, match="Conversation 2"):
        look_through(Selection(DATA_SETS["locomo"], path))


def test_so_many_conversations_and_questions_are_taken_as_are_wanted(tmp_path: Path) -> None:
    path = write_json(tmp_path / "l.json", [a_locomo(), a_locomo(sample_id="conv-2")])
    selection = Selection(DATA_SETS["locomo"], path, conversations=1, questions=2)

    assert [[each.case_id for each in found.cases] for found in selection.read()] == [["conv-1/1", "conv-1/2"]]
    # In the order of the paper's table, single-hop first.
    assert look_through(selection).categories == ("single-hop", "multi-hop")


def test_no_more_of_a_context_is_published_than_the_questions_that_are_wanted_see(tmp_path: Path) -> None:
    write_personamem(tmp_path, [a_row("q-late", 6), a_row("q-early", 3)])
    (found,) = conversations("personamem", tmp_path, questions=1)

    assert [each.case_id for each in found.cases] == ["q-early"]
    assert len(found.stages) == 1
