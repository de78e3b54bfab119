"""ChatGPT's export (`conversations.json`, or the zip it comes in): the branch of each conversation that is shown.

A conversation is a tree, since edits and new answers branch off; `current_node` is the end of the branch that its
owner saw last. Hidden messages, and what a tool wrote for itself, are left out.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, cast

from memforest.errors import InvalidInput
from memforest.importing.entries import Chosen, Entry, Found, Skipped, closing, object_at, text_at
from memforest.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.importing.items import Item

# Large exports are cut into several files.
_MEMBER = re.compile(r"(.*/)?conversations([-_]?\d+)?\.json")
_TEXTS = ("text", "multimodal_text", "code")


def is_conversations(name: str) -> bool:
    """Whether a member of the archive holds conversations."""
    return _MEMBER.fullmatch(name) is not None


def read_chatgpt(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """The turns of each conversation, which is a session, and its closing. Raises InvalidInput without a user."""
    if chosen.user is None:
        raise InvalidInput("The export names no user; say with --user whose memory it is for.")
    for item in items:
        value = item.value
        conversation = cast("JsonObject", value) if isinstance(value, dict) else {}
        mapping = object_at(conversation, "mapping")
        own_id = text_at(conversation, "conversation_id", "id")
        if not mapping or own_id is None:
            yield Skipped(item.place, item.fault or "no conversation with an id and a `mapping`")
            continue
        yield from _session(item.place, conversation, mapping, own_id, chosen.user, chosen.session or own_id)


def branch(mapping: JsonObject, current: str | None) -> list[JsonObject]:
    """The nodes from the root to `current`; without one to the last leaf in the order of the file."""
    if current not in mapping:
        leaves = [name for name in mapping if not object_at(mapping, name).get("children")]
        current = leaves[-1] if leaves else None
    nodes: list[JsonObject] = []
    seen: set[str] = set()
    while current is not None and current in mapping and current not in seen:
        seen.add(current)  # a broken file may go round
        node = object_at(mapping, current)
        nodes.append(node)
        current = text_at(node, "parent")
    return nodes[::-1]


def _session(
    place: str, conversation: JsonObject, mapping: JsonObject, own_id: str, user: str, session: str
) -> Iterator[Entry]:
    begun = _seconds(conversation.get("create_time"))
    count = 0
    for number, node in enumerate(branch(mapping, text_at(conversation, "current_node")), start=1):
        message = object_at(node, "message")
        entry = _turn(f"{place}, message {number}", message, user, session, begun) if message else None
        if entry is not None:
            count += isinstance(entry, Found)
            yield entry
    if count:
        yield closing(place, user, session, f"{own_id}:{count}:close")


def _turn(place: str, message: JsonObject, user: str, session: str, begun: float | None) -> Entry | None:
    """A message as a turn; None for what its owner never saw."""
    author, content = object_at(message, "author"), object_at(message, "content")
    role, kind = text_at(author, "role"), text_at(content, "content_type") or "text"
    hidden: object = object_at(message, "metadata").get("is_visually_hidden_from_conversation")
    parts = _parts(content)
    if hidden or (role == "system" and not parts):
        return None
    turn_id = text_at(message, "id")
    if role is None or turn_id is None:
        return Skipped(place, "has no author or no id")
    to_a_tool = text_at(message, "recipient") not in (None, "all")
    if role == "tool" or to_a_tool or kind not in _TEXTS:
        return Skipped(place, "what a tool or the model wrote for itself")
    if not parts:
        return Skipped(place, "has no text")
    own_time = _seconds(message.get("create_time"))
    at = begun if own_time is None else own_time
    texts = [cast("str", part["text"]) for part in parts if part["type"] == "text"]
    body: JsonObject = {
        "type": "turn",
        "id": turn_id,
        "user_id": user,
        "session_id": session,
        "role": role,
        "content": "\n".join(texts) if len(texts) == len(parts) else parts,
    }
    if at is not None:
        body["timestamp"] = at
    return Found(place, body, "itself" if own_time is not None else "nowhere" if at is None else "session")


def _parts(content: JsonObject) -> list[JsonObject]:
    """The parts as OpenAI content parts: texts, transcripts of speech, and what is attached as a reference."""
    raw: object = content.get("parts")
    listed = cast("list[object]", raw) if isinstance(raw, list) else [content.get("text")]
    parts: list[JsonObject] = []
    for each in listed:
        if isinstance(each, str):
            if each.strip():
                parts.append({"type": "text", "text": each})
        elif isinstance(each, dict):
            part = cast("JsonObject", each)
            if text := text_at(part, "text"):
                parts.append({"type": "text", "text": text})
            elif pointer := text_at(part, "asset_pointer"):
                kind = text_at(part, "content_type") or "file"
                named = "image_url" if "image" in kind else kind
                parts.append({"type": named, named: {"url": pointer}})
    return parts


def _seconds(value: object) -> float | None:
    """A time as it stands there; None for what is none, also for a number that no time has (1e999)."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
