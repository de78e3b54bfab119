"""Words as the lexical index knows them: normalised, without English function words, stemmed; and pairs of
characters where a script puts no spaces between words. Not for display, and not for entity labels.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, cast

import Stemmer

from projections.recall.irregular import BASE_OF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# English function words, and what people say without saying anything (worth half a point of R@5 on LoCoMo).
# "may" is missing on purpose: months are asked for. "will" is an auxiliary far more often than a name.
_FUNCTION_WORDS = """
    a about above after again against ain't all also am an and any are aren't as at be because been
    before being below between both but by can can't cannot could couldn't did didn't do does doesn't
    doing don't down during each even few for from further get gets getting got had hadn't has hasn't
    have haven't having he her here hers herself hey hi him himself his how i if in into is isn't it its
    itself just lot many me more most much mustn't my myself no nor not now of off oh on once only or
    other our ours ourselves out over own really same shan't she should shouldn't so some still such
    than that the their theirs them themselves then there these they thing things this those through to
    too under until up very was wasn't we were weren't what when where which while who whom whose why
    will with won't would wouldn't wow yeah yes you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
_CLITICS = frozenset({"s", "m", "d", "re", "ve", "ll"})

# What is longer is no word but a hash or an encoded picture; a sender must not decide how long the keys of the
# index are.
_WORD_LENGTH_MAX = 64

# A dot opens a word only where a word may begin (.net, .env), never after "end of sentence.Next". The dot
# comes first in the pattern, because the engine finds a leading literal fast.
_DOTTED = r"""\.(?<![^\s("'\[]\.)[a-z][a-z0-9]+"""
_IS_DOTTED = re.compile(_DOTTED)
# Vowel signs and accents that stand as characters of their own are not \w in Python; without them a Hindi or
# Arabic word would fall into its consonants.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u0610-\u061a\u064b-\u065f\u0670"
    "\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83"
    "\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3c-\u0c56\u0c81-\u0c83"
    "\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d4d\u0d57\u0dca-\u0ddf\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc"
    "\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1059\u17b4-\u17d3"
)
_WORD = re.compile(rf"[a-z]\+\+|[a-z]\#(?!\w)|{_DOTTED}|[\w{_MARKS}][\w'{_MARKS}]*")
# Every ASCII character that belongs to no plain word is a gap.
_ASCII_GAPS = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "'")}

# Scripts that put no spaces between words: Han (with its iteration mark and zero), Kana, Hangul; Thai, Lao,
# Burmese and Khmer. Korean has spaces, but its particles cling to the word; pairs find the word inside.
_UNSPACED = (
    "\u3005\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\u1100-\u11ff\uac00-\ud7ff\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")

# No cache of words: one would outlive the text that was forgotten. It holds state while it runs, so only one
# thread at a time may be in it; the interpreter lock sees to that.
_stem = cast(
    "Callable[[list[str]], list[str]]",
    Stemmer.Stemmer("english", 0).stemWords,  # pyright: ignore[reportUnknownMemberType]
)


def terms(text: str) -> list[str]:
    """The terms a text is indexed under, repeated as often as they occur.

    Spaced scripts give stemmed words, in their order; the others follow with every single character and every
    pair of neighbours, the single ones so that a question of one character finds the text too. (Pairs find
    98-100 % of Chinese substrings, a splitter of words 34 %.)
    """
    return _terms(text, singles=True)


def query_terms(text: str) -> list[str]:
    """The terms a question is asked with: like `terms`, but a single character only where it stands alone.

    The index holds the single ones for exactly those questions; in others they would only repeat the pairs.
    """
    return _terms(text, singles=False)


def single_terms(words: Sequence[str]) -> dict[str, str]:
    """What `terms` gives each of these words of small letters that has one term, many times as fast."""
    plain = [word for word in words if word.isascii() and word not in STOP_WORDS]
    found = dict(zip(plain, _stem([BASE_OF.get(word, word) for word in plain]), strict=True))
    for word in words:
        if not word.isascii() and len(of_word := terms(word)) == 1:
            found[word] = of_word[0]
    return found


def _terms(text: str, *, singles: bool) -> list[str]:
    if text.isascii():
        return _stems(text.lower())
    # Case folding may leave a form that is not composed (Unicode's NFKC_Casefold), hence twice.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    folded = folded.replace("\u2019", "'").replace("\u2018", "'").replace("\u02bc", "'")
    if folded.isascii():  # typographic quotes were all there was
        return _stems(folded)
    runs = cast("list[str]", _UNSPACED_RUN.findall(folded))
    if not runs:
        return _stems(folded)
    return _stems(_UNSPACED_RUN.sub(" ", folded)) + list(_characters(runs, singles=singles))


def _stems(folded: str) -> list[str]:
    """The stems of a folded text's content words; irregular forms by their base."""
    return _stem([BASE_OF.get(word, word) for word in _content_words(folded)])


def _content_words(folded: str) -> list[str]:
    """The words of a folded text that are no function words, in its order."""
    folded = folded.replace("_", " ")
    if folded.isascii() and not ("#" in folded or "++" in folded or _IS_DOTTED.search(folded)):
        found = folded.translate(_ASCII_GAPS).split()  # five times faster than the pattern
    else:
        found = cast("list[str]", _WORD.findall(folded))
    words = [word[:_WORD_LENGTH_MAX] for word in found if word not in STOP_WORDS]
    return list(_without_apostrophes(words)) if "'" in folded else words


def _without_apostrophes(words: Iterable[str]) -> Iterator[str]:
    """`caroline's` is caroline, `l'avion` is l and avion, `'don't'` is nothing."""
    for word in words:
        if "'" not in word:
            yield word
            continue
        bare = word.strip("'")
        if bare in STOP_WORDS:
            continue
        parts = bare.split("'")
        if len(parts) > 1 and parts[-1] in _CLITICS:
            parts.pop()
        yield from (part for part in parts if part and part not in STOP_WORDS)


def _characters(runs: Iterable[str], *, singles: bool) -> Iterator[str]:
    """The characters and the pairs of neighbours of each run."""
    for run in runs:
        if singles or len(run) == 1:
            yield from run
        for start in range(len(run) - 1):
            yield run[start : start + 2]
