"""The scan is worth something: leave out any step of erasing, and the receipt says that something is left.

Each test replaces one step by one that does nothing; the bus is a real nats-server with its store in the data
directory. And what survives is as if what was forgotten had never been.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from daemon.asking.structures import Structures
from daemon.bus.bus_erasure import BusEraser, BusErasure
from daemon.bus.nats_bus import NatsBus
from daemon.bus.subjects import turn_subject
from daemon.erasure.erasing import Erasing
from daemon.erasure.forgetting import Forgetter
from daemon.erasure.own_words import own_words
from daemon.erasure.receipts import Receipt
from daemon.folding import fold_from_nothing
from events.dead_letters import DeadLetter
from events.envelope import BusPosition, Reference
from events.erasure import erase_retracted, erase_slice, has_emptied
from events.log import EventLog
from events.memory import Digest, FactId
from projections.digests import MemoryDigest, digest_memory
from projections.facts.scopes import Scope, ScopeKind
from tests.builders import SECRET, ManualClock, a_batch, a_turn, seeded_nonces
from tests.bus_in_use import bus_with_stream, fetch_all, unattended_server
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running, running_forgetter
from tests.daemon.turn_edits import a_retraction
from tests.scripted_bus import ScriptedBucket
from tests.stored import stored_bytes
from tests.waiting import wait_until

SECRET_TEXT = "Quexalto meets me behind the old mill at nine."
LETTER = b'{"type": "turn", "id": "x", "content": ["Quexalto wrote this down badly"], "session_id":'
KEPT_TEXT = "I prefer tea to coffee."
SUBJECT, KEPT_SUBJECT = turn_subject("alice", "s1"), turn_subject("alice", "s2")


@dataclass
class Store:
    """A data directory with a log and a bus's store in it, and what erasing is made of."""

    folder: Path
    parts: Parts
    bus: NatsBus
    erasing: Erasing

    async def publish(self, *payloads: bytes) -> list[BusPosition]:
        """Where they stand in the stream."""
        for payload in payloads:
            kept = KEPT_TEXT.encode() in payload
            await self.bus.publish(KEPT_SUBJECT if kept else SUBJECT, payload)
        count = (await self.bus.stream_state()).messages
        epoch = (await self.bus.fetch(None)).position
        assert epoch is not None
        places = [replace(epoch, seq=message.stream_seq) for message in await fetch_all(self.bus, None, count)]
        self.erasing = replace(self.erasing, position=lambda: places[-1])
        return places[-len(payloads) :]

    async def forget(self, erasing: Erasing | None = None) -> Receipt:
        """The receipt of forgetting s1, erased with these steps."""
        self.parts.forgetter = Forgetter(erasing or self.erasing, self.parts.memories, wait_s=20)
        async with running_forgetter(self.parts):
            return await self.parts.forgetter.forget("alice", "s1")

    def residues(self) -> set[str]:
        """The files in which something was found, by their last name."""
        return {
            Path(str(fields["file"])).name for fields in self.parts.reported.fields("forgetting.residue_found")
        }


def a_message(text: str) -> bytes:
    return json.dumps({"type": "turn", "user_id": "alice", "session_id": "s1", "content": text}).encode()


@asynccontextmanager
async def a_store(folder: Path, clock: ManualClock) -> AsyncGenerator[Store]:
    """A turn and a dead letter of s1 and a turn of s2, in the log and on the bus."""
    async with an_empty_store(folder, clock) as store:
        turn, letter, kept = await store.publish(a_message(SECRET_TEXT), LETTER, a_message(KEPT_TEXT))
        await store.parts.log.append(
            a_batch(
                a_turn(SECRET_TEXT, turn_id="t1", bus=turn),
                a_turn(KEPT_TEXT, session_id="s2", turn_id="t2", bus=kept),
                letters=(DeadLetter(SUBJECT, LETTER, "the message is not valid JSON", letter, "alice", "s1"),),
            )
        )
        yield store


@asynccontextmanager
async def an_empty_store(folder: Path, clock: ManualClock) -> AsyncGenerator[Store]:
    log = await EventLog.open(folder / "events.db", clock, seeded_nonces(1), SECRET)
    try:
        async with unattended_server(folder / "nats") as url, bus_with_stream(url) as bus:
            parts = build_parts(log, clock)
            erasing = replace(parts.erasing, bus=BusEraser(bus), pause_s=0.01)
            yield Store(folder, parts, bus, erasing)
    finally:
        await log.close()


