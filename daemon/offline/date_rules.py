"""The western date rules: what each pattern means, resolved against the day a sentence was said."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final

from daemon.offline import date_words as words
from daemon.offline import dates_east
from daemon.offline.date_words import Rule
from daemon.offline.sentences import language_of, word_set
from daemon.offline.spans import (
    LAST,
    NEXT,
    THIS,
    Span,
    Unit,
    day_near,
    exact_day,
    month_near,
    monthday_near,
    one_day,
    period,
    season_near,
    season_of,
    weekday,
    whole_month,
    whole_year,
)
from daemon.offline.third_person import PAST_FORMS

_Match = re.Match[str]
_WORD = re.compile(r"[a-z']+")


def _month_of(match: _Match) -> int | None:
    """The month's number; None for "may", "march" and abbreviations that are not written like a month."""
    written = match["month"]
    if written in words.AMBIGUOUS_MONTHS:
        return None
    return words.MONTHS[written.casefold()]


def _iso(match: _Match, day: date, *, ahead: bool) -> Span | None:
    del day, ahead
    return exact_day(int(match["year"]), int(match["month"]), int(match["day"]))


def _numeric(match: _Match, day: date, *, ahead: bool) -> Span | None:
    """8.5.2023 begins with the day; 8/5/2023 may begin with either: one must be above 12."""
    del day, ahead
    first, second, year = int(match["first"]), int(match["second"]), int(match["year"])
    if match["mark"] == "." or first > 12 or first == second:
        return exact_day(year, second, first)
    return exact_day(year, first, second) if second > 12 else None


# Characters beside a date that tell whether it is of the past; a sentence that is longer may be no sentence.
AROUND: Final = 200


def _written_day(match: _Match, day: date, *, ahead: bool) -> Span | None:
    month, number = _month_of(match), int(match["day"])
    if month is None or not 1 <= number <= 31:
        return None
    if match["year"]:
        return exact_day(int(match["year"]), month, number)
    near = day_near(day, month, number, ahead=ahead)
    if ahead or near is None:
        return near
    # "15 June, in Bremen": nothing tells on which side, so the nearer one is meant.
    coming = day_near(day, month, number, ahead=True)
    if coming is None or coming.first - day >= day - near.first:
        return near
    around = match.string[max(0, match.start() - AROUND) : match.end() + AROUND]
    return coming if _has_no_past(around) else near


def _has_no_past(sentence: str) -> bool:
    """Whether an English sentence has no form of the past in it."""
    spoken = sentence.casefold().replace("’", "'")
    told = any(word in PAST_FORMS or word.endswith("ed") for word in _WORD.findall(spoken))
    return not told and language_of(sentence) == "en"


def _written_month(match: _Match, day: date, *, ahead: bool) -> Span | None:
    del day, ahead
    month = _month_of(match)
    return None if month is None else whole_month(int(match["year"]), month)


def _bare_month(match: _Match, day: date, *, ahead: bool) -> Span | None:
    month = _month_of(match)
    before = match["before"].casefold()
    if month is None or (before in {"by", "from", "to", "before", "after", "of"} and month in words.NAME_MONTHS):
        return None
    return month_near(day, month, NEXT if ahead else THIS)


def _which_period(match: _Match, day: date, *, ahead: bool) -> Span | None:
    """Last, this, next: week, weekend, month, year, weekday, month name, season."""
    which, name = words.WHICH[match["which"].casefold()], match["name"].casefold()
    if match["name"] in words.AMBIGUOUS_MONTHS:
        return None
    if name in words.SEASONS:
        return season_near(day, words.SEASONS[name], which)
    if name in words.MONTHS:
        return month_near(day, words.MONTHS[name], NEXT if which == THIS and ahead else which)
    if name in words.WEEKDAYS:
        return weekday(day, words.WEEKDAYS[name], which)
    unit = words.UNITS[name]
    # "the last day", "this day", "the next day" point into a story, not at the calendar.
    return None if unit == "day" else period(unit, day, which)


def _ago(match: _Match, day: date, *, ahead: bool) -> Span | None:
    del ahead
    fewest, most = _amount(match)
    unit = words.UNITS[match["unit"].casefold()]
    return Span(period(unit, day, -most).first, period(unit, day, -fewest).last)


def _hence(match: _Match, day: date, *, ahead: bool) -> Span | None:
    """In two weeks: only where the sentence looks ahead, for "I learned it in two weeks" is a duration."""
    if not ahead:
        return None
    fewest, most = _amount(match)
    unit = words.UNITS[match["unit"].casefold()]
    return Span(period(unit, day, fewest).first, period(unit, day, most).last)


