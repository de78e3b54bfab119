"""Other names in a model's answer: read however they come, believed only where a turn bears them out."""

from __future__ import annotations

import json

import pytest

from daemon.chat.alias_answers import read_aliases
from projections.ports import ChunkText, TurnText
from tests.daemon.chat.asking import a_chunk, asking, facts
from tests.openai_stub import OpenAiStub

SAID = a_chunk("I met Robert and Anna.", "Robert's colleagues all call him Bob, you know.")
ONE = [("Robert", "Bob", 1)]


def read(answer: str, chunk: ChunkText = SAID) -> list[tuple[str, str, int]]:
    return [(each.label, each.alias, each.turn) for each in read_aliases(answer, chunk)]


def answer(*pairs: tuple[str, str]) -> str:
    return json.dumps({"facts": [], "aliases": [{"name": name, "alias": alias} for name, alias in pairs]})


@pytest.mark.parametrize(
    "written",
    [
        answer(("Robert", "Bob")),
        answer(("robert", "Bob"), ("Robert", "Bob"), ("Bob", "Robert")),
        '```json\n{"facts": [], "aliases": [{"name": "Robert", "alias": "Bob"}]}\n```',
        '{"facts": [], "Aliases": [["Robert", "Bob"]]}',
        '{"facts": [], "aliases": {"Robert": ["Bob"]}}',
        '{"aliases": [{"entity": "Robert", "aliases": ["Bob", 7, null]}]}',
        '{"aliases": [{"label": " Robert\\u200b", "nickname": "Bob"}, 5, null, "x", {}, {"name": []}]}',
    ],
)
def test_aliases_are_read_in_the_forms_that_models_write(written: str) -> None:
    assert [(name.title(), *rest) for name, *rest in read(written)] == ONE


@pytest.mark.parametrize(
    "written",
    [
        "",
        "nothing",
        "{",
        '{"facts": []}',
        '{"facts": [], "aliases": "Robert"}',
        '{"aliases": 5}',
        '["Robert", "Bob"]',
    ],
)
def test_what_is_no_list_of_aliases_is_none_and_no_error(written: str) -> None:
    assert read(written) == []


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("Robert", "Bobby"),  # nobody said Bobby
        ("Roberto", "Bob"),
        ("Anna", "Robert"),  # in a turn that names nobody
        ("Robert", "colleagues"),  # a common word
        ("Robert", "him"),
        ("him", "Bob"),
        ("Robert", "robert"),
        ("Robert", ""),
        ("user", "Bob"),
        ("B" * 65, "Bob"),
    ],
)
def test_an_alias_that_no_turn_bears_out_is_dropped(name: str, alias: str) -> None:
    assert read(answer((name, alias))) == []


def test_the_name_may_be_the_speakers_but_the_alias_must_be_said() -> None:
    chunk = ChunkText((TurnText("user", "Elizabeth", 0, "Friends call me Liz."),))

    assert read(answer(("Elizabeth", "Liz")), chunk) == [("Elizabeth", "Liz", 0)]
    assert read(answer(("Liz", "Elizabeth")), chunk) == []


def test_names_without_capitals_of_their_own_are_taken_as_they_are() -> None:
    assert read(answer(("李明", "小明")), a_chunk("李明来了，大家喊他小明。")) == [("李明", "小明", 0)]
    assert read(answer(("Роберт", "Боб")), a_chunk("Роберта все зовут Боб, а Роберт не против.")) == [
        ("Роберт", "Боб", 0)
    ]


async def test_what_rules_find_and_what_the_model_finds_come_together_and_cost_no_second_call(
    stub: OpenAiStub,
) -> None:
    texts = ("Robert aka Rob moved to Oslo.", "Robert's colleagues all call him Bob.")
    written = json.loads(facts("Robert (Rob) moved to Oslo.", "Robert's colleagues call him Bob."))
    written["aliases"] = [{"name": "Robert", "alias": "Bob"}, {"name": "Robert", "alias": "Bobby"}]
    stub.chat = lambda _: json.dumps(written)
    async with asking(stub) as model:
        result = await model.extract_facts(a_chunk(*texts))

    assert [(each.label, each.alias, each.turn) for each in result.aliases] == [
        ("Robert", "Rob", 0),
        ("Robert", "Bob", 1),
    ]
    assert len(stub.asked) == 1


async def test_an_answer_without_aliases_is_as_good_as_before(stub: OpenAiStub) -> None:
    stub.chat = lambda _: facts("Ann moved to Oslo.")
    async with asking(stub) as model:
        result = await model.extract_facts(a_chunk("I moved to Oslo."))

    assert result.aliases == ()
    assert len(result.facts) == 1


async def test_aliases_of_a_part_belong_to_its_turns(stub: OpenAiStub) -> None:
    long = "I moved to Oslo. " * 600
    stub.chat = lambda _: facts("Ann moved to Oslo.")
    async with asking(stub) as model:
        result = await model.extract_facts(a_chunk(long, "I met Robert, who everyone calls Bob."))

    assert [(each.label, each.alias, each.turn) for each in result.aliases] == [("Robert", "Bob", 1)]
    assert result.usage.splits > 0
