"""Whether an answer is right, as a model of the daemon says: for benchmarks, and for questions of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from memforest.origins import Spent
from memforest.wire import Call, given, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence


class Rubric(StrEnum):
    """What makes an answer right, where it is more or less than saying what the gold says.

    They are LongMemEval's kinds of questions: `temporal` forgives a count of days that is off by one,
    `knowledge-update` an old state that is named beside the new one, `preference` takes the gold for a description
    of a fitting answer, and `abstention` wants to hear that it cannot be known.
    """

    GENERAL = "general"
    TEMPORAL = "temporal"
    KNOWLEDGE_UPDATE = "knowledge-update"
    PREFERENCE = "preference"
    ABSTENTION = "abstention"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a model says of an answer, and what asking it took.

    `reason` is one word: right are `same` and `abstained`, wrong `partial`, `different`, `vague` and `declined`.
    `model` and `prompt` say who judged, and by which wording of the question.
    """

    right: bool
    reason: str
    model: str
    prompt: str
    spent: Spent


def judge_answer(
    user_id: str | None,
    question: str,
    gold: str | Sequence[str],
    answer: str,
    *,
    rubric: Rubric | str | None = None,
    asked_at: str | None = None,
) -> Call[Judgement]:
    """Have a model say whether an answer to a question is right, given what is right (any of several texts).

    `asked_at` (a date, or an instant in ISO 8601) is when the question was asked: "last year" counts from there.
    It is one model call, on the account of this user or (None) of nobody in particular. The daemon raises
    Unavailable when it has no model.
    """
    params = given(
        user_id=user_id,
        question=question,
        gold=gold if isinstance(gold, str) else list(gold),
        answer=answer,
        rubric=None if rubric is None else str(rubric),
        asked_at=asked_at,
    )
    return Call("answers.judge", params, lambda result: read_as(Judgement, result), repeatable=False)
