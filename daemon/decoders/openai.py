"""Chat-completions messages, one or a list, and whatever other systems made of them (field.md 5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from daemon.bus.bus_messages import BusMessage
from daemon.decoders.content_parts import PARTS_MAX
from daemon.decoders.native import (
    TURNS_MAX,
    Message,
    Opened,
    Timestamp,
    Turn,
    TurnFields,
    Turns,
    convert,
    is_native,
    open_native,
    read_object,
)
from daemon.decoders.synonyms import SYNONYMS, gather
from events.errors import InvalidInput

# A tool's arguments are worth a caption as long as one can take them in at a glance.
ARGUMENTS_SHOWN_MAX: Final = 200
_IDS = ("user_id", "session_id")


def open_openai(message: BusMessage) -> Opened:
    """One message, or `{"messages": […]}` with what they share beside it. Raises `InvalidInput`."""
    fields = read_object(message.payload)
    return open_native(fields) if is_native(fields) else open_chat(fields)


def open_chat(fields: Mapping[str, Any], own_id: str | None = None, timestamp: Timestamp = None) -> Opened:
    """As `open_openai`; `own_id` and `timestamp` are for a message that has none of its own."""
    found = gather(fields)
    own_id = found.get("id", own_id)
    listed = fields.get("messages")
    ids = {name: cast("str | None", found.get(name)) for name in _IDS}
    if listed is None:
        turn = read_turn(fields, timestamp)

        def read_one(user_id: str, session_id: str) -> Message:
            return Turn(**_fields_of(turn, own_id), user_id=user_id, session_id=session_id)

        return Opened(read_one, ids["user_id"], ids["session_id"], fields=fields, turn_id=own_id)
    if not isinstance(listed, list):
        raise InvalidInput("messages is no list")
    if not 1 <= len(listed) <= TURNS_MAX:  # before each is read, which takes a tenth of a millisecond
        raise InvalidInput(f"a list has 1 to {TURNS_MAX} messages")
    timestamp = found.get("timestamp", timestamp)
    turns = [_read_listed(each, number, ids, timestamp) for number, each in enumerate(listed)]

    def read_all(user_id: str, session_id: str) -> Message:
        return Turns(user_id=user_id, session_id=session_id, turns=turns, id=own_id)

    return Opened(read_all, ids["user_id"], ids["session_id"], fields=fields)


def read_turn(fields: Mapping[str, Any], timestamp: Timestamp = None) -> TurnFields:
    """A message as a turn; raises `InvalidInput`. Without a role it is a user's (LoCoMo names speakers only)."""
    found = gather(fields)
    parts = [*_read_calls(fields.get("tool_calls")), *_read_answered(fields.get("tool_call_id"))]
    content = found.get("content")
    if content is None and not parts:
        raise InvalidInput("a message has neither content nor tool calls")
    if parts:
        shown = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
        content = [*shown, *parts] if isinstance(shown, list) else shown
    names = ("id", "name", "agent_id", "revision", "metadata")
    turn: dict[str, Any] = {name: found[name] for name in names if name in found}
    turn |= {"role": found.get("role", "user"), "timestamp": found.get("timestamp", timestamp), "content": content}
    return cast("TurnFields", convert(turn, TurnFields))


def _read_listed(fields: Any, number: int, ids: dict[str, str | None], timestamp: Timestamp) -> TurnFields:
    """A message of a list: it may name user and session again, which are the same for all."""
    if not isinstance(fields, dict):
        raise InvalidInput(f"message {number} is no object")
    fields = cast("dict[str, Any]", fields)
    found = gather({name: value for name, value in fields.items() if name in _ID_NAMES})
    for name in _IDS:
        if found.get(name) is not None:
            if ids[name] not in (None, found[name]):
                raise InvalidInput(f"messages of different {name} in one list")
            ids[name] = found[name]
    return read_turn(fields, timestamp)


_ID_NAMES: Final = frozenset(name for ours in _IDS for name in SYNONYMS[ours])


def _fields_of(turn: TurnFields, own_id: str | None) -> dict[str, Any]:
    named = {name: getattr(turn, name) for name in turn.__struct_fields__}
    return {**named, "id": turn.id if turn.id is not None else own_id}


def _read_calls(calls: Any) -> list[dict[str, Any]]:
    """Tool calls as content parts: what was called, and its arguments when they are short."""
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise InvalidInput("tool_calls is no list")
    if len(calls) > PARTS_MAX:
        raise InvalidInput(f"a turn has at most {PARTS_MAX} tool calls")
    return [_read_call(call, number) for number, call in enumerate(calls)]


def _read_call(call: Any, number: int) -> dict[str, Any]:
    function: Any = cast("dict[str, Any]", call).get("function") if isinstance(call, dict) else None
    name: Any = cast("dict[str, Any]", function).get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise InvalidInput(f"tool call {number} has no function with a name")
    arguments: Any = function.get("arguments")
    short = isinstance(arguments, str) and 0 < len(arguments) <= ARGUMENTS_SHOWN_MAX
    return {"type": "tool_call", "tool_call": {"name": name}, **({"caption": arguments} if short else {})}


def _read_answered(call_id: Any) -> list[dict[str, Any]]:
    """The call that a tool's turn answers."""
    if call_id is None:
        return []
    if not isinstance(call_id, str):
        raise InvalidInput("tool_call_id is no text")
    return [{"type": "tool_result", "tool_result": {"name": call_id}}]
