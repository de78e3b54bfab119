"""Proves that none of the words that were erased is left in any file of the data directory (rule D9).

Run after the erasing, over the log, its write-ahead log, what is derived, backups and the embedded bus store.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec

from daemon.bus.embedded_bus import tied_to_this_process
from daemon.erasure.fingerprints import Fingerprints, Window
from daemon.erasure.searching import BLOCK_BYTES, Found, Request
from events.errors import MemForestError

# Given every window that was found, once; answers which of them stand in words that are kept.
IsKept = Callable[[Sequence[Window]], Awaitable[Collection[Window]]]


class ScanFailed(MemForestError):
    """The files could not be searched for what was erased; it is tried again, or see the daemon's own errors."""

    code = "unavailable"


@dataclass(frozen=True, slots=True)
class Residue:
    """A file, relative to the folder, that still holds erased words, and at how many places one was found."""

    file: str
    count: int


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What was searched and what was left. `windows` were looked for; `shared` of them stand in kept words too.

    `unread` are the files that could not be read, and links: they were not searched and prove nothing.
    """

    files: int
    bytes_read: int
    windows: int
    residues: tuple[Residue, ...]
    shared: int
    unread: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every file was searched and nothing was found."""
        return not self.residues and not self.unread


async def scan(
    folder: Path, fingerprints: Fingerprints, is_kept: IsKept, block_bytes: int = BLOCK_BYTES
) -> ScanResult:
    """Search every file below the folder for windows of erased words, other than those that kept words hold too.

    In a process of its own (see daemon/erasure/searching.py) that ends when we do, or when the scan is cancelled.
    Raises ScanFailed.
    """
    windows = fingerprints.windows()
    found = await _search(Request(str(folder), list(windows), block_bytes))
    hit = {number: Window(windows[number]) for hits in found.hits for number in hits.windows}
    kept = set(await is_kept(list(hit.values()))) if hit else set[Window]()
    left = {number for number, window in hit.items() if window not in kept}
    counted = (
        Residue(hits.file, sum(count for n, count in zip(hits.windows, hits.counts, strict=True) if n in left))
        for hits in found.hits
    )
    return ScanResult(
        files=found.files,
        bytes_read=found.bytes_read,
        windows=len(windows),
        residues=tuple(residue for residue in counted if residue.count),
        shared=len(hit) - len(left),
        unread=tuple(found.unread),
    )


async def _search(request: Request) -> Found:
    # -P: no folder named daemon in the working directory may come before ours.
    command = [sys.executable, "-P", "-m", "daemon.erasure.searching"]
    try:
        done = await anyio.run_process(
            tied_to_this_process(command),
            input=msgspec.msgpack.encode(request),
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return msgspec.msgpack.decode(done.stdout, type=Found)
    except (OSError, subprocess.CalledProcessError, msgspec.DecodeError):
        # The cause is not kept: it holds what was sent.
        raise ScanFailed from None
