"""The stub server: routes, slots, latency, and what was asked of it so far."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import msgspec

from tests.stub_models.faults import CHAT_KINDS, EMBED, Fault, Faults, FaultUnknown
from tests.stub_models.http import Connection, Request
from tests.stub_models.reading import Prompt, mode_of, read_prompt, right_content, spoilt_contents
from tests.stub_models.spoiling import (
    Completion,
    encode_completion,
    encode_embeddings,
    error_body,
    refusal,
    spoil_completion,
)
from tests.stub_models.vectors import embed

# What a server may understand of response_format, each with all before it.
JSON_MODES: Final = ("text", "json_object", "json_object_schema", "json_schema")
SLOW_S: Final = 1.0
# Providers count what is cached in blocks; vLLM's have 16 tokens.
CACHE_BLOCK_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server behaves when it behaves."""

    latency_s: float = 0.0
    embed_latency_s: float = 0.0
    slots: int = 0  # chat calls served at once; 0 for no limit
    dimensions: int = 64
    seed: int = 0
    json_mode: str = "json_schema"


@dataclass(slots=True)
class Call:
    """One request of a model on its way through; `finish` computes and sends the answer."""

    kind: str
    fault: Fault | None
    request: Request
    finish: Callable[[Call], None]
    is_served: bool = False
    is_over: bool = False


