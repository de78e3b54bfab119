"""An endpoint over real HTTP: asked within limits and deadlines, again where that helps, left alone if not."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from daemon.bus.embedded_bus import LOOPBACK, free_port
from daemon.logs import Report, quiet
from daemon.models.circuit import FAILURES_MAX, OPEN_S, Circuit
from daemon.models.endpoint import (
    ANSWER_BYTES_MAX,
    LOOP_BYTES_MAX,
    AnswerRefused,
    CallFailed,
    Endpoint,
    EndpointKeys,
    EndpointUnavailable,
    Patience,
    Refusal,
    RequestRefused,
)
from daemon.models.retrying import ATTEMPTS_MAX, RETRIES_SAVED_MAX
from tests.openai_stub import Answers, Asked, Drips, Fault, Floods, Hangs, OpenAiStub, Resets, running_stub
from tests.waiting import HANGS_AFTER_S, wait_until

PATH = "/chat/completions"
KEYS = EndpointKeys("models.chat_url", "models.chat_model")
KEY = "sk-Xylophon"
QUICK = Patience(attempt_s=2.0, call_s=5.0)
SHORT = Patience(attempt_s=0.2, call_s=0.5)
# What no error may ever hold: what a server said.
QUOTED = b'{"error": {"message": "Xylophon said so", "code": null}}'


class Events:
    """A Report that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, /, **fields: object) -> None:
        self.heard.append((event, fields))


class NeverOpens(Circuit):
    """For what is not about the circuit."""

    @property
    def is_closed(self) -> bool:
        return True


@pytest.fixture
async def stub() -> AsyncGenerator[OpenAiStub]:
    async with running_stub() as stub:
        stub.chat = lambda asked: asked.prompt.upper()
        yield stub


class FewSlots(OpenAiStub):
    """Takes a while for each answer, and refuses at once what is more than `SLOTS` at a time."""

    SLOTS = 3
    TAKES_S = 0.02

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if self.in_flight <= self.SLOTS:
            await asyncio.sleep(self.TAKES_S)
        else:
            self.faults.append(Answers(429))
        await super()._answer(reader, writer, asked)


@asynccontextmanager
async def asking(stub: OpenAiStub, concurrency: int = 4, report: Report = quiet) -> AsyncGenerator[Endpoint]:
    endpoint = Endpoint(stub.url, KEY, KEYS, concurrency=concurrency, report=report)
    try:
        yield endpoint
    finally:
        await endpoint.close()


def read(body: bytes) -> str:
    """The text of the answer."""
    try:
        return str(json.loads(body)["choices"][0]["message"]["content"])
    except (ValueError, KeyError, TypeError):
        raise AnswerRefused("it has no text") from None


async def ask(endpoint: Endpoint, text: str = "hello", *, patience: Patience = QUICK, priority: int = 0) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return await endpoint.post(PATH, body, read, patience=patience, priority=priority, kind="test")


async def failure(
    endpoint: Endpoint, text: str = "hello", *, patience: Patience = QUICK
) -> EndpointUnavailable | CallFailed | RequestRefused:
    with pytest.raises((EndpointUnavailable, CallFailed, RequestRefused)) as raised:
        await ask(endpoint, text, patience=patience)
    assert "Xylophon" not in str(raised.value)
    assert isinstance(raised.value, EndpointUnavailable | CallFailed | RequestRefused)
    return raised.value


