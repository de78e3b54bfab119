"""`models.embedder = "endpoint"`: vectors from any OpenAI-compatible server.

What goes wrong there never goes further: an answer that is not what was asked for is refused, a call is tried
again within its time, and when calls keep failing a circuit opens and the daemon goes on by words alone.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

import anyio
import anyio.to_thread
import numpy as np

from daemon.config import hide_password
from daemon.models.circuit import Circuit, choose_pause
from daemon.models.embedding_answers import AnswerRefused, read_vectors
from daemon.models.embedding_failures import TOO_SLOW, Failure, classify, refuse_status
from projections.ports import EmbedderUnavailable, TextRefused, Vectors

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# Texts of one request, and their characters: some servers take no more texts, and OpenAI 300,000 tokens.
BATCH_TEXTS_MAX = 128
BATCH_CHARACTERS_MAX = 200_000
# A server that does not answer so many in time is asked for fewer.
BATCH_TEXTS_MIN = 8
# Of a text this much is embedded (8,192 tokens is what the largest models look at); where a server says that it is
# too long, half of it and half again, down to the last.
TEXT_CHARACTERS_MAX = 8_000
TEXT_CHARACTERS_MIN = 500
# 128 vectors of 8,192 numbers of 22 characters are 23 MB.
ANSWER_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds for one attempt and for a whole call with its pauses."""

    attempt_s: float
    call_s: float


STORED = Patience(30.0, 60.0)
# Somebody waits, and words alone answer, too.
QUESTION = Patience(3.0, 5.0)


