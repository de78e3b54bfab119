"""One table of what other systems call our fields, and what to do when a message has several names of one."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC
from typing import Any, Final, cast

import msgspec

from daemon.decoders.timestamps import read_time
from events.errors import InvalidInput

# Ours, and who says it otherwise: OpenAI, Mem0, Graphiti, Zep, EverOS and EverMemOS, Hindsight, LightMem, Redis
# AMS, LoCoMo and LongMemEval. What a group says belongs to the memory of that group.
SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "id": ("id", "message_id", "turn_id", "dia_id", "uuid"),
    "user_id": ("user_id", "userId", "user", "group_id", "bank_id"),
    "session_id": (
        *("session_id", "sessionId", "session", "conversation_id", "thread_id", "run_id", "document_id"),
    ),
    "role": ("role", "role_type"),
    "name": ("name", "speaker_name", "sender_name", "speaker", "sender", "speaker_id", "sender_id"),
    "content": ("content", "text"),
    "timestamp": (
        *("timestamp", "time_stamp", "reference_time", "event_time", "event_date"),
        *("create_time", "created_at", "created", "ts"),
    ),
    "agent_id": ("agent_id", "agentId"),
    "revision": ("revision",),
    "metadata": ("metadata",),
}
# Names that mean something else beside another one: an id beside the name it belongs to, the time of arrival
# beside that of the event (Zep), the free role beside its type (Graphiti).
SET_ASIDE: Final[dict[str, tuple[str, ...]]] = {
    "name": ("speaker_name", "sender_name", "speaker", "sender", "speaker_id", "sender_id"),
    "speaker_name": ("speaker", "speaker_id"),
    "sender_name": ("sender", "sender_id"),
    "speaker": ("speaker_id",),
    "sender": ("sender_id",),
    "reference_time": ("created_at",),
    "role_type": ("role",),
}
# What Hindsight writes for a time that nobody knows.
_NO_TIME: Final = "unset"


def gather(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields we know, under our names; nulls and empty names are left out.

    Raises `InvalidInput` when two names of one field disagree, naming both and quoting neither.
    """
    empty = {name for name in SYNONYMS["name"] if fields.get(name) == ""}
    given = {name: value for name, value in fields.items() if value is not None and name not in empty}
    if given.get("role_type") and isinstance(role := given.get("role"), str) and role != given["role_type"]:
        given.setdefault("name", role)
    aside = {other for name in SET_ASIDE if given.get(name) for other in SET_ASIDE[name]}
    found: dict[str, Any] = {}
    for ours, names in SYNONYMS.items():
        present = [name for name in names if name in given and name not in aside]
        for other in present[1:]:
            if not _agree(ours, given[present[0]], given[other]):
                raise InvalidInput(f"{present[0]} and {other} disagree")
        if present:
            found[ours] = given[present[0]]
    if found.get("timestamp") == _NO_TIME:
        del found["timestamp"]
    for ours in ("id", "user_id", "session_id"):
        if ours in found:
            found[ours] = _as_id(found[ours], ours)
    return found


def peek(payload: bytes) -> dict[str, Any]:
    """The object in a payload that may be anything, its `data` as an object, too; empty when there is none."""
    fields = _read_loosely(payload)
    data, encoded = fields.get("data"), fields.get("data_base64")
    inner = data.encode() if isinstance(data, str) else b""
    if isinstance(encoded, str):
        with suppress(ValueError):
            inner = b64decode(encoded)
    return {**fields, "data": _read_loosely(inner)} if inner else fields


def find_ids(fields: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """User and session that an object names, or what is inside of it: its data, or all messages of its list."""
    if isinstance(inner := fields.get("data"), Mapping):
        fields = {**inner, **fields}
    listed = fields.get("messages")
    named: list[str | None] = []
    for ours in ("user_id", "session_id"):
        values = _values_of(ours, [fields]) or _values_of(ours, listed if isinstance(listed, list) else [])
        named.append(values.pop() if len(values) == 1 else None)
    return named[0], named[1]


def _values_of(ours: str, objects: Iterable[Any]) -> set[str]:
    """All that these objects say under any name of a field."""
    return {
        str(each[name])
        for each in objects
        if isinstance(each, Mapping)
        for name in SYNONYMS[ours]
        if isinstance(each.get(name), str | int)
    }


def _read_loosely(payload: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _agree(ours: str, one: Any, other: Any) -> bool:
    if ours != "timestamp" or one == other:
        return cast("bool", one == other)
    if not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in (one, other)):
        return False
    try:
        return read_time(one, 0, UTC)[0] == read_time(other, 0, UTC)[0]
    except InvalidInput:
        return False


def _as_id(value: Any, name: str) -> str:
    """Ids are texts; some systems count theirs."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidInput(f"{name} is no text")
    return str(value)
