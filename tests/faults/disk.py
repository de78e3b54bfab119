"""What a disk holds after a power cut, from the trace that power_cut_shim.c wrote.

A byte is durable once its file was synced after it was written; a file's name once its directory was. Of what was
written since, anything may be there: nothing of it, all of it, or any sectors of it, in no order.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SECTOR_BYTES = 512
_HEADER = struct.Struct("=cBQQ")


class Record(NamedTuple):
    """One line of the trace; `op` is a letter of power_cut_shim.c, or A: seq `offset` was acknowledged."""

    op: str
    suffix: str
    offset: int
    written: bytes


def read_trace(path: Path) -> Iterator[Record]:
    """The records in order."""
    trace = memoryview(path.read_bytes())
    at = 0
    while at < len(trace):
        op, named, offset, length = _HEADER.unpack_from(trace, at)
        at += _HEADER.size
        end = at + named + (length if op == b"W" else 0)
        yield Record(op.decode(), bytes(trace[at : at + named]).decode(), offset, bytes(trace[at + named : end]))
        at = end


@dataclass(slots=True)
class _File:
    """The bytes that are durable, and what was done since the last sync."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Record] = field(default_factory=list)
    named: bool = False  # its name is durable

    def sync(self) -> None:
        """Everything so far is durable."""
        for record in self.pending:
            _apply(self.durable, record)
        self.pending.clear()


@dataclass(slots=True)
class Disk:
    """A store's files as the disk has them, while the trace is told record by record."""

    acknowledged: int = 0  # the highest seq
    checkpointed_pages: int = 0  # writes to events.db itself
    syncs: int = 0
    checkpoints: int = 0  # syncs of events.db itself
    _files: dict[str, _File] = field(default_factory=dict)
    _unlinked: set[str] = field(default_factory=set)

    def follow(self, record: Record) -> None:
        """One more record."""
        match record.op:
            case "A":
                self.acknowledged = max(self.acknowledged, record.offset)
            case "W" | "T":
                self._unlinked.discard(record.suffix)
                self._files.setdefault(record.suffix, _File()).pending.append(record)
                self.checkpointed_pages += record.op == "W" and not record.suffix
            case "S":
                self.syncs += 1
                self.checkpoints += not record.suffix
                self._files.setdefault(record.suffix, _File()).sync()
            case "U":
                self._unlinked.add(record.suffix)
            case _:
                self._sync_directory()

    def _sync_directory(self) -> None:
        for suffix in self._unlinked:
            self._files.pop(suffix, None)
        self._unlinked.clear()
        for file in self._files.values():
            file.named = True

    def cut(self, store: Path, rng: random.Random | None = None) -> None:
        """Leave at `store` what a power cut now leaves: with `rng` some sectors of what was not synced, too."""
        store.parent.mkdir(parents=True)
        for suffix, file in self._files.items():
            if not file.named:
                continue
            left = bytearray(file.durable)
            if rng is not None:
                for record in file.pending:
                    _apply_some(left, record, rng)
            store.with_name(store.name + suffix).write_bytes(left)


def _apply(content: bytearray, record: Record) -> None:
    if record.op == "T":
        del content[record.offset :]
        content.extend(bytes(record.offset - len(content)))
        return
    content.extend(bytes(max(0, record.offset - len(content))))
    content[record.offset : record.offset + len(record.written)] = record.written


def _apply_some(content: bytearray, record: Record, rng: random.Random) -> None:
    """Half of the sectors reach the disk; of a truncation all or nothing."""
    if record.op == "T":
        if rng.randrange(2):
            _apply(content, record)
        return
    start, end = record.offset, record.offset + len(record.written)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if rng.randrange(2):
            part = record.written[start - record.offset : stop - record.offset]
            _apply(content, Record("W", record.suffix, start, part))
        start = stop
