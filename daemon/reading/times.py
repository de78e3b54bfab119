"""Times that a model read, made intervals by code: the model never sets the clock.

It may give an ISO date, month, year or interval, or the words of the text ("last Friday"). What it gives as a
number of seconds is refused, and what lies too far away: models invent 1970 and the days of their training.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from daemon.offline.sentences import split_sentences
from daemon.offline.spans import Span, one_day, whole_month, whole_year
from events.time import Instant, from_datetime, to_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator

Interval: TypeAlias = tuple[Instant, Instant]

# As long as anybody writes a time; what is longer is a sentence, or nonsense.
WHEN_CHARS_MAX: Final = 120
# Of the turns so much is read for their own dates.
SOURCE_CHARS_MAX: Final = 8_000
# People speak of their grandparents and of their plans; no further.
YEARS_BACK_MAX: Final = 150
YEARS_AHEAD_MAX: Final = 50
# A date that is not written in the text is believed within a year and a day of when it was said.
_UNWRITTEN_DAYS_MAX: Final = 366
# So near to a date of the text a date of the model means that one, wrongly counted.
_MISCOUNTED_DAYS_MAX: Final = 45
_DAY_MS: Final = 86_400_000
_MONTHS_PER_YEAR: Final = 12
_HOURS_PER_DAY: Final = 24


def resolve(when: str | None, said_at: Instant) -> Interval | None:
    """First and last millisecond of a time as a model gives it, words against the day it was said (UTC).

    None: not understood or not believed, so that the turn's own time counts. It is not checked whether the text
    says so; `resolve_in` does.
    """
    written = _tidied(when)
    if not written:
        return None
    try:
        found = _iso_interval(written, said_at)
        return None if found is None else _clamped(found, said_at)
    except (OverflowError, ValueError):  # 2023-02-30, or beyond the calendar
        return None


def resolve_in(when: str | None, said_at: Instant, source: str) -> Interval | None:
    """Like `resolve`, and the text of the turns (`source`) decides where it says something else.

    Words are believed as they are. A date in digits is believed when it is written in the text, when it meets one
    of the dates that the rules find in the text, or when it is the day it was said. Else:
    - the text has one sentence, with a date: that date counts;
    - one of the dates of several sentences is near (within 45 days), or differs in the year only: that one counts;
    - otherwise it may say something that the rules cannot read ("at Christmas"): believed within a year of when it
      was said, or when a number in the text tells the years between ("I was born 30 years before"); else None.
    """
    found = resolve(when, said_at)
    written = _tidied(when)
    if found is None or not _has_digits_only(written):
        return found
    source = source[:SOURCE_CHARS_MAX]
    if _is_written(found, source) or _meet(found, _day_of(said_at)):
        return found
    sentences = split_sentences(source)
    dates = list(_dates_of(sentences, said_at))
    if any(_meet(found, one) for one in dates):
        return found
    if dates:
        nearest = min(dates, key=lambda one: _days_between(found, one))
        if len(sentences) == 1 or _is_miscounted(found, nearest):
            return nearest
    near = _days_between(found, _day_of(said_at)) <= _UNWRITTEN_DAYS_MAX
    return found if near or _is_counted(found, said_at, source) else None


def _tidied(when: str | None) -> str:
    """What was given, on one line and without quotes around it; "" when it is too long for a time."""
    if not when or len(when) > WHEN_CHARS_MAX:
        return ""
    return " ".join(unicodedata.normalize("NFKC", when).split()).strip("\"'`[](){}<>.,;")


def _iso_interval(written: str, said_at: Instant) -> Interval | None:
    """The interval of an ISO date or of two, else of the words."""
    whole = _iso_one(written)
    if whole is not None:
        return whole
    for match in _BETWEEN.finditer(written):
        first, last = _iso_one(written[: match.start()]), written[match.end() :]
        if first is None:
            continue
        if last.casefold() in _OPEN:  # 2023-05-01/.. goes on
            end = max(first[1], _day_of(said_at)[1])
        else:
            head = _DATE_HEAD.match(written)
            second = _iso_one(last) or (_iso_one(head[0] + last) if head and _SHORT_DAY.fullmatch(last) else None)
            if second is None:
                continue
            end = second[1]
        return (first[0], end) if first[0] <= end else None
    if not any(one.isalpha() for one in written):
        # Digits and marks that are no ISO date: 8.5.2023 and 8/5/2023 the rules know, and no number of seconds.
        return _in_words(written, said_at) if _MARKED.search(written) else None
    decade = _DECADE.fullmatch(written)
    if decade:
        year = int(decade[1])
        return _bounds(Span(whole_year(year).first, whole_year(year + 9).last))
    return _in_words(written, said_at)


def _in_words(written: str, said_at: Instant) -> Interval | None:
    """What the rules of the languages make of words; "in two weeks" is ahead, as it stands alone."""
    from daemon.offline.dates import find_interval  # its patterns take 70 ms to compile

    return find_interval(written, said_at) or find_interval(f"will {written}", said_at)


def _iso_one(written: str) -> Interval | None:
    """A year, month, week, day or moment in ISO 8601, None when it is none. Raises `ValueError` out of range."""
    match = _iso().fullmatch(written.strip())
    if match is None:
        return None
    year = int(match["year"])
    if match["week"]:
        monday = date.fromisocalendar(year, int(match["week"]), int(match["weekday"] or 1))
        return _bounds(Span(monday, monday + timedelta(days=0 if match["weekday"] else 6)))
    if not match["month"]:
        return _bounds(whole_year(year))
    if not 1 <= int(match["month"]) <= _MONTHS_PER_YEAR:
        raise ValueError("no such month")
    if not match["day"]:
        return _bounds(whole_month(year, int(match["month"])))
    day = date(year, int(match["month"]), int(match["day"]))
    return _moment(match, day) if match["hour"] else _bounds(one_day(day))


def _moment(match: re.Match[str], day: date) -> Interval:
    """A time of day, as long as its last unit; midnight stands for the whole day, as models write days."""
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if (hour, minute, second) in ((0, 0, 0), (_HOURS_PER_DAY, 0, 0)):
        return _bounds(one_day(day))
    at = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)
    if match["sign"]:
        offset = timedelta(hours=int(match["offset_hour"]), minutes=int(match["offset_minute"] or 0))
        at = at - offset if match["sign"] == "+" else at + offset
    start = from_datetime(at)
    return start, start + (1_000 if match["second"] else 60_000) - 1


def _bounds(span: Span) -> Interval:
    return _at(span.first), _at(span.last) + _DAY_MS - 1


def _at(day: date) -> Instant:
    return from_datetime(datetime(day.year, day.month, day.day, tzinfo=UTC))


def _day_of(at: Instant) -> Interval:
    return _bounds(one_day(to_datetime(at).date()))


def _clamped(found: Interval, said_at: Instant) -> Interval | None:
    """The interval when it is believed at all."""
    start, end = found
    year = to_datetime(said_at).year
    if not year - YEARS_BACK_MAX <= to_datetime(start).year <= to_datetime(end).year <= year + YEARS_AHEAD_MAX:
        return None
    # The first day of the epoch is what a clock shows that was never set.
    unset = _at(date(1969, 12, 31)) <= start < _DAY_MS and end - start < _DAY_MS
    return None if end < start or unset else found


def _has_digits_only(written: str) -> bool:
    """Whether a time is a date in digits, as a model computes it, and no words of the text."""
    return not any(one.isalpha() and one not in "TZWtz" for one in written)


def _dates_of(sentences: list[str], said_at: Instant) -> Iterator[Interval]:
    from daemon.offline.dates import find_written

    for sentence in sentences:
        for _start, _end, span in find_written(unicodedata.normalize("NFC", sentence), said_at):
            yield _bounds(span)


def _is_written(found: Interval, source: str) -> bool:
    """Whether the text has the year in digits, as four or behind an apostrophe."""
    first, last = to_datetime(found[0]).year, to_datetime(found[1]).year
    years = {int(one or 0) for one in _YEAR.findall(unicodedata.normalize("NFKC", source))}
    return first in years or last in years


def _is_counted(found: Interval, said_at: Instant, source: str) -> bool:
    """Whether a number in the text says how many years lie between, give or take the birthday."""
    from daemon.reading.numbers import normal, values_in

    years = abs(to_datetime(found[0]).year - to_datetime(said_at).year)
    values = values_in(normal(source).casefold())
    return any(str(count) in values for count in (years - 1, years, years + 1) if count > 1)


def _is_miscounted(found: Interval, written: Interval) -> bool:
    """Whether a date means one of the text: near it, or the same day of another year."""
    one, other = to_datetime(found[0]), to_datetime(written[0])
    same_day = (one.month, one.day) == (other.month, other.day)
    return same_day or _days_between(found, written) <= _MISCOUNTED_DAYS_MAX


def _meet(one: Interval, other: Interval) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _days_between(one: Interval, other: Interval) -> int:
    return max(0, one[0] - other[1], other[0] - one[1]) // _DAY_MS


@cache
def _iso() -> re.Pattern[str]:
    """Also with unknown parts as EDTF writes them: 2023-05-XX."""
    zone = r"(?:[Zz]|\s?(?P<sign>[+-])(?P<offset_hour>\d{2}):?(?P<offset_minute>\d{2})?)?"
    hour = rf"[Tt ](?P<hour>\d{{2}}):(?P<minute>\d{{2}})(?::(?P<second>\d{{2}})(?:[.,]\d{{1,9}})?)?{zone}"
    week = r"-?[Ww](?P<week>\d{2})(?:-?(?P<weekday>[1-7]))?"
    month = rf"-(?P<month>\d{{2}})(?:-(?:(?P<day>\d{{2}})(?:{hour})?|[Xx?]{{2}}))?"
    unknown = r"-[Xx?]{2}(?:-[Xx?]{2})?"
    return re.compile(rf"(?P<year>[12]\d{{3}})(?:{week}|{month}|{unknown})?[~?]?", re.ASCII)


_BETWEEN = re.compile(r"\s*(?:/|\.\.|–|—|~|→|至|到)\s*|\s+(?:to|until|till|through|and|bis|au?|hasta|-)\s+")
_OPEN: Final = frozenset({"", "..", ".", "now", "present", "today", "ongoing"})
_DATE_HEAD = re.compile(r"\d{4}-\d{2}-(?=\d{2})|\d{4}-(?=\d{2}\b)")
_SHORT_DAY = re.compile(r"\d{2}")
_MARKED = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}")
_DECADE = re.compile(r"(?:in )?(?:the )?((?:19|20)\d0)'?s")
_YEAR = re.compile(r"(?<!\d)((?:1[89]|20)\d\d)(?!\d)")
