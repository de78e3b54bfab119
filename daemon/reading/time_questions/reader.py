"""What a question asks of time, by rule: English, German, French, Spanish, Chinese and Japanese.

Dates are read by the rules that read them in what was said. In doubt a question asks of no time: it is then found
as any other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from daemon.offline.sentences import word_set
from daemon.offline.spans import Span as Days
from daemon.reading.time_questions import words
from events.time import Instant, from_datetime, to_datetime
from projections.recall.filters import Span
from projections.recall.time_question import Order, TimeKind, TimeQuestion

# So much of a question is read, from its end: what stands before is pasted.
QUESTION_CHARS_MAX: Final = 600
# As far from a date as the word that says on which side of it.
_BESIDE_MAX: Final = 30
# An anchor is a few words; what is longer is a story.
_ANCHOR_CHARS_MAX: Final = 120

_ORDERS: Final = {
    TimeKind.FIRST: Order.EARLIEST_FIRST,
    TimeKind.LAST: Order.LATEST_FIRST,
    TimeKind.LATEST: Order.LATEST_FIRST,
    TimeKind.HOW_OFTEN: Order.EARLIEST_FIRST,
}
_SIDES: Final = (
    (TimeKind.BEFORE, words.BEFORE, words.BEFORE_BEHIND),
    (TimeKind.AFTER, words.AFTER, words.AFTER_BEHIND),
    (TimeKind.SINCE, words.SINCE, words.SINCE_BEHIND),
    (TimeKind.AT, words.WHILE, words.WHILE_BEHIND),
)
# Beside an anchor, and where a state is asked for, a side means the state next to it.
_NEIGHBOUR: Final = {TimeKind.BEFORE: TimeKind.PREDECESSOR, TimeKind.AFTER: TimeKind.SUCCESSOR}
_ASKED: Final = (
    (TimeKind.HOW_OFTEN, words.HOW_OFTEN),
    (TimeKind.WHEN, words.AGO),
    (TimeKind.HOW_LONG, words.HOW_LONG),
    (TimeKind.WHEN, words.WHEN),
)
_CHOSEN: Final = (
    (TimeKind.PREDECESSOR, words.PREVIOUS),
    (TimeKind.SUCCESSOR, words.NEXT),
    (TimeKind.FIRST, words.FIRST),
    (TimeKind.LATEST, words.LATEST),
    (TimeKind.LAST, words.LAST),
)
_LAST_VERB: Final = re.compile(r"\s+(?:gewohnt|gelebt|gearbeitet|gefahren|gehabt|benutzt)\s*$", re.IGNORECASE)
_ENDS: Final = ((TimeKind.FIRST, words.FIRST), (TimeKind.LAST, words.LAST))
# "How long did the concert last?" asks for no last one.
_LASTING: Final = re.compile(r"\blast\W*$")
_CLAUSE_END: Final = re.compile(r"[,;?!，；？！。、]|\.\s")
_SENTENCE_END: Final = re.compile(r"(?<=[?？])\s*|(?<=[.!。！])\s+|\n+")
# What joins two days: 3 May and 5 May, Monday to Friday.
_JOINED: Final = re.compile(
    r"\s*(?:and|to|until|till|und|bis|et|au?|à|jusqu'(?:au?|en)|y|al?|hasta|和|与|與|到|至|から|と|-|–|—)\s*"
    r"(?:the |dem |der |le |la |el )?",
    re.IGNORECASE,
)
_SIDES_OF_DATES: Final = (
    (
        TimeKind.BEFORE,
        re.compile(rf"(?:{words.BEFORE.pattern})\s*(?:the |dem |der |le |el |la )?$", re.IGNORECASE),
    ),
    (TimeKind.AFTER, re.compile(rf"(?:{words.AFTER.pattern})\s*(?:the |dem |der |le |el |la )?$", re.IGNORECASE)),
    (TimeKind.SINCE, re.compile(rf"(?:{words.SINCE.pattern})\s*(?:the |dem |der |le |el |la )?$", re.IGNORECASE)),
)
_MOVED: Final = re.compile(
    r"\b(?:(?P<number>one|two|three|four|five|six|seven|eight|nine|ten|\d{1,2}) |the |a )?(?:last )?"
    r"(?P<unit>(?:mon|tues|wednes|thurs|fri|satur|sun)day|days?|weeks?|weekends?|months?|years?)"
    r" (?P<side>before|after) (?:the )?$",
    re.IGNORECASE,
)
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_BEHIND_DATES: Final = (
    (TimeKind.BEFORE, re.compile(r"\s*(?:之前|以前|より前|前)")),
    (TimeKind.AFTER, re.compile(r"\s*(?:之后|以后|之後|以後|后|の後|より後)")),
    (TimeKind.SINCE, re.compile(r"\s*(?:以来|以來|から|起)")),
)


class _Dates(NamedTuple):
    """The days that a question names, on which side of them it asks, and the question without them."""

    kind: TimeKind
    span: Span
    rest: str


def read_time_question(question: str, reference: Instant, zone: tzinfo = UTC) -> TimeQuestion | None:
    """What a question asks of time; None when it asks of none.

    Relative dates count to the day of `reference` in `zone`; days are those of UTC, as everywhere. Never raises.
    """
    text = unicodedata.normalize("NFC", question[-QUESTION_CHARS_MAX:]).replace("’", "'")
    text = _last_question(text)
    dates = _read_dates(text, reference, zone)
    rest = (text if dates is None else dates.rest).lower()
    several = words.ASKS_FIRST.match(rest) is not None and words.ASKS_MORE.search(rest) is not None
    kind, rest = _read_kind(rest)
    if several:  # a time of one part would put the memories for the others behind
        return TimeQuestion(kind, rest=rest) if kind is TimeKind.WHEN else None
    side, anchor, bare = _read_anchor(rest)
    attribute = _attribute_of(bare)
    span = None if dates is None else dates.span
    if span is None and anchor is not None and side is not None and (digits := _read_digits(anchor, reference)):
        dates, span, anchor = _Dates(side, digits, bare), digits, None
    of_self = bool(words.OWN.search(bare) or words.OWN_VERB.search(bare))
    found = TimeQuestion(
        kind=kind or TimeKind.AT, span=span, anchor=anchor, rest=bare.strip(), attribute=attribute, of_self=of_self
    )
    if kind is not None:
        said = _LASTING.sub("", bare) if kind is TimeKind.HOW_LONG else bare
        end = next((kind for kind, pattern in _ENDS if pattern.search(said)), kind)
        return replace(found, order=_ORDERS.get(end))
    if dates is not None:
        return replace(found, kind=dates.kind)
    if side is not None:
        return replace(found, kind=_NEIGHBOUR.get(side, side) if attribute else side)
    chosen = next((kind for kind, pattern in _CHOSEN if pattern.search(bare)), None)
    if chosen is not None:
        return replace(found, kind=chosen, order=_ORDERS.get(chosen))
    if attribute and (words.TODAY.search(text.lower()) or not words.PAST.search(bare)):
        return replace(found, kind=TimeKind.LATEST)
    return None


def _read_kind(text: str) -> tuple[TimeKind | None, str]:
    """What a question asks for in so many words ("how often"), and the question without them."""
    for kind, pattern in _ASKED:
        asked = pattern.search(text)
        if asked is not None:
            return kind, _without(text, asked.start(), asked.end())
    return None, text


def _last_question(text: str) -> str:
    """The last sentence that says something: what stands before it tells what it is about, not when."""
    sentences = [each for each in _SENTENCE_END.split(text) if any(map(str.isalnum, each))]
    asked = [each for each in sentences if each.rstrip().endswith(("?", "？"))]
    return (asked or sentences or [text])[-1]


@cache
def load_dates() -> Callable[[str, Instant], list[tuple[int, int, Days]]]:
    """What finds the dates in a text. Its patterns take 70 ms to compile, once a process: best off the loop."""
    from daemon.offline.dates import find_written

    return find_written


def _read_dates(text: str, reference: Instant, zone: tzinfo) -> _Dates | None:
    """The first day or days that a question names; `today` is none, it says "now"."""
    find_written = load_dates()
    try:
        today = to_datetime(reference).astimezone(zone).date()
        noon = from_datetime(datetime(today.year, today.month, today.day, 12, tzinfo=UTC))
        written = [
            each
            for each in find_written(text, noon)
            if not words.TODAY.fullmatch(text[each[0] : each[1]].strip().lower())
        ]
        if not written:
            return None
        for one, other in pairwise(written):
            if _JOINED.fullmatch(text, one[1], other[0]):
                first, last = _in_one_year(text, one, other)
                if first.first <= last.last:
                    return _Dates(TimeKind.BETWEEN, _span(first, last), _without(text, one[0], other[1]))
        # "last week, on 3 May 2023": what has a year says more.
        at = next((n for n, (start, end, _) in enumerate(written) if _YEAR.search(text, start, end)), 0)
        start, end, days = written[at]
        return _Dates(*_beside(text, start, end, days))
    except (OverflowError, ValueError):  # beyond the calendar
        return None


def _in_one_year(text: str, one: tuple[int, int, Days], other: tuple[int, int, Days]) -> tuple[Days, Days]:
    """Two days that are joined; a year behind the second one is the first one's, too."""
    first, last = one[2], other[2]
    if _YEAR.search(text, other[0], other[1]) and not _YEAR.search(text, one[0], one[1]):
        year = last.first.year
        first = Days(first.first.replace(year=year), first.last.replace(year=year))
    return first, last


