"""Native messages to events (design 4.1). What cannot be read becomes a dead letter with its reason.

Subject and body must agree. Reasons name fields and never quote a value.
"""

from __future__ import annotations

from datetime import datetime, tzinfo
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import msgspec

from daemon.bus import BusMessage
from daemon.content_parts import read_content
from daemon.protocol import nests_too_deep
from daemon.reasons import reason_without_values
from daemon.subjects import encode_token, parse_subject
from events.dead_letters import DeadLetter
from events.envelope import BusPosition, Keys, NewEvent, Reference
from events.errors import InvalidInput
from events.session import (
    SessionClosed,
    SessionForgotten,
    TimeSource,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
)
from events.time import EARLIEST, LATEST, Instant, from_datetime

# A message fits one transaction; more turns are better sent as several messages.
TURNS_MAX = 256
# Levels of lists and objects. The socket's own limit lies above, so both ways in take the same messages, and it
# does not depend on how deep the interpreter stands.
LEVELS_MAX = 64
# What SQLite can count to, and more than anyone edits.
REVISION_MAX = 2**31
# Numbers above this are milliseconds: as seconds they would lie beyond the year 5138.
_MILLISECONDS_FROM = 1e11

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
    """`{"type": "turn.retract", …}`: take one turn back, in whatever revision."""

    user_id: str
    session_id: str
    turn_id: str
    id: str | None = None


Message: TypeAlias = Turn | Turns | SessionClose | SessionForget | TurnRetract
_KIND_OF: dict[type, Literal["turns", "control"]] = {
    Turn: "turns",
    Turns: "turns",
    SessionClose: "control",
    SessionForget: "control",
    TurnRetract: "control",
}
_decoder = msgspec.json.Decoder(Message)


