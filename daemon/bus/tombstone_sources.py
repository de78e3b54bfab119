"""Who knows what was forgotten, for a store that is restored: receipts of forgetting, and the bus.

A source that knows of nothing is a source, too: then nothing was forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import anyio
import msgspec

from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.embedded_bus import EMBEDDED_BUS_FOLDER, EmbeddedBus, EmbeddedBusFailed
from daemon.bus.nats_bus import NatsBus
from daemon.bus.tombstone_bucket import TombstoneBucket, TombstonesUnreadable, bucket_name
from daemon.config import Config
from events.envelope import REFERENCE_BYTES, Reference
from events.errors import InvalidInput, MemForestError
from events.time import EARLIEST, LATEST, Instant, from_datetime
from events.tombstones import Tombstone

# A receipt is a few hundred bytes; a longer line is another file.
LINE_BYTES_MAX = 1 << 20
# For connecting and reading the bucket; a bus that is down is no source.
ANSWER_WITHIN_S = 10.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class TombstoneList:
    """What one source knows to be forgotten. An empty list says that nothing was."""

    name: str
    tombstones: tuple[Tombstone, ...]


class NoSource(MemForestError):
    """Who was asked for tombstones cannot tell."""

    code = "unavailable"


class _Line(msgspec.Struct):
    """A tombstone. `session` must be there and may be null: then all of the user was forgotten."""

    session: str | None
    user: str
    forgotten_at: int | str


class _Receipt(msgspec.Struct):
    """A whole receipt, of which only the tombstone matters here."""

    tombstone: _Line | None = None


_LINES = msgspec.json.Decoder(_Line)
_RECEIPTS = msgspec.json.Decoder(_Receipt)


def read_receipts(path: Path) -> TombstoneList:
    """The tombstones of a file with one JSON object a line: receipts, or the tombstones alone.

    Raises `InvalidInput` naming the line, or OSError.
    """
    found: list[Tombstone] = []
    with path.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LINE_BYTES_MAX), b""), start=1):
            if not line.strip():
                continue
            try:
                found.append(_tombstone(_RECEIPTS.decode(line).tombstone or _LINES.decode(line)))
            except (msgspec.DecodeError, ValueError):
                raise InvalidInput(
                    f"line {number} of the receipts has no tombstone: session and user as hexadecimal references,"
                    " and forgotten_at"
                ) from None
    return TombstoneList("receipts", tuple(found))


async def ask_bus(config: Config, within_s: float = ANSWER_WITHIN_S) -> TombstoneList:
    """What the tombstone bucket on the bus knows; an embedded bus is started for the question.

    No daemon may run on the data directory. Raises `NoSource` when there is no bus or no bucket in time,
    `TombstonesUnreadable` when something in the bucket is none.
    """
    if not config.bus.embedded:
        return await _ask_bucket(config.bus.url, config, within_s)
    folder = config.data_dir / EMBEDDED_BUS_FOLDER
    if not folder.is_dir():
        raise NoSource("the embedded bus has no store yet")
    server = EmbeddedBus(folder)
    try:
        await server.start()
        return await _ask_bucket(server.url, config, within_s)
    except EmbeddedBusFailed as failure:
        raise NoSource(f"the embedded bus does not start: {failure}") from None
    finally:
        await server.stop()


async def _ask_bucket(url: str, config: Config, within_s: float) -> TombstoneList:
    bus = NatsBus(url, config.bus.stream, credentials=config.credentials_path)
    answer: TombstoneList | BusUnavailable | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.run)
        with anyio.move_on_after(within_s):
            while bus.state == "down":  # noqa: ASYNC110  (a short look at a state without an event)
                await anyio.sleep(POLL_S)
            answer = await _read_bucket(TombstoneBucket(bus, bucket_name(config.bus.stream)))
        await bus.close()
        tasks.cancel_scope.cancel()
    match answer:
        case TombstoneList():
            return answer
        case TombstonesUnreadable():
            raise answer
        case _:
            raise NoSource(f"the bus cannot tell: {answer or bus.reason}")


async def _read_bucket(bucket: TombstoneBucket) -> TombstoneList | BusUnavailable:
    """Its tombstones, or why there are none: an error inside a task group would come out as a group."""
    try:
        found = await bucket.read_all()
    except BusUnavailable as unavailable:
        return unavailable
    return TombstoneList("bus", found)


def _tombstone(line: _Line) -> Tombstone:
    session = None if line.session is None else _reference(line.session)
    return Tombstone(session, _reference(line.user), _instant(line.forgotten_at))


def _reference(text: str) -> Reference:
    reference = bytes.fromhex(text)
    if len(reference) != REFERENCE_BYTES:
        raise ValueError("not the length of a reference")
    return reference


def _instant(given: int | str) -> Instant:
    """Milliseconds since 1970, or ISO 8601 with an offset."""
    at = from_datetime(datetime.fromisoformat(given)) if isinstance(given, str) else given
    if not EARLIEST <= at <= LATEST:
        raise ValueError("not an instant")
    return at
