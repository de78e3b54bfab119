"""What questions took of models: sums by user, task and day, beside the ledger.

A question changes no memory, so there is no event of it: it must move no user_seq, and a past must answer the same
whatever was asked since. The sums stand in `events.db` all the same, and not in `derived.db`: that one may be
deleted whenever there is trouble, and nothing says what was spent from which it could be built again, so that the
budget of a day would begin anew with it. They hold numbers and references, never a word.

When a user is forgotten, what was spent on the questions is counted on for all, and no more as theirs. Days of
which no budget is asked any more become one: nobody needs to know on which days somebody asked, and the table
would grow with each of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final, NamedTuple

from events.database import immediate
from events.envelope import Reference
from events.memory import Usage

# Whom a sum belongs to that is of no user in the log.
NOBODY: Final[Reference] = b""
# The day of what was spent longer ago than on the newest days, which a clock that is set back may come to again.
EARLIER: Final = -1
DAYS_KEPT: Final = 3
# Sums that go to `EARLIER` in one transaction: some milliseconds of the writer's time.
SLICE_SUMS: Final = 200

_COLUMNS: Final = "calls, prompt_tokens, cached_tokens, completion_tokens, cost_nano, latency_ms"
_ADDED: Final = f"""ON CONFLICT (user, day, task) DO UPDATE SET
    ({_COLUMNS}) = ({", ".join(f"{each} + excluded.{each}" for each in _COLUMNS.split(", "))})"""
_SUMS: Final = ", ".join(f"sum({each})" for each in _COLUMNS.split(", "))


class Spent(NamedTuple):
    """What a sum is of: a user or `NOBODY`, a day (`ledger.day_of`) or `EARLIER`, and the name of a task."""

    user: Reference
    day: int
    task: str


def add_query_usage(connection: sqlite3.Connection, spent: Mapping[Spent, Usage]) -> None:
    """Add to the sums, in a transaction of its own; repairs and splits are not summed.

    A user who is not in the log, or was forgotten meanwhile, is nobody. Raises sqlite3.Error and adds nothing.
    """
    with immediate(connection):
        for of, usage in spent.items():
            user = of.user if _is_known(connection, of.user) else NOBODY
            connection.execute(
                f"INSERT INTO query_usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) {_ADDED}",
                (
                    user,
                    of.day,
                    of.task,
                    usage.calls,
                    usage.prompt_tokens,
                    usage.cached_tokens,
                    usage.completion_tokens,
                    usage.cost_nano,
                    usage.latency_ms,
                ),
            )
        _end_days(connection, before=max((of.day for of in spent), default=0) - DAYS_KEPT + 1)


def disown_query_usage(connection: sqlite3.Connection, user: Reference) -> None:
    """Count what was spent on a user's questions as nobody's, in the transaction that forgets the user."""
    connection.execute(
        f"""INSERT INTO query_usage SELECT ?, day, task, {_COLUMNS} FROM query_usage WHERE user = ? {_ADDED}""",
        (NOBODY, user),
    )
    connection.execute("DELETE FROM query_usage WHERE user = ?", (user,))


def read_query_usage(connection: sqlite3.Connection) -> dict[tuple[int, str], Usage]:
    """What was spent on the questions of all users, by day and task."""
    rows = connection.execute(f"SELECT day, task, {_SUMS} FROM query_usage GROUP BY day, task")
    return {(day, task): Usage(*sums) for day, task, *sums in rows}


def _end_days(connection: sqlite3.Connection, before: int) -> None:
    """Add some sums of days before one to what was spent earlier."""
    rows = connection.execute(
        "SELECT user, day, task FROM query_usage WHERE day BETWEEN 0 AND ? LIMIT ?", (before - 1, SLICE_SUMS)
    ).fetchall()
    of_row = "FROM query_usage WHERE user = ? AND day = ? AND task = ?"
    connection.executemany(
        f"INSERT INTO query_usage SELECT user, {EARLIER}, task, {_COLUMNS} {of_row} {_ADDED}", rows
    )
    connection.executemany(f"DELETE {of_row}", rows)


def _is_known(connection: sqlite3.Connection, user: Reference) -> bool:
    query = "SELECT 1 FROM users WHERE user = ? AND forgotten IS NULL"
    return connection.execute(query, (user,)).fetchone() is not None
