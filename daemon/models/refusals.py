"""What an endpoint has against a request (HTTP 400, 413, 422), read from its own words, which go nowhere else.

Every server has words of its own for the same few things; those below are from OpenAI, Azure, vLLM, llama.cpp,
Ollama, LM Studio, LiteLLM, text-embeddings-inference, DashScope and Gemini.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Final

import msgspec

# So much of a message is looked at: what comes after quotes the request.
SAYS_CHARACTERS_MAX: Final = 2_000
# The parameters that we may send and can do without or send otherwise.
PARAMETERS: Final = (
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "response_format",
    "encoding_format",
    "dimensions",
    "reasoning_effort",
    "chat_template_kwargs",
    "enable_thinking",
    "cache_prompt",
    "keep_alive",
    "seed",
    "top_p",
    "top_k",
)
# What every request has, and servers name when they mean something else.
_NO_PARAMETERS: Final = frozenset({"model", "messages", "input", "user", "role", "content"})
_LONG_CODES: Final = (
    "context_length_exceeded",  # OpenAI, LiteLLM
    "exceed_context_size_error",  # llama.cpp
    "string_above_max_length",
    "array_above_max_length",
    "request_too_large",
)
_LONG_WORDS: Final = (
    "context length",  # OpenAI, vLLM, Ollama, LM Studio
    "context size",  # llama.cpp
    "context window",
    "context the overflows",  # LM Studio
    "context overflow",
    "maximum context",
    "max_model_len",
    "max_tokens must be at least 1",  # vLLM, when nothing is left for the answer
    "n_ctx",
    "reduce the length",
    "prompt is too long",
    "input is too l",  # long, or large (llama.cpp)
    "request too large",
    "too many tokens",
    "token count",  # Gemini
    "tokens per request",
    "`max_new_tokens` must be",  # text-generation-inference, Together
    "must have less than",  # text-embeddings-inference
    "batch size",
    "input length",
    "range of input",  # DashScope
)
# Looked for when no parameter is named.
_PERHAPS_LONG_WORDS: Final = ("too long", "too large", "token", "length", "maximum", "exceed", "context")
_CONTENT_WORDS: Final = (
    "content_filter",  # Azure
    "content_policy",  # OpenAI, LiteLLM
    "contentpolicy",
    "content management policy",
    "responsibleaipolicyviolation",
    "safety system",
    "data_inspection_failed",  # DashScope
    "moderation",
)
_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})
_HEIGHT_WORDS: Final = ("too large", "at most", "range", "less than", "exceed", "maximum", "<=")
_NO_SYSTEM_WORDS: Final = (
    "system role not supported",  # Gemma's template: vLLM, llama.cpp
    "system role is not supported",
    "does not support 'system'",  # OpenAI's o1-mini
    "roles must alternate",  # old templates of Mistral and Gemma
    "developer instruction is not enabled",  # Gemma at Google
)
_NO_MODEL_CODES: Final = ("model_not_found",)
_NO_MODEL_WORDS: Final = (
    "model does not exist",
    "no models loaded",  # LM Studio
    "failed to load model",
    "model not found",
    "model is not loaded",
)
# The server checks the answer itself, and throws it away: Groq.
_FORM_CODES: Final = ("json_validate_failed",)
_FORM_WORDS: Final = ("failed to generate json", "generated json does not match")
_PARAMETER_CODES: Final = ("unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden")
_PARAMETER_WORDS: Final = (
    "unsupported",
    "not supported",
    "does not support",
    "doesn't support",
    "unrecognized",
    "unknown",
    "not permitted",
    "unexpected",
    "not allowed",
    "invalid",
    "must be",
    "should be",
    "not available",
    "unavailable",
    "input should",
    "failed to",
    "cannot",
    "too large",
    "at most",
)
# Other words for our parameters.
_ALIASES: Final = (
    ("json_schema", "response_format"),
    ("json schema", "response_format"),
    ("json_object", "response_format"),
    ("response format", "response_format"),
    ("guided_json", "response_format"),
    ("grammar", "response_format"),
    ("matryoshka", "dimensions"),
    ("thinking", "chat_template_kwargs"),
    ("dimension", "dimensions"),
)


class Refusal(Enum):
    """What an endpoint has against one request (HTTP 400, 413, 422)."""

    TOO_LONG = "too_long"  # longer than the model's context
    PARAMETER = "parameter"  # it does not know a parameter
    CONTENT = "content"  # its filter will not have the text
    ROOM = "room"  # it gives no answer so much room
    FORM = "form"  # the model's answer is not the JSON that was asked for, and the server keeps it
    MODEL = "model"  # it has not this model, or not now
    OTHER = "other"


def read_refusal(
    says: str, sent: Collection[str] = (), *, is_surely_refused: bool = True
) -> tuple[Refusal, str | None]:
    """What a server minds, and which parameter when it is one of `PARAMETERS` or of those that were `sent`.

    `says` is the body of its error. `is_surely_refused` False: it may be any error, of which "context deadline
    exceeded" does not mean that the request is too long. A model that gets no message of the role "system" is
    the parameter "system".
    """
    code, parameter, words = _read_error(says)
    names = [*PARAMETERS, *(name for name in sent if name not in PARAMETERS and name not in _NO_PARAMETERS)]
    named = parameter if parameter in names else _name_parameter(words, names)
    if any(each in code for each in _LONG_CODES):
        return Refusal.TOO_LONG, None
    if any(each in code for each in _FORM_CODES) or any(each in words for each in _FORM_WORDS):
        return Refusal.FORM, None
    if any(each in code for each in _NO_MODEL_CODES) or any(each in words for each in _NO_MODEL_WORDS):
        return Refusal.MODEL, None
    if any(each in words for each in _NO_SYSTEM_WORDS):
        return Refusal.PARAMETER, "system"
    if any(each in code or each in words for each in _CONTENT_WORDS):
        return Refusal.CONTENT, None
    if any(each in code for each in _PARAMETER_CODES):
        return Refusal.PARAMETER, named
    if any(each in words for each in (*_LONG_CODES, *_LONG_WORDS)):
        return Refusal.TOO_LONG, None
    if named in _LIMITS and any(each in words for each in _HEIGHT_WORDS):
        return Refusal.ROOM, None
    if named is not None and any(each in words for each in _PARAMETER_WORDS):
        return Refusal.PARAMETER, named
    if is_surely_refused and any(each in words for each in _PERHAPS_LONG_WORDS):
        return Refusal.TOO_LONG, None
    return Refusal.OTHER, None


def read_error_status(says: str) -> int | None:
    """The status that an answer with status 200 should have had, as the `code` of its error or of its choice's."""
    try:
        decoded = msgspec.json.decode(says)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    answer = decoded if isinstance(decoded, dict) else {}
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    for error in (answer.get("error"), first.get("error") if isinstance(first, dict) else None):
        code = error.get("code") if isinstance(error, dict) else None
        code = int(code) if isinstance(code, str) and code.isdecimal() and len(code) == 3 else code
        if isinstance(code, int) and 400 <= code < 600:
            return code
    return None


def _name_parameter(words: str, names: Sequence[str]) -> str | None:
    """The first of these names in the words, whole or in other words."""
    found = [
        (match.start(), name)
        for name in names
        if (match := re.search(rf"(?<![a-z_]){re.escape(name.lower())}(?![a-z_])", words))
    ]
    if found:
        return min(found)[1]
    return next((name for word, name in _ALIASES if word in words), None)


def _read_error(says: str) -> tuple[str, str, str]:
    """The error's code and type, its parameter, and its words; in small letters, but for the parameter."""
    try:
        decoded = msgspec.json.decode(says)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "", "", says[:SAYS_CHARACTERS_MAX].lower()
    error = decoded.get("error", decoded) if isinstance(decoded, dict) else decoded
    if not isinstance(error, dict):
        return "", "", str(error)[:SAYS_CHARACTERS_MAX].lower()
    code = " ".join(str(error.get(name, "")) for name in ("code", "type")).lower()
    parameter = str(error.get("param") or "").partition(".")[0]
    words = error.get("message") or error.get("detail") or error
    return code, parameter, str(words)[:SAYS_CHARACTERS_MAX].lower()
