"""The words of two readings of one thing: whether they say the same, whatever a vector thinks of them.

A number, a name or a negation makes another statement of a sentence that is otherwise the same, and few embedders
notice. Words are kept as hashes under the user's key.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

from projections.recall.tokens import terms

# They turn a sentence round, so one that has any never says the same as one that has none.
_NEGATION_WORDS = """
    no not never none nobody nothing neither nor without cannot nicht kein keine keinen nie niemals ohne
    pas jamais sans nunca sin não sem non mai senza
"""
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
_NEGATING_SIGNS = frozenset("不没沒無无未")
# Number words, and the days of the week, which are numbers, too; case-folded. Left out is what is another word of
# another language (one, un, due, sei, cent): it would only keep readings apart.
_NUMBER_WORDS = """
    2 two twice second zwei zweimal zweite deux dos dois duas | 3 three third drei dritte trois tres tre três
    4 four fourth vier vierte quatre cuatro quattro quatro | 5 five fifth fünf cinq cinco cinque
    6 six sixth sechs seis | 7 seven seventh sieben siete sette sete | 8 eight eighth acht huit ocho oito
    9 nine ninth neun neuf nueve nove | 10 ten tenth zehn dix diez dieci dez | 11 eleven elf onze undici
    12 twelve dozen zwölf dutzend douze doce dodici doze | 13 thirteen dreizehn treize trece tredici
    14 fourteen vierzehn quatorze catorce | 15 fifteen fünfzehn quinze quindici | 16 sixteen sechzehn
    17 seventeen siebzehn | 18 eighteen achtzehn | 19 nineteen neunzehn
    20 twenty zwanzig vingt veinte venti vinte | 30 thirty dreissig trente treinta trenta trinta
    40 forty vierzig quarante cuarenta | 50 fifty fünfzig cinquante
    60 sixty sechzig soixante sesenta | 70 seventy siebzig | 80 eighty achtzig | 90 ninety neunzig
    100 hundred hundert ciento cento cem | 1000 thousand tausend mille | 1000000 million millionen
    half half halb halbe demi moitié mitad metà metade | first first erste erster premier première primer primera
    mo monday mondays montag montags lundi lunes | tu tuesday tuesdays dienstag dienstags mardi martes
    we wednesday wednesdays mittwoch mittwochs mercredi miércoles
    th thursday thursdays donnerstag donnerstags jeudi jueves
    fr friday fridays freitag freitags vendredi viernes | sa saturday saturdays samstag samstags samedi sábado
    su sunday sundays sonntag sonntags dimanche domingo
"""
FIGURE_OF = {
    word: figure
    for line in _NUMBER_WORDS.replace("\n", "|").split("|")
    if line.strip()
    for figure, *words in (line.split(),)
    for word in words
}
_NUMERALS = re.compile("[二三四五六七八九十百千万萬亿億两兩半]+")
_FIRM_SIGNS = re.compile("[一二三四五六七八九十百千万萬亿億两兩半不没沒無无未]")
_TOKEN = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W\d]+")
_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_ASCII_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}
# As bytes, which are looked through faster.
_ASCII_FIGURES = frozenset(word.encode() for word in (*FIGURE_OF, *_NEGATIONS) if word.isascii())
_ASCII_LETTERS = bytes(code if code < 128 and chr(code).isalpha() else ord(" ") for code in range(256))
_NO_DIGITS = bytes(code for code in range(256) if not 48 <= code < 58)
_CONTEXT = re.compile(r"\s*\[[^\[\]]*\]$")
NEGATION = "not"
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of a text as hashes under the user's key.

    `firm` are those that make it another statement when they differ: numbers, names, negation. `order` has the
    firm ones as they stand in the text: Ann gave Bob what Bob did not give Ann.
    """

    words: frozenset[bytes]
    firm: frozenset[bytes]
    order: tuple[bytes, ...] = ()