class EndpointEmbedder:
    """Asks a server for vectors: `concurrency` calls at a time, one of them left to questions."""

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str = "",
        *,
        dimensions: int = 0,
        concurrency: int = 16,
        stored: Patience = STORED,
        question: Patience = QUESTION,
        circuit: Circuit | None = None,
    ) -> None:
        """`dimensions` is asked for and insisted on; 0 takes what the first answer has and insists on that."""
        self.circuit = circuit or Circuit()
        self._url, self._model, self._api_key = url, model, api_key
        self._asked_dimensions = dimensions
        self._dimensions = dimensions
        self._has_answered = False
        self._slots = anyio.CapacityLimiter(concurrency)
        self._stored_slots = anyio.CapacityLimiter(max(1, concurrency - 1))
        self._stored, self._question = stored, question
        self._batch_texts = BATCH_TEXTS_MAX
        self._client: AsyncOpenAI | None = None
        self._opening = anyio.Lock()

    @property
    def name(self) -> str:
        """A fingerprint of server, model and width. The width is part of it once the first answer told it."""
        where = blake2b(hide_password(self._url).rstrip("/").encode(), digest_size=4).hexdigest()
        return f"endpoint-{self._model}-{self._dimensions or 'unknown'}-{where}"

    @property
    def dimensions(self) -> int:
        """Width of a row, 0 before the first answer."""
        return self._dimensions

    @property
    def ranks(self) -> bool:
        """True."""
        return True

    @property
    def trouble(self) -> str | None:
        """Why the last call came to nothing."""
        return self.circuit.reason

    async def close(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text, in the order given; several requests at a time.

        Raises `EmbedderUnavailable`, and `TextRefused` when it is a text's fault.
        """
        batches = list(self._batches([_prepare(text) for text in texts]))
        rows: dict[int, Vectors] = {}
        failures: list[EmbedderUnavailable] = []

        async def embed_batch(at: int, batch: list[str]) -> None:
            try:
                async with self._stored_slots:
                    rows[at] = await self._embed_or_split(batch)
            except EmbedderUnavailable as error:
                failures.append(error)

        async with anyio.create_task_group() as calls:
            for at, batch in enumerate(batches):
                calls.start_soon(embed_batch, at, batch, name="embedding.batch")
        if failures:
            raise failures[0]
        if not batches:
            return np.zeros((0, self._dimensions), dtype=np.float32)
        return np.concatenate([rows[at] for at in range(len(batches))])

    async def embed_question(self, text: str) -> Vectors:
        """The unit vector of a question, shape (dimensions,). Raises `EmbedderUnavailable`, within seconds.

        Somebody waits, so an open circuit is tried with stored texts alone.
        """
        if not self.circuit.is_closed:
            raise EmbedderUnavailable(self.circuit.reason or "the endpoint is not asked for now")
        rows = await self._call([_prepare(text)], self._question)
        row: Vectors = rows[0]
        return row

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        characters = 0
        for text in texts:
            if batch and (len(batch) == self._batch_texts or characters + len(text) > BATCH_CHARACTERS_MAX):
                yield batch
                batch, characters = [], 0
            batch.append(text)
            characters += len(text)
        if batch:
            yield batch

    async def _embed_or_split(self, texts: list[str]) -> Vectors:
        """A batch; when the server refuses it, its halves, and of a single text a shorter beginning."""
        try:
            return await self._call(texts, self._stored)
        except TextRefused:
            if len(texts) > 1:
                half = len(texts) // 2
                return np.concatenate(
                    [await self._embed_or_split(texts[:half]), await self._embed_or_split(texts[half:])]
                )
            if len(texts[0]) <= TEXT_CHARACTERS_MIN:
                raise
            return await self._embed_or_split([texts[0][: len(texts[0]) // 2]])

    async def _call(self, texts: list[str], patience: Patience) -> Vectors:
        """One call with its attempts. Raises `EmbedderUnavailable` or `TextRefused`."""
        if not self.circuit.lets_through(anyio.current_time()):
            raise EmbedderUnavailable(self.circuit.reason or "the endpoint is not asked for now")
        failure: Failure | None = None
        with anyio.move_on_after(patience.call_s):
            async with self._slots:
                failure = TOO_SLOW
                for attempt in count(1):
                    outcome = await self._attempt(texts, patience.attempt_s)
                    if not isinstance(outcome, Failure):
                        self.circuit.note_success()
                        return outcome
                    failure = outcome
                    if attempt >= failure.attempts_max or (failure.wait_s or 0) > patience.call_s:
                        break
                    await anyio.sleep(choose_pause(attempt, random.random(), failure.wait_s))
        if failure is None:
            raise EmbedderUnavailable("other calls take up models.concurrency")
        if failure.is_about_texts and self._has_answered:
            raise TextRefused(failure.reason)
        if failure.is_slow and len(texts) > 1:
            self._batch_texts = max(BATCH_TEXTS_MIN, min(self._batch_texts, len(texts)) // 2)
        self.circuit.note_failure(failure.reason, anyio.current_time(), failure.wait_s)
        raise EmbedderUnavailable(failure.reason)

    async def _attempt(self, texts: list[str], timeout_s: float) -> Vectors | Failure:
        """The vectors, or why there are none. The deadline is for the whole answer: the SDK's is for each read."""
        try:
            with anyio.fail_after(timeout_s):
                body = await self._request(texts, timeout_s)
                rows = await anyio.to_thread.run_sync(partial(read_vectors, body, len(texts), self._dimensions))
            # Of several first answers one comes first.
            if rows.shape[1] != (self._dimensions or rows.shape[1]):
                raise AnswerRefused(f"its vectors have {rows.shape[1]} dimensions and others {self._dimensions}")
        except (
            Exception
        ) as error:  # a body that is cut short or no JSON raises whatever it likes (engineering.md M6)
            return classify(error, time.time())
        self._dimensions = rows.shape[1]
        self._has_answered = True
        return rows

    async def _request(self, texts: list[str], timeout_s: float) -> bytes:
        """The body of the answer, as far as it is bounded. Raises what the SDK raises, and `AnswerRefused`."""
        client = await self._open()
        if self._asked_dimensions:
            request = client.embeddings.with_streaming_response.create(
                input=texts,
                model=self._model,
                encoding_format="float",
                timeout=timeout_s,
                dimensions=self._asked_dimensions,
            )
        else:
            request = client.embeddings.with_streaming_response.create(
                input=texts, model=self._model, encoding_format="float", timeout=timeout_s
            )
        body = bytearray()
        async with request as response:
            async for piece in response.iter_bytes():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise AnswerRefused(f"it is longer than {ANSWER_BYTES_MAX >> 20} MiB")
        return bytes(body)

    async def _open(self) -> AsyncOpenAI:
        """The client, made with the first call: importing the SDK takes longer than all else of a start."""
        async with self._opening:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(_make_client, self._url, self._api_key)
            return self._client


def _make_client(url: str, api_key: str, *, with_aiohttp: bool | None = None) -> AsyncOpenAI:
    """A client; on a thread, since importing the SDK takes a second and reading certificates a tenth."""
    from openai import AsyncOpenAI, DefaultAioHttpClient, DefaultAsyncHttpxClient

    # The extra `[endpoint]`: with 64 calls in flight 1.16 of the bound, where httpx takes 1.40 to 1.49.
    use_aiohttp = find_spec("aiohttp") is not None if with_aiohttp is None else with_aiohttp
    # A redirect would send what people said to another server than the configured one.
    kind = DefaultAioHttpClient if use_aiohttp else DefaultAsyncHttpxClient
    address, authorization = _split_credentials(url)
    return AsyncOpenAI(
        api_key=api_key or "none",
        base_url=address,
        max_retries=0,
        default_headers={"Authorization": authorization} if authorization else None,
        http_client=kind(follow_redirects=False, event_hooks={"response": [refuse_status]}),
    )


def _split_credentials(url: str) -> tuple[str, str]:
    """The address without a user and password in it, and the header that carries these (in place of the key)."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    basic = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {basic}"


def _prepare(text: str) -> str:
    """A text as it is sent: a beginning of it, in characters that exist, and never empty, which servers refuse."""
    kept = text[:TEXT_CHARACTERS_MAX].encode("utf-8", "replace").decode("utf-8")
    return kept if kept.strip() else "."
