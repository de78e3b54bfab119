"""Work in small steps: a generator that gives way between them, and what it returns.

Whoever runs it lets others run in between, or runs it in one go. A step takes less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from typing import Final, TypeAlias, TypeVar

S = TypeVar("S")
T = TypeVar("T")
# Lists or tuples of bytes and numbers.
C = TypeVar("C", list[bytes], tuple[int, bytes])

# So many are sorted in less than a millisecond.
_SORTED_AT_ONCE: Final = 1_000

Steps: TypeAlias = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """What the steps return, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def each_of(items: Iterable[S], work: Callable[[S], T]) -> Steps[list[T]]:
    """What is made of each of some items, one a step."""
    made: list[T] = []
    for item in items:
        made.append(work(item))
        yield
    return made


def sort_in_steps(items: Sequence[C]) -> Steps[Iterator[C]]:
    """The items in order, which is found as they are taken: one after the other, or the first few."""
    runs: list[list[C]] = []
    for start in range(0, len(items), _SORTED_AT_ONCE):
        runs.append(sorted(items[start : start + _SORTED_AT_ONCE]))
        yield
    return merge(*runs)
