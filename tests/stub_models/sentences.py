"""What the stub makes of texts, by rules so plain that tests rely on them: facts, summaries, merges, verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

# A sentence of fewer words is talk, and no fact.
FACT_WORDS_MIN: Final = 5
TOPIC: Final = "conversation"
# Words of a text that a summary keeps beside numbers and names.
KEPT_WORDS: Final = 6
# A summary's end; what a parent reads must not grow with the tree.
SUMMARY_CHARACTERS_MAX: Final = 600

# What a text is spoilt with.
INVENTED: Final = "They met Zebulon Quackenbush."
GERMAN: Final = "Es war ein Tag, an dem sie mit den anderen bei der Arbeit war und nach dem sie nicht mehr kam."

_NUMBER = re.compile(r"\s?\d[\d.,:]*")
_NEGATION = re.compile(r"\b(?:not|never|no|without)\s|n't\b")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+")
_NAME = re.compile(r"[^\W\d_][\w'-]*")


@dataclass(frozen=True, slots=True)
class Said:
    """One turn as the request shows it; `name` is how the request calls the turn (a number or an id)."""

    name: object
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class StubFact:
    """One sentence that somebody said."""

    text: str
    entities: tuple[str, ...]
    said: Said


def facts_of(turns: Iterable[Said]) -> list[StubFact]:
    """One fact for each sentence of at least five words."""
    return [
        StubFact(sentence, entities_of(sentence, turn.speaker), turn)
        for turn in turns
        for sentence in _SENTENCE_ENDS.split(turn.text.strip())
        if len(sentence.split()) >= FACT_WORDS_MIN
    ]


def sentences_with(turns: Iterable[Said], details: Sequence[str]) -> list[StubFact]:
    """One fact for each sentence, however short, that holds one of these details."""
    wanted = [detail.casefold() for detail in details]
    return [
        StubFact(sentence, entities_of(sentence, turn.speaker), turn)
        for turn in turns
        for sentence in _SENTENCE_ENDS.split(turn.text.strip())
        if any(detail in sentence.casefold() for detail in wanted)
    ]


def entities_of(sentence: str, speaker: str) -> tuple[str, ...]:
    """The speaker and every capitalised word that is not the first, each once."""
    words = (_NAME.search(word) for word in sentence.split()[1:])
    names = [match[0] for match in words if match is not None and match[0][0].isupper() and match[0] != "I"]
    return tuple(dict.fromkeys(([speaker] if speaker else []) + names))


def shorten(texts: Sequence[str]) -> str:
    """A summary: the first words of each text, and of the rest whatever has a digit or a capital."""
    kept: list[str] = []
    for text in texts:
        words = text.split()
        kept += words[:KEPT_WORDS]
        kept += [word for word in words[KEPT_WORDS:] if word[:1].isupper() or any(map(str.isdigit, word))]
    whole = " ".join(dict.fromkeys(kept))
    # Half of a number would be another number.
    short = whole if len(whole) <= SUMMARY_CHARACTERS_MAX else whole[:SUMMARY_CHARACTERS_MAX].rpartition(" ")[0]
    return short or "Nothing was said."


def join(texts: Sequence[str]) -> str:
    """A merged text: all of them, each once."""
    return "; ".join(dict.fromkeys(text.strip().rstrip(".") for text in texts)) + "."


def spoil_text(text: str) -> dict[str, str]:
    """A merged text with a fault, by the fault's name."""
    return {
        "lost_number": _NUMBER.sub("", text),
        "lost_negation": _NEGATION.sub("", text),
        "invented_name": f"{text} {INVENTED}",
        "too_long": f"{text}\n" * 3,
        "other_language": GERMAN,
    }


def compare(earlier: str, later: str) -> str:
    """A verdict: the same when both have mostly the same words, and all with a digit or a capital."""
    one, other = (set(text.strip().rstrip(".").split()) for text in (earlier, later))
    differ = one ^ other
    firm = any(word[:1].isupper() or any(map(str.isdigit, word)) for word in differ)
    return "same" if not firm and len(differ) <= len(one & other) else "different"
