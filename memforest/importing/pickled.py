"""Reads the few shapes that a pickled memory graph consists of, and runs nothing.

Python's own unpickler calls what a file names. This one has no way to: names become tokens, of which a handful
stand for a shape (an object of the graph, an array of numbers); any other one, and any other instruction, ends the
reading. The instructions are described in the standard library's `pickletools`.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from memforest.importing.items import BadExport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# The graph of an hour of video has a hundred megabytes: 3,072 numbers for each of some thousand sentences.
PICKLE_BYTES_MAX: Final = 512 << 20
# What a pickle may cost: a number 1, an instruction `_STEP`. A number takes 32 bytes, and what an instruction
# makes up to some 400, however few the file needs for it.
COST_MAX: Final = 32_000_000
_STEP: Final = 8
_FLOATS: Final = re.compile(rb"(?:G.{8}){1,4096}", re.DOTALL)
_ARRAYS: Final = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC: Final = ("numpy.core.numeric", "numpy._core.numeric")
_KNOWN: Final = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    # How older protocols write the name of a class inside another one.
    ("builtins", "getattr"): "inner",
    ("__builtin__", "getattr"): "inner",
    **{(each, "_reconstruct"): "array" for each in _ARRAYS},
    **{(each, "scalar"): "scalar" for each in _ARRAYS},
    **{(each, "_frombuffer"): "buffer" for each in _NUMERIC},
}
_CODES: Final = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_STRUCT_OF: Final[dict[str, str]] = dict(zip(_CODES, "efdbhiqBHIQ", strict=True))
_ORDERS: Final = {"<": "<", ">": ">", "|": "<", "=": "<"}

NOT_A_GRAPH: Final = "The pickle holds other things than a memory graph of VideoGraph; none of it was run."
DAMAGED: Final = "The pickle is damaged or cut off."
TOO_LARGE: Final = f"The pickle is longer than {PICKLE_BYTES_MAX >> 20} MiB, or holds too many values."


@dataclass(slots=True)
class Shape:
    """What a name in a pickle stands for: `graph`, `node`, or one of numpy's."""

    name: str


@dataclass(slots=True)
class Made:
    """An object of the graph: its fields by name; of an array its numbers in `values`."""

    shape: str
    fields: dict[object, object] = field(default_factory=dict[object, object])
    values: list[object] = field(default_factory=list[object])
    order: str = "<"


_List: TypeAlias = "list[object]"
_MARK: Final = object()


def is_pickle(path: Path) -> bool:
    """Whether a file begins as pickles of today do. Raises OSError."""
    with path.open("rb") as file:
        begin = file.read(2)
    return len(begin) == 2 and begin[0] == 0x80 and 2 <= begin[1] <= 5


