"""Where big arrays lie: in memory, or above a size in a file without a name, which the system may page out."""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# A mapping keeps a file descriptor, so one serves many blocks.
_MAPPING_BYTES = 64 << 20
# From this size on an array has pages of its own: they take no memory until they are written, and are given back
# at once, where the heap would keep holes of a third of all vectors.
_PAGES_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a node set is searched. Answers do not depend on the first two, and no fold on any of these.

    `map_from_mb`: MiB of vectors of one user from which on they lie in a file in `folder`; 0 for never.
    `graph_from_nodes`: nodes from which on a graph proposes what is scored; 0 for never.
    """

    map_from_mb: int = 0
    folder: Path | None = None
    graph_from_nodes: int = 0


class Room:
    """Gives out arrays of bytes, all zero. What is mapped is unlinked: it is gone with its last array."""

    def __init__(self, options: SearchOptions | None = None) -> None:
        self._options = options or SearchOptions()
        self._mapping: mmap.mmap | None = None
        self._mapping_used = 0

    def zeros(self, size: int, held: int) -> NDArray[np.int8]:
        """An array of so many bytes for whoever holds so many; in memory if the disk has no room for it."""
        options = self._options
        if options.map_from_mb and held + size > options.map_from_mb << 20:
            mapped = self._map(size)
            if mapped is not None:
                return mapped
        if size >= _PAGES_BYTES:
            return np.frombuffer(mmap.mmap(-1, size), dtype=np.int8)
        return np.zeros(size, dtype=np.int8)

    def _map(self, size: int) -> NDArray[np.int8] | None:
        if self._mapping is None or self._mapping_used + size > len(self._mapping):
            try:
                self._mapping = _map_file(self._options.folder, max(size, _MAPPING_BYTES))
            except OSError:
                return None
            self._mapping_used = 0
        start = self._mapping_used
        self._mapping_used += size
        return np.frombuffer(self._mapping, dtype=np.int8, count=size, offset=start)


def _map_file(folder: Path | None, size: int) -> mmap.mmap:
    with tempfile.TemporaryFile(dir=folder, prefix="mf-vectors-") as file:
        # Room is taken now: a mapping that finds the disk full later would kill the process.
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)
