"""What many want at the same time is asked for once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


@dataclass(slots=True)
class _Out(Generic[T]):
    landed: anyio.Event = field(default_factory=anyio.Event)
    answer: T | None = None
    failure: Exception | None = None


class Flight(Generic[T]):
    """A call that is shared by all who come while it is out. Nothing is kept of one that is over."""

    def __init__(self) -> None:
        self._out: _Out[T] | None = None

    async def share(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` gives, to whoever was the first. Raises what it raises.

        When whoever asked is cancelled, one of those that wait asks instead.
        """
        while (out := self._out) is not None:
            await out.landed.wait()
            if out.failure is not None:
                raise out.failure
            if out.answer is not None:
                return out.answer
        out = self._out = _Out[T]()
        try:
            out.answer = await ask()
        except Exception as error:  # those who wait for the same answer hear of it, too
            out.failure = error
            raise
        finally:
            self._out = None
            out.landed.set()
        return out.answer
