"""The rights of a daemon with a credentials file (`bus.credentials`): a signed user, a server without users."""

from __future__ import annotations

import base64
import json
import re
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import nkeys  # type: ignore[import-untyped]

from daemon.bus.embedded_bus import LOOPBACK, find_server, tied_to_this_process
from daemon.bus.nats_bus import NatsBus
from daemon.bus.subjects import turn_subject
from tests.bus_in_use import fetch_all, running_bus
from tests.deploy.server_with_rights import CONFIGURATION
from tests.nats_server import READY_WITHIN_S, OutsideServer
from tests.waiting import wait_until

UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
NO_STORE = {**UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
ACCOUNT_LIMITS = {**NO_STORE, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


def a_key(prefix: int) -> Any:
    """A new signing key of an operator, an account or a user."""
    seed = nkeys.encode_seed(secrets.token_bytes(32), prefix)
    return nkeys.from_seed(bytearray(seed))


def name_of(key: Any) -> str:
    """The public half of a key."""
    return bytes(key.public_key).decode().rstrip("=")


def signed(issuer: Any, subject: str, kind: str, claims: dict[str, object]) -> str:
    """A JWT as NATS reads it (ADR-14): what `issuer` says of `subject`."""

    def encoded(part: object) -> bytes:
        raw = part if isinstance(part, bytes) else json.dumps(part).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    body = {
        "jti": secrets.token_hex(16), "iat": 1, "iss": name_of(issuer), "sub": subject, "name": kind,
        "nats": {**claims, "type": kind, "version": 2},
    }  # fmt: skip
    head = encoded({"typ": "JWT", "alg": "ed25519-nkey"}) + b"." + encoded(body)
    return (head + b"." + encoded(bytes(issuer.sign(head)))).decode()


def daemon_rights() -> list[str]:
    """The subjects on which the daemon may publish, as deploy/nats/memforest.conf has them."""
    found = re.search(r"user: daemon\b.*?publish: \{ allow: \[(.*?)\]", CONFIGURATION.read_text(), flags=re.DOTALL)
    assert found is not None
    return re.findall(r'"([^"]+)"', found[1])


class SignedUsers(OutsideServer):
    """A server that trusts one operator's signature; `users` holds a credentials file for each of two users."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        operator, self.account, system = (
            a_key(nkeys.PREFIX_BYTE_OPERATOR), a_key(nkeys.PREFIX_BYTE_ACCOUNT), a_key(nkeys.PREFIX_BYTE_ACCOUNT)
        )  # fmt: skip
        self.operator_jwt = signed(operator, name_of(operator), "operator", {})
        # The server takes a system account's place for granted, and gives it no JetStream.
        self.system = name_of(system)
        self.accounts = {
            name_of(self.account): signed(operator, name_of(self.account), "account", {"limits": ACCOUNT_LIMITS}),
            self.system: signed(operator, self.system, "account", {"limits": NO_STORE}),
        }

    def credentials(self, name: str, publish: list[str]) -> Path:
        """The file of a new user with these rights."""
        key = a_key(nkeys.PREFIX_BYTE_USER)
        claims = {**UNLIMITED, "pub": {"allow": publish}, "sub": {"allow": ["_INBOX.>"]}}
        jwt = signed(self.account, name_of(key), "user", claims)
        file = self.folder / f"{name}.creds"
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{bytes(key.seed).decode()}\n------END USER NKEY SEED------\n"
        )
        return file

    async def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "signed.conf"
        file.write_text(
            f"operator: {self.operator_jwt}\nsystem_account: {self.system}\nresolver: MEMORY\n"
            f"resolver_preload: {json.dumps(self.accounts)}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self.folder))} }}\n"
        )
        command = [str(find_server()), "-c", str(file), "-a", LOOPBACK, "-p", str(self.port)]
        self._process = await anyio.open_process(
            tied_to_this_process([*command, "-l", str(self.folder / "nats.log")]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with anyio.fail_after(READY_WITHIN_S):
            await self._greeting()


@asynccontextmanager
async def signed_users(folder: Path) -> AsyncIterator[SignedUsers]:
    server = SignedUsers(folder)
    await server.start()
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop()


async def test_the_daemon_reads_with_the_rights_of_a_credentials_file(tmp_path: Path) -> None:
    async with signed_users(tmp_path / "nats") as server:
        operator = NatsBus(server.url, credentials=server.credentials("operator", ["$JS.API.STREAM.>"]))
        daemon = NatsBus(server.url, credentials=server.credentials("daemon", daemon_rights()))
        async with running_bus(operator):
            await wait_until(lambda: operator.state == "no stream")
            await operator.create_stream()
        async with running_bus(daemon):
            await wait_until(lambda: daemon.state == "up")
            await daemon.publish(turn_subject("alice", "s1"), b"{}")
            messages = await fetch_all(daemon, None, 1)

    assert [message.stream_seq for message in messages] == [1]


async def test_a_credentials_file_of_another_operator_opens_nothing(tmp_path: Path) -> None:
    async with signed_users(tmp_path / "nats") as server:
        stranger = SignedUsers(tmp_path / "strange")
        stranger.folder.mkdir()
        bus = NatsBus(server.url, credentials=stranger.credentials("daemon", daemon_rights()))
        async with running_bus(bus):
            await wait_until(lambda: "authorization" in bus.reason.lower(), message=bus.reason)
            state = bus.state

    assert state == "down"
