"""What a request says, and how it says less once a server refused a part of it."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.chat.calls import REFUSALS_MAX
from daemon.chat.prompts import FACTS_SCHEMA, Prompt
from daemon.chat.requests import JsonMode, Parameters, build_body
from events.memory import Task

PROMPT = Prompt(Task.EXTRACT, (("system", "be"), ("user", "ask")), 500, FACTS_SCHEMA)
SCHEMA = FACTS_SCHEMA.schema


def body_of(parameters: Parameters, prompt: Prompt = PROMPT, **extra: object) -> dict[str, object]:
    return build_body("m", prompt, 700, parameters, extra)


def test_a_request_has_the_model_the_messages_and_the_parameters_that_are_known_to_be_taken() -> None:
    assert body_of(Parameters()) == {
        "model": "m",
        "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "ask"}],
        "temperature": 0,
        "max_tokens": 700,
    }
    assert "temperature" not in body_of(Parameters(temperature=False))
    assert body_of(Parameters(limit="max_completion_tokens"))["max_completion_tokens"] == 700
    assert set(body_of(Parameters(limit=None, temperature=False))) == {"model", "messages"}


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        (
            JsonMode.JSON_SCHEMA,
            {"type": "json_schema", "json_schema": {"name": "facts", "strict": True, "schema": SCHEMA}},
        ),
        (JsonMode.JSON_OBJECT_SCHEMA, {"type": "json_object", "schema": SCHEMA}),
        (JsonMode.JSON_OBJECT, {"type": "json_object"}),
        (JsonMode.TEXT, None),
        (None, None),
    ],
)
def test_json_is_asked_for_as_the_mode_says(mode: JsonMode | None, form: object) -> None:
    assert body_of(Parameters(mode)).get("response_format") == form


def test_texts_are_asked_for_without_any_form() -> None:
    prompt = Prompt(Task.MERGE, PROMPT.messages, 500)

    assert "response_format" not in body_of(Parameters(JsonMode.JSON_SCHEMA), prompt)


def test_fields_of_the_configuration_have_the_last_word() -> None:
    body = body_of(Parameters(), temperature=0.6, chat_template_kwargs={"enable_thinking": False})

    assert body["temperature"] == 0.6
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_refused_parameter_is_renamed_lowered_or_left_out() -> None:
    whole = Parameters(JsonMode.JSON_SCHEMA)

    assert whole.without("temperature") == Parameters(JsonMode.JSON_SCHEMA, temperature=False)
    assert whole.without("response_format") == Parameters(JsonMode.JSON_OBJECT_SCHEMA)
    renamed = whole.without("max_tokens")
    assert renamed == Parameters(JsonMode.JSON_SCHEMA, limit="max_completion_tokens")
    assert renamed is not None
    assert renamed.without("max_completion_tokens") == Parameters(JsonMode.JSON_SCHEMA, limit=None)


@pytest.mark.parametrize("refused", ["messages", "max_completion_tokens", "seed"])
def test_what_is_not_sent_or_cannot_be_spared_is_not_given_up(refused: str) -> None:
    assert Parameters(JsonMode.TEXT).without(refused) is None


def test_when_nobody_says_which_one_parameter_goes_after_the_other_until_none_is_left() -> None:
    tried = [Parameters(JsonMode.JSON_SCHEMA)]
    while (fewer := tried[-1].without(None)) is not None:
        tried.append(fewer)

    assert tried[-1] == Parameters(JsonMode.TEXT, limit=None, temperature=False)
    assert len(tried) < REFUSALS_MAX


def test_the_schema_is_strict_wherever_it_has_keys() -> None:
    schema: dict[str, Any] = SCHEMA
    fact = schema["properties"]["facts"]["items"]

    for each in (schema, fact):
        assert each["required"] == list(each["properties"])
        assert each["additionalProperties"] is False
