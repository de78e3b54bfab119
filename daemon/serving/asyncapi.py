"""The AsyncAPI 3.0 document of the bus, made from the types of the messages that are published to us.

Other streams are written in their publishers' formats and are not in it (daemon/decoders).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from daemon.bus.subjects import ID_BYTES_MAX, ROOT
from daemon.decoders.native import KIND_OF, Message

JsonObject: TypeAlias = dict[str, Any]

_IDS: Final = {"user_id": "alice", "session_id": "s2"}
# One message of each type, as the README shows them.
EXAMPLES: Final[dict[str, JsonObject]] = {
    "turn": {
        "type": "turn",
        "id": "m-17",
        **_IDS,
        "role": "user",
        "name": "Alice",
        "content": "I moved to Miami.",
        "timestamp": "2024-07-01T09:00:00Z",
    },
    "turns": {
        "type": "turns",
        **_IDS,
        "turns": [{"id": "m-18", "role": "assistant", "content": "How is it?", "timestamp": 1719824400}],
    },
    "memory": {
        "type": "memory",
        "id": "x-1",
        **_IDS,
        "content": "Alice is allergic to nuts.",
        "timestamp": "2024-01-02",
    },
    "session.close": {"type": "session.close", **_IDS},
    "session.forget": {"type": "session.forget", **_IDS},
    "turn.retract": {"type": "turn.retract", **_IDS, "turn_id": "m-18"},
}
_CHANNELS: Final[dict[Literal["turns", "control"], str]] = {
    "turns": "What is said, and what other memories knew. Whoever may publish here cannot take anything away.",
    "control": "That a session is over, is to be forgotten, or that something in it is taken back.",
}
_TOKEN: Final = (
    "the id itself if it has only A-Z a-z 0-9 _ - and does not start with b32-, else b32- and the lower-case, "
    f"unpadded base32 of its UTF-8; an id has at most {ID_BYTES_MAX} bytes. Subject and body must agree"
)
_HEADERS: Final = {
    "type": "object",
    "properties": {
        "Nats-Msg-Id": {
            "type": "string",
            "description": "Tells a repetition of a message whose turns have no ids. The server drops repetitions "
            "within its own window, too, whatever they say.",
        }
    },
}


@cache
def encode_asyncapi(version: str) -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(make_asyncapi(version)), indent=2)


def make_asyncapi(version: str) -> JsonObject:
    """The document. `version` is the daemon's."""
    kinds = get_args(Message)
    shown, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    messages = {
        tag_of(kind): _message(kind, payload) for kind, payload in zip(kinds, shown, strict=True)
    }  # fmt: skip
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "MemForest",
            "version": version,
            "description": "What chat services publish to the daemon, on a stream of JetStream (limits).",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {kind: _channel(kind, text) for kind, text in _CHANNELS.items()},
        "operations": {f"receive_{kind}": _operation(kind) for kind in _CHANNELS},
        "components": {"messages": messages, "schemas": schemas},
    }


def tag_of(kind: Any) -> str:
    """The `type` of a message's type."""
    return str(kind.__struct_config__.tag)


def _tags_on(channel: str) -> list[str]:
    return [tag_of(kind) for kind, placed in KIND_OF.items() if placed == channel]


def _message(kind: Any, payload: JsonObject) -> JsonObject:
    tag = tag_of(kind)
    sentence = str(kind.__doc__).partition("\n")[0].partition(": ")[2]
    return {
        "name": tag,
        "summary": sentence[0].upper() + sentence[1:],
        "headers": _HEADERS,
        "payload": payload,
        "examples": [{"payload": EXAMPLES[tag]}],
    }


def _channel(kind: str, text: str) -> JsonObject:
    return {
        "address": f"{ROOT}.{kind}.{{user}}.{{session}}",
        "description": text,
        "parameters": {
            "user": {"description": f"Whose memory it is: {_TOKEN}."},
            "session": {"description": f"The conversation: {_TOKEN}."},
        },
        "messages": {tag: {"$ref": f"#/components/messages/{tag}"} for tag in _tags_on(kind)},
    }


def _operation(kind: str) -> JsonObject:
    return {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{kind}"},
        "messages": [{"$ref": f"#/channels/{kind}/messages/{tag}"} for tag in _tags_on(kind)],
    }
