"""An OpenAI-compatible server: calls within their time, again where that helps, as many at once as it can bear."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec

from daemon.config import hide_password
from daemon.logs import Report, quiet
from daemon.models.circuit import Circuit
from daemon.models.client import Client
from daemon.models.failures import (
    AnswerRefused,
    CallFailed,
    EndpointKeys,
    EndpointUnavailable,
    Failure,
    Fault,
    RequestRefused,
    classify,
)
from daemon.models.limiter import AdaptiveLimiter, Place
from daemon.models.refusals import Refusal
from daemon.models.retrying import RETRIES_SAVED_MAX, RetryBudget, choose_pause

__all__ = [
    "AnswerRefused",
    "CallFailed",
    "EasyCall",
    "Endpoint",
    "EndpointKeys",
    "EndpointState",
    "EndpointUnavailable",
    "Patience",
    "Refusal",
    "RequestRefused",
]

T = TypeVar("T")
# A chat answer has some thousand tokens; what is longer than this is cut off.
ANSWER_BYTES_MAX = 4 << 20
# A longer answer is read on a thread: decoding it would hold up the loop for milliseconds.
LOOP_BYTES_MAX = 64 << 10
# An attempt that has less than this of its time left is not begun: its answer would be paid for and not awaited.
RETRY_LEAST = 0.25
# Whoever is refused comes back no sooner.
RETRY_MIN_S = 1.0
# Tries in a row that an open circuit let through, and that failed as calls fail; then it is found out whether that
# is their own fault. Earlier it would be taken for theirs whenever a server is short of something.
TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds for one attempt; for a whole call with its pauses, from when it is let out; and for being let out
    (None: as long as it takes)."""

    attempt_s: float
    call_s: float
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndpointState:
    """How an endpoint fares, for `status` and the metrics. Counts are since the start; `url` has no password.

    `calls` were let out, `failed` of them came to nothing by the endpoint's fault, `retries` are requests beyond
    the first of a call. `limit`: how many requests it gets at once for now, of `concurrency`.
    """

    url: str
    circuit: str  # "closed" or "open"
    reason: str | None
    retry_in_s: float
    limit: int
    concurrency: int
    in_flight: int
    waiting: int
    calls: int
    failed: int
    retries: int


class EasyCall(NamedTuple):
    """A request that every server in order answers, and what reads its answer, as in `Endpoint.post`."""

    path: str
    body: Mapping[str, object]
    read: Callable[[bytes], object]


class _Request(NamedTuple):
    path: str
    content: bytes
    body: Mapping[str, object]
    kind: str
    answer_bytes_max: int


