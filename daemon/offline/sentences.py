"""Sentences of a text in any script, and a guess of its language; by rule, without a model.

Splitting must not break dates ("8. Mai"), names ("J. R. Tolkien", "Dr. Wu"), numbers or addresses of pages.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

Language: TypeAlias = Literal["en", "de", "fr", "es", "zh", "ja", "ko", ""]

# A sentence longer than this is cut at a space: one fact must stay small beside a context of some 2,000
# characters, and a paste without any full stop must not become one fact.
LONGEST_CHARS: Final = 1_000

CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"

# A mark, what closes with it, and either white space or (in CJK) nothing at all.
# Bounded counts: a run of ten thousand stops must not be read again from each of them.
_END = re.compile(r"[.!?…]{1,8}[\"'”’»)\]]{0,4}(?=\s)|[。！？｡]+[”’」』）】]{0,4}|\n+")
_LAST_WORD = re.compile(r"(\S+)$")
# "1." at the head of a line, a sentence or behind a colon numbers what follows.
_LIST_NUMBER = re.compile(r"(?:^|[\n:：。])[ \t]*\d{1,2}$")
_NEXT_WORD = re.compile(r"\s*([\w']+)")


def word_set(words: str) -> frozenset[str]:
    """The words of a list that is written with spaces."""
    return frozenset(words.split())


_ABBREVIATIONS: Final = word_set(
    "mr mrs ms dr prof st sr jr vs e.g i.e eg ie approx dept vol inc ltd corp jan feb apr aug"
    " sept sep oct nov dec tues thurs u.s u.k u.n ph.d d.c z.b d.h bzw ca nr evtl mme mlle sra"
    " srta ud uds"
)
# These end a sentence when a capital follows, and only then.
_SOFT_ABBREVIATIONS: Final = word_set("etc a.m p.m b.c a.d al")
_ORDINAL_FOLLOWERS: Final = word_set(
    "januar februar märz april mai juni juli august september oktober november dezember jahrhundert"
)

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
_HAN = re.compile(f"[{CJK}]")
_KANA = re.compile("[\u3040-\u30ff]")
_HANGUL = re.compile("[\uac00-\ud7af]")
_FUNCTION_WORDS: Final[dict[Language, frozenset[str]]] = {
    "en": word_set(
        "the i is was my to and of a it you have i'm i've we our are were be been this that with for"
        " on at your not but they he she his her their will would can it's that's don't had has do did"
        " just so"
    ),
    "de": word_set(
        "ich ist und der die das nicht wir bin ein eine einen einem einer mein meine meinen mit zu im"
        " am hier habe hat war auf für von sie er es den dem wird werden nach bei auch noch sich aber"
    ),
    "fr": word_set(
        "je j'ai le la les des est une et à nous mon ma mes avec suis chez du au il elle on dans pour"
        " pas ai été sommes ce cette sur qui que c'est vous l'ai"
    ),
    "es": word_set(
        "yo el la los las es y mi mis con en un una de del al por para no se me he fue que está estoy"
        " soy vivo tengo nos muy pero su lo hace ella él"
    ),
}


def split_sentences(text: str) -> list[str]:
    """The sentences of a text in order, without the white space around them; never an empty one."""
    sentences: list[str] = []
    start = 0
    for end in _END.finditer(text):
        if end.group().startswith(".") and _continues(text, end.start(), end.end()):
            continue
        if _LIST_NUMBER.search(text[max(start, end.start() - 6) : end.start()]):
            continue
        sentences += _bounded(text[start : end.end()].strip())
        start = end.end()
    sentences += _bounded(text[start:].strip())
    return sentences


def language_of(text: str) -> Language:
    """The language whose script or function words prevail; "" when nothing tells."""
    east = len(_HAN.findall(text))
    if east and east > len(_LATIN_WORD.findall(text)):
        if _HANGUL.search(text):
            return "ko"
        return "ja" if _KANA.search(text) else "zh"
    best: Language = ""
    most = 0
    for language, votes in votes_of(text).items():
        if votes > most:
            best, most = language, votes
    return best


def votes_of(text: str) -> dict[Language, int]:
    """How many function words of each language a text has, as far as languages have spaces."""
    words = [word.replace("’", "'").casefold() for word in _WORD.findall(text)]
    return {language: sum(map(listed.__contains__, words)) for language, listed in _FUNCTION_WORDS.items()}


def _continues(text: str, dot: int, after: int) -> bool:
    """Whether the full stop at `dot` belongs to an abbreviation, an initial or an ordinal."""
    if after - dot > 1:  # an ellipsis, or a stop inside quotes, ends a sentence
        return False
    # Only a word's length is looked back: searching the whole head for each stop would be quadratic.
    before = _LAST_WORD.search(text[max(0, dot - 20) : dot])
    following = _NEXT_WORD.match(text, after)
    if before is None or following is None:
        return False
    word = before[1].lstrip("(\"'“‘«[").casefold()
    small = following[1][0].islower()
    if word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and before[1][-1] not in "iI"):
        return True
    if word in _SOFT_ABBREVIATIONS:
        return small
    if word.isdigit() and len(word) <= 2:
        return following[1].casefold() in _ORDINAL_FOLLOWERS
    return False


def _bounded(sentence: str) -> list[str]:
    """The sentence, cut at spaces where it is too long."""
    pieces: list[str] = []
    while len(sentence) > LONGEST_CHARS:
        cut = sentence.rfind(" ", LONGEST_CHARS // 2, LONGEST_CHARS)
        cut = cut if cut > 0 else LONGEST_CHARS
        pieces.append(sentence[:cut].strip())
        sentence = sentence[cut:].strip()
    if sentence:
        pieces.append(sentence)
    return pieces
