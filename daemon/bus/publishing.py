"""`ingest` and `sessions.close`: publishing for callers without a NATS client. It goes over the bus, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.nats_bus import NatsBus
from daemon.bus.subjects import control_subject, encode_token, turn_subject
from daemon.decoders.decoding import Decoder, turn_key
from daemon.decoders.native import ImportedMemory, Message, Turn, Turns, parse_message
from daemon.fitting import Fitting
from daemon.untrusted import Params
from events.envelope import NewEvent
from events.errors import InvalidInput

MESSAGES_MAX = 256


class IngestParams(Params, frozen=True, kw_only=True):
    """Parameters of `ingest`: native messages of the types turn, turns and memory."""

    messages: list[dict[str, Any]]


class CloseParams(Params, frozen=True, kw_only=True):
    """Parameters of `sessions.close`."""

    user_id: str
    session_id: str
    id: str | None = None


class RetractParams(Params, frozen=True, kw_only=True):
    """Parameters of `turns.retract`."""

    user_id: str
    session_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class Published:
    """A message that the bus has. `keys` are those of its turns with ids, for `wait_for`."""

    stream: str
    seq: int
    duplicate: bool
    keys: list[str]


@dataclass(frozen=True, slots=True)
class Closed:
    """A control message that the bus has; `key` of its event is for `wait_for`, null without an id."""

    stream: str
    seq: int
    duplicate: bool
    key: str | None


@dataclass(frozen=True, slots=True)
class AllPublished:
    """The messages of one `ingest`, in their order."""

    published: list[Published]


class Publisher:
    """Checks native messages as ingest will, and publishes them in order."""

    def __init__(self, bus: NatsBus, decoder: Decoder, fitting: Fitting | None = None) -> None:
        """`fitting` looks at embeddings."""
        self._bus = bus
        self._decoder = decoder
        self._fitting = fitting

    async def ingest(self, params: IngestParams) -> AllPublished:
        """Publish messages; all are checked before the first is sent.

        Raises `InvalidInput`, or `BusUnavailable` saying how many were published: sending all of them again is
        safe when their turns have ids.
        """
        if not 1 <= len(params.messages) <= MESSAGES_MAX:
            raise InvalidInput(f"messages holds 1 to {MESSAGES_MAX} messages")
        checked = [self._check_message(number, raw) for number, raw in enumerate(params.messages)]
        if self._fitting is not None:
            await self._check_embeddings(self._fitting, [events for _, _, events in checked])
        published: list[Published] = []
        for message, payload, _ in checked:
            try:
                published.append(await self._publish_turns(message, payload))
            except BusUnavailable as error:
                raise BusUnavailable(
                    f"{error} ({len(published)} of {len(checked)} messages were published)"
                ) from error
        return AllPublished(published)

    async def close_session(self, params: CloseParams) -> Closed:
        """Publish a session.close. Raises `BusUnavailable`."""
        body = {"type": "session.close", "user_id": params.user_id, "session_id": params.session_id}
        key = None
        if params.id is not None:
            body["id"] = params.id
            ids = "/".join(encode_token(each) for each in (params.user_id, params.session_id))
            key = f"close/message/{ids}/{encode_token(params.id)}/0"
        subject = control_subject(params.user_id, params.session_id)
        ack = await self._bus.publish(subject, msgspec.json.encode(body))
        return Closed(ack.stream, ack.seq, ack.duplicate, key)

    async def retract_turn(self, params: RetractParams) -> Closed:
        """Publish a turn.retract. Raises `BusUnavailable`."""
        ids = {"user_id": params.user_id, "session_id": params.session_id, "turn_id": params.turn_id}
        key = f"retract/{turn_key(params.user_id, params.session_id, params.turn_id)}"
        subject = control_subject(params.user_id, params.session_id)
        ack = await self._bus.publish(subject, msgspec.json.encode({"type": "turn.retract", **ids}))
        return Closed(ack.stream, ack.seq, ack.duplicate, key)

    async def _check_embeddings(self, fitting: Fitting, messages: Sequence[tuple[NewEvent, ...]]) -> None:
        numbered = [(number, event) for number, events in enumerate(messages) for event in events]
        reasons = await fitting.find_unfit([event for _, event in numbered])
        for (number, _), reason in zip(numbered, reasons, strict=True):
            if reason is not None:
                raise InvalidInput(f"message {number}: {reason}")

    def _check_message(
        self, number: int, raw: dict[str, Any]
    ) -> tuple[Turn | Turns | ImportedMemory, bytes, tuple[NewEvent, ...]]:
        payload = msgspec.json.encode(raw)
        try:
            message: Message = parse_message(payload)
            if not isinstance(message, Turn | Turns | ImportedMemory):
                raise InvalidInput(
                    "only turn, turns and memory are published here; sessions have their own methods"
                )
            events = self._decoder.check(message)
        except InvalidInput as error:
            raise InvalidInput(f"message {number}: {error}") from None
        return message, payload, events

    async def _publish_turns(self, message: Turn | Turns | ImportedMemory, payload: bytes) -> Published:
        keys = _keys_of(message)
        # Only for messages whose turns all have ids: without one a repetition is meant, and is kept. The
        # payload is part of it, since the bus would swallow other content under a known id in silence.
        headers = {}
        if len(keys) == (len(message.turns) if isinstance(message, Turns) else 1):
            state = blake2b(payload, digest_size=16)
            state.update("".join(keys).encode())
            headers["Nats-Msg-Id"] = state.hexdigest()
        ack = await self._bus.publish(turn_subject(message.user_id, message.session_id), payload, headers)
        return Published(ack.stream, ack.seq, ack.duplicate, keys)


def _keys_of(message: Turn | Turns | ImportedMemory) -> list[str]:
    if isinstance(message, ImportedMemory):
        return [turn_key(message.user_id, message.session_id, message.id)]
    turns = message.turns if isinstance(message, Turns) else [message]
    return [
        turn_key(message.user_id, message.session_id, turn.id, turn.revision)
        for turn in turns
        if turn.id is not None
    ]
