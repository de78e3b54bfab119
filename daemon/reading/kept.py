"""What a text that stands for others lost of them, and what it says that none of them does.

For summaries and merges by a model: they may drop words, never turn "not" into its absence or 40 into 14.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from daemon.offline.sentences import CJK, language_of, split_sentences, votes_of
from daemon.offline.small_talk import FILLERS
from daemon.reading.denials import Denying, find_denials, invented_denial
from daemon.reading.details import Carriers, Detail, details_of, name_parts
from daemon.reading.numbers import Number, agree, find_numbers, normal, values_in

if TYPE_CHECKING:
    from collections.abc import Sequence

# What a model can be told in one line.
DETAILS_MAX: Final = 12
# Characters of all sources together that are read; groups and intervals are far below.
SOURCES_CHARS_MAX: Final = 40_000


def lost(sources: Sequence[str], text: str) -> tuple[str, ...]:
    """Numbers, dates, names and negations of the sources that the text has not, as written; at most `DETAILS_MAX`.

    Of a negation `denials` says when it is lost. The first call compiles patterns and belongs into a thread.
    """
    carriers, denying = Carriers((text,)), Denying(text)
    found: dict[str, None] = {}
    left = SOURCES_CHARS_MAX
    for source in sources:
        for sentence in split_sentences(source[:left]):
            found.update((one.written, None) for one in details_of(sentence) if not carriers.carries(one))
            found.update((one.written, None) for one in find_denials(sentence) if not denying.carries(one))
            if len(found) >= DETAILS_MAX:
                return tuple(found)[:DETAILS_MAX]
        left -= len(source)
        if left <= 0:
            break
    return tuple(found)


def invented(
    sources: Sequence[str], text: str, also: Sequence[str] = (), *, in_words: bool = False
) -> tuple[str, ...]:
    """Numbers of the text that no source has, as written; at most `DETAILS_MAX`.

    `also`: what else it may say, as the members' days in words ("[8 May 2023]"). A number up to the count of the
    sources may be a count of them and is let pass, and so is one in words: "twice", "three times"; but with
    `in_words` for those that are too large to count what a few texts name.
    """
    said = normal(text)
    numbers = [
        each for each in find_numbers(said) if _DIGIT.search(each.written) or (in_words and _is_large(each))
    ]
    if not numbers:
        return ()  # as most: nothing is to be looked up in the sources
    allowed = values_in(normal("\n".join((*sources, *also))).casefold())
    allowed.update(str(count) for count in range(len(sources) + 1))
    found = dict.fromkeys(each.written for each in numbers if not agree(each.written, each.values, allowed))
    return tuple(found)[:DETAILS_MAX]


def invented_names(sources: Sequence[str], text: str, also: Sequence[str] = ()) -> tuple[str, ...]:
    """Names and months of the text that no source has, and a denial where none denies; at most `DETAILS_MAX`.

    `also` as for `invented`.
    """
    carriers = Carriers((*sources, *also))
    found: dict[str, None] = {}
    for sentence in split_sentences(text):
        for one in details_of(sentence):
            if not carriers.carries(one) and _is_new(one, sentence, carriers):
                found[one.written] = None
    denied = invented_denial(sources, text)
    return tuple(found)[: DETAILS_MAX - 1] + ((denied,) if denied else ())


def left_out(sources: Sequence[str], text: str) -> tuple[str, ...]:
    """The sources of which a text has no word at all, whatever they have of details; at most `DETAILS_MAX`."""
    carriers = Carriers((text,))
    signs = set(_HAN.findall(text))
    gone: list[str] = []
    for source in sources:
        words = {word for word in name_parts(_CONTRACTED.sub(" ", source)) if len(word) > _SHORT_CHARS} - FILLERS
        own = set(_HAN.findall(source))
        if (
            len(words) + len(own) >= _TELLING_MIN
            and not any(map(carriers.has_word, words))
            and own.isdisjoint(signs)
        ):
            gone.append(source)
    return tuple(gone)[:DETAILS_MAX]


def is_translated(sources: Sequence[str], text: str) -> bool:
    """Whether a text is in a language that no source is in, as far as that is plain to see."""
    joined = "\n".join(sources)
    its, theirs = language_of(text), language_of(joined)
    if its in _EAST or theirs in _EAST:
        return its != theirs and its not in map(language_of, sources)
    if not its or not theirs or its == theirs:
        return False
    votes = votes_of(text)
    return votes[its] >= _VOTES_MIN and votes[theirs] <= 1 and not votes_of(joined)[its]


def _is_new(detail: Detail, sentence: str, carriers: Carriers) -> bool:
    """Whether a detail that nothing carries was made up, and is no unit behind a number and no short form."""
    if detail.kind != "name":
        return any(value.startswith("m") for value in detail.values)
    if re.search(rf"\d\s*{re.escape(detail.written)}", sentence):
        return False
    parts = [part for part in detail.parts if len(part) > _SHORT_CHARS and part.isalpha()]
    return any(not carriers.has_word(part) for part in parts) or not detail.parts


def _is_large(number: Number) -> bool:
    """Whether a number word is too large to count what the sources name."""
    return any(value.isdecimal() and int(value) > _COUNTED_MAX for value in number.values)


# "Her three dogs" may be what the texts name, one by one.
_COUNTED_MAX: Final = 4
# VW for Volkswagen, and words before a name that begin a sentence.
_SHORT_CHARS: Final = 2
# Function words that tell a language for sure, where those of the sources' own are missing.
_VOTES_MIN: Final = 3
_EAST: Final = frozenset(("zh", "ja", "ko"))
# Of fewer words another wording may have none.
_TELLING_MIN: Final = 2
_CONTRACTED = re.compile(r"n['’]t\b", re.IGNORECASE)
_HAN = re.compile(f"[{CJK}]")
_DIGIT = re.compile(r"\d")
