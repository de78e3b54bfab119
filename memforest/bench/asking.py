"""One case asked in one row: the queries that its measures need, what they cost, and answers in words."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from memforest.bench.choosing import choice_question
from memforest.bench.evidence import LENGTHS, RANKS, Retrieved, find_sessions, measure
from memforest.bench.records import Asked, Spent, Worded
from memforest.errors import AnswerOverdue, Busy, DaemonError, NotFound, RequestInvalid, Unavailable
from memforest.types import Source
from memforest.wire import Call, JsonObject, given, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memforest.bench.records import Case
    from memforest.bench.rows import Row
    from memforest.client import AsyncClient

T = TypeVar("T")
CHARACTERS_PER_TOKEN = 4  # what the daemon counts for a token (README, "Asking")
# Several answers to one question, for pass@k, are to differ; one is as likely as can be.
SAMPLING_TEMPERATURE = 0.7
# A busy daemon is asked again after .1, .2, .4 ... s: about a minute in all.
BUSY_TRIES_MAX = 10
BUSY_PAUSE_S = 0.1
# Steps of a query that are neither its embedding, nor finding memories, nor wording an answer.
_OTHER_STEPS = frozenset(("wait", "load", "explain", "read"))
_EMBEDDING = "embed"
# Why no answer came, where the next question would get none either.
_STOPPING = ("model_away", "budget")


@dataclass(frozen=True, slots=True)
class _Found:
    """A memory of an answer, as far as it is measured."""

    id: str
    text: str
    sources: tuple[Source, ...] = ()
    sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Deep:
    searched_again: str | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    timings_ms: dict[str, float] = field(default_factory=dict[str, float])
    deep: _Deep | None = None


@dataclass(frozen=True, slots=True)
class _Tokens:
    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class _Usage:
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _AnsweredBy:
    spent: _Usage = _Usage()


@dataclass(frozen=True, slots=True)
class _Reply:
    """What `query` answers, as far as it is measured."""

    memories: tuple[_Found, ...]
    mode: str | None = None
    confidence: float | None = None
    insufficient: bool = False
    explanation: _Told | None = None
    answer: str | None = None
    citations: tuple[str, ...] | None = None
    abstained: bool | None = None
    answered_by: _AnsweredBy | None = None
    unanswered: str | None = None
    # Of mode deep.
    calls: int | None = None
    tokens: _Tokens | None = None


@dataclass(frozen=True, slots=True)
class _Retrieval:
    """What one row finds for a question: the answer that was timed, one with times, and the lists that are
    measured.
    """

    first: _Reply
    timed: _Reply
    wall_ms: float
    by_rank: tuple[Sequence[_Found], ...] = ()
    by_length: tuple[Sequence[_Found], ...] = ()


class Asker:
    """Asks one daemon; `k` is how many memories an answer has, `samples` how many answers in words are wanted."""

    def __init__(self, client: AsyncClient, daemon: str, k: int, samples: int) -> None:
        self._client = client
        self._daemon = daemon
        self._k = k
        self._samples = samples
        self._wording: JsonObject = {"answer": True, "explain": True}
        if samples > 1:
            self._wording["temperature"] = SAMPLING_TEMPERATURE

    async def ask(self, user_id: str, case: Case, row: Row) -> Asked:
        """Everything about one case in one row. What the daemon fails at alone is a fault of the case.

        Raises MemForestError for what would fail for the next one, too.
        """
        asked = Asked(self._daemon, row.name, case.case_id, case.category, case.answerable)
        params = {"user_id": user_id, "query": case.question, **row.params, **given(reference_date=case.asked_at)}
        try:
            found = await (self._cut(params) if row.asks_model else self._find(params, case))
            if case.options:
                params["query"] = choice_question(case.question, case.options)
            worded = [await self._word(params) for _ in range(self._samples)]
        except (RequestInvalid, Unavailable, NotFound):
            raise
        except (DaemonError, AnswerOverdue) as error:
            return replace(asked, fault=error.code)
        by_rank = [list(map(_retrieved, each)) for each in found.by_rank]
        by_length = [list(map(_retrieved, each)) for each in found.by_length]
        by_session = [[frozenset(each.sessions) for each in memories] for memories in found.by_rank]
        return replace(
            asked,
            evidence=measure(by_rank, by_length, case.gold) if case.gold else None,
            sessions=find_sessions(by_session, case.gold_sessions) if case.gold_sessions else None,
            spent=_spent(found),
            mode=found.first.mode or str(row.params["mode"]),
            confidence=found.first.confidence,
            insufficient=found.first.insufficient,
            memories=tuple(each.id for each in found.first.memories[: self._k]),
            worded=tuple(worded),
        )

    async def _find(self, params: JsonObject, case: Case) -> _Retrieval:
        """Each measure as somebody would ask for it: so many memories, or so many characters."""
        started = time.perf_counter()
        first = await self._query(params, k=self._k)
        wall_ms = (time.perf_counter() - started) * 1000
        timed = await self._query(params, k=self._k, explain=True)  # whose telling is no part of what is timed
        if not (case.gold or case.gold_sessions):
            return _Retrieval(first, timed, wall_ms)
        ranked = [first if rank == self._k else await self._query(params, k=rank) for rank in RANKS]
        tokens = [length // CHARACTERS_PER_TOKEN for length in LENGTHS] if case.gold else []
        fitting = [await self._query(params, max_tokens=each) for each in tokens]
        by_rank, by_length = (tuple(each.memories for each in replies) for replies in (ranked, fitting))
        return _Retrieval(first, timed, wall_ms, by_rank, by_length)

    async def _cut(self, params: JsonObject) -> _Retrieval:
        """One query, which costs model calls, and its ranking for all measures."""
        started = time.perf_counter()
        reply = await self._query(params, k=max(self._k, *RANKS), explain=True)
        wall_ms = (time.perf_counter() - started) * 1000
        lists = (reply.memories,) * len(RANKS)
        return _Retrieval(reply, reply, wall_ms, lists, lists)

    async def _word(self, params: JsonObject) -> Worded:
        """One answer in words."""
        started = time.perf_counter()
        reply = await self._query(params, k=self._k, **self._wording)
        wall_ms = (time.perf_counter() - started) * 1000
        if reply.unanswered in _STOPPING:
            raise Unavailable(f"The daemon gives no answers in words for now ({reply.unanswered}).")
        spent = _spent_on_words(reply, wall_ms)
        # No text is what a log without words has; an answer that did not come is an empty one.
        return Worded(reply.answer or "", bool(reply.abstained), reply.citations or (), spent=spent)

    async def _query(self, params: JsonObject, **more: Any) -> _Reply:
        call = Call("query", {**params, **more}, lambda result: read_as(_Reply, result))
        return await call_patiently(self._client, call)


async def call_patiently(client: AsyncClient, call: Call[T]) -> T:
    """What a call gives, also of a daemon that is busy for a while. Raises MemForestError."""
    for attempt in range(BUSY_TRIES_MAX):
        try:
            return await client.call(call)
        except Busy:
            await anyio.sleep(BUSY_PAUSE_S * 2**attempt)
    return await client.call(call)


def _retrieved(memory: _Found) -> Retrieved:
    return Retrieved(frozenset(source.turn_id for source in memory.sources if source.turn_id), memory.text)


def _spent(found: _Retrieval) -> Spent:
    """What finding took, by the daemon's own account; the time of its telling is not counted."""
    told, tokens = found.timed.explanation or _Told(), found.timed.tokens or _Tokens()
    steps = told.timings_ms
    finding = sum(ms for step, ms in steps.items() if step not in {*_OTHER_STEPS, _EMBEDDING})
    return Spent(
        embedding_ms=steps.get(_EMBEDDING, 0.0),
        retrieval_ms=round(finding, 3),
        wall_ms=round(found.wall_ms, 3),
        rounds=2 if told.deep and told.deep.searched_again is not None else 1,
        calls=found.timed.calls or 0,
        tokens=tokens.prompt + tokens.completion,
    )


def _spent_on_words(reply: _Reply, wall_ms: float) -> Spent:
    """What wording an answer took, by the daemon's own account."""
    usage, told = reply.answered_by.spent if reply.answered_by else _Usage(), reply.explanation or _Told()
    return Spent(
        answer_ms=told.timings_ms.get("answer", 0.0),
        wall_ms=round(wall_ms, 3),
        calls=usage.calls,
        tokens=usage.prompt_tokens + usage.completion_tokens,
    )
