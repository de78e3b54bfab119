"""The body of a chat request, and which of its parameters a server takes. Pure.

Servers of the same API refuse one another's parameters; one that was refused is renamed, lowered or left out from
then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from daemon.chat.prompts import Prompt, Schema


class JsonMode(StrEnum):
    """How an answer in JSON is asked for, the strictest first."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT_SCHEMA = "json_object_schema"  # of llama.cpp and those that follow it
    JSON_OBJECT = "json_object"
    TEXT = "text"  # by the prompt alone

    @property
    def weaker(self) -> JsonMode:
        """The next one that asks less of a server; `TEXT` asks nothing."""
        modes = list(JsonMode)
        return modes[min(modes.index(self) + 1, len(modes) - 1)]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a server takes. `limit` is its name for how long an answer may get (None: it has none).

    `mode` None: not known yet; then JSON is asked for by the prompt alone. `system` False: no message may have the
    role "system", and the instruction stands before the question.
    """

    mode: JsonMode | None = None
    limit: str | None = "max_tokens"
    temperature: bool = True
    system: bool = True

    def without(self, refused: str | None) -> Parameters | None:
        """What to try once a server refused a parameter; None when it is none of these, or cannot be spared.

        A server that does not say which is taken to mean the one that fewest servers know.
        """
        match refused:
            case "response_format":
                return None if self.mode in (None, JsonMode.TEXT) else replace(self, mode=self.mode.weaker)
            case "max_tokens" | "max_completion_tokens":
                return self._rename_limit(refused)
            case "temperature":
                return replace(self, temperature=False) if self.temperature else None
            case "system":
                return replace(self, system=False) if self.system else None
            case None:
                named = ("response_format", "temperature", self.limit or "max_tokens")
                return next(filter(None, map(self.without, named)), None)
            case _:
                return None

    def _rename_limit(self, refused: str) -> Parameters | None:
        """OpenAI's later models know the longer name alone, most other servers the shorter."""
        if refused != self.limit:
            return None
        return replace(self, limit="max_completion_tokens" if refused == "max_tokens" else None)


def build_body(
    model: str, prompt: Prompt, room: int, parameters: Parameters, extra: Mapping[str, object]
) -> dict[str, object]:
    """The request; `extra` has the last word."""
    messages = prompt.messages
    if not parameters.system:  # the templates of Gemma and of some Mistral models know none
        (_, instruction), (role, question), *others = messages
        messages = ((role, f"{instruction}\n\n{question}"), *others)
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in messages],
    }
    if parameters.temperature:
        body["temperature"] = prompt.temperature
    if parameters.limit is not None:
        body[parameters.limit] = room
    if prompt.schema is not None and (form := _response_format(prompt.schema, parameters.mode)):
        body["response_format"] = form
    return {**body, **extra}


def _response_format(schema: Schema, mode: JsonMode | None) -> dict[str, object] | None:
    match mode:
        case JsonMode.JSON_SCHEMA:
            named = {"name": schema.name, "strict": True, "schema": schema.schema}
            return {"type": "json_schema", "json_schema": named}
        case JsonMode.JSON_OBJECT_SCHEMA:
            return {"type": "json_object", "schema": schema.schema}
        case JsonMode.JSON_OBJECT:
            return {"type": "json_object"}
        case _:
            return None
