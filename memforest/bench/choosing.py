"""Questions whose answer is one of several options (PersonaMem): how they are asked, and what an answer chose.

The options stand in the question, so that whoever answers needs to know nothing of them. Pure.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Final

from memforest.bench.scoring import normalise

OPTIONS_MAX: Final = len(string.ascii_lowercase)
# Whoever answers from a memory abstains where it does not say it; here a guess is an answer, too.
_ASKED: Final = (
    "Which one of these answers fits best with what is remembered? Choose one in any case: answer with its letter "
    "in parentheses and nothing else, such as (a), and cite the memories that speak for it most."
)
# PersonaMem's options bring their letters along: "(a) I'd suggest ...".
_OWN_LETTER = re.compile(r"\s*\(?[a-zA-Z][).:]\s+")
_DRESS: Final = " \t\r\n*_`\"'“”‘’"
_ALONE = re.compile(r"\(?([a-z])\)?[.:]?", re.IGNORECASE)
# "The answer is (b)", "Option B", "Final answer: b." with nothing behind it.
_NAMED = re.compile(
    r"(?:the |my )?(?:final |best |right |correct )*(?:answer|option|choice)(?: is)?"
    r"\s*:?[\s*]*\(?([a-z])\)?[.\s*]*",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\(([a-z])\)", re.IGNORECASE)
# "B. I'd suggest ...", "b) ..."; "A good idea" is no label.
_LEADING = re.compile(r"([a-z])[.):]\s+\S", re.IGNORECASE)


def choice_question(question: str, options: Sequence[str]) -> str:
    """The question with its options below it, each behind its letter. Raises ValueError for none, or over 26."""
    if not 1 <= len(options) <= OPTIONS_MAX:
        raise ValueError(f"{len(options)} options; there are 1 to {OPTIONS_MAX}")
    bare = bare_options(options)
    listed = [f"({letter}) {option}" for letter, option in zip(string.ascii_lowercase, bare, strict=False)]
    return "\n".join([question.strip(), "", _ASKED, *listed])


def bare_options(options: Sequence[str]) -> list[str]:
    """The options on one line each, without letters of their own, which they lose only all together."""
    flat = [" ".join(option.split()) for option in options]
    if all(_OWN_LETTER.match(option) for option in flat):
        return [_OWN_LETTER.sub("", option, count=1) for option in flat]
    return flat


def read_choice(answer: str, options: Sequence[str]) -> int | None:
    """The option (from 0) that an answer names; None when it names none, or more than one.

    Strict: the letter alone or in a phrase that names it, one letter in parentheses whatever is around it, a
    letter before its option's text, or the text of one option alone. A letter that no option has is no answer.
    """
    bare = answer.strip(_DRESS)
    found = _ALONE.fullmatch(bare) or _NAMED.fullmatch(bare)
    if found is None:
        letters = {letter.lower() for letter in _LABEL.findall(bare)}
        if len(letters) > 1:
            return None
        if letters:
            return _place(letters.pop(), options)
        found = _LEADING.match(bare)
    if found is not None:
        return _place(found[1], options)
    same = [at for at, option in enumerate(bare_options(options)) if normalise(option) == normalise(bare)]
    return same[0] if len(same) == 1 else None


def _place(letter: str, options: Sequence[str]) -> int | None:
    place = string.ascii_lowercase.index(letter.lower())
    return place if place < len(options) else None
