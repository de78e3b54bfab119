"""The envelope of an event, fixed for ever (design 3.1), and the hashes that bind it.

References stand for names, commitments for words, and the chain for the order of one user's events.
Erasing deletes rows of `words` and `names` and nothing that is hashed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

from events.codec import Event
from events.time import Instant

# Keyed hash of a name (user, session, key): 16 bytes.
Reference: TypeAlias = bytes
REFERENCE_BYTES = 16
HASH_BYTES = 32
# The chain and the running hash start here.
GENESIS = bytes(HASH_BYTES)


@dataclass(frozen=True, slots=True)
class BusPosition:
    """A place on the bus: stream, epoch and sequence; as a checkpoint, everything up to it was read.

    The epoch is the stream's time of creation as the server writes it, and `#n` after the n-th time its store
    was found rolled back: the server then gives used sequence numbers to other messages. `at` is the bus's time of
    the message there, where it is known: another time under the number is such a rollback.
    """

    stream: str
    epoch: str
    seq: int
    at: Instant | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event before it has a place in the log.

    `user` and `session` stand in place of the ids when their names are erased.

    `key` makes it unique for ever. `lineage` names every session whose words went into it, by reference.
    `basis` is the user_seq it was planned from; None for what comes over the bus or the socket.
    """

    user_id: str | None
    session_id: str | None
    event: Event
    key: str
    happened_at: Instant
    lineage: tuple[Reference, ...] = ()
    basis: int | None = None
    caused_by: int | None = None
    bus: BusPosition | None = None
    user: Reference = b""
    session: Reference | None = None
    # It may begin a forgotten session or user anew, if the bus had it after the forgetting.
    reopens: bool = False
    # The time was given on arrival, so another copy of the same message may carry another.
    time_assigned: bool = False


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of the log. `event` is None once its words are erased."""

    seq: int
    user: Reference
    user_seq: int
    session: Reference | None
    user_id: str | None
    session_id: str | None
    type: str
    version: int
    key: Reference
    happened_at: Instant
    recorded_at: Instant
    caused_by: int | None
    lineage: tuple[Reference, ...]
    basis: int | None
    bus_stream: str | None
    bus_seq: int | None
    nonce: bytes
    event: Event | None


def _absorb(parts: Iterable[bytes], *, person: bytes, key: bytes = b"", size: int = HASH_BYTES) -> bytes:
    """Hash of length-prefixed parts, so that no two different lists run together."""
    framed = b"".join([len(part).to_bytes(8, "big") + part for part in parts])
    return blake2b(framed, key=key, digest_size=size, person=person).digest()


def make_reference(secret: bytes, kind: str, *names: str) -> Reference:
    """The reference of a name under the store's secret; `names` lead from the outside in (user, session)."""
    parts = [kind.encode(), *(name.encode() for name in names)]
    return _absorb(parts, person=b"mf.reference", key=secret, size=REFERENCE_BYTES)


@dataclass(frozen=True, slots=True)
class Keys:
    """How names become references in this store."""

    secret: bytes

    def user(self, user_id: str) -> Reference:
        """The reference of a user."""
        return make_reference(self.secret, "user", user_id)

    def session(self, user_id: str, session_id: str) -> Reference:
        """The reference of a session; sessions of two users never share one."""
        return make_reference(self.secret, "session", user_id, session_id)

    def key(self, key: str) -> Reference:
        """The reference of an idempotency key."""
        return make_reference(self.secret, "key", key)


def identify(person: bytes, *parts: bytes) -> bytes:
    """A 16-byte id made of parts that are themselves references, ids or numbers; never of words alone."""
    return _absorb(parts, person=person, size=REFERENCE_BYTES)


def identify_each(person: bytes, parts: Iterable[bytes]) -> list[bytes]:
    """`identify` of each part by itself, three times faster."""
    begun = blake2b(digest_size=REFERENCE_BYTES, person=person)
    ids: list[bytes] = []
    for part in parts:
        hashed = begun.copy()
        hashed.update(len(part).to_bytes(8, "big") + part)
        ids.append(hashed.digest())
    return ids


def commit_to(nonce: bytes, words: Sequence[bytes]) -> bytes:
    """The commitment to one event's words in UTF-8; the nonce keeps guessable sentences from being guessed."""
    return _absorb([nonce, *words], person=b"mf.commitment")


def link(previous: bytes, envelope: Iterable[bytes | int | str | None]) -> bytes:
    """The next value of a chain: hash of the previous one and all fields of the envelope in order."""
    parts = [previous]
    for each in envelope:
        if each is None:
            parts.append(b"-")
        elif isinstance(each, bytes):
            parts.append(b"b" + each)
        elif isinstance(each, str):
            parts.append(b"s" + each.encode())
        else:
            parts.append(b"i%d" % each)
    return _absorb(parts, person=b"mf.chain")