async def test_a_call_is_answered_with_what_was_asked_and_the_key_goes_along(stub: OpenAiStub) -> None:
    async with asking(stub) as endpoint:
        answer = await ask(endpoint, "hello")
        state = endpoint.state
    asked = stub.asked[0]

    assert answer == "HELLO"
    assert (asked.path, asked.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert asked.body == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert not [name for name in asked.headers if name.startswith("x-stainless")]
    assert (state.circuit, state.reason, state.calls, state.failed, state.retries) == ("closed", None, 1, 0, 0)
    assert (state.limit, state.concurrency, state.in_flight, state.waiting) == (4, 4, 0, 0)
    assert state.url == stub.url


async def test_a_query_of_the_address_stays_behind_the_path_and_is_not_shown(stub: OpenAiStub) -> None:
    endpoint = Endpoint(f"{stub.url}/?api-version=7", KEY, KEYS, concurrency=1)
    await ask(endpoint)
    await endpoint.close()

    assert stub.asked[0].path == "/v1/chat/completions?api-version=7"
    assert "api-version" not in endpoint.state.url


async def test_half_a_surrogate_pair_is_sent_as_a_question_mark(stub: OpenAiStub) -> None:
    async with asking(stub) as endpoint:
        assert await ask(endpoint, "half \ud800 pair") == "HALF ? PAIR"


@pytest.mark.parametrize(
    ("fault", "kind", "says", "requests"),
    [
        (Answers(401, body=QUOTED), EndpointUnavailable, "models.api_key", 1),
        (Answers(402, body=QUOTED), EndpointUnavailable, "quota", 1),
        (Answers(403, body=QUOTED), EndpointUnavailable, "models.chat_model", 1),
        (Answers(404, body=QUOTED), EndpointUnavailable, "models.chat_model, and models.chat_url", 1),
        (Answers(429, body=b'{"error": {"code": "insufficient_quota"}}'), EndpointUnavailable, "quota", 1),
        (Answers(307, {"location": "/v2"}), EndpointUnavailable, "307", 1),
        (Answers(400, body=QUOTED), RequestRefused, "400", 1),
        (Answers(422, body=QUOTED), RequestRefused, "422", 1),
        (Answers(413, body=QUOTED), RequestRefused, "413", 1),
        (Answers(200, body=b"<html>Xylophon</html>"), CallFailed, "no text", 2),
        (Answers(200, body=QUOTED), CallFailed, "no text", 2),
        (Answers(500, body=QUOTED), CallFailed, "500", ATTEMPTS_MAX),
        (Answers(503, body=QUOTED), EndpointUnavailable, "503", ATTEMPTS_MAX),
        (Answers(429, body=QUOTED), EndpointUnavailable, "429", ATTEMPTS_MAX),
        (Answers(429, {"retry-after": "100"}, QUOTED), EndpointUnavailable, "429", 1),
        (Resets(), CallFailed, "broke", ATTEMPTS_MAX),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answers) else None,
)
async def test_what_fails_is_asked_as_often_as_that_can_help_and_the_fault_is_told_apart(
    stub: OpenAiStub, fault: Fault, kind: type[Exception], says: str, requests: int
) -> None:
    stub.always = fault
    async with asking(stub) as endpoint:
        raised = await failure(endpoint)
        state = endpoint.state

    assert type(raised) is kind
    assert says in str(raised)
    assert len(stub.asked) == requests
    assert state.failed == (0 if kind is RequestRefused else 1)
    assert state.retries == requests - 1
    assert (state.in_flight, state.waiting) == (0, 0)


@pytest.mark.parametrize("header", ["soon", "-5", "nan", "0", "Mon, 99 Jul 2024 12:00:07 GMT"])
async def test_a_retry_after_that_means_nothing_is_a_pause_of_our_own(stub: OpenAiStub, header: str) -> None:
    stub.faults.append(Answers(429, {"retry-after": header}))
    async with asking(stub) as endpoint:
        with anyio.fail_after(HANGS_AFTER_S):
            answer = await ask(endpoint)

    assert (answer, len(stub.asked)) == ("HELLO", 2)


async def test_retry_after_pauses_the_whole_endpoint_and_not_one_call(stub: OpenAiStub) -> None:
    stub.faults.append(Answers(429, {"retry-after": "1"}))
    came_at = list[float]()
    stub.judge = lambda _: came_at.append(anyio.current_time())
    async with asking(stub) as endpoint, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, endpoint, "refused")
        await wait_until(lambda: endpoint.limiter.pause_left_s() > 0)
        paused_s = endpoint.state.retry_in_s
        tasks.start_soon(ask, endpoint, "comes later")
        await wait_until(lambda: endpoint.state.waiting == 2)
        impatient = await failure(endpoint, "cannot wait", patience=SHORT)

    assert 0.5 < paused_s <= 1.0
    assert type(impatient) is EndpointUnavailable
    assert 0.5 < impatient.retry_in_s <= 1.0
    assert len(came_at) == 3, "whoever cannot wait so long has sent nothing"
    assert min(came_at[1:]) - came_at[0] >= 0.99


async def test_a_retry_after_beyond_all_patience_opens_the_circuit_for_as_long(stub: OpenAiStub) -> None:
    stub.always = Answers(503, {"retry-after": "100"})
    events = Events()
    async with asking(stub, report=events) as endpoint:
        first, second = await failure(endpoint), await failure(endpoint)
        state = endpoint.state

    assert isinstance(first, EndpointUnavailable)
    assert isinstance(second, EndpointUnavailable)
    assert 95 < second.retry_in_s <= first.retry_in_s <= 100
    assert (len(stub.asked), state.circuit) == (1, "open")
    assert [event for event, _ in events.heard] == ["model.circuit_opened"]


