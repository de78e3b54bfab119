"""Vectors from an endpoint: asked within limits, tried again within their time, never wrong ones (rows 26-30)."""

from __future__ import annotations

import base64
import gzip
import time
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import numpy as np
import pytest

from daemon.bus.embedded_bus import LOOPBACK, free_port
from daemon.config import hide_password
from daemon.models.circuit import FAILURES_MAX, OPEN_S
from daemon.models.client import Client
from daemon.models.embedders import Unhurried
from daemon.models.embedding import (
    ANSWER_BYTES_MAX,
    BATCH_TEXTS_MAX,
    BATCHES_BEFORE_MORE,
    TEXT_CHARACTERS_MAX,
    TEXT_CHARACTERS_MIN,
    EndpointEmbedder,
)
from daemon.models.endpoint import Patience
from projections.ports import EmbedderUnavailable, TextRefused
from tests.openai_stub import Answers, Asked, Drips, Fault, Hangs, Mangles, OpenAiStub, Resets
from tests.waiting import HANGS_AFTER_S, wait_until

KEY = "sk-Xylophon"
QUICK = Patience(attempt_s=2.0, call_s=4.0)
BRIEF = Patience(attempt_s=2.0, call_s=0.5)
SHORT = Patience(attempt_s=0.2, call_s=0.5)


@asynccontextmanager
async def asking(stub: OpenAiStub, **more: object) -> AsyncGenerator[EndpointEmbedder]:
    options = {"stored": QUICK, "question": QUICK, **more}
    embedder = EndpointEmbedder(stub.url, "some-model", KEY, **options)  # type: ignore[arg-type]
    try:
        yield embedder
    finally:
        await embedder.close()


async def refusal(embedder: EndpointEmbedder, *texts: str) -> str:
    with pytest.raises(EmbedderUnavailable) as raised:
        await embedder.embed(texts or ("a", "b"))
    return str(raised.value)


async def let_go_of(stub: OpenAiStub, requests: int) -> None:
    """Answer once so many requests wait."""
    await wait_until(lambda: stub.in_flight == requests)
    stub.let_go.set()


def unit(stub: OpenAiStub, text: str) -> list[float]:
    vector = np.array(stub.vector(text))
    return (vector / np.linalg.norm(vector)).tolist()  # type: ignore[no-any-return]


async def test_texts_get_the_vectors_of_the_endpoint_and_the_key_goes_along(stub: OpenAiStub) -> None:
    async with asking(stub) as embedder:
        before = (embedder.dimensions, embedder.trouble)
        rows = await embedder.embed(["one", "two"])
        question = await embedder.embed_question("three")
        asked = stub.asked[0]

    assert before == (0, None)
    assert (embedder.dimensions, embedder.trouble) == (8, None)
    assert rows == pytest.approx(np.array([unit(stub, "one"), unit(stub, "two")]), abs=1e-6)
    assert question == pytest.approx(np.array(unit(stub, "three")), abs=1e-6)
    assert (str(rows.dtype), question.shape) == ("float32", (8,))
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"input": ["one", "two"], "model": "some-model", "encoding_format": "float"}


@pytest.mark.parametrize("with_aiohttp", [True, False], ids=["aiohttp", "httpx"])
async def test_either_http_library_will_do_and_neither_follows_a_redirect(
    stub: OpenAiStub, with_aiohttp: bool
) -> None:
    if with_aiohttp:
        pytest.importorskip("aiohttp")
    async with asking(stub) as embedder:
        embedder.endpoint._client = Client(stub.url, KEY, 16, with_aiohttp=with_aiohttp)
        rows = await embedder.embed(["one"])
        stub.faults.append(Resets())
        again = await embedder.embed(["one"])
        stub.always = Answers(307, {"location": f"http://{LOOPBACK}:{stub.port}/v2/embeddings"})
        reason = await refusal(embedder)
        stub.always = Hangs()
        embedder._stored = SHORT
        slow = await refusal(embedder)

    assert rows.tobytes() == again.tobytes()
    assert "307" in reason
    assert "in time" in slow
    assert {asked.path for asked in stub.asked} == {"/v1/embeddings"}


async def test_a_user_and_password_in_the_address_go_along_in_place_of_the_key(stub: OpenAiStub) -> None:
    embedder = EndpointEmbedder(stub.url.replace("//", "//alice:p%40ss@"), "m", KEY, stored=QUICK)
    await embedder.embed(["one"])
    await embedder.close()

    assert stub.asked[0].headers["authorization"] == "Basic " + base64.b64encode(b"alice:p@ss").decode()


async def test_dimensions_are_asked_for_only_when_they_are_configured(stub: OpenAiStub) -> None:
    async with asking(stub, dimensions=8) as embedder:
        await embedder.embed(["one"])

    assert stub.asked[0].body["dimensions"] == 8


