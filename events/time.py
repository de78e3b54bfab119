"""Instants as the log keeps them: whole milliseconds since 1970 in UTC, and their ISO 8601 form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

# Whole milliseconds since 1970-01-01T00:00Z. An int survives JSON, SQLite and hashing unchanged.
Instant: TypeAlias = int

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What datetime can express: years 1 to 9999. Anything else is a mistake of the sender.
EARLIEST: Instant = -62_135_596_800_000
LATEST: Instant = 253_402_300_799_999


def to_iso(at: Instant) -> str:
    """ISO 8601 in UTC with `Z`, milliseconds only when there are any."""
    when = _EPOCH + timedelta(milliseconds=at)
    precision = "milliseconds" if at % 1000 else "seconds"
    return when.isoformat(timespec=precision).replace("+00:00", "Z")


def read_iso(text: str) -> Instant:
    """What `to_iso` wrote."""
    return from_datetime(datetime.fromisoformat(text))


def from_datetime(when: datetime) -> Instant:
    """The instant of an aware datetime; a naive one is a programming error."""
    if when.tzinfo is None:
        raise ValueError("a datetime without a zone is no instant")
    return (when - _EPOCH) // timedelta(milliseconds=1)


def to_datetime(at: Instant) -> datetime:
    """The aware datetime in UTC of an instant."""
    return _EPOCH + timedelta(milliseconds=at)
