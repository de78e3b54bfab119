"""Numbers as people write them, and what each may be worth: "1,000" is 1000, "five" is 5, "7 pm" is 19.

A number has several values where its writing is ambiguous ("1.500" is 1500 or 1.5); two numbers agree when they
share one. So nothing is called missing because it is written another way.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from daemon.offline.sentences import CJK, word_set
from daemon.offline.small_talk import FILLERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

_SIMPLE: Final = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS: Final = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ENGLISH: Final[Mapping[str, int]] = {
    **{word: value for value, word in enumerate(_SIMPLE)},
    **{word: 20 + 10 * index for index, word in enumerate(_TENS)},
}
# Said in a text for a digit of another, case-folded; not looked for themselves: (the first one's worth, the step).
_FOREIGN_ROWS: Final = (
    (13, 1, "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"),
    (13, 1, "treize quatorze quinze seize"),
    (13, 1, "trece catorce quince dieciséis diecisiete dieciocho"),
    (30, 10, "dreissig vierzig fünfzig sechzig siebzig achtzig neunzig"),
    (30, 10, "trente quarante cinquante soixante"),
    (30, 10, "treinta cuarenta cincuenta sesenta setenta ochenta noventa"),
)
_SCALES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("hundred", "hundert"), 100),
    **dict.fromkeys(("thousand", "tausend", "mil"), 1000),
    **dict.fromkeys(("million", "millions", "millionen", "millón", "millones"), 1_000_000),
}
# Said in a fact for a digit of the text; too loose to be asked for themselves.
_LOOSE: Final[Mapping[str, int]] = {
    "once": 1, "twice": 2, "thrice": 3, "couple": 2, "both": 2, "pair": 2, "dozen": 12, "first": 1, "second": 2,
    "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10,
    "single": 1, "double": 2, "noon": 12, "midnight": 0,
}  # fmt: skip
# Smaller words people do not always mean as numbers ("one of them", "you two").
_WORD_LEAST: Final = 3
# Halves, quarters and decades, and what they may be written as: 7:30, 1.5, 50%, the 1990s. Values of a minute have
# their colon, and those of a part their point, so that "half" carries no "30 cats".
_HALF: Final = (":30", ".5", "50%", "0.5")
_QUARTER: Final = (":15", ":45", ".25", ".75", "25%", "75%", "0.25", "0.75")
_PARTS_OF_ONE: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("half", "halb", "halbe", "halben", "anderthalb", "media", "medio", "demi", "demie"), _HALF),
    **dict.fromkeys(("quarter", "quarters", "viertel", "cuarto", "quart"), _QUARTER),
    **dict.fromkeys(("third", "thirds", "drittel"), ("33%", "66%", "67%")),
    **{
        f"{word.removesuffix('y')}ies": (str(10 * tens), str(1900 + 10 * tens))
        for tens, word in enumerate(_TENS, start=2)
    },
    "neunziger": ("90", "1990"),
    "achtziger": ("80", "1980"),
    "siebziger": ("70", "1970"),
    "sechziger": ("60", "1960"),
}
_SCALED_MAX: Final = 1_000_000  # "hundred hundred hundred …" must not grow without end
_IDIOMS: Final = word_set("24/7 100% 110% 10/10 50/50 101 911")
# Every number word from three on has one of these in it.
_PARTS: Final = ("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twe", "thir", "fif")
_NO_UNITS: Final = word_set(
    "after before since until during without because while although und et y e der die das"
)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text: how it is written with its unit, from `start` to `end`, and what it may be worth."""

    written: str
    values: frozenset[str]
    start: int
    end: int


