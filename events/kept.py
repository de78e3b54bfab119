"""Which byte strings stand in what the log keeps: a scan after an erasing must not take those for residues.

In pages, and each page for all strings at once: a statement a string would read the whole log as often.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Set as AbstractSet

from events.erasure import Unerased

# Events a page: about a megabyte of words, so that no snapshot is held for long.
PAGE_EVENTS = 4_000
_PAGE_ROWS = 20_000
# A row of sqlite_master as it stands in the file: kind, name and table without anything in between.
SCHEMA_WORDS = "CAST(type || name || tbl_name || char(0) || coalesce(sql, '') AS BLOB)"


def find_in_words(
    connection: sqlite3.Connection, needles: AbstractSet[bytes], erased: Unerased, after: int
) -> tuple[set[bytes], int | None]:
    """Those that stand in kept words of a page of events behind seq `after`, and the seq to go on from, if any.

    Words that an erasing left standing are no reason to keep its subject's: a step left out is to be found.
    """
    (head,) = connection.execute("SELECT seq FROM head").fetchone()
    last = after + PAGE_EVENTS
    rows = connection.execute(
        f"""SELECT text FROM words WHERE seq > :after AND seq <= :last AND text IS NOT NULL
            AND seq NOT IN ({_own(erased)} AND seq > :after AND seq <= :last)""",
        {**_values(connection, erased), "after": after, "last": last},
    )
    return _find(rows, needles), last if last < head else None


def find_elsewhere(connection: sqlite3.Connection, needles: AbstractSet[bytes], erased: Unerased) -> set[bytes]:
    """Those that stand in names or letters that are kept, or are words of the schema itself."""
    whose = "user" if erased.is_user else "session"
    values = _values(connection, erased)
    found: set[bytes] = set()
    for statement in (
        f"""SELECT text FROM names WHERE text IS NOT NULL AND reference IS NOT :subject
            AND reference NOT IN (SELECT key FROM events WHERE seq IN ({_own(erased)}))""",
        f"SELECT payload FROM letters WHERE payload IS NOT NULL AND {whose} IS NOT :subject",
        f"SELECT message_id FROM letters WHERE message_id IS NOT NULL AND {whose} IS NOT :subject",
        f"SELECT subject FROM letters WHERE {whose} IS NOT :subject",
        "SELECT DISTINCT CAST(reason AS BLOB) FROM letters",
        f"SELECT {SCHEMA_WORDS} FROM sqlite_master",
        "SELECT DISTINCT CAST(type AS BLOB) FROM events",
        "SELECT DISTINCT CAST(task AS BLOB) FROM ledger",
        "SELECT DISTINCT CAST(task AS BLOB) FROM query_usage",
        "SELECT body FROM events",
    ):
        if found != needles:
            found |= _find(connection.execute(statement, values), needles - found)
    return found


def _own(erased: Unerased) -> str:
    """The events that were erased."""
    if erased.is_user:
        return "SELECT seq FROM events WHERE user = :subject AND seq < :forgotten_seq"
    return "SELECT seq FROM lineage WHERE session = :subject AND seq < :forgotten_seq"


def _values(connection: sqlite3.Connection, erased: Unerased) -> dict[str, bytes | int]:
    """The values of the statements."""
    (forgotten_seq,) = connection.execute(
        "SELECT forgotten_seq FROM erasures WHERE subject = ?", (erased.subject,)
    ).fetchone()
    return {"subject": erased.subject, "forgotten_seq": forgotten_seq}


def _find(rows: sqlite3.Cursor, needles: AbstractSet[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    while page := rows.fetchmany(_PAGE_ROWS):
        # A zero byte in a needle is the edge of a text.
        held = b"\x00".join((b"", *(bytes(text) for (text,) in page), b""))
        found.update(needle for needle in needles - found if needle in held)
    return found