async def test_no_texts_ask_nothing(stub: OpenAiStub) -> None:
    async with asking(stub) as embedder:
        rows = await embedder.embed([])

    assert (len(rows), stub.asked) == (0, [])


async def test_the_name_tells_model_width_and_server_and_neither_key_nor_password(stub: OpenAiStub) -> None:
    async with asking(stub) as embedder:
        unknown = embedder.name
        await embedder.embed(["one"])
        known = embedder.name
    elsewhere = EndpointEmbedder("http://alice:Xylophon@host/v1", "some-model", KEY, dimensions=8).name
    the_same = EndpointEmbedder("http://host/v1/", "some-model", "other", dimensions=8).name
    shown = hide_password("http://alice:Xylophon@host/v1?key=Xylophon")

    assert unknown.startswith("endpoint-some-model-unknown-")
    assert known.startswith("endpoint-some-model-8-")
    assert elsewhere == the_same != known
    assert "Xylophon" not in elsewhere
    assert shown == "http://host/v1"


@pytest.mark.parametrize(
    ("fault", "says", "requests"),
    [
        (Answers(401), "key", 1),
        (Answers(403), "right", 1),
        (Answers(404), "no such model", 1),
        (Answers(400), "400", 1),
        (Answers(429, body=b'{"error": {"message": "x", "code": "insufficient_quota"}}'), "quota", 1),
        (Answers(429, {"retry-after": "100"}), "429", 1),
        (Answers(200, body=b"<html>Xylophon</html>"), "web page", 2),
        (Answers(200, body=b'{"data": "Xylophon"}'), "not the JSON", 2),
        (Mangles(lambda items: items[:1]), "1 vectors for 2", 2),
        (Mangles(lambda items: [{**item, "embedding": [float("nan")] * 8} for item in items]), "finite", 2),
        (Mangles(lambda items: [{**item, "embedding": [None] * 8} for item in items]), "missing", 2),
        (Mangles(lambda items: [{**item, "embedding": [0.0] * 8} for item in items]), "zero", 2),
    ],
)
async def test_what_will_not_get_better_is_asked_once_or_twice_and_has_a_reason(
    stub: OpenAiStub, fault: Fault, says: str, requests: int
) -> None:
    stub.always = fault
    async with asking(stub) as embedder:
        reason = await refusal(embedder)

    assert says in reason
    assert embedder.trouble == reason
    assert len(stub.asked) == requests
    assert "Xylophon" not in reason
    assert embedder.dimensions == 0


@pytest.mark.parametrize(
    "fault",
    [
        Answers(429, {"retry-after": "0"}),
        Answers(429, {"retry-after": "soon"}),
        Answers(500),
        Answers(503, body=b""),
        Answers(408),
        Resets(),
        Mangles(lambda items: items[:-1]),
        Answers(200, body=b"not JSON"),
    ],
    ids=lambda fault: f"{type(fault).__name__}{getattr(fault, 'status', '')}",
)
async def test_what_passes_is_tried_again_and_leaves_no_trace(stub: OpenAiStub, fault: Fault) -> None:
    stub.faults.append(fault)
    async with asking(stub) as embedder:
        rows = await embedder.embed(["one", "two"])

    assert rows == pytest.approx(np.array([unit(stub, "one"), unit(stub, "two")]), abs=1e-6)
    assert len(stub.asked) == 2
    assert embedder.trouble is None


async def test_retry_after_is_waited_for(stub: OpenAiStub) -> None:
    stub.faults.append(Answers(429, {"retry-after": "1"}))
    async with asking(stub) as embedder:
        began = time.perf_counter()
        await embedder.embed(["one"])
        took_s = time.perf_counter() - began

    assert took_s >= 1


@pytest.mark.parametrize("fault", [Hangs(), Drips()], ids=["hang", "drip"])
async def test_an_endpoint_that_says_nothing_or_never_ends_is_left_within_the_deadline(
    stub: OpenAiStub, fault: Fault
) -> None:
    stub.always = fault
    async with asking(stub, stored=SHORT) as embedder:
        with anyio.fail_after(HANGS_AFTER_S):
            reason = await refusal(embedder)
        stub.always = None
        embedder.endpoint.circuit.note_success()
        await embedder.embed(["one"])  # the pool has a connection left

    assert "in time" in reason


async def test_nobody_there_and_no_such_host_have_their_reasons() -> None:
    nobody = EndpointEmbedder(f"http://{LOOPBACK}:{free_port()}/v1", "m", stored=BRIEF)
    nowhere = EndpointEmbedder("http://nowhere.invalid/v1", "m", stored=BRIEF)
    reasons = [await refusal(embedder) for embedder in (nobody, nowhere)]
    await nobody.close()
    await nowhere.close()

    assert reasons == ["nothing listens at models.embed_url", "the host of models.embed_url is not found"]


