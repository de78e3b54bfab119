"""Errands: what is done for users beside everything else, as long as the embedder answers.

Whoever wants one does not wait for it: the user is planned again when it is done, or when it is worth another try.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from daemon.logs import Report, place_of
from events.envelope import Reference
from events.errors import LogClosed, LogDamaged, StoreUnusable
from projections.ports import EmbedderUnavailable

# Before a failed errand is run again; the embedder has its own ideas of when to try.
FAILED_PAUSE_S: Final = 2.0
# An errand that takes longer is waited for no more by those who can do without.
PATIENCE_S: Final = 10.0
# While the embedder is away so many users are planned after each pause, to find out whether it is back: everybody
# else would be planned for nothing.
PROBING_MAX: Final = 8

Errand: TypeAlias = Callable[[], Awaitable[None]]


class Errands:
    """Errands of all users, each under its name once at a time."""

    def __init__(
        self, report: Report, *, failed_pause_s: float = FAILED_PAUSE_S, patience_s: float = PATIENCE_S
    ) -> None:
        # Called with a user for whom something was done, or should be tried again.
        self.on_done: Callable[[Reference], None] = lambda _: None
        self._report = report
        self._failed_pause_s, self._patience_s = failed_pause_s, patience_s
        self._tasks: TaskGroup | None = None
        self._under_way: set[tuple[Reference, str]] = set()
        # Users whose errand takes very long, with how many of them do.
        self._slow: dict[Reference, int] = {}
        # Whose last errand failed (None: the embedder failed, which is everybody's), and until when none is begun.
        self._failed: dict[Reference | None, float] = {}
        # Users to be told when one may be begun again.
        self._put_off: dict[Reference, None] = {}
        self._has_failed = anyio.Event()

    async def run(self) -> None:
        """Run what is begun, for ever."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                self._tell_put_off()
                while True:
                    await self._has_failed.wait()
                    self._has_failed = anyio.Event()
                    while self._put_off:
                        await anyio.sleep(self._failed_pause_s)
                        self._tell_put_off()
            finally:
                self._tasks = None

    def is_away(self, user: Reference) -> bool:
        """Whether what a user wants cannot be had for now, or not soon."""
        return None in self._failed or user in self._failed or user in self._slow

    def begin(self, user: Reference, name: str, errand: Errand) -> bool:
        """Begin an errand; False when it runs already, or cannot be begun now and the user is told later."""
        if (user, name) in self._under_way:
            return False
        paused_until = max(self._failed.get(None, 0.0), self._failed.get(user, 0.0))
        if self._tasks is None or anyio.current_time() < paused_until:
            self._put_off[user] = None
            self._has_failed.set()  # who was told of the last failure may be here only now
            return False
        self._under_way.add((user, name))
        self._tasks.start_soon(self._run, user, name, errand, name=f"worker.{name}")
        return True

    async def _run(self, user: Reference, name: str, errand: Errand) -> None:
        try:
            async with anyio.create_task_group() as both:
                both.start_soon(self._lose_patience, user)
                await self._try(user, errand)
                both.cancel_scope.cancel()
        finally:
            self._under_way.discard((user, name))
        self.on_done(user)

    async def _try(self, user: Reference, errand: Errand) -> None:
        try:
            await errand()
        except EmbedderUnavailable:
            self._note_failed(user, None)  # `status` says what became of it
        except (LogDamaged, LogClosed, StoreUnusable):
            self._note_failed(user, user)  # whoever follows the log reports it
        except Exception as error:  # a task's top: a fault in one errand must not end the daemon
            self._report("worker.plan_failed", error=type(error).__name__, place=place_of(error))
            self._note_failed(user, user)
        else:
            failed = [self._failed.pop(each, None) for each in (None, user)]
            if failed != [None, None]:
                self._tell_put_off()

    async def _lose_patience(self, user: Reference) -> None:
        await anyio.sleep(self._patience_s)
        self._slow[user] = self._slow.get(user, 0) + 1
        self.on_done(user)  # it goes on without
        try:
            await anyio.sleep_forever()
        finally:
            self._slow[user] -= 1
            if not self._slow[user]:
                del self._slow[user]

    def _note_failed(self, user: Reference, whose: Reference | None) -> None:
        self._failed[whose] = anyio.current_time() + self._failed_pause_s
        self._put_off[user] = None
        self._has_failed.set()

    def _tell_put_off(self) -> None:
        limit = PROBING_MAX if None in self._failed else None
        for user in list(islice(self._put_off, limit)):
            del self._put_off[user]
            self.on_done(user)
