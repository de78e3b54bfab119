"""What an endpoint can do: how strictly it can be asked for JSON, which model it is, and how fast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from daemon.chat.answers import ChatAnswer, Ending
from daemon.chat.calls import Chat, PromptTooLong, Spending
from daemon.chat.json_text import JsonUnusable, read_json
from daemon.chat.prompts import Prompt, Schema
from daemon.chat.requests import JsonMode
from events.memory import Task
from projections.ports import AnswerUnusable, ModelFailed

# Enough for what a thinking model thinks of it.
ROOM: Final = 2_000
_INSTRUCTION: Final = "You answer with JSON only."
_QUESTION: Final = "Which colour has a clear sky at noon, and how many letters has that word?"
# Where a schema goes along, its keys are not told: an answer that has them shows that the server minds the schema.
_KEYS: Final = ' Answer with a JSON object with the keys "colour" (a word) and "letters" (a whole number).'
_SCHEMA: Final = Schema(
    "sky",
    {
        "type": "object",
        "properties": {"colour": {"type": "string"}, "letters": {"type": "integer"}},
        "required": ["colour", "letters"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The strictest mode that gave what was asked for, or `TEXT` when none did (`works` is False then).

    `model` is the server's name for it ("": it says none), `latency_ms` of the answer that counted, `thinks` says
    whether thoughts were taken out of it, `refused` the stricter modes and why each is not used.
    """

    mode: JsonMode
    works: bool
    model: str
    latency_ms: int
    thinks: bool
    refused: tuple[tuple[JsonMode, str], ...]


async def probe(chat: Chat, spending: Spending, modes: Iterable[JsonMode] = tuple(JsonMode)) -> ProbeResult:
    """Ask in one mode after the other, until an answer is right.

    Raises `ModelUnavailable` when there is no answer in any mode.
    """
    refused: list[tuple[JsonMode, str]] = []
    last: ChatAnswer | None = None
    failed: ModelFailed | None = None
    mode = JsonMode.TEXT
    latency_ms = 0
    for mode in modes:
        before_ms = spending.usage.latency_ms
        try:
            last = await chat.ask(_prompt(mode), spending, mode=mode, kind="probe")
        except ModelFailed as error:
            failed = error
            refused.append((mode, str(error)))
            continue
        except (AnswerUnusable, PromptTooLong):
            refused.append((mode, "the model does not answer"))
            continue
        latency_ms = spending.usage.latency_ms - before_ms
        fault = _find_fault(last)
        if fault is None:
            return ProbeResult(mode, True, last.model, latency_ms, last.thought, tuple(refused))
        refused.append((mode, fault))
    if last is None and failed is not None:
        raise chat.blame_configuration(str(failed))
    model, thinks = (last.model, last.thought) if last is not None else ("", False)
    return ProbeResult(mode, False, model, latency_ms, thinks, tuple(refused))


def _prompt(mode: JsonMode) -> Prompt:
    is_told = mode in (JsonMode.JSON_OBJECT, JsonMode.TEXT)
    question = _QUESTION + (_KEYS if is_told else "")
    return Prompt(Task.EXTRACT, (("system", _INSTRUCTION), ("user", question)), ROOM, _SCHEMA)


def _find_fault(answer: ChatAnswer) -> str | None:
    """Why an answer is not what was asked for."""
    if answer.ending is Ending.CUT:
        return "the answer is cut off"
    try:
        value = read_json(answer.text, lambda each: isinstance(each, dict))
    except JsonUnusable as error:
        return f"the answer is no JSON of use: {error}"
    read = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    colour, letters = read.get("colour"), read.get("letters")
    if not isinstance(colour, str) or not isinstance(letters, int):
        return "the answer has other keys than the schema"
    return None
