"""What stands in the files of a log, read behind its back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def stored_rows(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a statement, through a read-only connection."""
    with _connection(f"{path.as_uri()}?mode=ro") as connection:
        return connection.execute(statement, values).fetchall()


def stored_bytes(path: Path) -> bytes:
    """The file and its write-ahead log, as they stand on the disk."""
    wal = path.with_name(path.name + "-wal")
    return path.read_bytes() + (wal.read_bytes() if wal.exists() else b"")


def stored_tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table with all its rows."""
    names = stored_rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name: stored_rows(path, f"SELECT * FROM {name}") for (name,) in names}


def damage(path: Path, statement: str, *values: object) -> None:
    """Change the file of a closed log in a way that no program of ours does."""
    with _connection(path.as_uri()) as connection:
        changed = connection.execute(statement, values).rowcount
        assert changed != 0, f"nothing was damaged by: {statement}"


@contextmanager
def _connection(uri: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()
