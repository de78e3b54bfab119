"""A model for mode `deep` that answers as the stub does, or as a test says; its answers go through the readers."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from daemon.chat.asking.question import Question
from daemon.chat.calls import Spending
from daemon.models.query_tasks import QueryTask
from events.memory import ParkReason, Usage
from projections.ports import AnswerUnusable
from tests.stub_models import asking

T = TypeVar("T")
RIGHT = {QueryTask.PLAN: asking.plan, QueryTask.RANK: asking.rank, QueryTask.CHECK: asking.check}
SPENT = Usage(prompt_tokens=100, completion_tokens=10)


class ScriptedAsker:
    """Answers questions of queries, one call each.

    `answers`: taken before the right one, by task, in order: a text, or what to raise. `before`: awaited before
    each answer.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[QueryTask, dict[str, Any]]] = []
        self.questions: list[Question[Any]] = []
        self.answers: dict[QueryTask, deque[str | Exception]] = {task: deque() for task in QueryTask}
        self.always: dict[QueryTask, str | Exception] = {}
        self.before: Callable[[QueryTask], Awaitable[None]] | None = None

    def tasks(self) -> list[str]:
        return [task.value for task, _ in self.asked]

    def bodies(self, task: QueryTask) -> list[dict[str, Any]]:
        return [body for each, body in self.asked if each is task]

    async def ask(self, question: Question[T], spending: Spending) -> T:
        _, reserved = spending.begin_call(question.prompt, question.prompt.room)
        body: dict[str, Any] = json.loads(question.prompt.messages[1][1])
        self.asked.append((question.task, body))
        self.questions.append(question)
        try:
            if self.before is not None:
                await self.before(question.task)
        finally:
            spending.end_call(reserved)
        spending.add(SPENT)
        queue = self.answers[question.task]
        said = queue.popleft() if queue else self.always.get(question.task) or RIGHT[question.task](body)
        if isinstance(said, Exception):
            raise said
        try:
            return question.read(said)
        except Exception:
            raise AnswerUnusable(ParkReason.ANSWER_INVALID, spending.usage) from None
