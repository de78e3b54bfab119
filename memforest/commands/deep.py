"""Mode `deep` on the command line: its options, and what an answer says of the calls it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from memforest.output import counted, tidy

if TYPE_CHECKING:
    from memforest.output import Screen
    from memforest.types import Answer

Command = TypeVar("Command", bound=Callable[..., Any])

_CAPPED: Final = {
    "calls": "calls (--calls-max)",
    "tokens": "tokens (--model-tokens-max)",
    "time": "time (--timeout)",
}
_FELL_BACK: Final = {
    "model_away": "the language model does not answer; `memforest status` says why",
    "model_failed": "a call came to nothing",
    "answer_unusable": "what the language model answered cannot be used",
    "budget": "the tokens of today are used up; `memforest status` says until when",
    "forgotten": "something that the language model was shown was forgotten meanwhile",
}


def with_deep(command: Command) -> Command:
    """Give a command the options of mode `deep`, under the names that `query` of the client takes."""
    options = (
        click.option("--planner/--no-planner", default=None, help="Mode deep: have a model plan the search."),
        click.option(
            "--browse",
            type=click.Choice(("llm", "emb")),
            help="Mode deep: who says which nodes are gone into, a model or vectors.",
        ),
        click.option("--calls-max", type=click.IntRange(min=1), help="Calls of the language model, at most."),
        click.option("--model-tokens-max", type=click.IntRange(min=1), help="Tokens of these calls, at most."),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0, min_open=True),
            help="Seconds for these calls, at most.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def show_taken(screen: Screen, answer: Answer) -> None:
    """What was asked of a model, of an answer that explains itself."""
    if answer.calls is None:
        return
    deep = None if answer.explanation is None else answer.explanation.deep
    if deep is not None:
        for query in deep.sub_queries:
            screen.line(f"Planned for tree {query.tree[:8]}: {tidy(query.query)}")
        for number, each in enumerate(deep.rounds, start=1):
            screen.line(f"Round {number}: {', '.join(each.tasks)} ({counted(each.calls, 'call')}).")
        if deep.searched_again is not None:
            screen.line(f"Not enough, so searched again: {tidy(deep.searched_again)}")
    tokens = "" if answer.tokens is None else f", {answer.tokens.prompt} + {answer.tokens.completion} tokens"
    screen.line(f"Took {counted(answer.calls, 'call')} in {counted(answer.rounds or 0, 'round')}{tokens}.")


def why_not_deep(answer: Answer) -> Iterator[str]:
    """Sentences for what came in the way of a model; a newer daemon may have other reasons."""
    if answer.capped is not None:
        cap = _CAPPED.get(answer.capped, tidy(answer.capped))
        yield f"The cap on {cap} ended it: these memories were found until then."
    if answer.fell_back is not None:
        yield f"Without the language model in part: {_FELL_BACK.get(answer.fell_back, tidy(answer.fell_back))}."
