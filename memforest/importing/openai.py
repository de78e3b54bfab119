"""OpenAI chat messages: one message a line, or `{"messages": [...]}` a line, as fine-tuning files have them.

A line of messages is a session, which is closed; single messages form sessions that are closed at the end.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from memforest.importing.entries import (
    NO_USER,
    Chosen,
    Entry,
    Found,
    Skipped,
    closing,
    objects_at,
    stable_id,
    text_at,
)
from memforest.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.importing.items import Item

_SESSION = ("session_id", "conversation_id", "thread_id", "run_id")
_USER = ("user_id", "user")
_TIMES = ("timestamp", "created_at", "created", "create_time", "time_stamp", "time")
_ROLES_OF_OTHERS = {
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "bot": "assistant",
}


def read_openai(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """Messages of a file, line by line; what holds no text (a call of a tool) is skipped."""
    counts: Counter[tuple[str, str]] = Counter()
    for item in items:
        value = item.value
        if item.fault is not None or not isinstance(value, dict):
            yield Skipped(item.place, item.fault or "not a JSON object")
            continue
        line = cast("JsonObject", value)
        messages = objects_at(line, "messages")
        user = chosen.user or text_at(line, *_USER)
        if user is None:
            yield Skipped(item.place, NO_USER)
        elif messages is not None:
            own = text_at(line, *_SESSION, "id", "custom_id")
            session = chosen.session or own or f"{chosen.stem}-{item.place.rpartition(' ')[2]}"
            yield from _session(item.place, messages, user, session, _time(line))
        else:
            session = chosen.session or text_at(line, *_SESSION) or chosen.stem
            entry = _turn(item.place, line, user, session, counts[user, session], None)
            counts[user, session] += isinstance(entry, Found)
            yield entry
    for (user, session), count in counts.items():
        if count:
            yield closing("the end", user, session, f"{count}:close")


def _session(
    place: str, messages: list[JsonObject], user: str, session: str, at: str | float | None
) -> Iterator[Entry]:
    count = 0
    for index, message in enumerate(messages):
        entry = _turn(f"{place}, message {index + 1}", message, user, session, index, at)
        count += isinstance(entry, Found)
        yield entry
    if count:
        yield closing(place, user, session, f"{len(messages)}:close")


def _turn(
    place: str, message: JsonObject, user: str, session: str, index: int, session_at: str | float | None
) -> Entry:
    role = text_at(message, "role", "from")
    content: object = message.get("content", message.get("value"))
    if role is None:
        return Skipped(place, "has no `role`")
    if not isinstance(content, str | list) or not content:
        called = message.get("tool_calls") or message.get("function_call")
        return Skipped(place, "a call of a tool, without text" if called else "has no `content`")
    own_time = _time(message)
    at = session_at if own_time is None else own_time
    body: JsonObject = {
        "type": "turn",
        "id": text_at(message, "id", "message_id", "uuid") or stable_id(session, index, role, content),
        "user_id": user,
        "session_id": session,
        "role": _ROLES_OF_OTHERS.get(role, role),
        "content": content,
    }
    if name := text_at(message, "name"):
        body["name"] = name
    if at is not None:
        body["timestamp"] = at
    return Found(place, body, "itself" if own_time is not None else "nowhere" if at is None else "session")


def _time(source: JsonObject) -> str | float | None:
    for name in _TIMES:
        value: object = source.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return value
    return None
