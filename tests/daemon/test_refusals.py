"""What servers have against a request, in the words of each of them."""

from __future__ import annotations

import json

import pytest

from daemon.models.refusals import Refusal, read_refusal

TOO_LONG, PARAMETER, CONTENT, OTHER = Refusal.TOO_LONG, Refusal.PARAMETER, Refusal.CONTENT, Refusal.OTHER


def error(message: str, **more: object) -> str:
    return json.dumps({"error": {"message": message, **more}})


@pytest.mark.parametrize(
    "says",
    [
        # OpenAI
        error(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
        error("Invalid 'input': maximum request size is 300000 tokens per request.", param="input"),
        # vLLM
        json.dumps(
            {
                "object": "error",
                "message": "This model's maximum context length is 16384 tokens. However, you requested 22946 "
                "tokens (12946 in the messages, 10000 in the completion). Please reduce the length of the "
                "messages.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        ),
        error(
            "'max_tokens' or 'max_completion_tokens' is too large: 800. This model's maximum context length is "
            "512 tokens and your request has 300 input tokens.",
        ),
        error("max_tokens must be at least 1, got -50."),
        # llama.cpp
        error(
            "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
            type="exceed_context_size_error",
            code=400,
            n_prompt_tokens=4390,
        ),
        error("Context size has been exceeded.", type="server_error", code=500),
        error("input is too large to process. increase the physical batch size", type="server_error"),
        # Ollama
        json.dumps({"error": "the input length exceeds the context length"}),
        error("input length exceeds maximum context length", type="api_error", param=None, code=None),
        # LM Studio
        json.dumps(
            {
                "error": "Trying to keep the first 5000 tokens when context the overflows. However, the model "
                "is loaded with context length of only 4096 tokens, which is not enough."
            }
        ),
        # text-embeddings-inference, Gemini, DashScope
        error("Input validation error: `inputs` must have less than 512 tokens. Given: 900", type="Validation"),
        error("The input token count (40000) exceeds the maximum number of tokens allowed (32768)."),
        error("Range of input length should be [1, 30720]"),
        # no JSON
        "Requested tokens (2285) exceed context window of 2048",
    ],
)
def test_a_request_that_is_too_long_is_known_by_the_words_of_each_server(says: str) -> None:
    assert read_refusal(says, ("model", "messages", "max_tokens", "temperature")) == (TOO_LONG, None)


@pytest.mark.parametrize(
    ("says", "parameter"),
    [
        (
            error(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                param="max_tokens",
                code="unsupported_parameter",
            ),
            "max_tokens",
        ),
        (
            error(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                code="invalid_request_body",
            ),
            "max_tokens",
        ),
        (
            error(
                "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) "
                "value is supported.",
                param="temperature",
                code="unsupported_value",
            ),
            "temperature",
        ),
        (
            error("'response_format.type' must be 'json_schema' or 'text'"),
            "response_format",
        ),
        (error("Invalid parameter: 'response_format' of type 'json_schema' is not supported."), "response_format"),
        (error("This model does not support JSON schema", param="response_format.type"), "response_format"),
        (error("failed to parse grammar"), "response_format"),
        (error("Unrecognized request argument supplied: chat_template_kwargs"), "chat_template_kwargs"),
        (
            json.dumps({"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "not permitted"}]}),
            "seed",
        ),
        (error("Model does not support matryoshka representation, changing output dimensions"), "dimensions"),
        (error("Unknown field: my_own_field"), "my_own_field"),
        (error("Something is unsupported", code="unsupported_parameter"), None),
    ],
)
def test_a_parameter_that_is_not_known_is_named_when_it_is_one_of_ours(says: str, parameter: str | None) -> None:
    assert read_refusal(says, ("model", "messages", "my_own_field")) == (PARAMETER, parameter)


@pytest.mark.parametrize(
    "says",
    [
        error("max_tokens is too large: 9000. This model supports at most 4096 completion tokens."),
        error("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        error("`max_completion_tokens` must be less than or equal to `8192`", param="max_completion_tokens"),
    ],
)
def test_a_limit_that_is_too_high_is_not_one_that_is_unknown(says: str) -> None:
    assert read_refusal(says, ("model", "messages", "max_tokens")) == (Refusal.ROOM, None)


def test_room_for_input_and_answer_together_is_the_context() -> None:
    says = error("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193", param="max_tokens")

    assert read_refusal(says) == (TOO_LONG, None)


@pytest.mark.parametrize(
    "says",
    [
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            code="content_filter",
            param="prompt",
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
        error("litellm.ContentPolicyViolationError: AzureException - filtered", code="400"),
        error("Your request was rejected as a result of our safety system.", code="content_policy_violation"),
        error("Output data may contain inappropriate content.", code="data_inspection_failed"),
    ],
)
def test_a_filter_that_will_not_have_the_text_is_told_apart(says: str) -> None:
    assert read_refusal(says) == (CONTENT, None)


@pytest.mark.parametrize(
    "says",
    [
        "",
        "null",
        "[]",
        "7",
        "{}",
        "<html>Bad Request</html>",
        error(""),
        error("No."),
        '{"error": null}',
        "[" * 9_000,
    ],
)
def test_what_says_nothing_of_all_this_is_something_else(says: str) -> None:
    assert read_refusal(says) == (OTHER, None)


def test_a_name_that_the_server_makes_up_is_never_repeated() -> None:
    says = error("Unsupported parameter: Xylophon", param="Xylophon", code="unsupported_parameter")

    assert read_refusal(says, ("model", "messages")) == (PARAMETER, None)
