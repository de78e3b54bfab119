"""The derived store: what is kept comes back bit for bit, what was forgotten is in no file, no fault is fatal."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.derived import DERIVED, DerivedStore
from daemon.derived_snapshots import PIECE_BYTES
from daemon.erasure.erasing import erase, erase_what_was_retracted, sample
from daemon.store_files import with_sidecars
from events.erasure import read_unerased
from events.errors import StoreUnusable
from events.log import EventLog
from projections.ports import CachedVector, StoredSnapshot
from tests.builders import (
    KEYS,
    SECRET,
    ManualClock,
    a_batch,
    a_forgetting,
    a_retraction,
    a_turn,
    a_user_forgetting,
    an_id,
    seeded_nonces,
)
from tests.bus_in_use import Reported
from tests.scripted_bus import erasing_without_a_server

ALICE, BOB = KEYS.user("alice"), KEYS.user("bob")
ROOM = 64 << 20
DIMENSIONS = 384
MODEL = "a model"


def a_vector(name: str, *seqs: int, dimensions: int = DIMENSIONS) -> CachedVector:
    """A vector that no other name has."""
    values = np.random.default_rng(list(name.encode())).standard_normal(dimensions)
    return CachedVector(name.encode(), seqs, (values / np.linalg.norm(values)).astype(np.float16))


def a_snapshot(user_seq: int, size: int = 3 * PIECE_BYTES + 5, seed: int = 1) -> StoredSnapshot:
    return StoredSnapshot(user_seq, an_id("parameters"), random.Random(seed).randbytes(size))


@asynccontextmanager
async def opened(log: EventLog, room: int = ROOM) -> AsyncGenerator[tuple[DerivedStore, Reported]]:
    reported = Reported()
    store = await DerivedStore.open(log.path.parent / DERIVED, log, reported, room)
    try:
        yield store, reported
    finally:
        await store.close()


@pytest.fixture
async def store(log: EventLog) -> AsyncGenerator[DerivedStore]:
    async with opened(log) as (store, _):
        yield store


async def say(log: EventLog, *contents: str, user_id: str = "alice", session_id: str = "s1") -> list[int]:
    """Record turns; their seqs."""
    before = log.head
    for n, content in enumerate(contents):
        turn_id = f"t{before + n}"
        await log.append(a_batch(a_turn(content, user_id=user_id, session_id=session_id, turn_id=turn_id)))
    return list(range(before + 1, log.head + 1))


def files_of(log: EventLog) -> bytes:
    """The bytes of everything that is kept."""
    return b"".join(path.read_bytes() for path in with_sidecars(log.path.parent / DERIVED) if path.exists())


def pieces_of(stored: bytes) -> list[bytes]:
    """What would stand in a file of it, wherever a row was cut."""
    return [stored[at : at + 16] for at in range(0, len(stored) - 16, 64)]


def left_of(log: EventLog, *stored: bytes) -> int:
    """How many samples of these bytes stand in the files."""
    held = files_of(log)
    return sum(piece in held for each in stored for piece in pieces_of(each))


async def forget(log: EventLog, store: DerivedStore, session_id: str = "s1") -> None:
    await log.append_event(a_forgetting(session_id))
    (forgotten,) = await log.read(read_unerased)
    await store.erase(forgotten)


async def test_a_vector_comes_back_bit_for_bit_also_after_a_restart(log: EventLog) -> None:
    (seq,) = await say(log, "one")
    kept = a_vector("a", seq)
    async with opened(log) as (store, _):
        await store.keep(ALICE, MODEL, [kept])
        before = await store.load(ALICE, MODEL, [b"a", b"b"])
    async with opened(log) as (store, reported):
        after = await store.load(ALICE, MODEL, [b"a", b"b"])

    assert list(before) == list(after) == [b"a"]
    assert before[b"a"].tobytes() == after[b"a"].tobytes() == kept.vector.tobytes()
    assert reported.names() == []


async def test_vectors_of_another_user_or_model_are_not_found(store: DerivedStore, log: EventLog) -> None:
    await store.keep(ALICE, MODEL, [a_vector("a", *await say(log, "one"))])

    assert await store.load(BOB, MODEL, [b"a"]) == {}
    assert await store.load(ALICE, "another model", [b"a"]) == {}


@pytest.mark.parametrize("wanted", [401, 550])
async def test_many_vectors_of_a_user_are_found_whether_they_are_most_of_what_is_kept_or_not(
    store: DerivedStore, log: EventLog, wanted: int
) -> None:
    (seq,) = await say(log, "one")
    kept = [a_vector(f"v{n}", seq) for n in range(700)]
    await store.keep(BOB, MODEL, [a_vector(f"v{n}", seq) for n in range(3)])
    await store.keep(ALICE, MODEL, kept)
    asked = kept[100 : 100 + wanted]
    found = await store.load(ALICE, MODEL, [*(each.key for each in asked), b"nobody's"])

    assert {key: row.tobytes() for key, row in found.items()} == {
        each.key: each.vector.tobytes() for each in asked
    }


async def test_a_new_model_drives_the_vectors_of_the_old_one_out(store: DerivedStore, log: EventLog) -> None:
    (seq,) = await say(log, "one")
    old = a_vector("a", seq)
    await store.keep(ALICE, MODEL, [old])
    await store.keep(ALICE, "another model", [a_vector("b", seq)])

    assert await store.load(ALICE, MODEL, [b"a"]) == {}
    assert (await store.measure()).vectors == 1


async def test_a_snapshot_comes_back_and_takes_the_place_of_the_one_before(
    store: DerivedStore, log: EventLog
) -> None:
    await say(log, "one", "two")
    await store.keep_snapshot(ALICE, a_snapshot(1))
    await store.keep_snapshot(ALICE, a_snapshot(2, seed=2))

    assert await store.load_snapshot(ALICE) == a_snapshot(2, seed=2)
    assert await store.load_snapshot(BOB) is None
    assert (await store.measure()).snapshots == 1


async def test_a_forgotten_session_takes_its_vectors_and_the_snapshot_out_of_the_files(
    store: DerivedStore, log: EventLog
) -> None:
    """Kept in random order and replaced often, so that pages of the file split and fill up again."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    gone, stay = list[CachedVector](), list[CachedVector]()
    snapshots = [a_snapshot(1, rng.randrange(1, 40 * PIECE_BYTES), seed=n) for n in range(4)]
    for n in range(60):
        session = rng.choice(("s1", "s2"))
        vector = a_vector(f"v{n}", *await say(log, f"turn {n}", session_id=session))
        (gone if session == "s1" else stay).append(vector)
        await store.keep(ALICE, MODEL, [vector])
        await store.keep_snapshot(rng.choice((ALICE, BOB)), rng.choice(snapshots))
        if rng.random() < 0.3:  # the same text is embedded again
            await store.keep(ALICE, MODEL, [rng.choice(gone + stay)])
    held = left_of(log, *(each.vector.tobytes() for each in gone))
    await forget(log, store)
    found = await store.load(ALICE, MODEL, [each.key for each in gone + stay])

    assert held
    assert left_of(log, *(each.vector.tobytes() for each in gone)) == 0
    assert await store.load_snapshot(ALICE) is None
    assert left_of(log, *(each.content for each in snapshots)) == 0
    assert {key: vector.tobytes() for key, vector in found.items()} == {
        each.key: each.vector.tobytes() for each in stay
    }


