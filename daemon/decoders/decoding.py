"""Messages to events (design 4.1). What cannot be read becomes a dead letter with its reason.

The decoders (daemon/decoders) know what messages look like; from their answer on all are treated alike. Subject
and body must agree. Reasons name fields and never quote a value.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from datetime import tzinfo
from hashlib import blake2b

import msgspec

from daemon.bus.bus_messages import BusMessage
from daemon.bus.subjects import ParsedSubject, encode_token
from daemon.decoders.content_parts import read_content
from daemon.decoders.formats import NATIVE, Format
from daemon.decoders.native import (
    KIND_OF,
    TURNS_MAX,
    ImportedMemory,
    Message,
    Opened,
    SessionClose,
    SessionForget,
    Turn,
    TurnFields,
    TurnRetract,
    Turns,
    parse_message,
)
from daemon.decoders.placing import DISAGREEMENT, Placing
from daemon.decoders.synonyms import peek
from daemon.decoders.timestamps import read_time
from events.dead_letters import DeadLetter
from events.envelope import BusPosition, Keys, NewEvent, Reference
from events.errors import InvalidInput
from events.session import (
    MemoryImported,
    SessionClosed,
    SessionForgotten,
    TimeSource,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
)
from events.time import Instant

# What SQLite can count to, and more than anyone edits.
REVISION_MAX = 2**31
# A fact is a sentence or a few; what is longer is a document, and better told as turns.
MEMORY_CHARACTERS_MAX = 8_000
# The widest embedding that is sold today.
EMBEDDING_WIDTH_MAX = 4_096
# A name, not a text.
EMBEDDING_MODEL_CHARACTERS_MAX = 256


class Decoder:
    """Reads the messages of one stream, under one store's references and one configured zone."""

    def __init__(
        self,
        keys: Keys,
        zone: tzinfo,
        *,
        reopens: bool = False,
        written: Format = NATIVE,
        placing: Placing | None = None,
    ) -> None:
        """`zone` is where naive times are read; `reopens`: messages may begin a forgotten session anew.

        `written` is how the publishers of the stream write, `placing` whom their messages are about.
        """
        self._keys = keys
        self._zone = zone
        self._reopens = reopens
        self._written = written
        self._placing = placing or Placing()

    def decode(self, message: BusMessage, epoch: str) -> tuple[NewEvent, ...] | DeadLetter:
        """The events of a message in order (none: it is of no concern to us), or the dead letter it becomes."""
        place = BusPosition(message.stream, epoch, message.stream_seq, message.published_at)
        user_id = session_id = opened = None
        other = False
        try:
            placed = self._placing.read_subject(message.subject)
            if placed is None:
                other = True
            else:
                user_id, session_id = placed.user_id, placed.session_id
            if placed is not None and self._written is NATIVE:
                parsed = _belongs(placed, parse_message(message.payload, names=False))
                if (parsed.user_id, parsed.session_id) != (user_id, session_id):
                    raise InvalidInput(DISAGREEMENT)
                return self._read(parsed, message, place)
            opened = self._written.open(message)
            if opened.read is None:
                return ()
            user_id, session_id = self._placing.settle(message.subject, placed, opened)
            return self._read(_belongs(placed, opened.read(user_id, session_id)), message, place)
        except InvalidInput as error:
            if other and user_id is None:
                user_id, session_id = self._guess_ids(message)
            keys = _keys_of_unreadable(message.payload, opened, user_id, session_id)
            return self.reject(message, place, str(error), (user_id, session_id), keys)

    def _guess_ids(self, message: BusMessage) -> tuple[str | None, str | None]:
        """Whom a message that cannot be read speaks of, so that forgetting them finds it, too."""
        written = self._written
        try:
            ids = self._placing.guess(message.subject, peek(written.keep(message)), written.assume)
            for each in ids:
                _ = encode_token(each) if each is not None else None
        except InvalidInput:
            return None, None
        return ids

    def reject(
        self,
        message: BusMessage,
        place: BusPosition,
        reason: str,
        ids: tuple[str | None, str | None],
        keys: tuple[str | None, str | None] = (None, None),
    ) -> DeadLetter:
        """A message as a dead letter: of these user and session, and the keys of its turn, as far as known."""
        message_id = message.headers.get("Nats-Msg-Id")
        payload = self._written.keep(message)
        return DeadLetter(
            message.subject, payload, reason, place, *ids, *keys, message.published_at, message_id
        )  # fmt: skip

    def check(self, parsed: Message) -> tuple[NewEvent, ...]:
        """The events of a message; `InvalidInput` when it would become a dead letter, whenever it is published."""
        nowhere = BusMessage("", b"", {}, "", 0, 0)
        return self._read(parsed, nowhere, BusPosition("", "", 0))

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
            case ImportedMemory():
                at, source = read_time(parsed.timestamp, message.published_at, self._zone)
                key = turn_key(parsed.user_id, parsed.session_id, parsed.id)
                return (self._event(parsed, _read_memory(parsed, source), key, (at, source), place),)
            case SessionClose(timestamp=timestamp):
                at, source = read_time(timestamp, message.published_at, self._zone)
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
        at, source = read_time(turn.timestamp, message.published_at, self._zone)
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
        event: TurnRecorded | TurnRevised | TurnRetracted | MemoryImported | SessionClosed | SessionForgotten,
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


