"""What stands in the files below the data directory whoever speaks: words of the bus and of formats (rule D9).

A scan after an erasing must not take those for residues: somebody may have said "connections", and the log of any
nats-server says so, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daemon.bus.embedded_bus import LOG_BYTES_MAX
from projections.snapshot import words_of_format

# Files of the embedded bus that it is configured by, or describes its streams in.
_SETTINGS: Final = ("nats/nats.conf", "nats/jetstream/**/meta.inf")
_LOGS: Final = "nats/nats.log*"
_SQLITE: Final = b"SQLite format 3"


def own_words(folder: Path) -> bytes:
    """All of them, for looking whether a window stands in it. Reads a few files; what cannot be read is left out.

    Nothing in it is of anybody: of settings no subject is taken, which may name a user, and of the log no line
    that quotes something.
    """
    return b"\x00".join((b"", _SQLITE, words_of_format(), *_settings(folder), *_log_lines(folder), b""))


def _settings(folder: Path) -> Iterator[bytes]:
    for pattern in _SETTINGS:
        for path in folder.glob(pattern):
            yield from (piece for piece in _read(path).split(b'"') if b"." not in piece)


def _log_lines(folder: Path) -> Iterator[bytes]:
    for path in folder.glob(_LOGS):
        yield from (line for line in _read(path).splitlines() if not {*b"\"'"}.intersection(line))


def _read(path: Path) -> bytes:
    """The beginning of a file of our own, not of one that a link names."""
    try:
        if path.is_symlink() or not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(LOG_BYTES_MAX)
    except OSError:
        return b""
