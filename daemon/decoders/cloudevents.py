"""CloudEvents 1.0, structured and binary, whose data is a turn of ours or a chat message.

By hand: what of it concerns us are six attributes. The package `cloudevents` knows no NATS, brings two more
packages along (python-dateutil, deprecation), and would read the JSON a second time.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec

from daemon.bus.bus_messages import BusMessage
from daemon.decoders.native import Opened, is_native, open_native, read_object, read_text
from daemon.decoders.openai import open_chat
from events.errors import InvalidInput

HEADER_PREFIX: Final = "ce-"
VERSION: Final = "1.0"
ATTRIBUTES: Final = (
    *("specversion", "id", "source", "type", "time", "subject", "datacontenttype", "dataschema"),
    *("data", "data_base64", "application/json", "ai.chat.turn.v1"),
)


def open_cloudevent(message: BusMessage) -> Opened:
    """The turns in an event's data; what has no id of its own goes by the event's source and id.

    A template of the subscription may name its attributes, and fields of its data as `data.…`. A native message
    that is no event is taken, too: the daemon's own socket publishes those. Raises `InvalidInput`.
    """
    event = read_object(as_structured(message))
    if is_native(event):
        return open_native(event)
    if event.get("specversion") != VERSION:
        raise InvalidInput("the message is no CloudEvent of version 1.0")
    source, own_id, kind = (_read_required(event, name) for name in ("source", "id", "type"))
    if any(map(str.isspace, source)):
        raise InvalidInput("the source of a CloudEvent is a URI, which has no space")
    data = read_data(event)
    named = f"{source} {own_id}"
    time = read_text(event, "time")
    opened = open_native(data, named, time) if is_native(data) else open_chat(data, named, time)
    return Opened(
        read=opened.read,
        user_id=opened.user_id,
        session_id=opened.session_id,
        fields={**event, "type": kind, "data": data},
        turn_id=opened.turn_id,
    )


def read_data(event: Mapping[str, Any]) -> dict[str, Any]:
    """The object that an event carries, as JSON, as JSON in a string, or in base64. Raises `InvalidInput`."""
    media_type = (read_text(event, "datacontenttype") or "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise InvalidInput("the data of a CloudEvent is no JSON by its datacontenttype")
    found: Any = event.get("data")
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    if isinstance(found, str):
        return read_object(found.encode())
    encoded = read_text(event, "data_base64")
    if encoded is None:
        raise InvalidInput("a CloudEvent has no data that is an object")
    try:
        return read_object(b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidInput("data_base64 of a CloudEvent is not base64") from None


def as_structured(message: BusMessage) -> bytes:
    """A message in structured mode: as it came, or for one in binary mode put together from its headers.

    So a dead letter keeps the whole event, and can be tried again without its headers.
    """
    attributes = {
        # A value that is no valid Unicode could not be written again.
        name.lower().removeprefix(HEADER_PREFIX): unquote(value).encode(errors="replace").decode()
        for name, value in message.headers.items()
        if name.lower().startswith(HEADER_PREFIX)
    }
    if not attributes:
        return message.payload
    for name, value in message.headers.items():
        if name.lower() == "content-type":
            attributes.setdefault("datacontenttype", value)
    try:
        msgspec.json.decode(message.payload)
        carried: dict[str, Any] = {"data": msgspec.Raw(message.payload)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        carried = {"data_base64": b64encode(message.payload).decode()}
    return msgspec.json.encode({**attributes, **carried})


def _read_required(event: Mapping[str, Any], name: str) -> str:
    value = read_text(event, name)
    if not value:
        raise InvalidInput(f"a CloudEvent has no {name}")
    return value