def _lasting(match: _Match, day: date, *, ahead: bool) -> Span | None:
    """For N years: from then until the day it was said."""
    del ahead
    unit: Unit = words.UNITS[match["unit"].casefold()]
    return Span(period(unit, day, -_amount(match)[1]).first, day)


def _amount(match: _Match) -> tuple[int, int]:
    if match["number"] is None:  # "over the past year"
        return 1, 1
    number = " ".join(match["number"].casefold().split())
    return words.AMOUNTS[number] if number in words.AMOUNTS else (int(number), int(number))


def _shift(match: _Match, day: date, *, ahead: bool) -> Span | None:
    del ahead
    word = " ".join(match[0].casefold().split())
    # German "hier" is here, French "hier" is yesterday; "morgen" is tomorrow, "Morgen" the morning.
    if (word == "hier" and language_of(match.string) != "fr") or match[0] == "Morgen":
        return None
    return one_day(day + timedelta(days=words.SHIFTS[word]))


def _bare_weekday(match: _Match, day: date, *, ahead: bool) -> Span | None:
    return weekday(day, words.WEEKDAYS[match["name"].casefold()], THIS if ahead else LAST)


def _bare_monthday(match: _Match, day: date, *, ahead: bool) -> Span | None:
    return monthday_near(day, int(match["day"]), ahead=ahead)


def _season(match: _Match, day: date, *, ahead: bool) -> Span | None:
    number = words.SEASONS[match["season"].casefold()]
    if match["year"]:
        return season_of(int(match["year"]), number)
    return season_near(day, number, NEXT if ahead else THIS) if match["before"] else None


def _year(match: _Match, day: date, *, ahead: bool) -> Span | None:
    del day, ahead
    return whole_year(int(match["year"]))


def _the_one_beside(match: _Match, day: date, *, ahead: bool) -> Span | None:
    """The week before (the present one); the week before last."""
    del ahead
    if match["last"]:
        return period(
            words.UNITS[match["unit"].casefold()], day, -2 if match["side"].casefold() == "before" else 2
        )
    return period(words.UNITS[match["unit"].casefold()], day, -1 if match["side"].casefold() == "before" else 1)


def _few_days_back(match: _Match, day: date, *, ahead: bool) -> Span | None:
    del match, ahead
    return Span(day - timedelta(days=7), day - timedelta(days=2))


