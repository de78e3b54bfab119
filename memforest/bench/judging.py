"""Marks for worded answers: by rule at once, and by a model's judgement where one is asked for.

What is judged already is not judged again, so that a run that was broken off goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

import anyio

from memforest.bench.choosing import read_choice
from memforest.bench.records import Asked, Case, Marks, Worded
from memforest.bench.scoring import LocomoKind, bleu1, locomo_f1, token_f1
from memforest.errors import DaemonError, MemForestError, RequestInvalid
from memforest.judged import Judgement, Rubric

# Questions whose answers are judged at the same time; the daemon asks its model as many at once as it may.
CONCURRENCY: Final = 8
# What is right of a question that the conversation does not answer, where the data set does not explain it.
NEVER_SAID: Final = "This was never said, so the question cannot be answered."
# As LongMemEval has the answers to its kinds of questions judged (Wu et al. 2024, src/evaluation/evaluate_qa.py).
_RUBRICS: Final = {
    "temporal-reasoning": Rubric.TEMPORAL,
    "knowledge-update": Rubric.KNOWLEDGE_UPDATE,
    "single-session-preference": Rubric.PREFERENCE,
}
# LoCoMo's categories, which its F1 goes by.
_LOCOMO_KINDS: Final = {kind.value: kind for kind in LocomoKind}


class JudgeAnswer(Protocol):
    """Asks a model about an answer; raises MemForestError."""

    def __call__(self, case: Case, gold: tuple[str, ...], answer: str, rubric: Rubric) -> Awaitable[Judgement]:
        """Whether the answer is right."""
        ...


Keep = Callable[[Asked], Awaitable[None]]


def mark(case: Case, worded: Worded) -> Worded:
    """An answer with all the marks that need no model; what a model said of it stays."""
    marks = worded.marks
    # Who abstains has not said any of it, in whichever words.
    said = "" if worded.abstained else worded.text
    if said is None:
        return worded
    if case.options:
        chosen = read_choice(said, case.options)
        is_right = chosen is not None and chosen == case.right_option
        return replace(worded, marks=replace(marks, chosen=chosen, choice_right=is_right))
    kind = _LOCOMO_KINDS.get(case.category)
    if kind is LocomoKind.ADVERSARIAL:
        marks = replace(marks, f1=locomo_f1(said, "", kind, abstained=worded.abstained))
    elif case.answerable and case.answers:
        marks = replace(
            marks,
            bleu_1=max(bleu1(said, gold) for gold in case.answers),
            f1=max(locomo_f1(said, gold, kind) if kind else token_f1(said, gold) for gold in case.answers),
        )
    return replace(worded, marks=marks)


def rubric_of(case: Case) -> Rubric:
    """By which rubric an answer to this case is judged."""
    return _RUBRICS.get(case.category, Rubric.GENERAL) if case.answerable else Rubric.ABSTENTION


def waits(case: Case, worded: Worded) -> bool:
    """Whether it has yet to be said if this answer is right, and can be."""
    is_given = worded.abstained or worded.text is not None
    is_known = bool(case.answers) or not case.answerable
    return worded.marks.judged is None and not case.options and is_given and is_known


async def judge_all(
    asked: Iterable[Asked],
    cases: Mapping[str, Case],
    judge: JudgeAnswer,
    keep: Keep,
    *,
    concurrency: int = CONCURRENCY,
) -> int:
    """Have judged what waits, and give each question to `keep` as soon as its answers are; how many there were.

    At most `concurrency` questions are under way. Raises MemForestError once those that are have ended or failed,
    too; what was judged until then is kept.
    """
    waiting = [each for each in asked if any(waits(cases[each.case_id], worded) for worded in each.worded)]
    left, failed = iter(waiting), list[MemForestError]()

    async def work() -> None:
        for each in left:  # shared: whoever is free takes the next one
            if failed:
                return
            try:
                judged = await judge_one(each, cases[each.case_id], judge)
            except MemForestError as error:
                failed.append(error)
                return
            await keep(judged)

    async with anyio.create_task_group() as tasks:
        for number in range(min(concurrency, len(waiting))):
            tasks.start_soon(work, name=f"bench.judge.{number}")
    if failed:
        raise failed[0]
    return len(waiting)


async def judge_one(asked: Asked, case: Case, judge: JudgeAnswer) -> Asked:
    """The same question with its answers judged, each text once however often it was given.

    No model need say that abstaining is right where nothing answers the question and wrong where something does,
    nor that no answer at all is wrong. What the daemon will not have judged, such as an answer that goes on for
    ever, is wrong; what its model makes no verdict of stays without one. Raises MemForestError for what would be
    so of the next answer, too.
    """
    gold, rubric = case.answers or (NEVER_SAID,), rubric_of(case)
    known: dict[str, bool | None] = {}
    worded: list[Worded] = []
    for each in asked.worded:
        text, marks = each.text, each.marks
        if waits(case, each) and each.abstained:
            marks = replace(marks, judged=not case.answerable)
        elif waits(case, each) and text is not None:
            if not text.strip():
                known[text] = False
            elif text not in known:
                known[text], marks = await _judge_text(judge(case, gold, text, rubric), marks)
            marks = replace(marks, judged=known[text])
        worded.append(replace(each, marks=marks))
    return replace(asked, worded=tuple(worded))


async def _judge_text(judging: Awaitable[Judgement], marks: Marks) -> tuple[bool | None, Marks]:
    """The verdict, and what it took."""
    try:
        judgement = await judging
    except RequestInvalid:
        return False, marks
    except DaemonError as error:
        if error.code == "internal":
            return None, marks
        raise
    spent = judgement.spent
    calls, tokens = marks.judge_calls + spent.calls, spent.prompt_tokens + spent.completion_tokens
    return judgement.right, replace(marks, judge_calls=calls, judge_tokens=marks.judge_tokens + tokens)
