"""What happens inside one append transaction, on the writer's thread.

Gate, sequence numbers, chain, words, names, registry, dead letters and the bus checkpoint stand or fall
together: a crash leaves either all of a batch or nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import index
from typing import TypeAlias

from events.bus_copies import note_copy, note_unwanted
from events.codec import encode_event
from events.dead_letters import DeadLetter, store_letter
from events.envelope import (
    GENESIS,
    BusPosition,
    Keys,
    NewEvent,
    RecordedEvent,
    Reference,
    commit_to,
    link,
)
from events.erasure import reopen
from events.errors import InvalidInput, MemForestError
from events.faults import fault_point
from events.gate import CHANGES_FACTS, Verdict, check_decision, judge
from events.names import write_names
from events.registry import index_event
from events.session import (
    MemoryImported,
    SessionForgotten,
    TurnConflicted,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserForgotten,
)
from events.time import Instant
from events.tombstones import forget_as_told, read_tombstones_of

# What a value that cannot be stored raises: a lone surrogate, an integer above 64 bits, text in place of a
# number, a missing session. It is the fault of its batch, not of the disk.
_UNWRITABLE = (
    ValueError,
    TypeError,
    OverflowError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


# Given the reference of an event's key, 16 bytes that nobody can guess. Tests derive them from a seed.
NonceSource: TypeAlias = Callable[[Reference], bytes]


@dataclass(frozen=True, slots=True)
class Batch:
    """What is written in one transaction: events, dead letters, and how far the bus has been read."""

    events: tuple[NewEvent, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()
    checkpoint: BusPosition | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one event of a batch. `seq` and `user_seq` are of the event that holds the key."""

    verdict: Verdict
    seq: int | None = None
    user_seq: int | None = None


def append_batches(
    connection: sqlite3.Connection, batches: list[Batch], keys: Keys, nonces: NonceSource, now: Instant
) -> tuple[list[tuple[Outcome, ...] | MemForestError], int]:
    """Write batches in one transaction (group commit): what became of each, and the last seq of the log.

    A batch that the gate turns away, or that cannot be written, leaves nothing behind and stops no other.
    Raises sqlite3.Error when nothing at all could be written.
    """
    results: list[tuple[Outcome, ...] | MemForestError] = []
    fault_point("append.before_begin")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for batch in batches:
            connection.execute("SAVEPOINT batch")
            try:
                results.append(_append_batch(connection, batch, keys, nonces, now))
            except MemForestError as error:
                connection.execute("ROLLBACK TO batch")
                results.append(error)
            except _UNWRITABLE as error:
                connection.execute("ROLLBACK TO batch")
                # Not its cause: a UnicodeEncodeError carries the whole text.
                results.append(InvalidInput(f"an event cannot be written ({type(error).__name__})"))
            connection.execute("RELEASE batch")
        (head,) = connection.execute("SELECT seq FROM head").fetchone()
        fault_point("append.before_commit")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    fault_point("append.after_commit")
    return results, head


def _append_batch(
    connection: sqlite3.Connection, batch: Batch, keys: Keys, nonces: NonceSource, now: Instant
) -> tuple[Outcome, ...]:
    for new in batch.events:
        check_decision(connection, new, _user_of(new, keys))
    outcomes = tuple(_append_event(connection, new, keys, nonces, now) for new in batch.events)
    for letter in batch.dead_letters:
        store_letter(connection, letter, keys, now)
    if batch.checkpoint is not None:
        connection.execute(
            "INSERT OR REPLACE INTO bus_checkpoint VALUES (?, ?, ?, ?)",
            (batch.checkpoint.stream, batch.checkpoint.epoch, batch.checkpoint.seq, batch.checkpoint.at),
        )
    return outcomes


def _append_event(
    connection: sqlite3.Connection, new: NewEvent, keys: Keys, nonces: NonceSource, now: Instant
) -> Outcome:
    user = _user_of(new, keys)
    session = new.session
    if new.user_id is not None and new.session_id is not None:
        session = keys.session(new.user_id, new.session_id)
    key = keys.key(new.key)
    judgement = judge(connection, new, user, session, key)
    if judgement.verdict is Verdict.RECORDED:
        if new.reopens:
            for tombstone in read_tombstones_of(connection, (user, session)):
                # Forgotten elsewhere and begun anew since: first the one, then the other.
                _append_event(connection, forget_as_told(tombstone), keys, nonces, now)
            reopen(connection, user, session)
        if isinstance(new.event, SessionForgotten | UserForgotten):
            new = _forgotten_again(connection, new, user, session)
            key = keys.key(new.key)
        recorded = _write_event(connection, new, (user, session, key), nonces(key), now)
        return Outcome(Verdict.RECORDED, recorded.seq, recorded.user_seq)
    if judgement.verdict is Verdict.REFUSED:
        connection.execute(
            "INSERT INTO refusals VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET count = count + 1", (key,)
        )
        if new.bus is not None:
            note_unwanted(connection, new.bus, judgement.subject)
        return Outcome(Verdict.REFUSED)
    if new.bus is not None:
        if judgement.subject is None:
            note_copy(connection, new.bus, judgement.holder or 0)
        else:
            note_unwanted(connection, new.bus, judgement.subject)
    said = isinstance(new.event, TurnRecorded | TurnRevised | MemoryImported)
    if judgement.verdict is Verdict.CONFLICTING and said:
        _record_conflict(connection, new, judgement.holder or 0, keys, nonces, now)
    (user_seq,) = connection.execute("SELECT user_seq FROM events WHERE seq = ?", (judgement.holder,)).fetchone()
    return Outcome(judgement.verdict, judgement.holder, user_seq)


