"""Details of a text: its numbers, dates and names; and whether other texts carry them.

Made for few false alarms: what is doubtful is no detail, and what may carry one does.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from daemon.offline.sentences import CJK, word_set
from daemon.reading.numbers import agree, find_numbers, normal, values_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from daemon.offline.spans import Span
    from events.memory import Mention
    from events.time import Instant

# Any day does where only the words of a date matter; this one is a Wednesday in the middle of a year.
_DAY: Final = date(2024, 5, 15)
_DAY_AT: Final[Instant] = 1_715_774_400_000
# Small words inside a name need not be repeated: Lord of the Rings.
_SMALL: Final = word_set("of the and de del della da di du la le van von der den ter el y for a an")
# Nor need titles, kinds of companies, and units that stand before a noun: Dr Smith, Acme Inc, Euro Miete.
_DROPPED: Final = _SMALL | word_set(
    "st saint sankt dr prof mr mrs ms miss sir mme herr frau señor señora sr sra don doña inc ltd llc corp gmbh co"
    " plc euro euros dollar dollars pfund franken cent prozent uhr kilo kilometer"
)
# As many letters as two forms of a name must share: Mel and Melanie, Москва and Москве.
_STEM_CHARS: Final = 3
_ACRONYM_CHARS_MAX: Final = 5
# Who somebody is to another is no name, though it is written like one: Mom, Ihr Mann.
_KIN: Final = word_set(
    "mom mum mama mommy mummy mother dad papa daddy father grandma grandpa granny grandmother grandfather aunt"
    " uncle mann frau mutter vater bruder schwester sohn tochter oma opa tante onkel eltern maman mamá papá abuela"
    " abuelo"
)
_NAMES_TOO: Final = word_set("april june august jan mai")
# Most sentences end here: no capital behind the first letter but "I".
_CAPITAL_INSIDE = re.compile(r"(?s).(?!I\b)[A-Z]")
_WORD = re.compile(rf"[^\W_{CJK}]+")
_DIGITS = re.compile(r"\d+")
# A capital word that wishes or shouts: Happy Birthday.
_HEAD_WORD = re.compile(r"[*_\"'“ ]*(?:Happy|Good|Merry|Dear|Hello|Hi|Hey|Great|Nice|Best|Congrats|Sweet|Holy)")
_MARKS = re.compile("[\u0300-\u036f]")
_JOINED = re.compile(r"[^\W\d_]+-[^\W\d_]+")
_ACRONYM = re.compile(r"\b[A-Z]{2,5}\b")
# Two capital words or more, one after the other.
_CAPITALS = re.compile(r"\b[A-Z]\w*(?: [A-Z]\w*)+")
# Written out, and so carried only with its numbers: 8 May, 2023-05-08, 2019, 5月8日.
_WRITTEN_OUT = re.compile(r"\d{4}|\d[./-]\d|\d\s*[月日号]")
_MONTH_IN_DIGITS = re.compile(r"\d[./-]\d|\d\s*月")
# Loan words are written like names; a title of respect makes a person of one.
_EAST_PERSON = re.compile(r"([ァ-ヺー・]{2,20})(?:さん|くん|君|ちゃん|氏|先生|様|さま)")


class _Offline(NamedTuple):
    months: Mapping[str, int]
    find_written: Callable[[str, Instant], list[tuple[int, int, Span]]]
    find_mentions: Callable[[str], tuple[Mention, ...]]


@dataclass(frozen=True, slots=True)
class Detail:
    """A detail as it is `written`, and what carries it.

    A number: one of `values`. A name: all `parts`. A date: its words or all `values`; any date when it has none.
    """

    kind: Literal["number", "date", "name"]
    written: str
    values: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()


def details_of(sentence: str, *, may_have_dates: bool = True) -> Iterator[Detail]:
    """The dates, numbers and names of a sentence."""
    rules = _offline()
    text = normal(sentence)
    dates: list[tuple[int, int]] = []
    for start, end, span in rules.find_written(text, _DAY_AT) if may_have_dates else ():
        if span.first <= _DAY <= span.last:
            continue  # "today", "this week": so it is when nothing is said
        dates.append((start, end))
        written = " ".join(text[start:end].split())
        out = _WRITTEN_OUT.search(written) or any(
            word in rules.months for word in _WORD.findall(written.casefold())
        )
        yield Detail("date", written, frozenset(_values_of(written)) if out else frozenset[str]())
    for number in find_numbers(text):
        if not any(start < number.end and number.start < end for start, end in dates):
            yield Detail("number", number.written, number.values)
    labels: list[str] = []
    if not text.isascii() or _CAPITAL_INSIDE.search(text):
        labels = [mention.label for mention in rules.find_mentions(text) if not mention.uncertain]
    if not text.isascii():
        labels += _EAST_PERSON.findall(text)
    for label in labels:
        at = text.find(label)
        if any(start <= at < end for start, end in dates):
            continue
        parts = name_parts(label)
        if not (_is_none(label, parts) or (len(parts) == 1 and _begins_part(text, label))):
            yield Detail("name", label, parts=parts)


def _values_of(written: str) -> Iterator[str]:
    """The numbers of a date that is written out, and its month as "m5" where it has a name."""
    months = _offline().months
    yield from (str(int(digits)) for digits in _DIGITS.findall(written))
    yield from (f"m{months[word]}" for word in _WORD.findall(written.casefold()) if word in months)


@cache
def _offline() -> _Offline:
    """Imported late: the patterns of dates and names take 70 ms to compile, which no start has to wait for."""
    from daemon.offline.date_words import MONTHS
    from daemon.offline.dates import find_written
    from daemon.offline.entities import find_mentions

    return _Offline(MONTHS, find_written, find_mentions)


def _is_none(label: str, parts: tuple[str, ...]) -> bool:
    """Whether a label is no name: days and months, or words that are only shouted."""
    from daemon.offline.date_words import MONTHS, WEEKDAYS

    if label.isupper() and any(len(part) > _ACRONYM_CHARS_MAX and part.isalpha() for part in label.split()):
        return True
    singular = [part.removesuffix("s") for part in parts]
    if len(parts) == 1 and parts[0] in _KIN | _DROPPED:
        return True
    return bool(parts) and all((one in WEEKDAYS or one in MONTHS) and one not in _NAMES_TOO for one in singular)


def _begins_part(text: str, label: str) -> bool:
    """Whether a word stands where capitals are written anyway: behind a colon, a bullet, a mark of a heading."""
    at = text.find(label)
    before = text[:at].rstrip(" \t*_\"'“”(")
    return label[1:].islower() and (
        not before or before[-1] in ":;|–—•-#/>" or _HEAD_WORD.fullmatch(before) is not None
    )


def name_parts(label: str) -> tuple[str, ...]:
    """The words of a name that must be there, case-folded; none of a name in a script without spaces."""
    words = _WORD.findall(_without_marks(label.casefold()))
    return tuple(word for word in words if word not in _DROPPED) or tuple(words)


def _without_marks(text: str) -> str:
    """Zürich as Zurich: people leave the marks out, and models put them in."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))


