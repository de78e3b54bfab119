"""Mode `auto` over a Memory: which mode a question is asked in first, and whether a model looks further."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from daemon.asking.answer_types import Answer
from daemon.asking.auto_mode import Means, Shape, WhyMode, choose_shape, look_further
from daemon.asking.modes import Mode
from daemon.reading.time_questions.reader import read_time_question
from projections.recall.naming import names_in

if TYPE_CHECKING:
    from daemon.asking.deep.params import DeepAsked
    from daemon.asking.query_params import Asked
    from daemon.asking.showing import Found
    from projections.memory import Memory

# A level of the trees, and a look at what that led to; with less a model finds nothing that words do not.
DEEP_CALLS_MIN: Final = 2


def settle_mode(memory: Memory, asked: Asked) -> Asked:
    """The question in the mode that its first recall takes, and why; as it is when it names one itself."""
    if asked.mode is not Mode.AUTO:
        return asked
    question, reference = asked.params.query, asked.reference
    time = None if reference is None else read_time_question(question, reference.at, reference.zone)
    chosen = choose_shape(
        question,
        time=None if time is None else time.kind,
        named=len(names_in(memory.nodes, question)),
        nodes=len(memory.nodes),
        k=asked.k,
    )
    mode = Mode.FOREST if chosen.shape is Shape.TREES else Mode.AGPR
    return replace(asked, mode=mode, why_mode=chosen.why)


def answer_nothing(asked: Asked) -> Answer:
    """What an unknown user is answered, in the mode that was asked for."""
    if asked.mode is Mode.AUTO:
        return Answer(mode=Mode.AGPR, why_mode=WhyMode.SMALL)
    return Answer(mode=asked.mode)


def judge_first(asked: Asked, found: Found, how: DeepAsked, *, has_model: bool) -> Found:
    """The first recall of `auto`, with why no model looks further if it should; or in mode `deep` when one does.

    Of any other mode it is as it is.
    """
    if asked.mode is not Mode.AUTO:
        return found
    may_call = how.caps.calls_max >= DEEP_CALLS_MIN
    further = look_further(found.confidence, Means(has_model, may_call))
    if further is WhyMode.UNSURE:
        return replace(found, asked=replace(found.asked, mode=Mode.DEEP, why_mode=further))
    if further is None or found.asked.mode is Mode.FOREST:  # the trees have a reason of their own
        return found
    return replace(found, asked=replace(found.asked, why_mode=further))
