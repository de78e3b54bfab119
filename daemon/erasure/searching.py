"""Looks for many byte strings at once in every file below a folder; a process of its own (`python -m`).

Never in the process that has the log open: closing a file drops every POSIX lock that the process has on it, also
those of SQLite (https://www.sqlite.org/howtocorrupt.html, 2.2). The next program to close the log would then take
itself for the last one and delete the write-ahead log that we go on writing to.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

# Read at once; every block is read with what is left of the one before.
BLOCK_BYTES: Final = 4 * 1024 * 1024
# Searched at once, so that what is computed from it stays in the processor's cache.
SLICE_BYTES: Final = 64 * 1024
WORD_BYTES: Final = 8
# Bits of a hash that choose the entry of a table of 1 MiB.
TABLE_BITS: Final = 20
# So much less important than the daemon itself.
NICENESS: Final = 10

# No link is followed, and nothing that takes a link's place waits for a writer.
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_SHIFT: Final = np.uint64(64 - TABLE_BITS)


class Request(msgspec.Struct, frozen=True):
    """What to look for and where."""

    folder: str
    windows: list[bytes]
    block_bytes: int = BLOCK_BYTES


class FileHits(msgspec.Struct, frozen=True):
    """A file with windows in it: which (their numbers), and how often each."""

    file: str
    windows: list[int]
    counts: list[int]


class Found(msgspec.Struct, frozen=True):
    """What was searched and what was found. Names of files are relative to the folder."""

    files: int
    bytes_read: int
    hits: list[FileHits]
    # Files that could not be read, and links, which are not followed.
    unread: list[str]


@dataclass(frozen=True, slots=True)
class _Length:
    """The windows of one length, in the order of their hashes."""

    words: NDArray[np.uint64]  # (windows, length / 8)
    numbers: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    table: NDArray[np.bool_]


class WindowSearch:
    """Finds windows of 8, 16, 24 or 32 bytes at every offset, thousands at once.

    A file's 8 bytes at an offset are one number; its hash asks a table whether a window may begin there. The few
    places that remain are asked again with the hash of the whole window and in the end compared word by word. So
    the number of windows costs little, and beginnings that are common in what is searched cost most.
    """

    def __init__(self, windows: Sequence[bytes]) -> None:
        self.windows_count = len(windows)
        self.length_max = max(map(len, windows), default=WORD_BYTES)
        # Odd, and others every time: nobody can say things that meet in the tables.
        words_max = -(-self.length_max // WORD_BYTES)
        self._factors = np.random.default_rng().integers(0, 2**64, words_max, np.uint64) | np.uint64(1)
        by_length: dict[int, list[int]] = {}
        for number, window in enumerate(windows):
            if len(window) % WORD_BYTES or not window:
                raise ValueError("a window has a multiple of 8 bytes")
            by_length.setdefault(len(window) // WORD_BYTES, []).append(number)
        self._first = np.zeros(1 << TABLE_BITS, dtype=np.bool_)
        # By the number of words.
        self._lengths = {
            word_count: self._of_length([windows[n] for n in numbers], numbers)
            for word_count, numbers in by_length.items()
        }

    def find(self, block: bytearray, size: int, starts: int) -> NDArray[np.int64]:
        """The numbers of the windows that begin before `starts` and end before `size`, once for each place.

        `block` is at least `length_max` longer than `size`.
        """
        hashes = np.empty(SLICE_BYTES, dtype=np.uint64)
        passing = np.empty(SLICE_BYTES, dtype=np.bool_)
        found = list[NDArray[np.int64]]()
        # The number that the 8 bytes at an offset are, for every offset.
        numbers = np.ndarray((size,), dtype="<u8", buffer=block, strides=(1,))
        for at in range(0, starts, SLICE_BYTES):
            count = min(SLICE_BYTES, starts - at)
            here = hashes[:count]
            np.multiply(numbers[at : at + count], self._factors[0], out=here)
            np.right_shift(here, _SHIFT, out=here)
            np.take(self._first, here.view(np.int64), out=passing[:count], mode="wrap")
            places = np.flatnonzero(passing[:count]) + at
            if places.size:
                found.extend(self._compare(block, size, places))
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def _of_length(self, windows: list[bytes], numbers: list[int]) -> _Length:
        words = np.frombuffer(b"".join(windows), dtype="<u8").reshape(len(windows), -1)
        *_, hashes = self._hashes(words)
        if len(np.unique(hashes)) != len(windows):  # 1 in 10^10 times for so many windows
            raise ValueError("two windows have the same hash; with other factors they have not")
        order = np.argsort(hashes)
        table = np.zeros(1 << TABLE_BITS, dtype=np.bool_)
        table[_entries(hashes)] = True
        self._first[_entries(words[:, 0] * self._factors[0])] = True
        return _Length(words[order], np.asarray(numbers)[order], hashes[order], table)

    def _hashes(self, words: NDArray[np.uint64]) -> Iterator[NDArray[np.uint64]]:
        """Of the first word of each row, of the first two, and so on."""
        hashes: NDArray[np.uint64] = words[:, 0] * self._factors[0]
        yield hashes
        for n in range(1, words.shape[1]):
            # Mixed before the next word is added, or bits that only the top of a word decides would cancel out.
            hashes = (hashes ^ (hashes >> np.uint64(32))) + words[:, n] * self._factors[n]
            yield hashes

    def _compare(self, block: bytearray, size: int, places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        shape = (size, len(self._factors))
        words = np.ndarray(shape, dtype="<u8", buffer=block, strides=(1, WORD_BYTES))[places]
        for word_count, hashes in enumerate(self._hashes(words), start=1):
            length = self._lengths.get(word_count)
            if length is None:
                continue
            passing = np.flatnonzero(length.table[_entries(hashes)])
            passing = passing[places[passing] <= size - word_count * WORD_BYTES]
            if passing.size:
                nearest = np.searchsorted(length.hashes, hashes[passing])
                nearest[nearest == len(length.hashes)] = 0
                equal = (length.words[nearest] == words[passing, :word_count]).all(axis=1)
                yield length.numbers[nearest[equal]]


def _entries(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Which entry of a table is a hash's."""
    return (hashes >> _SHIFT).view(np.int64)


