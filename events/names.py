"""Names beside their references: the only place, besides words, where a string from outside is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from events.envelope import Reference


def write_names(connection: sqlite3.Connection, rows: Iterable[tuple[Reference, str, bytes]]) -> None:
    """Keep names (reference, kind, UTF-8) that are not there yet.

    One that was erased is written again only by what begins its bearer anew; all else is refused before.
    """
    connection.executemany(
        """INSERT INTO names VALUES (?, ?, ?)
           ON CONFLICT (reference) DO UPDATE SET text = excluded.text WHERE text IS NULL""",
        rows,
    )


def read_names(connection: sqlite3.Connection, references: Iterable[Reference]) -> dict[Reference, str]:
    """The names of these references, without those that are erased."""
    found: dict[Reference, str] = {}
    for reference in references:
        row = connection.execute(
            "SELECT CAST(text AS BLOB) FROM names WHERE reference = ? AND text IS NOT NULL", (reference,)
        ).fetchone()
        if row is not None:
            found[reference] = row[0].decode()
    return found
