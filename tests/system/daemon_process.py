"""A daemon as a process of its own, which a test may kill, stop and start again on the same directory.

Beside it: the two commands run as people run them, a publisher that gives up on nothing, and asynchronous waiting.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import nats
import nats.errors
from nats.aio.client import Client as NatsClient

from daemon.bus.embedded_bus import tied_to_this_process
from memforest import AsyncClient
from memforest.errors import MemForestError
from tests.waiting import POLL_S

ROOT = Path(__file__).resolve().parents[2]
# Importing scikit-learn alone takes seconds on a slow machine.
READY_WITHIN_S = 60.0
END_WITHIN_S = 30.0
BUILT_WITHIN_S = 90.0
# A server that answers does it at once; one that was killed never does.
ACK_WITHIN_S = 2.0
PUBLISHED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    output: str
    errors: str


class DaemonProcess:
    """One data directory and the process in front of it. Without a `url` the daemon brings its own bus."""

    def __init__(self, folder: Path, url: str | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.url = url
        self.environ = dict(environ or {})
        # Quiet sessions are built at once, so that no test waits for the default's 30 s.
        self.environ.setdefault("MEMFOREST_MEMTREE_IDLE_S", "1")
        self.log_path = folder.with_name(f"{folder.name}.log")
        self._process: anyio.abc.Process | None = None

    @property
    def socket_path(self) -> Path:
        return self.folder / "memforest.sock"

    @property
    def store_path(self) -> Path:
        return self.folder / "events.db"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when one ended it."""
        return None if self._process is None else self._process.returncode

    async def start(self, bus: str | None = "up") -> None:
        """Start and return when the socket answers and the bus is as wished; None asks for no bus."""
        await self.launch()
        await self.until_ready(bus)

    async def launch(self) -> None:
        """Start the process and wait for nothing. Its log goes on where the last run's ended."""
        with self.log_path.open("ab") as log:
            # Tied to the test run, so that a killed run leaves no daemon behind.
            self._process = await anyio.open_process(
                tied_to_this_process(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=command_environment({**self._bus_environment(), **self.environ}),
                cwd=ROOT,
            )

    def command(self) -> list[str]:
        """What is run; for benchmarks that run it otherwise."""
        bus = ["--embedded-bus"] if self.url is None else []
        return [sys.executable, "-m", "daemon", "run", "--data", str(self.folder), *bus]

    async def until_ready(self, bus: str | None = "up") -> None:
        """Return when the socket answers and the bus is in this state; fails with the log when it ends first."""

        async def is_ready() -> bool:
            assert self.exit_code is None, f"the daemon ended with {self.exit_code}:\n{self.log_text()}"
            try:
                async with self.client() as client:
                    state = (await client.request("status", {}))["bus"]["state"]
            except MemForestError:
                return False
            return bus is None or state == bus

        await until(is_ready, READY_WITHIN_S, "the daemon did not get ready")

    async def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        await self.ended()

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        assert self._process is not None
        self._process.terminate()

    async def ended(self) -> int:
        """The exit code, once it has ended."""
        assert self._process is not None
        with anyio.fail_after(END_WITHIN_S):
            return await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.terminate()
        return await self.ended()

    def client(self) -> AsyncClient:
        """A client of this daemon's socket."""
        return AsyncClient(self.socket_path)

    def bus_url(self) -> str:
        """Where its bus is now: an embedded one may move when it is started again."""
        return self.url if self.url is not None else (self.folder / "nats" / "url").read_text().strip()

    def log_text(self) -> str:
        """Everything it wrote to standard error, of all runs."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of this name, of all runs."""
        lines = (line for line in self.log_text().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def _bus_environment(self) -> dict[str, str]:
        return {} if self.url is None else {"MEMFOREST_BUS_URL": self.url}


@contextmanager
def short_folder() -> Generator[Path]:
    """An empty directory with a path so short that sockets fit in; pytest's own are too long."""
    folder = Path(tempfile.mkdtemp(prefix="mf-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def running_daemon(
    folder: Path,
    url: str | None = None,
    *,
    bus: str | None = "up",
    environ: Mapping[str, str] | None = None,
) -> AsyncGenerator[DaemonProcess]:
    """A started daemon on `folder`; stopped on the way out, whatever state it is in."""
    daemon = DaemonProcess(folder, url, environ)
    try:
        await daemon.start(bus)
        yield daemon
    finally:
        with anyio.CancelScope(shield=True):
            if daemon.exit_code is None:
                await daemon.stop()


async def run_command(module: str, *arguments: str, environ: Mapping[str, str] | None = None) -> Ended:
    """Run `python -m MODULE ARGUMENTS` to its end, as the installed command does."""
    done = await anyio.run_process(
        [sys.executable, "-m", module, *arguments],
        check=False,
        env=command_environment(environ or {}),
        cwd=ROOT,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


async def memforest(daemon: DaemonProcess, *arguments: str) -> Ended:
    """Run the command `memforest` against a daemon."""
    environ = {"MEMFOREST_SOCKET_PATH": str(daemon.socket_path)}
    return await run_command("memforest.cli", *arguments, environ=environ)


async def verify(folder: Path) -> list[dict[str, Any]]:
    """What `memforestd verify` says of each user of a store; fails unless it ends with 0."""
    ended = await run_command("daemon", "verify", "--data", str(folder), "--json")
    assert ended.code == 0, ended
    users: list[dict[str, Any]] = json.loads(ended.output)["users"]
    return users


def assert_equal(verdicts: Sequence[Mapping[str, Any]], users: int) -> None:
    """Every user of the store was compared, and equal."""
    assert len(verdicts) == users
    assert [verdict for verdict in verdicts if verdict["difference"] or not verdict["compared"]] == []


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without what would configure or supervise a daemon, and `environ`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MEMFOREST_") and name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "INVOCATION_ID")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **environ}


async def until(
    predicate: Callable[[], Awaitable[bool]], timeout_s: float = 10, message: str = "", *, poll_s: float = POLL_S
) -> None:
    """`wait_until` for what has to be asked of another process."""
    deadline = anyio.current_time() + timeout_s
    while not await predicate():
        assert anyio.current_time() <= deadline, message or f"this did not become true within {timeout_s} s"
        await anyio.sleep(poll_s)


async def until_recorded(client: AsyncClient, user_id: str, turns: int) -> None:
    """Return when the log holds so many turns of a user."""

    async def has_turns() -> bool:
        found = {user.user_id: user.turns for user in await client.users()}
        return found.get(user_id, 0) >= turns

    await until(has_turns, BUILT_WITHIN_S, f"{turns} turns did not arrive")


async def until_built(client: AsyncClient, user_id: str) -> None:
    """Return when the log is as far as the bus, a user's memory is as far as the log, and nothing waits.

    Without the first a session that was closed just now would still be open. A bus that is away is not asked.
    """

    async def is_built() -> bool:
        status = await client.request("status", {"user_id": user_id})
        mark = status["watermark"]
        is_current = mark is not None and mark["projected_user_seq"] >= mark["user_seq"] and not mark["pending"]
        return is_current and not status["bus"]["lag_messages"]

    await until(is_built, BUILT_WITHIN_S, "the memory was not built")


class Publisher:
    """Publishes like a careful chat service: with an id, again and again until the stream has it."""

    def __init__(self, url: Callable[[], str]) -> None:
        """`url` is asked before each new connection, since a bus may move."""
        self._url = url
        self._client: NatsClient | None = None
        self.retries = 0

    async def publish(self, subject: str, payload: bytes, message_id: str | None = None) -> int:
        """The stream's sequence of the message. Without an id a retry would be kept twice."""
        headers = None if message_id is None else {"Nats-Msg-Id": message_id}
        deadline = anyio.current_time() + PUBLISHED_WITHIN_S
        while True:
            assert anyio.current_time() < deadline, f"not published within {PUBLISHED_WITHIN_S} s"
            try:
                client = await self._connected()
                answer = await client.request(subject, payload, timeout=ACK_WITHIN_S, headers=headers)
                reply = json.loads(answer.data)
                if "seq" in reply and "error" not in reply:
                    return int(reply["seq"])
            except (nats.errors.Error, OSError):
                pass
            self.retries += 1
            await self.close()
            await anyio.sleep(POLL_S)

    async def send(self, body: Mapping[str, object], message_id: str | None = None) -> int:
        """Publish a native message where it belongs; ids that need no encoding only."""
        kind = "turns" if str(body["type"]).startswith(("turn", "memory")) else "control"
        subject = f"memforest.{kind}.{body['user_id']}.{body['session_id']}"
        return await self.publish(subject, json.dumps(body, ensure_ascii=False).encode(), message_id)

    async def _connected(self) -> NatsClient:
        if self._client is None or not self._client.is_connected:
            await self.close()
            self._client = await connect(self._url())
        return self._client

    async def close(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def connect(url: str) -> NatsClient:
    """A plain connection that never reconnects by itself; raises when nobody answers."""

    async def ignore(_: Exception) -> None:
        """The caller sees the error itself."""

    # With 0 attempts the client would look for the server for ever.
    return await nats.connect(
        url,
        allow_reconnect=False,
        connect_timeout=1,
        max_reconnect_attempts=1,
        reconnect_time_wait=0,
        error_cb=ignore,
    )


@asynccontextmanager
async def publisher_to(url: Callable[[], str] | str) -> AsyncGenerator[Publisher]:
    """A publisher that hangs up on the way out."""
    publisher = Publisher(url if callable(url) else lambda: url)
    try:
        yield publisher
    finally:
        with anyio.CancelScope(shield=True):
            await publisher.close()


def a_turn(user_id: str, session_id: str, content: str, **more: object) -> dict[str, object]:
    """A native message of type turn."""
    return {
        "type": "turn", "user_id": user_id, "session_id": session_id, "role": "user", "content": content, **more
    }  # fmt: skip


def a_close(user_id: str, session_id: str) -> dict[str, object]:
    """A native message that closes a session."""
    return {"type": "session.close", "user_id": user_id, "session_id": session_id}
