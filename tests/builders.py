"""What tests are made of: events with sensible fields, a clock that is moved by hand, nonces from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b

from events.appending import Batch
from events.codec import Event
from events.dead_letters import DeadLetter
from events.envelope import BusPosition, Keys, NewEvent, RecordedEvent, Reference
from events.eventtree import NodesMerged, UnitMembers, UnitsPartitioned
from events.memory import (
    Admission,
    ExtractedFact,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    ParkReason,
    Pointer,
    Task,
    WorkParked,
    WorkResumed,
)
from events.session import (
    ChunkClosed,
    Erasure,
    SessionClosed,
    SessionForgotten,
    TimeSource,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserForgotten,
)
from events.time import Instant

# The secret of every store in the tests, so that references can be worked out beforehand.
SECRET = b"a secret that only the tests know"
KEYS = Keys(SECRET)
# 2024-07-01T09:00:00Z
MONDAY: Instant = 1_719_824_400_000


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: Instant = MONDAY) -> None:
        self.now = now

    def __call__(self) -> Instant:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms


def seeded_nonces(seed: int) -> Callable[[Reference], bytes]:
    """A source of nonces that depend on the seed and the event's key alone."""
    return lambda key: blake2b(key, key=seed.to_bytes(8, "big"), digest_size=16).digest()


def an_id(name: str) -> bytes:
    """A 16-byte id (fact, unit, chunk, digest) that is the same for the same name."""
    return blake2b(name.encode(), digest_size=16).digest()


def a_place(seq: int, stream: str = "MEMFOREST", epoch: str = "e1") -> BusPosition:
    return BusPosition(stream, epoch, seq)


def lineage_of(sessions: Iterable[str], user_id: str = "alice") -> tuple[Reference, ...]:
    return tuple(KEYS.session(user_id, session) for session in sessions)


def a_turn(
    content: str = "I moved to Miami.",
    *,
    user_id: str = "alice",
    session_id: str = "s1",
    turn_id: str = "t1",
    role: str = "user",
    name: str | None = "Alice",
    happened_at: Instant = MONDAY,
    bus: BusPosition | None = None,
) -> NewEvent:
    """A turn as it comes over the bus or the socket: without a basis."""
    return NewEvent(
        user_id=user_id,
        session_id=session_id,
        event=TurnRecorded(content=content, role=role, turn_id=turn_id, name=name),
        key=f"turn/{user_id}/{session_id}/{turn_id}/0",
        happened_at=happened_at,
        lineage=lineage_of([session_id], user_id),
        bus=bus,
    )


def a_revision(
    content: str,
    revision: int = 1,
    *,
    user_id: str = "alice",
    session_id: str = "s1",
    turn_id: str = "t1",
    role: str = "user",
    name: str | None = "Alice",
    happened_at: Instant | None = MONDAY,
    bus: BusPosition | None = None,
) -> NewEvent:
    """A later wording of the turn of this id. With `happened_at` None it came without a time, a day later."""
    first = a_turn(user_id=user_id, session_id=session_id, turn_id=turn_id)
    event = TurnRevised(
        turn=KEYS.key(first.key),
        revision=revision,
        content=content,
        role=role,
        turn_id=turn_id,
        name=name,
        time_source=TimeSource.BUS if happened_at is None else TimeSource.GIVEN,
    )
    return NewEvent(
        user_id=user_id,
        session_id=session_id,
        event=event,
        key=f"turn/{user_id}/{session_id}/{turn_id}/{revision}",
        happened_at=MONDAY + 86_400_000 if happened_at is None else happened_at,
        lineage=first.lineage,
        bus=bus,
        time_assigned=happened_at is None,
    )


