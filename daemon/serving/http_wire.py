"""A client that speaks HTTP/1.1: one request at a time, in their order, on a connection that stays.

The framing is h11's, which does no input or output either. What a request asks for is told by
`daemon/serving/http_routes.py`; the methods, their limits and their deadlines are those of JSON-RPC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache, partial
from itertools import chain
from time import time

import h11

from daemon.serving import protocol
from daemon.serving.calls import Call, Calls, TooBusy, Workers
from daemon.serving.http_failures import (
    JSON,
    BodyNotJson,
    BodyNotWanted,
    BodyTooLarge,
    BodyUnreadable,
    Headers,
    HeadTooLarge,
    HttpError,
    TooSlow,
    explain,
    failure_of,
)
from daemon.serving.http_routes import BODY_VERBS, TEXT, Route, Routes, join_params, read_query, type_texts
from daemon.serving.http_stream import Stream, StreamOptions, read_options
from daemon.serving.protocol import LineUnreadable
from daemon.serving.socket_connection import AT_ONCE_MAX, Connection
from events.errors import MemForestError


@dataclass(slots=True)
class _Asked:
    """A request in the making: what it asks for, and its body so far."""

    route: Route
    verb: str
    texts: dict[str, str]
    is_json: bool
    stream: StreamOptions | None
    body: bytearray = field(default_factory=bytearray)


class HttpWire:
    """The requests of one client, one after the other."""

    def __init__(self, connection: Connection, calls: Calls, workers: Workers, routes: Routes) -> None:
        self._connection = connection
        self._calls = calls
        self._workers = workers
        self._routes = routes
        self._http = self._begin_http()
        self._requests = 0
        self._has_begun = False
        self._is_head = False
        self._asked: _Asked | None = None
        self._refused: MemForestError | None = None
        self._is_answering = False
        self._is_ahead = False
        self._is_over = False
        self._is_advancing = False
        self._stream: Stream | None = None

    @property
    def wants_more(self) -> bool:
        """Not while the next request is here before this one is answered: the rest waits in the kernel."""
        return not self._is_ahead

    @property
    def is_busy(self) -> bool:
        """Whether a request is answered, or another that is here will be."""
        return self._is_answering or self._is_ahead

    @property
    def started(self) -> int | None:
        """The number of the request that has begun to arrive."""
        return self._requests if self._has_begun and not self._is_answering else None

    def feed(self, piece: bytes) -> None:
        """Take what arrived and begin the request that is whole."""
        if not self._has_begun:
            piece = piece.lstrip(b"\r\n")  # RFC 9112 section 2.2: an empty line before a request is nothing.
        if piece and not self._is_over:
            self._is_ahead = self._is_answering
            self._has_begun = True
            self._http.receive_data(piece)
            self.resume()

    def end(self) -> None:
        """The client asks nothing more; half a request is no request."""

    def stop(self) -> None:
        """Begin nothing more, and end a stream, which would not end by itself."""
        self._close()
        if self._stream is not None:
            self._stream.stop()

    def refuse_slowness(self) -> None:
        """Say so."""
        self._refuse_at_once(TooSlow())

    def resume(self) -> None:
        """Read requests until one is answered later, or the client has to read first."""
        if self._stream is not None:
            self._stream.resume()
        if self._is_advancing:
            return  # An answer that is there at once comes back here: the loop below goes on, the stack does not.
        self._is_advancing = True
        last = self._requests + AT_ONCE_MAX
        try:
            while not (self._is_answering or self._is_over or self._connection.is_writing):
                self._is_ahead = self._requests == last
                if self._is_ahead:
                    self._connection.later(self.resume)
                    return
                if not self._advance():
                    return
        except h11.RemoteProtocolError as error:
            self._refuse_at_once(explain(error))
        finally:
            self._is_advancing = False

    def _advance(self) -> bool:
        """Take the next piece of a request; whether there was any. Raises h11.RemoteProtocolError."""
        match self._http.next_event():
            case h11.Request() as request:
                self._has_begun = True
                self._begin(request)
            case h11.Data(data=piece):
                self._collect(piece)
            case h11.EndOfMessage():
                self._start()
            case _:  # More is needed.
                return False
        return True

    def _begin(self, request: h11.Request) -> None:
        """The head of a request is here. What is wrong with it is told behind its body, if that will come."""
        self._is_head = request.method == b"HEAD"
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        # h11 minds the size of a head that comes in pieces alone; what is refused must not depend on the pieces.
        if len(request.target) + sum(map(len, chain(*request.headers))) > self._calls.limits.head_bytes_max:
            self._refuse_at_once(HeadTooLarge())
            return
        if "content-length" in headers and "transfer-encoding" in headers:
            self._refuse_at_once(HttpError())  # RFC 9112 section 6.3: two lengths are an attack.
            return
        if int(headers.get("content-length", "0")) > self._calls.limits.line_bytes_max:
            self._refuse_at_once(BodyTooLarge())
            return
        try:
            self._asked = self._find(request.method.decode("ascii"), request.target.decode("ascii"), headers)
        except MemForestError as error:
            self._refused = error
        if self._http.they_are_waiting_for_100_continue:
            if self._refused is not None:
                self._refuse_at_once(self._refused)
            else:
                self._connection.send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))

    def _find(self, verb: str, target: str, headers: dict[str, str]) -> _Asked:
        route, values = self._routes.find(verb, target)
        query = read_query(target)
        stream = read_options(headers, query) if route.streams and verb == "GET" else None
        texts = {name: str(text) for name, text in join_params(values, query).items()}
        is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == JSON
        return _Asked(route, verb, texts, is_json, stream)

    def _collect(self, piece: bytes) -> None:
        if self._asked is None:
            return  # It is refused already; its body is read so that the connection can stay.
        self._asked.body += piece
        if len(self._asked.body) > self._calls.limits.line_bytes_max:
            self._refuse_at_once(BodyTooLarge())

    def _start(self) -> None:
        """The request is whole: let it run, or say what is wrong with it."""
        asked, refused = self._asked, self._refused
        self._asked = self._refused = None
        self._is_answering = True
        self._is_ahead = bool(self._http.trailing_data[0])
        try:
            if asked is None:
                raise refused or HttpError()
            call = self._admit(asked)
        except Exception as error:
            self._fail(asked.route.method if asked else "", error)
            return
        if asked.stream is not None:
            self._stream = Stream(self._connection, self._calls, asked.stream, self._begin_stream, self._send_part)
        self._workers.start(partial(self._run, asked.route, call, self._stream))

    def _admit(self, asked: _Asked) -> Call:
        params_type = self._calls.find(asked.route.method).params_type
        given = join_params(type_texts(params_type, asked.texts), _read_body(asked))
        if asked.stream is not None and self._calls.tally.streams >= self._calls.limits.streams_max:
            raise TooBusy
        return self._calls.admit(asked.route.method, given)

    async def _run(self, route: Route, call: Call, stream: Stream | None) -> None:
        """A request from its start to its answer."""
        connection = self._connection
        try:
            if stream is not None:
                await stream.run(call)
                done = self._end_stream
            else:
                result = await self._calls.run(call, connection.asker)
                body = route.raw(result).encode() if route.raw else protocol.encode(result)
                status = route.status_of(result) if route.status_of else route.status
                media: Headers = [("Content-Type", TEXT if route.raw else JSON)]
                done = partial(self._answer, status, self._calls.check_size(body), media)
        except Exception as error:
            # A task's top.
            done = partial(self._fail, call.name, error)
        except BaseException:
            connection.abort()
            raise
        connection.guard(done, self.resume)

    def _fail(self, name: str, error: Exception) -> None:
        self._calls.failed(name, error)
        self._answer(*failure_of(error))

    def _refuse_at_once(self, error: MemForestError) -> None:
        """Answer what will not be read to its end; the connection cannot be used any more."""
        self._asked = self._refused = None
        self._close()
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._is_answering = True
            self._fail("", error)

    def _answer(self, status: int, body: bytes, headers: Headers) -> None:
        """A whole answer, in one write; HEAD gets the head of it."""
        head = self._encode_head(status, [*headers, ("Content-Length", str(len(body)))])
        if not self._is_head:
            head += self._http.send(h11.Data(data=body))
        self._connection.send(head + self._http.send(h11.EndOfMessage()))
        self._next()

    def _begin_stream(self, media: str) -> None:
        self._connection.send(self._encode_head(200, [("Content-Type", media)]))

    def _send_part(self, part: bytes) -> None:
        self._connection.send(self._http.send(h11.Data(data=part)))

    def _end_stream(self) -> None:
        self._connection.send(self._http.send(h11.EndOfMessage()))
        self._next()

    def _encode_head(self, status: int, headers: Headers) -> bytes:
        common: Headers = [("Date", _format_date(int(time()))), ("Cache-Control", "no-store")]
        if self._is_over:
            common.append(("Connection", "close"))
        return self._http.send(h11.Response(status_code=status, headers=[*common, *headers]))

    def _next(self) -> None:
        """After an answer: the next request, or the end of the connection."""
        self._is_answering = self._is_head = False
        self._stream = None
        self._requests += 1
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._skip_blank_lines()
            self._has_begun = bool(self._http.trailing_data[0])
        else:
            self._close()

    def _skip_blank_lines(self) -> None:
        """Those that came with the request before: `feed` sees only the ones that come by themselves."""
        rest = self._http.trailing_data[0]
        if rest.startswith((b"\r", b"\n")):
            self._http = self._begin_http()
            if rest := rest.lstrip(b"\r\n"):
                self._http.receive_data(rest)

    def _begin_http(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._calls.limits.head_bytes_max)

    def _close(self) -> None:
        """What comes is not looked at any more; the connection ends once all is answered."""
        self._is_over, self._is_ahead = True, False
        self._connection.finish()


def _read_body(asked: _Asked) -> dict[str, object]:
    """The parameters in the body. Raises HttpError."""
    if not asked.body:
        return {}
    if asked.verb not in BODY_VERBS:
        raise BodyNotWanted
    if not asked.is_json:
        raise BodyNotJson
    try:
        value = protocol.decode(bytes(asked.body))
    except LineUnreadable:
        raise BodyUnreadable from None
    if not isinstance(value, dict):
        raise BodyUnreadable
    return value


@lru_cache(maxsize=1)
def _format_date(second: int) -> str:
    return formatdate(second, usegmt=True)
