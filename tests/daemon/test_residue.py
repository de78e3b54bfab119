"""Looking for what was erased: it is found wherever it still stands, and nothing else is."""

from __future__ import annotations

import json
import os
import random
import socket
import sqlite3
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import anyio
import msgspec
import nats
import numpy as np
import pytest

from daemon.bus.subjects import turn_subject
from daemon.erasure.fingerprints import Fingerprints, Window
from daemon.erasure.residue import Residue, ScanFailed, ScanResult, scan
from daemon.erasure.searching import SLICE_BYTES, Found, Request, WindowSearch, search_folder
from tests.nats_server import running_server

SECRET_TEXT = "Xylophon at nine, behind the old mill"
SEED = b"seed"
KeptAsked = Callable[[Sequence[Window]], Awaitable[Collection[Window]]]


def fingerprints_of(*texts: str) -> Fingerprints:
    fingerprints = Fingerprints(SEED)
    for text in texts:
        fingerprints.add(text)
    return fingerprints


def kept_in(*texts: str) -> KeptAsked:
    """Answers as the log does: whether a reading stands in a text that is kept."""

    async def is_kept(windows: Sequence[Window]) -> list[Window]:
        held = [text.encode() for text in texts]
        return [window for window in windows if any(r in text for r in window.readings for text in held)]

    return is_kept


async def scan_for(folder: Path, *texts: str, kept: Sequence[str] = ()) -> ScanResult:
    return await scan(folder, fingerprints_of(*texts), kept_in(*kept))


def search(folder: Path, windows: Sequence[bytes], block_bytes: int = 4096) -> Found:
    return search_folder(Request(str(folder), list(windows), block_bytes))


