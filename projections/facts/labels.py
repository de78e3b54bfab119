"""Entity labels: one normal form for all uses, and whether a capital makes a name (algorithms.md 1)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection

from projections.recall.keyed import hash_terms

# A word with its inner marks; what stands before it tells whether it begins a sentence.
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE_END = frozenset(".!?:;\n。！？：；…¿¡\"'“”„‘‚«»「『([（")
# From here on scripts put no spaces between words: Han, Kana, Hangul.
_UNSPACED_FROM = "\u2e80"
# What a genitive puts behind a name, in normal form: Anna's, James', İstanbul'un, 田中の, 小红的 (not 目的).
_GENITIVE = re.compile(
    r"(?:'s|(?<=s)'|(?<=[^\W\d_]{3})'n?[iu]n|(?<=[\u30a0-\u30ff\u4e00-\u9fff])の|(?<=[\u4e00-\u9fff]{2})的)$"
)
_GENITIVE_ENDS = ("s", "'", "n", "の", "的")
# Signs that people type for one another, and signs that nobody sees; Persian needs its joiners.
_ONE_SIGN = str.maketrans(
    {
        **dict.fromkeys("’‘ʼʻ`′", "'"),
        **dict.fromkeys("‐‑‒–−", "-"),
        **dict.fromkeys("・‧•", "·"),
        **dict.fromkeys("\u00ad\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\ufeff"),
        "İ": "i",
        "ı": "i",
    }
)
_DOTTED_I = re.compile("i\u0307+")
# In ASCII only this one of them.
_BACKTICK = "`"

# A longer label is a sentence (reference-code.md 2.5).
NAME_CHARS_MAX = 64
NAME_WORDS_MAX = 8
# Who somebody is to the machine; a user whom nobody named has no tree of their own.
_MACHINE_ROLES = frozenset(("user", "assistant", "system", "tool", "unknown", "none", "null", "n/a"))


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


# Words of dates in normal form. Names of people (May, August, Domingo) and of planets are missing.
_DATE_WORDS = _words(
    "monday tuesday wednesday thursday friday saturday sunday today tomorrow yesterday tonight",
    "january february march july september october november december",
    "montag dienstag mittwoch donnerstag freitag samstag sonntag heute morgen gestern",
    "januar februar märz juli oktober dezember",
    "lundi mardi mercredi jeudi vendredi samedi dimanche aujourd'hui hier demain",
    "janvier février juin juillet août septembre octobre novembre décembre",
    "lunes martes miércoles jueves viernes sábado hoy ayer",
    "enero febrero marzo junio agosto septiembre octubre noviembre diciembre",
)
# What may stand beside a number in a date or time; alone these prove nothing.
_BESIDE_NUMBERS = _DATE_WORDS | _words(
    "may april june august mai mars avril abril mayo julio domingo of the de del der den le el",
    "jan feb mar apr jun jul aug sep sept oct nov dec st nd rd th",
    "am pm a.m p.m o'clock uhr utc gmt bc ad bce ce week day month year jahr woche",
)
_NUMBER = re.compile(r"[\d.,:/+-]*\d[\d.,:/+-]*(?:st|nd|rd|th|am|pm|h|t\d[\d.,:+-]*z?|s|er|\.)?")
_EASTERN_DATE = re.compile(
    r"(?:[\d〇零一二三四五六七八九十百千两兩]+(?:年|月|日|号|號|时|時|点|點|分|秒|週|周|年代))+|(?:星期|周|週)[一二三四五六日天]"
    r"|[月火水木金土日]曜日?|今天|明天|昨天|今日|明日|昨日"
)


def normalise_label(label: str) -> str:
    """The form under which an entity is known: compatibility-composed, case-folded, single spaces, no genitive.

    Letters of every script and signs such as + and # stay, so `José` is not `Jos` and `C++` not `C#`. Capitals of
    Turkish and signs that people type for one another (O’Brien, O'Brien) make no difference. Its own normal form.
    """
    if label.isascii():  # composed already; asked of every phrase of a question
        folded = label.lower()
        if _BACKTICK in folded:
            folded = folded.replace(_BACKTICK, "'")
    else:
        folded = unicodedata.normalize("NFKC", label).translate(_ONE_SIGN).casefold()
        folded = unicodedata.normalize("NFKC", _DOTTED_I.sub("i", folded))
    spaced = " ".join(folded.split())
    while spaced.endswith(_GENITIVE_ENDS):
        bare = _GENITIVE.sub("", spaced).rstrip()
        if bare == spaced or not bare:
            break
        spaced = bare
    return spaced


def can_name(label: str) -> bool:
    """Whether a label in normal form may be somebody's or something's name, and so have a scope.

    Numbers, times, marks, roles of a conversation and whole sentences are none; their facts lose nothing but that.
    """
    if len(label) > NAME_CHARS_MAX or label in _MACHINE_ROLES or label in _DATE_WORDS:
        return False
    words = label.split(" ")
    if len(words) > NAME_WORDS_MAX or not any(map(str.isalpha, label)):
        return False
    return not (_EASTERN_DATE.fullmatch(label) or _is_date(words))


def _is_date(words: list[str]) -> bool:
    """Whether the words are a number with what may stand beside it: 8 May 2023, May 8th, 10:30 am, 2023-05-08."""
    bare = [word.strip(",.()") for word in words]
    numbers = [word for word in bare if _NUMBER.fullmatch(word)]
    return bool(numbers) and all(word in _BESIDE_NUMBERS or _NUMBER.fullmatch(word) for word in bare if word)


class CapitalCounts:
    """How often each word stands in lower case, and how often with a capital inside a sentence.

    Learned from the surviving turns of one user: `Nate` is a name, `Thanks` at the start of a sentence not. Words
    are known as hashes under the user's key.
    """

    def __init__(self, key: bytes = b"") -> None:
        """`key`: the user's reference."""
        self._key = key
        self._lower: Counter[int] = Counter()
        self._capital: Counter[int] = Counter()
        self._names: set[int] = set()

    def count(self, text: str) -> set[int]:
        """Count the words of a turn; those whose counts changed, as `number` gives them."""
        changed: set[int] = set()
        for match in _WORD.finditer(text):
            word = match.group()
            if word[0].islower():
                counts = self._lower
            elif word[0].isupper() and not _begins_sentence(text, match.start()):
                counts = self._capital
            else:
                continue
            form = self.number(normalise_label(word))
            counts[form] += 1
            changed.add(form)
        for form in changed:
            self._settle(form)
        return changed

    def is_name(self, label: str) -> bool:
        """Whether the (normalised) label's first word is more often a name than a common word."""
        return self.number(first_word(label)) in self._names

    def number(self, word: str) -> int:
        """What stands for a word in normal form."""
        (hashed,) = hash_terms(self._key, (word,))
        return hashed

    def _settle(self, word: int) -> None:
        """A word becomes a name by majority and stays one until it is twice as often none.

        Between the two nothing changes, or a word like `mark` would move its facts with every turn.
        """
        if self._capital[word] > self._lower[word]:
            self._names.add(word)
        elif self._lower[word] > 2 * self._capital[word]:
            self._names.discard(word)


def first_word(label: str) -> str:
    """The word that decides whether a doubtful label is a name."""
    return label.split(" ", 1)[0]


def occurs_in(label: str, text: str) -> bool:
    """Whether a text has a label as a word or words of its own; both in normal form.

    Scripts without spaces have no ends of words to look for: there it is enough that the signs are in it.
    """
    start = text.find(label) if label else -1
    while start >= 0:
        if not (_is_inside(text, start) or _is_inside(text, start + len(label))):
            return True
        start = text.find(label, start + 1)
    return False


def labels_in(text: str, labels: Collection[str], lengths: Collection[int]) -> list[str]:
    """The labels that occur in a text, sorted; `lengths` are those that labels have.

    Costs as much as the text is long, or as there are labels if these are few.
    """
    if len(labels) < len(text) * len(lengths):
        return sorted(label for label in labels if occurs_in(label, text))
    starts = (at for at in range(len(text)) if not _is_inside(text, at))
    ends = ((start, start + length) for start in starts for length in lengths)
    parts = {text[start:end] for start, end in ends if end <= len(text) and not _is_inside(text, end)}
    return sorted(part for part in parts if part and part in labels)


def _is_inside(text: str, at: int) -> bool:
    """Whether the neighbours at a place of a text are of one word."""
    one, other = text[at - 1 : at], text[at : at + 1]
    return one.isalnum() and other.isalnum() and max(one, other) < _UNSPACED_FROM


def _begins_sentence(text: str, start: int) -> bool:
    before = start - 1
    while before >= 0 and text[before] in " \t":
        before -= 1
    return before < 0 or text[before] in _SENTENCE_END
