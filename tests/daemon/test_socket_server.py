"""The socket with real clients: what each may take, and what no client can do to another."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from daemon.logs import quiet
from daemon.serving.calls import SocketLimits
from daemon.serving.protocol import INTERNAL_SENTENCE, Method
from daemon.serving.socket_server import PATH_BYTES_MAX, SocketServer, SocketUnusable
from events.errors import MemForestError, StaleDecision
from tests.daemon.sockets_in_use import (
    PINGS,
    Gate,
    Nothing,
    Reports,
    connected,
    http_connected,
    query,
    serving,
    write,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def error_code(answer: Any) -> tuple[int, str]:
    return answer["error"]["code"], answer["error"]["data"]["code"]


# --- the path ---


async def test_the_socket_is_for_its_owner_alone(path: Path) -> None:
    before = os.umask(0o022)
    os.umask(before)
    async with serving(path, PINGS):
        assert mode_of(path) == 0o600
    after = os.umask(before)

    assert after == before


def test_a_configured_mode_is_the_mode(path: Path) -> None:
    server = SocketServer(path, 0o660, handlers=PINGS, report=quiet)
    server.bind()
    mode = mode_of(path)
    server.close()

    assert mode == 0o660


def test_a_path_of_the_largest_length_is_bound_and_one_byte_more_is_refused(path: Path) -> None:
    longest = path.parent / ("x" * (PATH_BYTES_MAX - len(os.fsencode(path.parent)) - 1))
    server = SocketServer(longest, handlers=PINGS, report=quiet)
    server.bind()
    bound = longest.exists()
    server.close()

    assert bound
    with pytest.raises(SocketUnusable, match="107"):
        SocketServer(longest.with_name(longest.name + "x"), handlers=PINGS, report=quiet).bind()
    assert list(path.parent.iterdir()) == []


def test_a_length_is_counted_in_bytes(path: Path) -> None:
    with pytest.raises(SocketUnusable, match="107"):
        SocketServer(path.with_name("é" * 50), handlers=PINGS, report=quiet).bind()


def test_a_file_in_the_way_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("mine")

    with pytest.raises(SocketUnusable, match="not a socket"):
        SocketServer(path, handlers=PINGS, report=quiet).bind()
    assert path.read_text() == "mine"


def test_a_missing_folder_is_told(path: Path) -> None:
    with pytest.raises(SocketUnusable, match="No such file"):
        SocketServer(path.parent / "absent" / "s", handlers=PINGS, report=quiet).bind()


async def test_a_stale_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()

    async with serving(path, PINGS), connected(path) as client:
        assert (await client.call("ping"))["result"] == "pong"


async def test_a_live_socket_is_refused_and_goes_on(path: Path) -> None:
    async with serving(path, PINGS):
        second = SocketServer(path, handlers=PINGS, report=quiet)
        with pytest.raises(SocketUnusable, match=r"Another process serves .*MEMFOREST_SOCKET_PATH"):
            second.bind()
        second.close()

        async with connected(path) as client:
            assert (await client.call("ping"))["result"] == "pong"


def test_a_live_socket_with_a_full_backlog_is_refused(path: Path) -> None:
    waiting: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        while True:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            if waiting[-1].connect_ex(str(path)) != 0:
                break
        with pytest.raises(SocketUnusable, match=r"Another process serves .*MEMFOREST_SOCKET_PATH"):
            SocketServer(path, handlers=PINGS, report=quiet).bind()
        for client in waiting:
            client.close()

    assert path.exists()


def test_closing_removes_the_path_once(path: Path) -> None:
    server = SocketServer(path, handlers=PINGS, report=quiet)
    server.bind()
    server.close()
    server.close()

    assert not path.exists()


def test_closing_leaves_the_socket_of_another(path: Path) -> None:
    server = SocketServer(path, handlers=PINGS, report=quiet)
    server.bind()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        server.close()

        assert path.exists()


async def test_a_removed_path_is_bound_again_while_clients_stay(path: Path) -> None:
    async with serving(path, PINGS) as server, connected(path) as old:
        await old.call("ping")
        os.unlink(path)
        server.bind()
        server.bind()
        async with connected(path) as new:
            assert (await new.call("ping"))["result"] == "pong"
        assert (await old.call("ping"))["result"] == "pong"


async def test_serving_without_binding_is_an_error(path: Path) -> None:
    with pytest.raises(SocketUnusable, match="bind"):
        await SocketServer(path, handlers=PINGS, report=quiet).serve()


# --- requests and answers ---


async def test_answers_carry_the_id_and_may_come_out_of_order(path: Path) -> None:
    gate = Gate()
    async with serving(path, {"hold": query(gate), **PINGS}), connected(path) as client:
        client.ask("hold", "slow")
        client.ask("ping", "fast")
        first = await client.answer()
        gate.open.set()
        second = await client.answer()

        assert first == {"jsonrpc": "2.0", "id": "fast", "result": "pong"}
        assert second == {"jsonrpc": "2.0", "id": "slow", "result": "through"}


async def test_pipelined_requests_are_all_answered(path: Path) -> None:
    async with serving(path, PINGS), connected(path) as client:
        for number in range(500):
            client.ask("ping", number)
        ids = {(await client.answer())["id"] for _ in range(500)}

        assert ids == set(range(500))


async def test_a_request_may_arrive_in_any_pieces(path: Path) -> None:
    async with serving(path, PINGS), connected(path) as client:
        for byte in b' \n{"jsonrpc":"2.0","id":1,"method":"ping"}\n':
            client.send(bytes([byte]))
            await client.writer.drain()

        assert (await client.answer())["result"] == "pong"


async def test_a_notification_gets_no_answer(path: Path) -> None:
    gate = Gate()
    gate.open.set()
    async with serving(path, {"hold": query(gate), **PINGS}), connected(path) as client:
        client.tell("hold")
        client.tell("unknown")
        await gate.passed.get()

        assert (await client.call("ping"))["result"] == "pong"


async def test_an_unknown_method_is_told(path: Path) -> None:
    async with serving(path, PINGS), connected(path) as client:
        assert error_code(await client.call("pong")) == (-32601, "not_found")


async def test_a_wrong_parameter_is_told_by_name(path: Path) -> None:
    async with serving(path, PINGS), connected(path) as client:
        answer = await client.call("sized", bytes="secret")

        assert error_code(answer) == (-32602, "invalid")
        assert "`$.bytes`" in answer["error"]["message"]
        assert "secret" not in answer["error"]["message"]


async def test_a_batch_is_answered_in_one_line(path: Path) -> None:
    async with serving(path, PINGS), connected(path) as client:
        client.send(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"ping"},7]\n')
        answers = await client.answer()

        assert sorted(str(answer["id"]) for answer in answers) == ["1", "None"]


async def test_a_batch_may_hold_more_than_a_connection_may_have_in_flight(path: Path) -> None:
    limits = SocketLimits(in_flight_per_connection_max=2)
    requests = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(50)]
    async with serving(path, PINGS, limits), connected(path) as client:
        client.send(json.dumps(requests).encode() + b"\n")

        assert len(await client.answer()) == 50


HOSTILE = {
    "not a number": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"k":NaN}}',
    "infinity": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"k":1e999}}',
    "a number of 5000 digits": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"k":' + b"9" * 5000 + b"}}",
    "lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"q":"\\ud800"}}',
    "invalid utf-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"q":"\xff"}}',
    "overlong utf-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"q":"\xc0\xaf"}}',
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "zero byte": b'{"jsonrpc":"2.0","id":1,"method":"ping\x00"}',
    "a thousand levels": b"[" * 1_000 + b"]" * 1_000,
    "a hundred thousand levels": b"[" * 100_000 + b"]" * 100_000,
    "torn": b'{"jsonrpc":"2.0","id":1,"me',
    "a line that is too long": b"[" + b" " * (1 << 20) + b"]",
    "a huge batch": b"[" + b"0," * 5_000 + b"0]",
    "http": b"GET /healthz HTTP/1.1",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_line_is_answered_as_invalid_and_the_connection_stays(path: Path, line: bytes) -> None:
    async with serving(path, PINGS), connected(path) as client:
        await client.call("ping")
        client.send(line + b"\n")
        answer = await client.answer()

        assert answer["error"]["data"]["code"] == "invalid"
        assert answer["id"] is None
        assert (await client.call("ping"))["result"] == "pong"


@pytest.mark.parametrize("raw", [b"\x16\x03\x01\x00\xa5", b"\xef\xbb\xbf{}\n", b"\x00", b"  hello\n"])
async def test_a_client_that_speaks_something_else_gets_one_line_and_is_closed(path: Path, raw: bytes) -> None:
    async with serving(path, PINGS), connected(path) as client:
        client.send(raw)

        assert error_code(await client.answer()) == (-32700, "invalid")
        assert await client.at_end()


async def test_a_client_that_has_finished_asking_still_gets_its_answers(path: Path) -> None:
    gate = Gate()
    async with serving(path, {"hold": query(gate)}), connected(path) as client:
        client.ask("hold", 1)
        client.send(b'{"jsonrpc":"2.0","id":2,"method":"hold"}')  # And no newline.
        client.writer.write_eof()
        await gate.entered.get()
        await gate.entered.get()
        gate.open.set()

        assert {(await client.answer())["id"], (await client.answer())["id"]} == {1, 2}
        assert await client.at_end()


async def test_a_line_that_is_too_long_is_told_to_a_client_that_has_finished_asking(path: Path) -> None:
    async with serving(path, PINGS, SocketLimits(line_bytes_max=100)), connected(path) as client:
        client.send(b"{" + b" " * 200)
        client.writer.write_eof()

        assert error_code(await client.answer()) == (-32600, "invalid")


# --- what goes wrong in a method ---


async def test_a_method_that_fails_is_internal_and_nobody_else_notices(path: Path) -> None:
    async def fail(params: Any) -> object:
        raise KeyError("secret")

    gate, reports = Gate(), Reports()
    handlers = {"fail": Method(Nothing, fail, write=False, deadline_s=5.0), "hold": query(gate), **PINGS}
    async with serving(path, handlers, reports=reports), connected(path) as client, connected(path) as other:
        other.ask("hold")
        await gate.entered.get()
        answer = await client.call("fail")
        gate.open.set()

        assert error_code(answer) == (-32603, "internal")
        assert answer["error"]["message"] == INTERNAL_SENTENCE
        assert (await client.call("ping"))["result"] == "pong"
        assert (await other.answer())["result"] == "through"
        told = await reports.wait_for("socket.request_failed")
        assert (told["method"], told["code"], told["error"]) == ("fail", "internal", "KeyError")
        assert str(told["place"]).startswith("test_socket_server.py:")
        assert "secret" not in repr(reports.lines)


async def test_a_method_whose_own_task_was_cancelled_ends_no_more_than_its_connection(path: Path) -> None:
    async def lose(params: Any) -> object:
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost
        return None

    handlers = {"lose": Method(Nothing, lose, write=False, deadline_s=5.0), **PINGS}
    async with serving(path, handlers), connected(path) as client, connected(path) as other:
        client.ask("lose")

        assert await client.at_end()
        assert (await other.call("ping"))["result"] == "pong"


async def test_an_error_of_ours_keeps_its_code_and_is_not_reported(path: Path) -> None:
    async def forgotten(params: Any) -> object:
        raise StaleDecision

    reports = Reports()
    handlers = {"get": Method(Nothing, forgotten, write=False, deadline_s=5.0)}
    async with serving(path, handlers, reports=reports), connected(path) as client:
        answer = await client.call("get")

        assert error_code(answer) == (-32002, "conflict")
        assert answer["error"]["message"] == StaleDecision.__doc__
        assert reports.lines == []


@pytest.mark.parametrize("result", [object(), "\ud800", {"a": {1j}}], ids=["object", "surrogate", "complex"])
async def test_a_result_that_is_no_json_is_internal(path: Path, result: object) -> None:
    async def give(params: Any) -> object:
        return result

    handlers = {"give": Method(Nothing, give, write=False, deadline_s=5.0), **PINGS}
    async with serving(path, handlers), connected(path) as client:
        assert error_code(await client.call("give")) == (-32603, "internal")
        assert (await client.call("ping"))["result"] == "pong"


async def test_an_answer_above_the_limit_is_refused(path: Path) -> None:
    async with serving(path, PINGS, SocketLimits(answer_bytes_max=1_000)), connected(path) as client:
        assert error_code(await client.call("sized", bytes=2_000)) == (-32602, "invalid")
        assert len((await client.call("sized", bytes=900))["result"]) == 900


async def test_a_large_answer_arrives_whole(path: Path) -> None:
    async with serving(path, PINGS), connected(path) as client:
        assert len((await client.call("sized", bytes=5_000_000))["result"]) == 5_000_000


async def test_a_method_that_takes_too_long_is_stopped_and_told(path: Path) -> None:
    gate, reports = Gate(), Reports()
    handlers = {"hold": query(gate, deadline_s=0.02), **PINGS}
    async with serving(path, handlers, reports=reports), connected(path) as client:
        answer = await client.call("hold")
        await gate.cancelled.get()

        assert error_code(answer) == (-32003, "unavailable")
        assert "0.02 s" in answer["error"]["message"]
        assert (await reports.wait_for("socket.request_failed"))["code"] == "unavailable"
        assert (await client.call("ping"))["result"] == "pong"


# --- what one client may take ---


async def test_a_connection_is_not_read_while_it_has_enough_in_flight(path: Path) -> None:
    gate = Gate()
    limits = SocketLimits(in_flight_per_connection_max=2)
    async with (
        serving(path, {"hold": query(gate)}, limits),
        connected(path) as client,
        connected(path) as other,
    ):
        for number in range(3):
            client.ask("hold", number)
        await gate.entered.get()
        await gate.entered.get()
        other.ask("hold")
        await gate.entered.get()
        entered_while_full = gate.calls
        gate.open.set()
        ids = {(await client.answer())["id"] for _ in range(3)}

        assert entered_while_full == 3  # Two of the one, one of the other.
        assert ids == {0, 1, 2}


async def test_above_the_limit_of_all_the_answer_is_busy_at_once(path: Path) -> None:
    gate = Gate()
    limits = SocketLimits(in_flight_max=2)
    async with (
        serving(path, {"hold": query(gate), **PINGS}, limits),
        connected(path) as client,
        connected(path) as other,
    ):
        client.ask("hold", 1)
        client.ask("hold", 2)
        await gate.entered.get()
        await gate.entered.get()
        refused = await other.call("ping")
        gate.open.set()
        await client.answer()
        await client.answer()

        assert error_code(refused) == (-32000, "busy")
        assert (await other.call("ping"))["result"] == "pong"


async def test_a_thousand_idle_and_a_hundred_dripping_clients_starve_nobody(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4_096)), hard))
    others: list[socket.socket] = []
    try:
        async with serving(path, PINGS, SocketLimits(in_flight_max=8)):
            for number in range(1_100):
                others.append(socket.socket(socket.AF_UNIX))
                others[-1].connect(str(path))
                if number >= 1_000:
                    others[-1].send(b'{"jsonrpc":' if number % 2 else b"GET /healthz HTTP/1.1\r\nHost: ")
                if number % 10 == 0:
                    await asyncio.sleep(0)
            async with connected(path) as client, http_connected(path) as http:
                answers = [await client.call("ping") for _ in range(50)]
                statuses = [(await http.fetch("GET", "/nothing")).status for _ in range(50)]
            for connection in others:
                connection.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert {answer["result"] for answer in answers} == {"pong"}
    assert set(statuses) == {404}


async def test_a_line_that_drips_is_closed_and_a_silent_client_is_not(path: Path) -> None:
    loop = asyncio.get_running_loop()
    limits = SocketLimits(read_timeout_s=0.05)
    async with serving(path, PINGS, limits), connected(path) as silent:
        await silent.call("ping")
        with socket.socket(socket.AF_UNIX) as slow:
            slow.setblocking(False)
            slow.connect(str(path))
            slow.send(b'{"jsonrpc":')
            received = asyncio.ensure_future(loop.sock_recv(slow, 4096))
            while not received.done():
                with suppress(BrokenPipeError):  # Closed, and not yet read that it is.
                    slow.send(b" ")
                await asyncio.wait([received], timeout=0.01)
            answer = json.loads(received.result())
            with suppress(ConnectionResetError):  # What dripped in last was not read any more.
                assert await loop.sock_recv(slow, 1) == b""

        assert error_code(answer) == (-32600, "invalid")
        assert (await silent.call("ping"))["result"] == "pong"


async def test_the_time_of_a_line_starts_anew_with_each_line(path: Path) -> None:
    limits = SocketLimits(read_timeout_s=1)
    async with serving(path, PINGS, limits), connected(path) as client:
        started = anyio.current_time()
        line = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        client.send(line[:9])
        while anyio.current_time() < started + 2.2:
            client.send(line[9:] + line[:9])

            assert (await client.answer())["result"] == "pong"


async def test_a_client_that_does_not_read_is_let_go(path: Path) -> None:
    reports = Reports()
    limits = SocketLimits(write_timeout_s=0.05)
    async with serving(path, PINGS, limits, reports), connected(path) as other:
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(path))
            for _ in range(5):
                deaf.send(b'{"jsonrpc":"2.0","id":1,"method":"sized","params":{"bytes":3000000}}\n')
            await reports.wait_for("socket.client_not_reading")

            assert (await other.call("ping"))["result"] == "pong"
            assert [event for event, _ in reports.lines] == ["socket.client_not_reading"]


async def test_the_queries_of_a_client_that_left_are_cancelled(path: Path) -> None:
    gate, reports = Gate(), Reports()
    async with serving(path, {"hold": query(gate), **PINGS}, reports=reports), connected(path) as other:
        async with connected(path) as client:
            client.ask("hold", 1)
            client.ask("hold", 2)
            await gate.entered.get()
            await gate.entered.get()
        await gate.cancelled.get()
        await gate.cancelled.get()

        assert (await other.call("ping"))["result"] == "pong"
        assert reports.lines == []


async def test_leaving_is_noticed_while_the_connection_is_not_read(path: Path) -> None:
    gate = Gate()
    async with serving(path, {"hold": query(gate)}, SocketLimits(in_flight_per_connection_max=1)):
        async with connected(path) as client:
            client.ask("hold", 1)
            client.ask("hold", 2)
            await gate.entered.get()
        await gate.cancelled.get()

        assert gate.calls == 1


async def test_leaving_after_having_finished_asking_is_noticed(path: Path) -> None:
    gate = Gate()
    async with serving(path, {"hold": query(gate)}):
        async with connected(path) as client:
            client.ask("hold")
            client.writer.write_eof()
            await gate.entered.get()
        await gate.cancelled.get()


async def test_the_writes_of_a_client_that_left_are_done(path: Path) -> None:
    gate, reading = Gate(), Gate()
    async with serving(path, {"forget": write(gate), "hold": query(reading)}):
        async with connected(path) as client:
            client.ask("forget")
            client.ask("hold")
            await gate.entered.get()
            await reading.entered.get()
        await reading.cancelled.get()
        gate.open.set()
        await gate.passed.get()

        assert gate.cancelled.empty()


async def test_what_was_said_just_before_leaving_is_done(path: Path) -> None:
    gate = Gate()
    gate.open.set()
    async with serving(path, {"ingest": write(gate)}):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b'{"jsonrpc":"2.0","method":"ingest"}\n' * 3)
        for _ in range(3):
            await gate.passed.get()


# --- the listener ---


async def test_without_descriptors_the_listener_waits_and_the_connected_go_on(path: Path) -> None:
    reports = Reports()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(path, PINGS, SocketLimits(accept_pause_s=0.01), reports), connected(path) as client:
        await client.call("ping")
        with socket.socket(socket.AF_UNIX) as late:
            lowest_free = os.dup(late.fileno())
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                late.connect(str(path))
                told = await reports.wait_for("socket.accept_failed")
                answer = await client.call("ping")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            late.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(late, b'{"jsonrpc":"2.0","id":9,"method":"ping"}\n')
            late_answer = json.loads(await loop.sock_recv(late, 4096))

        assert told == {"error": "EMFILE"}
        assert answer["result"] == "pong"
        assert late_answer["id"] == 9
        assert len(reports.lines) == 1


async def test_stopping_answers_what_is_in_flight_and_closes_the_idle(path: Path) -> None:
    gate = Gate()
    async with (
        serving(path, {"hold": query(gate)}) as server,
        connected(path) as client,
        connected(path) as idle,
    ):
        client.ask("hold")
        await gate.entered.get()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop, 10.0)

            assert await idle.at_end()
            with pytest.raises(OSError, match="No such file"):
                await asyncio.open_unix_connection(path)
            client.ask("hold", 2)
            gate.open.set()
            assert (await client.answer())["result"] == "through"
            assert await client.at_end()
        assert gate.calls == 1


async def test_a_batch_that_has_begun_is_answered_whole_after_the_stop(path: Path) -> None:
    gate = Gate()
    limits = SocketLimits(in_flight_per_connection_max=1)
    requests = [{"jsonrpc": "2.0", "id": number, "method": "hold"} for number in range(3)]
    async with serving(path, {"hold": query(gate)}, limits) as server, connected(path) as client:
        client.send(json.dumps(requests).encode() + b"\n")
        await gate.entered.get()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop, 10.0)
            gate.open.set()

            assert len(await client.answer()) == 3
            assert await client.at_end()


async def test_stopping_does_not_wait_longer_than_its_grace(path: Path) -> None:
    gate = Gate()
    async with serving(path, {"hold": query(gate), "forget": write(gate)}) as server, connected(path) as client:
        client.ask("hold")
        client.ask("forget")
        await gate.entered.get()
        await gate.entered.get()
        await server.stop(grace_s=0.01)

        assert gate.cancelled.qsize() == 2
        assert await client.at_end()


async def test_cancelling_the_server_removes_the_path(path: Path) -> None:
    server = SocketServer(path, handlers=PINGS, report=quiet)
    server.bind()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        async with connected(path) as client:
            await client.call("ping")
            tasks.cancel_scope.cancel()

    assert os.listdir(path.parent) == []


async def test_clients_that_come_and_go_leave_no_descriptor_behind(path: Path) -> None:
    async with serving(path, PINGS), connected(path) as last:
        await last.call("ping")
        before = len(os.listdir("/proc/self/fd"))
        for number in range(200):
            async with connected(path) as client:
                if number % 2:
                    await client.call("ping")
        # Served after all of the others were accepted; the last of them may still be closing.
        await last.call("ping")
        after = len(os.listdir("/proc/self/fd"))

        assert after <= before + 2


def test_an_error_of_the_socket_has_a_code() -> None:
    assert issubclass(SocketUnusable, MemForestError)
    assert SocketUnusable.code == "unavailable"
