"""The messages that are published to us (design 4.1). What other decoders read becomes one of these, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from daemon.untrusted import nests_too_deep, reason_without_values
from events.errors import InvalidInput

# A message fits one transaction; more turns are better sent as several messages.
TURNS_MAX: Final = 256
# Levels of lists and objects. The socket's own limit lies above, so both ways in take the same messages, and it
# does not depend on how deep the interpreter stands.
LEVELS_MAX: Final = 64

Timestamp: TypeAlias = str | int | float | None


class TurnFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A turn inside a `turns` message."""

    role: str
    content: str | list[dict[str, Any]]
    id: str | None = None
    name: str | None = None
    timestamp: Timestamp = None
    revision: int = 0
    agent_id: str | None = None
    metadata: dict[str, Any] | None = None


class Turn(TurnFields, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="turn"):
    """`{"type": "turn", …}`: one turn."""

    user_id: str
    session_id: str


class Turns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="turns"):
    """`{"type": "turns", …}`: several turns of one session, in order."""

    user_id: str
    session_id: str
    turns: list[TurnFields]
    id: str | None = None


class ImportedMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="memory"):
    """`{"type": "memory", …}`: a sentence that another memory knew, to be known here as it is."""

    id: str
    user_id: str
    session_id: str
    content: str
    timestamp: Timestamp = None
    agent_id: str | None = None
    metadata: dict[str, Any] | None = None
    embedding: Annotated[
        list[float] | None,
        msgspec.Meta(description="Compared with other vectors of its model alone; not all of it is 0."),
    ] = None
    embedding_model: Annotated[
        str | None,
        msgspec.Meta(description="The model that made it; for one user all vectors of a model have one width."),
    ] = None


class SessionClose(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="session.close"):
    """`{"type": "session.close", …}`: the session is over."""

    user_id: str
    session_id: str
    id: str | None = None
    timestamp: Timestamp = None


class SessionForget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="session.forget"):
    """`{"type": "session.forget", …}`: keep nothing of the session."""

    user_id: str
    session_id: str
    id: str | None = None


class TurnRetract(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="turn.retract"):
    """`{"type": "turn.retract", …}`: take one turn back, in whatever revision, or one memory."""

    user_id: str
    session_id: str
    turn_id: str
    id: str | None = None


Message: TypeAlias = Turn | Turns | ImportedMemory | SessionClose | SessionForget | TurnRetract
KIND_OF: Final[dict[type, Literal["turns", "control"]]] = {
    Turn: "turns",
    Turns: "turns",
    ImportedMemory: "turns",
    SessionClose: "control",
    SessionForget: "control",
    TurnRetract: "control",
}
_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Message))
_decoder = msgspec.json.Decoder(Message)


@dataclass(frozen=True, slots=True)
class Opened:
    """A message whose form is known, before it is settled whom it is about.

    `user_id` and `session_id` are what it says itself, `assumed_user_id` what it hints at; a configured template
    stands between the two, and may name `fields`. `read` makes the message; None: it is none of ours, and ignored.
    """

    read: Callable[[str, str], Message] | None
    user_id: str | None = None
    session_id: str | None = None
    assumed_user_id: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # The id of its one turn, for the key that somebody may wait for.
    turn_id: str | None = None


def parse_message(payload: bytes, *, names: bool = True) -> Message:
    """The message in a payload; raises `InvalidInput` with a reason that quotes nothing.

    `names` lets it name an unknown field: for whoever sent the message, not for logs and dead letters, whose
    reasons outlive the erasing of their session.
    """
    try:
        message: Message = _decoder.decode(payload)
        # With few brackets there is no need to read it once more.
        if _may_nest_too_deep(payload) and nests_too_deep(payload, msgspec.json.decode(payload), LEVELS_MAX):
            raise InvalidInput("the message is nested too deep")
        return message
    except msgspec.ValidationError as error:
        raise InvalidInput(reason_without_values(error, names=names)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidInput("the message is not valid JSON in UTF-8") from None
    except RecursionError:
        raise InvalidInput("the message is nested too deep") from None


def read_object(payload: bytes) -> dict[str, Any]:
    """The JSON object in a payload of whatever format; raises `InvalidInput`."""
    try:
        found = msgspec.json.decode(payload)
        if _may_nest_too_deep(payload) and nests_too_deep(payload, found, LEVELS_MAX):
            raise InvalidInput("the message is nested too deep")
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidInput("the message is not valid JSON in UTF-8") from None
    except RecursionError:
        raise InvalidInput("the message is nested too deep") from None
    if not isinstance(found, dict):
        raise InvalidInput("the message is not a JSON object")
    return cast("dict[str, Any]", found)


def convert(fields: Mapping[str, Any], kind: Any) -> Any:
    """Fields as a struct of this type, or union of types; raises `InvalidInput` quoting none of them."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(reason_without_values(error, names=False)) from None


def is_native(fields: Mapping[str, Any]) -> bool:
    """Whether an object has the `type` of one of our messages. Every decoder takes those as they are."""
    tag = fields.get("type")
    return isinstance(tag, str) and tag in _TAGS and "specversion" not in fields


def open_native(fields: Mapping[str, Any], own_id: str | None = None, timestamp: Timestamp = None) -> Opened:
    """A native message that need not say whom it is about; `own_id` and `timestamp` are for what has none."""

    def read(user_id: str, session_id: str) -> Message:
        full = {**fields, "user_id": user_id, "session_id": session_id}
        if full.get("id") is None and own_id is not None:
            full["id"] = own_id
        if timestamp is not None and full["type"] in ("turn", "memory", "session.close"):
            full.setdefault("timestamp", timestamp)
        if timestamp is not None and isinstance(turns := full.get("turns"), list):
            full["turns"] = [
                {"timestamp": timestamp, **turn} if isinstance(turn, dict) else turn for turn in turns
            ]
        return cast("Message", convert(full, Message))

    named = fields.get("id", own_id)
    return Opened(
        read=read,
        user_id=read_text(fields, "user_id"),
        session_id=read_text(fields, "session_id"),
        fields=fields,
        turn_id=named if isinstance(named, str) and fields.get("type") in ("turn", "memory") else None,
    )


def read_text(fields: Mapping[str, Any], name: str) -> str | None:
    """A field that is a text or missing; raises `InvalidInput` for anything else."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name} is no text")
    return value


def _may_nest_too_deep(payload: bytes) -> bool:
    return payload.count(b"[") + payload.count(b"{") > LEVELS_MAX
