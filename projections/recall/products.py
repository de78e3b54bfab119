"""Inner products of rows of int8, exact: numkong's kernels where they are installed, numpy otherwise."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_numkong: ModuleType | None
try:
    import numkong as _numkong
except ImportError:  # numpy answers the same, in four to ten times the time
    _numkong = None

# Sums of so many products of two int8 are below 2 ** 24, up to which float32 holds every whole number.
_COLUMNS_EXACT: Final = 1024
_ROWS_AT_ONCE: Final = 1024


def integer_products(left: NDArray[np.int8], right: NDArray[np.int8], out: NDArray[np.floating[Any]]) -> None:
    """left @ right.T into `out`, (len(left), len(right)): whole numbers, rounded only if `out` cannot hold them.

    numkong lets other threads run meanwhile.
    """
    if not len(right):
        return
    if _numkong is not None:
        _numkong.cdist(left, right, "dot", out=out)
    else:
        numpy_products(left, right, out)


def side_by_side(left: NDArray[np.int8], right: NDArray[np.int8]) -> NDArray[np.integer[Any] | np.floating[Any]]:
    """left @ right.T for a few rows on the left, as whole numbers in (len(right), len(left)).

    All of `left` is compared with each row at once: six rows with thousands in a third of the time.
    """
    if _numkong is not None and len(left) and len(right):
        products: NDArray[np.int32] = np.asarray(_numkong.dots_packed(right, _numkong.dots_pack(left)))
        return products
    out = np.empty((len(left), len(right)))
    numpy_products(left, right, out)
    return out.T


def numpy_products(left: NDArray[np.int8], right: NDArray[np.int8], out: NDArray[np.floating[Any]]) -> None:
    """The same without numkong."""
    for start in range(0, len(right), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        total = np.zeros((len(left), len(right[rows])))
        for first in range(0, left.shape[1], _COLUMNS_EXACT):
            columns = slice(first, first + _COLUMNS_EXACT)
            total += left[:, columns].astype(np.float32) @ right[rows, columns].astype(np.float32).T
        out[:, rows] = total
