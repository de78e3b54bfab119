"""What an endpoint answered to a chat request: its text, why it ended, and what it cost; or why it is no answer.

Servers leave things out and put them elsewhere (engineering.md M6): parts for a string, thoughts in the text, an
error under status 200, no usage. Whatever is there may be of any type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import msgspec

from daemon.models.failures import AnswerRefused
from daemon.offline.sentences import word_set

# Where a server counts nothing: about four characters a token in scripts with spaces (performance.md).
CHARS_PER_TOKEN: Final = 4
# No answer has more tokens; a larger count is a slip of the server.
TOKENS_MAX: Final = 1 << 31

_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning|thought)>.*?</\1>", re.DOTALL | re.IGNORECASE)
# The opening tag is often part of the prompt's template, and only the end of the thoughts is in the answer.
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_THOUGHT_BEGIN = re.compile(r"\s*<(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
# Why an answer ended, in the words of OpenAI, Mistral, Gemini, Anthropic, Zhipu, DeepSeek, OpenRouter, vLLM and
# Ollama.
_CUT: Final = word_set("length max_tokens max_output_tokens model_length model_context_window_exceeded")
_REFUSED: Final = word_set("content_filter safety refusal recitation prohibited_content blocklist spii sensitive")
_BROKEN_OFF: Final = word_set(
    "error abort aborted cancelled insufficient_system_resource network_error load unload"
)
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# What nobody sees: it turns the order of letters around, stands between those of a name, or spells instructions in
# tag characters. Joiners stay: emoji, Persian and the scripts of India need them.
_UNSEEN = re.compile("[\u200b\u2060-\u2064\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


class Ending(Enum):
    """Why an answer ended."""

    WHOLE = "whole"
    CUT = "cut"  # at the limit of tokens
    REFUSED = "refused"  # by the model, or by a filter


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One answer without its thoughts; `text` may be empty. `model` is what the server says it is ("": nothing).

    `counted`: the tokens are the server's count and no estimate; `thought`: thoughts came along.
    """

    text: str
    ending: Ending
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    counted: bool = True
    model: str = ""
    thought: bool = False


class _Choice(msgspec.Struct):
    message: Any = None
    finish_reason: Any = None
    error: Any = None


