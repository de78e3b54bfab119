"""`answer: true`: one question to the language model, answered from the memories that were found, and citing them.

The memories are there already, and come whatever becomes of the model. While it is asked nothing is held: no
Memory, no reader; and what is forgotten meanwhile is in nothing that is given out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from daemon.asking.answer_types import Answer, AnsweredBy, MemoryShown, Unanswered
from daemon.asking.contexts import QUARTERS, count_quarters
from daemon.asking.deep.params import read_caps
from daemon.asking.fallen import find_fallen, while_it_stands, without_words
from daemon.asking.recalled import abstain
from daemon.asking.spent import show_usage
from daemon.chat.asking.answering import PROMPT_VERSION, GroundedAnswer, SaidText, answering_question, name_day
from daemon.chat.calls import Spending
from daemon.models.query_tasks import QueryTask
from events.memory import ParkReason, Usage
from events.time import read_iso
from projections.ports import AnswerUnusable, MemberText, ModelFailed, ModelUnavailable

if TYPE_CHECKING:
    from daemon.asking.recalled import Recalled
    from daemon.chat.model import EndpointLanguageModel
    from daemon.config_query import Query
    from daemon.models.budget import Budget
    from events.envelope import Reference
    from events.log import EventLog, LogReader

# One question: its answer, one that is mended, and more room for one that was cut; and the same of less.
CALLS_MAX: Final = 6
# What stands around a text in the prompt: number, days, punctuation.
FRAME_CHARS: Final = 80
# Where a server's context is too short for the memories, a third of them: 4,096 tokens hold that.
SHORTER: Final = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """A memory as a model is shown it."""

    id: str
    said: SaidText


@dataclass(slots=True)
class _Asking:
    """What came of a question to the model."""

    spending: Spending
    answer: GroundedAnswer | None = None
    evidence: Sequence[Evidence] = ()
    unanswered: Unanswered | None = None


class Grounding:
    """Has answers written from memories."""

    def __init__(
        self,
        log: EventLog,
        reader: LogReader,
        model: EndpointLanguageModel,
        budget: Budget,
        bounds: Query,
    ) -> None:
        """`bounds`: what a question may take, and how much of the memories the model is shown."""
        self._log, self._reader = log, reader
        self._model, self._budget = model, budget
        self._bounds = bounds

    async def answer(self, user: Reference, recalled: Recalled, answer: Answer) -> Answer:
        """The answer with what the model makes of its memories. Whatever the model does, they come."""
        if not answer.memories:
            return abstain(answer)
        await self._budget.load(self._log)
        caps = read_caps(recalled.asked.params, self._bounds)
        asking = _Asking(Spending(calls_left=min(CALLS_MAX, caps.calls_max), tokens_max=caps.tokens_max))
        ask = partial(self._ask, user, recalled, answer.memories, asking, caps.timeout_s)
        started = time.perf_counter()
        try:
            await while_it_stands(self._log, user, recalled.recorded, ask)
        finally:
            # Also for who has left: it is on the bill.
            self._budget.spend_on_query(user, QueryTask.ANSWER, asking.spending.usage)
        took_ms = round((time.perf_counter() - started) * 1_000, 3)
        fallen = await self._reader.read(partial(find_fallen, user=user, recorded=recalled.recorded))
        if fallen:
            asking.unanswered = Unanswered.FORGOTTEN
            answer = without_plans(recalled.make(without_words(recalled.recorded, fallen)))
        answer = with_timing(answer, "answer", took_ms)
        return _put_together(answer, asking, self._describe(asking.spending.usage))

    async def _ask(
        self,
        user: Reference,
        recalled: Recalled,
        memories: Sequence[MemoryShown],
        asking: _Asking,
        timeout_s: float,
    ) -> None:
        """Raises nothing; what comes of it stands in `asking`."""
        try:
            with anyio.fail_after(timeout_s):
                async with self._budget.questions:
                    if self._budget.is_spent(user):
                        asking.unanswered = Unanswered.BUDGET
                        return
                    await self._ask_within(recalled, memories, asking)
        except TimeoutError:
            asking.unanswered = Unanswered.TIMEOUT
        except ModelUnavailable:
            asking.unanswered = Unanswered.MODEL_AWAY
        except (ModelFailed, AnswerUnusable):
            is_capped = asking.spending.capped is not None
            asking.unanswered = Unanswered.CAPPED if is_capped else Unanswered.MODEL_FAILED

    async def _ask_within(self, recalled: Recalled, memories: Sequence[MemoryShown], asking: _Asking) -> None:
        """Of as many memories as the model's context holds. Raises the errors of the port."""
        most = self._bounds.answer_context_tokens
        for tokens in (most, most // SHORTER):
            asking.evidence = choose_evidence(memories, recalled.told.ended, tokens)
            if await self._ask_of(recalled, asking):
                return

    async def _ask_of(self, recalled: Recalled, asking: _Asking) -> bool:
        """One question; False when the model's context does not hold it. Raises the errors of the port."""
        shown = [each.said for each in asking.evidence]
        conflicts = find_places(recalled.told.conflicts, [each.id for each in asking.evidence])
        params = recalled.asked.params
        reference = recalled.asked.reference
        day = None if reference is None else name_day(reference.at, reference.zone)
        question = answering_question(params.query, day, shown, conflicts)
        if params.temperature:
            question = replace(question, prompt=replace(question.prompt, temperature=params.temperature))
        try:
            asking.answer = await self._model.ask(question, asking.spending)
        except AnswerUnusable as error:
            if error.reason is not ParkReason.TOO_LONG or asking.spending.capped is not None:
                raise
            return False
        return True

    def _describe(self, usage: Usage) -> AnsweredBy | None:
        return AnsweredBy(self._model.name, PROMPT_VERSION, show_usage(usage)) if usage.calls else None


def without_plans(answer: Answer) -> Answer:
    """The answer without what a model wrote on the way to it and without the names of trees: they may have words
    of what fell since."""
    explanation = answer.explanation
    if explanation is None:
        return answer
    deep = explanation.deep
    if deep is not None:
        deep = replace(deep, sub_queries=[], searched_again=None)
    return replace(answer, explanation=replace(explanation, deep=deep, browsed=None))


def choose_evidence(
    memories: Sequence[MemoryShown], ended: Mapping[str, tuple[MemberText, ...]], tokens_max: int
) -> list[Evidence]:
    """The best memories that fit, in the order of time. Of the best one, if it is too long, the beginning.

    `ended`: by a memory's id the states in it that ended.
    """
    left = tokens_max * QUARTERS
    chosen: list[Evidence] = []
    for memory in memories:
        if left <= 0:
            break
        # A character is a quarter of a token at least, and to count a megabyte takes a sixth of a second.
        text = _text_of(memory)[: left + 1]
        states = ended.get(memory.id, ())
        quarters = count_quarters(text) + FRAME_CHARS
        quarters += sum(count_quarters(state.text) + FRAME_CHARS for state in states)
        if quarters > left:
            if chosen:
                break
            text, states = text[: max(1, len(text) * left // quarters)], ()
        left -= quarters
        said_at, start, end = map(read_iso, (memory.said_at, memory.time_start, memory.time_end))
        until = None if memory.valid_until is None else read_iso(memory.valid_until)
        chosen.append(Evidence(memory.id, SaidText(said_at, MemberText(text, start, end, until), states)))
    return sorted(chosen, key=lambda each: each.said.said_at)


def with_timing(answer: Answer, step: str, took_ms: float) -> Answer:
    """An answer whose explanation, if there is one, tells of one more step."""
    told = answer.explanation
    if told is None:
        return answer
    return replace(answer, explanation=replace(told, timings_ms={**told.timings_ms, step: took_ms}))


def find_places(pairs: Sequence[tuple[str, str]], ids: Sequence[str]) -> list[tuple[int, int]]:
    """Where the two of each pair stand among these, of pairs of which both do."""
    place = {each: at for at, each in enumerate(ids)}
    return [(place[one], place[other]) for one, other in pairs if one in place and other in place]


def _text_of(memory: MemoryShown) -> str:
    """A memory with the members that it does not say itself."""
    members = [
        f"- [{each.said_at[:10]}] {each.text}" + (f" (until {each.valid_until[:10]})" if each.valid_until else "")
        for each in memory.members or ()
        if each.text not in memory.text
    ]
    return "\n".join([memory.text, *members])


def _put_together(answer: Answer, asking: _Asking, by: AnsweredBy | None) -> Answer:
    grounded, answer = asking.answer, replace(answer, citations=[], abstained=False, answered_by=by)
    if asking.unanswered is not None or grounded is None:
        return replace(answer, unanswered=asking.unanswered or Unanswered.MODEL_FAILED)
    if not grounded.cites:
        return replace(answer, abstained=True)
    return replace(answer, answer=grounded.text, citations=[asking.evidence[at].id for at in grounded.cites])
