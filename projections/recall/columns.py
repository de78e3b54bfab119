"""Columns of numbers that grow together, and sets that many rows share, kept once each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_FIRST_ROWS = 64


class Columns:
    """Named columns of one length. `lend` gives them away as they stand.

    What was lent is never written again: the first change of such a row is made to a copy of its column, and new
    rows lie beyond it. So a borrower's picture stays right while rows come, go and are used again, and lending
    itself copies nothing.
    """

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        """`dtypes`: numpy's names of the types; a new row is all zeros."""
        self.size = 0
        self._arrays: dict[str, NDArray[Any]] = {
            name: np.zeros(_FIRST_ROWS, kind) for name, kind in dtypes.items()
        }
        self._lent: dict[str, int] = {}  # how many rows of a column were given away

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The column as it stands; read it before the next change, and write it by `set` only."""
        return self._arrays[name][: self.size]

    def read(self, rows: NDArray[np.intp], *names: str) -> list[list[Any]]:
        """What stands in some rows of these columns, column by column."""
        if len(rows) == 1:
            # Without letting go of the interpreter, which a busy thread gives back milliseconds later.
            row = int(rows[0])
            return [[self._arrays[name].item(row)] for name in names]
        return [self._arrays[name].take(rows).tolist() for name in names]

    def append(self) -> int:
        """A new row."""
        if self.size == len(self._arrays[next(iter(self._arrays))]):
            for name, array in self._arrays.items():
                grown = np.zeros(2 * len(array), array.dtype)
                grown[: len(array)] = array
                self._arrays[name] = grown
            self._lent.clear()
        self.size += 1
        return self.size - 1

    def shrink(self, size: int) -> None:
        """Let go of the rows from this one on, which are all zeros."""
        self.size = min(self.size, size)

    def set(self, name: str, row: int, value: object) -> None:
        """Write one value."""
        if row < self._lent.get(name, 0):
            self._arrays[name] = self._arrays[name].copy()
            del self._lent[name]
        self._arrays[name][row] = value

    def lend(self, *names: str) -> tuple[NDArray[Any], ...]:
        """These columns as they stand, for good."""
        self._lent.update(dict.fromkeys(names, self.size))
        return tuple(self[name] for name in names)

    @property
    def size_bytes(self) -> int:
        """What the rows take."""
        return self.size * sum(array.itemsize for array in self._arrays.values())

    def freeze(self) -> dict[str, bytes]:
        """The bytes of each column."""
        return {name: self[name].tobytes() for name in self._arrays}

    def thaw(self, frozen: Mapping[str, bytes]) -> None:
        """Take what `freeze` gave in place of what is here."""
        for name, array in self._arrays.items():
            self._arrays[name] = np.frombuffer(frozen[name], array.dtype).copy()
            self.size = len(self._arrays[name])
            if not self.size:
                self._arrays[name] = array
        self._lent.clear()


class Shared(Generic[T]):
    """Values that many rows have in common, by number; one that no row has any more is let go of."""

    def __init__(self) -> None:
        self.values: list[T | None] = []
        self._number_of: dict[T, int] = {}
        self._holders: list[int] = []
        self.free: list[int] = []  # numbers to use again, the last one first

    def take(self, value: T) -> int:
        """The number of a value for one more row."""
        number = self._number_of.get(value)
        if number is None:
            number = self.free.pop() if self.free else len(self.values)
            if number == len(self.values):
                self.values.append(None)
                self._holders.append(0)
            self.values[number] = value
            self._number_of[value] = number
        self._holders[number] += 1
        return number

    def give_back(self, number: int) -> None:
        """One row less has this value."""
        self._holders[number] -= 1
        if not self._holders[number]:
            del self._number_of[self[number]]
            self.values[number] = None
            self.free.append(number)

    def find(self, value: T, otherwise: int) -> int:
        """The number of a value, if a row has it."""
        return self._number_of.get(value, otherwise)

    def __getitem__(self, number: int) -> T:
        """The value of a number that is taken."""
        value = self.values[number]
        assert value is not None
        return value

    def thaw(self, values: Iterable[T | None], free: Iterable[int], numbers: NDArray[np.int32]) -> None:
        """Take these values, by number, and numbers to use again; `numbers` are those that rows hold."""
        self.values = list(values)
        self.free = list(free)
        self._number_of = {value: number for number, value in enumerate(self.values) if value is not None}
        self._holders = np.bincount(numbers, minlength=len(self.values)).tolist()