class Endpoint:
    """One server for one use: "chat" or "embeddings"."""

    def __init__(
        self,
        url: str,
        api_key: str,
        keys: EndpointKeys,
        *,
        concurrency: int,
        use: str = "chat",
        kept_for_first: int = 0,
        easy: EasyCall | None = None,
        report: Report = quiet,
        circuit: Circuit | None = None,
    ) -> None:
        """Nothing is opened before the first call. `kept_for_first`: slots that are left to priority 0.

        `easy` tells a server that answers nobody from the only call there is that it never answers; without one
        that call would wait for ever.
        """
        self.circuit = circuit or Circuit()
        self.limiter = AdaptiveLimiter(concurrency, kept_for_first=kept_for_first)
        # Its pool is as large as the limiter lets it be, so nobody waits in it.
        self._client = Client(url, api_key, concurrency)
        self._budget = RetryBudget(saved_max=max(RETRIES_SAVED_MAX, float(concurrency)))
        self._url, self._keys, self._use, self._report = hide_password(url), keys, use, report
        self._easy = easy
        self._concurrency = concurrency
        self._calls = self._failed = self._retries = 0
        self._is_tried = False  # the circuit is open, and the call is out that may find it better
        self._tries = 0  # such calls in a row that failed, and not as a server fails that is away

    @property
    def state(self) -> EndpointState:
        """How it fares now."""
        circuit, limiter = self.circuit, self.limiter
        return EndpointState(
            self._url,
            "closed" if circuit.is_closed else "open",
            circuit.reason,
            max(circuit.retry_in_s(anyio.current_time()), limiter.pause_left_s()),
            limiter.limit,
            self._concurrency,
            limiter.in_flight,
            limiter.waiting,
            self._calls,
            self._failed,
            self._retries,
        )

    async def post(
        self,
        path: str,
        body: Mapping[str, object],
        read: Callable[[bytes], T],
        *,
        patience: Patience,
        priority: int = 0,
        kind: str = "",
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        on_let_out: Callable[[], None] = lambda: None,
    ) -> T:
        """One call with its attempts: `body` as JSON to `path` ("/chat/completions"), the answer through `read`.

        `read` gets the whole body of a success and raises `AnswerRefused` for one that is not usable, and then it
        is asked once more; for long bodies it is called on a thread. The smaller `priority` goes first; `kind`
        groups calls that take about as long; `on_let_out` is called when it has its slot.
        Raises `EndpointUnavailable`, `CallFailed` and `RequestRefused`.
        """
        request = _Request(path, _encode(body), body, kind, answer_bytes_max)
        await self.open()  # takes a second the first time, which is nobody's attempt
        place = self.limiter.queue_up(priority)
        await self._be_let_out(place, patience)
        on_let_out()
        self._calls += 1
        self._budget.note_call()
        if not self.circuit.is_closed:
            return await self._try_once(request, read, patience)
        deadline = anyio.current_time() + patience.call_s
        attempt = 1
        while True:
            left_s = min(patience.attempt_s, deadline - anyio.current_time())
            outcome = await self._attempt(request, read, left_s)
            if not isinstance(outcome, Failure):
                self._note_success()
                return outcome
            pause_s = self._plan_retry(outcome, attempt, deadline, patience)
            if pause_s is None or not self._budget.take():
                raise self._fail(outcome, patience)
            attempt += 1
            with anyio.move_on_at(deadline) as waiting:
                if pause_s:
                    await anyio.sleep(pause_s)
                await self.limiter.acquire(place)
            if waiting.cancelled_caught:
                raise self._fail(outcome, patience)
            if not self.circuit.is_closed:  # opened by others meanwhile
                self.limiter.release()
                raise self._refuse()
            self._retries += 1

    def count_failure(self, reason: str) -> None:
        """A request was refused, and the caller knows that it was the endpoint's or the configuration's fault."""
        self._failed += 1
        self._note_failure(reason, None)

    async def open(self) -> None:
        """Make the pool of connections, which else the first call does. Raises `EndpointUnavailable`."""
        try:
            await self._client.open()
        except Exception as error:  # certificates that are no file, a proxy that is no address, a missing library
            kind = type(error).__name__
            reason = f"no call can go out ({kind}): see SSL_CERT_FILE and the proxies of the environment"
            self.count_failure(reason)
            raise EndpointUnavailable(reason, max(RETRY_MIN_S, self._wait_s())) from None

    async def close(self) -> None:
        """Hang up."""
        self.limiter.close()
        await self._client.close()

    async def _be_let_out(self, place: Place, patience: Patience) -> None:
        """Wait for a slot, unless there will be none in time. Raises `EndpointUnavailable`."""
        if self._is_being_tried or self._wait_s() > (patience.call_s if self.circuit.is_closed else 0.0):
            raise self._refuse()
        with anyio.move_on_after(patience.wait_s) as waiting:
            await self.limiter.acquire(place)
        if waiting.cancelled_caught:
            raise EndpointUnavailable("other calls take up models.concurrency", RETRY_MIN_S)
        if self._is_being_tried or not self.circuit.lets_through(anyio.current_time()):
            self.limiter.release()
            raise self._refuse()

    async def _try_once(self, request: _Request, read: Callable[[bytes], T], patience: Patience) -> T:
        """The one call that an open circuit lets through, with one attempt; nobody follows until it is over."""
        self._is_tried = True
        try:
            outcome = await self._attempt(request, read, min(patience.attempt_s, patience.call_s))
            if not isinstance(outcome, Failure):
                self._note_success()
                return outcome
            self._tries = self._tries + 1 if outcome.fault is Fault.CALL else 0
            if self._tries >= TRIES_MAX and await self._answers_others(patience):
                self._failed += 1
                self._note_success()
                raise CallFailed(outcome.reason, is_slow=outcome.is_slow)
        finally:
            self._is_tried = False
        raise self._fail(outcome, patience)

    async def _answers_others(self, patience: Patience) -> bool:
        """Whether an easy call is answered."""
        self._tries = 0
        if self._easy is None:
            return False
        path, body, read = self._easy
        with anyio.move_on_after(patience.call_s):
            await self.limiter.acquire(self.limiter.queue_up(0))
            request = _Request(path, _encode(body), body, "easy", ANSWER_BYTES_MAX)
            return not isinstance(await self._attempt(request, read, patience.attempt_s), Failure)
        return False

    async def _attempt(self, request: _Request, read: Callable[[bytes], T], timeout_s: float) -> T | Failure:
        """One request in the slot that is held, which is free afterwards. What was read, or why there is nothing.

        The deadline is for the whole answer: the transport's is for each read, and who drips outlasts it.
        """
        sent_at = anyio.current_time()
        answer = b""
        try:
            with anyio.fail_after(timeout_s):
                answer = await self._client.post(
                    request.path, request.content, timeout_s, request.answer_bytes_max
                )
                self.limiter.note_answer(request.kind, sent_at)
                if len(answer) <= LOOP_BYTES_MAX:
                    return read(answer)
                return await anyio.to_thread.run_sync(read, answer)
        except Exception as error:  # a dozen libraries raise what they like (engineering.md M6)
            failure = classify(error, self._keys, time.time(), answer, request.body)
            if failure.is_overload:
                self.limiter.note_overload(sent_at)
            if failure.wait_s:
                self.limiter.pause(failure.wait_s)  # all of them: the next one would hear the same
            return failure
        finally:
            self.limiter.release()

    def _plan_retry(self, failure: Failure, attempt: int, deadline: float, patience: Patience) -> float | None:
        """Seconds before the next attempt, beyond those that the endpoint is paused for; None: there is none."""
        if attempt >= failure.attempts_max:
            return None
        pause_s = 0.0 if failure.wait_s else choose_pause(attempt, random.random())
        left_s = deadline - anyio.current_time() - max(pause_s, failure.wait_s or 0.0)
        return pause_s if left_s >= patience.attempt_s * RETRY_LEAST else None

    def _fail(self, failure: Failure, patience: Patience) -> Exception:
        """Count a call that came to nothing; the error that says so."""
        if failure.fault is Fault.REQUEST:
            if not self.circuit.is_closed and failure.refusal is not Refusal.OTHER:
                self._note_success()  # it looked at the request, so it works
            return RequestRefused(failure.refusal, failure.reason, failure.parameter)
        self._failed += 1
        wait_s = failure.wait_s
        self._note_failure(failure.reason, wait_s if wait_s is not None and wait_s > patience.call_s else None)
        if failure.fault is Fault.CALL and self.circuit.is_closed:
            return CallFailed(failure.reason, is_slow=failure.is_slow)
        retry_in_s = max(RETRY_MIN_S, self._wait_s(), wait_s or 0.0)
        return EndpointUnavailable(failure.reason, retry_in_s, is_slow=failure.is_slow)

    def _refuse(self) -> EndpointUnavailable:
        reason = self.circuit.reason or "the endpoint asked to be left alone for a while"
        return EndpointUnavailable(reason, max(RETRY_MIN_S, self._wait_s()))

    @property
    def _is_being_tried(self) -> bool:
        return self._is_tried and not self.circuit.is_closed

    def _wait_s(self) -> float:
        return max(self.circuit.retry_in_s(anyio.current_time()), self.limiter.pause_left_s())

    def _note_success(self) -> None:
        was_closed, self._tries = self.circuit.is_closed, 0
        self.circuit.note_success()
        if not was_closed:
            self._report("model.circuit_closed", use=self._use)

    def _note_failure(self, reason: str, wait_s: float | None) -> None:
        now = anyio.current_time()
        was_closed = self.circuit.is_closed
        self.circuit.note_failure(reason, now, wait_s)
        if was_closed and not self.circuit.is_closed:
            retry_in_s = round(self.circuit.retry_in_s(now), 1)
            self._report("model.circuit_opened", use=self._use, reason=reason, retry_in_s=retry_in_s)


def _encode(body: Mapping[str, object]) -> bytes:
    """JSON. Halves of surrogate pairs, which UTF-8 does not have, become question marks."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