class Carriers:
    """Texts that may carry details; what it takes to tell is made when it is asked for."""

    def __init__(self, texts: Sequence[str]) -> None:
        """`texts`: with their days behind them, if they have any."""
        self._texts = texts

    def carries(self, detail: Detail) -> bool:
        """Whether the texts have the detail, written in whichever way."""
        if detail.kind == "number":
            return agree(detail.written, detail.values, self._values)
        if detail.kind == "name":
            return self._has_name(detail) if detail.parts else self._has(detail.written)
        if self._has(detail.written):
            return True
        if not detail.values:
            return self._has_such_a_day(detail.written)
        # 05/13/2023 is carried by "13 May 2023", and "8 May" by 8.5.
        ways = ("", "m") if _MONTH_IN_DIGITS.search(detail.written) else ("",)
        return all(
            any(way + value in self._values for way in ways) or value.removeprefix("m") in self._values
            for value in detail.values
            if value not in self._values
        )

    def has_word(self, word: str) -> bool:
        """Whether a word, or another form or the long form of it, is in the texts."""
        alike = self._stems.get(word[:_STEM_CHARS], ())
        return any(word == one or _are_forms(word, one) for one in alike)

    def _has_name(self, detail: Detail) -> bool:
        """All its parts, also written as one; or, of US and of United States, the other."""
        parts = detail.parts
        joined = "".join(parts)
        if all(map(self.has_word, parts)):
            return True
        if len(parts) > 1 and any(
            abs(len(word) - len(joined)) <= 1 and _are_forms(joined, word)
            for word in self._stems.get(joined[:_STEM_CHARS], ())
        ):
            return True
        if detail.written.isupper() and any(detail.written in text for text in self._texts):  # BA of BA283
            return True
        short = parts[0] if len(parts) == 1 else "".join(part[0] for part in parts)
        if len(parts) == 1 and any(initials.startswith(short) for initials in self._initials):
            return True
        return any(word in (short, f"{short}a", short.removesuffix("a")) for word in self._acronyms)  # US, USA

    def _has(self, written: str) -> bool:
        return written.casefold() in self._folded

    @cached_property
    def _folded(self) -> str:
        return " ".join(normal("\n".join(self._texts)).casefold().split())

    @cached_property
    def _acronyms(self) -> set[str]:
        """In small letters."""
        return {word.casefold() for text in self._texts for word in _ACRONYM.findall(text)}

    @cached_property
    def _initials(self) -> list[str]:
        """The initials of names of several words, as in small letters."""
        runs = _CAPITALS.findall("\n".join(self._texts))
        return ["".join(word[0] for word in run.split()).casefold() for run in runs]

    @cached_property
    def _values(self) -> set[str]:
        return values_in(self._folded)

    @cached_property
    def _stems(self) -> dict[str, set[str]]:
        stems: dict[str, set[str]] = {}
        text = _without_marks(self._folded)
        joined = (pair.replace("-", "") for pair in _JOINED.findall(text)) if "-" in text else ()
        for word in {*_WORD.findall(text), *joined}:
            stems.setdefault(word[:_STEM_CHARS], set()).add(word)
        return stems

    def _has_such_a_day(self, written: str) -> bool:
        """Whether there is a day that may be meant: "last Friday" may be "5 May", and no Tuesday."""
        wanted = _weekdays_in(written)
        if not wanted:
            return bool(self._dates)
        others = [_weekdays_in(date) for date in self._dates]
        return any(not weekdays or wanted & weekdays for weekdays in others) or bool(
            wanted & _weekdays_in(self._folded)
        )

    @cached_property
    def _dates(self) -> list[str]:
        """The dates of the texts, as written."""
        from daemon.offline.dates import find_written

        texts = [normal(text) for text in self._texts]
        return [text[start:end] for text in texts for start, end, _ in find_written(text, _DAY_AT)]


def _weekdays_in(text: str) -> set[int]:
    """Which days of the week a text names."""
    from daemon.offline.date_words import WEEKDAYS

    words = _WORD.findall(text.casefold())
    found = (WEEKDAYS.get(word, WEEKDAYS.get(word.removesuffix("s"))) for word in words)
    return {day for day in found if day is not None}


def _are_forms(one: str, other: str) -> bool:
    """Whether two words that begin alike are forms of one: all but two letters of the shorter are the same."""
    shorter = min(len(one), len(other))
    return (
        shorter >= _STEM_CHARS and one[: max(_STEM_CHARS, shorter - 2)] == other[: max(_STEM_CHARS, shorter - 2)]
    )
