"""`models.embedder = "endpoint"`: vectors from any OpenAI-compatible server.

What goes wrong there never goes further: an answer that is not what was asked for is refused, a call is tried
again within its time, and when calls keep failing a circuit opens and the daemon goes on by words alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b

import anyio
import numpy as np

from daemon.config import hide_password
from daemon.logs import Report, quiet
from daemon.models.embedding_answers import read_vectors
from daemon.models.endpoint import (
    CallFailed,
    Endpoint,
    EndpointKeys,
    EndpointUnavailable,
    Patience,
    Refusal,
    RequestRefused,
)
from projections.ports import EmbedderUnavailable, TextRefused, Vectors

# Texts of one request, and their characters: some servers take no more texts, and OpenAI 300,000 tokens.
BATCH_TEXTS_MAX = 128
BATCH_CHARACTERS_MAX = 200_000
# A server that does not answer so many in time is asked for fewer, and for twice as many again after some full
# batches that it did answer.
BATCH_TEXTS_MIN = 8
BATCHES_BEFORE_MORE = 8
# Of a text this much is embedded (8,192 tokens is what the largest models look at); where a server says that it is
# too long, half of it and half again, down to the last.
TEXT_CHARACTERS_MAX = 8_000
TEXT_CHARACTERS_MIN = 500
# 128 vectors of 8,192 numbers of 22 characters are 23 MB. Once the width is known, it bounds an answer: so much
# for each number with the space around it, and for what else there is.
ANSWER_BYTES_MAX = 32 << 20
NUMBER_BYTES_MAX = 48
REST_BYTES_MAX = 1 << 20

PATH = "/embeddings"
KEYS = EndpointKeys("models.embed_url", "models.embed_model")
STORED = Patience(30.0, 60.0)
# Somebody waits, and words alone answer, too.
QUESTION = Patience(3.0, 4.0, 1.0)
# What every server in order has a vector for, as long as it has one for anything.
EASY_TEXT = "."
# Priorities; questions have a slot of their own besides.
QUESTIONS_FIRST, STORED_NEXT, UNHURRIED_LAST = 0, 1, 2


class _BatchFailed(EmbedderUnavailable):
    """The call for these texts came to nothing, and it may be their own fault."""


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
        report: Report = quiet,
        keys: EndpointKeys = KEYS,
    ) -> None:
        """`dimensions` is asked for and insisted on; 0 takes what the first answer has and insists on that."""
        self.endpoint = Endpoint(
            url,
            api_key,
            keys,
            concurrency=concurrency,
            use="embeddings",
            kept_for_first=1,
            report=report,
        )
        # Of all answers since the start, as far as the server counts them.
        self.prompt_tokens = 0
        self._url, self._model = url, model
        self._asked_dimensions = dimensions
        self._dimensions = dimensions
        self._has_answered = False
        # Bounds what is made ready beside what is out.
        self._batches_ready = {
            STORED_NEXT: anyio.CapacityLimiter(concurrency),
            UNHURRIED_LAST: anyio.CapacityLimiter(1),
        }
        self._stored, self._question = stored, question
        self._batch_texts = BATCH_TEXTS_MAX
        self._full_batches = 0

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
        return self.endpoint.circuit.reason

    async def close(self) -> None:
        """Hang up."""
        await self.endpoint.close()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text, in the order given; several requests at a time.

        Raises `EmbedderUnavailable`, and `TextRefused` when it is a text's fault.
        """
        return await self._embed(texts, STORED_NEXT)

    async def embed_unhurried(self, texts: Sequence[str]) -> Vectors:
        """The same, a batch at a time, when no slot is wanted for anything else."""
        return await self._embed(texts, UNHURRIED_LAST)

    async def _embed(self, texts: Sequence[str], priority: int) -> Vectors:
        batches = list(self._batches([_prepare(text) for text in texts]))
        rows: dict[int, Vectors] = {}
        failures: list[EmbedderUnavailable] = []

        async def embed_batch(at: int, batch: list[str]) -> None:
            try:
                async with self._batches_ready[priority]:
                    rows[at] = await self._embed_or_split(batch, priority)
            except _BatchFailed as error:
                # Some models fail for some texts: with a vector of NaN, with status 500.
                is_refused = self._has_answered and await self._answers_others()
                failures.append(TextRefused(str(error)) if is_refused else error)
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
        circuit = self.endpoint.circuit
        if not circuit.is_closed:
            raise EmbedderUnavailable(circuit.reason or "the endpoint is not asked for now")
        rows = await self._call([_prepare(text)], self._question, QUESTIONS_FIRST, "question")
        row: Vectors = rows[0]
        return row

    async def _answers_others(self) -> bool:
        try:
            await self._call([EASY_TEXT], self._question, QUESTIONS_FIRST, "question")
        except EmbedderUnavailable:
            return False
        return True

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

    async def _embed_or_split(self, texts: list[str], priority: int) -> Vectors:
        """A batch; when the server refuses it, its halves, and of a single text a shorter beginning."""
        try:
            # The times of full batches and of those that are not are no measure of each other.
            kind = f"{self._batch_texts} texts" if len(texts) == self._batch_texts else "fewer texts"
            return await self._call(texts, self._stored, priority, kind)
        except TextRefused:
            if len(texts) > 1:
                half = len(texts) // 2
                return np.concatenate(
                    [
                        await self._embed_or_split(texts[:half], priority),
                        await self._embed_or_split(texts[half:], priority),
                    ]
                )
            if len(texts[0]) <= TEXT_CHARACTERS_MIN:
                raise
            return await self._embed_or_split([texts[0][: len(texts[0]) // 2]], priority)

    async def _call(self, texts: list[str], patience: Patience, priority: int, kind: str) -> Vectors:
        """One call with its attempts. Raises `EmbedderUnavailable` or `TextRefused`."""
        body: dict[str, object] = {"input": texts, "model": self._model, "encoding_format": "float"}
        if self._asked_dimensions:
            body["dimensions"] = self._asked_dimensions
        read = partial(read_vectors, texts=len(texts), dimensions=self._dimensions)
        known_bytes = REST_BYTES_MAX + len(texts) * self._dimensions * NUMBER_BYTES_MAX
        try:
            rows, tokens = await self.endpoint.post(
                PATH,
                body,
                read,
                patience=patience,
                priority=priority,
                kind=kind,
                answer_bytes_max=min(ANSWER_BYTES_MAX, known_bytes) if self._dimensions else ANSWER_BYTES_MAX,
            )
        except RequestRefused as refused:
            raise self._blame(refused) from None
        except (EndpointUnavailable, CallFailed) as error:
            if error.is_slow and len(texts) > 1:
                self._batch_texts = max(BATCH_TEXTS_MIN, min(self._batch_texts, len(texts)) // 2)
                self._full_batches = 0
            elif isinstance(error, CallFailed):
                raise _BatchFailed(error.reason) from None
            raise EmbedderUnavailable(error.reason) from None
        self.prompt_tokens += tokens
        self._note_width(rows.shape[1])
        self._note_batch(len(texts))
        return rows

    def _blame(self, refused: RequestRefused) -> EmbedderUnavailable:
        """A text's fault, once others were taken; before that nobody knows but that nothing is taken."""
        if self._has_answered and refused.refusal in (Refusal.TOO_LONG, Refusal.CONTENT):
            return TextRefused(refused.reason)
        hint = " (see models.embed_dimensions)" if refused.parameter == "dimensions" else ""
        self.endpoint.count_failure(refused.reason + hint)
        return EmbedderUnavailable(refused.reason + hint)

    def _note_width(self, width: int) -> None:
        # Of several first answers one comes first.
        if width != (self._dimensions or width):
            reason = f"its vectors have {width} dimensions and others {self._dimensions}"
            self.endpoint.count_failure(reason)
            raise EmbedderUnavailable(f"the endpoint's answer was refused: {reason}")
        self._dimensions = width
        self._has_answered = True

    def _note_batch(self, texts: int) -> None:
        if self._batch_texts < BATCH_TEXTS_MAX and texts >= self._batch_texts:
            self._full_batches += 1
            if self._full_batches >= BATCHES_BEFORE_MORE:
                self._batch_texts = min(BATCH_TEXTS_MAX, self._batch_texts * 2)
                self._full_batches = 0


def _prepare(text: str) -> str:
    """A text as it is sent: a beginning of it, in characters that exist, and never empty, which servers refuse."""
    kept = text[:TEXT_CHARACTERS_MAX].encode("utf-8", "replace").decode("utf-8")
    return kept if kept.strip() else EASY_TEXT
