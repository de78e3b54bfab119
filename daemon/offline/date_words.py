"""The words of the date rules in English, German, French and Spanish: months, weekdays, units, numbers.

Each table maps a case-folded word to what it means; the patterns are alternations of these words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from daemon.offline.sentences import word_set
from daemon.offline.spans import LAST, NEXT, THIS, Span, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_T = TypeVar("_T")


def _words(table: Mapping[_T, str]) -> dict[str, _T]:
    """Word to meaning, from meaning to words; "_" stands for a space inside a word."""
    return {word.replace("_", " "): meaning for meaning, words in table.items() for word in words.split()}


def _any_of(words: Iterable[str]) -> str:
    """An alternation with longer words first, any white space where a word has a space."""
    return "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in sorted(words, key=lambda w: (-len(w), w)))


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern that takes any case."""
    return re.compile(pattern, re.IGNORECASE)


MONTHS: Final = _words(
    {
        1: "january jan januar janvier enero",
        2: "february feb februar février fevrier febrero",
        3: "march mar märz maerz mars marzo",
        4: "april apr avril abril",
        5: "may mai mayo",
        6: "june jun juni juin junio",
        7: "july jul juli juillet julio",
        8: "august aug août aout agosto",
        9: "september sept sep septembre septiembre",
        10: "october oct oktober octobre octubre",
        11: "november nov novembre noviembre",
        12: "december dec dezember décembre decembre diciembre",
    }
)
# Written like this they are other words: "may", "a march", "to mar", the planet.
AMBIGUOUS_MONTHS: Final = frozenset({"may", "march", "mar", "jan", "sep", "dec", "MAY", "MARCH", "Mars", "MARS"})
# Months that people are called too: "a letter from June" names no time.
NAME_MONTHS: Final = frozenset({1, 3, 4, 5, 6, 8})
WEEKDAYS: Final = _words(
    {
        0: "monday mon montag lundi lunes",
        1: "tuesday tues tue dienstag mardi martes",
        2: "wednesday wed mittwoch mercredi miércoles miercoles",
        3: "thursday thurs thur thu donnerstag jeudi jueves",
        4: "friday fri freitag vendredi viernes",
        5: "saturday sat samstag sonnabend samedi sábado sabado",
        6: "sunday sun sonntag dimanche domingo",
    }
)
_SHORT: Final = word_set("mon tues tue wed thurs thur thu fri sat sun")
SEASONS: Final = _words(
    {
        0: "spring frühling frühjahr printemps primavera",
        1: "summer sommer été verano",
        2: "autumn fall herbst automne otoño",
        3: "winter hiver invierno",
    }
)
_UNIT_WORDS: Final[dict[Unit, str]] = {
    "day": "day days night nights tag tage tagen jour jours día días dia dias",
    "week": "week weeks woche wochen semaine semaines semana semanas",
    "weekend": "weekend weekends wochenende wochenenden week-end week-ends fin_de_semana",
    "month": "month months monat monate monaten monats mois mes meses",
    "year": "year years yr yrs jahr jahre jahren jahres an ans année années año años",
}
UNITS: Final = _words(_UNIT_WORDS)
WHICH: Final = _words(
    {
        LAST: "last past previous this_past letzte letzten letztes letzter letztem vorige voriges vorigen"
        " vergangene vergangenen vergangenes pasado pasada dernier dernière derniere passé passée",
        THIS: "this diese diesen dieses diesem dieser ce cet cette este esta",
        NEXT: "next coming upcoming this_coming nächste nächsten nächstes nächster nächstem kommende"
        " kommenden kommendes próximo próxima proximo proxima prochain prochaine que_viene",
    }
)
_AFTER_NOUN: Final = {
    *word_set("pasado pasada dernier dernière derniere passé passée próximo próxima proximo proxima"),
    *word_set("prochain prochaine"),
    "que viene",
}
SHIFTS: Final = _words(
    {
        -2: "the_day_before_yesterday day_before_yesterday vorgestern avant-hier anteayer antier",
        -1: "yesterday last_night gestern hier ayer anoche",
        0: "today tonight this_morning this_afternoon this_evening heute aujourd'hui hoy",
        1: "tomorrow morgen demain mañana",
        2: "the_day_after_tomorrow day_after_tomorrow übermorgen après-demain pasado_mañana",
    }
)
# Fewest and most; "a few" is not exact and becomes an interval.
AMOUNTS: Final = _words(
    {
        (1, 1): "a an one ein eine einem einer einen un une uno una",
        (2, 2): "two couple a_couple a_couple_of couple_of zwei deux dos",
        (3, 3): "three drei trois tres",
        (4, 4): "four vier quatre cuatro",
        (5, 5): "five fünf cinq cinco",
        (6, 6): "six sechs seis",
        (7, 7): "seven sieben sept siete",
        (8, 8): "eight acht huit ocho",
        (9, 9): "nine neun neuf nueve",
        (10, 10): "ten zehn dix diez",
        (11, 11): "eleven elf onze once",
        (12, 12): "twelve zwölf douze doce",
        (15, 15): "fifteen fünfzehn quinze quince",
        (20, 20): "twenty zwanzig vingt veinte",
        (2, 5): "few a_few several some ein_paar einigen quelques unos unas algunos algunas",
    }
)