def _beside(text: str, start: int, end: int, days: Days) -> tuple[TimeKind, Span, str]:
    """On which side of a date a question asks."""
    before = text[max(0, start - _BESIDE_MAX) : start]
    moved = _MOVED.search(before)
    if moved is not None:
        day = _move(moved, days)
        return TimeKind.AT, _span(day, day), _without(text, start - len(before) + moved.start(), end)
    for kind, pattern in _SIDES_OF_DATES:
        side = pattern.search(before)
        if side is not None:
            return kind, _span(days, days), _without(text, start - len(before) + side.start(), end)
    for kind, pattern in _BEHIND_DATES:
        behind = pattern.match(text, end)
        if behind is not None:
            return kind, _span(days, days), _without(text, start, behind.end())
    return TimeKind.AT, _span(days, days), _without(text, start, end)


def _move(moved: re.Match[str], days: Days) -> Days:
    """Two weeks before a day, the Sunday after it."""
    from daemon.offline.date_words import AMOUNTS, UNITS, WEEKDAYS
    from daemon.offline.spans import LAST, THIS, period, weekday

    back = moved["side"].casefold() == "before"
    name, number = moved["unit"].casefold().removesuffix("s"), (moved["number"] or "1").casefold()
    if name in WEEKDAYS:
        return weekday(
            days.first if back else days.last + timedelta(days=1), WEEKDAYS[name], LAST if back else THIS
        )
    count = AMOUNTS[number][1] if number in AMOUNTS else int(number)
    there = period(UNITS[name], days.first if back else days.last, -count if back else count)
    if count > 1 or name == "day":
        return there
    # The week before a Thursday reaches up to it, the one after it begins behind it.
    beside = days.first - timedelta(days=1) if back else days.last + timedelta(days=1)
    return Days(there.first, max(there.last, beside)) if back else Days(min(there.first, beside), there.last)


