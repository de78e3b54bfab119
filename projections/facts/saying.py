"""What a text says, word for word: whether two texts differ in nothing but how it is put.

Nearness does not tell "bought" from "sold", nor "his sister" from "her sister". So two texts say the same by rule
only if they have the same words, in orders that differ by one part that stands elsewhere: "Ann often swims" is
"often Ann swims", and "the dog bit the man" not "the man bit the dog". How English inflects and spells makes no
difference, and words that add nothing are left out; of other languages every word counts. What is put in other
words is a model's to judge.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from projections.facts.wording import FIGURE_OF, fold_text, hash_words
from projections.recall.irregular import BASE_OF

_WORDS: Final = """
    light: a an the that now already just really very quite so too also then well oh yes
    joining: and or und oder et ou y
    be: is are am was were be been being
    have: have has had having
    do: do does did
    past: was were had did been
    no verbs: child man woman person mouse foot tooth goose wife knife half mother father
    pronouns: i you he she it we they that there who what this here
"""
_LISTS: Final = {
    name.strip(): frozenset(words.split())
    for name, words in (line.split(":") for line in _WORDS.strip().splitlines())
}
# They add nothing to what is said; of forms of be, have and do see `_without_auxiliaries`.
_LIGHT: Final = _LISTS["light"]
# What stands on one side of them may as well stand on the other.
_JOINING: Final = _LISTS["joining"]
_BE, _HAVE, _DO = _LISTS["be"], _LISTS["have"], _LISTS["do"]
_PAST_AUXILIARIES: Final = _LISTS["past"]
_NO_VERBS: Final = _LISTS["no verbs"]
_PRONOUNS: Final = _LISTS["pronouns"]
_FULL_FORMS: Final = {"can't": "can not", "won't": "will not", "shan't": "shall not", "cannot": "can not"}
# Second and twice are numbers, but not two.
_ORDINAL: Final = re.compile(r"(?:th|te|first|second|third|twice|mal)$")
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff"
# A number, a letter of a script without spaces with its signs, a word, or a sign that has a meaning of its own.
_TOKEN: Final = re.compile(
    rf"(?:(?<!\S)[-+])?\d+(?:[.,:/-]\d+)*|[{_UNSPACED}][\u3099\u309a]?|(?:(?![{_UNSPACED}\d])[\w\u0300-\u036f\u0590-"
    rf"\u0dff'])+|[^\s\w]"
)
_WITHOUT_MEANING: Final = frozenset(".,;:!-_/\\*\"'`()[]{}<>|~^=")
_EASTERN_LIGHT: Final = re.compile("已经|已經|[啊呀哦喔]")
_ASKS: Final = re.compile(r"[?؟]|[吗嗎呢か][。.]?$")
# Of colour and neighbourhood, not of hour and journey.
_OUR: Final = re.compile(r"(?<=\w[lnbvdm])our")
_PAST: Final = "<past>"
_PASSIVE: Final = "<passive>"
_QUESTION: Final = "<question>"


class Said(NamedTuple):
    """The words of a text as hashes under the user's key: as they stand but for "and", and sorted with it."""

    order: tuple[bytes, ...]
    sorted: tuple[bytes, ...]


def read_said(text: str, key: bytes = b"") -> Said:
    """The words of a text that count, hashed under a key."""
    words = words_that_count(text)
    hashes = hash_words(words, key)
    order = tuple([hashes[word] for word in words if word not in _JOINING])
    return Said(order, tuple(sorted([hashes[word] for word in words])))


def say_the_same(one: Said, other: Said) -> bool:
    """Whether they have the same words, and in one order but for one part that stands elsewhere."""
    return one.sorted == other.sorted and _differ_by_one_move(one.order, other.order)


def words_that_count(text: str) -> list[str]:
    """The words of a text in order, uninflected; then marks that tell of tense, passive and question."""
    folded = fold_text(text)
    tokens = list(_without_auxiliaries(list(_tokens(folded))))
    marks: list[str] = [mark for mark in (_PAST, _PASSIVE) if mark in tokens]
    if _ASKS.search(folded):
        marks.append(_QUESTION)
    return [_base(token) for token in tokens if token not in (_PAST, _PASSIVE)] + marks


