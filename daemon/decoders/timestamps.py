"""When something was said: ISO 8601, seconds or milliseconds; never the wall clock (design 4.1)."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Final

from daemon.decoders.native import Timestamp
from events.errors import InvalidInput
from events.session import TimeSource
from events.time import EARLIEST, LATEST, Instant, from_datetime

# Numbers above this are milliseconds: as seconds they would lie beyond the year 5138.
_MILLISECONDS_FROM: Final = 1e11


def read_time(stamp: Timestamp, published_at: Instant, zone: tzinfo) -> tuple[Instant, TimeSource]:
    """The instant of a timestamp and where it came from; raises `InvalidInput`.

    `published_at` (the bus's own time of the message) counts without a timestamp, `zone` without an offset.
    """
    if stamp is None:
        return published_at, TimeSource.BUS
    if isinstance(stamp, str):
        return _read_iso(stamp, zone)
    at = int(stamp) if abs(stamp) > _MILLISECONDS_FROM else round(stamp * 1000)
    return _in_range(at), TimeSource.GIVEN


def _read_iso(stamp: str, zone: tzinfo) -> tuple[Instant, TimeSource]:
    try:
        when = datetime.fromisoformat(stamp)
        given = when.tzinfo is not None
        at = from_datetime(when if given else when.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        raise InvalidInput(
            "timestamp is neither ISO 8601 (2024-07-01T09:00:00Z) nor epoch seconds or milliseconds"
        ) from None
    # An offset takes the first and the last day out of the range of what can be written in UTC.
    return _in_range(at), TimeSource.GIVEN if given else TimeSource.ZONE_ASSUMED


def _in_range(at: Instant) -> Instant:
    if not EARLIEST <= at <= LATEST:
        raise InvalidInput("timestamp lies outside the years 1 to 9999")
    return at
