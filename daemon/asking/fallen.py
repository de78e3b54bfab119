"""What was forgotten or taken back while a model had the words of an answer: none of it is given out any more."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import anyio

from events.envelope import RecordedEvent, Reference
from events.log import EventLog

K = TypeVar("K", int, Reference)
# SQLite takes at most 32,766 variables in a statement, and two hundred groups may have more turns.
_KEYS_AT_ONCE: Final = 500


def find_fallen(
    connection: sqlite3.Connection, user: Reference, recorded: Mapping[int, RecordedEvent]
) -> frozenset[int]:
    """The seqs of these events of a user whose words must not be shown any more, though they may still be there.

    What was only worded anew stands: it was said like this when it was read.
    """
    sessions = {session for event in recorded.values() for session in event.lineage}
    forgotten = _read_numbers(
        connection, "SELECT subject, forgotten_seq FROM erasures", "subject", {user, *sessions}
    )
    erased = _read_numbers(connection, "SELECT seq, erases FROM voids", "seq", set(recorded))
    return frozenset(
        seq
        for seq, event in recorded.items()
        if erased.get(seq, 0) > 0 or any(forgotten.get(each, 0) > seq for each in (user, *event.lineage))
    )


def without_words(recorded: Mapping[int, RecordedEvent], fallen: frozenset[int]) -> dict[int, RecordedEvent]:
    """The same events, those that fell as they are once they are erased."""
    return {seq: replace(event, event=None) if seq in fallen else event for seq, event in recorded.items()}


async def while_it_stands(
    log: EventLog, user: Reference, recorded: Mapping[int, RecordedEvent], ask: Callable[[], Awaitable[None]]
) -> None:
    """Let `ask`, which raises nothing, come to its end; it is cancelled once something of this falls.

    What fell before it begins keeps it from beginning. An adapter may send the words again minutes later, and
    nothing forgotten goes out any more.
    """
    find: Callable[[sqlite3.Connection], frozenset[int]] = partial(find_fallen, user=user, recorded=recorded)
    began = log.head
    # The oldest of this may have fallen before the newest was said.
    if log.undone_at > min(recorded, default=0) and len(await log.read(find)):
        return
    async with anyio.create_task_group() as tasks:

        async def watch(seq: int) -> None:
            while True:
                since, seq = seq, log.head
                if log.undone_at > since and len(await log.read(find)):
                    tasks.cancel_scope.cancel()
                    return
                await log.wait_past(seq)

        tasks.start_soon(watch, began)
        await ask()
        tasks.cancel_scope.cancel()


def _read_numbers(connection: sqlite3.Connection, query: str, column: str, keys: set[K]) -> dict[K, int]:
    found, listed = dict[K, int](), tuple(keys)
    for start in range(0, len(listed), _KEYS_AT_ONCE):
        some = listed[start : start + _KEYS_AT_ONCE]
        marks = ",".join("?" * len(some))
        found.update(connection.execute(f"{query} WHERE {column} IN ({marks})", some).fetchall())
    return found