async def test_the_circuit_opens_visibly_lets_one_try_and_closes_again(stub: OpenAiStub) -> None:
    stub.always = Answers(500, body=QUOTED)
    events = Events()
    async with asking(stub, report=events) as endpoint:
        kinds = [type(await failure(endpoint, f"call {number}")) for number in range(FAILURES_MAX)]
        asked = len(stub.asked)
        refused = await failure(endpoint)
        unasked = len(stub.asked) == asked
        endpoint.circuit._open_until = 0.0  # some seconds later
        tried = await failure(endpoint)
        tries = len(stub.asked) - asked
        stub.always = None
        endpoint.circuit._open_until = 0.0
        answer = await ask(endpoint)
        state = endpoint.state

    assert kinds == [CallFailed] * (FAILURES_MAX - 1) + [EndpointUnavailable]
    assert isinstance(refused, EndpointUnavailable)
    assert 1 <= refused.retry_in_s <= OPEN_S
    assert unasked
    assert (type(tried), tries) == (EndpointUnavailable, 1)
    assert (answer, state.circuit, state.reason) == ("HELLO", "closed", None)
    assert [event for event, _ in events.heard] == ["model.circuit_opened", "model.circuit_closed"]
    opened, closed = (fields for _, fields in events.heard)
    assert opened == {
        "use": "chat",
        "reason": "the endpoint answers with status 500",
        "retry_in_s": pytest.approx(OPEN_S, abs=0.1),
    }
    assert closed == {"use": "chat"}


async def test_while_an_open_circuit_is_tried_nobody_else_goes_out(stub: OpenAiStub) -> None:
    stub.hold()
    async with asking(stub) as endpoint, anyio.create_task_group() as tasks:
        for _ in range(FAILURES_MAX):
            endpoint.count_failure("it was broken")
        endpoint.circuit._open_until = 0.0
        tasks.start_soon(ask, endpoint)
        await wait_until(lambda: stub.in_flight == 1)
        endpoint.circuit._open_until = 0.0  # the try takes longer than it is open
        refused = await failure(endpoint)
        stub.let_go.set()

    assert (type(refused), str(refused)) == (EndpointUnavailable, "it was broken")
    assert (len(stub.asked), endpoint.state.circuit) == (1, "closed")


async def test_those_who_wait_when_the_circuit_opens_are_told_at_once(stub: OpenAiStub) -> None:
    stub.always = Answers(401)
    stub.hold()
    raised = list[Exception]()

    async def fail() -> None:
        raised.append(await failure(endpoint))

    async with asking(stub, concurrency=3) as endpoint, anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(fail)
        await wait_until(lambda: endpoint.state.waiting == 47 and stub.in_flight == 3)
        stub.let_go.set()

    assert len(stub.asked) <= 6, "those that were out, and who was let out before three had failed"
    assert [type(error) for error in raised] == [EndpointUnavailable] * 50


@pytest.mark.parametrize("fault", [Hangs(), Drips()], ids=["hang", "drip"])
async def test_a_server_that_says_nothing_or_drips_is_left_within_the_deadlines(
    stub: OpenAiStub, fault: Fault
) -> None:
    stub.always = fault
    async with asking(stub) as endpoint:
        with anyio.fail_after(HANGS_AFTER_S):
            raised = await failure(endpoint, patience=SHORT)
        limit = endpoint.state.limit
        await wait_until(lambda: not stub.connections)
        stub.always = None
        answer = await ask(endpoint)

    assert isinstance(raised, CallFailed)
    assert ("in time" in str(raised), raised.is_slow) == (True, True)
    assert (limit < 4, answer) == (True, "HELLO")


async def test_hosts_that_are_not_there_or_speak_no_tls_have_their_reasons(stub: OpenAiStub) -> None:
    def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(speak_plainly, LOOPBACK, 0)
    urls = [
        f"http://{LOOPBACK}:{free_port()}/v1",
        "http://nowhere.invalid/v1",
        f"https://{LOOPBACK}:{plain.sockets[0].getsockname()[1]}/v1",
        stub.url.replace("http://", "https://"),  # waits for the end of a head
        "http://:/v1",
    ]
    reasons = list[str]()
    for url in urls:
        endpoint = Endpoint(url, KEY, KEYS, concurrency=1)
        raised = await failure(endpoint, patience=Patience(1.0, 1.0))
        await endpoint.close()
        assert type(raised) is EndpointUnavailable
        reasons.append(str(raised))
    plain.close()

    assert reasons[:2] == ["nothing listens at models.chat_url", "the host of models.chat_url is not found"]
    assert "TLS" in reasons[2]
    assert reasons[3] == "the host of models.chat_url does not answer"
    assert reasons[4] == "models.chat_url is no address that can be called"


