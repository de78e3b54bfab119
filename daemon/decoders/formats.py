"""The decoders by name, as the configuration calls them; and what their messages say whoever writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, get_args

from daemon.bus.bus_messages import BusMessage
from daemon.decoders.cloudevents import ATTRIBUTES, as_structured, open_cloudevent
from daemon.decoders.native import Message, Opened, open_native, read_object
from daemon.decoders.openai import open_openai
from daemon.decoders.openclaw import EVENT_WORDS, open_openclaw, peer_of
from daemon.decoders.synonyms import SYNONYMS


@dataclass(frozen=True, slots=True)
class Format:
    """How one kind of publisher writes. `open` raises `InvalidInput`; `keep` is what a dead letter holds; `assume`
    tells from a session whose it is, where nobody says so."""

    open: Callable[[BusMessage], Opened]
    keep: Callable[[BusMessage], bytes]
    assume: Callable[[str], str | None] = lambda _: None


def _payload(message: BusMessage) -> bytes:
    return message.payload


NATIVE: Final = Format(lambda message: open_native(read_object(message.payload)), _payload)
FORMATS: Final[dict[str, Format]] = {
    "native": NATIVE,
    "openai": Format(open_openai, _payload),
    "cloudevents": Format(open_cloudevent, as_structured),
    "openclaw": Format(open_openclaw, _payload, peer_of),
}

# Names of fields and types: they stand in messages of every session, so finding them somewhere proves nothing.
FORMAT_WORDS: Final = frozenset(
    (
        *(word for kind in get_args(Message) for word in (kind.__struct_config__.tag, *kind.__struct_fields__)),
        *(name for names in SYNONYMS.values() for name in names),
        *("messages", "tool_calls", "tool_call_id", "function", "arguments", "image_url", "input_audio"),
        *ATTRIBUTES,
        *EVENT_WORDS,
    )
)