async def test_an_answer_without_end_is_cut_off(stub: OpenAiStub) -> None:
    stub.always = Answers(200, body=b" " * (ANSWER_BYTES_MAX + 1))
    async with asking(stub) as embedder:
        assert "longer than 32 MiB" in await refusal(embedder)


@pytest.mark.parametrize("with_aiohttp", [True, False], ids=["aiohttp", "httpx"])
async def test_an_error_that_unfolds_without_end_is_read_no_further_than_a_reason_goes(
    stub: OpenAiStub, with_aiohttp: bool
) -> None:
    if with_aiohttp:
        pytest.importorskip("aiohttp")
    bomb = gzip.compress(bytes(ANSWER_BYTES_MAX), 1)
    stub.always = Answers(400, {"content-encoding": "gzip"}, bomb)
    async with asking(stub) as embedder:
        embedder.endpoint._client = Client(stub.url, KEY, 16, with_aiohttp=with_aiohttp)
        await embedder.endpoint._client.open()
        tracemalloc.start()
        reason = await refusal(embedder)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert "400" in reason
    assert peak_bytes < ANSWER_BYTES_MAX / 4


async def test_the_first_width_is_insisted_on(stub: OpenAiStub) -> None:
    async with asking(stub) as embedder:
        await embedder.embed(["one"])
        stub.dimensions = 16
        reason = await refusal(embedder)

    assert "16 dimensions where 8" in reason
    assert embedder.dimensions == 8


async def test_another_width_than_the_configured_one_is_refused(stub: OpenAiStub) -> None:
    async with asking(stub, dimensions=16) as embedder:
        assert "8 dimensions where 16" in await refusal(embedder)


async def test_many_texts_go_in_batches_side_by_side_within_the_limit(stub: OpenAiStub) -> None:
    texts = [f"text {number}" for number in range(BATCH_TEXTS_MAX * 3 + 1)]
    stub.hold()
    async with asking(stub, concurrency=3) as embedder, anyio.create_task_group() as tasks:
        tasks.start_soon(let_go_of, stub, 2)
        rows = await embedder.embed(texts)
    sizes = sorted(len(asked.texts) for asked in stub.asked)

    assert sizes == [1, BATCH_TEXTS_MAX, BATCH_TEXTS_MAX, BATCH_TEXTS_MAX]
    assert rows[-1] == pytest.approx(np.array(unit(stub, texts[-1])), abs=1e-6)
    assert stub.in_flight_most == 2, "one of the three is left to questions"


async def test_a_question_does_not_wait_for_stored_texts(stub: OpenAiStub) -> None:
    stub.judge = lambda asked: Hangs() if "stored" in asked.texts[0] else None
    async with asking(stub, concurrency=2) as embedder, anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(embedder.embed, ["stored"])
        await wait_until(lambda: stub.in_flight == 1)
        with anyio.fail_after(HANGS_AFTER_S):
            question = await embedder.embed_question("question")
        tasks.cancel_scope.cancel()

    assert question == pytest.approx(np.array(unit(stub, "question")), abs=1e-6)


async def test_texts_that_have_time_come_after_those_that_came_later(stub: OpenAiStub) -> None:
    stub.hold()
    async with asking(stub, concurrency=3) as embedder, anyio.create_task_group() as tasks:
        unhurried = Unhurried(embedder)
        for text in ("a", "b"):
            tasks.start_soon(embedder.embed, [text])
        await wait_until(lambda: stub.in_flight == 2)
        for text in ("late", "later"):
            tasks.start_soon(unhurried.embed, [text])
        await wait_until(lambda: embedder.endpoint.state.waiting == 1)
        for text in ("c", "d", "e"):
            tasks.start_soon(embedder.embed, [text])
        await wait_until(lambda: embedder.endpoint.state.waiting == 2)
        stub.let_go.set()
    sent = [asked.texts[0] for asked in stub.asked]

    assert sorted(sent) == ["a", "b", "c", "d", "e", "late", "later"]
    assert sent.index("c") < sent.index("late") < sent.index("later")
    assert (unhurried.name, unhurried.dimensions, unhurried.ranks) == (embedder.name, 8, True)


async def test_texts_are_sent_shortened_and_never_empty(stub: OpenAiStub) -> None:
    async with asking(stub) as embedder:
        await embedder.embed(["x" * (TEXT_CHARACTERS_MAX + 1), "", " \n", "half \ud800 a pair"])

    assert stub.texts == ["x" * TEXT_CHARACTERS_MAX, ".", ".", "half ? a pair"]