@pytest.mark.parametrize(
    "fault", [Floods(20 << 20), Floods(20 << 20, is_announced=True)], ids=["unannounced", "announced"]
)
async def test_an_answer_of_20_mb_is_cut_off_and_never_held(stub: OpenAiStub, fault: Fault) -> None:
    stub.always = fault
    async with asking(stub) as endpoint:
        await endpoint._client.open()
        tracemalloc.start()
        raised = await failure(endpoint)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await wait_until(lambda: not stub.connections)

    assert type(raised) is CallFailed
    assert "longer than 4 MiB" in str(raised)
    assert peak_bytes < 3 * ANSWER_BYTES_MAX
    assert stub.flooded_bytes < 20 << 20


async def test_a_caller_that_expects_less_has_its_own_bound(stub: OpenAiStub) -> None:
    async with asking(stub) as endpoint:
        with pytest.raises(CallFailed, match="longer than"):
            await endpoint.post(PATH, {"messages": [{"content": "x"}]}, read, patience=QUICK, answer_bytes_max=10)


async def test_many_cancels_and_timeouts_leave_no_connection_and_no_slot(stub: OpenAiStub) -> None:
    stub.always = Hangs()

    async def give_up(endpoint: Endpoint, after_s: float) -> None:
        with anyio.move_on_after(after_s):
            await ask(endpoint, patience=Patience(0.05, 0.05))

    async with asking(stub, concurrency=4) as endpoint:
        for after_s in (0.01, 0.03, 1.0):
            for _ in range(5):
                async with anyio.create_task_group() as tasks:
                    for _ in range(12):
                        tasks.start_soon(_quietly, give_up, endpoint, after_s)
                endpoint.circuit.note_success()
        state = endpoint.state
        await wait_until(lambda: not stub.connections)
        stub.always = None
        stub.hold()
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(ask, endpoint)
            endpoint.limiter.aimd._limit = 4.0  # the timeouts lowered it
            await wait_until(lambda: stub.in_flight == min(4, endpoint.state.limit))
            stub.let_go.set()

    assert (state.in_flight, state.waiting) == (0, 0)
    assert stub.connections_most <= 8, "what was cancelled may be closing beside the four"


async def _quietly(call: Callable[[Endpoint, float], Awaitable[None]], endpoint: Endpoint, after_s: float) -> None:
    with suppress(CallFailed, EndpointUnavailable):
        await call(endpoint, after_s)


async def test_waiting_calls_go_by_priority_and_then_by_arrival(stub: OpenAiStub) -> None:
    stub.hold()
    async with asking(stub, concurrency=1) as endpoint, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, endpoint, "out")
        await wait_until(lambda: stub.in_flight == 1)
        for number, priority in enumerate([2, 1, 0, 2, 0]):

            async def call(number: int = number, priority: int = priority) -> None:
                await ask(endpoint, f"{priority}/{number}", priority=priority)

            tasks.start_soon(call)
            await wait_until(lambda number=number: endpoint.state.waiting == number + 1)  # type: ignore[misc]
        stub.let_go.set()

    assert [asked.prompt for asked in stub.asked] == ["out", "0/2", "0/4", "1/1", "2/0", "2/3"]
    assert stub.in_flight_most == 1


async def test_whoever_gets_no_slot_in_its_time_is_told_so_and_the_endpoint_is_not_blamed(
    stub: OpenAiStub,
) -> None:
    stub.hold()
    async with asking(stub, concurrency=1) as endpoint, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, endpoint)
        await wait_until(lambda: stub.in_flight == 1)
        raised = await failure(endpoint, patience=Patience(1.0, 1.0, 0.05))
        stub.let_go.set()

    assert isinstance(raised, EndpointUnavailable)
    assert "models.concurrency" in str(raised)
    assert endpoint.state.reason is None


