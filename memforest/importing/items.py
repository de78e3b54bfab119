"""The JSON values of a file one after the other: a line each, the items of one list, or one document.

Holds one value and one piece of the file, however long the file is. A zip archive is read as the members that a
caller names.
"""

from __future__ import annotations

import codecs
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from memforest.errors import InvalidInput
from memforest.wire import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# One line or item: a long conversation has a few MiB. More than this is not held in memory.
ITEM_BYTES_MAX = 64 << 20
_PIECE_BYTES = 1 << 16
_MARK = re.compile(r"[^ \t\r\n]")


class BadExport(InvalidInput):
    """The file is not what it is said to be."""


class _Readable(Protocol):
    """A file, or a member of an archive."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self, limit: int, /) -> bytes: ...
    def peek(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Item:
    """One JSON value of a file and its place; `fault` says why there is none."""

    place: str
    value: object = None
    fault: str | None = None


def read_items(path: Path, is_member: Callable[[str], bool] = lambda _: False) -> Iterator[Item]:
    """The values of a file; of a zip archive those of the members that `is_member` names.

    Raises BadExport for a list that is not JSON, or an archive that is damaged or has no such member; OSError.
    """
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            yield from _items_of(file)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if is_member(name))
            if not names:
                raise BadExport("The archive has no file of this kind.")
            for name in names:
                with archive.open(name) as file:
                    yield from _items_of(cast("_Readable", file))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError):
        raise BadExport("The archive is damaged, or needs a password.") from None


def _items_of(file: _Readable) -> Iterator[Item]:
    begins, number = _find_begin(file)
    if begins == b"[":
        yield from _items_of_list(file)
        return
    first = file.readline(ITEM_BYTES_MAX + 1)
    if begins != b"{" or _read_line(number, first).fault is None:
        yield from _items_of_lines(number, first, file)
        return
    following = file.readline(ITEM_BYTES_MAX + 1)
    if following.lstrip().startswith(b"{") or not following:
        # A broken line among good ones, not a document over several lines.
        yield _read_line(number, first)
        yield from _items_of_lines(number + 1, following, file)
        return
    yield _read_document(first + following, file)


def _find_begin(file: _Readable) -> tuple[bytes, int]:
    """The first byte that is not blank, which stays in the file, and the number of its line."""
    number = 1
    while head := file.peek(1):
        blank = len(head) - len(head.lstrip(b"\xef\xbb\xbf \t\r\n"))
        number += file.read(blank).count(b"\n")
        if blank < len(head):
            return head[blank : blank + 1], number
    return b"", number


def _items_of_lines(number: int, line: bytes, file: _Readable) -> Iterator[Item]:
    while line:
        if len(line) > ITEM_BYTES_MAX:
            yield Item(f"line {number}", fault=f"longer than {ITEM_BYTES_MAX >> 20} MiB")
            while line and not line.endswith(b"\n"):
                line = file.readline(_PIECE_BYTES)
        elif line.strip():
            yield _read_line(number, line)
        line = file.readline(ITEM_BYTES_MAX + 1)
        number += 1


def _read_line(number: int, line: bytes) -> Item:
    try:
        return Item(f"line {number}", decode_json(line))
    except ValueError:
        return Item(f"line {number}", fault="not JSON in UTF-8")


def _read_document(begun: bytes, file: _Readable) -> Item:
    rest = file.read(ITEM_BYTES_MAX + 1)
    if len(begun) + len(rest) > ITEM_BYTES_MAX:
        raise BadExport(f"The document is longer than {ITEM_BYTES_MAX >> 20} MiB; write one object a line.")
    try:
        return Item("the document", decode_json(begun + rest))
    except ValueError:
        raise BadExport("The file is not JSON in UTF-8.") from None


def _items_of_list(file: _Readable) -> Iterator[Item]:
    """The items of one list, decoded as they come."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    text = _Text(file)
    text.skip("[")
    number = 0
    while text.next_mark() != "]" or number:
        number += 1
        yield Item(f"item {number}", _next_value(text, decoder, number))
        mark = text.next_mark()
        if mark == "]":
            break
        if mark != ",":
            raise BadExport(f"Behind item {number} the file is not JSON.")
        text.skip(",")
    text.skip("]")
    if text.next_mark():
        raise BadExport("Behind its list the file goes on; write one list, or one object a line.")


def _next_value(text: _Text, decoder: json.JSONDecoder, number: int) -> object:
    text.next_mark()
    while True:
        try:
            value, end = decoder.raw_decode(text.held, text.at)
        except (ValueError, RecursionError) as fault:
            # Cut off by the end of what is held, or really broken: only more text tells.
            if isinstance(fault, RecursionError) or not text.grow():
                raise BadExport(f"Item {number} is not JSON in UTF-8.") from None
            continue
        length = end - text.at
        # A number that is cut is a number, too: only the mark behind it says that it is whole.
        if text.mark_from(end) in (",", "]") or not text.grow():
            text.at += length
            return value


class _Text:
    """The text of a file that is held: grows by pieces that double, so that a long item is decoded seldom.

    What stands before `at` is done with. It goes when the text grows: cut off behind each item, the rest of a long
    piece would be copied for each short one.
    """

    def __init__(self, file: _Readable) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.held = ""
        self.at = 0

    def grow(self) -> bool:
        """Read on; False at the end of the file. Raises BadExport for an item beyond ITEM_BYTES_MAX."""
        left = self.held[self.at :]
        if len(left) > ITEM_BYTES_MAX:
            raise BadExport(f"An item of the list is longer than {ITEM_BYTES_MAX >> 20} MiB.")
        piece = self._file.read(max(_PIECE_BYTES, len(left)))
        self.held, self.at = left + self._decode(piece), 0
        return bool(piece)

    def next_mark(self) -> str:
        """The next character that is not blank, which stays; nothing at the end."""
        while not (mark := self.mark_from(self.at)):
            self.at = len(self.held)
            if not self.grow():
                return ""
        self.at = self.held.index(mark, self.at)
        return mark

    def mark_from(self, place: int) -> str:
        """The first character from there on that is held and not blank; nothing without one."""
        found = _MARK.search(self.held, place)
        return found[0] if found else ""

    def skip(self, mark: str) -> None:
        """Step over a character that is there."""
        assert self.next_mark() == mark
        self.at += 1

    def _decode(self, piece: bytes) -> str:
        try:
            return self._decoder.decode(piece, final=not piece)
        except UnicodeDecodeError:
            raise BadExport("The file is not text in UTF-8.") from None


def _refuse(_: str) -> NoReturn:
    raise ValueError
