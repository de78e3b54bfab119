"""Bytes become lines: the framing of newline-delimited JSON-RPC, bounded whatever arrives."""

from __future__ import annotations

from daemon.serving.protocol import LineTooLong


class LineBuffer:
    """Puts lines together from whatever pieces arrive. Holds one line and one piece at most.

    A line above the limit is thrown away while it arrives and reported once, when it ends, so that the
    connection stays usable and memory stays bounded.
    """

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._bytes = bytearray()
        self._scanned = 0  # No newline stands before this; without it a slow line costs its length squared.
        self._discarding = False

    def feed(self, piece: bytes) -> None:
        """Take what arrived."""
        self._bytes += piece
        if not self._discarding:
            self._skip_blank()

    @property
    def started(self) -> bool:
        """A part of a line is here, its end is not (ask after `next_line` returned None)."""
        return self._discarding or bool(self._bytes)

    def next_line(self, *, at_end: bool = False) -> bytes | None:
        """The next complete line, or None. Raises LineTooLong once for each line that was too long.

        When the client has sent all (`at_end`), what is left is a line too: `printf` forgets the newline.
        """
        end = self._bytes.find(b"\n", self._scanned)
        if end < 0 and not (at_end and self.started):
            if self._discarding or len(self._bytes) > self._line_bytes_max:
                self._discarding = True
                self._bytes.clear()
            self._scanned = len(self._bytes)
            return None
        line = bytes(self._bytes[:end] if end >= 0 else self._bytes)
        del self._bytes[: len(line) + 1]
        self._scanned = 0
        self._skip_blank()
        if self._discarding or len(line) > self._line_bytes_max:
            self._discarding = False
            raise LineTooLong
        return line

    def _skip_blank(self) -> None:
        if self._bytes and self._bytes[0] in b" \t\r\n":
            self._bytes = self._bytes.lstrip(b" \t\r\n")
            self._scanned = 0
