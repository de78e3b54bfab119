"""Mem0's memories: what `get_all` returns, its vector store's points, or its `history.db`.

`{"results": [...]}` of the open source version and of the platform's pages, the items as a list, or one a line.
Points of a vector store (`id`, `vector`, `payload`) bring their embeddings. Each item is a memory, not a turn: it
becomes a fact as it is, without a model call.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from memforest.importing.entries import (
    NO_USER,
    Chosen,
    Entry,
    Found,
    Skipped,
    add_embedding,
    object_at,
    objects_at,
    stable_id,
    text_at,
)
from memforest.importing.items import BadExport, Item
from memforest.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The session of memories that name none.
SESSION = "import"
# What is kept beside the caller's own metadata.
_KEPT = ("agent_id", "app_id", "actor_id", "categories", "updated_at")
_LISTS: Final = ("results", "memories", "points")
# Of a point's payload, which holds the caller's own metadata beside them.
_OWN: Final = frozenset((*_KEPT, "data", "hash", "created_at", "user_id", "run_id", "role", "text_lemmatized"))
_SQLITE: Final = b"SQLite format 3\x00"


def is_history(path: Path) -> bool:
    """Whether a file is an SQLite database. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_history(path: Path) -> Iterator[Item]:
    """The memories that a `history.db` says are known still, each as its last change left it. Only reads.

    Raises BadExport when it is no such database.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            columns = {str(row[1]) for row in database.execute("PRAGMA table_info(history)")}
            if not {"memory_id", "event"} <= columns:
                raise BadExport("The database has no table `history` of mem0.")
            # Older releases had other names for the same.
            text = "new_memory" if "new_memory" in columns else "new_value"
            at = "created_at" if "created_at" in columns else "timestamp"
            gone = "is_deleted" if "is_deleted" in columns else "0"
            rows = database.execute(
                f"""SELECT memory_id, {text}, {at}, event, {gone} FROM history
                    WHERE rowid IN (SELECT max(rowid) FROM history GROUP BY memory_id) ORDER BY rowid"""
            )
            for number, (memory_id, content, created_at, event, is_deleted) in enumerate(rows, start=1):
                if is_deleted or str(event).upper() == "DELETE":
                    continue
                yield Item(f"memory {number}", {"id": memory_id, "memory": content, "created_at": created_at})
    except sqlite3.Error:
        raise BadExport("The database is damaged, or no `history.db` of mem0.") from None


def read_mem0(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """The memories of an export as messages of type `memory`."""
    for item in items:
        value = item.value
        if item.fault is not None or not isinstance(value, dict):
            yield Skipped(item.place, item.fault or "not a JSON object")
            continue
        whole = cast("JsonObject", value)
        inside = object_at(whole, "result") or whole  # as Qdrant's HTTP interface wraps what it answers
        results = next((listed for name in _LISTS if (listed := objects_at(inside, name)) is not None), None)
        if results is None:
            yield _memory(item.place, whole, chosen)
            continue
        for number, memory in enumerate(results, start=1):
            yield _memory(f"result {number}", memory, chosen)


def _memory(place: str, memory: JsonObject, chosen: Chosen) -> Entry:
    payload = object_at(memory, "payload")
    told: JsonObject = {**memory, **payload}
    text = text_at(told, "memory", "text", "data", "content")
    user = chosen.user or text_at(told, "user_id", "agent_id")
    if text is None:
        return Skipped(place, "has no `memory`")
    if user is None:
        return Skipped(place, NO_USER)
    at = text_at(told, "created_at", "updated_at")
    own_id: object = memory.get("id")
    body: JsonObject = {
        "type": "memory",
        "id": str(own_id) if isinstance(own_id, str | int) and own_id != "" else stable_id(user, text, at),
        "user_id": user,
        "session_id": chosen.session or text_at(told, "run_id") or SESSION,
        "content": text,
    }
    own = {name: each for name, each in payload.items() if name not in _OWN}
    kept = {name: told[name] for name in _KEPT if told.get(name)}
    if metadata := {**own, **object_at(memory, "metadata"), **kept}:
        body["metadata"] = metadata
    if at is not None:
        body["timestamp"] = at
    embedding: object = memory.get("embedding") if memory.get("embedding") is not None else memory.get("vector")
    taken = add_embedding(body, embedding, chosen)
    return Found(place, body, "nowhere" if at is None else "itself", bare=not taken)
