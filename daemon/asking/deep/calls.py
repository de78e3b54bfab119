"""What one query may ask a model: within its caps, while the budget lasts, and only as long as nothing fails.

Whatever the model does, nothing is raised: what came to nothing has no answer, and `fell_back` or `capped` say
why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio

from daemon.asking.deep.types import FellBack
from daemon.asking.fallen import while_it_stands
from daemon.chat.calls import Spending
from daemon.models.query_tasks import Cap
from events.memory import ParkReason, Usage
from projections.ports import AnswerUnusable, ModelFailed, ModelUnavailable

if TYPE_CHECKING:
    from daemon.asking.deep.params import Caps
    from daemon.chat.asking.question import Question
    from daemon.models.budget import Budget
    from events.envelope import RecordedEvent, Reference
    from events.log import EventLog

T = TypeVar("T")


class AsksModel(Protocol):
    """A language model that takes questions of queries."""

    async def ask(self, question: Question[T], spending: Spending) -> T:
        """The answer; what it took stands in `spending`. Raises `ModelUnavailable`, `ModelFailed`,
        `AnswerUnusable`."""
        ...


@dataclass(slots=True)
class Asking(Generic[T]):
    """A question on its way; `answer` None: there is none."""

    question: Question[T]
    answer: T | None = None
    spending: Spending = field(default_factory=Spending)
    # It was more than the model takes at once, so that halves of it may be asked.
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """What was asked at the same time: the tasks, how many calls that took, and how many of them waited for one
    another."""

    tasks: tuple[str, ...]
    calls: int
    deep: int


class ModelUse:
    """The calls of one query."""

    def __init__(self, model: AsksModel, budget: Budget, log: EventLog, user: Reference, caps: Caps) -> None:
        """The time of its caps begins now."""
        self._model, self._budget, self._log, self._user = model, budget, log, user
        self._deadline = anyio.current_time() + caps.timeout_s
        self._spending = Spending(calls_left=caps.calls_max, tokens_max=caps.tokens_max)
        self.rounds: list[Round] = []
        self.fell_back: FellBack | None = None
        # Events whose words a model was shown for this query.
        self.shown: dict[int, RecordedEvent] = {}
        self._timed_out = False

    @property
    def usage(self) -> Usage:
        """What all calls took."""
        return self._spending.usage

    @property
    def capped(self) -> Cap | None:
        """The cap that ended the asking."""
        return Cap.TIME if self._timed_out else self._spending.capped

    @property
    def goes_on(self) -> bool:
        """Whether another question may be asked."""
        if self.fell_back is None and self.capped is None and anyio.current_time() >= self._deadline:
            self._timed_out = True
        return self.fell_back is None and self.capped is None

    async def ask(self, askings: Sequence[Asking[Any]], shown: Mapping[int, RecordedEvent]) -> None:
        """Ask these at the same time. `shown`: the events whose words are in them."""
        if not askings or not self.goes_on:
            return
        await self._budget.load(self._log)
        with anyio.move_on_at(self._deadline) as waiting:
            async with self._budget.questions:
                if self._budget.is_spent(self._user):
                    self.fell_back = FellBack.BUDGET
                    return
                self.shown |= shown
                await self._ask_all(askings)
        if waiting.cancelled_caught:
            self._timed_out = True

    async def _ask_all(self, askings: Sequence[Asking[Any]]) -> None:
        is_over = is_undone = False
        for asking in askings:
            asking.spending, asking.too_long = Spending(part_of=self._spending), False

        async def ask_all() -> None:
            nonlocal is_over
            async with anyio.create_task_group() as tasks:
                for asking in askings:
                    tasks.start_soon(self._ask, asking)
            is_over = True

        try:
            await while_it_stands(self._log, self._user, self.shown, ask_all)
            is_undone = not is_over
        finally:
            # Also for who has left: it is on the bill.
            for asking in askings:
                self._budget.spend_on_query(self._user, asking.question.task, asking.spending.usage)
            calls = [asking.spending.usage.calls for asking in askings]
            if any(calls):
                tasks = tuple(asking.question.task.value for asking in askings)
                self.rounds.append(Round(tasks, sum(calls), max(calls)))
        if is_undone:
            self.fell_back = FellBack.FORGOTTEN
            for asking in askings:
                asking.answer = None

    def give_up(self) -> None:
        """Nothing of use is to be had of the model for this query."""
        self._fall_back(FellBack.ANSWER_UNUSABLE)

    async def _ask(self, asking: Asking[T]) -> None:
        """Raises nothing."""
        try:
            asking.answer = await self._model.ask(asking.question, asking.spending)
        except ModelUnavailable:
            self._fall_back(FellBack.MODEL_AWAY)
        except ModelFailed:
            self._fall_back(FellBack.MODEL_FAILED)
        except AnswerUnusable as error:
            if self._spending.capped is None:
                asking.too_long = error.reason is ParkReason.TOO_LONG
                if not asking.too_long:
                    self._fall_back(FellBack.ANSWER_UNUSABLE)

    def _fall_back(self, why: FellBack) -> None:
        self.fell_back = self.fell_back or why
