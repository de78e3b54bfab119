"""Mem0's export: what `get_all` returns (`{"results": [...]}`), its items as a list, or one a line.

Each is a memory, not a turn: it becomes a fact as it is, without a model call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from memforest.importing.entries import (
    NO_USER,
    Chosen,
    Entry,
    Found,
    Skipped,
    object_at,
    objects_at,
    stable_id,
    text_at,
)
from memforest.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.importing.items import Item

# The session of memories that name none.
SESSION = "import"
# What is kept beside the caller's own metadata.
_KEPT = ("agent_id", "app_id", "actor_id", "categories", "updated_at")


def read_mem0(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """The memories of an export as messages of type `memory`."""
    for item in items:
        value = item.value
        if item.fault is not None or not isinstance(value, dict):
            yield Skipped(item.place, item.fault or "not a JSON object")
            continue
        whole = cast("JsonObject", value)
        results = objects_at(whole, "results")
        if results is None:
            results = objects_at(whole, "memories")
        if results is None:
            yield _memory(item.place, whole, chosen)
            continue
        for number, memory in enumerate(results, start=1):
            yield _memory(f"result {number}", memory, chosen)


def _memory(place: str, memory: JsonObject, chosen: Chosen) -> Entry:
    text = text_at(memory, "memory", "text", "data", "content")
    user = chosen.user or text_at(memory, "user_id", "agent_id")
    if text is None:
        return Skipped(place, "has no `memory`")
    if user is None:
        return Skipped(place, NO_USER)
    at = text_at(memory, "created_at", "updated_at")
    body: JsonObject = {
        "type": "memory",
        "id": text_at(memory, "id") or stable_id(user, text, at),
        "user_id": user,
        "session_id": chosen.session or text_at(memory, "run_id") or SESSION,
        "content": text,
    }
    kept = {name: memory[name] for name in _KEPT if memory.get(name)}
    if metadata := {**object_at(memory, "metadata"), **kept}:
        body["metadata"] = metadata
    if at is not None:
        body["timestamp"] = at
    return Found(place, body, "nowhere" if at is None else "itself")
