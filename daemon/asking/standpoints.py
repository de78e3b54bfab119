"""Where a question is asked from: a user's memory as it is now, or as it was at a position of the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from daemon.asking.answer_types import Watermark
from daemon.asking.freshness import find_lag
from daemon.asking.history import agree, count_redacted
from daemon.asking.spaces import Aim
from events.hindsight import read_hindsight

if TYPE_CHECKING:
    from daemon.asking.freshness import Freshness
    from daemon.asking.history import History
    from daemon.memories import Memories
    from events.envelope import Reference
    from events.log import LogReader
    from projections.memory import Memory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a Memory reaches, and of a past one how many events of before have lost their words."""

    watermark: Watermark
    redacted: int | None = None


class Standpoint(Protocol):
    """Gives the Memory that a question is asked of, each time anew: anything may be forgotten in between."""

    @property
    def user(self) -> Reference:
        """Whose memory is asked."""
        ...

    def use(self) -> AbstractAsyncContextManager[Memory]:
        """The Memory, pinned while in use. Raises `LogDamaged` or `StoreUnusable`."""
        ...

    def aim(self, memory: Memory, /) -> Aim:
        """By which vectors it is searched."""
        ...

    async def read(
        self, reader: LogReader, memory: Memory, projected: int, find: Callable[[sqlite3.Connection], T]
    ) -> tuple[T, Seen] | None:
        """What `find` reads of the log, and how far the Memory reaches that was at `projected` when it was asked.

        None when it must not answer any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class Now:
    """A memory as it is; `aim` as `Standpoint.aim`."""

    user: Reference
    memories: Memories
    freshness: Freshness
    aim: Callable[[Memory], Aim]

    def use(self) -> AbstractAsyncContextManager[Memory]:
        """As `Standpoint.use`."""
        return self.memories.use(self.user)

    async def read(
        self, reader: LogReader, memory: Memory, projected: int, find: Callable[[sqlite3.Connection], T]
    ) -> tuple[T, Seen] | None:
        """As `Standpoint.read`; what is undone is hidden at once, so this Memory may always answer."""
        found, lag = await reader.read(lambda db: (find(db), find_lag(db, self.user, projected)))
        return found, Seen(self.freshness.make_watermark(memory, projected, *lag))


@dataclass(frozen=True, slots=True)
class Then:
    """A memory as it was at a user_seq, without what was forgotten since. By words alone: it has no vectors."""

    user: Reference
    user_seq: int
    history: History

    def use(self) -> AbstractAsyncContextManager[Memory]:
        """As `Standpoint.use`."""
        return self.history.at(self.user, self.user_seq)

    def aim(self, _: Memory, /) -> Aim:
        """As `Standpoint.aim`."""
        return Aim()

    async def read(
        self, reader: LogReader, memory: Memory, projected: int, find: Callable[[sqlite3.Connection], T]
    ) -> tuple[T, Seen] | None:
        """As `Standpoint.read`; None when something was forgotten since the Memory was folded."""
        hindsight = memory.hindsight
        found, known_now, redacted = await reader.read(
            lambda db: (
                find(db),
                read_hindsight(db, self.user, projected),
                count_redacted(db, projected, hindsight),
            )
        )
        if not agree(known_now, hindsight):
            return None
        return found, Seen(Watermark(projected, projected, memory.pending(), 0.0), redacted)
