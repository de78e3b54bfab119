"""The openai client's transport to one server: its pool, its headers, and answers that end somewhere.

Requests are sent with headers that are made once, and answers come as bytes: building the SDK's typed objects for
each call takes several times as long as all the rest (BENCHMARKS.md, model_calls).
"""

from __future__ import annotations

import base64
import math
import ssl
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies

import anyio
import anyio.to_thread

from daemon.models.failures import AnswerRefused, StatusRefused, walk_causes

if TYPE_CHECKING:
    import httpx2

# How long a connection may take to come about, if half of the attempt is not less; a host that does not answer by
# then is away.
CONNECT_S = 10.0
# Idle connections are given up before the servers do it, many of which wait 5 s (uvicorn): a request on one that
# is just being closed is lost.
IDLE_S = 4.0
# A connection that breaks as soon as it is used again, and as libraries call that; there may be another such.
STALE_S = 1.0
STALE_MAX = 2
_BROKEN = {
    "BrokenPipeError",
    "ClientConnectionResetError",
    "ClientOSError",
    "ConnectionResetError",
    "ReadError",
    "RemoteProtocolError",
    "ServerDisconnectedError",
    "WriteError",
}
# Of an answer that is an error so much is read: a server's reason is a sentence or two.
ERROR_BYTES_MAX = 64 << 10


class Client:
    """Connections to one server, at most `connections`; opened with the first call."""

    def __init__(self, url: str, api_key: str, connections: int, *, with_aiohttp: bool | None = None) -> None:
        """`with_aiohttp`: which transport; None takes the faster one that is installed."""
        self._address, self._authorization = _split_credentials(url)
        self._api_key, self._connections = api_key, connections
        # The extra `[endpoint]`: with 64 calls in flight httpx takes two to four times the CPU.
        self._with_aiohttp = find_spec("aiohttp") is not None if with_aiohttp is None else with_aiohttp
        self._http: httpx2.AsyncClient | None = None
        self._headers: list[tuple[str, str]] = []
        self._requests: dict[str, httpx2.Request] = {}  # one of each path
        self._opening = anyio.Lock()
        self._answered_at = -math.inf

    async def open(self) -> httpx2.AsyncClient:
        """Make the pool, if there is none: importing the SDK takes longer than all else of a start."""
        if self._http is not None:
            return self._http
        async with self._opening:
            http = self._http
            if http is None:
                http, self._headers = await anyio.to_thread.run_sync(self._make)
                self._http = http
            return http

    async def post(self, path: str, content: bytes, timeout_s: float, bytes_max: int) -> bytes:
        """The body of a success. Raises `StatusRefused`, `AnswerRefused` and whatever the transport raises.

        `timeout_s` is for each read: the caller has a deadline for the whole.
        """
        http = await self.open()
        like = self._requests.get(path)
        if like is None:
            like = self._requests[path] = http.build_request("POST", self._locate(path), headers=self._headers)
        waits_s = {"connect": min(timeout_s / 2, CONNECT_S), "read": timeout_s, "write": timeout_s, "pool": None}
        # Made of one that is there, it takes a quarter of the time: its address is taken apart already.
        request = type(like)(
            "POST", like.url, headers=self._headers, content=content, extensions={"timeout": waits_s}
        )
        response = await self._send(http, request)
        try:
            if response.is_success:
                return await _read_answer(response, bytes_max)
            raise StatusRefused(
                response.status_code, await _read_error(response), response.headers.get("retry-after")
            )
        finally:
            await response.aclose()
            self._answered_at = anyio.current_time()

    async def close(self) -> None:
        """Hang up. The next call opens it again."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _send(self, http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """The beginning of the answer. A server may hang up between two calls at any time, which is no failure of
        the second one: that goes out again over another connection."""
        stale = 0
        while True:
            sent_at = anyio.current_time()
            may_be_stale = stale < STALE_MAX and sent_at - self._answered_at < IDLE_S
            try:
                # A redirect would send what people said to another server than the configured one.
                return await http.send(request, stream=True, follow_redirects=False)
            except Exception as error:  # two transports raise their own; what is not a broken connection goes on
                is_broken = any(type(each).__name__ in _BROKEN for each in walk_causes(error))
                if not (may_be_stale and is_broken and anyio.current_time() - sent_at < STALE_S):
                    raise
                stale += 1

    def _locate(self, path: str) -> str:
        """The address of a path; a query of the configured address (Azure's api-version) stays at its end."""
        address, mark, query = self._address.partition("#")[0].partition("?")
        return f"{address.rstrip('/')}{path}{mark}{query}"

    def _make(self) -> tuple[httpx2.AsyncClient, list[tuple[str, str]]]:
        """On a thread: the import takes a second and reading certificates a tenth."""
        from openai import DEFAULT_CONNECTION_LIMITS, AsyncOpenAI, DefaultAioHttpClient, DefaultAsyncHttpxClient

        # The class is httpx's or httpx2's: older openai clients use the one, newer ones the other.
        pool = type(DEFAULT_CONNECTION_LIMITS)(
            max_connections=self._connections,
            max_keepalive_connections=self._connections,
            keepalive_expiry=IDLE_S,
        )
        kind = DefaultAioHttpClient if self._with_aiohttp else DefaultAsyncHttpxClient
        http = kind(follow_redirects=False, limits=pool, verify=self._choose_trust())
        # Organisation and project of OPENAI_ORG_ID and OPENAI_PROJECT_ID are among its headers.
        sdk = AsyncOpenAI(api_key=self._api_key or "none", base_url=self._address, max_retries=0, http_client=http)
        made: dict[str, Any] = {**sdk.auth_headers, **sdk.default_headers}
        headers = {
            name.lower(): value
            for name, value in made.items()
            # What machine this is concerns nobody.
            if isinstance(value, str) and not name.lower().startswith("x-stainless")
        }
        # An answer that unfolds to a thousand times its length cannot be bounded piece by piece.
        headers["accept-encoding"] = "identity"
        if self._authorization:
            headers["authorization"] = self._authorization
        return http, list(headers.items())

    def _choose_trust(self) -> ssl.SSLContext | bool:
        """The usual certificates; none where no TLS is spoken: reading them takes a quarter of a second."""
        is_plain = self._address.startswith("http://") and not getproxies()
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True


async def _read_answer(response: Any, bytes_max: int) -> bytes:
    if int(response.headers.get("content-length") or 0) > bytes_max:
        raise _too_long(bytes_max)
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > bytes_max:
            raise _too_long(bytes_max)
    return bytes(body)


def _too_long(bytes_max: int) -> AnswerRefused:
    return AnswerRefused(f"it is longer than {bytes_max >> 20} MiB")


async def _read_error(response: Any) -> str:
    """The beginning of what an error says, however long it is and however well it was compressed."""
    says = bytearray()
    async for piece in response.aiter_bytes():
        says += piece
        if len(says) >= ERROR_BYTES_MAX:
            break
    return says[:ERROR_BYTES_MAX].decode("utf-8", "replace")


def _split_credentials(url: str) -> tuple[str, str]:
    """The address without a user and password in it, and the header that carries these (in place of the key)."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    basic = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {basic}"