def search_folder(request: Request, open_file: Callable[[str, int], int] = os.open) -> Found:
    """Search every regular file below the folder, as long as it was when it was opened.

    Files that vanish meanwhile are no matter; sockets and pipes hold nothing. Raises OSError if the folder itself
    cannot be listed.
    """
    search = WindowSearch(request.windows)
    buffer = bytearray(request.block_bytes + 2 * search.length_max)
    files = bytes_read = 0
    hits, unread = list[FileHits](), list[str]()
    for path, kind in _walk(request.folder, unread):
        if kind != stat.S_IFREG:
            if kind == stat.S_IFLNK:
                unread.append(path)
            continue
        counts = np.zeros(search.windows_count, dtype=np.int64)
        try:
            bytes_read += _search_file(path, search, buffer, request.block_bytes, counts, open_file)
        except FileNotFoundError:
            continue
        except OSError:
            unread.append(path)
        files += 1
        if (present := np.flatnonzero(counts)).size:
            hits.append(FileHits(_shown(path, request.folder), present.tolist(), counts[present].tolist()))
    return Found(files, bytes_read, hits, sorted(_shown(path, request.folder) for path in unread))


def _walk(folder: str, unread: list[str]) -> Iterator[tuple[str, int]]:
    """Every entry below a folder that is no folder, with its kind; a link is an entry."""
    folders = [folder]
    while folders:
        current = folders.pop()
        try:
            with os.scandir(current) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except FileNotFoundError:
            if current == folder:
                raise
            continue
        except OSError:
            if current == folder:
                raise
            unread.append(current)
            continue
        for entry in entries:
            try:
                kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
            except FileNotFoundError:
                continue
            if kind == stat.S_IFDIR:
                folders.append(entry.path)
            else:
                yield entry.path, kind


def _search_file(
    path: str,
    search: WindowSearch,
    buffer: bytearray,
    block_bytes: int,
    counts: NDArray[np.int64],
    open_file: Callable[[str, int], int],
) -> int:
    """Count the windows of one file; how many bytes it had. Raises OSError."""
    descriptor = open_file(path, _OPEN_FLAGS)
    try:
        # What is appended from now on was written after the erasing; a busy writer could keep us here for ever.
        left = os.fstat(descriptor).st_size
        view, kept, bytes_read = memoryview(buffer), 0, 0
        while True:
            got = os.readv(descriptor, [view[kept : kept + min(block_bytes, left)]]) if left else 0
            left, bytes_read, filled = left - got, bytes_read + got, kept + got
            is_last = got == 0 or left == 0
            # A window that reaches beyond this block is found in the next, with the bytes kept here.
            starts = filled if is_last else max(0, filled - search.length_max + 1)
            found = search.find(buffer, filled, starts)
            if found.size:
                counts += np.bincount(found, minlength=counts.size)
            if is_last:
                return bytes_read
            kept = filled - starts
            buffer[:kept] = buffer[starts:filled]
    finally:
        os.close(descriptor)


def _shown(path: str, folder: str) -> str:
    """Relative to the folder; a name that is no UTF-8 with escapes."""
    return os.fsencode(Path(path).relative_to(folder)).decode("utf-8", "backslashreplace")


def main() -> None:
    """Read a request from standard input, write what was found to standard output; both msgpack."""
    os.nice(NICENESS)
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Request)
    sys.stdout.buffer.write(msgspec.msgpack.encode(search_folder(request)))


if __name__ == "__main__":
    main()