def a_retraction(
    turn_id: str = "t1", session_id: str = "s1", *, user_id: str = "alice", bus: BusPosition | None = None
) -> NewEvent:
    """The wish to take back the turn of this id, in whatever wording."""
    first = a_turn(user_id=user_id, session_id=session_id, turn_id=turn_id)
    return NewEvent(
        user_id=user_id,
        session_id=session_id,
        event=TurnRetracted(KEYS.key(first.key)),
        key=f"retract/{first.key}",
        happened_at=MONDAY,
        lineage=first.lineage,
        bus=bus,
        time_assigned=True,
    )


def a_closing(session_id: str = "s1", *, user_id: str = "alice", key: str = "1") -> NewEvent:
    return _about_session(SessionClosed(), f"close/{user_id}/{session_id}/{key}", user_id, session_id)


def a_closed_chunk(last_turn: int, session_id: str = "s1", *, user_id: str = "alice", basis: int = 0) -> NewEvent:
    key = f"chunk/{user_id}/{session_id}/{last_turn}"
    return _about_session(ChunkClosed(last_turn), key, user_id, session_id, basis)


def a_forgetting(session_id: str = "s1", *, user_id: str = "alice", key: str | None = None) -> NewEvent:
    """The wish to forget is no part of what is forgotten: it has no lineage."""
    return NewEvent(
        user_id=user_id,
        session_id=session_id,
        event=SessionForgotten(),
        key=key or f"forget/{user_id}/{session_id}",
        happened_at=MONDAY,
        time_assigned=True,
    )


def a_user_forgetting(user_id: str = "alice") -> NewEvent:
    return NewEvent(
        user_id=user_id,
        session_id=None,
        event=UserForgotten(),
        key=f"forget_user/{user_id}",
        happened_at=MONDAY,
        time_assigned=True,
    )


def an_extraction(
    turns: tuple[int, ...],
    texts: tuple[str, ...] = ("Alice moved to Miami.",),
    *,
    session_id: str = "s1",
    user_id: str = "alice",
    basis: int = 0,
    context: tuple[int, ...] = (),
    covers: tuple[int, ...] | None = None,
) -> NewEvent:
    """A model's answer about one chunk, asked when the user's log stood at `basis`."""
    event = FactsExtracted(
        generation=1,
        chunk=an_id(f"chunk {turns}"),
        turns=turns,
        context=context,
        covers=turns if covers is None else covers,
        replaces=None,
        model="offline",
        facts=tuple(ExtractedFact(text, (0,), MONDAY, MONDAY) for text in texts),
    )
    return _about_session(event, f"extraction/{user_id}/{session_id}/{turns}", user_id, session_id, basis)


def a_parking(
    turns: tuple[int, ...], session_id: str = "s1", *, user_id: str = "alice", basis: int = 0
) -> NewEvent:
    event = WorkParked(Task.EXTRACT, an_id(f"request {turns}"), ParkReason.MODEL_FAILED, turns, turns)
    return _about_session(event, f"parked/{user_id}/{session_id}/{turns}", user_id, session_id, basis)


def a_resuming(parking: NewEvent, seq: int, *, basis: int = 0) -> NewEvent:
    """The wish that what was parked by the event at a seq be tried again."""
    parked = parking.event
    assert isinstance(parked, WorkParked)
    event = WorkResumed(seq, parked.task, parked.request, parked.turns, parked.covers)
    return replace(parking, event=event, key=f"resumed/{seq}", basis=basis)


def an_admission(
    occurrence: Pointer, sessions: Iterable[str] = ("s1",), *, user_id: str = "alice", basis: int | None = 0
) -> NewEvent:
    event = FactsAdmitted(1, (Admission(an_id(f"fact {occurrence}"), occurrence),))
    return _from_sessions(event, f"admission/{user_id}/{occurrence}/{basis}", user_id, sessions, basis)


def a_summary(
    text: str = "Alice's move to Miami.",
    sessions: Iterable[str] = ("s1",),
    *,
    user_id: str = "alice",
    node: str = "node",
    sources: tuple[int, ...] = (),
    basis: int = 0,
) -> NewEvent:
    event = IntervalSummarised(1, an_id(node), sources, "offline", text)
    return _from_sessions(event, f"summary/{user_id}/{node}", user_id, sessions, basis)


