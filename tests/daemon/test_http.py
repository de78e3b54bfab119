"""HTTP on the socket with real clients: the same methods and limits as JSON-RPC, in the words of RFC 9112."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from daemon.serving.calls import SocketLimits
from daemon.serving.protocol import INTERNAL_SENTENCE, Handlers, Method
from daemon.untrusted import Params
from events.errors import MemForestError, StaleDecision
from tests.daemon.sockets_in_use import (
    Gate,
    HttpClient,
    Nothing,
    Reports,
    Response,
    connected,
    http_connected,
    query,
    serving,
    write,
)

GET = b"GET /healthz HTTP/1.1\r\nHost: m\r\n\r\n"


class User(Params, frozen=True, kw_only=True):
    user_id: str


class Letters(Params, frozen=True, kw_only=True):
    limit: int = 100
    after: int = 0


class Ask(Params, frozen=True, kw_only=True):
    user_id: str
    query: str
    k: int = 10


class Ingest(Params, frozen=True, kw_only=True):
    messages: list[dict[str, Any]]


async def echo(params: Any) -> object:
    return params


async def alive(params: Any) -> object:
    return {"state": "ok"}


def reading(params_type: Any, call: Any = echo) -> Method:
    return Method(params_type, call, write=False, deadline_s=5.0)


ECHOES: Handlers = {
    "healthz": reading(Nothing, alive),
    "query": reading(Ask),
    "ingest": Method(Ingest, echo, write=True, deadline_s=5.0),
    "dead_letters.list": reading(Letters),
    "sessions.list": reading(User),
    "digest": reading(User),
}


async def closed(client: HttpClient) -> bool:
    with anyio.fail_after(5):
        return await client.at_end()


# --- requests and answers ---


async def test_a_request_is_answered_with_json_and_the_connection_stays(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        first = await client.fetch("GET", "/healthz")
        again = await client.fetch("GET", "/healthz")

        assert (first.status, first.json) == (200, {"state": "ok"})
        assert first.headers["content-type"] == "application/json"
        assert first.headers["cache-control"] == "no-store"
        assert first.headers["date"].endswith("GMT")
        assert again.body == first.body


async def test_json_rpc_and_http_are_told_apart_on_one_socket(path: Path) -> None:
    async with serving(path, ECHOES), connected(path) as rpc, http_connected(path) as http:
        http.send(b"\r\n  \r\n")

        assert (await rpc.call("healthz"))["result"] == {"state": "ok"}
        assert (await http.fetch("GET", "/healthz")).json == {"state": "ok"}


async def test_parameters_stand_in_the_path_the_query_string_and_the_body(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        in_path = await client.fetch("GET", "/v1/users/al%2Fice%20%C3%A9/sessions")
        in_query = await client.fetch("GET", "/v1/dead_letters?limit=5&after=7")
        in_body = await client.fetch("POST", "/v1/query", {"user_id": "alice", "query": "é?", "k": 3})

        assert in_path.json == {"user_id": "al/ice é"}
        assert in_query.json == {"limit": 5, "after": 7}
        assert in_body.json == {"user_id": "alice", "query": "é?", "k": 3}


async def test_an_id_of_digits_stays_a_text(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        assert (await client.fetch("GET", "/v1/users/007/digest")).json == {"user_id": "007"}
        assert (await client.fetch("GET", "/v1/users/true/digest")).json == {"user_id": "true"}


async def test_a_write_over_the_bus_is_accepted_not_done(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        answer = await client.fetch("POST", "/v1/turns", {"messages": [{"a": 1}]})

        assert (answer.status, answer.json) == (202, {"messages": [{"a": 1}]})


async def test_head_has_the_head_of_get(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        got = await client.fetch("GET", "/healthz")
        head = await client.fetch("HEAD", "/healthz")

        assert head.status == 200
        assert head.headers["content-length"] == got.headers["content-length"] == str(len(got.body))
        assert (await client.fetch("GET", "/healthz")).body == got.body


async def test_pipelined_requests_are_answered_in_their_order(path: Path) -> None:
    gate = Gate()
    handlers = {**ECHOES, "digest": query(gate)}
    async with (
        serving(path, {**handlers, "digest": Method(User, gate, False, 5.0)}),
        http_connected(path) as client,
    ):
        client.request("GET", "/v1/users/alice/digest")
        client.request("GET", "/nothing")
        for number in range(40):
            client.request("GET", f"/v1/dead_letters?limit={number}")
        await gate.entered.get()
        gate.open.set()

        assert (await client.response()).json == "through"
        assert (await client.response()).status == 404
        assert [(await client.response()).json["limit"] for _ in range(40)] == list(range(40))


async def test_a_thousand_requests_in_one_piece_are_answered(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        client.send(b"GET /nothing HTTP/1.1\r\nHost: m\r\n\r\n" * 1_000)
        statuses = {(await client.response()).status for _ in range(1_000)}

        assert statuses == {404}


async def test_a_request_may_arrive_in_any_pieces(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        body = b'{"user_id":"a","query":"q"}'
        head = b"POST /v1/query HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\n"
        for byte in head + b"Content-Length: %d\r\n\r\n" % len(body) + body:
            client.send(bytes([byte]))
            await client.writer.drain()

        assert (await client.response()).json["query"] == "q"


async def test_two_requests_may_be_cut_anywhere(path: Path) -> None:
    first = b"GET /nothing HTTP/1.1\r\nHost: m\r\n\r\n"
    async with serving(path, ECHOES), http_connected(path) as client:
        for cut in range(len(GET) + 1):
            client.send(first + GET[:cut])
            assert (await client.response()).status == 404
            client.send(GET[cut:])

            assert (await client.response()).status == 200, cut


async def test_a_request_behind_another_has_its_time_too(path: Path) -> None:
    async with serving(path, ECHOES, SocketLimits(read_timeout_s=0.05)), http_connected(path) as client:
        client.send(GET + GET[:20])

        assert [(await client.response()).status for _ in range(2)] == [200, 408]
        assert await closed(client)


async def test_a_body_in_chunks_is_taken(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        client.send(
            b"POST /v1/query HTTP/1.1\r\nHost: m\r\nContent-Type: application/json; charset=utf-8\r\n"
            b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"us\r\n18\r\ner_id":"a","query":"q1"}\r\n0\r\n\r\n'
        )

        assert (await client.response()).json == {"user_id": "a", "query": "q1", "k": 10}
        assert (await client.fetch("GET", "/healthz")).status == 200


async def test_blank_lines_between_requests_are_nothing_also_in_one_piece(path: Path) -> None:
    asked = b'{"user_id":"a","query":"b"}'
    head = b"POST /v1/query HTTP/1.1\r\nHost: m\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    async with serving(path, ECHOES), http_connected(path) as client:
        client.send(head % len(asked) + asked + b"\r\n" + GET + b"\r\n\n" + GET + b"\r\n")
        answers = [await client.response() for _ in range(3)]
        later = await client.fetch("GET", "/healthz")

        assert [each.status for each in answers] == [200, 200, 200]
        assert later.json == {"state": "ok"}


async def test_a_client_that_waits_to_be_told_to_go_on_is_told(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        body = b'{"user_id":"a","query":"q"}'
        client.request(
            "POST",
            "/v1/query",
            expect="100-continue",
            content_length=str(len(body)),
            content_type="application/json",
        )
        waited = await client.head()
        client.send(body)

        assert waited == (100, {})
        assert (await client.response()).json["query"] == "q"


async def test_a_client_that_waits_with_what_would_be_refused_is_refused_at_once(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        client.request("POST", "/v1/nothing", expect="100-continue", content_length="5")

        assert (await client.response()).status == 404
        assert await closed(client)


async def test_connection_close_is_done(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        answer = await client.fetch("GET", "/healthz", connection="close")

        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await closed(client)


async def test_http_1_0_is_answered_and_closed(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        client.send(b"GET /healthz HTTP/1.0\r\n\r\n")

        assert (await client.response()).json == {"state": "ok"}
        assert await closed(client)


async def test_a_client_that_has_finished_asking_gets_all_its_answers(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        client.send(GET * 3)
        client.writer.write_eof()

        assert [(await client.response()).status for _ in range(3)] == [200, 200, 200]
        assert await closed(client)


async def test_a_target_may_name_the_host(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        assert (await client.fetch("GET", "http://localhost/v1/dead_letters?limit=3")).json["limit"] == 3


# --- what is wrong with a request ---

WRONG: dict[str, tuple[str, str, object, dict[str, str], int]] = {
    "no such path": ("GET", "/v2/users", None, {}, 404),
    "a slash too many": ("GET", "/healthz/", None, {}, 404),
    "no such verb here": ("DELETE", "/healthz", None, {}, 405),
    "a body that is no JSON": ("POST", "/v1/query", b"{", {}, 400),
    "a body with a byte order mark": ("POST", "/v1/query", b"\xef\xbb\xbf{}", {}, 400),
    "a body that is no UTF-8": ("POST", "/v1/query", b'{"user_id":"\xff"}', {}, 400),
    "a body that nests too deep": ("POST", "/v1/query", b'{"a":' * 1_000 + b"1" + b"}" * 1_000, {}, 400),
    "a list of parameters": ("POST", "/v1/query", [1], {}, 400),
    "a form": ("POST", "/v1/query", b"a=b", {"content_type": "application/x-www-form-urlencoded"}, 415),
    "a body with GET": ("GET", "/healthz", {"a": 1}, {}, 400),
    "an unknown parameter": ("GET", "/healthz?surprise=secret", None, {}, 400),
    "a parameter of another type": ("GET", "/v1/dead_letters?limit=secret", None, {}, 400),
    "a missing parameter": ("POST", "/v1/query", {"query": "secret"}, {}, 400),
    "a parameter in path and body": ("POST", "/v1/query?user_id=secret", {"user_id": "secret"}, {}, 400),
    "a parameter twice": ("GET", "/v1/dead_letters?limit=1&limit=2", None, {}, 400),
    "a path that is no UTF-8": ("GET", "/v1/users/%FF/sessions", None, {}, 400),
    "a query that is no UTF-8": ("GET", "/v1/dead_letters?limit=%FF", None, {}, 400),
    "too many parameters": ("GET", "/healthz?" + "&".join(f"a{n}=1" for n in range(100)), None, {}, 400),
    "a number of 5000 digits": ("GET", "/v1/dead_letters?limit=" + "9" * 5_000, None, {}, 400),
    "no path": ("OPTIONS", "*", None, {}, 400),
    "a tunnel": ("CONNECT", "localhost:80", None, {}, 400),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_what_is_wrong_is_told_with_its_code_and_the_connection_stays(
    path: Path, wrong: tuple[str, str, object, dict[str, str], int]
) -> None:
    verb, target, body, headers, status = wrong
    async with serving(path, ECHOES), http_connected(path) as client:
        answer = await client.fetch(verb, target, body, **headers)

        assert answer.status == status
        assert answer.code == ("not_found" if status == 404 else "invalid")
        assert "secret" not in answer.body.decode()
        assert (await client.fetch("GET", "/healthz")).status == 200


BROKEN = {
    "no HTTP": (b"HELLO\r\n\r\n", 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "a header without a name": (b"GET /healthz HTTP/1.1\r\nHost: m\r\n: secret\r\n\r\n", 400),
    "a zero byte": (b"GET /heal\x00thz HTTP/1.1\r\nHost: m\r\n\r\n", 400),
    "two lengths": (b"POST /v1/query HTTP/1.1\r\nHost: m\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "a length and chunks": (
        b"POST /v1/query HTTP/1.1\r\nHost: m\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "a length that is none": (b"POST /v1/query HTTP/1.1\r\nHost: m\r\nContent-Length: -1\r\n\r\n", 400),
    "another coding": (b"POST /v1/query HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "a chunk that is none": (
        b"POST /v1/query HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\nsecret\r\n",
        400,
    ),
    "a body of 1 MiB and 1": (b"POST /v1/query HTTP/1.1\r\nHost: m\r\nContent-Length: 1048577\r\n\r\n", 413),
    "a body without end": (
        b"POST /v1/query HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n"
        + (b"10000\r\n" + b" " * 0x10000 + b"\r\n") * 17,
        413,
    ),
    "a head too large in one piece": (
        b"GET /healthz HTTP/1.1\r\nHost: m\r\nX: " + b"x" * 17_000 + b"\r\n\r\n",
        431,
    ),
    "a head without end": (b"GET /healthz HTTP/1.1\r\nHost: m\r\nX: " + b"x" * 100_000, 431),
}


@pytest.mark.parametrize(("raw", "status"), BROKEN.values(), ids=BROKEN.keys())
async def test_what_cannot_be_read_to_its_end_is_told_and_closed(path: Path, raw: bytes, status: int) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        client.send(raw)
        answer = await client.response()

        assert (answer.status, answer.code) == (status, "invalid")
        assert answer.headers["connection"] == "close"
        assert b"secret" not in answer.body
        assert await closed(client)


async def test_a_body_of_the_largest_size_is_taken(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        body = b'{"user_id":"a","query":"%b"}' % (b"q" * ((1 << 20) - 26))
        answer = await client.fetch("POST", "/v1/query", body)

        assert len(body) == 1 << 20
        assert (answer.status, len(answer.json["query"])) == (200, (1 << 20) - 26)


async def test_a_verb_that_is_refused_says_which_are_not(path: Path) -> None:
    async with serving(path, ECHOES), http_connected(path) as client:
        assert (await client.fetch("POST", "/healthz")).headers["allow"] == "GET, HEAD"
        assert (await client.fetch("PUT", "/v1/turns")).headers["allow"] == "POST"


# --- what goes wrong in a method ---


class Unavailable(MemForestError):
    """Not now."""

    code = "unavailable"


async def failing(path: Path, error: Exception, reports: Reports | None = None) -> Response:
    async def fail(params: Any) -> object:
        raise error

    handlers = {"healthz": reading(Nothing, fail)}
    async with serving(path, handlers, reports=reports), http_connected(path) as client:
        return await client.fetch("GET", "/healthz")


async def test_an_error_has_the_status_of_its_code(path: Path) -> None:
    conflict = await failing(path, StaleDecision())
    later = await failing(path, Unavailable())

    assert (conflict.status, conflict.json) == (
        409,
        {"error": {"code": "conflict", "message": StaleDecision.__doc__}},
    )
    assert (later.status, later.code) == (503, "unavailable")


async def test_an_error_that_is_not_ours_is_internal_and_says_nothing(path: Path) -> None:
    reports = Reports()
    answer = await failing(path, KeyError("secret"), reports)

    assert (answer.status, answer.json) == (500, {"error": {"code": "internal", "message": INTERNAL_SENTENCE}})
    assert (await reports.wait_for("socket.request_failed"))["error"] == "KeyError"
    assert "secret" not in repr(reports.lines)


async def test_a_result_that_is_no_json_or_too_large_is_an_error(path: Path) -> None:
    async def give(params: Any) -> object:
        return object() if params.user_id == "odd" else "x" * 2_000

    limits = SocketLimits(answer_bytes_max=1_000)
    async with serving(path, {"digest": reading(User, give)}, limits), http_connected(path) as client:
        assert (await client.fetch("GET", "/v1/users/odd/digest")).code == "internal"
        assert (await client.fetch("GET", "/v1/users/large/digest")).code == "invalid"


async def test_a_method_that_takes_too_long_is_stopped_and_told(path: Path) -> None:
    gate = Gate()
    async with serving(path, {"healthz": query(gate, deadline_s=0.02)}), http_connected(path) as client:
        answer = await client.fetch("GET", "/healthz")
        await gate.cancelled.get()

        assert (answer.status, answer.code) == (503, "unavailable")


# --- what one client may take ---


async def test_above_the_limit_of_all_the_answer_is_busy_and_says_when_to_come_again(path: Path) -> None:
    gate = Gate()
    handlers = {"healthz": query(gate)}
    async with (
        serving(path, handlers, SocketLimits(in_flight_max=1)),
        connected(path) as rpc,
        http_connected(path) as client,
    ):
        rpc.ask("healthz")
        await gate.entered.get()
        refused = await client.fetch("GET", "/healthz")
        gate.open.set()

        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "busy", "1")
        assert (await client.fetch("GET", "/healthz")).status == 200


async def test_a_request_that_drips_is_closed_and_a_silent_client_is_not(path: Path) -> None:
    loop = asyncio.get_running_loop()
    limits = SocketLimits(read_timeout_s=0.05)
    async with serving(path, ECHOES, limits), http_connected(path) as silent:
        await silent.fetch("GET", "/healthz")
        with socket.socket(socket.AF_UNIX) as slow:
            slow.setblocking(False)
            slow.connect(str(path))
            slow.send(b"GET /healthz HTTP/1.1\r\nHost: ")
            received = asyncio.ensure_future(loop.sock_recv(slow, 4096))
            while not received.done():
                with suppress(BrokenPipeError):  # Closed, and not yet read that it is.
                    slow.send(b"m")
                await asyncio.wait([received], timeout=0.01)

        assert received.result().startswith(b"HTTP/1.1 408 ")
        assert json.loads(received.result().partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid"
        assert (await silent.fetch("GET", "/healthz")).status == 200


async def test_a_client_that_does_not_read_is_let_go(path: Path) -> None:
    async def much(params: Any) -> object:
        return "x" * 3_000_000

    reports = Reports()
    handlers = {"healthz": reading(Nothing, much)}
    async with serving(path, handlers, SocketLimits(write_timeout_s=0.05), reports):
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(path))
            deaf.send(GET * 5)
            await reports.wait_for("socket.client_not_reading")

        assert [event for event, _ in reports.lines] == ["socket.client_not_reading"]


async def test_the_query_of_a_client_that_left_is_cancelled_and_its_write_is_done(path: Path) -> None:
    reads, writes = Gate(), Gate()
    handlers = {"healthz": query(reads), "ingest": Method(Ingest, writes, write=True, deadline_s=5.0)}
    async with serving(path, handlers):
        async with http_connected(path) as asking, http_connected(path) as telling:
            asking.request("GET", "/healthz")
            telling.request("POST", "/v1/turns", {"messages": []})
            await reads.entered.get()
            await writes.entered.get()
        await reads.cancelled.get()
        writes.open.set()
        await writes.passed.get()

        assert writes.cancelled.empty()


async def test_stopping_answers_what_is_in_flight_and_closes_the_idle(path: Path) -> None:
    gate = Gate()
    async with (
        serving(path, {"healthz": query(gate), "ingest": write(gate)}) as server,
        http_connected(path) as client,
        http_connected(path) as idle,
    ):
        client.send(GET + GET)
        await gate.entered.get()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop, 10.0)

            assert await closed(idle)
            gate.open.set()
            answer = await client.response()
            assert (answer.json, answer.headers["connection"]) == ("through", "close")
            assert await closed(client)
        assert gate.calls == 1