class IdleEraser(BusEraser):
    """Deletes nothing and says that it did."""

    async def erase(self, positions: Sequence[BusPosition], checkpoint: BusPosition | None) -> BusErasure:
        """All of them are gone, it says."""
        return BusErasure(len(positions), 0, 0, 0, None, None, tuple(positions))


def empties_nothing(connection: sqlite3.Connection, subject: Reference) -> bool:
    return True


def empties_words_alone(connection: sqlite3.Connection, subject: Reference) -> bool:
    """The dead letters are left."""
    kept = connection.execute("SELECT id, subject, payload, message_id FROM letters").fetchall()
    done = erase_slice(connection, subject)
    connection.executemany(
        "UPDATE letters SET subject = ?2, payload = ?3, message_id = ?4 WHERE id = ?1",
        kept,
    )
    return done


def empties_letters_alone(connection: sqlite3.Connection, subject: Reference) -> bool:
    """The words are left."""
    kept = connection.execute("SELECT text, nonce, seq, n FROM words").fetchall()
    done = erase_slice(connection, subject)
    connection.executemany("UPDATE words SET text = ?1, nonce = ?2 WHERE seq = ?3 AND n = ?4", kept)
    return done


def assert_left(receipt: Receipt, store: Store, *files: str) -> None:
    assert store.residues() == set(files)
    assert receipt.residues > 0
    assert not receipt.complete
    assert receipt.erased_user_seq is not None, "what was done and what was not is on record"


