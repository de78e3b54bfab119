"""The day from which relative dates in a question count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

from events.errors import InvalidInput
from events.time import Instant, from_datetime

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReferenceDate:
    """What relative dates in a question count from: an instant, and the zone in which it is that day."""

    at: Instant
    zone: tzinfo = UTC


def read_reference(text: str | None) -> ReferenceDate | None:
    """A date, or an instant with its offset, whose day is that of the offset. Raises `InvalidInput`."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
        if _DAY.fullmatch(text):
            return ReferenceDate(from_datetime(when.replace(hour=12, tzinfo=UTC)))
        return ReferenceDate(from_datetime(when), when.tzinfo or UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            "reference_date is a date (2024-07-01), or an instant in ISO 8601 with its offset"
            " (2024-07-01T09:00:00Z)"
        ) from None
