"""One chat model at an endpoint: asked with the parameters that its server takes, and every call accounted for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from daemon.chat.answers import ChatAnswer, Ending, read_chat
from daemon.chat.requests import JsonMode, Parameters, build_body
from daemon.models.endpoint import EasyCall
from daemon.models.failures import AnswerRefused, CallFailed, EndpointUnavailable, RequestRefused
from daemon.models.limiter import PRIORITY
from daemon.models.query_tasks import Cap
from daemon.models.refusals import Refusal
from events.memory import ParkReason, Usage
from projections.ports import AnswerUnusable, ModelFailed, ModelUnavailable

if TYPE_CHECKING:
    from daemon.chat.prompts import Prompt
    from daemon.models.endpoint import Endpoint, Patience
    from daemon.models.prices import Prices

PATH: Final = "/chat/completions"
# Each refusal takes something away: the four modes, two names for the limit, its height, the temperature.
REFUSALS_MAX: Final = 8
# More tokens than any answer has that can be read.
ROOM_MAX: Final = 32_000
# All calls of one piece of work: splits, repairs, second tries. 64 turns of 2,000 characters in a context of 4,000
# tokens take as many; what takes more is not worth it.
CALLS_MAX: Final = 64
# Where a prompt as short as this is too long together with the room for its answer, the room is to blame: such a
# server has a context of 4,096 tokens or less, and counts both.
SHORT_PROMPT_CHARS: Final = 4_000
SHORT_ROOM: Final = 1_000
# An answer needs as much room as this to be worth its prompt.
ROOM_LEAST: Final = 200
# Nothing changes before somebody changes the configuration.
MISCONFIGURED_RETRY_S: Final = 60.0


def make_easy_call(model: str, extra_body: Mapping[str, object]) -> EasyCall:
    """The shortest question there is, with none of the parameters that some servers refuse."""
    question = "Answer with the word yes."
    body = {"model": model, "messages": [{"role": "user", "content": question}], **extra_body}
    return EasyCall(PATH, body, partial(read_chat, prompt_chars=len(question)))


class PromptTooLong(Exception):
    """The model's context does not hold this prompt and the room for its answer."""