async def test_with_every_step_done_the_scan_finds_nothing_and_the_receipt_is_complete(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with a_store(tmp_path, clock) as store:
        receipt = await store.forget()

        assert store.residues() == set()
        assert (receipt.residues, receipt.complete, receipt.tombstoned) == (0, True, True)
        assert (receipt.dead_letters_erased, receipt.bus_messages_erased) == (1, 2)
        assert receipt.scan_windows > 0
        assert receipt.scanned_files > 5, "the bus's files, too"


@pytest.mark.parametrize("step", [empties_nothing, empties_words_alone, empties_letters_alone])
async def test_words_or_dead_letters_that_are_not_emptied_are_found_in_the_log(
    tmp_path: Path, clock: ManualClock, step: object
) -> None:
    async with a_store(tmp_path, clock) as store:
        receipt = await store.forget(replace(store.erasing, empty_slice=step))  # type: ignore[arg-type]

        assert_left(receipt, store, "events.db", *(("1.blk",) if step is empties_nothing else ()))


async def test_a_write_ahead_log_that_is_not_emptied_is_found(tmp_path: Path, clock: ManualClock) -> None:
    async with a_store(tmp_path, clock) as store:
        receipt = await store.forget(replace(store.erasing, empty_log=lambda _: True))

        assert_left(receipt, store, "events.db-wal")


async def test_a_copy_from_before_a_migration_that_is_left_is_found(tmp_path: Path, clock: ManualClock) -> None:
    async with a_store(tmp_path, clock) as store:
        copy = store.folder / "events.db.before-1"
        await store.parts.log.write(lambda db: db.execute("VACUUM INTO ?", (str(copy),)).fetchall())
        receipt = await store.forget(replace(store.erasing, old_copies=lambda _: []))

        assert_left(receipt, store, "events.db.before-1")


async def test_such_a_copy_is_deleted_otherwise(tmp_path: Path, clock: ManualClock) -> None:
    async with a_store(tmp_path, clock) as store:
        copy = store.folder / "events.db.before-1"
        await store.parts.log.write(lambda db: db.execute("VACUUM INTO ?", (str(copy),)).fetchall())
        receipt = await store.forget()

        assert receipt.complete
        assert not copy.exists()


async def test_messages_that_a_bus_only_says_it_deleted_are_found_in_its_files(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with a_store(tmp_path, clock) as store:
        receipt = await store.forget(replace(store.erasing, bus=IdleEraser(store.bus)))

        assert_left(receipt, store, "1.blk")
        assert (receipt.bus_messages_erased, receipt.bus_messages_left) == (2, 0), "as it was told"


async def test_a_bus_that_was_not_told_is_on_the_receipt(tmp_path: Path, clock: ManualClock) -> None:
    async with a_store(tmp_path, clock) as store:
        bucket = ScriptedBucket()
        bucket.missing = True
        receipt = await store.forget(replace(store.erasing, bucket=bucket))

        assert not receipt.tombstoned
        assert receipt.complete, "the tombstone is against what comes back, not part of what is gone"


async def test_without_a_scan_nothing_is_complete(tmp_path: Path, clock: ManualClock) -> None:
    """The searching process fails: there is no such folder."""
    async with a_store(tmp_path, clock) as store:
        receipt = await store.forget(replace(store.erasing, folder=store.folder / "nowhere"))

        assert (receipt.scanned_files, receipt.residues) == (0, 0)
        assert receipt.scan_windows > 0
        assert not receipt.complete
        assert store.parts.reported.fields("forgetting.scan_failed")


async def test_a_file_that_cannot_be_searched_counts_as_one_that_holds_something(
    tmp_path: Path, clock: ManualClock, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A link: what it leads to is somewhere else, and nobody looked there."""
    async with a_store(tmp_path, clock) as store:
        (store.folder / "elsewhere").symlink_to(tmp_path_factory.mktemp("other"))
        receipt = await store.forget()

        assert (receipt.residues, receipt.complete) == (1, False)
        assert {"reason": "1 files are links or unreadable"} in store.parts.reported.fields(
            "forgetting.scan_failed"
        )


async def test_what_every_message_says_is_no_residue_of_a_dead_letter(tmp_path: Path, clock: ManualClock) -> None:
    """The shape of JSON, names of fields, types and times stand in the messages of those who stay."""
    forgotten = b'{"type": "turn", "session_id": "s1", "timestamp": "2024-05-01T09:00:00Z", "metadata": {"Quexalto'
    kept = a_message(KEPT_TEXT)[:-1] + b', "timestamp": "2024-05-01T09:00:30Z", "metadata": {"a": "b"}}'
    async with an_empty_store(tmp_path, clock) as store:
        letter, turn = await store.publish(forgotten, kept)
        await store.parts.log.append(
            a_batch(
                a_turn(KEPT_TEXT, session_id="s2", bus=turn),
                letters=(DeadLetter(SUBJECT, forgotten, "the message is not valid JSON", letter, "alice", "s1"),),
            )
        )
        receipt = await store.forget()

        assert (receipt.dead_letters_erased, receipt.scan_windows) == (1, 1)
        assert (receipt.residues, receipt.complete) == (0, True)


async def test_words_that_others_say_too_are_no_residue(tmp_path: Path, clock: ManualClock) -> None:
    async with a_store(tmp_path, clock) as store:
        await store.parts.log.append(a_batch(a_turn(SECRET_TEXT, session_id="s3", turn_id="t3")))
        receipt = await store.forget()

        assert (receipt.residues, receipt.complete) == (0, True)
        assert SECRET_TEXT.encode() in stored_bytes(store.parts.log.path)


async def test_words_that_stand_in_the_files_of_any_store_are_no_residue(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Of short texts samples are short: "esources" stands in the schema, "istening" in the log of nats-server."""
    said = ("Resources", "Newsletters", "Listening", "connections", "Compression", "consumers", "authorization")
    async with an_empty_store(tmp_path, clock) as store:
        places = await store.publish(*(a_message(text) for text in said))
        turns = [
            a_turn(text, turn_id=f"t{n}", bus=place)
            for n, (text, place) in enumerate(zip(said, places, strict=True))
        ]
        await store.parts.log.append(a_batch(*turns))
        receipt = await store.forget()

        assert store.residues() == set()
        assert (receipt.residues, receipt.complete, receipt.bus_messages_erased) == (0, True, len(said))
        assert receipt.scan_windows >= 2 * len(said)


def test_what_the_files_hold_of_themselves_names_nobody(tmp_path: Path) -> None:
    stream = tmp_path / "nats" / "jetstream" / "$G" / "streams" / "MEMFOREST"
    stream.mkdir(parents=True)
    (stream / "meta.inf").write_text(
        '{"name":"MEMFOREST","subjects":["memforest.turns.quexalto.*"],"max_consumers":1}'
    )
    (tmp_path / "nats" / "nats.log").write_text(
        '[INF] Server is ready\n[ERR] Publish Violation - Subject "quexalto"\n'
    )

    words = own_words(tmp_path)

    assert [each in words for each in (b"max_consumers", b"Server is ready", b"memories")] == [True] * 3
    assert b"quexalto" not in words


async def test_a_retraction_that_was_cut_off_before_the_write_ahead_log_was_emptied_is_finished(
    log_path: Path, clock: ManualClock
) -> None:
    """The words are gone from the tables already; only a note says that they stand in another file."""
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    parts = build_parts(log, clock)
    await log.append(a_batch(a_turn(SECRET_TEXT), a_retraction()))
    erased = await log.write(erase_retracted)
    left, noted = stored_bytes(log_path), await log.read(has_emptied)
    async with running_forgetter(parts):
        await wait_until(lambda: bool(parts.reported.fields("forgetting.turns_erased")))
    after, still_noted = stored_bytes(log_path), await log.read(has_emptied)
    await log.close()

    assert (erased, noted, still_noted) == (1, True, False)
    assert SECRET_TEXT.encode() in left
    assert SECRET_TEXT.encode() not in after


def said(number: int, session: str) -> str:
    """Two of three sentences are said in every session, the third names its own."""
    return (
        f"Marta bought {number} lamps." if number % 3 else f"{session} went to Porto with Marta on day {number}."
    )


@dataclass(frozen=True)
class Survivors:
    """Digests of the Memory as it was and as the redacted log tells it, facts with sources, and the trees."""

    live: MemoryDigest
    rebuilt: MemoryDigest
    facts: str
    trees: dict[Scope, tuple[frozenset[FactId], set[Digest]]]


async def live(path: Path, sessions: Sequence[str], forgotten: str | None = None) -> Survivors:
    """What is left of a life with these sessions, of which one was forgotten."""
    clock = ManualClock()
    log = await EventLog.open(path, clock, seeded_nonces(1), SECRET)
    parts = build_parts(log, clock)
    try:
        async with running(parts):
            for session in sessions:
                # The same ids and times, whoever else spoke.
                parts.turns = 100 * (ord(session[0]) - ord("A"))
                await parts.say(*(said(number, session) for number in range(9)), session_id=session)
                await parts.close(session)
                await parts.memory()
                await parts.until_done()
            await parts.compactor.compact(ALICE, 0.3)
            if forgotten is not None:
                await parts.forgetter.forget("alice", forgotten)
                await parts.memory()
                await parts.until_done()
            memory = await parts.memory()
            live = digest_memory(memory)
            rebuilt = digest_memory(await fold_from_nothing(log, ALICE, memory.parameters))
            shown = await Structures(log, parts.memories).show(memory, list(memory.canon.facts.values()))
    finally:
        await log.close()
    shown = [replace(fact, group=None) for fact in shown]
    apart = {
        scope: (frozenset(memory.members.get(scope, ())), {node.digest for node in tree.nodes()})
        for scope, tree in memory.forest.trees.items()
        if scope.kind is not ScopeKind.SCENE
    }
    return Survivors(live, rebuilt, "\n".join(sorted(map(repr, shown))), apart)


@pytest.mark.parametrize("forgotten", ["Anna", "Bert", "Carl"])
async def test_what_survives_a_session_is_as_if_it_had_never_been(tmp_path: Path, forgotten: str) -> None:
    """Facts with sources, scopes and trees. Groups and scenes depend on what came when, and equal a rebuild."""
    sessions = ("Anna", "Bert", "Carl")
    left = await live(tmp_path / "forgot.db", sessions, forgotten)
    never = await live(tmp_path / "never.db", [session for session in sessions if session != forgotten])
    with_it = await live(tmp_path / "kept.db", sessions)

    assert left.facts == never.facts
    assert (left.live.facts, left.trees) == (never.live.facts, never.trees)
    assert left.live == left.rebuilt
    assert left.facts != with_it.facts, "the control: the session had said something of its own"
    assert forgotten in with_it.facts
    assert forgotten not in left.facts