def fold_text(text: str) -> str:
    """Equal for texts that differ in case, spacing and compatibility forms only."""
    if text.isascii():
        return " ".join(text.lower().split())
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def read_figures(folded: str) -> list[str]:
    """The numbers and days of the week of a folded text in order, in digits where words stand for them.

    A negation, wherever it is, comes last.
    """
    if folded.isascii() and _has_no_figures(folded):
        return []  # as most texts; what follows takes three times as long
    has_digits = _DIGIT.search(folded) is not None
    words = folded.translate(_ASCII_GAPS).split() if folded.isascii() else _WORD.findall(folded)
    figures: list[str] = []
    if has_digits or not FIGURE_OF.keys().isdisjoint(words):
        tokens = _TOKEN.findall(folded) if has_digits else words
        figures = [FIGURE_OF.get(token, token) for token in tokens if token in FIGURE_OF or token[0].isdigit()]
    negated = not _NEGATIONS.isdisjoint(words) or "n't" in folded or "n’t" in folded
    if not folded.isascii():
        figures += _NUMERALS.findall(folded)
        negated = negated or not _NEGATING_SIGNS.isdisjoint(folded)
    return [*figures, NEGATION] if negated else figures


def _has_no_figures(folded: str) -> bool:
    """Whether a text in ASCII has no number and no negation."""
    raw = folded.encode()
    if raw.translate(None, _NO_DIGITS) or b"n't" in raw:
        return False
    return _ASCII_FIGURES.isdisjoint(raw.translate(_ASCII_LETTERS).split())


def own_part(folded: str) -> str | None:
    """What a folded text says itself, when it leans on another that it carries behind it in brackets; else None.

    All that leans on one text looks alike for that, and so does the text.
    """
    context = _CONTEXT.search(folded) if folded.endswith("]") else None
    return None if context is None else folded[: context.start()]


def read_wording(text: str, labels: Iterable[str], key: bytes = b"") -> Wording:
    """The words of a text that names these labels, hashed under a key."""
    in_order = terms(text)
    figures = read_figures(fold_text(text))
    named = {word for label in labels for word in terms(label)}
    firm_ones = [word for word in in_order if word in named or _has_digit(word)]
    firm = {*firm_ones, *named, *figures}
    hashes = hash_words({*in_order, *firm}, key)
    return Wording(
        frozenset(hashes[word] for word in in_order),
        frozenset(hashes[word] for word in firm),
        tuple(hashes[word] for word in dict.fromkeys([*firm_ones, *figures])),
    )


def read_skeleton(text: str) -> frozenset[str]:
    """The words of a text without its numbers and negations: equal for texts that differ in these alone."""
    if not text.isascii():
        text = _FIRM_SIGNS.sub("", text)
    return frozenset(word for word in terms(text) if word not in _firm_terms() and not _has_digit(word))


@cache
def _firm_terms() -> frozenset[str]:
    return frozenset(terms(" ".join((*FIGURE_OF, *_NEGATIONS))))


def agree_firmly(one: Wording, other: Wording) -> bool:
    """Whether both have the numbers, names and negation of the other, those of both in one order."""
    if not (one.firm <= other.words | other.firm and other.firm <= one.words | one.firm):
        return False
    return [each for each in one.order if each in other.firm] == [each for each in other.order if each in one.firm]


def likeness_of_words(one: Wording, other: Wording) -> float:
    """The share of words they have in common (Jaccard); 0 when they differ in a firm one."""
    if not (one.firm <= other.words | other.firm and other.firm <= one.words | one.firm):
        return 0.0
    every = one.words | other.words
    return len(one.words & other.words) / len(every) if every else 0.0


def _has_digit(word: str) -> bool:
    return not word.isalpha() and any(map(str.isdigit, word))


def hash_words(words: Iterable[str], key: bytes) -> dict[str, bytes]:
    """What stands for each of these words under a user's key."""
    begun = blake2b(digest_size=_HASH_BYTES, key=key)
    hashes: dict[str, bytes] = {}
    for word in words:
        hashed = begun.copy()
        hashed.update(word.encode("utf-8", "surrogatepass"))
        hashes[word] = hashed.digest()
    return hashes
