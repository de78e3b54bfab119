"""Which details of the turns no fact carries, by rule: what is worth asking a model again.

A false alarm costs a model call, so what is doubtful is left alone: questions, small talk, what is said to the
other only, names at the head of a sentence, "today" and the like; and what was pasted: code, logs, tables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from daemon.offline.sentences import split_sentences
from daemon.offline.small_talk import is_only_said_to_the_other, is_question, says_nothing
from daemon.reading.details import Carriers, Detail, details_of
from daemon.reading.numbers import normal
from daemon.reading.pasted import without_pasted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.memory import ExtractedFact

# What a model can be told in one line; whoever misses more has missed all.
DETAILS_MAX: Final = 12
# Text that is read; a paste of a book has more details than anybody wants facts of.
TEXT_CHARS_MAX: Final = 20_000
_DAY_MS: Final = 86_400_000
# What a picture shows stands behind a turn in brackets; nobody said it.
_CAPTIONS = re.compile(r"(?: \[[^\[\]]{0,2000}\])+$")


def missed(texts: Sequence[str], facts: Sequence[str], speakers: Sequence[str] = ()) -> tuple[str, ...]:
    """Details of the texts that no fact carries, as they are written and in their order; at most `DETAILS_MAX`.

    `texts`: what people said, turn by turn; a machine's answers have more details than anybody wants facts of.
    `facts`: their texts with their days, as `as_read` writes them. `speakers`: names that need not be repeated.
    The first call compiles patterns (about 0.1 s) and belongs into a thread.
    """
    from daemon.offline.dates import may_name_time

    carriers = Carriers(facts)
    known = Carriers(speakers)
    found: dict[str, None] = {}
    left = TEXT_CHARS_MAX
    for text in texts:
        said = without_pasted(_CAPTIONS.sub("", text[:left]))
        may_have_dates = may_name_time(normal(said))
        for sentence in split_sentences(said):
            details = details_of(sentence, may_have_dates=may_have_dates)
            lost = [detail.written for detail in details if not _is_there(detail, carriers, known)]
            if lost and not _wants_no_fact(sentence):
                found.update(dict.fromkeys(lost))
                if len(found) >= DETAILS_MAX:
                    return tuple(found)[:DETAILS_MAX]
        left -= len(text)
        if left <= 0:
            break
    return tuple(found)


def _is_there(detail: Detail, carriers: Carriers, speakers: Carriers) -> bool:
    """Whether nobody has to ask for a detail again: a fact has it, or it names somebody who speaks."""
    if detail.kind == "name" and any(map(speakers.has_word, detail.parts)):
        return True
    return carriers.carries(detail)


def _wants_no_fact(sentence: str) -> bool:
    return is_question(sentence) or says_nothing(sentence) or is_only_said_to_the_other(sentence)


def as_read(fact: ExtractedFact) -> str:
    """A fact as `missed` wants it: its text, and its days behind it when it has a time of its own.

    A time that rules read is whole seconds long at least; from the time of one turn to that of another is not.
    """
    if (fact.time_end + 1 - fact.time_start) % 1_000:
        return fact.text
    from daemon.offline.joining import day_label

    days = f"{fact.text} {day_label(fact.time_start)}"
    return days if fact.time_end - fact.time_start < _DAY_MS else f"{days} {day_label(fact.time_end)}"
