"""`models.chat_model`: any OpenAI-compatible server reads chunks, writes summaries and merges.

Nothing that it answers is believed unchecked. What it answers wrongly is asked again, then in parts, then given up
with its reason; `calls.CALLS_MAX` bounds how many calls that takes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeVar

from daemon.chat.calls import CALLS_MAX, Chat, Spending
from daemon.chat.flights import Flight
from daemon.chat.probe import ProbeResult, probe
from daemon.chat.prompts import INSTRUCTIONS, SCHEMAS, TEMPERATURE, Prompt
from daemon.chat.questions import CHUNK_BYTES_MAX, INTERVAL_BYTES_MAX, Questions
from daemon.chat.requests import JsonMode
from daemon.chat.splitting import bytes_of
from daemon.models.endpoint import Patience
from events.memory import ParkReason, Task
from projections.ports import (
    AnswerUnusable,
    ChunkText,
    FactsRead,
    IntervalText,
    MemberText,
    ModelUnavailable,
    PairsRead,
    PairText,
    TextWritten,
)

if TYPE_CHECKING:
    from daemon.chat.answers import ChatAnswer
    from daemon.chat.asking.question import Question
    from daemon.models.endpoint import Endpoint
    from daemon.models.prices import Prices

# Its parts are at least half of what is asked at once, and each may take a second look. What has more is a pasted
# book: parked unread, and searchable verbatim.
READ_BYTES_MAX: Final = CALLS_MAX // 4 * CHUNK_BYTES_MAX
# A mode that was taken because no answer was right in any: the server may be better by then.
PROBE_AGAIN_S: Final = 300.0
# A question that others keep overtaking for so long gives its place up, and comes again: its time is not over.
WAIT_MAX_S: Final = 600.0

Answer = TypeVar("Answer", FactsRead, TextWritten, PairsRead)
Asked = TypeVar("Asked")


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
        self._versions: dict[Task, str] = {}  # as they were worked out
        self._chat = Chat(
            endpoint,
            model,
            # An attempt may take all the time there is: a slow machine of one's own needs it.
            Patience(attempt_s=timeout_s, call_s=timeout_s, wait_s=WAIT_MAX_S),
            mode=None if json_mode == "auto" else JsonMode(json_mode),
            extra_body=self._extra_body,
            prices=prices,
        )
        self._probe_again_at = math.inf
        self._questions = Questions(self._ask)
        self._probing: Flight[ProbeResult] = Flight()

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
        known = self._versions.get(task)
        if known is not None:
            return known
        schema = (SCHEMAS[task].schema, self._json_mode) if task in SCHEMAS else None
        decides = [INSTRUCTIONS[task], schema, self._extra_body, TEMPERATURE, CHUNK_BYTES_MAX, INTERVAL_BYTES_MAX]
        version = f"{task}-{blake2b(json.dumps(decides, sort_keys=True).encode(), digest_size=8).hexdigest()}"
        self._versions[task] = version
        return version

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
            return FactsRead(read.facts, spending.usage, read.missed, aliases=read.aliases)

        return await self._account(extract)

    async def summarise(self, interval: IntervalText) -> TextWritten:
        """One text for an interval. Raises `ModelUnavailable`, `ModelFailed`, `AnswerUnusable`."""

        async def summarise(spending: Spending) -> TextWritten:
            return TextWritten(await self._questions.summarise(interval, spending), spending.usage)

        return await self._account(summarise)

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        """One text for a group. Raises `ModelUnavailable`, `ModelFailed`, `AnswerUnusable`."""
        group = tuple(members)

        async def merge(spending: Spending) -> TextWritten:
            return TextWritten(await self._questions.merge(group, spending), spending.usage)

        return await self._account(merge)

    async def judge(self, pairs: Sequence[PairText]) -> PairsRead:
        """A verdict on each pair. Raises `ModelUnavailable`, `ModelFailed`, `AnswerUnusable`."""
        asked = tuple(pairs)

        async def judge(spending: Spending) -> PairsRead:
            return PairsRead(await self._questions.judge(asked, spending), spending.usage)

        return await self._account(judge)

    async def ask(self, question: Question[Asked], spending: Spending) -> Asked:
        """The answer to what a query asks; what it took stands in `spending`, also when nothing came of it.

        Raises `ModelUnavailable`, `ModelFailed`, `AnswerUnusable`; the last one also at a limit of `spending`.
        """
        return await self._questions.ask(question, spending)

    async def _ask(self, prompt: Prompt, spending: Spending, room: int) -> ChatAnswer:
        """One call, in the mode that the server takes."""
        is_unknown = self._chat.parameters.mode is None or time.monotonic() >= self._probe_again_at
        if prompt.schema is not None and is_unknown:
            await self._probe(spending)
        return await self._chat.ask(prompt, spending, room=room)

    async def _probe(self, spending: Spending) -> ProbeResult:
        """Find the mode. Those who ask meanwhile wait for the same answer, and try again when there is none."""
        is_auto = self._json_mode == "auto"

        async def find() -> ProbeResult:
            result = await probe(self._chat, spending, JsonMode if is_auto else (JsonMode(self._json_mode),))
            if is_auto:
                self._chat.parameters = replace(self._chat.parameters, mode=result.mode)
                self._probe_again_at = math.inf if result.works else time.monotonic() + PROBE_AGAIN_S
            return result

        return await self._probing.share(find)

    async def _account(self, answer: Callable[[Spending], Awaitable[Answer]]) -> Answer:
        """The answer; what was spent in vain stands in the error.

        Two people who say the same share no answer: each question is asked for itself, and whoever asks knows it
        by its place in the log.
        """
        spending = Spending()
        try:
            return await answer(spending)
        except ModelUnavailable as error:  # of a probe that others asked for, too: what it took is theirs
            raise ModelUnavailable(error.reason, error.retry_in_s, spending.usage) from None
