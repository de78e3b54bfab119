"""The time that a planner reads in a question, as recall understands it. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from events.time import from_datetime
from projections.recall.filters import Span
from projections.recall.time_question import Order, TimeKind, TimeQuestion

if TYPE_CHECKING:
    from daemon.chat.asking.planning import PlannedTime

_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?", re.ASCII)
_ORDERS = {
    TimeKind.FIRST: Order.EARLIEST_FIRST,
    TimeKind.LAST: Order.LATEST_FIRST,
    TimeKind.LATEST: Order.LATEST_FIRST,
}


def time_of(planned: PlannedTime, question: str) -> TimeQuestion | None:
    """What a question asks of time; None for nothing, and for days that there are not."""
    if planned.kind not in set(TimeKind):
        return None
    kind = TimeKind(planned.kind)
    start, end = _read_date(planned.start), _read_date(planned.end)
    span = None
    if start is not None or end is not None:
        first, last = start or end, end or start
        assert first is not None
        assert last is not None
        if first[0] < last[1]:
            span = Span(from_datetime(first[0]), from_datetime(last[1]))
    rest = " ".join(question.replace(planned.anchor, " ").split()) if planned.anchor else question
    return TimeQuestion(kind, span, planned.anchor or None, _ORDERS.get(kind), rest)


def _read_date(text: str) -> tuple[datetime, datetime] | None:
    """Start and end (not included) of a year, a month or a day."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = match.groups()
    try:
        start = datetime(int(year), int(month or 1), int(day or 1), tzinfo=UTC)
        if day is not None:
            return start, start + timedelta(days=1)
        if month is not None:
            return start, datetime(start.year + start.month // 12, start.month % 12 + 1, 1, tzinfo=UTC)
        return start, datetime(start.year + 1, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