def parse_message(payload: bytes, *, names: bool = True) -> Message:
    """The message in a payload; raises `InvalidInput` with a reason that quotes nothing.

    `names` lets it name an unknown field: for whoever sent the message, not for logs and dead letters, whose
    reasons outlive the erasing of their session.
    """
    try:
        message: Message = _decoder.decode(payload)
        # With few brackets there is no need to read it once more.
        brackets = payload.count(b"[") + payload.count(b"{")
        if brackets > LEVELS_MAX and nests_too_deep(payload, msgspec.json.decode(payload), LEVELS_MAX):
            raise InvalidInput("the message is nested too deep")
        return message
    except msgspec.ValidationError as error:
        raise InvalidInput(reason_without_values(error, names=names)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidInput("the message is not valid JSON in UTF-8") from None
    except RecursionError:
        raise InvalidInput("the message is nested too deep") from None


class Decoder:
    """Reads bus messages under one store's references and one configured zone."""

    def __init__(self, keys: Keys, zone: tzinfo, *, reopens: bool = False) -> None:
        """`zone` is where naive times are read; `reopens`: messages may begin a forgotten session anew."""
        self._keys = keys
        self._zone = zone
        self._reopens = reopens

    def decode(self, message: BusMessage, epoch: str) -> tuple[NewEvent, ...] | DeadLetter:
        """The events of a message in order, or the dead letter it becomes."""
        place = BusPosition(message.stream, epoch, message.stream_seq, message.published_at)
        user_id = session_id = None
        try:
            kind, user_id, session_id = parse_subject(message.subject)
            parsed = parse_message(message.payload, names=False)
            if _KIND_OF[type(parsed)] != kind:
                raise InvalidInput("a message of this type does not belong on this subject")
            if (parsed.user_id, parsed.session_id) != (user_id, session_id):
                raise InvalidInput("subject and body name different users or sessions")
            return self._read(parsed, message, place)
        except InvalidInput as error:
            return DeadLetter(
                message.subject,
                message.payload,
                str(error),
                place,
                user_id,
                session_id,
                *_keys_of_unreadable(message.payload, user_id, session_id),
                message.published_at,
                message.headers.get("Nats-Msg-Id"),
            )

    def check(self, parsed: Message) -> None:
        """Raise `InvalidInput` when a message would become a dead letter, whenever it is published."""
        nowhere = BusMessage("", b"", {}, "", 0, 0)
        self._read(parsed, nowhere, BusPosition("", "", 0))

    def _read(self, parsed: Message, message: BusMessage, place: BusPosition) -> tuple[NewEvent, ...]:
        match parsed:
            case Turn():
                return (self._read_turn(parsed, parsed, 0, message, place),)
            case Turns(turns=turns):
                if not 1 <= len(turns) <= TURNS_MAX:
                    raise InvalidInput(f"a turns message holds 1 to {TURNS_MAX} turns")
                return tuple(
                    self._read_turn(parsed, turn, index, message, place) for index, turn in enumerate(turns)
                )
            case SessionClose(timestamp=timestamp):
                at, source = self._read_time(timestamp, message.published_at)
                key = f"close/{_key_tail(parsed, parsed.id, 0, message)}"
                return (self._event(parsed, SessionClosed(), key, (at, source), place),)
            case SessionForget():
                now = (message.published_at, TimeSource.BUS)
                return (self._event(parsed, SessionForgotten(), forget_key(parsed), now, place),)
            case TurnRetract(turn_id=turn_id):
                key = turn_key(parsed.user_id, parsed.session_id, turn_id)
                now = (message.published_at, TimeSource.BUS)
                event = TurnRetracted(self._keys.key(key))
                return (self._event(parsed, event, f"retract/{key}", now, place),)

    def _read_turn(
        self, parsed: Turn | Turns, turn: TurnFields, index: int, message: BusMessage, place: BusPosition
    ) -> NewEvent:
        if not 0 <= turn.revision <= REVISION_MAX:
            raise InvalidInput("revision is a whole number from 0 on")
        if turn.revision and turn.id is None:
            raise InvalidInput("a revision needs the id of its turn")
        at, source = self._read_time(turn.timestamp, message.published_at)
        text, parts = read_content(turn.content)
        said = TurnRecorded(
            content=text,
            role=turn.role,
            turn_id=turn.id,
            name=turn.name,
            agent_id=turn.agent_id,
            metadata=None if turn.metadata is None else msgspec.json.encode(turn.metadata).decode(),
            parts=parts,
            time_source=source,
        )
        event: TurnRecorded | TurnRevised = said
        if turn.id is None:
            message_id = parsed.id if isinstance(parsed, Turns) else None
            key = _key_tail(parsed, message_id, index, message)
        else:
            key = turn_key(parsed.user_id, parsed.session_id, turn.id, turn.revision)
            if turn.revision:
                first = self._keys.key(turn_key(parsed.user_id, parsed.session_id, turn.id))
                event = _revise(said, turn.id, first, turn.revision)
        return self._event(parsed, event, key, (at, source), place)

    def _event(
        self,
        parsed: Message,
        event: TurnRecorded | TurnRevised | TurnRetracted | SessionClosed | SessionForgotten,
        key: str,
        time: tuple[Instant, TimeSource],
        place: BusPosition,
    ) -> NewEvent:
        session = self._keys.session(parsed.user_id, parsed.session_id)
        return NewEvent(
            user_id=parsed.user_id,
            session_id=parsed.session_id,
            event=event,
            key=key,
            happened_at=time[0],
            # Forgetting is no part of what is forgotten: its event stays when the session's are voided.
            lineage=() if isinstance(event, SessionForgotten) else (session,),
            bus=place,
            reopens=self._reopens and not isinstance(event, SessionForgotten | TurnRetracted),
            time_assigned=time[1] is TimeSource.BUS,
        )

    def _read_time(self, stamp: Timestamp, published_at: Instant) -> tuple[Instant, TimeSource]:
        """The instant of a timestamp and where it came from; never the wall clock."""
        if stamp is None:
            return published_at, TimeSource.BUS
        if isinstance(stamp, str):
            return self._read_iso(stamp)
        at = int(stamp) if abs(stamp) > _MILLISECONDS_FROM else round(stamp * 1000)
        return _in_range(at), TimeSource.GIVEN

    def _read_iso(self, stamp: str) -> tuple[Instant, TimeSource]:
        try:
            when = datetime.fromisoformat(stamp)
            given = when.tzinfo is not None
            at = from_datetime(when if given else when.replace(tzinfo=self._zone))
        except (ValueError, OverflowError):
            raise InvalidInput(
                "timestamp is neither ISO 8601 (2024-07-01T09:00:00Z) nor epoch seconds or milliseconds"
            ) from None
        # An offset takes the first and the last day out of the range of what can be written in UTC.
        return _in_range(at), TimeSource.GIVEN if given else TimeSource.ZONE_ASSUMED


def _revise(said: TurnRecorded, turn_id: str, turn: Reference, revision: int) -> TurnRevised:
    return TurnRevised(
        turn=turn,
        revision=revision,
        content=said.content,
        role=said.role,
        turn_id=turn_id,
        name=said.name,
        agent_id=said.agent_id,
        metadata=said.metadata,
        parts=said.parts,
        time_source=said.time_source,
    )


def _in_range(at: Instant) -> Instant:
    if not EARLIEST <= at <= LATEST:
        raise InvalidInput("timestamp lies outside the years 1 to 9999")
    return at


def turn_key(user_id: str, session_id: str, turn_id: str, revision: int = 0) -> str:
    """The idempotency key of a turn that has an id."""
    ids = "/".join(encode_token(each) for each in (user_id, session_id, turn_id))
    return f"turn/{ids}/{revision}"


def forget_key(message: SessionForget) -> str:
    """A session is forgotten once; whoever asks again gets the same answer."""
    return make_forget_key(message.user_id, message.session_id)


def make_forget_key(user_id: str, session_id: str) -> str:
    """The key of a session's SessionForgotten."""
    return f"forget/{encode_token(user_id)}/{encode_token(session_id)}"


def _key_tail(parsed: Message, own_id: str | None, index: int, message: BusMessage) -> str:
    """The key of what has no turn id: by the message's id, its `Nats-Msg-Id`, or its bytes and bus time.

    With the bus's own time of the message a redelivery is recognised and a repetition is kept.
    """
    place = f"{encode_token(parsed.user_id)}/{encode_token(parsed.session_id)}"
    message_id = own_id or message.headers.get("Nats-Msg-Id")
    if message_id:
        return f"message/{place}/{encode_token(message_id)}/{index}"
    state = blake2b(message.payload, digest_size=16)
    state.update(message.published_at.to_bytes(8, "big", signed=True))
    return f"body/{place}/{state.hexdigest()}/{index}"


class _TurnIds(msgspec.Struct, frozen=True, tag="turn"):
    """What is left of a turn that cannot be read."""

    id: str
    revision: int = 0


def _keys_of_unreadable(
    payload: bytes, user_id: str | None, session_id: str | None
) -> tuple[str | None, str | None]:
    """The key to wait for, and that of the turn's first revision, if the id of the turn can still be told."""
    if user_id is None or session_id is None:
        return None, None
    try:
        ids = msgspec.json.decode(payload, type=_TurnIds)
        return turn_key(user_id, session_id, ids.id, ids.revision), turn_key(user_id, session_id, ids.id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidInput):
        return None, None