def _tokens(folded: str) -> Iterator[str]:
    if not folded.isascii():
        folded = _EASTERN_LIGHT.sub("", folded.replace("’", "'").replace("\u2212", "-"))
    for token in _TOKEN.findall(folded):
        if "'" in token:
            yield from _parts(token.strip("'"))
        elif not _is_punctuation(token):
            yield token


def _is_punctuation(token: str) -> bool:
    if len(token) > 1 or token.isalnum():
        return False
    return token in _WITHOUT_MEANING or (not token.isascii() and unicodedata.category(token)[0] in "PC")


def _parts(word: str) -> Iterator[str]:
    """A word with an apostrophe as those that it stands for; a genitive keeps its mark."""
    if word in _FULL_FORMS:
        yield from _FULL_FORMS[word].split()
    elif word.endswith("n't"):
        yield from (word[:-3], "not")
    else:
        head, *tails = word.split("'")
        is_verb = len(tails) == 1 and (tails[0] in ("m", "re", "ve") or (tails[0] == "s" and head in _PRONOUNS))
        if head:
            yield head
        yield from ("be" if tail != "ve" else "have" for tail in tails) if is_verb else tails


def _without_auxiliaries(tokens: Sequence[str]) -> Iterator[str]:
    """Without articles and forms of be, and of have and do where they are no verbs of their own; with marks."""
    for at, token in enumerate(tokens):
        behind = next((each for each in tokens[at + 1 :] if each not in _LIGHT and each != "not"), "")
        if token in _PAST_AUXILIARIES or _is_past(token):
            yield _PAST
        if token == "cannot":
            yield from ("can", "not")
        elif token in _BE:
            if token == "am" and at and (tokens[at - 1].isdigit() or tokens[at - 1] in FIGURE_OF):
                yield token  # five in the morning
            elif behind == "to":
                yield "be"
            elif _is_past(behind):
                yield _PASSIVE
        elif token in _HAVE:
            if not (_is_past(behind) or behind == "been"):
                yield "have"
        elif token in _DO:
            if tokens[at + 1 : at + 2] != ["not"]:
                yield "do"
        elif token not in _LIGHT:
            yield token


def _is_past(word: str) -> bool:
    """Whether an English word is a past tense or a participle, as far as its form tells."""
    return (len(word) > 4 and word.endswith("ed")) or BASE_OF.get(word, "mother") not in _NO_VERBS


def _base(word: str) -> str:
    """An English word without its ending, and without what two spellings differ in; a number in digits.

    What comes out is no word, but the same for forms of one. Suffixes that make other words stay.
    """
    if not word.isascii() or len(word) < 3:
        return word if word not in FIGURE_OF or _ORDINAL.search(word) else FIGURE_OF[word]
    if word in FIGURE_OF:
        return word if _ORDINAL.search(word) else FIGURE_OF[word]
    word = BASE_OF.get(word, word)
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")):
        word = word[:-2]
    elif word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is", "news")):
        word = word[:-1]
    for ending in ("ing", "ied", "ed"):
        if word.endswith(ending) and len(word) > len(ending) + 2 and re.search("[aeiouy]", word[: -len(ending)]):
            word = word[: -len(ending)] + ("y" if ending == "ied" else "")
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return _one_spelling(word).removesuffix("e")


def _one_spelling(word: str) -> str:
    """Of American and British spelling the shorter."""
    if len(word) > 5:
        word = _OUR.sub("or", word)
        for british, american in (("ise", "ize"), ("is", "iz"), ("yse", "yze"), ("tre", "ter")):
            if word.endswith(british):
                return word.removesuffix(british) + american
    return "gray" if word == "grey" else word


def _differ_by_one_move(one: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """Whether two orders of the same words are equal once one stretch of one of them is moved elsewhere."""
    start = _shared(one, other)
    end = len(one) - _shared(one[start:][::-1], other[start:][::-1])
    first, second = tuple(one[start:end]), tuple(other[start:end])
    return any(first[at:] + first[:at] == second for at in range(max(1, len(first))))


def _shared(one: Iterable[bytes], other: Iterable[bytes]) -> int:
    """How many of the first are the same."""
    count = 0
    for first, second in zip(one, other, strict=True):
        if first != second:
            break
        count += 1
    return count