def _belongs(placed: ParsedSubject | None, parsed: Message) -> Message:
    """The message, if one of its type may come on this subject: NATS permissions are per subject.

    What takes something away is for our own control subjects alone, whoever may write to other streams.
    """
    foreign = placed is None and isinstance(parsed, SessionForget | TurnRetract)
    if foreign or (placed is not None and KIND_OF[type(parsed)] != placed.kind):
        raise InvalidInput("a message of this type does not belong on this subject")
    return parsed


def _read_memory(parsed: ImportedMemory, source: TimeSource) -> MemoryImported:
    if not len(parsed.content.strip()) >= 1 or len(parsed.content) > MEMORY_CHARACTERS_MAX:
        raise InvalidInput(f"the content of a memory has 1 to {MEMORY_CHARACTERS_MAX} characters")
    if len(parsed.embedding_model or "") > EMBEDDING_MODEL_CHARACTERS_MAX:
        raise InvalidInput(f"embedding_model has at most {EMBEDDING_MODEL_CHARACTERS_MAX} characters")
    return MemoryImported(
        content=parsed.content,
        turn_id=parsed.id,
        agent_id=parsed.agent_id,
        metadata=None if parsed.metadata is None else msgspec.json.encode(parsed.metadata).decode(),
        embedding=None if parsed.embedding is None else _pack_embedding(parsed.embedding),
        embedding_model=parsed.embedding_model,
        time_source=source,
    )


def _pack_embedding(numbers: list[float]) -> str:
    """Base64 of float32; JSON has no infinities, and a number that becomes one in 32 bits is refused."""
    if not 1 <= len(numbers) <= EMBEDDING_WIDTH_MAX:
        raise InvalidInput(f"an embedding has 1 to {EMBEDDING_WIDTH_MAX} numbers")
    try:
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
    except OverflowError:
        raise InvalidInput("a number of the embedding is not finite in 32 bits") from None
    if not any(struct.unpack(f"<{len(numbers)}f", packed)):
        raise InvalidInput("the embedding is all zeros in 32 bits, and has no direction to compare by")
    return b64encode(packed).decode()


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


def turn_key(user_id: str, session_id: str, turn_id: str, revision: int = 0) -> str:
    """The idempotency key of a turn that has an id; a memory's is that of a turn."""
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


class _TurnIds(msgspec.Struct, frozen=True):
    """What is left of a turn, or a memory, that cannot be read."""

    id: str
    type: str
    revision: int = 0


def _keys_of_unreadable(
    payload: bytes, opened: Opened | None, user_id: str | None, session_id: str | None
) -> tuple[str | None, str | None]:
    """The key to wait for, and that of the turn's first revision, if the id of the turn can still be told."""
    if user_id is None or session_id is None:
        return None, None
    try:
        if opened is not None and opened.turn_id is not None:
            key = turn_key(user_id, session_id, opened.turn_id)
            return key, key
        ids = msgspec.json.decode(payload, type=_TurnIds)
        if ids.type not in ("turn", "memory"):
            return None, None
        return turn_key(user_id, session_id, ids.id, ids.revision), turn_key(user_id, session_id, ids.id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidInput):
        return None, None
