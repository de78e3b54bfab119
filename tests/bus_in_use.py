"""What tests put around a bus: a server, the bus's task, a reader that commits, and what was reported."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from daemon.bus.bus_messages import BusMessage
from daemon.bus.embedded_bus import EmbeddedBus
from daemon.bus.nats_bus import NatsBus
from daemon.bus.subjects import turn_subject
from daemon.logs import quiet
from events.envelope import BusPosition
from tests.waiting import wait_until

TURNS = turn_subject("alice", "s1")


class Reported:
    """Keeps what was reported, as (name, fields)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    def fields(self, name: str) -> list[dict[str, object]]:
        """The fields of each report of this name."""
        return [fields for event, fields in self.events if event == name]

    def names(self) -> list[str]:
        """What was reported, in order."""
        return [event for event, _ in self.events]


@asynccontextmanager
async def running_bus(bus: NatsBus) -> AsyncGenerator[NatsBus, None]:
    """The bus with its task, cancelled on the way out as the daemon does it."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.run)
        try:
            yield bus
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def unattended_server(folder: Path) -> AsyncGenerator[str, None]:
    """The URL of an embedded server that nobody starts again."""
    server = EmbeddedBus(folder)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


@asynccontextmanager
async def bus_with_stream(
    url: str, *, ack_wait_s: float = 60, report: Reported | None = None
) -> AsyncGenerator[NatsBus, None]:
    """A running bus whose stream is there."""
    async with running_bus(NatsBus(url, ack_wait_s=ack_wait_s, report=report or quiet)) as bus:
        await wait_until(lambda: bus.state != "down")
        await bus.create_stream()
        yield bus


async def publish(bus: NatsBus, *contents: str) -> None:
    """One message each on TURNS."""
    for content in contents:
        await bus.publish(TURNS, content.encode())


async def fetch_all(bus: NatsBus, after: BusPosition | None, count: int) -> list[BusMessage]:
    """What a reader gets that commits and acknowledges every batch, until it has `count` messages."""
    received: list[BusMessage] = []
    with anyio.fail_after(15):
        while len(received) < count:
            batch = await bus.fetch(after)
            received += batch.messages
            after = batch.position
            await bus.acknowledge(batch)
    return received


def texts(messages: list[BusMessage] | tuple[BusMessage, ...]) -> list[str]:
    return [message.payload.decode() for message in messages]
