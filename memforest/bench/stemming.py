"""The stem of an English word, for LoCoMo's F1: M. F. Porter, An algorithm for suffix stripping, 1980.

Written after the paper, whose numbers the steps have; its later departures ("bli", "logi") are Porter's own, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

Condition = Callable[[str], bool]

_STEP_2: Final = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3: Final = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4: Final = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize",
)  # fmt: skip
# Of two suffixes that a word has, the longer one counts, whether its condition holds or not.
_TABLES: Final = tuple(
    tuple(sorted(table, key=lambda rule: -len(rule[0])))
    for table in (_STEP_2, _STEP_3, tuple((suffix, "") for suffix in _STEP_4))
)
_LETTERS = re.compile(r"[a-z]+\Z")


def stem(word: str) -> str:
    """The stem of a word in lower case; what is shorter than three letters, or has other signs, stays as it is."""
    if len(word) < 3 or not _LETTERS.match(word):
        return word
    word = _step_1c(_step_1b(_step_1a(word)))
    for table, measured in zip(_TABLES, (_is_above_0, _is_above_0, _is_above_1), strict=True):
        word = _replace(word, table, measured)
    return _step_5(word)


def _step_1a(word: str) -> str:
    for suffix, becomes in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(suffix):
            return word[: -len(suffix)] + becomes
    return word


def _step_1b(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return _mend(rest) if "v" in _kinds(rest) else word
    return word


def _mend(word: str) -> str:
    """What stands before "ed" and "ing", as a word again: hop for hopp, file for fil."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and _kinds(word)[-1] == "c":
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_cvc(word) else word


def _step_1c(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and "v" in _kinds(word[:-1]) else word


def _replace(word: str, table: Iterable[tuple[str, str]], is_long: Condition) -> str:
    for suffix, becomes in table:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            is_fit = suffix != "ion" or rest.endswith(("s", "t"))
            return rest + becomes if is_fit and is_long(rest) else word
    return word


def _step_5(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_cvc(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _kinds(word: str) -> str:
    """Each letter as a vowel ("v") or a consonant ("c"); "y" is a vowel behind a consonant."""
    kinds = ""
    for at, letter in enumerate(word):
        is_vowel = letter in "aeiou" or (letter == "y" and at > 0 and kinds[-1] == "c")
        kinds += "v" if is_vowel else "c"
    return kinds


def _measure(word: str) -> int:
    """The m of [C](VC){m}[V]: how often a consonant follows a vowel."""
    return _kinds(word).count("vc")


def _is_above_0(word: str) -> bool:
    return _measure(word) > 0


def _is_above_1(word: str) -> bool:
    return _measure(word) > 1


def _ends_cvc(word: str) -> bool:
    """Porter's *o: consonant, vowel, consonant at the end, the last none of w, x, y."""
    return _kinds(word).endswith("cvc") and word[-1] not in "wxy"
