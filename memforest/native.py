"""Conversations in the form the daemon takes (design 4.1), from JSONL files: one message a line.

Checks what every message needs, so that a file is refused before any of it is sent; the finer points
are the daemon's to judge. No error carries anything of what was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from memforest.errors import InvalidInput
from memforest.wire import JsonObject, decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# NATS refuses a larger payload unless told otherwise, and the socket a longer line.
LINE_BYTES_MAX = 1 << 20
# What can be sent through the socket (design 4.2); the other types of 4.1 need their own command.
PUBLISHABLE = ("turn", "turns", "session.close")
# And what `memforest import` takes besides: a memory of another system.
IMPORTABLE = (*PUBLISHABLE, "memory")
_ELSEWHERE = {
    "memory": "is imported with `memforest import`",
    "session.forget": "is asked for with `memforest forget`",
    "turn.retract": "is published on the bus",
}


class BadRecord(InvalidInput):
    """A message of the file does not have the form that is asked for."""

    def __init__(self, number: int, reason: str) -> None:
        """`number` counts from 1: the line of a JSONL file."""
        super().__init__(f"line {number}: {reason}")
        self.number = number
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Record:
    """One native message and where it stands in its file (line, from 1); an export says its `place` in words."""

    number: int
    body: JsonObject
    place: str = ""

    @property
    def type(self) -> str:
        """turn, turns, memory or session.close."""
        return cast("str", self.body["type"])

    @property
    def user_id(self) -> str:
        """Whose memory it goes to."""
        return cast("str", self.body["user_id"])

    @property
    def session_id(self) -> str:
        """The session it belongs to."""
        return cast("str", self.body["session_id"])


def read_native(path: Path) -> Iterator[Record]:
    """The messages of a JSONL file, in order; blank lines are skipped.

    Raises BadRecord at the first line that is none, with its number and not its text. Holds one line
    in memory, however long the file.
    """
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise BadRecord(number, f"longer than {LINE_BYTES_MAX} bytes")
            if line.strip():
                yield parse_line(number, line)


def parse_line(number: int, line: bytes) -> Record:
    """One line as a message; raises BadRecord."""
    try:
        value = decode_json(line)
    except ValueError:
        raise BadRecord(number, "not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise BadRecord(number, "not a JSON object")
    body = cast("JsonObject", value)
    if reason := fault_of(body):
        raise BadRecord(number, reason)
    return Record(number, body)


def fault_of(body: JsonObject, kinds: tuple[str, ...] = PUBLISHABLE) -> str | None:
    """Why this is no native message of these types, or None when it is one."""
    kind: object = body.get("type")
    if kind not in kinds:
        if isinstance(kind, str) and kind in _ELSEWHERE:
            return f"a `{kind}` {_ELSEWHERE[kind]}, not with `publish`"
        return "`type` is none of " + ", ".join(kinds)
    for name in ("user_id", "session_id"):
        if not _is_name(body.get(name)):
            return f"`{name}` is missing or no text"
    try:
        encode_json(body)
    except InvalidInput:
        return "holds half a surrogate pair or an infinite number, which JSON in UTF-8 cannot carry"
    if kind == "turn":
        return _fault_of_turn(body)
    if kind == "memory":
        return None if _is_name(body.get("content")) else "`content` is missing or no text"
    return _fault_of_turns(body.get("turns")) if kind == "turns" else None


def _fault_of_turns(turns: object) -> str | None:
    if not isinstance(turns, list) or not turns:
        return "`turns` is missing or empty"
    for index, turn in enumerate(cast("list[object]", turns)):
        fault = _fault_of_turn(cast("JsonObject", turn)) if isinstance(turn, dict) else "not an object"
        if fault:
            return f"turn {index}: {fault}"
    return None


def _fault_of_turn(turn: JsonObject) -> str | None:
    if not _is_name(turn.get("role")):
        return "`role` is missing or no text"
    if not isinstance(turn.get("content"), str | list):
        return "`content` is neither text nor a list of parts"
    stamp: object = turn.get("timestamp")
    if stamp is not None and (isinstance(stamp, bool) or not isinstance(stamp, str | int | float)):
        return "`timestamp` is neither text nor a number"
    turn_id: object = turn.get("id")
    if turn_id is not None and not _is_name(turn_id):
        return "`id` is no text"
    return None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