async def test_retries_are_a_fifth_of_the_calls_and_a_few_more(stub: OpenAiStub) -> None:
    seen = set[str]()

    def fail_first(asked: Asked) -> Fault | None:
        is_first = asked.prompt not in seen
        seen.add(asked.prompt)
        return Answers(409) if is_first else None

    stub.judge = fail_first
    answered = list[str]()
    async with asking(stub, concurrency=10) as endpoint:
        endpoint.circuit = NeverOpens()

        async def call(number: int) -> None:
            with suppress(CallFailed):
                answered.append(await ask(endpoint, f"call {number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(call, number)
        retries = endpoint.state.retries

    assert retries == len(answered) == len(stub.asked) - 100
    assert RETRIES_SAVED_MAX <= retries <= RETRIES_SAVED_MAX + 0.2 * 100


async def test_a_server_with_few_slots_gets_about_as_many_requests_as_it_has_slots() -> None:
    calls, answered = 120, 0
    async with running_stub(kind=FewSlots) as stub, asking(stub, concurrency=16) as endpoint:
        endpoint.circuit = NeverOpens()

        async def call(number: int) -> None:
            nonlocal answered
            while True:
                try:
                    await ask(endpoint, f"call {number}")
                except EndpointUnavailable:  # the retries are used up; whoever has work comes back later
                    await anyio.sleep(FewSlots.TAKES_S)
                else:
                    answered += 1
                    return

        async with anyio.create_task_group() as tasks:
            for number in range(calls):
                tasks.start_soon(call, number)
        limit = endpoint.state.limit

    assert answered == calls
    assert limit <= FewSlots.SLOTS + 2
    assert len(stub.asked) <= calls * 1.5


@pytest.mark.parametrize(
    ("answer", "refusal", "parameter"),
    [
        (Answers(400, body=b'{"error": {"code": "context_length_exceeded"}}'), Refusal.TOO_LONG, None),
        (Answers(500, body=b'{"error": {"message": "Context size has been exceeded."}}'), Refusal.TOO_LONG, None),
        (Answers(200, body=b'{"error": "the context length of only 4096 tokens"}'), Refusal.TOO_LONG, None),
        (Answers(400, body=b'{"error": {"code": "content_filter"}}'), Refusal.CONTENT, None),
        (
            Answers(400, body=b'{"error": {"param": "temperature", "code": "unsupported_value"}}'),
            Refusal.PARAMETER,
            "temperature",
        ),
        (Answers(400, body=QUOTED), Refusal.OTHER, None),
    ],
)
async def test_what_is_refused_for_itself_is_neither_asked_again_nor_blamed_on_the_endpoint(
    stub: OpenAiStub, answer: Answers, refusal: Refusal, parameter: str | None
) -> None:
    stub.always = answer
    async with asking(stub) as endpoint:
        raised = [await failure(endpoint) for _ in range(FAILURES_MAX + 1)]
        state = endpoint.state

    assert {(type(each), getattr(each, "refusal", None), getattr(each, "parameter", None)) for each in raised} == {
        (RequestRefused, refusal, parameter)
    }
    assert len(stub.asked) == FAILURES_MAX + 1
    assert (state.circuit, state.reason, state.failed) == ("closed", None, 0)


async def test_an_answer_that_trips_whoever_reads_it_is_a_call_that_failed(stub: OpenAiStub) -> None:
    async with asking(stub) as endpoint:
        with pytest.raises(CallFailed, match=r"could not be read \(ZeroDivisionError\)"):
            await endpoint.post(PATH, {"messages": [{"content": "x"}]}, lambda _: 1 // 0, patience=QUICK)
        in_flight = endpoint.state.in_flight

    assert (in_flight, len(stub.asked)) == (0, 2)


async def test_long_answers_are_read_on_a_thread_and_short_ones_where_they_come(stub: OpenAiStub) -> None:
    def where(_: bytes) -> str:
        return threading.current_thread().name

    stub.chat = lambda asked: "x" * (10 if asked.prompt == "short" else LOOP_BYTES_MAX)
    async with asking(stub) as endpoint:
        threads = [
            await endpoint.post(PATH, {"messages": [{"content": text}]}, where, patience=QUICK)
            for text in ("short", "long")
        ]

    assert threads[0] == threading.current_thread().name != threads[1]


@pytest.mark.parametrize(
    ("name", "value"), [("SSL_CERT_FILE", "/no/such/file"), ("HTTPS_PROXY", "http://x:y:z"), ("SSL_CERT_FILE", "")]
)
async def test_an_environment_that_lets_no_call_out_is_no_fault_of_the_call(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    endpoint = Endpoint("https://127.0.0.1:9/v1", KEY, KEYS, concurrency=4)
    try:
        failed = [await failure(endpoint) for _ in range(FAILURES_MAX)]
    finally:
        await endpoint.close()

    assert {type(each) for each in failed} == {EndpointUnavailable}
    assert endpoint.state.reason == str(failed[-1])
    assert (name in str(failed[0]) or "proxies" in str(failed[0])) is bool(value)
    assert (endpoint.state.in_flight, endpoint.state.waiting) == (0, 0)
