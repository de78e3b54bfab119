"""`answers.judge`: a model says whether an answer to a question is right; benchmarks count by it.

It is about texts that the caller brings, and reads no memory. What it takes is on the account of a user, as what
is asked for that user's memory is, or on that of all together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeAlias

import msgspec

from daemon.asking.deep.calls import AsksModel
from daemon.asking.listings import find_user
from daemon.asking.spent import SpentShown, show_usage
from daemon.chat.asking.grading import PROMPT_VERSION, GradeReason, Rubric, grading_question
from daemon.chat.calls import Spending
from daemon.untrusted import Params
from events.errors import InvalidInput, MemForestError
from events.memory import ParkReason
from projections.ports import AnswerUnusable, ModelFailed

if TYPE_CHECKING:
    from daemon.models.budget import Budget
    from events.log import EventLog

# A page of prose: who says more names every answer there could be.
ANSWER_CHARS_MAX: Final = 4_000
QUESTION_CHARS_MAX: Final = 8_000  # with the options of a multiple choice
GOLD_CHARS_MAX: Final = 4_000
GOLDS_MAX: Final = 32
# One question: its answer, one that is mended, and more room for one that was cut.
CALLS_MAX: Final = 3

# The schema of the names beside a plain text: only we can say in one sentence which there are.
RubricName: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"enum": [each.value for each in Rubric]})]


class NothingJudges(MemForestError):
    """No language model judges answers here: set models.chat_model (README, "Chat models"), and restart."""

    code = "unavailable"


class BudgetUsedUp(MemForestError):
    """The budget of tokens for today is used up."""

    code = "unavailable"


class NothingJudged(MemForestError):
    """The language model failed at this question though it answers others; ask once more."""

    code = "unavailable"


class JudgeParams(Params, frozen=True, kw_only=True):
    """Parameters of `answers.judge`. `gold`: what is right, one text or several, of which any will do.

    `asked_at`: the day, or an instant, from which the question counts "last year". Without `user_id`, as when the
    user of a benchmark is forgotten again, the budget of all alone counts.
    """

    user_id: str | None = None
    question: str
    gold: str | list[str]
    answer: str
    rubric: RubricName = Rubric.GENERAL
    asked_at: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether an answer is right, the word why, who said so by which wording of the question, and what it took."""

    right: bool
    reason: GradeReason
    model: str
    prompt: str
    spent: SpentShown


class Judging(AsksModel, Protocol):
    """A language model that can be asked, and named."""

    @property
    def name(self) -> str:
        """As answers and events name it."""
        ...


class AnswerJudge:
    """Has answers judged by the model, if there is one."""

    def __init__(self, log: EventLog, model: Judging | None, budget: Budget) -> None:
        self._log, self._model, self._budget = log, model, budget

    async def judge(self, params: JudgeParams) -> Judged:
        """Ask once.

        Raises `InvalidInput`, `NothingJudges`, `BudgetUsedUp`, `ModelUnavailable` and `NothingJudged`.
        """
        golds, rubric = _check(params), _read_rubric(params.rubric)
        asked = None if params.asked_at is None else _read_day(params.asked_at)
        user = None if params.user_id is None else await find_user(self._log, params.user_id)
        if self._model is None:
            raise NothingJudges
        await self._budget.load(self._log)
        question = grading_question(params.question, golds, params.answer, rubric, asked)
        spending = Spending(calls_left=CALLS_MAX)
        async with self._budget.questions:
            if block := self._budget.blocked(user):
                raise BudgetUsedUp(block.reason)
            try:
                grade = await self._model.ask(question, spending)
            except ModelFailed:
                raise NothingJudged from None
            except AnswerUnusable as error:
                raise _read_fault(error.reason) from None
            finally:
                # Also of what nobody waits for any more.
                self._budget.spend_on_query(user, question.task, spending.usage)
        return Judged(grade.right, grade.reason, self._model.name, PROMPT_VERSION, show_usage(spending.usage))


def _read_fault(reason: ParkReason) -> MemForestError:
    """What to do about an answer of the model that is none."""
    if reason is ParkReason.TOO_LONG:
        return InvalidInput("question, gold and answer are longer together than the model takes; shorten them")
    if reason is ParkReason.REFUSED:
        return NothingJudged(
            "The language model, or its filter, does not judge this: set another models.chat_model."
        )
    return NothingJudged(
        "What the language model said is no judgement, also when it was asked again: ask once more, or set "
        "another models.chat_model."
    )


def _read_rubric(name: str) -> Rubric:
    try:
        return Rubric(name)
    except ValueError:
        raise InvalidInput(f"rubric is {', '.join(Rubric)}; leave it out for the first of them") from None


def _check(params: JudgeParams) -> list[str]:
    """What is right, as a list. Raises `InvalidInput`."""
    golds = [params.gold] if isinstance(params.gold, str) else params.gold
    rules = [
        (bool(params.question.strip()), "question is empty"),
        (len(params.question) <= QUESTION_CHARS_MAX, f"question has at most {QUESTION_CHARS_MAX} characters"),
        (1 <= len(golds) <= GOLDS_MAX, f"gold has 1 to {GOLDS_MAX} texts"),
        (all(gold.strip() for gold in golds), "gold has an empty text"),
        (sum(map(len, golds)) <= GOLD_CHARS_MAX, f"gold has at most {GOLD_CHARS_MAX} characters together"),
        (bool(params.answer.strip()), "answer is empty; who gives none is wrong without a judge"),
        (len(params.answer) <= ANSWER_CHARS_MAX, f"answer has at most {ANSWER_CHARS_MAX} characters"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise InvalidInput(sentence)
    return golds


def _read_day(asked_at: str) -> str:
    try:
        return datetime.fromisoformat(asked_at).date().isoformat()
    except ValueError:
        raise InvalidInput("asked_at is a date, or an instant, in ISO 8601") from None
