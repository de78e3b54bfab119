"""What a sentence says about time, resolved against the moment it was said, by regular expressions.

English in full, the basics of German, French and Spanish here, Chinese and Japanese in `dates_east`.
Precision is the day, in UTC. When in doubt a text has no date: a wrong one is worse than the turn's own time.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from daemon.offline import date_words as words
from daemon.offline import dates_east
from daemon.offline.date_rules import DURATIONS, RULES
from daemon.offline.spans import Span, period

if TYPE_CHECKING:
    from daemon.offline.date_words import Rule

from events.time import Instant, from_datetime, to_datetime

# A year before this, or further ahead than this, is a number and no date; nothing ever falls back to 1970.
YEAR_MIN: Final = 1900
YEARS_AHEAD_MAX: Final = 20


def find_interval(text: str, said_at: Instant) -> tuple[Instant, Instant] | None:
    """The interval that a sentence speaks of: start of its first day to end of its last, in milliseconds.

    None when it names no time. Of several dates the first counts, before any duration ("for 3 years").
    """
    present = _present(text)
    if present.isdisjoint(words.ALL_WORDS):
        return None
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    day = to_datetime(said_at).date()
    try:
        span = _first_span(text, day, present)
        return None if span is None else _bounds(span, day)
    except (OverflowError, ValueError):  # "5000 years ago": beyond the calendar
        return None


def find_written(text: str, said_at: Instant) -> list[tuple[int, int, Span]]:
    """Where in a text dates are written and which days they are, in order; of two at one place the longer one.

    Durations ("for 3 years") are none. `text` is composed (NFC); offsets are its own.
    """
    present = _present(text)
    if present.isdisjoint(words.ALL_WORDS):
        return []
    plain = text.replace("’", "'")
    due = [rule for rule in RULES if not present.isdisjoint(rule.needs)]
    ahead = words.FUTURE.search(plain) is not None
    written: list[tuple[int, int, Span]] = []
    try:
        for start, minus_end, span in _matches(due, plain, to_datetime(said_at).date(), ahead=ahead):
            if not written or start >= written[-1][1]:
                written.append((start, -minus_end, span))
    except (OverflowError, ValueError):  # beyond the calendar
        return []
    return written


def may_name_time(text: str) -> bool:
    """Whether any word or sign of a text, or of its sentences, could be part of a date; most texts end here."""
    return not _present(text).isdisjoint(words.ALL_WORDS)


def _bounds(span: Span, day: date) -> tuple[Instant, Instant] | None:
    """First and last millisecond of a span in UTC, None outside the years that are believed."""
    if not YEAR_MIN <= span.first.year <= span.last.year <= day.year + YEARS_AHEAD_MAX:
        return None
    start = datetime(span.first.year, span.first.month, span.first.day, tzinfo=UTC)
    end = datetime(span.last.year, span.last.month, span.last.day, tzinfo=UTC) + timedelta(days=1)
    return from_datetime(start), from_datetime(end) - 1


def _present(text: str) -> set[str]:
    """The words of a text and the signs that it has digits or eastern time words; most sentences end here."""
    present = set(_TOKEN.findall(text.casefold()))
    if _DIGIT.search(text):
        present |= words.DIGIT
    if not text.isascii() and dates_east.HINT.search(text):
        present |= words.EAST
    return present


def _first_span(text: str, day: date, present: set[str]) -> Span | None:
    ahead = words.FUTURE.search(text) is not None
    for rules in (RULES, DURATIONS):
        due = [rule for rule in rules if not present.isdisjoint(rule.needs)]
        found = _matches(due, text, day, ahead=ahead)
        if found:
            return _in_context(text, day, found)
    return None


def _matches(rules: list[Rule], text: str, day: date, *, ahead: bool) -> list[tuple[int, int, Span]]:
    """(start, -end, span) of all matches that are dates, the earliest and longest first."""
    found: list[tuple[int, int, Span]] = []
    for rule in rules:
        for match in rule.pattern.finditer(text):
            span = rule.resolve(match, day, ahead=ahead)
            if span is not None:
                found.append((match.start(), -match.end(), span))
    return sorted(found, key=lambda one: one[:2])


def _in_context(text: str, day: date, found: list[tuple[int, int, Span]]) -> Span:
    """The first date, widened or moved by the words around it: since X, X to Y, the week before X."""
    start, end, span = found[0][0], -found[0][1], found[0][2]
    before = text[max(0, start - 40) : start]
    moved = _MOVED.search(before)
    if moved:
        unit = words.UNITS[moved["unit"].casefold()]
        anchor, offset = (span.first, -1) if moved["side"].casefold() == "before" else (span.last, 1)
        return period(unit, anchor, offset)
    since = _SINCE.search(before) or _SINCE_FIRST.match(text, start) or _SINCE_AFTER.match(text, end)
    if since and span.first <= day:
        return Span(span.first, max(day, span.first))
    for later_start, minus_end, later in found[1:]:
        del minus_end
        if later_start >= end and _TO.fullmatch(text, end, later_start) and later.last >= span.first:
            return Span(span.first, later.last)
    return span


_TOKEN = re.compile(r"[^\W\d_]+")
_DIGIT = re.compile(r"\d")
_MOVED = words.compiled(r"\b(?P<unit>day|week|weekend|month|year) (?P<side>before|after) (?:the |my |our )?$")
_SINCE_WORD = r"\b(?:since|seit|depuis|desde|ab)\s+"
_SINCE = words.compiled(rf"{_SINCE_WORD}(?:(?:the|dem|der|le|la|el|about|around|early|late|mid)\s+|l')?$")
_SINCE_FIRST = words.compiled(_SINCE_WORD)
_SINCE_AFTER = re.compile(r"\s*(?:份|起|以来|以來|开始|から)")
_TO = words.compiled(r"\s*(?:to|until|till|through|bis|au|à|al|a|hasta|到|至|-|–|—|~|から)\s*(?:the |el |le )?")