@dataclass(slots=True)
class Spending:
    """What one piece of work has taken so far, and by how much it may still go on.

    `tokens_max` None: as many as it takes. `capped`: the limit that a call was not made for. What calls that are
    out may take at most counts, too (`reserved`), so that several at once keep within the limits together: these
    are then all a `part_of` one, which has the limits.
    """

    usage: Usage = field(default_factory=Usage)
    calls_left: int = CALLS_MAX
    tokens_max: int | None = None
    part_of: Spending | None = None
    reserved: int = 0
    capped: Cap | None = None

    def add(self, usage: Usage) -> None:
        """Count a call, a repair or a split."""
        self.usage += usage
        if self.part_of is not None:
            self.part_of.add(usage)

    def begin_call(self, prompt: Prompt, room: int) -> tuple[int, int]:
        """Count a call that begins; the room for its answer, and the tokens that are reserved for it.

        Raises `AnswerUnusable` when it may not begin.
        """
        limits, reserved = self.part_of or self, 0
        if limits.calls_left <= 0:
            raise self._cap(Cap.CALLS)
        if limits.tokens_max is not None:
            sent = estimate_tokens(prompt)
            left = limits.tokens_max - limits.usage.tokens - limits.reserved - sent
            if left < ROOM_LEAST:
                raise self._cap(Cap.TOKENS)
            room = min(room, max(ROOM_LEAST, left // 2))  # others may go out at the same time
            reserved = sent + room
        limits.calls_left -= 1
        limits.reserved += reserved
        self.add(Usage(calls=1))
        return room, reserved

    def end_call(self, reserved: int) -> None:
        """A call is over, and what it took is counted."""
        (self.part_of or self).reserved -= reserved

    def _cap(self, cap: Cap) -> AnswerUnusable:
        (self.part_of or self).capped = cap
        return AnswerUnusable(ParkReason.TOO_LONG, self.usage)


def estimate_tokens(prompt: Prompt) -> int:
    """What a prompt takes, from its length in UTF-8: near to four bytes a token in every script."""
    return -(-sum(len(content.encode("utf-8", "replace")) for _, content in prompt.messages) // 4)


class Chat:
    """A model and what its server takes of us. Raises the errors of the port, with all that was spent in them."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        patience: Patience,
        *,
        mode: JsonMode | None,
        extra_body: Mapping[str, object],
        prices: Prices,
    ) -> None:
        """`mode` None: to be found out by a probe, and set then."""
        self.model = model
        self.parameters = Parameters(mode)
        self._endpoint, self._patience = endpoint, patience
        self._extra_body, self._prices = dict(extra_body), prices
        self._has_answered = False
        self._room_max = ROOM_MAX

    async def ask(
        self, prompt: Prompt, spending: Spending, *, room: int = 0, mode: JsonMode | None = None, kind: str = ""
    ) -> ChatAnswer:
        """One answer; without what the server refuses, if it does. `room` and `mode` in place of what is usual.

        Raises `PromptTooLong`, `AnswerUnusable` when the model will not answer or `CALLS_MAX` are made,
        `ModelUnavailable`, `ModelFailed`.
        """
        for _ in range(REFUSALS_MAX):
            sent = self.parameters if mode is None else replace(self.parameters, mode=mode)
            given = min(room or prompt.room, self._room_max)
            try:
                answer = await self._call(prompt, spending, given, sent, kind)
            except RequestRefused as refused:
                if refused.refusal is Refusal.TOO_LONG:
                    if prompt.characters > SHORT_PROMPT_CHARS or given <= SHORT_ROOM:
                        raise PromptTooLong from None
                    self._lower_room(given)
                elif refused.refusal is Refusal.ROOM and given > SHORT_ROOM:
                    self._lower_room(given)
                elif refused.refusal is Refusal.FORM and mode is None and sent.mode not in (None, JsonMode.TEXT):
                    mode = JsonMode.TEXT  # for this question; what comes then is read by ourselves
                else:
                    self._learn(refused, sent, spending, is_mode_given=mode is not None)
                continue
            except EndpointUnavailable as error:
                raise ModelUnavailable(error.reason, error.retry_in_s) from None
            except CallFailed as error:
                raise ModelFailed(error.reason, spending.usage) from None
            self._has_answered = True
            if answer.ending is Ending.REFUSED:
                raise AnswerUnusable(ParkReason.REFUSED, spending.usage)
            return answer
        raise ModelFailed("the endpoint refuses request after request", spending.usage)

    async def _call(
        self, prompt: Prompt, spending: Spending, room: int, parameters: Parameters, kind: str
    ) -> ChatAnswer:
        if not self._has_answered:
            await self._endpoint.open()  # takes a second, which is no latency of the server's
        room, reserved = spending.begin_call(prompt, room)
        body = build_body(self.model, prompt, room, parameters, self._extra_body)

        def read(content: bytes) -> ChatAnswer:
            try:
                return read_chat(content, prompt.characters)
            except AnswerRefused as refused:  # it is asked once more, and this one is on the bill
                spending.add(self._count(refused.tokens))
                raise

        started, is_out = time.perf_counter(), False

        def begin() -> None:
            nonlocal started, is_out
            started, is_out = time.perf_counter(), True

        try:
            answer = await self._endpoint.post(
                PATH,
                body,
                read,
                patience=self._patience,
                priority=PRIORITY[prompt.task],
                kind=kind or prompt.task.value,
                on_let_out=begin,
            )
        except asyncio.CancelledError:
            if is_out:  # nobody waits for it any more, and it is on the bill
                spending.add(self._count((estimate_tokens(prompt), 0, 0)))
            raise
        finally:
            spending.end_call(reserved)
            spending.add(Usage(latency_ms=round((time.perf_counter() - started) * 1000)))
        spending.add(self._count((answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens)))
        return answer

    def _lower_room(self, refused: int) -> None:
        """For good. A step at a time: the room of a second try may be four times what there is."""
        self._room_max = min(self._room_max, max(SHORT_ROOM, refused // 4))

    def _count(self, tokens: tuple[int, int, int]) -> Usage:
        return Usage(
            prompt_tokens=tokens[0],
            cached_tokens=tokens[1],
            completion_tokens=tokens[2],
            cost_nano=self._prices.cost_nano(self.model, *tokens),
        )

    def _learn(
        self, refused: RequestRefused, sent: Parameters, spending: Spending, *, is_mode_given: bool
    ) -> None:
        """Go on without the parameter that was refused, for good; raise what stands for any other refusal."""
        match refused.refusal:
            case Refusal.CONTENT:
                raise AnswerUnusable(ParkReason.REFUSED, spending.usage)
            case Refusal.PARAMETER if refused.parameter in self._extra_body:
                raise self.blame_configuration("the endpoint refuses a field of models.chat_extra_body")
            case Refusal.PARAMETER:
                now = replace(self.parameters, mode=sent.mode) if is_mode_given else self.parameters
                if now != sent:
                    return  # another call was refused for the same, and it is mended already
                fewer = sent.without(refused.parameter)
                if fewer is None or (is_mode_given and fewer.mode is not sent.mode):
                    raise self._refuse(refused, spending, is_probe=is_mode_given)
                self.parameters = replace(fewer, mode=self.parameters.mode) if is_mode_given else fewer
            case _:
                raise self._refuse(refused, spending, is_probe=is_mode_given)

    def blame_configuration(self, reason: str) -> ModelUnavailable:
        """The endpoint will refuse all that is sent as it is configured: the work waits, and `status` says why."""
        self._endpoint.count_failure(reason)
        return ModelUnavailable(reason, MISCONFIGURED_RETRY_S)

    def _refuse(self, refused: RequestRefused, spending: Spending, *, is_probe: bool) -> Exception:
        """Where nothing was ever answered it is no fault of the question."""
        if self._has_answered or is_probe:
            return ModelFailed(refused.reason, spending.usage)
        return self.blame_configuration(refused.reason)