def commands_of_children() -> list[str]:
    """The command lines of the processes that this one started and that still run."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    return [Path(f"/proc/{child}/cmdline").read_text() for child in children]


def places_of(window: bytes, content: bytes) -> int:
    return sum(content.startswith(window, at) for at in range(len(content)))


async def test_words_in_a_plain_file_are_found_until_they_are_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "notes"
    file.parent.mkdir(parents=True)
    file.write_text(f"before {SECRET_TEXT} after")
    (tmp_path / "other").write_text("nothing of it")

    before = await scan_for(tmp_path, SECRET_TEXT)
    size = file.stat().st_size
    file.write_bytes(b"\0" * size)
    after = await scan_for(tmp_path, SECRET_TEXT)

    assert before.residues == (Residue("deep/er/notes", 2),)  # its beginning and its end
    assert not before.is_clean
    assert (after.residues, after.is_clean, after.windows) == ((), True, 2)
    assert (after.files, after.bytes_read) == (2, size + len("nothing of it"))


async def test_deleted_rows_are_found_in_the_log_and_in_its_write_ahead_log(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("CREATE TABLE words (text BLOB)")
        db.execute("INSERT INTO words VALUES (?)", (SECRET_TEXT,))
        db.execute("DELETE FROM words")
        in_wal = await scan_for(tmp_path, SECRET_TEXT)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        in_pages = await scan_for(tmp_path, SECRET_TEXT)
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        clean = await scan_for(tmp_path, SECRET_TEXT)

    assert [residue.file for residue in in_wal.residues] == ["a.db-wal"]
    assert [residue.file for residue in in_pages.residues] == ["a.db"]
    assert clean.is_clean


async def test_a_scan_takes_no_lock_from_the_log_that_is_open_in_this_process(tmp_path: Path) -> None:
    """Were a file of it closed in this process, the other program would delete the write-ahead log in use."""
    path = tmp_path / "a.db"
    count = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(*c.execute('SELECT count(*) FROM t'))"
    program = [sys.executable, "-c", count + "; c.close()", str(path)]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
        db.execute("INSERT INTO t VALUES (1)")
        await scan_for(tmp_path, SECRET_TEXT)
        await anyio.run_process(program)
        db.execute("INSERT INTO t VALUES (2)")
        other = await anyio.run_process(program)

    assert other.stdout == b"(2,)\n"


async def test_a_message_on_the_bus_is_found_until_the_bus_erases_it(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as server:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="turns", subjects=["memforest.>"])
        subject = turn_subject("alice", "café zéro")
        await stream.publish(subject, msgspec.json.encode({"content": SECRET_TEXT}))
        ack = await stream.publish(subject, json.dumps({"content": "Größe 中文字符测试"}).encode())
        fingerprints = fingerprints_of(SECRET_TEXT, "Größe 中文字符测试")
        before = await scan(tmp_path, fingerprints, kept_in())
        for seq in (1, ack.seq):
            await stream.delete_msg("turns", seq)
        after = await scan(tmp_path, fingerprints, kept_in())
        await client.close()

    assert [residue.file.rpartition(".")[2] for residue in before.residues] == ["blk"]
    assert before.residues[0].count == 2 + 2  # beginning and end of each text
    assert after.is_clean


def test_words_across_the_border_of_a_block_are_found_once(tmp_path: Path) -> None:
    window = b"sixteen or more!"
    for at in range(0, 300, 7):
        (tmp_path / f"{at:03}").write_bytes(b"." * at + window + b"." * (300 - at))

    found = [search(tmp_path, [window, b"nowhere!"], block_bytes) for block_bytes in (1, 15, 16, 17, 100, 4096)]

    assert all([hits.counts for hits in each.hits] == [[1]] * 43 for each in found)
    assert {each.bytes_read for each in found} == {43 * 316}


def test_a_file_that_is_all_window_and_one_that_lacks_its_last_byte(tmp_path: Path) -> None:
    window = b"sixteen or more!"
    (tmp_path / "all").write_bytes(window)
    (tmp_path / "less").write_bytes(window[:-1])
    (tmp_path / "none").touch()

    found = search(tmp_path, [window])

    assert [hits.file for hits in found.hits] == ["all"]
    assert found.files == 3


def test_zeros_behind_the_end_of_a_file_are_not_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"vector12")

    found = search(tmp_path, [b"vector12" + bytes(8)])

    assert found.hits == []


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("plain", str.encode),
        ("as msgspec writes JSON", msgspec.json.encode),
        ("as Python writes JSON", lambda text: json.dumps(text).encode()),
        (".NET", lambda text: json.dumps(text).replace("\\u", "\0").upper().replace("\0", "\\u").encode()),
        ("Go", lambda text: json.dumps(text, ensure_ascii=False).replace("<", "\\u003c").encode()),
    ],
)
def test_words_are_found_in_every_encoding_that_is_written(
    tmp_path: Path, name: str, written: Callable[[str], bytes]
) -> None:
    texts = {
        ".NET": ["中文字符测试数据库 😀😃😄😁", "ÄÖÜßÉÈÊÀÁÂ"],
        "Go": ["a<b<c<d<e<f<g<h<i", "1 < 2 < 3"],
    }.get(name, ["中文字符测试数据库 😀😃😄😁", 'a"b\\c\nd\te"f"g"h\x01i', "Größe 12"])
    for n, text in enumerate(texts):
        (tmp_path / str(n)).write_bytes(written(text))

    found = [search(tmp_path, fingerprints_of(text).windows()) for text in texts]

    assert [[hits.file for hits in each.hits] for each in found] == [[str(n)] for n in range(len(texts))]
    assert [each.hits[0].counts for each in found] == [[1] * len(each.hits[0].counts) for each in found]


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_a_vector_is_found_as_it_is_stored(tmp_path: Path, dtype: type[np.generic]) -> None:
    generator = np.random.default_rng(7)
    vectors = [(generator.normal(size=384) * 40).astype(dtype).tobytes() for _ in range(2)]
    (tmp_path / "derived.db").write_bytes(b"page" + vectors[0] + b"end")
    fingerprints = [Fingerprints(SEED), Fingerprints(SEED)]
    for each, vector in zip(fingerprints, vectors, strict=True):
        each.add_bytes(vector)

    found, missing = (search(tmp_path, each.windows()) for each in fingerprints)

    # Every 64 bytes and at the end.
    assert sum(found.hits[0].counts) == len(fingerprints[0]) == len(vectors[0]) // 64 + 1
    assert missing.hits == []


async def test_words_that_somebody_else_said_too_are_shared_and_no_residue(tmp_path: Path) -> None:
    mine, common = "Only I ever said this sentence", 'We "both" said\nthis: 中文字符测试'
    (tmp_path / "kept").write_text(common)
    (tmp_path / "kept.blk").write_bytes(msgspec.json.encode(common) + json.dumps(common).encode())
    shared = await scan_for(tmp_path, mine, common, kept=["also " + common])
    (tmp_path / "rest").write_text(mine)
    left = await scan_for(tmp_path, mine, common, kept=[common])
    none_kept = await scan_for(tmp_path, common, kept=["also"])

    assert (shared.residues, shared.is_clean) == ((), True)
    assert shared.shared == left.shared > 2
    assert left.residues == (Residue("rest", 2),)
    assert {residue.file for residue in none_kept.residues} == {"kept", "kept.blk"}
    assert none_kept.shared == 0


async def test_each_window_found_is_asked_for_once_and_none_that_was_not_found(tmp_path: Path) -> None:
    asked = list[Window]()

    async def is_kept(windows: Sequence[Window]) -> list[Window]:
        asked.extend(windows)
        return []

    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{SECRET_TEXT} {SECRET_TEXT}")
    result = await scan(tmp_path, fingerprints_of(SECRET_TEXT, "never written anywhere"), is_kept)

    assert sorted(window.raw for window in asked) == sorted(fingerprints_of(SECRET_TEXT).windows())
    assert result.residues == (Residue("a", 4), Residue("b", 4))


@pytest.mark.parametrize("seed", range(6))
def test_every_window_is_counted_as_often_as_it_stands_there(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    print(f"seed {seed}")
    letters = rng.choice([b"ab", b"abcd\0", bytes(range(256))])
    contents = [bytes(rng.choices(letters, k=rng.randint(0, 1500))) for _ in range(6)]
    # Some stand there, some nearly, some not.
    windows = set[bytes]()
    for _ in range(60):
        length, source = rng.choice([8, 16, 24, 32]), rng.choice(contents) + bytes(rng.choices(letters, k=32))
        at = rng.randrange(len(source) - length + 1)
        window = bytearray(source[at : at + length])
        if rng.random() < 0.3:
            window[rng.randrange(length)] = rng.choice(letters)
        windows.add(bytes(window))
    ordered = sorted(windows)
    for n, content in enumerate(contents):
        (tmp_path / str(n)).write_bytes(content)

    found = search(tmp_path, ordered, block_bytes=rng.randint(1, 700))

    expected = {
        str(n): {w: count for w, window in enumerate(ordered) if (count := places_of(window, content))}
        for n, content in enumerate(contents)
    }
    counted = {hits.file: dict(zip(hits.windows, hits.counts, strict=True)) for hits in found.hits}
    assert counted == {file: counts for file, counts in expected.items() if counts}


def test_windows_at_the_borders_of_what_is_searched_at_once_are_found() -> None:
    rng = np.random.default_rng(3)
    content = bytearray(rng.bytes(3 * SLICE_BYTES))
    starts = [edge + by for edge in (SLICE_BYTES, 2 * SLICE_BYTES) for by in range(-33, 2)]
    windows = [bytes(content[at : at + length]) for at in starts for length in (8, 16, 24, 32)]

    found = WindowSearch(windows).find(content + bytes(64), len(content), len(content))

    assert sorted(found.tolist()) == list(range(len(windows)))


def test_what_is_appended_while_it_is_read_is_left_for_later_and_a_shrinking_file_ends(tmp_path: Path) -> None:
    (tmp_path / "grows").write_text("." * 100)
    (tmp_path / "shrinks").write_text(SECRET_TEXT * 100)
    (tmp_path / "vanishes").write_text(SECRET_TEXT)

    def open_file(path: str, flags: int) -> int:
        if path.endswith("vanishes"):
            os.unlink(path)
        descriptor = os.open(path, flags)
        if path.endswith("shrinks"):
            os.truncate(path, 10)
        return descriptor

    windows = fingerprints_of(SECRET_TEXT).windows()
    found = search_folder(Request(str(tmp_path), list(windows), 64), open_file)

    assert (found.hits, found.unread) == ([], [])
    assert (found.files, found.bytes_read) == (2, 110)


async def test_links_are_not_followed_but_named_and_sockets_and_pipes_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "store"
    outside.mkdir()
    folder.mkdir()
    (outside / "text").write_text(SECRET_TEXT)
    (folder / "loop").symlink_to(folder)
    (folder / "away").symlink_to(outside)
    (folder / "nowhere").symlink_to("/nonexistent/file")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(folder)  # the path of a socket may have 107 bytes
        listening.bind("s.sock")
        result = await scan_for(folder, SECRET_TEXT)

    assert (result.files, result.residues) == (0, ())
    assert result.unread == ("away", "loop", "nowhere")
    assert not result.is_clean


def test_a_file_that_may_not_be_read_is_named_and_the_others_are_searched(tmp_path: Path) -> None:
    (tmp_path / "closed").write_text(SECRET_TEXT)
    (tmp_path / "open").write_text(SECRET_TEXT)

    def open_file(path: str, flags: int) -> int:
        if path.endswith("closed"):
            raise PermissionError
        return os.open(path, flags)

    windows = fingerprints_of(SECRET_TEXT).windows()
    found = search_folder(Request(str(tmp_path), list(windows)), open_file)

    assert [hits.file for hits in found.hits] == ["open"]
    assert found.unread == ["closed"]


def test_a_name_that_is_no_text_is_shown_with_escapes(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db"))).write_text(SECRET_TEXT)

    assert [hits.file for hits in search(tmp_path, fingerprints_of(SECRET_TEXT).windows()).hits] == ["\\xff.db"]


async def test_with_nothing_to_look_for_the_files_are_still_counted(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(SECRET_TEXT)

    result = await scan_for(tmp_path, "ok")

    assert (result.files, result.windows, result.residues) == (1, 0, ())


def test_a_large_file_is_not_read_at_once(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(16 * 1024**2)
        file.seek(0, os.SEEK_END)
        file.write(SECRET_TEXT.encode())
    windows = fingerprints_of(SECRET_TEXT).windows()
    tracemalloc.start()
    found = search(tmp_path, windows, block_bytes=64 * 1024)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found.hits[0].counts == [1, 1]
    assert peak_bytes < 6 * 1024**2


def test_a_link_that_takes_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "store"
    outside.write_text(SECRET_TEXT)
    folder.mkdir()
    (folder / "file").write_text("nothing")

    def open_file(path: str, flags: int) -> int:
        os.unlink(path)
        os.symlink(outside, path)
        return os.open(path, flags)

    found = search_folder(Request(str(folder), list(fingerprints_of(SECRET_TEXT).windows())), open_file)

    assert (found.hits, found.unread) == ([], ["file"])


async def test_a_folder_that_is_not_there_is_not_clean_but_an_error_without_the_words(tmp_path: Path) -> None:
    with pytest.raises(ScanFailed) as raised:
        await scan_for(tmp_path / "gone", SECRET_TEXT)

    error: BaseException | None = raised.value
    assert "Xylophon" not in repr(error)
    assert raised.value.__cause__ is None


async def test_a_cancelled_scan_leaves_no_process_behind(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(8 * 1024**3)
    with anyio.move_on_after(0.3) as scope:
        await scan_for(tmp_path, SECRET_TEXT)

    assert scope.cancelled_caught
    assert not any("daemon.erasure.searching" in command for command in commands_of_children())


def test_short_and_monotonous_texts_are_not_sampled_but_counted() -> None:
    fingerprints = fingerprints_of("", "ok", "seven b", "-" * 40, "hahahahahaha")
    fingerprints.add_bytes(bytes(64))
    fingerprints.add_bytes(b"short")
    nothing = len(fingerprints)
    fingerprints.add("eight by")

    assert (nothing, fingerprints.unsampled) == (0, 7)
    assert fingerprints.windows() == (b"eight by",)


def test_windows_are_spread_over_a_text_and_reach_its_end() -> None:
    text = " ".join(f"word{n}" for n in range(60))
    windows = fingerprints_of(text).windows()
    places = sorted(text.encode().index(window) for window in windows)

    assert {len(window) for window in windows} == {16}
    assert (places[0], places[-1]) == (0, len(text) - 16)
    assert max(after - before for before, after in pairwise(places)) <= 64


def test_so_many_windows_at_most_are_kept_and_the_order_of_the_texts_does_not_matter() -> None:
    texts = [f"the sentence of number {n}, and what follows it to its end {n}" for n in range(500)]
    kept, again, other = (Fingerprints(seed, windows_max=64) for seed in (b"1", b"1", b"2"))
    for text in texts:
        kept.add(text)
        other.add(text)
    for text in reversed(texts):
        again.add(text)
        again.add(text)

    assert len(kept.windows()) == len(kept) == 64
    assert set(kept.windows()) == set(again.windows()) != set(other.windows())
    assert all(any(window in text.encode() for text in texts) for window in kept.windows())


def test_broken_text_is_sampled_and_nothing_shows_the_words() -> None:
    fingerprints = fingerprints_of("Xylophon \ud800 and the rest of the sentence")

    assert len(fingerprints) == 2
    assert "Xylo" not in repr(fingerprints) + repr(Window(fingerprints.windows()[0]))


@pytest.mark.parametrize(
    ("raw", "readings"),
    [
        (b"plain words, 16b", (b"plain words, 16b",)),
        (rb"a\nb \"c\" and so", (rb"a\nb \"c\" and so", b'a\nb "c" and so')),
        (rb"\u00e9t\u00e9 2024 \u0", (rb"\u00e9t\u00e9 2024 \u0", "été 2024 ".encode())),
        (rb"abcde \ud83d\ude00 \ud83d\ude0", (rb"abcde \ud83d\ude00 \ud83d\ude0", "abcde 😀 ".encode())),
        (rb"ends in a slash\\"[:-1], (rb"ends in a slash\\"[:-1], b"ends in a slash")),
        ("cut in é"[:7].encode() + b" \xc3", ("cut in é"[:7].encode() + b" \xc3", b"cut in  ")),
        (b"line\nbreak, real", (b"line\nbreak, real",)),
    ],
)
def test_a_window_may_be_read_in_more_than_one_way(raw: bytes, readings: tuple[bytes, ...]) -> None:
    assert Window(raw).readings == readings