async def test_a_forgotten_user_leaves_nothing_and_others_stay(store: DerivedStore, log: EventLog) -> None:
    (alices,), (bobs,) = await say(log, "one"), await say(log, "two", user_id="bob")
    mine, theirs = a_vector("a", alices), a_vector("a bob", bobs)
    await store.keep(ALICE, MODEL, [mine])
    await store.keep(BOB, MODEL, [theirs])
    await store.keep_snapshot(ALICE, a_snapshot(1))
    await store.keep_snapshot(BOB, a_snapshot(1, seed=2))
    await log.append_event(a_user_forgetting())
    (forgotten,) = await log.read(read_unerased)
    await store.erase(forgotten)

    assert left_of(log, mine.vector.tobytes(), a_snapshot(1).content) == 0
    assert list(await store.load(BOB, MODEL, [b"a bob"])) == [b"a bob"]
    assert await store.load_snapshot(BOB) == a_snapshot(1, seed=2)


async def test_what_is_embedded_while_its_session_is_forgotten_is_not_kept(
    store: DerivedStore, log: EventLog
) -> None:
    (first,) = await say(log, "one")
    (other,) = await say(log, "two", session_id="s2")
    await forget(log, store)
    late, fine = a_vector("late", first, other), a_vector("fine", other)
    await store.keep(ALICE, MODEL, [late, fine])
    await store.keep_snapshot(ALICE, a_snapshot(2))

    assert list(await store.load(ALICE, MODEL, [b"late", b"fine"])) == [b"fine"]
    assert left_of(log, late.vector.tobytes()) == 0
    assert await store.load_snapshot(ALICE) is None


