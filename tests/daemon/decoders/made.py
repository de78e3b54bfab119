"""What tests of decoders are made of: messages of a stream, and what a decoder of that stream makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from daemon.bus.bus_messages import BusMessage
from daemon.decoders.decoding import Decoder
from daemon.decoders.formats import FORMATS
from daemon.decoders.placing import Placing, parse_template
from events.dead_letters import DeadLetter
from events.envelope import NewEvent
from events.session import TurnRecorded
from tests.builders import KEYS, MONDAY

STREAM = "OTHERS"
SECRET_WORDS = "Xylophon-4711"


def a_message(
    body: object,
    subject: str = "chat.messages",
    *,
    headers: Mapping[str, str] | None = None,
    published_at: int = MONDAY,
    seq: int = 7,
) -> BusMessage:
    """A message as the bus hands it over; `body` is written as JSON unless it is bytes."""
    payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return BusMessage(subject, payload, headers or {}, STREAM, seq, published_at)


def a_decoder(name: str, *, user: str = "", session: str = "", ours: bool = False) -> Decoder:
    """The decoder of a subscription, or (ours) of our own stream."""
    placing = Placing(parse_template(user), parse_template(session), ours=ours)
    return Decoder(KEYS, ZoneInfo("Europe/Berlin"), written=FORMATS[name], placing=placing)


def decoded(decoder: Decoder, message: BusMessage) -> tuple[NewEvent, ...]:
    """The events of a message that can be read."""
    events = decoder.decode(message, "e1")
    assert not isinstance(events, DeadLetter), events.reason
    return events


def refused(decoder: Decoder, message: BusMessage) -> DeadLetter:
    """The dead letter of one that cannot."""
    letter = decoder.decode(message, "e1")
    assert isinstance(letter, DeadLetter), letter
    return letter


def turns_of(events: tuple[NewEvent, ...]) -> list[TurnRecorded]:
    """What was said."""
    turns = [event.event for event in events]
    assert all(isinstance(turn, TurnRecorded) for turn in turns)
    return [turn for turn in turns if isinstance(turn, TurnRecorded)]


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """A body that lacks some fields."""
    return {name: value for name, value in body.items() if name not in names}
