"""The file `derived.db`: its tables, and how rows in it are used.

A row is overwritten in place and never deleted, and one that is empty is used again, so nothing that was erased
is left in a page: SQLite leaves copies behind when it moves rows (events/migrations.py). All rows of a table that
hold bytes of somebody are as long as before, so none ever moves.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from events.envelope import REFERENCE_BYTES, Reference, identify

# Tells our file from other SQLite files ("MFdv").
APPLICATION_ID: Final = 0x4D466476
# Another number, another file: nothing is migrated, since everything can be made anew.
FORMAT: Final = 1
# What stands in a row that is nobody's.
NOBODY: Final = bytes(REFERENCE_BYTES)
# What a row takes besides its bytes, with its entries in indexes.
_ROW_BYTES: Final = 150

_SCHEMA = f"""
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {FORMAT};
    -- Which log this was made from: the value of the chain of its event at a seq.
    CREATE TABLE log (seq INTEGER NOT NULL, link BLOB NOT NULL);
    INSERT INTO log VALUES (0, x'');
    CREATE TABLE vectors (
        id INTEGER PRIMARY KEY, owner BLOB NOT NULL, model BLOB NOT NULL, key BLOB NOT NULL, proof BLOB NOT NULL,
        vector BLOB NOT NULL
    );
    CREATE INDEX vectors_by_key ON vectors (owner, model, key);
    -- The events whose words are in a vector.
    CREATE TABLE sources (seq INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (seq, id)) WITHOUT ROWID;
    CREATE INDEX sources_by_vector ON sources (id);
    CREATE TABLE pieces (id INTEGER PRIMARY KEY, owner BLOB NOT NULL, n INTEGER NOT NULL, piece BLOB NOT NULL);
    CREATE INDEX pieces_by_owner ON pieces (owner, n);
    CREATE TABLE snapshots (
        owner BLOB PRIMARY KEY, user_seq INTEGER NOT NULL, link BLOB NOT NULL, made_by BLOB NOT NULL,
        size INTEGER NOT NULL, proof BLOB NOT NULL
    ) WITHOUT ROWID;
    -- Who was asked for last, by a number that only grows.
    CREATE TABLE owners (owner BLOB PRIMARY KEY, used INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX owners_by_use ON owners (used);
"""


class NotOurs(Exception):
    """The file is of another release, or of another program, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the file holds."""

    vectors: int
    snapshots: int
    bytes: int


def owner_of(user: Reference) -> bytes:
    """Under what a user's rows stand: the hashes in a snapshot are keyed with the reference, which is not here."""
    return identify(b"mf.derived", user)


def open_derived(path: Path) -> sqlite3.Connection:
    """Open or create the file. Raises `NotOurs`, sqlite3.Error or OSError."""
    made = not path.exists()
    if made:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
    try:
        connection.executescript(
            """
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = NORMAL;     -- what a power cut takes can be made again
            PRAGMA secure_delete = ON;
            PRAGMA journal_size_limit = 4194304;
            PRAGMA temp_store = MEMORY;
            """
        )
        if made:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION_ID, FORMAT):
            raise NotOurs
        connection.execute("SELECT seq, link FROM log").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def read_bound(connection: sqlite3.Connection) -> tuple[int, bytes]:
    """The seq and link of the log that the file was made from."""
    seq, link = connection.execute("SELECT seq, link FROM log").fetchone()
    return int(seq), bytes(link)


def measure(connection: sqlite3.Connection) -> Sizes:
    """What the file holds."""
    (vectors,) = connection.execute("SELECT count(*) FROM vectors WHERE owner != ?", (NOBODY,)).fetchone()
    (snapshots,) = connection.execute("SELECT count(*) FROM snapshots").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return Sizes(int(vectors), int(snapshots), int(pages) * int(page_bytes))


def free_places(
    connection: sqlite3.Connection, table: str, which: str, values: tuple[object, ...], limit: int
) -> list[int]:
    """Rows that are nobody's, to be used again."""
    rows = connection.execute(
        f"SELECT id FROM {table} WHERE owner = ? AND {which} LIMIT ?", (NOBODY, *values, limit)
    )
    return [place for (place,) in rows]


def make_room(
    connection: sqlite3.Connection,
    table: str,
    owner: bytes,
    rows: tuple[int, int, int],
    empty: Callable[[sqlite3.Connection, bytes], int],
) -> int:
    """How many rows a table may still grow by; at its limit others, least recently used first, give theirs up.

    `rows`: how many are wanted, the bytes of each, and those that the table may take. `empty` lets an owner's go.
    """
    wanted, row_bytes, room_bytes = rows
    if wanted <= 0:
        return 0
    (last,) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()
    fresh = max(0, min(wanted, room_bytes // (row_bytes + _ROW_BYTES) - int(last)))
    missing = wanted - fresh
    while missing > 0:
        found = connection.execute(
            f"""SELECT owner FROM owners o WHERE owner != ?
                AND EXISTS (SELECT 1 FROM {table} t WHERE t.owner = o.owner) ORDER BY used LIMIT 1""",
            (owner,),
        ).fetchone()
        if found is None:
            break
        missing -= empty(connection, found[0])
    return fresh


def touch(connection: sqlite3.Connection, owner: bytes) -> None:
    """Note that somebody was asked for; a disk that takes nothing keeps nobody from reading."""
    with suppress(sqlite3.OperationalError):
        connection.execute(
            """INSERT INTO owners VALUES (?, (SELECT coalesce(max(used), 0) + 1 FROM owners))
               ON CONFLICT (owner) DO UPDATE SET used = excluded.used""",
            (owner,),
        )