_FULL_WEEKDAYS: Final = set(WEEKDAYS) - _SHORT
MONTH: Final = rf"(?P<month>{_any_of(MONTHS)})\b"
UNIT: Final = rf"(?P<unit>{_any_of(UNITS)})\b"
SEASON: Final = rf"(?P<season>{_any_of(SEASONS)})\b"
WEEKDAY: Final = (
    rf"(?P<name>{_any_of(_FULL_WEEKDAYS - {'lunes', 'martes', 'miércoles', 'jueves', 'viernes', 'mars'})})\b"
)
SPANISH_WEEKDAY: Final = r"(?P<name>lunes|martes|miércoles|jueves|viernes|sábado|domingo)\b"
PERIOD_NAME: Final = rf"(?P<name>{_any_of({*UNITS, *_FULL_WEEKDAYS, *SEASONS, *MONTHS})})\b"
SHORT_WEEKDAY: Final = r"(?P<name>Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\b"
WHICH_BEFORE: Final = rf"\b(?P<which>{_any_of(set(WHICH) - {'que viene', 'passé', 'passée'})})"
WHICH_AFTER: Final = rf"(?P<which>{_any_of(_AFTER_NOUN)})\b"
NUMBER: Final = rf"(?P<number>{_any_of(AMOUNTS)}|\d{{1,4}})"
SHIFT: Final = _any_of(SHIFTS)
YEAR: Final = r"(?P<year>(?:19|20)\d\d)\b"
ABOUT: Final = (
    r"(?:(?:about|around|almost|nearly|over|roughly|just under|more than|like|etwa|fast|über|casi|environ) )?"
)

# What makes a sentence look ahead, so that "on Friday" and "in May" mean the coming one.
FUTURE: Final = re.compile(
    r"\b(?:will|going to|gonna|plan(?:s|ning)?|upcoming|looking forward|can't wait"
    r"|hop(?:e|ing) to|tomorrow|next|(?:am|are|is) \w+ing|werden?|wird|wirst|vais|allons|vont"
    r"|irai|voy a|vamos a|va a|planeo)\b"
    r"|'ll\b|'(?:m|re) \w+ing\b|\b(?:deadline|due)\b|\b(?:I|we) (?:start|begin|leave|move|fly) "
    r"|(?:[会會将將打]|打算|计划|準備|准备|即将|要去|予定|つもり)",
    re.IGNORECASE,
)


def _parts(*tables: Iterable[str]) -> frozenset[str]:
    """The single words of tables, as a text is cut into words before any pattern is tried."""
    return frozenset(part for table in tables for word in table for part in re.findall(r"[^\W\d_]+", word))


# Signs for what is no word: some digit, some eastern time word.
DIGIT: Final = frozenset({"0"})
EAST: Final = frozenset({"年"})
MONTH_WORDS: Final = _parts(MONTHS)
WEEKDAY_WORDS: Final = _parts(WEEKDAYS)
SEASON_WORDS: Final = _parts(SEASONS)
UNIT_WORDS: Final = _parts(UNITS) - {"de", "fin", "an"}
WHICH_WORDS: Final = _parts(WHICH) - {"que"}
SHIFT_WORDS: Final = _parts(SHIFTS) - {"the", "this", "before", "after", "last", "day"} | {
    "day",
    "morning",
    "evening",
}
# Without any of these no rule can match.
ALL_WORDS: Final = MONTH_WORDS | WEEKDAY_WORDS | SEASON_WORDS | UNIT_WORDS | SHIFT_WORDS | DIGIT | EAST


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, what it means on a given day, and the words of which one must stand in the text."""

    pattern: re.Pattern[str]
    resolve: Callable[..., Span | None]
    needs: frozenset[str]
