"""Chat completions of all kinds of servers: the text, why it ended, what it cost; or no answer at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from daemon.chat.answers import ChatAnswer, Ending, clean_text, read_chat, strip_thoughts
from daemon.models.failures import AnswerRefused
from tests.openai_stub import a_completion


def read(completion: object, prompt_chars: int = 400) -> ChatAnswer:
    return read_chat(json.dumps(completion).encode(), prompt_chars)


def without(completion: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in completion.items() if name not in names}


def test_an_answer_has_its_text_and_what_the_server_counted() -> None:
    answer = read(a_completion("Hello."))

    assert answer == ChatAnswer("Hello.", Ending.WHOLE, 100, 40, 20, counted=True, model="stub-model")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ([{"type": "text", "text": "a "}, {"type": "image_url"}, "b", {"type": "text", "text": 7}], "a b"),
        ({"text": "no part"}, ""),
        (7, ""),
        ("\n 中文 \n", "中文"),
    ],
)
def test_content_of_any_form_is_a_text(content: object, text: str) -> None:
    assert read(a_completion(content)).text == text


@pytest.mark.parametrize(
    ("completion", "ending"),
    [
        (a_completion("x", "length"), Ending.CUT),
        (a_completion(None, "max_tokens"), Ending.CUT),
        (a_completion("x", "content_filter"), Ending.REFUSED),
        (a_completion(None, refusal="I cannot help with that."), Ending.REFUSED),
        (a_completion("x", refusal=None), Ending.WHOLE),
        ({"choices": [{"message": {"content": "x"}}]}, Ending.WHOLE),
        ({"choices": [{"message": {"content": "x"}, "finish_reason": 7}]}, Ending.WHOLE),
    ],
)
def test_why_an_answer_ended_is_told(completion: object, ending: Ending) -> None:
    assert read(completion).ending is ending


@pytest.mark.parametrize(
    "usage",
    [None, {}, "many", {"prompt_tokens": None, "completion_tokens": "7"}, {"prompt_tokens": -1}, [1, 2]],
)
def test_a_server_that_does_not_count_is_counted_for(usage: object) -> None:
    answer = read({**a_completion("x" * 41), "usage": usage}, prompt_chars=402)

    assert (answer.prompt_tokens, answer.completion_tokens, answer.counted) == (101, 11, False)
    assert read(without(a_completion("abc"), "usage"), 8).prompt_tokens == 2


def test_thoughts_are_taken_out_and_counted() -> None:
    inline = read(without(a_completion("<think>" + "hm " * 100 + "</think>\n\nYes."), "usage"))
    apart = read(without(a_completion("Yes.", reasoning_content="h" * 396), "usage"))
    none = read(a_completion("Yes."))

    assert (inline.text, inline.thought, inline.completion_tokens) == ("Yes.", True, 81)
    assert (apart.text, apart.thought, apart.completion_tokens) == ("Yes.", True, 100)
    assert none.thought is False


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>b", "b"),
        ("<THINK>\na\n</THINK>\n<thinking>c</thinking> b ", "b"),
        ("the template opened it\n</think>\n{}", "{}"),
        ("<think>never ended {}", ""),
        (
            '{"facts": [{"text": "He wrote </think> and <think>."}]}',
            '{"facts": [{"text": "He wrote </think> and <think>."}]}',
        ),
        ("<think>a</think>Say <think> twice.", "Say <think> twice."),
        ("no thoughts", "no thoughts"),
    ],
)
def test_only_what_was_thought_before_the_answer_is_taken_out(text: str, left: str) -> None:
    assert strip_thoughts(text) == left


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Sign in</body></html>",
        b'{"choices": []}',
        b'{"choices": null}',
        b"{}",
        b"[]",
        b'"text"',
        b'{"error": {"message": "no Xylophon"}}',
        b'{"choices": [7]}',
        b'{"choices": [{"message": {"content": "half',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_refused_without_a_word_of_it(body: bytes) -> None:
    with pytest.raises(AnswerRefused) as raised:
        read_chat(body, 1)

    assert "Xylophon" not in str(raised.value)
    assert str(raised.value).startswith("it ")


def test_a_message_of_another_form_is_empty_and_does_not_break() -> None:
    messages: list[object] = [None, "text", [], 7]

    assert {read({"choices": [{"message": message}]}).text for message in messages} == {""}


def test_text_is_cleaned_of_what_no_store_takes() -> None:
    assert clean_text("a\x00b\ud83dc\x1b[1m\n\t中") == "a b\ufffdc [1m\n\t中"
