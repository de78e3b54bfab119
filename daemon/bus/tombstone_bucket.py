"""A NATS key-value bucket of tombstones: what was forgotten, for a log that is restored from before.

It holds references under the secret of one store, which backups carry, and times; never a name. Not here:
when tombstones are written, and what a restored log does with them.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from daemon.bus.bus_messages import BusForbidden, BusMessage, BusRefused, BusUnavailable, PublishOutcomeUnknown
from daemon.bus.jetstream_api import (
    DUPLICATE_WINDOW_S,
    NANOSECONDS,
    STREAM_NAME_IN_USE,
    STREAM_NOT_FOUND,
    StreamReply,
)
from daemon.bus.nats_bus import NatsBus
from events.envelope import REFERENCE_BYTES
from events.errors import InvalidInput
from events.time import LATEST
from events.tombstones import Tombstone

_BUCKET_NAME = re.compile(r"[A-Za-z0-9_-]+")
# How a removed key shows (NATS ADR-8): nats-server keeps a marker in its place.
_OPERATION: Final = "KV-Operation"


class BucketMissing(BusUnavailable):
    """There is no tombstone bucket of this name on the server; make it, or correct the name."""


class TombstonesUnreadable(BusUnavailable):
    """Something in the tombstone bucket is not a tombstone; correct or remove that key and read again."""


class _Value(msgspec.Struct, frozen=True):
    """A tombstone's value in JSON: the user's reference in hexadecimal digits, and milliseconds."""

    user: str
    forgotten_at: int


class TombstoneBucket:
    """One bucket over the bus's connection, as `nats kv` sees it too."""

    def __init__(self, bus: NatsBus, bucket_name: str) -> None:
        """Raises InvalidInput for a name that no bucket can have."""
        if not _BUCKET_NAME.fullmatch(bucket_name):
            raise InvalidInput("a bucket's name has the characters A-Z a-z 0-9 _ -")
        self._bus = bus
        self._name = bucket_name
        self._stream = f"KV_{bucket_name}"
        self._prefix = f"$KV.{bucket_name}."

    async def create(self) -> None:
        """Make the bucket unless there is one, which is left as it is.

        Raises BusUnavailable, also for a bucket that does not keep its tombstones.
        """
        try:
            stream = await self._look()
        except BucketMissing:
            stream = await self._make()
        if stream.config.max_age != 0 or stream.config.storage != "file":
            raise BusUnavailable(f"the bucket {self._name} lets tombstones go: keep it in files, without a TTL")

    async def check(self) -> None:
        """Raise BusUnavailable (BucketMissing, BusForbidden) unless the bucket can be seen."""
        await self._look()

    async def put(self, tombstone: Tombstone) -> None:
        """Store a tombstone; again is the same, and the last one of a key counts.

        Raises BusUnavailable, as BucketMissing or BusForbidden where it is known.
        """
        value = _Value(tombstone.user.hex(), tombstone.forgotten_at)
        try:
            stored = await self._bus.publish(self._prefix + _key_of(tombstone), msgspec.json.encode(value))
        except BusForbidden:
            raise BusForbidden(f"our user may not write to the bucket {self._name}") from None
        except (BusRefused, PublishOutcomeUnknown):
            raise
        except BusUnavailable:
            await self._look()  # it knows better when the bucket is missing
            raise
        if stored.stream != self._stream:
            raise BusUnavailable(f"the stream {stored.stream} takes the tombstones of the bucket {self._name}")

    async def read_all(self) -> tuple[Tombstone, ...]:
        """The tombstones of the bucket, oldest first, each session and user once.

        It is read in pages, and in memory as a whole at the end: less than 1 kB a tombstone. Raises
        BusUnavailable, BucketMissing without a bucket, BusForbidden when we may not read it,
        TombstonesUnreadable when it holds something else (all three are a BusUnavailable).
        """
        await self._look()
        found: dict[str, Tombstone] = {}
        for message in await self._bus.read_to_end(self._stream, (f"{self._prefix}>",)):
            # A bucket with more history than ours has several of a key; a later one stands behind.
            found.pop(message.subject, None)
            if _OPERATION not in message.headers:
                found[message.subject] = read_tombstone(message, self._prefix)
        return tuple(found.values())

    async def _make(self) -> StreamReply:
        configuration = bucket_configuration(self._stream, f"{self._prefix}>")
        try:
            return await self._bus.ask(f"STREAM.CREATE.{self._stream}", configuration, StreamReply)
        except BusRefused as race:
            if race.error_code != STREAM_NAME_IN_USE:
                raise
            return await self._look()

    async def _look(self) -> StreamReply:
        try:
            return await self._bus.ask(f"STREAM.INFO.{self._stream}", {}, StreamReply)
        except BusRefused as refusal:
            if refusal.error_code != STREAM_NOT_FOUND:
                raise
            raise BucketMissing(f"there is no key-value bucket {self._name}") from None


def bucket_name(stream: str) -> str:
    """The bucket of a stream's tombstones."""
    return f"{stream}_TOMBSTONES"


def _key_of(tombstone: Tombstone) -> str:
    """Its key in the bucket: one session or user has one tombstone, the last that was put."""
    kind = "user" if tombstone.session is None else "session"
    return f"{kind}.{tombstone.subject.hex()}"


def bucket_configuration(stream: str, subjects: str) -> dict[str, object]:
    """The stream of a key-value bucket with a history of one (NATS ADR-8) that keeps all keys for ever."""
    return {
        "name": stream,
        "subjects": [subjects],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "max_consumers": -1,
        "num_replicas": 1,
        "duplicate_window": DUPLICATE_WINDOW_S * NANOSECONDS,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    }


def read_tombstone(message: BusMessage, prefix: str) -> Tombstone:
    """The tombstone of one message of the bucket. Raises TombstonesUnreadable."""
    kind, _, digits = message.subject.removeprefix(prefix).partition(".")
    try:
        reference = bytes.fromhex(digits)
        value = msgspec.json.decode(message.payload, type=_Value)
        user = bytes.fromhex(value.user)
    except (ValueError, msgspec.MsgspecError):
        raise _unreadable(message) from None
    if not 0 <= value.forgotten_at <= LATEST:
        raise _unreadable(message)
    tombstone = Tombstone(reference if kind == "session" else None, user, value.forgotten_at)
    if _key_of(tombstone) != f"{kind}.{digits}" or {len(reference), len(user)} != {REFERENCE_BYTES}:
        raise _unreadable(message)
    return tombstone


def _unreadable(message: BusMessage) -> TombstonesUnreadable:
    # Not its key: whoever wrote it may have written a name.
    return TombstonesUnreadable(f"message {message.stream_seq} of {message.stream} is not a tombstone")
