"""Mem0's memories in the forms they come in: lists of versions, a vector store's points, its history."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from memforest.importing.entries import Chosen, Entry, Found, Skipped
from memforest.importing.formats import read_export, recognise
from memforest.importing.items import BadExport

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ALICE = Chosen(user="alice", embedding_model="small-2")
HISTORY = """CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT,
    event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"""
OLD_HISTORY = """CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, prev_value TEXT, new_value TEXT,
    event TEXT, timestamp DATETIME, is_deleted INTEGER)"""


def read(path: Path, chosen: Chosen = ALICE) -> list[Entry]:
    return list(read_export(path, "mem0", chosen))


def bodies(entries: list[Entry]) -> list[dict[str, Any]]:
    return [entry.body for entry in entries if isinstance(entry, Found)]


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def database(path: Path, table: str, rows: Sequence[tuple[Any, ...]]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(table)
        connection.executemany(f"INSERT INTO history VALUES ({','.join('?' * len(rows[0]))})", rows)
        connection.commit()
    return path


def test_a_page_of_the_platform_and_the_open_source_answer_say_the_same(tmp_path: Path) -> None:
    memory = {
        "id": "x-1",
        "memory": "Alice is allergic to nuts.",
        "user_id": "al",
        "created_at": "2024-01-02T03:04:05Z",
        "expiration_date": None,
        "metadata": None,
    }
    page = write(tmp_path / "page.json", {"count": 1, "next": None, "previous": None, "results": [memory]})
    own = write(tmp_path / "own.json", {"results": [memory], "relations": [{"source": "alice"}]})
    bare = write(tmp_path / "bare.json", [memory])

    assert bodies(read(page)) == bodies(read(own)) == bodies(read(bare))
    assert bodies(read(page, Chosen()))[0]["user_id"] == "al"
    assert [recognise(path) for path in (page, own, bare)] == ["mem0"] * 3


@pytest.mark.parametrize("wrapped", [True, False])
def test_points_of_a_vector_store_bring_their_embeddings(tmp_path: Path, wrapped: bool) -> None:
    payload = {
        "data": "Alice likes tea.",
        "hash": "0f",
        "user_id": "al",
        "run_id": "r-1",
        "created_at": "2024-01-02T03:04:05-07:00",
        "source": "chat",
    }
    points = [{"id": 7, "vector": [0.5, -1, 0], "payload": payload}, {"id": "p", "vector": None, "payload": {}}]
    path = write(tmp_path / "points.json", {"result": {"points": points}} if wrapped else {"points": points})
    entries = read(path)
    unnamed = bodies(read(path, Chosen()))[0]

    assert recognise(path) == "mem0"
    assert bodies(entries) == [
        {
            "type": "memory",
            "id": "7",
            "user_id": "alice",
            "session_id": "r-1",
            "content": "Alice likes tea.",
            "timestamp": "2024-01-02T03:04:05-07:00",
            "metadata": {"source": "chat"},
            "embedding": [0.5, -1, 0],
            "embedding_model": "small-2",
        }
    ]
    assert [(each.place, each.reason) for each in entries if isinstance(each, Skipped)] == [
        ("result 2", "has no `memory`")
    ]
    assert "embedding_model" not in unnamed


def test_an_embedding_beside_a_memory_is_taken_or_left(tmp_path: Path) -> None:
    memory = {"id": "x", "memory": "Likes tea.", "embedding": [1, 2]}
    path = write(
        tmp_path / "a.json", [memory, {**memory, "embedding": [0, 0]}, {**memory, "embedding": "Xylophon"}]
    )
    entries = [entry for entry in read(path) if isinstance(entry, Found)]
    left = read(path, Chosen(user="alice", embeddings=False))

    assert [entry.body.get("embedding") for entry in entries] == [[1, 2], None, None]
    assert [entry.bare for entry in entries] == [False, True, True]
    assert not any("embedding" in body for body in bodies(left))


def test_a_history_tells_what_is_known_still_as_its_last_change_left_it(tmp_path: Path) -> None:
    rows = [
        ("1", "m-1", None, "Likes tea.", "ADD", "2024-01-02T03:04:05Z", None, 0, None, None),
        ("2", "m-2", None, "Lives in Rome.", "ADD", "2024-01-03T00:00:00Z", None, 0, None, None),
        ("3", "m-1", "Likes tea.", "Likes green tea.", "UPDATE", "2024-01-02T03:04:05Z", "2024-02", 0, None, None),
        ("4", "m-2", "Lives in Rome.", None, "DELETE", None, None, 1, None, None),
    ]
    path = database(tmp_path / "history.db", HISTORY, rows)
    before = path.read_bytes()
    (known,) = bodies(read(path))

    assert recognise(path) == "mem0"
    assert (known["id"], known["content"], known["timestamp"]) == (
        *("m-1", "Likes green tea.", "2024-01-02T03:04:05Z"),
    )
    assert (known["user_id"], known["session_id"]) == ("alice", "import")
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["history.db"]


def test_a_history_of_an_older_release_is_read_and_names_no_user(tmp_path: Path) -> None:
    path = database(tmp_path / "h.db", OLD_HISTORY, [("1", "m-1", None, "Likes tea.", "ADD", "2024-01-02", 0)])
    (entry,) = read(path, Chosen())

    assert bodies(read(path))[0]["timestamp"] == "2024-01-02"
    assert isinstance(entry, Skipped)
    assert "names no user" in entry.reason


def test_another_database_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(other.read_bytes()[:100] + bytes(200))
    for path in (other, damaged):
        with pytest.raises(BadExport):
            read(path)
