"""A real nats-server that runs deploy/nats/memforest.conf as it stands, but for the port and the folder."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import anyio
import nats
import nats.errors
from nats.aio.client import Client

from daemon.bus.embedded_bus import LOOPBACK, find_server, tied_to_this_process
from tests.nats_server import READY_WITHIN_S, OutsideServer

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CONFIGURATION = DEPLOY / "nats" / "memforest.conf"
# Where the file keeps the store; it has no command line flag that may stand beside it.
STORE = '"/var/lib/nats"'

User: TypeAlias = Literal["publisher", "controller", "daemon", "operator"]
USERS: tuple[User, ...] = get_args(User)
ANSWER_WITHIN_S = 5.0


class ServerWithRights(OutsideServer):
    """The server of the configuration; each of its users has a password of this run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.passwords = {user: f"p{secrets.token_hex(24)}" for user in USERS}

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = configuration_for(self.folder)
        command = [str(find_server()), "-c", str(file), "-a", LOOPBACK, "-p", str(self.port)]
        self._process = await anyio.open_process(
            tied_to_this_process([*command, "-l", str(self.folder / "nats.log")]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=server_environment(self.passwords),
        )
        with anyio.fail_after(READY_WITHIN_S):
            await self._greeting()

    def url_of(self, user: User) -> str:
        """Where a user connects."""
        return f"nats://{user}:{self.passwords[user]}@{LOOPBACK}:{self.port}"

    def violations(self, user: User) -> list[str]:
        """What the server's log says that a user tried without a right to it."""
        log = (self.folder / "nats.log").read_text()
        return [line for line in log.splitlines() if "Violation" in line and f"user:{user}" in line]


def configuration_for(folder: Path) -> Path:
    """A copy of the configuration whose store is in `folder`."""
    text = CONFIGURATION.read_text()
    assert text.count(STORE) == 1
    file = folder / "memforest.conf"
    file.write_text(text.replace(STORE, json.dumps(str(folder))))
    return file


def server_environment(passwords: Mapping[User, str]) -> dict[str, str]:
    """An environment with these passwords and no other."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NATS_")}
    return {**kept, **{f"NATS_{user.upper()}_PASSWORD": password for user, password in passwords.items()}}


class Connection:
    """One user's connection, and what the server refused it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.refused: list[str] = []

    async def ask(self, subject: str, body: object = None) -> Any:
        """The decoded answer to a request; fails when there is none."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer = await self.client.request(subject, payload, timeout=ANSWER_WITHIN_S)
        return json.loads(answer.data)

    async def turn(self, content: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The stream's answer to a turn of alice's."""
        body = {"type": "turn", "user_id": "alice", "session_id": "s1", "role": "user", "content": content}
        subject = "memforest.turns.alice.s1"
        answer = await self.client.request(
            subject, json.dumps(body).encode(), timeout=ANSWER_WITHIN_S, headers=headers
        )
        acknowledged: dict[str, Any] = json.loads(answer.data)
        return acknowledged

    async def refusal_of(self, subject: str, body: object = None) -> bool:
        """Whether the server refuses a publish on this subject because of its rights."""
        before = len(self.refused)
        await self.client.publish(subject, json.dumps(body or {}).encode(), reply=self.client.new_inbox())
        # The server answers in order, what it has to say of the publish before the pong. Twice, since nats-py may
        # send the first ping ahead of the publish.
        await self.client.flush()
        await self.client.flush()
        return any(f'publish to "{subject.lower()}"' in sentence for sentence in self.refused[before:])


@asynccontextmanager
async def connected(server: ServerWithRights, user: User) -> AsyncGenerator[Connection]:
    """A user's connection; hung up on the way out."""
    connection: Connection

    async def note(failure: Exception) -> None:
        connection.refused.append(str(failure))

    client = await nats.connect(
        server.url_of(user), allow_reconnect=False, connect_timeout=2, max_reconnect_attempts=0, error_cb=note
    )
    connection = Connection(client)
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await client.close()


@asynccontextmanager
async def server_with_rights(folder: Path) -> AsyncGenerator[ServerWithRights]:
    """A started server without a stream."""
    server = ServerWithRights(folder)
    await server.start()
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop()


@asynccontextmanager
async def server_with_stream(folder: Path) -> AsyncGenerator[ServerWithRights]:
    """A started server on which the operator made the stream and the bucket of the two JSON files."""
    async with server_with_rights(folder) as server:
        async with connected(server, "operator") as operator:
            for name in ("stream", "bucket"):
                made = await make_stream(operator, name)
                assert "error" not in made, made
        yield server


async def make_stream(operator: Connection, name: str) -> dict[str, Any]:
    """What the server answers to `deploy/nats/<name>.json`, as `nats stream add --config` sends it."""
    configuration = json.loads((DEPLOY / "nats" / f"{name}.json").read_text())
    answer: dict[str, Any] = await operator.ask(f"$JS.API.STREAM.CREATE.{configuration['name']}", configuration)
    return answer


async def stream_info(connection: Connection, stream: str = "MEMFOREST") -> dict[str, Any]:
    """Configuration and state of a stream, as one who may ask gets them."""
    answer: dict[str, Any] = await connection.ask(f"$JS.API.STREAM.INFO.{stream}")
    assert "error" not in answer, answer
    return answer
