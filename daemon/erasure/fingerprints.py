"""Samples of words that are to be erased, as they would stand in a file, to look for afterwards (rule D9).

They live in memory only and are never written. Pure; the looking is done by searching.py and
residue.py beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

# Of text and of vectors. Long enough that nobody but the speaker wrote it by chance.
WINDOW_BYTES: Final = 16
# Of what is shorter than a window. Below that, a text stands everywhere and proves nothing.
SHORT_WINDOW_BYTES: Final = 8
# Of escaped text, where one character can take 6 bytes.
ESCAPED_WINDOW_BYTES: Final = 32
# From the start of one window to that of the next.
STRIDE_BYTES: Final = 64
# Half a megabyte. The table of the search lets 3 of 100 places through with so many, whatever stands there.
WINDOWS_MAX: Final = 32_768
# What stands between two texts that are compared with windows, and before and behind them all.
EDGE: Final = b"\x00"
# One byte of a window in so many may be the file's own.
EDGE_SHARE: Final = 8
# A window of fewer different bytes ("--------", zeros of a vector) stands in any file.
DISTINCT_BYTES_MIN: Final = 4

# What every encoding writes as it is. "&", "<" and ">" are escaped by Go's encoding/json alone.
_PLAIN = re.compile(r'[^"\\<>&\x00-\x1f\x7f-\U0010ffff]*')
# A cut escape is at most a pair of surrogates that lacks its last digit.
_CUT_BYTES_MAX = 12


@dataclass(frozen=True, slots=True)
class Window:
    """A sample of erased words, byte for byte as it would stand in a file."""

    raw: bytes

    @property
    def readings(self) -> tuple[bytes, ...]:
        """What `raw` may say, as UTF-8: itself, and without the escapes of JSON.

        If one of them stands in words or names that are kept, so may the window. For comparing bytes with bytes
        (`instr` of two BLOBs): a character at the end of the first may be cut.
        """
        found = (self.raw, _without_escapes(self.raw))
        return tuple(dict.fromkeys(reading for reading in found if reading))

    @property
    def edges(self) -> tuple[bytes, ...]:
        """The readings without up to an eighth at one end, where EDGE stands for the beginning or end of a text.

        A file has something of its own before and behind a text, and it may read on like one: a quotation mark
        of JSON, the length of SQLite's next cell. If one of these is at the edge of a kept text, that may be all
        that the window is.
        """
        found: list[bytes] = []
        for reading in self.readings:
            for cut in range(1, len(reading) // EDGE_SHARE + 1):
                found += [reading[:-cut] + EDGE, EDGE + reading[cut:]]
        return tuple(found)

    def __repr__(self) -> str:
        return f"Window({len(self.raw)} bytes)"


class Fingerprints:
    """Windows of texts and vectors in every encoding in which we or a publisher write them to a disk.

    At most `windows_max`. Of more, the ones that stay depend on `seed` and on what was added, not on the order.
    """

    def __init__(self, seed: bytes, windows_max: int = WINDOWS_MAX) -> None:
        self._seed = seed[: blake2b.MAX_KEY_SIZE]
        self._windows_max = windows_max
        self._ranks: dict[bytes, bytes] = {}
        self._rank_max: bytes | None = None
        # Texts and vectors of which no window can be told from chance: too short, or of too few different bytes.
        self.unsampled = 0
        # Whether all that is to be looked for was there to be added.
        self.whole = True

    def add(self, text: str) -> None:
        """Take windows of a text: its beginning, its end and one every STRIDE_BYTES."""
        # A lone surrogate is in no file, and no error may quote the text.
        text = text.encode("utf-8", "replace").decode()
        self._take(window for piece in _pieces(text) for window in _encodings(piece))

    def add_bytes(self, raw: bytes) -> None:
        """Take windows of bytes that are no text, such as a vector as it is stored."""
        length = _window_length(len(raw), WINDOW_BYTES)
        starts = [*range(0, len(raw) - length, STRIDE_BYTES), len(raw) - length]
        self._take(raw[start : start + length] for start in starts if start >= 0)

    def windows(self) -> tuple[bytes, ...]:
        """The windows, each once, of 8, 16, 24 or 32 bytes."""
        self._trim()
        return tuple(self._ranks)

    def __len__(self) -> int:
        return min(len(self._ranks), self._windows_max)

    def __repr__(self) -> str:
        return f"Fingerprints({len(self)} windows, {self.unsampled} unsampled)"

    def _take(self, windows: Iterator[bytes]) -> None:
        self.unsampled += not sum([self._keep(window) for window in windows])

    def _keep(self, window: bytes) -> bool:
        """False for a window that proves nothing."""
        if len(window) < SHORT_WINDOW_BYTES or len(set(window)) < DISTINCT_BYTES_MIN:
            return False
        rank = blake2b(window, key=self._seed, digest_size=8).digest()
        if self._rank_max is None or rank <= self._rank_max:
            self._ranks[window] = rank
            # Twice as many before the worse half goes: a sort for every 32,768 windows, not for each.
            if len(self._ranks) >= 2 * self._windows_max:
                self._trim()
        return True

    def _trim(self) -> None:
        if len(self._ranks) > self._windows_max:
            best = sorted(self._ranks.items(), key=lambda kept: kept[1])[: self._windows_max]
            self._ranks, self._rank_max = dict(best), best[-1][1]


def _pieces(text: str) -> Iterator[str]:
    """Where windows begin: stretches of a text that are longer than a window in every encoding, but at its end."""
    size = len(text.encode())
    length = _window_length(size, WINDOW_BYTES)
    if length == 0:
        return
    last = len(text) - 1
    while len(text[last:].encode()) < length:
        last -= 1
    stride = max(1, STRIDE_BYTES * len(text) // size)
    for start in (*range(0, last, stride), last):
        yield text[start : start + ESCAPED_WINDOW_BYTES]


def _encodings(piece: str) -> Iterator[bytes]:
    """The window at the beginning of a piece, in every encoding; as plain text first."""
    plain = piece.encode()
    plain = plain[: _window_length(len(plain), WINDOW_BYTES)]
    yield plain
    if not _PLAIN.fullmatch(piece):
        for escape in _ESCAPES:
            escaped = escape(piece)
            if not escaped.startswith(plain):
                yield escaped[: min(ESCAPED_WINDOW_BYTES, len(escaped) // 8 * 8)]


def _window_length(size: int, longest: int) -> int:
    """How long the windows of so many bytes are; 0 for too few."""
    return longest if size >= longest else SHORT_WINDOW_BYTES if size >= SHORT_WINDOW_BYTES else 0


def _as_msgspec(piece: str) -> bytes:
    return msgspec.json.encode(piece)[1:-1]


def _as_go(piece: str) -> bytes:
    """As Go's encoding/json writes text, and so the command `nats`."""
    escaped = _as_msgspec(piece)
    for char in "<>&\u2028\u2029":
        escaped = escaped.replace(char.encode(), rb"\u%04x" % ord(char))
    return escaped


def _as_ascii(piece: str) -> bytes:
    """As Python's json writes text."""
    return json.dumps(piece)[1:-1].encode()


def _as_upper_ascii(piece: str) -> bytes:
    """As .NET's System.Text.Json writes letters that are not ASCII."""
    return b"".join(
        _as_ascii(char) if char.isascii() else _as_ascii(char).upper().replace(rb"\U", rb"\u") for char in piece
    )


_ESCAPES: tuple[Callable[[str], bytes], ...] = (_as_msgspec, _as_go, _as_ascii, _as_upper_ascii)


def _without_escapes(raw: bytes) -> bytes | None:
    """The UTF-8 of the inside of a JSON string, without the character that is cut at its end."""
    for end in range(len(raw), max(0, len(raw) - _CUT_BYTES_MAX), -1):
        try:
            text: str = json.loads(f'"{raw[:end].decode()}"')
            return text.encode()
        except ValueError:  # cut in a character or an escape, or no such string at all
            continue
    return None
