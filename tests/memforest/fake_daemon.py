"""A daemon of the socket's contract for the client's tests: real Unix socket, real lines, tiny store.

Turns are recognised by (user, session, id) like the real one does; what a test wants otherwise it
says in `answers`, `hold`, `lose_request` or `lose_answer`.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JsonObject: TypeAlias = dict[str, Any]
WATERMARK = {"user_seq": 7, "projected_user_seq": 7, "pending": 0, "lag_s": 0.0}


class Refusal(Exception):
    """Answered as a JSON-RPC error object."""

    def __init__(self, code: str, message: str, number: int = -32000) -> None:
        super().__init__(message)
        self.error = {"code": number, "message": message, "data": {"code": code}}


@dataclass
class FakeDaemon:
    """Use as a context manager; `requests` are (method, params) in the order they came."""

    path: Path
    # Instead of the tiny store's own answer to a method.
    answers: dict[str, Callable[[JsonObject], JsonObject]] = field(default_factory=dict)
    # Collect so many requests of a connection, then answer them last first.
    hold: int = 1
    # Hang up at the n-th request (from 1), before or after doing what it says.
    lose_request: int | None = None
    lose_answer: int | None = None
    requests: list[tuple[str, JsonObject]] = field(default_factory=list)
    turns: list[JsonObject] = field(default_factory=list)
    closed: list[tuple[str, str]] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> FakeDaemon:
        self._keys: set[tuple[str, str, str]] = set()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def restart(self) -> None:
        """Drop every connection and listen again on the same path; the store stays."""
        self._stop()
        self._start()

    def pause(self) -> threading.Lock:
        """While this is held (`with`), requests wait."""
        return self._lock

    def methods(self) -> list[str]:
        """The methods that were asked for, in order."""
        return [method for method, _ in self.requests]

    def _start(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._spawn(self._accept, self._listener)

    def _stop(self) -> None:
        # shutdown, not close: only it wakes a thread that waits in accept or recv.
        for one in (self._listener, *self._open):
            with suppress(OSError):  # the other side was faster
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        self._threads.clear()
        self._open.clear()
        self._listener.close()
        self.path.unlink()

    def _spawn(self, target: Callable[[socket.socket], None], argument: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(argument,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        held: list[bytes] = []
        with connection, connection.makefile("rb") as lines:
            try:
                for line in lines:
                    answer = self._answer(json.loads(line))
                    if answer is None:
                        return
                    held.append(json.dumps(answer).encode() + b"\n")
                    if len(held) >= self.hold:
                        connection.sendall(b"".join(reversed(held)))
                        held.clear()
            except OSError:
                return

    def _answer(self, request: JsonObject) -> JsonObject | None:
        with self._lock:
            method, params = request["method"], request["params"]
            self.requests.append((method, params))
            number = len(self.requests)
            if number == self.lose_request:
                return None
            reply: JsonObject = {"jsonrpc": "2.0", "id": request["id"]}
            try:
                reply["result"] = self._do(method, params)
            except Refusal as refusal:
                reply["error"] = refusal.error
            return None if number == self.lose_answer else reply

    def _do(self, method: str, params: JsonObject) -> JsonObject:
        if method in self.answers:
            return self.answers[method](params)
        own: dict[str, Callable[[JsonObject], JsonObject]] = {
            "ingest": self._ingest,
            "sessions.close": self._close,
            "query": _query,
            "users.list": lambda _: {"users": []},
            "dead_letters.list": lambda _: {"dead_letters": [], "next": None},
            "sessions.get": lambda p: {"session_id": p["session_id"], "state": "open", "turns": 1},
            "sessions.events": lambda _: {"events": [], "next": 0, "more": False},
            "status": lambda p: {"daemon": {"version": "x"}} | ({"watermark": WATERMARK} if p else {}),
        }
        if method not in own:
            raise Refusal("invalid", f"no method {method}", -32601)
        return own[method](params)

    def _ingest(self, params: JsonObject) -> JsonObject:
        published: list[JsonObject] = []
        for message in params["messages"]:
            turns = message.get("turns", [message])
            keys = [(message["user_id"], message["session_id"], turn["id"]) for turn in turns]
            known = all(key in self._keys for key in keys)
            for key, turn in zip(keys, turns, strict=True):
                if key not in self._keys:
                    self._keys.add(key)
                    self.turns.append(turn)
            seq = len(self._keys)
            names = ["/".join(key) for key in keys]
            published.append({"stream": "MEMFOREST", "seq": seq, "duplicate": known, "keys": names})
        return {"published": published}

    def _close(self, params: JsonObject) -> JsonObject:
        name = (params["user_id"], params["session_id"])
        known = name in self.closed
        if not known:
            self.closed.append(name)
        return {"stream": "MEMFOREST", "seq": 1, "duplicate": known, "key": "/".join((*name, "close"))}


def _query(params: JsonObject) -> JsonObject:
    memory = {
        "id": "c1",
        "kind": "fact",
        "text": f"about {params['query']}",
        "said_at": "2024-07-01T09:00:00Z",
        "time_start": None,
        "time_end": None,
        "score": 0.75,
        "similarity": 0.5,
        "propagation": None,
        "sessions": ["s1"],
        "sources": [{"session_id": "s1", "turn_id": "m-1"}],
        "a_field_of_a_later_version": 1,
    }
    return {"memories": [memory], "context": "[1 July 2024] about it", "watermark": WATERMARK}