async def test_a_retracted_turn_takes_its_vectors_along(store: DerivedStore, log: EventLog) -> None:
    first, second = await say(log, "one", "two")
    of_both, of_one = a_vector("both", first, second), a_vector("one", second)
    await store.keep(ALICE, MODEL, [of_both, of_one])
    await store.keep_snapshot(ALICE, a_snapshot(2))
    await log.append_event(a_retraction("t0"))
    parts = replace(erasing_without_a_server(log, log.path.parent, ManualClock(), Reported()), derived=store)
    await erase_what_was_retracted(parts)

    assert list(await store.load(ALICE, MODEL, [b"both", b"one"])) == [b"one"]
    assert left_of(log, of_both.vector.tobytes(), a_snapshot(2).content) == 0


async def test_the_scan_after_forgetting_looks_for_vectors_and_knows_those_that_are_kept(
    store: DerivedStore, log: EventLog
) -> None:
    """The same sentence in a session that stays has the same vector, which is no residue."""
    (first,) = await say(log, "a sentence of some length")
    (other,) = await say(log, "a sentence of some length", session_id="s2")
    gone, same = a_vector("gone", first), a_vector("same", first)
    await store.keep(ALICE, MODEL, [gone, same, CachedVector(b"kept", (other,), same.vector)])
    stray = log.path.parent / "stray"
    await log.append_event(a_forgetting("s1"))
    (forgotten,) = await log.read(read_unerased)
    samples = await sample(log, forgotten.subject)
    for vector in await store.read_vectors_of(forgotten):
        samples.add_bytes(vector)
    reported = Reported()
    parts = replace(
        erasing_without_a_server(log, log.path.parent, ManualClock(), reported), derived=store, pause_s=0.01
    )
    stray.write_bytes(gone.vector.tobytes())
    await erase(parts, forgotten, samples)
    residues = [fields["file"] for name, fields in reported.events if name == "forgetting.residue_found"]

    assert set(residues) == {"stray"}
    assert list(await store.load(ALICE, MODEL, [b"gone", b"same", b"kept"])) == [b"kept"]


async def test_the_scan_finds_a_vector_that_erasing_left(store: DerivedStore, log: EventLog) -> None:
    (first,) = await say(log, "a sentence of some length")
    left = a_vector("left", first)
    await store.keep(ALICE, MODEL, [left])
    await log.append_event(a_forgetting("s1"))
    (forgotten,) = await log.read(read_unerased)
    needle = left.vector.tobytes()[:16]
    still_there = await store.find_kept({needle}, replace(forgotten, subject=b"somebody else"))

    assert still_there == {needle}
    assert await store.find_kept({needle}, forgotten) == set()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def garble(path: Path) -> None:
    path.write_bytes(b"no database at all" * 500)


def become_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def become_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("deed", [Path.unlink, cut, garble, become_newer, become_empty])
async def test_a_file_that_cannot_be_used_is_made_anew_and_said_once(
    log: EventLog, deed: Callable[[Path], None]
) -> None:
    kept = a_vector("a", *await say(log, "one"))
    async with opened(log) as (store, _):
        await store.keep(ALICE, MODEL, [kept])
    deed(log.path.parent / DERIVED)
    async with opened(log) as (store, reported):
        before = await store.load(ALICE, MODEL, [b"a"])
        await store.keep(ALICE, MODEL, [kept])
        after = await store.load(ALICE, MODEL, [b"a"])

    assert before == {}
    assert after[b"a"].tobytes() == kept.vector.tobytes()
    assert reported.names() == ["derived.begun_anew"]


async def test_a_flipped_bit_is_a_vector_or_a_snapshot_that_is_not_there(log: EventLog) -> None:
    kept = a_vector("a", *await say(log, "one"))
    async with opened(log) as (store, _):
        await store.keep(ALICE, MODEL, [kept])
        await store.keep_snapshot(ALICE, a_snapshot(1))
    path = log.path.parent / DERIVED
    content = bytearray(path.read_bytes())
    for needle in (kept.vector.tobytes()[100:116], a_snapshot(1).content[100:116]):
        content[content.index(needle) + 3] ^= 4
    path.write_bytes(content)
    async with opened(log) as (store, _):
        found = await store.load(ALICE, MODEL, [b"a"]), await store.load_snapshot(ALICE)

    assert found == ({}, None)


async def test_a_file_of_another_log_is_made_anew(log: EventLog, tmp_path: Path, clock: ManualClock) -> None:
    """An older copy of the store was put back, and grew in another way: the same seqs, other words."""
    (seq,) = await say(log, "one")
    async with opened(log) as (store, _):
        await store.keep(ALICE, MODEL, [a_vector("a", seq)])
    other = await EventLog.open(tmp_path / "other.db", clock, seeded_nonces(2), SECRET)
    await say(other, "another one")
    reported = Reported()
    store = await DerivedStore.open(log.path.parent / DERIVED, other, reported, ROOM)
    found = await store.load(ALICE, MODEL, [b"a"])
    await store.close()
    await other.close()

    assert found == {}
    assert reported.events == [("derived.begun_anew", {"reason": "of another log"})]