_MONTH_BEFORE = (
    r"\b(?P<before>in|since|during|by|until|till|from|to|before|after|of|early|late|mid|around"
    r"|im|seit|ab|bis|anfang|mitte|ende|en|depuis|desde|hasta|début|fin)[\s-]+(?:early\s+|late\s+|mid[\s-]+)?"
)
_NOT_A_YEAR = (
    r"(?!\s*(?:[%$€£]|dollars|euros|people|steps|words|miles|km|meters|metres|calories|points|times|kcal))"
)
RULES: Final[tuple[Rule, ...]] = (
    Rule(
        re.compile(r"(?<![\d-])(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})(?!\d)"),
        _iso,
        words.DIGIT,
    ),
    Rule(
        re.compile(
            r"(?<![\d./])(?P<first>\d{1,2})(?P<mark>[./])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4})(?!\d)"
        ),
        _numeric,
        words.DIGIT,
    ),
    Rule(
        words.compiled(
            rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.|º)?\s+(?:of\s+|de\s+)?{words.MONTH}(?:\.?,?\s+(?:del?\s+)?{words.YEAR})?"
        ),
        _written_day,
        words.MONTH_WORDS,
    ),
    Rule(
        words.compiled(
            rf"\b{words.MONTH}\.?\s+(?:the\s+)?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?![:%])(?:,?\s+{words.YEAR})?"
        ),
        _written_day,
        words.MONTH_WORDS,
    ),
    Rule(
        words.compiled(
            rf"(?<!\d )(?<!\dth )(?<!\dst )(?<!\d of )\b{words.MONTH}\.?,?\s+(?:of\s+|del?\s+)?{words.YEAR}"
        ),
        _written_month,
        words.MONTH_WORDS,
    ),
    Rule(words.compiled(rf"{_MONTH_BEFORE}{words.MONTH}(?!\s*\d|'s\b)"), _bare_month, words.MONTH_WORDS),
    Rule(
        words.compiled(rf"{words.WHICH_BEFORE}\s+{words.PERIOD_NAME}(?!\s+of\b)"), _which_period, words.WHICH_WORDS
    ),
    Rule(
        re.compile(rf"\b(?P<which>[Ll]ast|[Tt]his|[Nn]ext)\s+{words.SHORT_WEEKDAY}"),
        _which_period,
        words.WHICH_WORDS,
    ),
    Rule(words.compiled(rf"\b{words.PERIOD_NAME}\s+{words.WHICH_AFTER}"), _which_period, words.WHICH_WORDS),
    Rule(
        words.compiled(
            rf"\b{words.NUMBER}\s+{words.UNIT}(?:\s+and\s+a\s+half)?\s+(?:ago|back(?!\s+(?:to|from|in|home))|earlier)\b"
        ),
        _ago,
        word_set("ago back earlier"),
    ),
    Rule(
        words.compiled(rf"\b(?:vor|il y a|hace)\s+{words.ABOUT}{words.NUMBER}\s+{words.UNIT}"),
        _ago,
        word_set("vor hace il"),
    ),
    Rule(
        words.compiled(rf"\b(?:in|dans|dentro de|en)\s+{words.ABOUT}{words.NUMBER}\s+{words.UNIT}(?!\s+ago)"),
        _hence,
        words.UNIT_WORDS,
    ),
    Rule(
        words.compiled(rf"\b{words.NUMBER}\s+{words.UNIT}\s+(?:later|from now|from today)\b"),
        _hence,
        word_set("later from"),
    ),
    Rule(
        words.compiled(rf"\b(?:desde hace|seit|depuis)\s+{words.ABOUT}{words.NUMBER}\s+{words.UNIT}"),
        _lasting,
        word_set("hace seit depuis"),
    ),
    Rule(
        words.compiled(rf"\b(?:over|in|for|during)\s+the\s+(?:past|last)\s+(?:{words.NUMBER}\s+)?{words.UNIT}"),
        _lasting,
        word_set("past last"),
    ),
    Rule(
        words.compiled(rf"(?<![\w-])(?<!la )(?<!por la )(?<!esta )(?:{words.SHIFT})\b"), _shift, words.SHIFT_WORDS
    ),
    Rule(
        words.compiled(
            rf"(?<!every )(?<!each )(?<!\ba )(?<!black )(?<!good )(?<!jeden )(?<!chaque )(?<!\ble )"
            rf"\b{words.WEEKDAY}"
        ),
        _bare_weekday,
        words.WEEKDAY_WORDS,
    ),
    Rule(re.compile(rf"\b(?:[Oo]n|[Bb]y|[Uu]ntil)\s+{words.SHORT_WEEKDAY}"), _bare_weekday, words.WEEKDAY_WORDS),
    Rule(words.compiled(rf"\bel\s+{words.SPANISH_WEEKDAY}"), _bare_weekday, words.WEEKDAY_WORDS),
    Rule(
        words.compiled(
            r"\b(?:on|by|since|until) the (?P<day>\d{1,2})(?:st|nd|rd|th)\b"
            r"(?=\s*(?:$|[.,;!?)]|(?:after|before|with|at|and|for|to|in|but|so|because|we|i|he|she|they)\b))"
        ),
        _bare_monthday,
        words.DIGIT,
    ),
    Rule(
        words.compiled(
            rf"(?:\b(?P<before>in|during|over|im|en|al|since|seit)\s+(?:the\s+|early\s+|late\s+)*)?"
            rf"\b{words.SEASON}(?:\s+(?:of\s+|de\s+|del\s+)?{words.YEAR})?"
        ),
        _season,
        words.SEASON_WORDS,
    ),
    Rule(
        words.compiled(
            r"\b(?:in|since|during|around|until|by|from|of|year|jahr|seit|en|depuis|desde|année|año|early|late)\s+"
            rf"{words.YEAR}(?![-/]\d|[.,]\d){_NOT_A_YEAR}"
        ),
        _year,
        words.DIGIT,
    ),
    Rule(words.compiled(r"\bthe other (?:day|night|week)\b"), _few_days_back, word_set("other")),
    *dates_east.RULES,
)
_PERFECT = r"\b(?:have|has|had|been|known)\b|'(?:ve|s|d)\b"
DURATIONS: Final[tuple[Rule, ...]] = (
    Rule(
        words.compiled(
            rf"(?:{_PERFECT})[^.;!?]{{0,80}}?\bfor\s+{words.ABOUT}{words.NUMBER}\s+{words.UNIT}(?!\s+(?:old|of)\b)"
        ),
        _lasting,
        word_set("for"),
    ),
    Rule(
        words.compiled(
            rf"\b(?:was|were)\b[^.;!?]{{0,80}}?\bfor\s+{words.ABOUT}{words.NUMBER}\s+(?P<unit>years)\b"
        ),
        _lasting,
        word_set("for"),
    ),
    Rule(words.compiled(rf"\b{words.NUMBER}\s+{words.UNIT}\s+now\b"), _lasting, word_set("now")),
    Rule(
        words.compiled(
            r"\bthe (?P<unit>day|week|weekend|month|year) (?P<side>before|after)"
            r"(?P<last> last| next)?\s*(?:[.,;!?]|$)"
        ),
        _the_one_beside,
        word_set("before after"),
    ),
)