def _forgotten_again(
    connection: sqlite3.Connection, new: NewEvent, user: Reference, session: Reference | None
) -> NewEvent:
    """What began anew and is forgotten once more needs another key than before."""
    row = connection.execute("SELECT forgotten FROM erasures WHERE subject = ?", (session or user,)).fetchone()
    return new if row is None else replace(new, key=f"{new.key}/{row[0]}")


def _user_of(new: NewEvent, keys: Keys) -> Reference:
    return new.user if new.user_id is None else keys.user(new.user_id)


def _record_conflict(
    connection: sqlite3.Connection,
    new: NewEvent,
    holder: int,
    keys: Keys,
    nonces: NonceSource,
    now: Instant,
) -> None:
    """Keep what a conflicting turn said, once a message: the first turn stands."""
    if isinstance(new.event, MemoryImported):
        conflicted = TurnConflicted(holder, new.event.content, "memory")
    else:
        assert isinstance(new.event, TurnRecorded | TurnRevised)
        conflicted = TurnConflicted(holder, new.event.content, new.event.role, new.event.name)
    place = "socket" if new.bus is None else f"{new.bus.stream}/{new.bus.epoch}/{new.bus.seq}"
    conflict = NewEvent(
        user_id=new.user_id,
        session_id=new.session_id,
        event=conflicted,
        key=f"conflict/{place}/{new.key}",
        happened_at=new.happened_at,
        lineage=new.lineage,
        caused_by=holder,
        bus=new.bus,
        time_assigned=True,
    )
    _append_event(connection, conflict, keys, nonces, now)


def _write_event(
    connection: sqlite3.Connection,
    new: NewEvent,
    references: tuple[Reference, Reference | None, Reference],
    nonce: bytes,
    now: Instant,
) -> RecordedEvent:
    user, session, key = references
    body, texts = encode_event(new.event)
    words = [text.encode() for text in texts]
    if not words:
        nonce = b""
    seq, running = connection.execute("SELECT seq + 1, running FROM head").fetchone()
    row = connection.execute("SELECT user_seq, chain FROM users WHERE user = ?", (user,)).fetchone()
    user_seq, previous = (1, GENESIS) if row is None else (row[0] + 1, row[1])
    lineage = tuple(sorted(set(new.lineage)))
    stream, epoch, bus_seq = (new.bus.stream, new.bus.epoch, new.bus.seq) if new.bus else (None, None, None)
    # numpy's integers would be stored as blobs, and the chain would never match again.
    happened_at = index(new.happened_at)
    caused_by = None if new.caused_by is None else index(new.caused_by)
    basis = None if new.basis is None else index(new.basis)
    fields = (
        seq, user, user_seq, session, new.event.wire_name, new.event.version, key, happened_at,
        now, caused_by, b"".join(lineage), basis, stream, epoch, bus_seq, body,
        commit_to(nonce, words),
    )  # fmt: skip
    chain = link(previous, fields)
    marks = ",".join("?" * (len(fields) + 1))
    connection.execute(f"INSERT INTO events VALUES ({marks})", (*fields, chain))
    fault_point("append.after_insert")
    connection.execute("UPDATE head SET seq = ?, running = ?", (seq, link(running, [chain])))
    _write_words(connection, seq, nonce, words)
    _write_names(connection, new, references)
    decided = user_seq if isinstance(new.event, CHANGES_FACTS) else 0
    connection.execute(
        """INSERT INTO users VALUES (?1, ?2, ?3, ?4, NULL) ON CONFLICT (user) DO UPDATE
           SET user_seq = ?2, decided = max(decided, ?3), chain = ?4""",
        (user, user_seq, decided, chain),
    )
    recorded = RecordedEvent(
        seq=seq, user=user, user_seq=user_seq, session=session, user_id=new.user_id,
        session_id=new.session_id, type=new.event.wire_name, version=new.event.version, key=key,
        happened_at=happened_at, recorded_at=now, caused_by=caused_by, lineage=lineage,
        basis=basis, bus_stream=stream, bus_seq=bus_seq,
        nonce=nonce, event=new.event,
    )  # fmt: skip
    index_event(connection, recorded, new.event)
    return recorded


def _write_words(connection: sqlite3.Connection, seq: int, nonce: bytes, words: list[bytes]) -> None:
    # Text is stored as UTF-8 bytes: TEXT with a NUL is cut by length() and damaged TEXT explodes on read.
    rows = [(seq, n, nonce, word) for n, word in enumerate(words)]
    connection.executemany("INSERT INTO words VALUES (?, ?, ?, ?)", rows)


def _write_names(
    connection: sqlite3.Connection,
    new: NewEvent,
    references: tuple[Reference, Reference | None, Reference],
) -> None:
    user, session, key = references
    # The key of a retraction spells the turn that is to leave no trace, and nobody reads it.
    rows = [] if isinstance(new.event, TurnRetracted) else [(key, "key", new.key.encode())]
    if new.user_id is not None:
        rows.append((user, "user", new.user_id.encode()))
    if session is not None and new.session_id is not None:
        rows.append((session, "session", new.session_id.encode()))
    write_names(connection, rows)
