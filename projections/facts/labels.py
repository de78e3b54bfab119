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
_POSSESSIVE = re.compile(r"['’]s$")


def normalise_label(label: str) -> str:
    """The form under which an entity is known: compatibility-composed, case-folded, single spaces.

    Letters of every script and signs such as + and # stay, so `José` is not `Jos` and `C++` not `C#`.
    """
    # ASCII is composed already; asked of every phrase of a question.
    folded = label.lower() if label.isascii() else unicodedata.normalize("NFKC", label).casefold()
    spaced = " ".join(folded.split())
    return _POSSESSIVE.sub("", spaced) if spaced.endswith("s") else spaced


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
