"""The streams that are read besides our own: each with a connection, a decoder and a checkpoint of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daemon.backpressure import Backpressure
from daemon.bus.nats_bus import EVERY_SUBJECT, NatsBus
from daemon.config import Config, parse_zone
from daemon.decoders.decoding import Decoder
from daemon.decoders.formats import FORMATS
from daemon.decoders.placing import Placing, parse_template
from daemon.ingest import Ingest
from daemon.logs import Report
from daemon.memories import Memories
from events.envelope import BusPosition, Keys


@dataclass(frozen=True, slots=True)
class Reading:
    """One stream being read."""

    stream: str
    decoder_name: str
    bus: NatsBus
    decoder: Decoder
    ingest: Ingest


@dataclass(frozen=True, slots=True)
class ReadingShown:
    """A stream for `status`; `ignored` messages since the start were of no concern to us."""

    stream: str
    decoder: str
    state: str
    reason: str
    paused: str | None
    read_to: int
    lag_messages: int | None
    ignored: int


def make_decoder(config: Config, keys: Keys) -> Decoder:
    """The decoder of our own stream."""
    zone, written = parse_zone(config.bus.zone), FORMATS[config.bus.decoder]
    return Decoder(keys, zone, reopens=config.bus.reopen_forgotten, written=written)


def build_readings(
    config: Config,
    url: Callable[[], str],
    memories: Memories,
    report: Report,
    make_backpressure: Callable[[], Backpressure],
) -> tuple[Reading, ...]:
    """A reading for each subscription, on the server of the bus."""
    log = memories.log
    found: list[Reading] = []
    for each in config.subscriptions:
        bus = NatsBus(
            url,
            each.stream,
            subjects=each.subjects or EVERY_SUBJECT,
            credentials=config.credentials_path,
            report=report,
        )
        decoder = Decoder(
            log.keys,
            parse_zone(config.bus.zone),
            reopens=config.bus.reopen_forgotten,
            written=FORMATS[each.decoder],
            placing=Placing(parse_template(each.user), parse_template(each.session), ours=False),
        )
        ingest = Ingest(bus, each.stream, log, memories, decoder, report, backpressure=make_backpressure())
        found.append(Reading(each.stream, each.decoder, bus, decoder, ingest))
    return tuple(found)


def checkpoints(readings: Sequence[Reading]) -> dict[str, BusPosition | None]:
    """How far each stream was read into the log."""
    return {each.stream: each.ingest.reached() for each in readings}


def trouble_of(readings: Sequence[Reading]) -> str | None:
    """Which streams cannot be read now and why, as one sentence; None when all can."""
    found = [f"{each.stream} is not read: {each.bus.reason}" for each in readings if each.bus.state != "up"]
    found += [f"{each.stream} waits: {each.ingest.paused}" for each in readings if each.ingest.paused]
    return "; ".join(found) or None


async def show_reading(reading: Reading) -> ReadingShown:
    """How far a stream is read, and what is in the way."""
    position = reading.ingest.reached()
    return ReadingShown(
        stream=reading.stream,
        decoder=reading.decoder_name,
        state=reading.bus.state,
        reason=reading.bus.reason,
        paused=reading.ingest.paused,
        read_to=position.seq if position else 0,
        lag_messages=await reading.ingest.lag_messages(),
        ignored=reading.ingest.ignored,
    )
