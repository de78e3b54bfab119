"""Which rows carry a mark: what filters ask for, by 64-bit hashes of what the marks say."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.state import MarksState

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What many rows carry, such as a name of one of two who talk, is kept as a column of all rows, too: of so few
# marks, and if so large a share of the rows carries it.
COLUMNS_MAX: Final = 4
COLUMN_SHARE_MIN: Final = 1 / 8


class MarkIndex:
    """Rows by mark, ascending. A mark without rows is not known any more."""

    def __init__(self) -> None:
        self._rows: dict[int, array[int]] = {}
        self._entries = 0
        # Columns of marks that many rows carry, until one more or one less does.
        self._columns: dict[int, NDArray[np.float32]] = {}
        # Marks that say the same of a row, by each of them.
        self._alike: dict[int, tuple[int, ...]] = {}

    def __contains__(self, mark: int) -> bool:
        """Whether a live row carries the mark."""
        return mark in self._rows

    def __len__(self) -> int:
        """How many marks are known."""
        return len(self._rows)

    def rows(self, mark: int) -> NDArray[np.int32]:
        """The rows that carry a mark, ascending; a copy, which later changes do not touch."""
        rows = self._rows.get(mark)
        return np.empty(0, dtype=np.int32) if rows is None else np.array(rows, dtype=np.int32)

    def alike(self, mark: int) -> tuple[int, ...]:
        """This mark with all that say the same of a row: those of one entity's names. The same tuple for each."""
        return self._alike.get(mark, (mark,))

    def set_alike(self, marks: Iterable[int], groups: Iterable[Iterable[int]]) -> None:
        """From now on these marks say the same as those of their group, or as no other; no row is touched."""
        for mark in marks:
            self._alike.pop(mark, None)
        for group in map(tuple, map(sorted, groups)):
            self._alike.update(dict.fromkeys(group, group))

    def column(self, mark: int, size: int) -> NDArray[np.float32]:
        """1 for each of the rows 0 .. size - 1 that carries a mark, 0 for others; read-only, and never changed."""
        column = self._columns.get(mark)
        if column is None or len(column) != size:
            column = np.zeros(size, dtype=np.float32)
            rows = self.rows(mark)
            column[rows.astype(np.intp)] = 1  # indices of another type take twice as long
            column.flags.writeable = False
            if len(rows) >= size * COLUMN_SHARE_MIN:
                self._columns.pop(mark, None)
                if len(self._columns) == COLUMNS_MAX:
                    del self._columns[next(iter(self._columns))]
                self._columns[mark] = column
        return column

    def add(self, row: int, marks: Iterable[int]) -> None:
        """Put marks on a row; those it carries already change nothing."""
        for mark in marks:
            rows = self._rows.get(mark)
            if rows is None:
                self._rows[mark] = array("i", (row,))
            elif rows[-1] < row:
                rows.append(row)
            else:
                place = bisect_left(rows, row)
                if rows[place] == row:
                    continue
                rows.insert(place, row)
            self._entries += 1
            self._columns.pop(mark, None)

    def remove(self, row: int, marks: Iterable[int]) -> None:
        """Take marks off a row. KeyError if it does not carry one of them."""
        for mark in marks:
            rows = self._rows[mark]
            place = bisect_left(rows, row)
            if place == len(rows) or rows[place] != row:
                raise KeyError(mark)
            del rows[place]
            self._entries -= 1
            self._columns.pop(mark, None)
            if not rows:
                del self._rows[mark]

    @property
    def entries(self) -> int:
        """How many marks all rows carry together."""
        return self._entries

    @property
    def size_bytes(self) -> int:
        """About what the marks take."""
        return 8 * self.entries + 100 * len(self._rows) + sum(each.nbytes for each in self._columns.values())

    def freeze(self) -> MarksState:
        """All of it."""
        marks = np.fromiter(self._rows, dtype=np.uint64, count=len(self._rows))
        counts = np.fromiter(map(len, self._rows.values()), dtype=np.int32, count=len(self._rows))
        return MarksState(
            marks.tobytes(), counts.tobytes(), b"".join(rows.tobytes() for rows in self._rows.values())
        )

    @classmethod
    def thaw(cls, state: MarksState) -> MarkIndex:
        """What `freeze` gave."""
        index, start = cls(), 0
        marks = np.frombuffer(state.marks, dtype=np.uint64).tolist()
        for mark, count in zip(marks, np.frombuffer(state.counts, dtype=np.int32).tolist(), strict=True):
            index._rows[mark] = array("i", state.rows[start : start + 4 * count])
            start += 4 * count
        index._entries = start // 4
        return index