class Stats:
    """What was asked since the start or the last reset."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.prompt_tokens: Counter[str] = Counter()
        self.prompt_tokens_max: Counter[str] = Counter()
        self.completion_tokens = self.cached_tokens = self.embedding_tokens = self.texts_embedded = 0
        # Chat requests that were byte for byte one that had been answered rightly: what was paid for twice.
        self.repeated = 0
        self.answered: set[bytes] = set()
        self.peak: Counter[str] = Counter()


class StubServer:
    """An OpenAI-compatible server without a model."""

    def __init__(self, settings: Settings, faults: Faults) -> None:
        self.settings, self.faults = settings, faults
        self.stats = Stats()
        self.connections: set[Connection] = set()
        self._flying: Counter[str] = Counter()
        self._serving = 0
        self._queue: deque[Call] = deque()
        self._idle_awaited: list[Request] = []
        self._prefixes: set[str] = set()

    def connect(self) -> Connection:
        """For `loop.create_server`."""
        return Connection(self._take, self.connections)

    def _take(self, request: Request) -> None:
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                self._take_model(request, self._take_chat)
            case "POST", "/v1/embeddings":
                self._take_model(request, self._take_embedding)
            case "GET", "/v1/models":
                models = [
                    {"id": name, "object": "model", "owned_by": "stub"} for name in ("stub-chat", "stub-embed")
                ]
                _send(request, 200, {"object": "list", "data": models})
            case "GET", "/stats":
                _send(request, 200, self.report())
            case "GET", "/idle":
                self._idle_awaited.append(request)
                self._tell_idle()
            case "POST", "/reset":
                self.stats = Stats()
                self.stats.peak.update({kind: count for kind, count in self._flying.items() if count})
                self.faults.fired.clear()
                _send(request, 200, {})
            case _, "/faults":
                self._take_faults(request)
            case _:
                request.connection.answer(404, error_body("there is no such path", "not_found"))

    def _take_faults(self, request: Request) -> None:
        try:
            if request.method == "POST":
                wanted: Any = msgspec.json.decode(request.body)
                self.faults.set(str(wanted["faults"]))
        except (FaultUnknown, msgspec.DecodeError, KeyError, TypeError) as error:
            request.connection.answer(400, error_body(str(error), "invalid"))
            return
        _send(request, 200, {"faults": self.faults.specification, "fired": self.faults.fired})

    def _take_model(self, request: Request, take: Callable[[Request, dict[str, Any]], None]) -> None:
        try:
            body: Any = msgspec.json.decode(request.body)
            take(request, body)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            self.stats.statuses["400"] += 1
            request.connection.answer(400, error_body(f"cannot be read: {error}", "invalid_request"))

    def _take_chat(self, request: Request, body: dict[str, Any]) -> None:
        prompt = read_prompt(body)
        self.stats.calls[prompt.kind] += 1
        self.stats.prompt_tokens[prompt.kind] += prompt.tokens
        longest = self.stats.prompt_tokens_max
        longest[prompt.kind] = max(longest[prompt.kind], prompt.tokens)
        mode = mode_of(body)
        if JSON_MODES.index(mode) > JSON_MODES.index(self.settings.json_mode):
            sentence = f"response_format {mode} is not supported"
            self._refuse(request, 400, error_body(sentence, "invalid_request", "response_format"))
            return
        fault = self.faults.choose(prompt.kind, prompt.characters)
        self._begin(Call(prompt.kind, fault, request, partial(self._finish_chat, prompt, str(body["model"]))))

    def _take_embedding(self, request: Request, body: dict[str, Any]) -> None:
        given = body["input"]
        texts = [given] if isinstance(given, str) else [str(text) for text in given]
        characters = sum(map(len, texts))
        self.stats.calls[EMBED] += 1
        self.stats.texts_embedded += len(texts)
        self.stats.embedding_tokens += _tokens(characters)
        longest = max(map(len, texts), default=0)
        fault = self.faults.choose(EMBED, longest)
        self._begin(Call(EMBED, fault, request, partial(self._finish_embedding, texts, body)))

    def _begin(self, call: Call) -> None:
        group = _group(call.kind)
        self._flying[group] += 1
        self.stats.peak[group] = max(self.stats.peak[group], self._flying[group])
        call.request.connection.on_lost = partial(self._end, call)
        fault, connection = call.fault, call.request.connection
        if fault is not None and (refused := refusal(fault)) is not None:
            self._end(call)
            self._refuse(call.request, *refused)
            return
        match None if fault is None else fault.name:
            case "hang":
                pass  # until the client gives up
            case "drip":
                connection.drip()
            case "endless":
                connection.pour()
            case "reset":
                connection.reset()
            case "close":
                connection.close()
            case _:
                self._queue.append(call)
                self._serve_next()

    def _serve_next(self) -> None:
        slots = self.settings.slots
        while self._queue and (not slots or self._serving < slots or self._queue[0].kind == EMBED):
            call = self._queue.popleft()
            if call.is_over:
                continue
            if call.kind != EMBED:
                call.is_served = True
                self._serving += 1
            wait_s = self.settings.embed_latency_s if call.kind == EMBED else self.settings.latency_s
            if call.fault is not None and call.fault.name == "slow":
                wait_s += float(call.fault.argument or SLOW_S)
            asyncio.get_running_loop().call_later(wait_s, self._finish, call)

    def _finish(self, call: Call) -> None:
        if not call.is_over:
            self._end(call)
            call.finish(call)

    def _end(self, call: Call) -> None:
        """The call is over: answered, or its client has left."""
        if call.is_over:
            return
        call.is_over = True
        call.request.connection.on_lost = None
        self._flying[_group(call.kind)] -= 1
        self._tell_idle()
        if call.is_served:
            self._serving -= 1
            self._serve_next()

    def _tell_idle(self) -> None:
        """Answer who waits for a moment without a chat call, if this is one."""
        if not self._flying["chat"]:
            for request in self._idle_awaited:
                _send(request, 200, {})
            self._idle_awaited.clear()

    def _finish_chat(self, prompt: Prompt, model: str, call: Call) -> None:
        cached = _tokens(len(prompt.prefix)) // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS
        made = Completion(right_content(prompt), prompt.tokens, cached if prompt.prefix in self._prefixes else 0)
        self._prefixes.add(prompt.prefix)
        if call.fault is not None:
            made = spoil_completion(made, call.fault, spoilt_contents(prompt))
        stats = self.stats
        stats.completion_tokens += made.completion_tokens
        stats.cached_tokens += made.cached_tokens
        print_of = blake2b(call.request.body, digest_size=8).digest()
        stats.repeated += print_of in stats.answered
        if call.fault is None:
            stats.answered.add(print_of)
        self._send_model(call, encode_completion(made, model))

    def _finish_embedding(self, texts: list[str], body: dict[str, Any], call: Call) -> None:
        dimensions = int(body.get("dimensions") or self.settings.dimensions)
        vectors = [embed(text, self.settings.seed, dimensions) for text in texts]
        as_base64 = body.get("encoding_format") == "base64"
        tokens, seed, model = _tokens(sum(map(len, texts))), self.settings.seed, str(body["model"])
        answer = encode_embeddings(vectors, model, tokens, as_base64=as_base64, fault=call.fault, seed=seed)
        self._send_model(call, answer)

    def _send_model(self, call: Call, answer: bytes) -> None:
        if call.fault is not None and call.fault.name == "cut_body":
            answer = answer[: len(answer) // 2]
        self.stats.statuses["200"] += 1
        call.request.connection.answer(200, answer)

    def _refuse(self, request: Request, status: int, body: bytes, headers: str = "") -> None:
        self.stats.statuses[str(status)] += 1
        request.connection.answer(status, body, headers)

    def report(self) -> dict[str, object]:
        """What `/stats` says."""
        stats = self.stats
        return {
            "calls": {kind: stats.calls[kind] for kind in (*CHAT_KINDS, EMBED) if stats.calls[kind]},
            "prompt_tokens": stats.prompt_tokens,
            "prompt_tokens_max": stats.prompt_tokens_max,
            "chat_prompt_tokens": stats.prompt_tokens.total(),
            "chat_cached_tokens": stats.cached_tokens,
            "chat_completion_tokens": stats.completion_tokens,
            "embedding_tokens": stats.embedding_tokens,
            "texts_embedded": stats.texts_embedded,
            "repeated": stats.repeated,
            "in_flight": {group: self._flying[group] for group in ("chat", EMBED)},
            "in_flight_peak": {group: stats.peak[group] for group in ("chat", EMBED)},
            "waiting": sum(not call.is_over for call in self._queue),
            "statuses": stats.statuses,
            "faults": self.faults.fired,
        }


def _group(kind: str) -> str:
    return EMBED if kind == EMBED else "chat"


def _tokens(characters: int) -> int:
    """About four characters a token."""
    return -(-characters // 4)


def _send(request: Request, status: int, body: object) -> None:
    request.connection.answer(status, msgspec.json.encode(body))
