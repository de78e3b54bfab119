"""`memforestd doctor`: the usual mistakes of a set-up, each with its mend; and the stream, made once.

With `--deep` every event of the log is read and checked, and each damaged one is named.
"""

from __future__ import annotations

from collections.abc import Callable

from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.tombstone_bucket import TombstoneBucket, bucket_name
from daemon.config import Config, hide_password
from daemon.upkeep.doctor_bus import bus_in_use, examine_bus
from daemon.upkeep.doctor_chat import examine_chat, examine_transport
from daemon.upkeep.doctor_embedder import examine_embedder
from daemon.upkeep.doctor_host import examine_host
from daemon.upkeep.doctor_spaces import examine_spaces
from daemon.upkeep.doctor_store import MEND_DAMAGE, examine_directory, examine_running, examine_store
from daemon.upkeep.findings import Finding
from events.errors import StoreUnusable
from events.integrity import Walk, describe
from events.log import LogReader


async def examine(config: Config) -> list[Finding]:
    """Look at machine, data directory, store, socket, bus and models, without changing anything."""
    return [
        *examine_host(config),
        *examine_directory(config),
        *await examine_store(config),
        *examine_running(config),
        *await examine_bus(config),
        *await examine_chat(config),
        await examine_embedder(config),
        *await examine_spaces(config),
        *examine_transport(config),
    ]


async def examine_log(config: Config, progress: Callable[[int, int], None]) -> list[Finding]:
    """Read and check every event through a read-only connection, beside a daemon or without one.

    `progress` is told how many events were looked at, and of how many. One finding for each damage.
    """
    try:
        log = await LogReader.open_to_read(config.data_dir / "events.db")
    except StoreUnusable as error:
        return [Finding("error", "log", str(error), MEND_DAMAGE)]
    walk = Walk()
    try:
        await log.read(walk.begin)
        while not await log.read(walk.step):
            progress(walk.seq, walk.head)
        progress(walk.seq, walk.head)
    except StoreUnusable as error:
        ended = f"{error}; looked at {walk.seq} of {walk.head} events"
        return [Finding("error", "log", each, MEND_DAMAGE) for each in (*describe(walk.damages), ended)]
    finally:
        await log.close()
    if walk.damages:
        return [Finding("error", "log", sentence, MEND_DAMAGE) for sentence in describe(walk.damages)]
    return [Finding("ok", "log", f"all {walk.head} events match their chains, commitments and the running hash")]


async def create_stream(config: Config) -> str:
    """Create the stream and the tombstone bucket on the configured NATS server, unless they are there; says which.

    Raises `BusUnavailable` when the server cannot be reached or refuses.
    """
    failure: BusUnavailable | None = None
    async with bus_in_use(config) as bus:
        existed = bus.state == "up"
        try:
            await bus.create_stream()
            await TombstoneBucket(bus, bucket_name(config.bus.stream)).create()
        except BusUnavailable as error:
            failure = error  # raised in here it would come out as an exception group
    if failure is not None:
        raise BusUnavailable(f"{hide_password(config.bus.url)}: {failure}") from failure
    stream = f"stream {config.bus.stream} {'is there' if existed else 'was created'}"
    return f"{stream}, and so is the bucket {bucket_name(config.bus.stream)}"
