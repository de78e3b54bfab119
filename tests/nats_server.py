"""A nats-server outside of the daemon, which a test may kill and start again on the same port and store."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc

from daemon.bus.embedded_bus import LOOPBACK, find_server, free_port, tied_to_this_process
from tests.waiting import wait_until

READY_WITHIN_S = 10


class OutsideServer:
    """One store and one port; the process in front of them comes and goes."""

    def __init__(self, folder: Path, configuration: str = "") -> None:
        """`configuration` is what the server reads besides, in its own language."""
        self.folder = folder
        self.configuration = configuration
        self.port = free_port()
        self._process: anyio.abc.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        configured = self.folder / "nats.conf"
        configured.write_text(self.configuration)
        place = ["-sd", str(self.folder), "-a", LOOPBACK, "-p", str(self.port)]
        command = [str(find_server()), "-c", str(configured), "-js", *place]
        # Tied to the test run, so that a killed run leaves no server behind.
        self._process = await anyio.open_process(
            tied_to_this_process([*command, "-l", str(self.folder / "nats.log")]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with anyio.fail_after(READY_WITHIN_S):
            await self._greeting()

    async def stop(self) -> None:
        """A clean end (SIGTERM)."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.terminate()
            await self._process.wait()

    async def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    async def restart(self) -> None:
        """kill -9, then a new process on the same port and store."""
        await self.kill()
        await self.start()

    async def pause(self) -> None:
        """The server falls silent, its connections stay open (SIGSTOP)."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        # The signal is only asked for; each thread stops in its own time.
        await wait_until(
            lambda: all(
                (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads.iterdir()
            )
        )

    def resume(self) -> None:
        """It goes on where it was paused."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def _greeting(self) -> None:
        while True:
            try:
                async with await anyio.connect_tcp(LOOPBACK, self.port) as stream:
                    await stream.receive()
                    return
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                await anyio.sleep(0.02)


@asynccontextmanager
async def running_server(folder: Path, configuration: str = "") -> AsyncGenerator[OutsideServer, None]:
    """A started server with JetStream in `folder`; ended on the way out, whatever state it is in."""
    server = OutsideServer(folder, configuration)
    await server.start()
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            server.resume()
            await server.stop()
