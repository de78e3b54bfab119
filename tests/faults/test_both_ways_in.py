"""The same hostile bytes over the bus, and over the socket in JSON-RPC and HTTP: the same verdict (rows 32, 33).

What the bus brings cannot be refused any more and is kept as a dead letter with its raw bytes; the socket's caller
is told, and nothing is published.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream

from daemon.decoders.native import LEVELS_MAX
from tests.daemon.sockets_in_use import HttpClient, http_connected
from tests.stored import stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_turn,
    publisher_to,
    running_daemon,
    short_folder,
    until_recorded,
)

ANSWERED_WITHIN_S = 10.0


def said(content: bytes = b"hello", more: bytes = b"") -> bytes:
    """A turn with these bytes inside its content's quotes, and `more` behind its last field."""
    return b'{"type":"turn","user_id":"alice","session_id":"s1","role":"user","content":"%b"%b}' % (content, more)


def nested(levels: int, opening: bytes = b'{"a":', closing: bytes = b"}") -> bytes:
    """A turn with so many levels of objects, its own included."""
    return said(more=b',"metadata":' + opening * (levels - 1) + b"1" + closing * (levels - 1))


HOSTILE = {
    "a byte of no UTF-8": said(b"\xff"),
    "UTF-8 that breaks off": said(b"\xe2\x82"),
    "an overlong slash": said(b"\xc0\xaf"),
    "an overlong NUL": said(b"\xc0\x80"),
    "half a surrogate pair as bytes": said(b"\xed\xa0\x80"),
    "beyond Unicode": said(b"\xf4\x90\x80\x80"),
    "half a surrogate pair": said(b"\\ud800"),
    "a surrogate pair turned round": said(b"\\ude00\\ud83d"),
    "a surrogate in a name of a field": said(more=b',"metadata":{"\\ud800":1}'),
    "a raw NUL": said(b"\x00"),
    "a raw control character": said(b"\x1f"),
    "a byte order mark": b"\xef\xbb\xbf" + said(),
    "not a number": said(more=b',"timestamp":NaN'),
    "infinity": said(more=b',"timestamp":-Infinity'),
    "not a number in metadata": said(more=b',"metadata":{"a":NaN}'),
    "a number beyond floats": said(more=b',"metadata":{"a":1e400}'),
    "a time of 5000 digits": said(more=b',"timestamp":' + b"9" * 5000),
    "a number of 5000 digits in metadata": said(more=b',"metadata":{"a":' + b"9" * 5000 + b"}"),
    "one level too many": nested(LEVELS_MAX + 1),
    "a thousand levels": nested(1_000),
    "a hundred thousand levels": nested(100_000),
    "a hundred thousand brackets": nested(100_000, b"[", b"]"),
    "a hundred thousand that never close": nested(100_000, closing=b""),
    "an unknown field": said(more=b',"colour":1'),
    "a time of no day": said(more=b',"timestamp":"2024-02-30"'),
    "a turn in a list": b"[" + said() + b"]",
    "two turns": said() + said(),
    "a comment": said(more=b"/* */"),
    "a comma too many": said(more=b","),
    "single quotes": said().replace(b'"', b"'"),
}
# Odd, and no fault: to the byte as it was said. What the content is then, as JSON reads it.
ODD = {
    "an escaped NUL": (said(b"a\\u0000b"), "a\0b"),
    "a surrogate pair": (said(b"\\ud83d\\ude00"), "😀"),
    "no character": (said("\uffff\ufffe".encode()), "\uffff\ufffe"),
    "a mark inside": (said("\ufeffa".encode()), "\ufeffa"),
    "from right to left": (said("\u202eabc".encode()), "\u202eabc"),
    "of two equal names the last": (said(b"first", b',"content":"second"'), "second"),
    "as many levels as may be": (nested(LEVELS_MAX), "hello"),
    "a zero with a sign": (said(b"zero", b',"timestamp":-0'), "zero"),
    "nothing": (said(b""), ""),
    "twenty digits in metadata": (said(b"digits", b',"metadata":{"a":99999999999999999999}'), "digits"),
}


@pytest.fixture
async def daemon() -> AsyncIterator[DaemonProcess]:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as started:
            yield started


@pytest.fixture
async def publisher(daemon: DaemonProcess) -> AsyncIterator[Publisher]:
    async with publisher_to(daemon.bus_url) as started:
        yield started


async def ask(connection: SocketStream, payload: bytes) -> dict[str, Any]:
    """The socket's answer to `ingest` with these bytes as its only message."""
    await connection.send(b'{"jsonrpc":"2.0","id":1,"method":"ingest","params":{"messages":[' + payload + b"]}}\n")
    received = b""
    with anyio.fail_after(ANSWERED_WITHIN_S):
        while not received.endswith(b"\n"):
            received += await connection.receive()
    answer: dict[str, Any] = msgspec.json.decode(received)
    return answer


