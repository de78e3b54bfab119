"""What the openclaw plugin @vainplex/nats-eventstore publishes: `{id, ts, agent, session, type, payload}`.

Subjects `openclaw.events.{agent}.{type with _ for .}`. It sends no Nats-Msg-Id, so the id of the body tells a
message; and most of its events are of no concern to a memory, which are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from daemon.bus.bus_messages import BusMessage
from daemon.decoders.native import (
    Message,
    Opened,
    SessionClose,
    Turn,
    convert,
    is_native,
    open_native,
    read_object,
    read_text,
)
from events.errors import InvalidInput

CLOSING: Final = frozenset(("session.reset", "session.end"))
# What its events have in common, field by field and type by type.
EVENT_WORDS: Final = (
    *("id", "ts", "agent", "session", "type", "payload", "from", "to", "channel", "success", "error"),
    *(
        "canonicalType",
        "legacyType",
        "schemaVersion",
        "visibility",
        "confidential",
        "redaction",
        "nats-eventstore",
    ),
    *("msg.in", "msg.out", "msg.sending", "message.in.received", "message.out.sent", "message.out.sending"),
    *("session.start", "session.end", "session.reset", "session.started", "session.ended", "sessionKey"),
)
# "main:matrix:albert": agent, channel, and at the end with whom.
_SEGMENTS_WITH_PEER: Final = 3


def open_openclaw(message: BusMessage) -> Opened:
    """`msg.in` is the user's turn, a delivered `msg.out` the assistant's; a reset or an end closes the session.

    The memory is that of the session's peer unless the subscription says otherwise. Raises `InvalidInput`.
    """
    fields = read_object(message.payload)
    if is_native(fields):
        return open_native(fields)
    kind = read_text(fields, "type")
    if kind is None:
        raise InvalidInput("the event has no type")
    session_id = read_text(fields, "session")
    peer = peer_of(session_id)
    payload: Any = fields.get("payload")
    body = cast("Mapping[str, Any]", payload) if isinstance(payload, dict) else {}
    if kind in CLOSING:
        return _open(fields, session_id, peer, "session.close", {})
    if kind == "msg.in":
        said = {"role": "user", "name": read_text(body, "from") or None}
    elif kind == "msg.out" and body.get("success") is True:
        said = {"role": "assistant"}
    else:
        return Opened(None, session_id=session_id, assumed_user_id=peer, fields=fields)
    spoken = {**said, "content": body.get("content"), "agent_id": read_text(fields, "agent")}
    stamped = body.get("timestamp")
    about = {**({"channel": body["channel"]} if isinstance(body.get("channel"), str) else {})}
    return _open(fields, session_id, peer, "turn", {**spoken, "timestamp": stamped, "metadata": about or None})


def _open(
    fields: Mapping[str, Any], session_id: str | None, peer: str | None, tag: str, said: Mapping[str, Any]
) -> Opened:
    """An event as a native message under its own id; `ts` counts where the payload has no time."""
    own_id = read_text(fields, "id")
    if not own_id:
        raise InvalidInput("the event has no id")
    stamped = said.get("timestamp")
    body = {**said, "id": own_id, "timestamp": fields.get("ts") if stamped is None else stamped}
    kind = Turn if tag == "turn" else SessionClose

    def read(user_id: str, session_id: str) -> Message:
        return cast("Message", convert({**body, "type": tag, "user_id": user_id, "session_id": session_id}, kind))

    turn_id = own_id if tag == "turn" else None
    return Opened(read, None, session_id, assumed_user_id=peer, fields=fields, turn_id=turn_id)


def peer_of(session_id: str | None) -> str | None:
    """With whom a session is, where its name ends with that."""
    segments = (session_id or "").split(":")
    return segments[-1] or None if len(segments) >= _SEGMENTS_WITH_PEER else None
