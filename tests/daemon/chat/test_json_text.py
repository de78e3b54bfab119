"""JSON as models write it: read as far as it is whole, and never as if a part were all."""

from __future__ import annotations

import json
import random
import time

import pytest

from daemon.chat.json_text import CHARS_MAX, DEPTH_MAX, JsonCut, JsonUnusable, read_json

FACTS = {"facts": [{"text": 'Ann\'s cat is "Tom".\nYes.', "turns": [1]}]}
WRITTEN = json.dumps(FACTS)


def has_facts(value: object) -> bool:
    return isinstance(value, dict) and "facts" in value


READABLE = [
    (WRITTEN, FACTS),
    (f"\ufeff  {WRITTEN}\n\n", FACTS),
    (f"```json\n{WRITTEN}\n```", FACTS),
    (f"```\n{WRITTEN}\n```\nI hope that helps!", FACTS),
    (f"```json\n{WRITTEN}", FACTS),
    (f"Sure! Here are [1] all {{facts}} of the turns:\n{WRITTEN}\nNote: [2] was small talk [", FACTS),
    (f'A draft: {{"facts": []}}, and then:\n{WRITTEN}', FACTS),
    ('{"facts": [1, 2,], }', {"facts": [1, 2]}),
    ("{'facts': [True, False, None,]}", {"facts": [True, False, None]}),
    ('{"facts": [NaN, -Infinity, null]}', {"facts": [None, None, None]}),
    ('{"facts": ["one\nline\ttoo",]}', {"facts": ["one\nline\ttoo"]}),
    ("{facts: [1.5, -2e3] /* all */ } // done\n", {"facts": [1.5, -2000.0]}),
    ('{"facts": ["\\ud83d\\ude00 \\"x\\" \\u4e2d",]}', {"facts": ['😀 "x" 中']}),
    ('{"facts": ["a fence: ```json\\n[]\\n```"]}', {"facts": ["a fence: ```json\n[]\n```"]}),
]


@pytest.mark.parametrize(("text", "value"), READABLE)
def test_what_models_put_around_and_into_json_is_read_past(text: str, value: object) -> None:
    assert read_json(text, has_facts) == value


def test_an_answer_cut_at_any_place_is_reported_as_cut() -> None:
    for end in range(1, len(WRITTEN)):
        for text in (WRITTEN[:end], f"Here you are:\n```json\n{WRITTEN[:end]}"):
            with pytest.raises(JsonCut):
                read_json(text, has_facts)


def test_whole_facts_before_a_cut_are_not_taken_for_all() -> None:
    with pytest.raises(JsonCut):
        read_json('[{"facts": []}, {"facts": [{"text": "lo')
    with pytest.raises(JsonCut):
        read_json('{"facts": []} and more: {"facts": [{"text": "lo', has_facts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "I cannot do that.",
        "[1] and {x}",
        "<html><body>{}</body></html>",
        '{"facts": [{"text": "a" "b"}, {"facts": []}]}',
        '{"facts": [{"text": "a"}; {"facts": []}]}',
        '{"facts": "\\uzzzz",}',
        "[" * 100_000,
        '{"facts": [1]}\n' * 300,
        '{"a":' * (DEPTH_MAX + 2) + "1" + "}" * (DEPTH_MAX + 2),
        '{"a":' * (DEPTH_MAX + 2) + "1," + "}" * (DEPTH_MAX + 2),
        "x" * (CHARS_MAX + 1),
    ],
)
def test_what_is_no_json_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(JsonUnusable) as raised:
        read_json(text, has_facts)

    assert "html" not in str(raised.value)
    assert len(str(raised.value)) < 60


def test_numbers_of_any_length_take_no_time() -> None:
    started = time.thread_time()
    value = read_json('{"facts": [' + "9" * 500_000 + ",]}", has_facts)

    assert value == {"facts": [float("inf")]}
    assert time.thread_time() - started < 1


def test_any_mutilation_is_read_or_refused_and_never_breaks() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(3_000):
        letters = list(f"Well: {WRITTEN} ok")
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(letters))
            letters[at : at + dice.randint(0, 3)] = dice.choice(
                ["", '"', "{", "}", "[", "]", ",", "\\", "'", "\n", "u"]
            )
        try:
            value = read_json("".join(letters), has_facts)
            assert has_facts(value)
            outcomes["read"] += 1
        except JsonUnusable:
            outcomes["refused"] += 1

    assert min(outcomes.values()) > 100


@pytest.mark.parametrize("piece", ["[", "{", '["', "{'", '{"a":[', "[[1],", "/* ", "\\", "```", "<think>"])
def test_hostile_repetitions_are_over_soon(piece: str) -> None:
    started = time.thread_time()
    with pytest.raises(JsonUnusable):
        read_json(("x" + piece * (200_000 // len(piece)))[:200_000], has_facts)

    assert time.thread_time() - started < 2
