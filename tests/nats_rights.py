"""A nats-server outside of the daemon with two users: `owner` may do all, `reader` not everything."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from daemon.bus.embedded_bus import LOOPBACK, find_server, tied_to_this_process
from tests.nats_server import READY_WITHIN_S, OutsideServer


class ServerWithRights(OutsideServer):
    """The user `reader` may not publish on the denied subjects; each user's password is the user's name."""

    def __init__(self, folder: Path, denied: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._denied = denied

    @property
    def owner_url(self) -> str:
        return f"nats://owner:owner@{LOOPBACK}:{self.port}"

    @property
    def reader_url(self) -> str:
        return f"nats://reader:reader@{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        reader = {"user": "reader", "password": "reader", "permissions": {"publish": {"deny": self._denied}}}
        configuration = {
            "listen": f"{LOOPBACK}:{self.port}",
            "jetstream": {"store_dir": str(self.folder)},
            "authorization": {"users": [{"user": "owner", "password": "owner"}, reader]},
        }
        file = self.folder / "nats.conf"
        file.write_text(json.dumps(configuration))  # the server's format is a superset of JSON
        self._process = await anyio.open_process(
            tied_to_this_process([str(find_server()), "-c", str(file)]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with anyio.fail_after(READY_WITHIN_S):
            await self._greeting()


@asynccontextmanager
async def server_denying(folder: Path, *subjects: str) -> AsyncGenerator[ServerWithRights, None]:
    """A started server whose `reader` may not publish on these subjects; ended on the way out."""
    server = ServerWithRights(folder, subjects)
    await server.start()
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop()