def normal(text: str) -> str:
    """The compatibility form in which numbers are looked for: full-width digits are digits."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("’", "'")


def find_numbers(text: str) -> Iterator[Number]:
    """The numbers that somebody meant as such, in order; no part of a name, an address or a list's marks.

    Digits of every script, and English words from three on. `text` is in `normal` form.
    """
    if "://" in text or "www." in text:
        text = _ADDRESS.sub(lambda match: " " * len(match[0]), text)
    if not _DIGIT.search(text):  # most sentences end here
        small = text.casefold()
        for part in _PARTS:
            if part in small:
                break
        else:
            return
    for match in _written().finditer(text):
        unit = _UNIT.match(text, match.end())
        word = unit[1].casefold() if unit else ""
        digits = match["digits"]
        if digits is None:
            value = _ENGLISH[(match["tens"] or match["word"]).casefold()]
            value += _ENGLISH[match["ones"].casefold()] if match["ones"] else 0
            value *= _SCALES.get(word, 1)
            values = {str(value)} if value >= _WORD_LEAST else set[str]()
        elif _is_no_number(text, match):
            continue
        else:
            values = set(_values_of(digits, (match["suffix"] or "").strip().casefold()))
            values |= {_times_scale(value, _SCALES[word]) for value in values if word in _SCALES}
            if word in ("uhr", "o'clock", "heures"):
                values |= {other for value in values for other in _hours(f"{value}:00")}
            if len(digits) == 2 and text[match.start() - 1 : match.start()] == "'":  # '98
                values |= {f"19{digits}", f"20{digits}"}
        if values:
            end = unit.end() if unit and word not in FILLERS and word not in _NO_UNITS else match.end()
            yield Number(" ".join(text[match.start() : end].split()), frozenset(values), match.start(), end)


def values_in(text: str) -> set[str]:
    """All that any number in a text may be worth, read as widely as can be: parts of dates, words.

    A month by its name is there as "m5". `text` is in `normal` form and case-folded.
    """
    values: set[str] = set()
    for match in _ANY_DIGITS.finditer(text):
        values.update(_values_of(match[0], ""))
        values.update(_plain(part) for part in _PART.findall(match[0]))
        scale = _SCALE.match(text, match.end())
        if scale and scale[1] in _SCALES:
            values.update(_times_scale(value, _SCALES[scale[1]]) for value in _values_of(match[0], ""))
    from daemon.offline.date_words import MONTHS

    if "'" in text:
        values.update(f"{century}{year}" for year in _SHORT_YEAR.findall(text) for century in (19, 20))
    words = _number_words()
    last: int | None = None
    for written in _WORD.findall(text):
        value = words.get(written)
        if written in _PARTS_OF_ONE:
            values.update(_PARTS_OF_ONE[written])
        if value is None and written in _SCALES:
            value = min(last or 1, _SCALED_MAX) * _SCALES[written]
        elif value is not None and last is not None and 20 <= last < 100 and last % 10 == 0 and value < 10:
            values.add(str(last + value))
        elif value is None and written in MONTHS:
            values.add(f"m{MONTHS[written]}")
        if value is not None:
            values.add(str(value))
        last = value
    for ones, tens in _GERMAN_NUMBER.findall(text):
        values.add(str({**words, "ein": 1}[ones] + words[tens]))
    if not text.isascii():
        from daemon.offline.dates_east import number_of

        values.update(str(number_of(run)) for run in _EAST_NUMBER.findall(text))
        for year in _EAST_YEAR.findall(text):
            values.add("".join(str(number_of(sign)) for sign in year))
    return values


def agree(written: str, values: Set[str], others: Set[str]) -> bool:
    """Whether a number, as it is written and what it may be worth, is among others as `values_in` reads them.

    It may be put together of parts: 7:30 of "half past seven" and "halb acht", 1.5 of "one and a half", 9.5.2023
    of "9 May 2023".
    """
    if not values.isdisjoint(others):
        return True
    if any(_is_with_part(value, others) or (":" in written and _is_clock(value, others)) for value in values):
        return True
    if "%" in written and any(f"{value}%" in others for value in values):
        return True
    date = _DATE_IN_DIGITS.match(written)
    if date is None or (not date["year"] and "." in written and f"m{_plain(date['month'])}" not in others):
        return False  # "2.5" alone is more often no date
    parts = (_plain(part) for part in date.groups() if part)
    return all(part in others or f"m{part}" in others for part in parts)


def _is_clock(value: str, others: Set[str]) -> bool:
    """Whether a time of day is said in words; "halb acht" and "quarter to eight" are before eight."""
    clock = _CLOCK.fullmatch(value)
    if clock is None or (f":{clock[2]}" not in others and _plain(clock[2]) not in others):
        return False
    return any(str((int(clock[1]) + later) % 24) in others for later in (0, 1, 12, 13))


def _is_with_part(value: str, others: Set[str]) -> bool:
    part = _WITH_PART.fullmatch(value)
    return part is not None and f".{part[2]}" in others and (part[1] in others or part[1] == "1")


def _values_of(digits: str, suffix: str) -> Iterator[str]:
    """What digits with marks between them may be worth; `suffix` as in 10k, 7pm or 3rd."""
    if ":" in digits:
        yield from _hours(digits)
        return
    plain: set[str] = set()
    marks = _MARK.findall(digits)
    if _GROUPED.fullmatch(digits):
        plain.add(_plain(_MARK.sub("", digits)))
    if not marks:
        plain.add(_plain(digits))
    elif marks[-1] != "'" and marks[-1] not in marks[:-1]:  # 12.5, 12,5 and 1,234.56
        head, tail = digits.rsplit(marks[-1], 1)
        plain.add(_plain(f"{_MARK.sub('', head)}.{tail}"))
    elif not plain:
        plain.add(digits)  # a version or an address: as it is written
    yield from plain
    if _CLOCK_WITH_POINT.fullmatch(digits):
        yield from _hours(digits.replace(".", ":"))
    if suffix in ("k", "m"):
        yield from (_times_scale(value, 1000 if suffix == "k" else 1_000_000) for value in plain)
    elif suffix == "s":  # the 1990s are the 90s
        yield from (value[2:] for value in plain if len(value) == 4)
    elif suffix in ("am", "pm", "h"):
        yield from (other for value in plain for other in _hours(f"{value}:00"))


def _hours(digits: str) -> Iterator[str]:
    """7:30 is 19:30 by another clock, and 7:00 is 7."""
    hour, *rest = digits.split(":")
    if not hour.isdecimal():
        yield digits
        return
    for other in {int(hour), (int(hour) + 12) % 24}:
        yield ":".join([str(other), *rest])
        if set(rest) == {"00"}:
            yield str(other)


def _times_scale(value: str, scale: int) -> str:
    head, point, tail = value.partition(".")
    if not (head.isdecimal() and (tail.isdecimal() or not point)):
        return value
    zeros = len(str(scale)) - 1
    return _plain(f"{head}{tail[:zeros].ljust(zeros, '0')}.{tail[zeros:]}")


def _plain(digits: str) -> str:
    """The shortest writing of a number in Western digits: no zeros in front, none behind the point."""
    if not digits.isascii():
        digits = "".join(str(unicodedata.digit(one, 0)) if one.isdecimal() else one for one in digits)
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    head, point, tail = digits.partition(".")
    return (head.lstrip("0") or "0") + point + tail


def _is_no_number(text: str, match: re.Match[str]) -> bool:
    """Whether digits are a saying ("24/7"), or only number a line."""
    digits = match["digits"]
    if digits in _IDIOMS or digits + (match["tail"] or "").strip() in _IDIOMS:
        return True
    start, end = match.start("digits"), match.end("digits")
    marked = text[end : end + 1] in (".", ")") and not text[end + 1 : end + 2].strip()
    return end - start <= 2 and marked and not text[text.rfind("\n", 0, start) + 1 : start].strip(" \t(-*")


@cache
def _number_words() -> Mapping[str, int]:
    """Words that stand for one number, in the languages of the date rules."""
    from daemon.offline.date_words import AMOUNTS

    foreign = {word: least for word, (least, most) in AMOUNTS.items() if least == most and " " not in word}
    rows = {word: first + step * at for first, step, row in _FOREIGN_ROWS for at, word in enumerate(row.split())}
    return {**foreign, **rows, **_LOOSE, **_ENGLISH}


@cache
def _written() -> re.Pattern[str]:
    """Digits and English number words. Every count is bounded, so a run of digits is read once."""
    letter = rf"[^\W\d_{CJK}]"
    return re.compile(
        rf"(?<!{letter})(?<!{letter}-)(?<!\d[.,:'/-])(?<![\d_@#=&\\])[$€£¥₹]?"
        rf"(?P<digits>{_DIGITS})(?P<suffix>\s?[ap]m\b|{letter}{{1,3}})?(?![\d_])(?!{letter})"
        r"(?P<tail>\s?[%€£¥₹]|/\d{1,2}\b)?"
        rf"|\b(?:(?P<tens>{'|'.join(_TENS)})(?:[ -](?P<ones>{'|'.join(_SIMPLE[1:10])}))?"
        rf"|(?P<word>{'|'.join(reversed(_SIMPLE))}))\b",
        re.IGNORECASE,
    )


_DIGITS = r"\d{1,15}(?:[.,:']\d{1,15}){0,4}"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_CLOCK_WITH_POINT = re.compile(r"(?:[01]?\d|2[0-3])\.[0-5]\d")
_SCALE = re.compile(r" ([^\W\d_]{3,8})\b")
_SHORT_YEAR = re.compile(r"(?<!\w)'(\d\d)\b")
_WITH_PART = re.compile(r"(\d{1,3})\.(5|25|75)")
_DATE_IN_DIGITS = re.compile(r"(?P<day>\d{1,2})[./-](?P<month>\d{1,2})(?:[./-](?P<year>\d{2,4}))?\b")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
_DIGIT = re.compile(r"\d")
_UNIT = re.compile(rf"[ -]([^\W\d_{CJK}]{{1,16}})(?![^\W_])")
_ANY_DIGITS = re.compile(_DIGITS)
_PART = re.compile(r"\d+")
_MARK = re.compile(r"[.,']")
_GROUPED = re.compile(r"\d{1,3}([.,'])\d{3}(?:\1\d{3})*")
_WORD = re.compile(rf"[^\W\d_{CJK}]+")
_GERMAN_NUMBER = re.compile(
    "(ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun)und"
    "(zwanzig|dreissig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig)"
)
_EAST_YEAR = re.compile("[〇零一二三四五六七八九]{4}")
_EAST_NUMBER = re.compile("[〇零一二三四五六七八九十两兩]{1,3}")
