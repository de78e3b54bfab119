"""Calendar arithmetic for the date rules: days, weeks, months, seasons and years around a given day.

Weeks begin on Monday (ISO 8601), seasons are the meteorological ones of the northern hemisphere.
Everything works on dates; an arithmetic overflow of the calendar raises `OverflowError` or `ValueError`.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["day", "week", "weekend", "month", "year"]

# Which one of many: the last before the day, the one that is meant without a word, the one after it.
LAST, THIS, NEXT = -1, 0, 1


@dataclass(frozen=True, slots=True)
class Span:
    """The days from `first` to `last`, both included."""

    first: date
    last: date


def one_day(day: date) -> Span:
    """A span of a single day."""
    return Span(day, day)


def whole_month(year: int, month: int) -> Span:
    """All days of a month."""
    return Span(date(year, month, 1), date(year, month, monthrange(year, month)[1]))


def whole_year(year: int) -> Span:
    """All days of a year."""
    return Span(date(year, 1, 1), date(year, 12, 31))


def period(unit: Unit, day: date, offset: int) -> Span:
    """The day, calendar week, weekend, month or year that lies `offset` units from the one of `day`.

    Weekend 0 is the present or coming one, weekend -1 the last that is over.
    """
    if unit == "day":
        return one_day(day + timedelta(days=offset))
    if unit == "month":
        months = day.year * 12 + day.month - 1 + offset
        return whole_month(months // 12, months % 12 + 1)
    if unit == "year":
        return whole_year(day.year + offset)
    monday = day - timedelta(days=day.weekday()) + timedelta(weeks=offset)
    if unit == "weekend":
        return Span(monday + timedelta(days=5), monday + timedelta(days=6))
    return Span(monday, monday + timedelta(days=6))


def weekday(day: date, number: int, which: int) -> Span:
    """A weekday (Monday is 0): the last one before `day`, the first one from `day` on, or next week's."""
    if which == LAST:
        return one_day(day - timedelta(days=(day.weekday() - number - 1) % 7 + 1))
    if which == THIS:
        return one_day(day + timedelta(days=(number - day.weekday()) % 7))
    return one_day(period("week", day, 1).first + timedelta(days=number))


def month_near(day: date, month: int, which: int) -> Span:
    """A month without its year: `THIS` may be the running one and never lies ahead, `LAST` is over."""
    this = whole_month(day.year, month)
    if which == NEXT:
        return this if this.first > day else whole_month(day.year + 1, month)
    if which == LAST:
        return this if this.last < day else whole_month(day.year - 1, month)
    return this if this.first <= day else whole_month(day.year - 1, month)


def day_near(day: date, month: int, number: int, *, ahead: bool) -> Span | None:
    """A day and month without the year: the last such day up to `day`, or the first from it on.

    None when the month has no such day; 29 February is looked for over eight years.
    """
    step = 1 if ahead else -1
    for year in range(day.year, day.year + 9 * step, step):
        if number <= monthrange(year, month)[1]:
            there = date(year, month, number)
            if there >= day if ahead else there <= day:
                return one_day(there)
    return None


def monthday_near(day: date, number: int, *, ahead: bool) -> Span | None:
    """A bare day of the month ("the 15th"): the last up to `day`, or the first from it on."""
    for offset in range(0, 3 if ahead else -3, 1 if ahead else -1):
        month = period("month", day, offset)
        if 1 <= number <= month.last.day:
            there = month.first.replace(day=number)
            if there >= day if ahead else there <= day:
                return one_day(there)
    return None


def season_of(year: int, number: int) -> Span:
    """A season of a year: 0 is spring (March to May), 3 the winter that begins in December."""
    first = whole_month(year, 3 + 3 * number).first
    return Span(first, period("month", first, 2).last)


def season_near(day: date, number: int, which: int) -> Span:
    """The last season of this name that is over, this year's, or the first that has not begun."""
    seasons = [season_of(year, number) for year in range(day.year - 2, day.year + 3)]
    if which == LAST:
        return [season for season in seasons if season.last < day][-1]
    if which == NEXT:
        return next(season for season in seasons if season.first > day)
    return next((s for s in seasons if s.first <= day <= s.last), seasons[2])


def exact_day(year: int, month: int, number: int) -> Span | None:
    """The day of a written date, None when the calendar has no such day."""
    try:
        return one_day(date(year, month, number))
    except ValueError:
        return None
