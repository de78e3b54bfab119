"""Equal questions that are asked at the same time share one call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")
# Questions under way; more than any worker starts. Beyond it each asks for itself.
FLIGHTS_MAX = 4_096


@dataclass(slots=True)
class _Flight(Generic[T]):
    landed: anyio.Event = field(default_factory=anyio.Event)
    answer: T | None = None
    failure: Exception | None = None


class Flights(Generic[T]):
    """Calls under way by their question. Nothing is kept of one that is over."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def share(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The answer, and whether it was this caller who asked for it. Raises what `ask` raises.

        When whoever asked is cancelled, one of those that wait asks instead.
        """
        while (flight := self._flights.get(question)) is not None:
            await flight.landed.wait()
            if flight.failure is not None:
                raise flight.failure
            if flight.answer is not None:
                return flight.answer, False
        if len(self._flights) >= FLIGHTS_MAX:
            return await ask(), True
        flight = self._flights[question] = _Flight[T]()
        try:
            flight.answer = await ask()
        except Exception as error:
            flight.failure = error
            raise
        finally:
            del self._flights[question]
            flight.landed.set()
        return flight.answer, True
