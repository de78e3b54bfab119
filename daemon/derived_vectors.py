"""Vectors in `derived.db`: kept by user, model and key, and overwritten with the words they were made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Final

from daemon.derived_file import free_places, make_room, read_bound, touch
from events.database import immediate
from events.envelope import REFERENCE_BYTES
from events.kept import SCHEMA_WORDS

# Of the hash of a model's name, and of the one that shows whether a vector is as it was kept.
HASH_BYTES: Final = 8
_KEYS_AT_ONCE: Final = 400
# Up to so many times the vectors that are wanted are read at once, and the others left.
_MOST: Final = 1.5
# Longer than any window that is looked for.
_SEPARATOR: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A vector as it is stored."""

    key: bytes
    seqs: tuple[int, ...]
    vector: bytes


def load_vectors(
    connection: sqlite3.Connection, owner: bytes, model: bytes, keys: Sequence[bytes]
) -> dict[bytes, bytes]:
    """The vectors of these keys that are here and whole."""
    prove = _begin_proofs(owner, model)
    rows = _read_most(connection, owner, model, keys) if len(keys) > _KEYS_AT_ONCE else None
    if rows is None:
        rows = chain.from_iterable(
            connection.execute(
                f"""SELECT key, proof, vector FROM vectors
                    WHERE owner = ? AND model = ? AND key IN ({",".join("?" * len(some))})""",
                (owner, model, *some),
            )
            for some in (keys[at : at + _KEYS_AT_ONCE] for at in range(0, len(keys), _KEYS_AT_ONCE))
        )
    found = {key: vector for key, proof, vector in rows if prove(key, vector) == proof}
    touch(connection, owner)
    return found


def _read_most(
    connection: sqlite3.Connection, owner: bytes, model: bytes, keys: Sequence[bytes]
) -> Iterable[tuple[bytes, bytes, bytes]] | None:
    """Keys, proofs and vectors of these keys, if they are most of what an owner has; None if not.

    In the order in which they lie in the file, which takes half as long as one by one.
    """
    which = "SELECT id FROM vectors WHERE owner = ? AND model = ?"
    (held,) = connection.execute(f"SELECT count(*) FROM ({which})", (owner, model)).fetchone()
    if held > _MOST * len(keys):
        return None
    rows = connection.execute(f"SELECT key, proof, vector FROM vectors WHERE id IN ({which})", (owner, model))
    wanted = frozenset(keys)
    return (row for row in rows if row[0] in wanted)


def keep_vectors(
    connection: sqlite3.Connection,
    owner: bytes,
    model: bytes,
    rows: Sequence[VectorRow],
    bound: tuple[int, bytes],
    room_bytes: int,
    brought: bytes,
) -> None:
    """Store vectors in place of those of the same keys, and let go of those of other embedders.

    Those of `brought`, which no embedder made, stand beside them. What there is no room for is left out.
    """
    with immediate(connection):
        touch(connection, owner)
        if model != brought:
            _empty(connection, "owner = ? AND model NOT IN (?, ?)", (owner, model, brought))
        for row in rows:
            _empty(connection, "owner = ? AND model = ? AND key = ?", (owner, model, row.key))
        size = len(rows[0].vector) if rows else 0
        free = partial(free_places, connection, "vectors", "length(vector) = ?", (size,), len(rows))
        wanted = (len(rows) - len(free()), size, room_bytes)
        fresh = make_room(connection, "vectors", owner, wanted, empty_vectors)
        places = free()
        prove = _begin_proofs(owner, model)
        for at, row in enumerate(rows[: len(places) + fresh]):
            values = (owner, model, row.key, prove(row.key, row.vector), row.vector)
            if at < len(places):
                place = places[at]
                connection.execute(
                    "UPDATE vectors SET owner = ?, model = ?, key = ?, proof = ?, vector = ? WHERE id = ?",
                    (*values, place),
                )
            else:
                cursor = connection.execute("INSERT INTO vectors VALUES (NULL, ?, ?, ?, ?, ?)", values)
                place = int(cursor.lastrowid or 0)
            connection.executemany("INSERT INTO sources VALUES (?, ?)", {(seq, place) for seq in row.seqs})
        if bound[0] > read_bound(connection)[0]:
            connection.execute("UPDATE log SET seq = ?, link = ?", bound)


def erase_vectors(connection: sqlite3.Connection, seqs: Sequence[int]) -> int:
    """Overwrite the vectors that words of these events are in; how many. In the caller's transaction."""
    return sum(
        _empty(connection, "id = ?", (place,))
        for seq in seqs
        for (place,) in connection.execute("SELECT id FROM sources WHERE seq = ?", (seq,)).fetchall()
    )


def read_vectors_of(connection: sqlite3.Connection, seqs: Sequence[int]) -> list[bytes]:
    """The vectors that words of these events are in."""
    return [
        vector
        for seq in seqs
        for (vector,) in connection.execute(
            "SELECT v.vector FROM sources s JOIN vectors v ON v.id = s.id WHERE s.seq = ?", (seq,)
        )
    ]


def read_schema(connection: sqlite3.Connection) -> bytes:
    """The words of the file's own schema."""
    rows = connection.execute(f"SELECT {SCHEMA_WORDS} FROM sqlite_master")
    return _SEPARATOR.join(words for (words,) in rows)


def find_in_vectors(
    connection: sqlite3.Connection, needles: set[bytes], erased: AbstractSet[int], after: int, limit: int = 4_000
) -> tuple[set[bytes], int | None]:
    """The byte strings that stand in vectors of a page behind id `after`, and the id to go on from, if any.

    Vectors of words of `erased` events are passed over: had one been left, it would be no reason to keep it.
    """
    rows = connection.execute(
        "SELECT id, vector FROM vectors WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
    ).fetchall()
    last = rows[-1][0] if rows else after
    sources = connection.execute("SELECT id, seq FROM sources WHERE id > ? AND id <= ?", (after, last))
    left = {place for place, seq in sources if seq in erased}
    held = _SEPARATOR.join(vector for place, vector in rows if place not in left)
    found = {needle for needle in needles if needle in held}
    return found, last if len(rows) == limit else None


def empty_vectors(connection: sqlite3.Connection, owner: bytes) -> int:
    """Overwrite the vectors of an owner; how many. In the caller's transaction."""
    return _empty(connection, "owner = ?", (owner,))


def _empty(connection: sqlite3.Connection, which: str, values: tuple[object, ...]) -> int:
    """Overwrite rows with zeros of the same length."""
    places = connection.execute(f"SELECT id FROM vectors WHERE {which}", values).fetchall()
    connection.executemany("DELETE FROM sources WHERE id = ?", places)
    connection.executemany(
        f"""UPDATE vectors SET owner = zeroblob({REFERENCE_BYTES}), model = zeroblob({HASH_BYTES}),
                key = zeroblob({REFERENCE_BYTES}), proof = zeroblob({HASH_BYTES}),
                vector = zeroblob(length(vector)) WHERE id = ?""",
        places,
    )
    return len(places)


def _begin_proofs(owner: bytes, model: bytes) -> Callable[[bytes, bytes], bytes]:
    """What proves keys and their vectors: SQLite does not notice a flipped bit, this does."""
    begun = blake2b(owner + model, digest_size=HASH_BYTES, person=b"mf.vector")

    def prove(key: bytes, vector: bytes) -> bytes:
        proof = begun.copy()
        proof.update(key + vector)
        return proof.digest()

    return prove