def _span(first: Days, last: Days) -> Span:
    start = datetime(first.first.year, first.first.month, first.first.day, tzinfo=UTC)
    end = datetime(last.last.year, last.last.month, last.last.day, tzinfo=UTC) + timedelta(days=1)
    return Span(from_datetime(start), from_datetime(end))


def _read_digits(anchor: str, reference: Instant) -> Span | None:
    """The days of a date in digits alone, which needs no word beside it: before 2023."""
    from daemon.reading.times import resolve

    if any(map(str.isalpha, anchor)):
        return None
    found = resolve(anchor, reference)
    return None if found is None else Span(found[0], found[1] + 1)


def _without(text: str, start: int, end: int) -> str:
    return f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()


def _read_anchor(text: str) -> tuple[TimeKind | None, str | None, str]:
    """On which side of something that happened a question asks, the words for that, and the question without."""
    for kind, in_front, behind in _SIDES:
        for match in in_front.finditer(text):
            if kind is TimeKind.AFTER and _is_to(text, match):
                continue
            if kind is TimeKind.AT and words.WHEN.match(text, match.start()):
                continue
            stop = _CLAUSE_END.search(text, match.end())
            end = len(text) if stop is None else stop.start()
            anchor = text[match.end() : end].strip()
            verb = _LAST_VERB.search(anchor)
            if verb is not None:  # German, and no part of it
                anchor, end = anchor[: verb.start()], end - (len(verb[0]))
            if anchor and _says_something(anchor):
                return kind, anchor[:_ANCHOR_CHARS_MAX], _without(text, match.start(), end)
        marker = behind.search(text)
        if marker is not None:
            start = max((each.end() for each in _CLAUSE_END.finditer(text, 0, marker.start())), default=0)
            anchor = text[start : marker.start()].strip()
            if anchor:
                return kind, anchor[-_ANCHOR_CHARS_MAX:], text
    return None, None, text


_EMPTY: Final = word_set("that this then now it the a der die das dem le la el ça cela eso de")


def _says_something(anchor: str) -> bool:
    return any(word not in _EMPTY for word in re.findall(r"\w+", anchor.casefold()))


def _is_to(text: str, match: re.Match[str]) -> bool:
    """Whether German "nach" says where to, or what for."""
    if match[0].casefold() != "nach":
        return False
    goes = words.GOING.search(text) is not None and words.ARTICLE.match(text, match.end()) is None
    return goes or words.TOWARDS.search(text) is not None


def _attribute_of(rest: str) -> str | None:
    """The state that a question asks for, by its canonical name."""
    return next((attribute for attribute, pattern in words.STATES if pattern.search(rest)), None)