def a_partition(sessions: Iterable[str] = ("s1",), *, user_id: str = "alice", basis: int = 0) -> NewEvent:
    event = UnitsPartitioned(1, (UnitMembers(an_id("unit"), (an_id("fact 1"), an_id("fact 2"))),))
    return _from_sessions(event, f"partition/{user_id}/{basis}", user_id, sessions, basis)


def a_merge(
    text: str = "Alice lives in Miami.",
    sessions: Iterable[str] = ("s1",),
    *,
    user_id: str = "alice",
    sources: tuple[int, ...] = (),
    basis: int = 0,
) -> NewEvent:
    event = NodesMerged(1, an_id("unit"), (an_id("fact 1"), an_id("fact 2")), sources, "offline", text)
    return _from_sessions(event, f"merge/{user_id}/{basis}", user_id, sessions, basis)


def an_erasure(*, words: int = 0, names: int = 0) -> Erasure:
    """What a receipt says of an erasing that took so many words and names."""
    return Erasure(
        first=0,
        last=0,
        turns=0,
        extractions=0,
        summaries=0,
        groups=0,
        decisions=0,
        words=words,
        names=names,
        dead_letters=0,
        bus_erased=0,
        bus_left=0,
        bus_left_until=None,
        tombstoned=True,
        admitted_again=0,
        scanned_files=0,
        scanned_bytes=0,
        windows=0,
        sampled=True,
        residues=0,
    )


def a_dead_letter(
    payload: bytes = b"no JSON",
    *,
    seq: int = 1,
    user_id: str | None = "alice",
    session_id: str | None = "s1",
) -> DeadLetter:
    subject = f"memforest.turns.{user_id}.{session_id}"
    return DeadLetter(
        subject, payload, "the message is not valid JSON in UTF-8", a_place(seq), user_id, session_id
    )


def a_batch(*events: NewEvent, letters: tuple[DeadLetter, ...] = (), read_to: int | None = None) -> Batch:
    return Batch(events, letters, None if read_to is None else a_place(read_to))


def as_recorded(new: NewEvent, user_seq: int, *, seq: int | None = None, erased: bool = False) -> RecordedEvent:
    """The event as the fold reads it from the log (seq = user_seq unless given), its words erased or not."""
    assert new.user_id is not None
    session = new.session if new.session_id is None else KEYS.session(new.user_id, new.session_id)
    key = KEYS.key(new.key)
    return RecordedEvent(
        seq=seq or user_seq,
        user=KEYS.user(new.user_id),
        user_seq=user_seq,
        session=session,
        user_id=new.user_id,
        session_id=None if erased else new.session_id,
        type=new.event.wire_name,
        version=new.event.version,
        key=key,
        happened_at=new.happened_at,
        recorded_at=new.happened_at,
        caused_by=new.caused_by,
        lineage=tuple(sorted(set(new.lineage))),
        basis=new.basis,
        bus_stream=None,
        bus_seq=None,
        nonce=b"" if erased else seeded_nonces(1)(key),
        event=None if erased else new.event,
    )


def _about_session(event: Event, key: str, user_id: str, session_id: str, basis: int | None = None) -> NewEvent:
    return NewEvent(
        user_id=user_id,
        session_id=session_id,
        event=event,
        key=key,
        happened_at=MONDAY,
        lineage=lineage_of([session_id], user_id),
        basis=basis,
    )


def _from_sessions(event: Event, key: str, user_id: str, sessions: Iterable[str], basis: int | None) -> NewEvent:
    return NewEvent(
        user_id=user_id,
        session_id=None,
        event=event,
        key=key,
        happened_at=MONDAY,
        lineage=lineage_of(sessions, user_id),
        basis=basis,
    )
