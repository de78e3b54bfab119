"""`models.chat_model`: any OpenAI-compatible server reads chunks, writes summaries and merges.

Nothing that it answers is believed unchecked. What it answers wrongly is asked again, then in parts, then given up
with its reason; `chat.CALLS_MAX` bounds how many calls that takes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeVar, cast

from daemon.models.chat import CALLS_MAX, Chat, Spending
from daemon.models.chat_requests import TEMPERATURE, JsonMode
from daemon.models.endpoint import Patience
from daemon.models.flights import Flights
from daemon.models.probe import ProbeResult, probe
from daemon.models.prompts import FACTS_SCHEMA, INSTRUCTIONS, Prompt
from daemon.models.questions import CHUNK_BYTES_MAX, INTERVAL_BYTES_MAX, Questions
from daemon.models.splitting import bytes_of
from events.memory import ParkReason, Task, Usage
from projections.ports import (
    AnswerUnusable,
    ChunkText,
    FactsRead,
    IntervalText,
    MemberText,
    ModelFailed,
    ModelUnavailable,
    TextWritten,
)

if TYPE_CHECKING:
    from daemon.models.chat_answers import ChatAnswer
    from daemon.models.endpoint import Endpoint
    from daemon.models.prices import Prices

# Its parts are at least half of what is asked at once, and each may take a second look. What has more is a pasted
# book: parked unread, and searchable verbatim.
READ_BYTES_MAX: Final = CALLS_MAX // 4 * CHUNK_BYTES_MAX

Answer = TypeVar("Answer", FactsRead, TextWritten)


class EndpointLanguageModel:
    """Satisfies the port `LanguageModel` by a model at an endpoint."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        json_mode: str = "auto",
        extra_body: Mapping[str, object] | None = None,
        prices: Prices,
        timeout_s: float,
    ) -> None:
        """`json_mode` is a `JsonMode`, or "auto": the strictest that a probe finds before the first question."""
        self._json_mode, self._extra_body = json_mode, dict(extra_body or {})
        self._chat = Chat(
            endpoint,
            model,
            # An attempt may take all the time there is: a slow machine of one's own needs it.
            Patience(attempt_s=timeout_s, call_s=timeout_s),
            mode=None if json_mode == "auto" else JsonMode(json_mode),
            extra_body=self._extra_body,
            prices=prices,
        )
        self._questions = Questions(self._ask)
        self._answers: Flights[object] = Flights()
        self._probes: Flights[ProbeResult] = Flights()

    @property
    def name(self) -> str:
        """The model as it is configured; another address makes no other model of it."""
        return f"endpoint-{self._chat.model}"

    @property
    def mode(self) -> str | None:
        """How JSON is asked for; None as long as nobody knows what the server takes."""
        mode = self._chat.parameters.mode
        return None if mode is None else mode.value

    def version_of(self, task: Task) -> str:
        """The task and a hash of its prompt, its schema and what of the configuration decides an answer."""
        schema = (FACTS_SCHEMA.schema, self._json_mode) if task is Task.EXTRACT else None
        decides = [INSTRUCTIONS[task], schema, self._extra_body, TEMPERATURE, CHUNK_BYTES_MAX, INTERVAL_BYTES_MAX]
        return f"{task}-{blake2b(json.dumps(decides, sort_keys=True).encode(), digest_size=8).hexdigest()}"

    async def probe(self) -> ProbeResult:
        """Find out what the endpoint takes, known or not; of a mode that is configured, whether it works.

        Raises `ModelUnavailable`.
        """
        return await self._probe(Spending())

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        """The facts of a chunk. Raises `ModelUnavailable`, `ModelFailed`, `AnswerUnusable`."""
        if await self._questions.says_nothing(chunk):
            return FactsRead((), skipped=True)
        if bytes_of(chunk.turns) > READ_BYTES_MAX:
            raise AnswerUnusable(ParkReason.TOO_LONG)

        async def extract(spending: Spending) -> FactsRead:
            read = await self._questions.extract(chunk, spending)
            return FactsRead(read.facts, spending.usage, read.missed)

        return await self._share((Task.EXTRACT, chunk), extract)

    async def summarise(self, interval: IntervalText) -> TextWritten:
        """One text for an interval. Raises `ModelUnavailable`, `ModelFailed`, `AnswerUnusable`."""

        async def summarise(spending: Spending) -> TextWritten:
            return TextWritten(await self._questions.summarise(interval, spending), spending.usage)

        return await self._share((Task.SUMMARISE, interval), summarise)

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        """One text for a group. Raises `ModelUnavailable`, `ModelFailed`, `AnswerUnusable`."""
        group = tuple(members)

        async def merge(spending: Spending) -> TextWritten:
            return TextWritten(await self._questions.merge(group, spending), spending.usage)

        return await self._share((Task.MERGE, group), merge)

    async def _ask(self, prompt: Prompt, spending: Spending, room: int) -> ChatAnswer:
        """One call, in the mode that the server takes."""
        if prompt.schema is not None and self._chat.parameters.mode is None:
            await self._probe(spending)
        return await self._chat.ask(prompt, spending, room=room)

    async def _probe(self, spending: Spending) -> ProbeResult:
        """Find the mode. Those who ask meanwhile wait for the same answer, and try again when there is none."""
        is_auto = self._json_mode == "auto"

        async def find() -> ProbeResult:
            result = await probe(self._chat, spending, JsonMode if is_auto else (JsonMode(self._json_mode),))
            if is_auto:
                self._chat.parameters = replace(self._chat.parameters, mode=result.mode)
            return result

        return (await self._probes.share("probe", find))[0]

    async def _share(self, question: Hashable, answer: Callable[[Spending], Awaitable[Answer]]) -> Answer:
        """The answer; when the same is being asked, that answer, whose cost counts once."""

        async def ask() -> Answer | Exception:
            spending = Spending()
            try:
                return await answer(spending)
            except ModelUnavailable as error:  # of a probe that others asked for, too: what it took is theirs
                return ModelUnavailable(error.reason, error.retry_in_s, spending.usage)
            except (ModelFailed, AnswerUnusable) as error:
                return error

        outcome, is_own = await self._answers.share(question, ask)
        if isinstance(outcome, Exception):
            raise outcome if is_own else _without_usage(outcome)
        answered = cast("Answer", outcome)
        return answered if is_own else replace(answered, usage=Usage())


def _without_usage(error: Exception) -> Exception:
    match error:
        case ModelFailed():
            return ModelFailed(str(error))
        case AnswerUnusable():
            return AnswerUnusable(error.reason)
        case ModelUnavailable():
            return ModelUnavailable(error.reason, error.retry_in_s)
        case _:
            return error
