"""How the columns that are added to a score are stretched over the rows that may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scale:
    """Stretches low .. high to 0 .. weight; what is all one value says nothing and becomes 0."""

    low: float
    high: float
    factor: float

    @classmethod
    def over(cls, values: NDArray[np.floating[Any]], weight: float) -> Scale:
        """From the least to the most of these, of which there is at least one."""
        low, high = float(values.min()), float(values.max())
        return cls(low, high, weight / (high - low) if high > low else 0.0)

    @classmethod
    def over_blend(cls, near: NDArray[np.float32], weight: float) -> Scale:
        """Of nearness in several spaces, in deviations; less than one of these is not stretched to all."""
        low, high = float(near.min()), float(near.max())
        return cls(low, high, weight / max(high - low, 1.0))

    @classmethod
    def over_known(cls, cosines: NDArray[np.float32], weight: float) -> Scale:
        """Without the zeros of rows that have no vector yet.

        Some models give 0.7 to 0.9 to everything; beside a zero all of that would be the same (two points of
        R@10).
        """
        scale = cls.over(cosines, weight)
        if scale.low or not scale.high:
            return scale
        return cls.over(cosines[cosines != 0], weight)

    def apply(self, values: Column) -> Column:
        """These, stretched."""
        return (values - self.low) * self.factor
