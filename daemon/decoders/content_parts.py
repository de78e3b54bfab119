"""The content of a turn: a text, or OpenAI content parts: texts are joined, the rest is kept as references."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from events.errors import InvalidInput
from events.session import Part

# Ten milliseconds of the loop to read, and as many rows to store.
PARTS_MAX: Final = 1_000


def read_content(content: str | list[dict[str, Any]]) -> tuple[str, tuple[Part, ...]]:
    """Text of the content, and its other parts as typed references (OpenAI content parts)."""
    if isinstance(content, str):
        return content, ()
    if len(content) > PARTS_MAX:
        raise InvalidInput(f"the content of a turn has at most {PARTS_MAX} parts")
    texts: list[str] = []
    parts: list[Part] = []
    for number, raw in enumerate(content):
        kind = raw.get("type")
        if not isinstance(kind, str):
            raise InvalidInput(f"content part {number} has no type")
        text = raw.get("text")
        if kind == "text":
            if not isinstance(text, str):
                raise InvalidInput(f"content part {number} of type text has no text")
            texts.append(text)
            continue
        caption = raw.get("caption")
        if caption is not None and not isinstance(caption, str):
            raise InvalidInput(f"the caption of content part {number} is no text")
        parts.append(Part(kind, _reference_of(raw, kind), caption))
    return "\n".join(texts), tuple(parts)


def _reference_of(raw: dict[str, Any], kind: str) -> str:
    """What a part points at: its url or name if it has one (a tool has a name), else the part as JSON."""
    inner = raw.get(kind)
    if isinstance(inner, dict):
        for pointer in ("url", "name"):
            if isinstance(inner.get(pointer), str):
                return str(inner[pointer])
    rest = {name: value for name, value in raw.items() if name not in ("type", "caption")}
    return msgspec.json.encode(rest).decode()