def read_pickle(path: Path) -> object:
    """The one value of a pickle, objects as `Made`. Raises BadExport, OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size > PICKLE_BYTES_MAX:
            raise BadExport(TOO_LARGE)
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _Reading(content, size).run()
        except (IndexError, struct.error, TypeError, ValueError, KeyError):
            raise BadExport(DAMAGED) from None


class _Reading:
    """The state of a reading: what is on the stack, and what was noted to be used again."""

    def __init__(self, content: mmap.mmap, size: int) -> None:
        self._content = content
        self._size = size
        self._at = 0
        self._stack: _List = []
        self._notes: dict[int, object] = {}
        self._cost = 0
        self._do: dict[int, Callable[[], None]] = dict(self._instructions())

    def run(self) -> object:
        """Follow the instructions to the last one."""
        while True:
            code = self._content[self._at]
            if code == ord("G"):
                self._read_floats()
                continue
            self._at += 1
            if code == ord("."):
                (value,) = self._stack
                return value
            do = self._do.get(code)
            if do is None:
                raise BadExport(NOT_A_GRAPH)
            self._spend(_STEP)
            do()

    def _instructions(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Each instruction by its byte."""
        push = self._stack.append
        yield 0x80, lambda: self._skip(1)  # the protocol
        yield 0x95, lambda: self._skip(8)  # a frame's length
        yield ord("N"), lambda: push(None)
        yield 0x88, lambda: push(True)
        yield 0x89, lambda: push(False)
        yield ord("K"), lambda: push(self._number("<B"))
        yield ord("M"), lambda: push(self._number("<H"))
        yield ord("J"), lambda: push(self._number("<i"))
        yield 0x8A, lambda: push(int.from_bytes(self._bytes("<B"), "little", signed=True))
        for code, length in ((0x8C, "<B"), (ord("X"), "<I"), (0x8D, "<Q")):
            yield code, partial(self._push_text, length)
        for code, length in ((ord("C"), "<B"), (ord("B"), "<I"), (0x8E, "<Q"), (0x96, "<Q")):
            yield code, partial(self._push_bytes, length)
        yield ord("]"), lambda: push([])
        yield ord("}"), lambda: push({})
        yield 0x8F, lambda: push([])  # a set: who reads it wants its values in any order
        yield ord("("), lambda: push(_MARK)
        yield ord(")"), lambda: push(())
        yield ord("t"), lambda: push(tuple(self._since_mark()))
        for count in (1, 2, 3):
            yield 0x84 + count, partial(self._push_tuple, count)
        yield ord("a"), lambda: self._extend(self._take(1))
        yield ord("e"), lambda: self._extend(self._since_mark())
        yield 0x90, lambda: self._extend(self._since_mark())
        yield ord("s"), lambda: self._set_items(self._take(2))
        yield ord("u"), lambda: self._set_items(self._since_mark())
        yield 0x94, lambda: self._note(len(self._notes))
        yield ord("q"), lambda: self._note(self._number("<B"))
        yield ord("r"), lambda: self._note(self._number("<I"))
        yield ord("h"), lambda: push(self._notes[self._number("<B")])
        yield ord("j"), lambda: push(self._notes[self._number("<I")])
        yield ord("c"), lambda: push(_find_shape(self._line(), self._line()))
        yield 0x93, lambda: push(_find_shape(*self._take(2)))
        yield 0x81, lambda: push(_begin(*self._take(2)))
        yield ord("R"), lambda: push(self._make(*self._take(2)))
        yield ord("b"), self._build_top

    def _read_floats(self) -> None:
        """A run of numbers at once: an embedding has thousands."""
        found = _FLOATS.match(self._content, self._at)
        if found is None:
            raise BadExport(DAMAGED)
        count = (found.end() - self._at) // 9
        self._spend(count)
        self._stack += struct.unpack(">" + "xd" * count, found[0])
        self._at = found.end()

    def _spend(self, cost: int) -> None:
        self._cost += cost
        if self._cost > COST_MAX:
            raise BadExport(TOO_LARGE)

    def _skip(self, count: int) -> None:
        self._at += count

    def _number(self, form: str) -> int:
        size = struct.calcsize(form)
        (number,) = struct.unpack(form, self._content[self._at : self._at + size])
        self._at += size
        return cast("int", number)

    def _bytes(self, length_form: str) -> bytes:
        length = self._number(length_form)
        if length > self._size - self._at:
            raise BadExport(DAMAGED)
        self._at += length
        return self._content[self._at - length : self._at]

    def _line(self) -> str:
        end = self._content.find(b"\n", self._at, self._at + 256)
        if end < 0:
            raise BadExport(DAMAGED)
        line = self._content[self._at : end].decode()
        self._at = end + 1
        return line

    def _take(self, count: int) -> _List:
        taken = self._stack[-count:]
        if len(taken) < count or _MARK in taken:
            raise BadExport(DAMAGED)
        del self._stack[-count:]
        return taken

    def _since_mark(self) -> _List:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise BadExport(DAMAGED)
        taken = self._stack[at + 1 :]
        del self._stack[at:]
        return taken

    def _push_text(self, length_form: str) -> None:
        self._stack.append(self._bytes(length_form).decode("utf-8", "surrogatepass"))

    def _push_bytes(self, length_form: str) -> None:
        self._stack.append(self._bytes(length_form))

    def _push_tuple(self, count: int) -> None:
        self._stack.append(tuple(self._take(count)))

    def _build_top(self) -> None:
        (state,) = self._take(1)
        self._build(state, self._stack[-1])

    def _extend(self, values: _List) -> None:
        top = self._stack[-1]
        if not isinstance(top, list):
            raise BadExport(NOT_A_GRAPH)
        cast("_List", top).extend(values)

    def _set_items(self, items: _List) -> None:
        top = self._stack[-1]
        if not isinstance(top, dict) or not all(map(_is_key, items[::2])):
            raise BadExport(NOT_A_GRAPH)
        cast("dict[object, object]", top).update(zip(items[::2], items[1::2], strict=True))

    def _note(self, number: int) -> None:
        self._notes[number] = self._stack[-1]

    def _make(self, shape: object, arguments: object) -> object:
        """What numpy would make of these arguments, out of plain numbers."""
        if not isinstance(shape, Shape) or not isinstance(arguments, tuple):
            raise BadExport(NOT_A_GRAPH)
        given = cast("tuple[object, ...]", arguments)
        match shape.name, given:
            case "dtype", (str(code), *_) if code in _STRUCT_OF:
                return Made("dtype", {"code": code})
            case "array", _:
                return Made("ndarray")
            case "scalar", (Made(shape="dtype") as kind, bytes(raw)):
                (number,) = self._numbers(kind, raw)
                return number
            case "buffer", (bytes(raw), Made(shape="dtype") as kind, tuple(extent), *_):
                return self._rows(self._numbers(kind, raw), cast("tuple[object, ...]", extent), transposed=False)
            case "encode", (str(text), "latin1"):
                self._spend(len(text) // _STEP)
                return text.encode("latin1")
            case "inner", (Shape(name="graph"), "Node"):
                return Shape("node")
            case _:
                raise BadExport(NOT_A_GRAPH)

    def _build(self, state: object, made: object) -> None:
        """Give an object its fields, a type its byte order, an array its numbers."""
        match made, state:
            case Made(shape="graph" | "node"), dict(given):
                made.fields = cast("dict[object, object]", given)  # not a copy: many objects may share one
            case Made(shape="dtype"), (_, str(order), *_) if order in _ORDERS:
                made.order = _ORDERS[order]
            case Made(shape="ndarray", values=values), (
                _,
                tuple(extent),
                Made(shape="dtype") as kind,
                columns,
                bytes(raw),
            ):
                dimensions = cast("tuple[object, ...]", extent)
                values[:] = self._rows(self._numbers(kind, raw), dimensions, transposed=bool(columns))
            case _:
                raise BadExport(NOT_A_GRAPH)

    def _numbers(self, kind: Made, raw: bytes) -> tuple[int | float, ...]:
        form = _STRUCT_OF[cast("str", kind.fields["code"])]
        count = len(raw) // struct.calcsize("<" + form)
        self._spend(count)
        return struct.unpack(f"{kind.order}{count}{form}", raw)

    def _rows(self, numbers: Sequence[object], extent: tuple[object, ...], *, transposed: bool) -> list[object]:
        """Numbers as a list, or as a list of rows."""
        if len(extent) == 1 and extent[0] == len(numbers):
            return list(numbers)
        match extent:
            case (int(rows), int(width)) if width > 0 and rows * width == len(numbers):
                self._spend(_STEP * rows)
                if transposed:
                    return [list(numbers[row::rows]) for row in range(rows)]
                return [list(numbers[row * width : (row + 1) * width]) for row in range(rows)]
            case _:
                raise BadExport(NOT_A_GRAPH)


def _is_key(value: object, *, alone: bool = True) -> bool:
    """Whether a value is what the graph has for a key: a number, a name, or two of them, as of an edge.

    To hash others takes as long as who wrote them likes: a tuple is hashed with all that is in it, however often
    the same one is.
    """
    if isinstance(value, tuple):
        each_one = cast("tuple[object, ...]", value)
        return alone and len(each_one) <= 2 and all(_is_key(each, alone=False) for each in each_one)
    return value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) < 1 << 63)


def _find_shape(module: object, name: object) -> Shape:
    """What a name stands for. Nothing is looked up anywhere."""
    if not isinstance(module, str) or not isinstance(name, str):
        raise BadExport(NOT_A_GRAPH)
    if module.rpartition(".")[2] == "videograph" and name in ("VideoGraph", "VideoGraph.Node"):
        return Shape("graph" if name == "VideoGraph" else "node")
    if (module, name) not in _KNOWN:
        raise BadExport(NOT_A_GRAPH)
    return Shape(_KNOWN[module, name])


def _begin(shape: object, arguments: object) -> Made:
    """An object of the graph without its fields."""
    if not isinstance(shape, Shape) or shape.name not in ("graph", "node") or arguments != ():
        raise BadExport(NOT_A_GRAPH)
    return Made(shape.name)
