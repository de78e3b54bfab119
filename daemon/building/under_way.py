"""Questions that are with the model: they are broken off once what they are about is forgotten or edited.

An adapter may send the words of a question again minutes later: after a pause that the endpoint asks for, or in
parts. Nothing of a forgotten session goes out any more, and nobody pays for an answer that would be dropped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from events.envelope import NewEvent, Reference
from events.gate import is_moot
from events.log import EventLog
from events.session import UNDOING

# What makes a question moot. An answer that fell otherwise is refused when it comes.
_TYPES: Final = tuple(event.wire_name for event in UNDOING)


@dataclass(eq=False, slots=True)
class _Question:
    """Whose it is, an event that falls with what it is about, and how it is broken off."""

    user: Reference
    about: NewEvent
    asking: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class UnderWay:
    """What is asked now."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._questions: set[_Question] = set()

    @contextmanager
    def breakable(self, user: Reference, about: NewEvent) -> Generator[anyio.CancelScope]:
        """A scope that is cancelled when `about` would be refused from now on; look yourself whether it is yet."""
        question = _Question(user, about)
        self._questions.add(question)
        try:
            with question.asking:
                yield question.asking
        finally:
            self._questions.discard(question)

    async def watch(self) -> None:
        """Break off what has become moot, for ever."""
        seq = self._log.head
        while True:
            await self._log.wait_past(seq)
            since, seq = seq, self._log.head
            if self._questions and self._log.undone_at > since:
                await self._look(since)

    async def _look(self, since: int) -> None:
        """Look at the questions of all users of whom something was undone behind a seq."""
        asked = tuple(self._questions)

        def find_moot(connection: sqlite3.Connection) -> list[_Question]:
            marks = ",".join("?" * len(_TYPES))
            query = f"SELECT user FROM events WHERE seq > ? AND type IN ({marks})"
            users = {user for (user,) in connection.execute(query, (since, *_TYPES))}
            return [each for each in asked if each.user in users and is_moot(connection, each.about, each.user)]

        for question in await self._log.read(find_moot):
            question.asking.cancel()
