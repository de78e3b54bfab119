"""Values of a file one after the other, in bounded memory."""

from __future__ import annotations

import json
import random
import time
import zipfile
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from memforest.importing import items
from memforest.importing.items import BadExport, read_items

if TYPE_CHECKING:
    from pathlib import Path


def values(path: Path) -> list[Any]:
    return [item.value for item in read_items(path)]


def test_lists_of_any_layout_give_their_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in pieces of a few bytes, so that every item is cut somewhere."""
    monkeypatch.setattr(items, "_PIECE_BYTES", 3)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(100):
        made = [_a_value(chance, 3) for _ in range(chance.randrange(6))]
        path = tmp_path / "list.json"
        text = json.dumps(made, indent=chance.choice([None, 0, 2]), ensure_ascii=chance.random() < 0.5)
        path.write_text(chance.choice(["", "\ufeff", " \n\n"]) + text + chance.choice(["", "\n", " \n "]))

        assert values(path) == made


def _a_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(7 if depth else 5)
    if kind < 5:
        return [chance.randrange(10**9), chance.random(), '你好 ] , [ \\ " é', None, True][kind]
    if kind == 5:
        return [_a_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {str(n): _a_value(chance, depth - 1) for n in range(chance.randrange(4))}


def test_lines_and_one_document_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text('\ufeff{"a": 1}\n\n{"a": 2}')
    lines = list(read_items(path))
    path.write_text(json.dumps({"a": [1, {"b": 2}]}, indent=2))
    document = list(read_items(path))
    path.write_text('{"a": broken\n{"a": 2}\n')
    broken = list(read_items(path))

    assert [(item.place, item.value) for item in lines] == [("line 1", {"a": 1}), ("line 3", {"a": 2})]
    assert [(item.place, item.value) for item in document] == [("the document", {"a": [1, {"b": 2}]})]
    assert [(item.place, item.fault) for item in broken] == [("line 1", "not JSON in UTF-8"), ("line 2", None)]


def test_a_list_that_breaks_off_gives_what_was_whole_and_then_says_so(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('[{"a": 1}, {"a": 2}, {"a": "quokk')
    reading = read_items(path)

    assert [item.value for item in islice(reading, 2)] == [{"a": 1}, {"a": 2}]
    with pytest.raises(BadExport, match="Item 3") as raised:
        next(reading)
    assert "quokk" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1} {"a": 2}]',
        '[{"a": 1}] [{"a": 2}]',
        "[]x",
        '[{"a": 1}; 2]',
        "[NaN]",
        "[1",
        '[{"a": 1},]',
        "{\n  broken\n}\n",
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(text)
    with pytest.raises(BadExport):
        values(path)


def test_bytes_that_are_no_text_are_refused_in_a_list_and_skipped_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(BadExport):
        values(path)
    path.write_bytes(b'{"a": "\xff"}\n{"a": 2}\n')

    assert [item.fault for item in read_items(path)] == ["not JSON in UTF-8", None]


def test_only_one_item_is_held_and_one_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "ITEM_BYTES_MAX", 1000)
    monkeypatch.setattr(items, "_PIECE_BYTES", 100)
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"n": n} for n in range(10_000)]))
    whole = len(values(path))
    path.write_text(json.dumps([{"n": 1}, "x" * 5000]))
    with pytest.raises(BadExport, match="longer than"):
        values(path)
    path.write_text('{"n": 1}\n"' + "x" * 5000 + '"\n{"n": 3}\n')
    lines = [(item.place, item.fault is None) for item in read_items(path)]

    assert whole == 10_000
    assert lines == [("line 1", True), ("line 2", False), ("line 3", True)]


def test_an_archive_without_the_file_or_with_a_password_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("other.json", "[]")
    with pytest.raises(BadExport):
        list(read_items(tmp_path / "a.zip", lambda name: name == "conversations.json"))


@pytest.mark.parametrize("damage", ["directory", "name", "deflated", "checksum", "cut"])
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([{"n": n} for n in range(1000)]))
    raw = bytearray(path.read_bytes())
    directory = raw.rindex(b"PK\x01\x02")
    if damage == "directory":
        raw[directory : directory + 4] = b"XXXX"
    elif damage == "name":
        raw[30] ^= 1
    elif damage == "deflated":
        raw[100:140] = b"\xff" * 40
    elif damage == "checksum":
        raw[directory + 16] ^= 1
    else:
        raw[1500:directory] = b""
    path.write_bytes(raw)

    with pytest.raises(BadExport):
        list(read_items(path, lambda name: name == "conversations.json"))


def test_short_items_behind_a_long_one_cost_what_they_cost_alone(tmp_path: Path) -> None:
    def cost_s(made: list[Any]) -> float:
        path = tmp_path / "list.json"
        path.write_text(json.dumps(made))
        began = time.process_time()
        assert sum(1 for _ in read_items(path)) == len(made)
        return time.process_time() - began

    short: list[Any] = [{"n": n} for n in range(5_000)]
    alone, long, both = cost_s(short), cost_s(["x" * (4 << 20)]), cost_s(["x" * (4 << 20), *short])

    assert both < 4 * (alone + long) + 0.2