async def post(client: HttpClient, payload: bytes) -> dict[str, Any]:
    """The same over HTTP, in the form of the other answer."""
    with anyio.fail_after(ANSWERED_WITHIN_S):
        reply = await client.fetch("POST", "/v1/turns", b'{"messages":[' + payload + b"]}")
    if reply.status == 202:
        return {"result": reply.json}
    return {
        "error": {"data": {"code": reply.code}, "message": reply.json["error"]["message"], "status": reply.status}
    }


def letters_of(daemon: DaemonProcess) -> dict[int, bytes]:
    return {
        seq: bytes(payload)
        for seq, payload in stored_rows(daemon.store_path, "SELECT bus_seq, payload FROM dead_letters")
    }


def turns_of(daemon: DaemonProcess, session_id: str = "s1") -> list[tuple[int, str]]:
    """Bus sequence and content of each turn of a session, in order."""
    rows = stored_rows(
        daemon.store_path,
        """SELECT e.bus_seq, w.text FROM events e JOIN words w ON w.seq = e.seq AND w.n = 0
           JOIN names s ON s.reference = e.session WHERE e.type = 'turn.recorded' AND s.text = ?
           ORDER BY e.seq""",
        session_id.encode(),
    )
    return [(seq, bytes(text).decode()) for seq, text in rows]


async def test_hostile_bytes_are_refused_on_every_way_in_and_odd_ones_are_taken_on_all(
    daemon: DaemonProcess, publisher: Publisher
) -> None:
    hostile, odd, answers = dict[int, str](), list[tuple[int, str]](), dict[str, dict[str, Any]]()
    replies = dict[str, dict[str, Any]]()
    for name, payload in HOSTILE.items():
        hostile[await publisher.publish("memforest.turns.alice.s1", payload)] = name
    for payload, content in ODD.values():
        odd.append((await publisher.publish("memforest.turns.alice.s1", payload), content))
    async with await anyio.connect_unix(daemon.socket_path) as connection:
        for name, payload in HOSTILE.items():
            answers[name] = await ask(connection, payload)
        for name, (payload, content) in ODD.items():
            answers[name] = await ask(connection, payload)
            assert "result" in answers[name], (name, answers[name])
            odd.append((answers[name]["result"]["published"][0]["seq"], content))
    # One connection for all of them: it stays, whatever was wrong.
    async with http_connected(daemon.socket_path) as client:
        for name, payload in HOSTILE.items():
            replies[name] = await post(client, payload)
        for name, (payload, content) in ODD.items():
            replies[name] = await post(client, payload)
            assert "result" in replies[name], (name, replies[name])
            odd.append((replies[name]["result"]["published"][0]["seq"], content))
    await publisher.send(a_turn("alice", "end", "The end."))
    async with daemon.client() as client:
        await until_recorded(client, "alice", len(odd) + 1)
    letters = letters_of(daemon)

    assert {hostile[seq]: payload for seq, payload in letters.items()} == HOSTILE
    for name in HOSTILE:
        assert answers[name].get("error", {}).get("data", {}).get("code") == "invalid", (name, answers[name])
        assert replies[name].get("error", {}).get("data", {}).get("code") == "invalid", (name, replies[name])
        assert replies[name]["error"]["status"] == 400, (name, replies[name])
    assert turns_of(daemon) == odd, "each as it was said, in the order of the bus"
    assert daemon.exit_code is None
    told = json.dumps([(answers[name], replies[name]) for name in HOSTILE])
    assert told.count("hello") == 0, "no answer quotes what was said"
    assert daemon.log_text().count("Traceback") == 0


async def test_nothing_and_too_much_are_refused_on_both_wires_and_the_next_one_is_taken(
    daemon: DaemonProcess,
) -> None:
    """Row 32; what the bus takes is the server's to say, see `test_big_messages.py`."""
    fitting = said(b"x" * ((1 << 20) - 300))
    too_much = said(b"x" * (1 << 20))
    async with await anyio.connect_unix(daemon.socket_path) as connection:
        refused = [await ask(connection, payload) for payload in (b"", too_much)]
        taken = await ask(connection, fitting)
    async with http_connected(daemon.socket_path) as client:
        empty = await client.fetch("POST", "/v1/turns", b"")
        large = await client.fetch("POST", "/v1/turns", b'{"messages":[' + fitting + b"]}")
        above = await client.fetch("POST", "/v1/turns", b'{"messages":[' + too_much + b"]}")
        ended = await client.at_end()

    assert [answer["error"]["data"]["code"] for answer in refused] == ["invalid", "invalid"]
    assert taken["result"]["published"][0]["seq"] < large.json["published"][0]["seq"]
    assert (empty.status, large.status, above.status, ended) == (400, 202, 413, True)
    assert daemon.exit_code is None
