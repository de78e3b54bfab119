"""Erasing what was forgotten, step by step, and the receipt (design 3.2, engineering.md 1.6).

Words, names and dead letters; the write-ahead log; what is derived; the tombstone on the bus; the messages on the
bus; a scan of every file for what was erased; then the receipt. Each step can be done twice, so a restart goes on
where it stopped. Nothing here decides that something is forgotten: that is one event, and
daemon/erasure/forgetting.py's.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from daemon.bus.bus_erasure import BusEraser, BusErasure
from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.tombstone_bucket import TombstoneBucket
from daemon.decoders.formats import FORMAT_WORDS
from daemon.derived import DerivedStore
from daemon.erasure.bus_index import is_bus_index
from daemon.erasure.fingerprints import Fingerprints, Window
from daemon.erasure.own_words import own_words
from daemon.erasure.recording import Outcome, record_receipt
from daemon.erasure.residue import IsKept, ScanFailed, ScanResult, scan
from daemon.logs import Report
from events.bus_copies import read_unwanted, read_unwanted_subjects, settle_unwanted
from events.envelope import BusPosition, Reference
from events.erasure import (
    Unerased,
    count_erased,
    erase_retracted,
    erase_slice,
    has_emptied,
    has_retracted,
    read_letters_to_erase,
    read_words_to_erase,
    settle_retracted,
    truncate_wal,
)
from events.faults import fault_point
from events.kept import find_elsewhere, find_in_words
from events.log import EventLog
from events.schema import copies_before_migration
from events.time import Instant
from events.tombstones import read_tombstone

# Messages asked of the bus at once.
BUS_SLICE = 1_000
# Scans before the receipt says that something is left.
SCANS_MAX = 3
# Times stand in messages of every session.
_TIME = re.compile(r"[\dTZ:.+-]*")


@dataclass(frozen=True, slots=True)
class Erasing:
    """What erasing works on. The bus parts are None where there is no bus to erase from."""

    log: EventLog
    folder: Path
    clock: Callable[[], Instant]
    report: Report
    bus: BusEraser
    bucket: TombstoneBucket
    position: Callable[[], BusPosition | None]  # how far the bus was read
    pause_s: float  # before a step that could not be done is tried again
    derived: DerivedStore | None = None
    # Steps on the store, so that a test can leave one out and see that the scan finds what it would have taken.
    empty_slice: Callable[[sqlite3.Connection, Reference], bool] = erase_slice
    empty_log: Callable[[sqlite3.Connection], bool] = truncate_wal
    old_copies: Callable[[Path], list[Path]] = copies_before_migration
    # In a process of its own; a test that looks into the files itself spares the start of it.
    search: Callable[[Path, Fingerprints, IsKept], Awaitable[ScanResult]] = scan


async def erase(parts: Erasing, forgotten: Unerased, samples: Fingerprints) -> Outcome:
    """Do all that is left to do for one subject, and record its receipt.

    `samples`: of the words, by `sample`. Raises `StoreUnusable` when the disk fails and `BusUnavailable` while the
    bus is away: come again later.
    """
    log, subject = parts.log, forgotten.subject
    fault_point("erase.before_words")
    while not await log.write(lambda db: parts.empty_slice(db, subject)):
        fault_point("erase.after_slice")
        await anyio.lowlevel.checkpoint()  # turns go first
    await empty_wal(parts)
    fault_point("erase.before_derived")
    if parts.derived is not None:
        await parts.derived.erase(forgotten)
    fault_point("erase.before_tombstone")
    tombstoned = await _leave_tombstone(parts, subject)
    left = await erase_from_bus(parts, subject)
    fault_point("erase.before_scan")
    scanned = await _scan(parts, forgotten, samples)
    fault_point("erase.before_receipt")
    until = left.left_until if left else None
    outcome = Outcome(scanned, until, tombstoned, samples.whole)
    await record_receipt(parts.log, parts.clock, parts.report, forgotten, outcome)
    return outcome


async def look_again(parts: Erasing, forgotten: Unerased, samples: Fingerprints, before: Outcome) -> bool:
    """Search once more for what a receipt says is left; whether it is gone, and another receipt says so."""
    await empty_wal(parts)
    outcome = replace(before, scanned=await _scan(parts, forgotten, samples, scans_max=1))
    if outcome.is_clean:
        with anyio.CancelScope(shield=True):
            await record_receipt(parts.log, parts.clock, parts.report, forgotten, outcome, again=True)
    return outcome.is_clean


async def erase_what_was_retracted(parts: Erasing) -> None:
    """The words of retracted turns and of what was made of them."""
    while await parts.log.read(has_retracted):
        fault_point("erase.before_words")
        await parts.log.write(erase_retracted)
        fault_point("erase.after_slice")
        await anyio.lowlevel.checkpoint()
    if await parts.log.read(has_emptied):
        await empty_wal(parts)
        fault_point("erase.before_derived")
        if parts.derived is not None:
            await parts.derived.erase_retracted()
        # Only now: a crash before leaves the words in the write-ahead log, and the next start must know.
        events = await parts.log.write(settle_retracted)
        parts.report("forgetting.turns_erased", events=events)


async def empty_wal(parts: Erasing) -> None:
    """Return once no erased word stands in the write-ahead log (engineering.md D4), or in a copy of before."""
    fault_point("erase.before_wal")
    for copy in parts.old_copies(parts.log.path):
        copy.unlink(missing_ok=True)
    while not await parts.log.write(parts.empty_log):
        parts.report("forgetting.wal_busy")
        await anyio.sleep(parts.pause_s)  # a reader holds it


async def erase_from_bus(parts: Erasing, subject: Reference | None) -> BusErasure | None:
    """Delete the unwanted messages of a subject; what could not be, or None. Raises `BusUnavailable`."""
    left: BusErasure | None = None
    after: BusPosition | None = None
    while positions := await parts.log.read(partial(read_unwanted, subject=subject, after=after, limit=BUS_SLICE)):
        fault_point("erase.before_bus")
        done = await parts.bus.erase(positions, parts.position())
        fault_point("erase.after_bus")
        await parts.log.write(partial(settle_unwanted, subject=subject, gone=done.done))
        if done.left:
            parts.report("forgetting.bus_not_erased", messages=done.left, reason=done.reason)
            left = replace(done, left=done.left + (left.left if left else 0))
        after = positions[-1]
    return left


async def erase_copies(parts: Erasing) -> int:
    """Delete the unwanted messages that no erasing under way takes care of; how many the bus keeps.

    Also those that it kept when their receipt was written: rights change, and messages expire.
    """
    subjects = [None, *await parts.log.read(read_unwanted_subjects)]
    lefts = [await erase_from_bus(parts, subject) for subject in subjects]
    return sum(left.left for left in lefts if left is not None)


async def sample(log: EventLog, subject: Reference) -> Fingerprints:
    """Windows of the words that will be erased, kept in memory alone. After a restart: of those still here."""
    samples = Fingerprints(secrets.token_bytes(16))
    samples.whole = not (await log.read(partial(count_erased, subject=subject))).words
    after: int | None = 0
    while after is not None:
        texts, after = await log.read(partial(read_words_to_erase, subject=subject, after=after))
        for text in texts:
            samples.add(text.decode("utf-8", "replace"))
        await anyio.lowlevel.checkpoint()
    for payload in await log.read(partial(read_letters_to_erase, subject=subject)):
        for said in _what_is_said(payload):
            samples.add(said)
    return samples


def _what_is_said(payload: bytes) -> Iterator[str]:
    """The strings of a message that may not be JSON, without what others say as well: those stay on the bus."""
    for piece in payload.decode("utf-8", "replace").split('"'):
        if piece not in FORMAT_WORDS and not _TIME.fullmatch(piece):
            yield piece


async def _leave_tombstone(parts: Erasing, subject: Reference) -> bool:
    """Tell the bucket, so that a restored backup learns of it; whether it knows now.

    Without a bucket the erasing goes on: the receipt says so, and carries the tombstone itself. Raises
    `BusUnavailable` while the bus is away and there is something to delete on it.
    """
    tombstone = await parts.log.read(partial(read_tombstone, subject=subject))
    try:
        await parts.bucket.put(tombstone)
    except BusUnavailable as error:
        copies = await parts.log.read(partial(read_unwanted, subject=subject, limit=1))
        if copies and type(error) is BusUnavailable:
            raise  # the bus is away: this is tried again before they are deleted
        parts.report("forgetting.not_tombstoned", reason=str(error))
        return False
    return True


async def _scan(
    parts: Erasing, forgotten: Unerased, samples: Fingerprints, scans_max: int = SCANS_MAX
) -> ScanResult | None:
    """Look for the samples in every file; None when there are none, a result without files when it failed."""
    if not len(samples):
        return None

    async def is_kept(windows: Sequence[Window]) -> set[Window]:
        kept = await _find_kept(parts, forgotten, {reading for window in windows for reading in window.readings})
        rest = [window for window in windows if kept.isdisjoint(window.readings)]
        if rest:
            kept |= await _find_kept(parts, forgotten, {edge for window in rest for edge in window.edges})
        return {window for window in windows if kept.intersection((*window.readings, *window.edges))}

    result = ScanResult(files=0, bytes_read=0, windows=len(samples), residues=(), shared=0, unread=())
    for attempt in range(scans_max):
        if attempt:
            await anyio.sleep(parts.pause_s)
            await empty_wal(parts)
        try:
            found = await parts.search(parts.folder, samples, is_kept)
        except ScanFailed as error:
            parts.report("forgetting.scan_failed", reason=str(error))
            continue
        # The index of the bus names messages that are gone: make_receipt looks into it whenever it is asked.
        result = replace(found, residues=tuple(each for each in found.residues if not is_bus_index(each.file)))
        if result.is_clean:
            return result
        if result.unread:
            parts.report("forgetting.scan_failed", reason=f"{len(result.unread)} files are links or unreadable")
        for residue in result.residues:
            parts.report("forgetting.residue_found", file=residue.file, places=residue.count)
    return result


async def _find_kept(parts: Erasing, forgotten: Unerased, wanted: set[bytes]) -> set[bytes]:
    """Those of some byte strings that stand in what is kept."""
    kept: set[bytes] = set()
    after: int | None = 0
    while after is not None and kept != wanted:
        look = partial(find_in_words, needles=wanted - kept, erased=forgotten, after=after)
        found, after = await parts.log.read(look)
        kept |= found
    kept |= await parts.log.read(partial(find_elsewhere, needles=wanted - kept, erased=forgotten))
    if parts.derived is not None:
        kept |= await parts.derived.find_kept(wanted - kept, forgotten)
    own = await anyio.to_thread.run_sync(own_words, parts.folder)
    return kept | {each for each in wanted - kept if each in own}
