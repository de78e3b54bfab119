"""What a text that stands for others lost of them, and what it says that none of them does.

For summaries and merges by a model: they may drop words, never turn "not" into its absence or 40 into 14.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from daemon.offline.sentences import split_sentences
from daemon.reading.details import Carriers, details_of
from daemon.reading.numbers import agree, find_numbers, normal, values_in

if TYPE_CHECKING:
    from collections.abc import Sequence

# What a model can be told in one line.
DETAILS_MAX: Final = 12
# Characters of all sources together that are read; groups and intervals are far below.
SOURCES_CHARS_MAX: Final = 40_000


def lost(sources: Sequence[str], text: str) -> tuple[str, ...]:
    """Numbers, dates, names and negations of the sources that the text has not, as written; at most `DETAILS_MAX`.

    A negation is lost when a source denies something and the text denies nothing at all: that two sources say
    "not" of the same may be said once. The first call compiles patterns and belongs into a thread.
    """
    carriers = Carriers((text,))
    denies = _denial(text) or _said_for_denials().search(text.casefold())
    found: dict[str, None] = {}
    left = SOURCES_CHARS_MAX
    for source in sources:
        for sentence in split_sentences(source[:left]):
            found.update((one.written, None) for one in details_of(sentence) if not carriers.carries(one))
            denied = None if denies else _denial(sentence)
            if denied:
                found[denied] = None
            if len(found) >= DETAILS_MAX:
                return tuple(found)[:DETAILS_MAX]
        left -= len(source)
        if left <= 0:
            break
    return tuple(found)


def invented(sources: Sequence[str], text: str, also: Sequence[str] = ()) -> tuple[str, ...]:
    """Numbers of the text that no source has, as written; at most `DETAILS_MAX`.

    `also`: what else it may say, as the members' days in words ("[8 May 2023]"). A number up to the count of the
    sources may be a count of them and is let pass, and so is a number word: "twice", "three times".
    """
    said = normal(text)
    if not _DIGIT.search(said):
        return ()  # as most: nothing is to be looked up in the sources
    allowed = values_in(normal("\n".join((*sources, *also))).casefold())
    allowed.update(str(count) for count in range(len(sources) + 1))
    found: dict[str, None] = {}
    for number in find_numbers(said):
        if _DIGIT.search(number.written) and not agree(number.written, number.values, allowed):
            found[number.written] = None
            if len(found) == DETAILS_MAX:
                break
    return tuple(found)


def _denial(text: str) -> str:
    """The first word by which a text denies something, "" when it denies nothing."""
    match = _denials().search(normal(text).casefold())
    return match[0] if match else ""


@cache
def _denials() -> re.Pattern[str]:
    """Words that deny, in the languages of the date rules and of small talk, and Russian."""
    words = (
        "not(?! only| just)|no(?! problem| doubt)|never|none|nobody|nothing|nowhere|neither|nor|without"
        "|cannot(?! wait)|[a-z]{2,8}n't(?! wait)"
        "|nicht|kein(?:e[nmrs]?)?|nie|niemals|nichts|niemand|ohne"
        "|ne|pas|jamais|rien|aucune?|sans"
        "|nunca|nada|nadie|ningun[oa]?|ningún|sin|tampoco|não|nem|sem"
        "|не|нет|никогда|ничего|никто|без"
    )
    # Not in "not bad", "almost", "but", "very", "future", "perhaps", "few".
    east = (
        "(?<!差)不(?![过過错錯仅僅但断斷管论論少久])|[没沒無无]|未(?![来來])|非(?!常)"
        "|(?<!しれ)(?<![少危切])ない|ません|なかった|않|없|(?<!\\S)[못안](?= )"
    )
    return re.compile(rf"(?<![\w'])(?:(?:{words})(?!\w)|n'(?=[^\W\d_]))|{east}")


@cache
def _said_for_denials() -> re.Pattern[str]:
    """As "unable to swim" for "can't swim": enough in a merged text, too loose to be looked for in its sources."""
    words = (
        "unable|unwilling|unlike|dislik|avoid|stopped|quit|g[ai]ve[n]? up|lack|refus|fail|declin|free of|hates?\\b"
        "|instead|rather than|verzicht|vermeide|aufgehört|mangel|statt|dejó de|dejado de|evita|odia|arrêté|évite"
        "|déteste|отказ|избега|перестал"
    )
    return re.compile(rf"\b(?:{words})|[拒避]|讨厌|停止|嫌い|やめ")


_DIGIT = re.compile(r"\d")
