"""Digests of the Memories as the daemon last had them, so that `verify` has something to compare without it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from events.envelope import Reference


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """The digest of one user's Memory at a user_seq."""

    user: Reference
    user_seq: int
    facts: str
    scopes: str
    trees: str
    units: str


def record_digests(connection: sqlite3.Connection, digests: list[StoredDigest]) -> None:
    """Keep these digests, in one transaction."""
    rows = [(each.user, each.user_seq, each.facts, each.scopes, each.trees, each.units) for each in digests]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("COMMIT")


def read_digests(connection: sqlite3.Connection) -> list[StoredDigest]:
    """All digests that were kept."""
    return [StoredDigest(*row) for row in connection.execute("SELECT * FROM digests")]