def too_long(asked: Asked) -> Fault | None:
    """A server whose context is 2,000 characters a request."""
    if sum(map(len, asked.texts)) <= 2_000:
        return None
    return Answers(400, body=b'{"error": {"message": "This model\'s maximum context length is 512 tokens"}}')


async def test_a_batch_that_is_too_long_is_split_and_a_text_that_is_too_long_shortened(stub: OpenAiStub) -> None:
    stub.judge = too_long
    texts = ["a" * 900, "b" * 900, "c" * 900, "d" * 5_000]
    async with asking(stub) as embedder:
        await embedder.embed(["short"])
        rows = await embedder.embed(texts)

    assert rows == pytest.approx(np.array([unit(stub, text) for text in (*texts[:3], "d" * 1_250)]), abs=1e-6)
    assert embedder.trouble is None


async def test_a_text_that_is_refused_however_short_is_that_text_s_fault(stub: OpenAiStub) -> None:
    stub.judge = lambda asked: Answers(413) if any("x" in text for text in asked.texts) else None
    async with asking(stub) as embedder:
        await embedder.embed(["fine"])
        with pytest.raises(TextRefused):
            await embedder.embed(["fine", "x" * 2_000])
        await embedder.embed(["fine"])

    assert min(len(text) for text in stub.texts if "x" in text) == TEXT_CHARACTERS_MIN
    assert embedder.trouble is None


async def test_after_some_failures_it_is_not_asked_for_a_while_and_then_once(stub: OpenAiStub) -> None:
    stub.always = Answers(401)
    async with asking(stub) as embedder:
        for _ in range(FAILURES_MAX):
            await refusal(embedder)
        with anyio.fail_after(OPEN_S / 2):  # nobody waits for it to close
            reason = await refusal(embedder)
            with pytest.raises(EmbedderUnavailable):
                await embedder.embed_question("a")
        asked = len(stub.asked)
        stub.always = None
        embedder.endpoint.circuit._open_until = 0.0
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed_question("somebody waits, so a question does not try")
        embedder.endpoint.circuit.note_failure("still", anyio.current_time() - 2 * OPEN_S)
        embedder.endpoint.circuit._open_until = 0.0  # some seconds later
        await embedder.embed(["a"])

    assert "key" in reason
    assert asked == FAILURES_MAX
    assert embedder.trouble is None


async def test_a_server_that_is_too_slow_for_many_texts_gets_fewer(stub: OpenAiStub) -> None:
    stub.judge = lambda asked: Hangs() if len(asked.texts) > 40 else None
    texts = [f"text {number}" for number in range(BATCH_TEXTS_MAX)]
    async with asking(stub, stored=SHORT) as embedder:
        for _ in range(2):
            await refusal(embedder, *texts)
            embedder.endpoint.circuit.note_success()  # it is a matter of how many texts, not of how often
        rows = await embedder.embed(texts)
    sizes = [len(asked.texts) for asked in stub.asked]

    assert rows.shape == (BATCH_TEXTS_MAX, 8)
    assert all(one >= other for one, other in pairwise(sizes))


async def test_a_server_that_is_quick_again_gets_more_texts_again(stub: OpenAiStub) -> None:
    async with asking(stub, stored=SHORT) as embedder:
        await embedder.embed(["a"])
        stub.faults.append(Hangs())
        stub.faults.append(Hangs())
        stub.faults.append(Hangs())
        await refusal(embedder, *["b"] * BATCH_TEXTS_MAX)
        stub.faults.clear()
        stub.asked.clear()
        texts = ["c"] * (BATCH_TEXTS_MAX // 2)
        for _ in range(BATCHES_BEFORE_MORE):
            await embedder.embed(texts * 2)
    sizes = [len(asked.texts) for asked in stub.asked]

    assert sizes[:BATCHES_BEFORE_MORE] == [BATCH_TEXTS_MAX // 2] * BATCHES_BEFORE_MORE
    assert sizes[-1] == BATCH_TEXTS_MAX


async def test_the_tokens_of_all_answers_are_counted(stub: OpenAiStub) -> None:
    async with asking(stub) as embedder:
        before = embedder.prompt_tokens
        await embedder.embed(["one two three", "four"])
        await embedder.embed_question("five")

    assert (before, embedder.prompt_tokens) == (0, 5)


async def test_a_cancelled_call_leaves_the_embedder_as_it_was(stub: OpenAiStub) -> None:
    async with asking(stub, concurrency=1) as embedder:
        stub.hold()
        for _ in range(3):
            with anyio.move_on_after(0.05):
                await embedder.embed(["a"])
        stub.let_go.set()
        rows = await embedder.embed(["a"])

    assert rows.shape == (1, 8)
    assert embedder.trouble is None