async def test_a_snapshot_of_a_past_that_never_was_is_none(store: DerivedStore, log: EventLog) -> None:
    await say(log, "one")
    await store.keep_snapshot(ALICE, a_snapshot(1))
    await store.keep_snapshot(BOB, a_snapshot(1))

    assert await store.load_snapshot(BOB) is None, "bob has no event 1"


async def test_the_file_stays_below_its_limit_and_the_least_recently_used_go_first(log: EventLog) -> None:
    room = 1 << 20
    users = [KEYS.user(f"user {n}") for n in range(12)]
    for n in range(len(users)):
        await say(log, "one", user_id=f"user {n}")
    async with opened(log, room) as (store, _):
        for n, user in enumerate(users):
            await store.keep_snapshot(user, a_snapshot(1, 14 * PIECE_BYTES, seed=n))
            await store.load_snapshot(users[0])
            vectors = [a_vector(f"{n} {m}", n + 1) for m in range(100)]
            await store.keep(user, MODEL, vectors)
        kept = [user for user in users if await store.load_snapshot(user) is not None]
        sizes = await store.measure()

    assert kept == [users[0], *users[-3:]] or kept == [users[0], *users[-2:]]
    assert 300 <= sizes.vectors <= 600
    assert sizes.bytes <= 1.2 * room


async def test_without_room_nothing_is_kept_and_nothing_fails(log: EventLog) -> None:
    async with opened(log, 0) as (store, reported):
        (seq,) = await say(log, "one")
        await store.keep(ALICE, MODEL, [a_vector("a", seq)])
        await store.keep_snapshot(ALICE, a_snapshot(1))
        found = await store.load(ALICE, MODEL, [b"a"]), await store.load_snapshot(ALICE)

    assert found == ({}, None)
    assert reported.names() == []


async def test_what_cannot_be_overwritten_is_deleted_with_the_file(log: EventLog) -> None:
    """Another program holds the file's lock: nothing can be written into it; forgetting goes on all the same."""
    path = log.path.parent / DERIVED
    async with opened(log) as (store, reported):
        (seq,) = await say(log, "one")
        kept = a_vector("a", seq)
        await store.keep(ALICE, MODEL, [kept])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await store.keep(ALICE, MODEL, [a_vector("b", seq)])
        await forget(log, store)
        other.close()
        found = await store.load(ALICE, MODEL, [b"a"])

    assert found == {}
    assert left_of(log, kept.vector.tobytes()) == 0
    assert reported.events == [
        ("derived.failed", {"reason": "locked by another program"}),
        ("derived.begun_anew", {"reason": "locked by another program"}),
    ]


async def test_a_file_that_can_be_neither_written_nor_deleted_keeps_the_receipt_back(log: EventLog) -> None:
    (seq,) = await say(log, "one")
    path = log.path.parent / DERIVED
    path.mkdir()
    (path / "in the way").touch()
    async with opened(log) as (store, _):
        await store.keep(ALICE, MODEL, [a_vector("a", seq)])
        with pytest.raises(StoreUnusable):
            await forget(log, store)
        (path / "in the way").unlink()
        path.rmdir()
        (forgotten,) = await log.read(read_unerased)
        await store.erase(forgotten)


async def test_a_full_disk_leaves_its_last_room_to_the_log(store: DerivedStore, log: EventLog) -> None:
    (seq,) = await say(log, "one")
    log.reserved = True
    await store.keep(ALICE, MODEL, [a_vector("a", seq)])
    await store.keep_snapshot(ALICE, a_snapshot(1))

    assert await store.measure() == replace(await store.measure(), vectors=0, snapshots=0)


async def test_a_disk_that_is_nearly_full_gets_no_fuller(log: EventLog) -> None:
    (seq,) = await say(log, "one")
    store = await DerivedStore.open(log.path.parent / DERIVED, log, Reported(), ROOM, free_min_bytes=1 << 60)
    await store.keep(ALICE, MODEL, [a_vector("a", seq)])
    found = await store.load(ALICE, MODEL, [b"a"])
    await store.close()

    assert found == {}


async def test_after_closing_nothing_is_found_and_nothing_fails(log: EventLog) -> None:
    async with opened(log) as (store, _):
        pass
    await store.keep(ALICE, MODEL, [a_vector("a", *await say(log, "one"))])

    assert await store.load(ALICE, MODEL, [b"a"]) == {}
    assert await store.load_snapshot(ALICE) is None
