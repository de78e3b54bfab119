"""An answer in words for people: the text, and the memories it rests on as numbered sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from memforest.commands.answer_view import NOBODY, is_unknown, show_memories
from memforest.output import tidy

if TYPE_CHECKING:
    from memforest.output import Screen
    from memforest.types import Answer

_ABSTAINED: Final = "The memories do not say."
_UNANSWERED: Final = {
    "model_away": "the language model does not answer; `memforest status` says why",
    "model_failed": "what the language model answered cannot be used",
    "budget": "the tokens of today are used up; `memforest status` says until when",
    "capped": "the calls or tokens it may take do not suffice",
    "timeout": "the language model took too long",
    "forgotten": "something that the language model was shown was forgotten meanwhile",
}


def show_in_words(screen: Screen, answer: Answer) -> None:
    """The answer (in a pipe on one line), and below it what it cites, in that order; or that there is none."""
    if answer.answer is None:
        screen.line(NOBODY if is_unknown(answer) else _ABSTAINED)
        return
    screen.line(answer.answer if screen.is_terminal else " ".join(answer.answer.split()))
    by_id = {memory.id: memory for memory in answer.memories}
    cited = [by_id[each] for each in answer.citations or () if each in by_id]
    if screen.is_terminal:
        click.echo()
    show_memories(screen, cited, empty="")


def why_unanswered(reason: str) -> str:
    """A sentence for a reason; a newer daemon may have others."""
    return f"Not answered in words: {_UNANSWERED.get(reason, tidy(reason))}."
