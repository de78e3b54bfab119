"""Both clients against a daemon that speaks the contract over a real Unix socket."""

from __future__ import annotations

import inspect
import json
import socket
import threading
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

import memforest
from memforest import (
    AnswerOverdue,
    AsyncClient,
    Busy,
    Client,
    ConnectionLost,
    DaemonError,
    DaemonUnreachable,
    InvalidInput,
    NotFound,
    ProtocolError,
    Source,
    find_socket,
)
from memforest.structures import Tree
from memforest.types import Session, Watermark
from memforest.wire import decode_response, encode_request, read_as
from tests.memforest.fake_daemon import WATERMARK, FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


def a_turn(turn_id: str) -> JsonObject:
    return {
        "type": "turn",
        "id": turn_id,
        "user_id": "alice",
        "session_id": "s1",
        "role": "user",
        "content": "I moved.",
    }


def test_an_answer_comes_back_as_typed_records(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client:
        answer = client.query("alice", "Miami", k=3)

    memory = answer.memories[0]
    assert daemon.requests == [("query", {"user_id": "alice", "query": "Miami", "k": 3})]
    assert (memory.kind, memory.text, memory.score, memory.propagation) == ("fact", "about Miami", 0.75, None)
    assert memory.said_at == datetime(2024, 7, 1, 9, tzinfo=UTC)
    assert memory.sources == (Source("s1", "m-1"),)
    assert answer.watermark.is_current


def test_a_message_sent_again_is_reported_as_a_duplicate(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client:
        first = client.ingest([a_turn("m-1"), a_turn("m-2")])
        again = client.ingest([a_turn("m-2")])

    assert [receipt.keys for receipt in first] == [("alice/s1/m-1",), ("alice/s1/m-2",)]
    assert [receipt.duplicate for receipt in (*first, *again)] == [False, False, True]


@pytest.mark.parametrize(
    ("code", "kind"), [("not_found", NotFound), ("busy", Busy), ("a_later_code", DaemonError)]
)
def test_an_error_of_the_daemon_is_an_exception_with_its_code(
    daemon: FakeDaemon, code: str, kind: type[DaemonError]
) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal(code, "there is no such session", -32004)

    daemon.answers["sessions.get"] = refuse
    with Client(daemon.path) as client, pytest.raises(DaemonError, match="no such session") as caught:
        client.session("alice", "s9")

    assert type(caught.value) is kind
    assert caught.value.rpc_code == -32004


def test_after_an_error_the_same_connection_serves_on(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client:
        with pytest.raises(DaemonError):
            client.digest("alice")
        client.status()

    assert daemon.connections == 1


def test_without_a_daemon_the_error_says_what_to_do(tmp_path: Path) -> None:
    with Client(tmp_path / "none.sock") as client, pytest.raises(DaemonUnreachable) as caught:
        client.status()

    assert "memforestd run" in str(caught.value)
    assert str(tmp_path / "none.sock") in str(caught.value)


def test_a_socket_that_nobody_listens_on_is_unreachable(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(str(tmp_path / "d.sock"))

    with Client(tmp_path / "d.sock") as client, pytest.raises(DaemonUnreachable):
        client.status()


def test_a_read_is_asked_once_more_when_the_connection_breaks(daemon: FakeDaemon) -> None:
    daemon.lose_request = 1
    with Client(daemon.path) as client:
        client.query("alice", "q")

    assert daemon.methods() == ["query", "query"]


def test_a_read_is_asked_no_third_time(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "d.sock") as daemon:
        daemon.answers["query"] = hang_up
        with Client(daemon.path) as client, pytest.raises(ConnectionLost):
            client.query("alice", "q")

    assert daemon.methods() == ["query", "query"]


def hang_up(_: JsonObject) -> JsonObject:
    raise ConnectionError


def test_a_write_whose_answer_was_lost_is_not_sent_again(daemon: FakeDaemon) -> None:
    daemon.lose_answer = 1
    with Client(daemon.path) as client, pytest.raises(ConnectionLost):
        client.ingest([a_turn("m-1")])

    assert daemon.methods() == ["ingest"]


def test_a_write_after_the_daemon_was_restarted_goes_through(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client:
        client.ingest([a_turn("m-1")])
        daemon.restart()
        client.ingest([a_turn("m-2")])

    assert [turn["id"] for turn in daemon.turns] == ["m-1", "m-2"]


def test_a_silent_daemon_is_not_waited_for_beyond_the_timeout(daemon: FakeDaemon) -> None:
    daemon.hold = 2
    with Client(daemon.path, timeout_s=0.05) as client, pytest.raises(AnswerOverdue):
        client.status()


def test_a_client_is_shared_by_threads(daemon: FakeDaemon) -> None:
    texts: list[str] = []
    with Client(daemon.path) as client:

        def ask(number: int) -> None:
            texts.append(client.query("alice", f"q{number}").memories[0].text)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(texts) == [f"about q{n}" for n in range(8)]


async def test_pipelined_answers_find_their_callers_in_any_order(daemon: FakeDaemon) -> None:
    daemon.hold = 5
    texts: dict[int, str] = {}
    async with AsyncClient(daemon.path) as client:

        async def ask(number: int) -> None:
            texts[number] = (await client.query("alice", f"q{number}")).memories[0].text

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(ask, number)

    assert texts == {n: f"about q{n}" for n in range(5)}
    assert daemon.connections == 1


async def test_an_asynchronous_read_survives_a_broken_connection(daemon: FakeDaemon) -> None:
    daemon.lose_request = 1
    async with AsyncClient(daemon.path) as client:
        await client.status()

    assert daemon.methods() == ["status", "status"]


async def test_an_asynchronous_write_is_not_sent_again(daemon: FakeDaemon) -> None:
    daemon.lose_answer = 1
    with pytest.raises(ConnectionLost):
        async with AsyncClient(daemon.path) as client:
            await client.ingest([a_turn("m-1")])

    assert daemon.methods() == ["ingest"]


async def test_an_error_leaves_the_client_bare_and_not_in_a_group(daemon: FakeDaemon) -> None:
    with pytest.raises(DaemonError, match="no method"):
        async with AsyncClient(daemon.path) as client:
            await client.digest("alice")


async def test_a_cancelled_call_does_not_disturb_the_next(daemon: FakeDaemon) -> None:
    daemon.hold = 2
    arrived = threading.Event()

    def note(params: JsonObject) -> JsonObject:
        arrived.set()
        return {"memories": [], "context": params["query"], "watermark": WATERMARK}

    daemon.answers["query"] = note
    async with AsyncClient(daemon.path) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.query, "alice", "first")
            await anyio.to_thread.run_sync(arrived.wait, 5)
            tasks.cancel_scope.cancel()
        answer = await client.query("alice", "second")

    assert answer.context == "second"
    assert daemon.connections == 1


async def test_calls_that_many_gave_up_take_no_slots_from_the_next(daemon: FakeDaemon) -> None:
    daemon.hold = 1000
    everything = threading.Event()

    def note(params: JsonObject) -> JsonObject:
        if daemon.methods().count("query") == 32:
            everything.set()
        return {"memories": [], "context": "", "watermark": WATERMARK}

    daemon.answers["query"] = note
    async with AsyncClient(daemon.path) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(32):
                tasks.start_soon(client.query, "alice", "given up")
            await anyio.to_thread.run_sync(everything.wait, 5)
            tasks.cancel_scope.cancel()
        daemon.hold = 1
        users = await client.users()
        again = await client.users()

    assert users == again == ()
    assert daemon.connections == 2, "the daemon is still at work for the first one"


async def test_an_asynchronous_call_ends_at_its_timeout(daemon: FakeDaemon) -> None:
    daemon.hold = 2
    async with AsyncClient(daemon.path, timeout_s=0.05) as client:
        with pytest.raises(AnswerOverdue):
            await client.status()


async def test_without_a_daemon_the_asynchronous_client_says_so_too(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path / "none.sock") as client:
        with pytest.raises(DaemonUnreachable, match="memforestd run"):
            await client.status()


def test_both_clients_have_the_same_methods() -> None:
    def of(kind: type) -> dict[str, str]:
        return {
            name: str(inspect.signature(member))
            for name, member in vars(kind).items()
            if inspect.isfunction(member) and not name.startswith("_") and name != "close"
        }

    assert of(Client) == of(AsyncClient)
    assert of(Client)["sessions"] == "(self, user_id: 'str')"


@pytest.mark.parametrize(
    "line",
    [b"hello\n", b"[]\n", b'{"id":1}\n', b'{"id":1,"result":3}\n', b'{"id":"x","result":{}}\n', b"\xff\n"],
)
def test_a_line_that_is_no_answer_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_response(line)


@pytest.mark.parametrize("content", ["half \ud800 pair", float("nan"), "x" * (1 << 20), {1, 2}])
def test_what_cannot_be_sent_is_refused_here_and_not_shown(content: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode_request(1, "ingest", {"messages": [{"content": content}]})

    assert "half" not in str(caught.value)
    assert "xxx" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_more_messages_than_the_daemon_takes_are_refused_here(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client, pytest.raises(InvalidInput, match="256"):
        client.ingest([a_turn(str(n)) for n in range(257)])

    assert daemon.requests == []


def test_an_answer_of_a_wrong_shape_names_the_place() -> None:
    with pytest.raises(ProtocolError, match=r"watermark\.lag_s"):
        read_as(Watermark, {**WATERMARK, "lag_s": "soon"})
    with pytest.raises(ProtocolError, match=r"no session\.state"):
        read_as(Session, {"session_id": "s", "turns": 1})


def test_instants_are_read_as_iso_or_as_milliseconds() -> None:
    known = {"session_id": "s", "state": "open", "turns": 1}
    session = read_as(Session, {**known, "first_at": 1719824400000, "last_at": "2024-07-01T11:00:00+02:00"})

    assert session.first_at == session.last_at == datetime(2024, 7, 1, 9, tzinfo=UTC)


def test_dirty_may_be_a_count_or_a_flag() -> None:
    known = {"scope": "user", "kind": "user", "leaves": 1, "height": 0, "nodes": 1}

    assert [read_as(Tree, {**known, "dirty": dirty}).dirty for dirty in (True, 3)] == [True, 3]


def test_a_request_is_one_line_of_json_rpc() -> None:
    line = encode_request(5, "query", {"query": "a\nb é"})

    assert line.find(b"\n") == len(line) - 1
    assert json.loads(line) == {"jsonrpc": "2.0", "id": 5, "method": "query", "params": {"query": "a\nb é"}}


def test_the_socket_is_looked_for_in_the_documented_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = {name: tmp_path / name / "memforest.sock" for name in ("unit", "run", "memforest-data")}
    places["xdg"] = tmp_path / "xdg" / "memforest" / "memforest.sock"
    environ = {"RUNTIME_DIRECTORY": str(tmp_path / "unit"), "XDG_RUNTIME_DIR": str(tmp_path / "xdg")}
    found: list[Path] = []
    for name in ("none", "memforest-data", "xdg", "run", "unit"):
        if name != "none":
            places[name].parent.mkdir(parents=True)
            places[name].touch()
        found.append(find_socket(None, environ, system_socket=places["run"]))

    data = places["memforest-data"]
    assert found == [data, data, places["xdg"], places["run"], places["unit"]]


def test_a_named_socket_wins_even_when_it_is_not_there() -> None:
    environ = {"MEMFOREST_SOCKET_PATH": "/a/b.sock"}

    assert find_socket(None, environ) == Path("/a/b.sock")
    assert find_socket("/c/d.sock", environ) == Path("/c/d.sock")


def test_a_path_too_long_for_a_socket_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="107 bytes"):
        find_socket("/" + "x" * 107)


def test_the_package_has_the_version_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

    assert memforest.__version__ == project["version"]
    assert all(hasattr(memforest, name) for name in memforest.__all__)
