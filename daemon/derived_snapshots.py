"""Snapshots in `derived.db`: one an owner at most, cut into pieces of one size."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from daemon.derived_file import NOBODY, free_places, make_room, touch
from events.database import immediate

PIECE_BYTES: Final = 8 * 1024
_PROOF_BYTES: Final = 16
# In one byte, two or three, the number of a piece would make rows of three sizes.
_FIRST_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A snapshot as it is stored; `link` is the value of the user's chain where it was made."""

    user_seq: int
    link: bytes
    made_by: bytes
    content: bytes


def load_snapshot(connection: sqlite3.Connection, owner: bytes) -> SnapshotRow | None:
    """The snapshot of an owner; None when there is none, or when it is not as it was kept."""
    row = connection.execute(
        "SELECT user_seq, link, made_by, size, proof FROM snapshots WHERE owner = ?", (owner,)
    ).fetchone()
    if row is None:
        return None
    user_seq, link, made_by, size, proof = row
    pieces = connection.execute("SELECT piece FROM pieces WHERE owner = ? ORDER BY n", (owner,))
    snapshot = SnapshotRow(user_seq, link, made_by, b"".join(piece for (piece,) in pieces)[:size])
    touch(connection, owner)
    return snapshot if _prove_snapshot(owner, snapshot) == proof else None


def keep_snapshot(connection: sqlite3.Connection, owner: bytes, snapshot: SnapshotRow, room_bytes: int) -> bool:
    """Store a snapshot in place of the one before; False when there is no room for it, and then there is none."""
    content, count = snapshot.content, -(-len(snapshot.content) // PIECE_BYTES)
    with immediate(connection):
        touch(connection, owner)
        empty_snapshot(connection, owner)
        wanted = count - len(free_places(connection, "pieces", "1", (), count))
        fresh = make_room(connection, "pieces", owner, (wanted, PIECE_BYTES, room_bytes), empty_snapshot)
        places = free_places(connection, "pieces", "1", (), count)
        if len(places) + fresh < count:
            return False
        for n in range(count):
            piece = content[n * PIECE_BYTES : (n + 1) * PIECE_BYTES].ljust(PIECE_BYTES, b"\0")
            values = (owner, n + _FIRST_PIECE, piece)
            if n < len(places):
                connection.execute(
                    "UPDATE pieces SET owner = ?, n = ?, piece = ? WHERE id = ?", (*values, places[n])
                )
            else:
                connection.execute("INSERT INTO pieces VALUES (NULL, ?, ?, ?)", values)
        connection.execute(
            "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)",
            (
                owner,
                snapshot.user_seq,
                snapshot.link,
                snapshot.made_by,
                len(content),
                _prove_snapshot(owner, snapshot),
            ),
        )
    return True


def empty_snapshot(connection: sqlite3.Connection, owner: bytes) -> int:
    """Overwrite the snapshot of an owner; how many pieces. In the caller's transaction."""
    connection.execute("DELETE FROM snapshots WHERE owner = ?", (owner,))
    return connection.execute(
        "UPDATE pieces SET owner = ?, piece = zeroblob(length(piece)) WHERE owner = ?", (NOBODY, owner)
    ).rowcount


def _prove_snapshot(owner: bytes, snapshot: SnapshotRow) -> bytes:
    head = owner + snapshot.user_seq.to_bytes(8, "big") + snapshot.link + snapshot.made_by
    return blake2b(head + snapshot.content, digest_size=_PROOF_BYTES, person=b"mf.snapshot").digest()