class _Envelope(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    model: Any = None
    error: Any = None


def read_chat(body: bytes, prompt_chars: int) -> ChatAnswer:
    """The first choice of a chat completion; `prompt_chars` is for servers that do not count.

    Raises `AnswerRefused` when there is none.
    """
    answer = _decode(body)
    try:
        return _read(answer, prompt_chars)
    except AnswerRefused as refused:
        usage = _mapping(answer.usage)
        prompt_tokens = _count(usage.get("prompt_tokens")) or 0
        refused.tokens = (prompt_tokens, min(_count_cached(usage), prompt_tokens), _count_written(usage) or 0)
        raise


def _read(answer: _Envelope, prompt_chars: int) -> ChatAnswer:
    if answer.error and not answer.choices:
        raise AnswerRefused("it is an error under the status of a success")
    if not answer.choices:
        raise AnswerRefused("it has no choices")
    choice = answer.choices[0]
    if choice.error:
        raise AnswerRefused("it is an error under the status of a success")
    message = _mapping(choice.message)
    ending = _ending_of(choice.finish_reason, message)
    raw = _join_content(message.get("content"))
    thoughts = [each for key in ("reasoning_content", "reasoning") if isinstance(each := message.get(key), str)]
    text = strip_thoughts(raw) or _misplaced(message, thoughts)
    usage = _mapping(answer.usage)
    prompt_tokens, completion_tokens = _count(usage.get("prompt_tokens")), _count_written(usage)
    written = len(raw) + sum(map(len, thoughts))
    return ChatAnswer(
        text=text,
        ending=ending,
        prompt_tokens=_estimate(prompt_chars) if prompt_tokens is None else prompt_tokens,
        cached_tokens=min(_count_cached(usage), prompt_tokens or 0),
        completion_tokens=_estimate(written) if completion_tokens is None else completion_tokens,
        counted=prompt_tokens is not None and completion_tokens is not None,
        model=answer.model if isinstance(answer.model, str) else "",
        thought=any(thoughts) or len(text) < len(raw.strip()),
    )


def strip_thoughts(text: str) -> str:
    """The answer without what a thinking model thought before it; of thoughts that never ended nothing stays.

    What begins as JSON is left alone: somebody may have said such a tag.
    """
    while thought := _THOUGHT.match(text):
        text = text[thought.end() :]
    if _THOUGHT_BEGIN.match(text):
        return ""
    text = text.strip()
    end = None if text.startswith(("{", "[", "```")) else _THOUGHT_END.search(text)
    return text[end.end() :].strip() if end else text


def clean_text(text: str) -> str:
    """The text without what no store, terminal or eye takes: halves of characters, controls, what is not seen."""
    if text.isascii():
        return _CONTROLS.sub(" ", text)
    return _CONTROLS.sub(" ", _UNSEEN.sub("", _LONE_SURROGATES.sub("\ufffd", text)))


def _decode(body: bytes) -> _Envelope:
    """The completion. What only a lax reader takes (half an emoji, NaN, a byte order mark) is worth one. Raises
    `AnswerRefused`."""
    try:
        return msgspec.json.decode(body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json.loads(body.decode("utf-8-sig", "replace")), _Envelope)
    except (ValueError, msgspec.ValidationError, RecursionError):
        raise AnswerRefused(_describe(body)) from None


def _ending_of(finish_reason: object, message: Mapping[str, object]) -> Ending:
    """Raises `AnswerRefused` when the server broke the answer off: nothing is wrong with the question."""
    reason = finish_reason.casefold() if isinstance(finish_reason, str) else ""
    if reason in _REFUSED or message.get("refusal"):
        return Ending.REFUSED
    if reason in _BROKEN_OFF:
        raise AnswerRefused("it was broken off by its server")
    return Ending.CUT if reason in _CUT else Ending.WHOLE


def _join_content(content: object) -> str:
    """The text of a message: a string, or a list of parts of which those with text count, thoughts apart."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts: list[object] = []
    for part in cast("list[object]", content):
        fields = _mapping(part)
        if fields.get("type") not in ("thinking", "reasoning"):
            texts.append(part if isinstance(part, str) else fields.get("text"))
    return "".join(text for text in texts if isinstance(text, str))


def _misplaced(message: Mapping[str, object], thoughts: list[str]) -> str:
    """JSON that stands elsewhere while the content is empty: vLLM takes it for thoughts where thinking is switched
    off (vllm#17327), gateways leave the call of the function in which they wrap a schema."""
    calls = message.get("tool_calls")
    listed = cast("list[object]", calls) if isinstance(calls, list) else []
    functions = [_mapping(_mapping(call).get("function")) for call in listed]
    texts = [*thoughts, *(function.get("arguments") for function in functions)]
    stripped = [text.strip() for text in texts if isinstance(text, str)]
    return next((text for text in stripped if text.startswith("{") and text.endswith("}")), "")


def _count_cached(usage: Mapping[str, object]) -> int:
    """As OpenAI, DeepSeek and Moonshot tell it."""
    details = _mapping(usage.get("prompt_tokens_details"))
    told = (details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    return next(filter(None, map(_count, told)), 0)


def _count_written(usage: Mapping[str, object]) -> int | None:
    """With the thoughts, which xAI and Gemini leave out of the completion and have in the total."""
    completion, prompt, total = (_count(usage.get(f"{name}_tokens")) for name in ("completion", "prompt", "total"))
    if completion is None or prompt is None or total is None:
        return completion
    return max(completion, total - prompt)


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    """A count of tokens, or None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= TOKENS_MAX:
        return None
    return int(value)


def _estimate(characters: int) -> int:
    return -(-characters // CHARS_PER_TOKEN)


def _describe(body: bytes) -> str:
    """What came instead of an answer, without showing it."""
    start = body[:64].lstrip()
    if not start:
        return "it is empty"
    if start.startswith(b"<"):
        return "it is a web page and no JSON: does models.chat_url end in /v1?"
    return "it is not the JSON of a chat completion"
