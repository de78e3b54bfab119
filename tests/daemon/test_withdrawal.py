"""Turns taken back or reworded, users forgotten, tombstones met: with worker, fold and erasing at work."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from daemon.erasure.forgetting import Forgetter
from daemon.erasure.receipts import UserUnknown
from daemon.texts import read_texts
from events.memory import Task
from events.registry import read_user_references
from events.session import TurnRetracted
from events.tombstones import Tombstone, plant_tombstones
from projections.memory import Memory
from projections.texts import FactText
from tests.builders import KEYS, MONDAY, a_place, a_retraction, a_revision, a_turn
from tests.daemon.parts_in_use import ALICE, MINUTE_MS, Parts, event_types, running, running_forgetter
from tests.scripted_bus import ScriptedBucket, ScriptedEraser
from tests.stored import stored_bytes, stored_rows
from tests.waiting import wait_until

S1, S2 = KEYS.session("alice", "s1"), KEYS.session("alice", "s2")


async def said(parts: Parts) -> set[str]:
    """The texts of all facts."""
    facts = (await parts.memory()).canon.facts.values()
    return {text for text in await read_texts(parts.log, [FactText(fact.first.pointer) for fact in facts]) if text}


async def erased(parts: Parts, path: Path, marker: bytes) -> None:
    await wait_until(lambda: marker not in stored_bytes(path), message="the words are not erased")
    await parts.until_done()


async def until_read(parts: Parts) -> None:
    """Return once every closed chunk is extracted; the trees of a session that goes on wait for its end."""

    def is_read() -> bool:
        (memory,) = parts.memories.loaded().values()
        folded = memory.user_seq == parts.log.head and not memory.needs_rebuild
        return folded and not (memory.waiting_chunks or memory.canon.waiting or parts.worker.in_flight)

    await parts.memory()
    await wait_until(is_read, message="chunks stay unread")


def extractions(parts: Parts) -> int:
    return sum(call.task is Task.EXTRACT for call in parts.model.calls)


def borders(memory: Memory) -> list[tuple[int, ...]]:
    return [chunk.places for chunk in memory.chunks.values()]


async def test_what_only_the_turn_supported_disappears_and_what_others_support_stays(
    parts: Parts, log_path: Path
) -> None:
    async with running(parts):
        await parts.say("Nate swims. Zebra xylophon.", "Rex runs.", session_id="s1")
        await parts.say("Nate swims.", "Oslo is far.", session_id="s2")
        await parts.close("s1")
        await parts.close("s2")
        await parts.until_done()
        before = await said(parts)
        await parts.log.append_event(a_retraction("t1"))
        await erased(parts, log_path, b"xylophon")
        after, memory = await said(parts), await parts.memory()

    assert before == {"Nate swims.", "Zebra xylophon.", "Rex runs.", "Oslo is far."}
    assert after == before - {"Zebra xylophon."}
    (shared,) = [fact for fact in memory.canon.facts.values() if fact.turns == (3,)]
    assert shared.sessions == {S2}
    assert extractions(parts) == 3, "the rest of its chunk was read again, and nothing else"


async def test_words_of_every_revision_conflict_extraction_summary_and_group_go_from_all_files(
    parts: Parts, log_path: Path
) -> None:
    async with running(parts):
        await parts.say("Nate swims.", "Rex runs.", "Nate sings.", "Zebra xylophon.", "Rex sleeps.", "Nate reads.")
        await parts.log.append_event(a_revision("Zebra xylophon twice.", turn_id="t4"))
        await parts.log.append_event(a_revision("Zebra xylophon thrice.", turn_id="t4", bus=a_place(9)))
        await parts.close()
        await parts.until_done()
        await parts.compactor.compact(ALICE)
        written = stored_bytes(log_path).count(b"xylophon")
        kept = stored_rows(log_path, "SELECT * FROM words WHERE seq <= 3 ORDER BY seq, n")
        await parts.log.append_event(a_retraction("t4"))
        await erased(parts, log_path, b"xylophon")
        texts = await parts.texts("Zebra xylophon")

    assert written > 5
    assert stored_bytes(log_path).count(b"xylophon") == 0
    assert stored_rows(log_path, "SELECT * FROM words WHERE seq <= 3 ORDER BY seq, n") == kept
    assert not [text for text in texts if "ylophon" in text]


async def test_a_revision_is_read_in_the_place_of_the_turn(parts: Parts) -> None:
    async with running(parts):
        await parts.say("Nate lives in Oslo.", "Rex runs.", "Nate sings.")
        await parts.close()
        await parts.until_done()
        await parts.log.append_event(a_revision("Nate lives in Miami.", happened_at=None))
        await parts.until_done()
        facts, memory = await said(parts), await parts.memory()
        texts = await parts.texts("Nate")

    assert facts == {"Nate lives in Miami.", "Rex runs.", "Nate sings."}
    assert "Alice: Nate lives in Miami.\nAlice: Rex runs." in texts
    assert memory.turns[memory.transcript.placed[KEYS.key(a_turn().key)].seq].said_at == MONDAY + MINUTE_MS


@pytest.mark.parametrize(
    ("turn_id", "asked"), [("t1", 1), ("t2", 2), ("t3", 1), ("t4", 2)], ids=["t1", "t2", "t3", "t4"]
)
async def test_the_chunk_behind_is_read_again_exactly_when_its_context_is_gone(
    parts: Parts, turn_id: str, asked: int
) -> None:
    async with running(parts):
        await parts.say("One.", "Two.", "Three.", "Four.", "Five.", "Six.")
        await parts.close()
        await parts.until_done()
        before, cut = extractions(parts), borders(await parts.memory())
        await parts.log.append_event(a_retraction(turn_id))
        await parts.until_done()

        assert extractions(parts) - before == asked
        assert borders(await parts.memory()) == cut


@pytest.mark.parametrize("gone", [("t1",), ("t2",), ("t3", "t4"), ("t1", "t2", "t3", "t4")])
async def test_turns_that_come_later_fill_the_same_chunks_as_if_nothing_was_taken_back(
    parts: Parts, gone: tuple[str, ...]
) -> None:
    async with running(parts):
        await parts.say("One.", "Two.", "Three.", "Four.", "Five.")
        await until_read(parts)
        for turn_id in gone:
            await parts.log.append_event(a_retraction(turn_id))
        place = parts.log.head
        await parts.say("Six.", "Seven.", "Eight.")
        await until_read(parts)
        memory = await parts.memory()

    own = [seq for (seq,) in await parts.log.read(lambda db: db.execute("SELECT seq FROM turns").fetchall())]
    assert len(own) == 8
    assert place < own[5]
    empty = {int(turn_id[1:]) - 1 for turn_id in gone}
    pairs = [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert borders(memory) == [(own[a], own[b]) for a, b in pairs if not {a, b} <= empty]
    assert not memory.waiting_chunks


async def test_a_turn_taken_back_is_not_shown_from_the_moment_memory_is_told(parts: Parts) -> None:
    """Nobody folds or erases here: hiding must not wait for it."""
    await parts.say("Nate xylophon.", "Rex runs.", "Nate sings.")
    await parts.memory()
    wish = a_retraction("t1")
    await parts.log.append_event(wish)
    assert isinstance(wish.event, TurnRetracted)
    parts.memories.hide_turn(ALICE, wish.event.turn)

    assert await parts.texts("xylophon") == ["Alice: Nate sings."]


async def test_a_late_answer_about_a_turn_that_was_taken_back_never_reaches_the_disk(
    parts: Parts, log_path: Path
) -> None:
    parts.model.held = True
    async with running(parts):
        await parts.say("Zebra xylophon.", "Rex runs.")
        await parts.until_asked(1)
        await parts.log.append_event(a_retraction("t1"))
        await wait_until(lambda: b"xylophon" not in stored_bytes(log_path))
        parts.model.release()
        await parts.until_done()

    assert b"xylophon" not in stored_bytes(log_path)
    assert (await event_types(parts.log)).count("facts.extracted") == 1


async def test_a_forgotten_user_is_gone_from_every_file_and_another_one_keeps_everything(
    parts: Parts, log_path: Path
) -> None:
    async with running(parts):
        for user_id in ("zqx", "bob"):
            await parts.say(f"I am {user_id}.", "Rex runs.", session_id=f"of {user_id}", user_id=user_id)
            await parts.close(f"of {user_id}", user_id)
        await parts.until_done()
        bobs = (await parts.memory("bob")).user_seq, await parts.texts("Rex", "bob")
        words = stored_rows(log_path, "SELECT * FROM words WHERE text LIKE '%bob%' ORDER BY seq, n")
        would = await parts.forgetter.preview("zqx", None)
        receipt = await parts.forgetter.forget_user("zqx")
        await parts.say("I am zqx again.", session_id="new", user_id="zqx")
        texts, again = await parts.texts("zqx", "zqx"), await parts.forgetter.forget_user("zqx")
        of_session = await parts.forgetter.forget("zqx", "of zqx")

    assert (receipt.waiting_for, receipt.complete, receipt.tombstone.session) == (None, True, None)
    assert (receipt.residues, receipt.tombstoned) == (0, True)
    assert receipt.scan_windows > 0
    assert would.voided == receipt.voided
    assert (again, of_session) == (receipt, receipt), "with the user everything was forgotten already"
    assert texts == []
    assert b"zqx" not in stored_bytes(log_path)
    assert ((await parts.memory("bob")).user_seq, await parts.texts("Rex", "bob")) == bobs
    assert stored_rows(log_path, "SELECT * FROM words WHERE text LIKE '%bob%' ORDER BY seq, n") == words
    assert await parts.log.read(read_user_references) == (KEYS.user("bob"),)


async def test_a_user_that_nobody_knows_is_refused(parts: Parts) -> None:
    await parts.say("One.")
    with pytest.raises(UserUnknown):
        await parts.forgetter.forget_user("Xylophon")

    assert parts.log.head == 1


async def test_a_session_that_another_store_forgot_is_forgotten_and_erased_here(
    parts: Parts, log_path: Path
) -> None:
    await parts.say("Zebra xylophon.", session_id="s1")
    await parts.say("Rex runs.", session_id="s2")
    await parts.memory()
    met = [Tombstone(S1, ALICE, MONDAY), Tombstone(KEYS.session("alice", "s9"), ALICE, MONDAY)]
    await parts.log.write(partial(plant_tombstones, tombstones=met))
    async with running_forgetter(parts):
        await wait_until(lambda: bool(parts.reported.fields("forgetting.erased")))
        await parts.say("Zebra xylophon.", session_id="s9")
        texts = await parts.texts("Zebra")

    assert await event_types(parts.log) == ["turn.recorded"] * 2 + ["session.forgotten", "session.erased"]
    assert parts.reported.names().count("forgetting.tombstone_met") == 1
    assert texts == ["Alice: Rex runs."]
    assert b"xylophon" not in stored_bytes(log_path)


async def test_messages_with_words_of_a_retracted_turn_go_from_the_bus_also_when_it_was_away(
    parts: Parts, log_path: Path
) -> None:
    bus = parts.erasing.bus
    assert isinstance(bus, ScriptedEraser)
    bus.away = True
    turn = a_turn("Zebra xylophon.", bus=a_place(1))
    await parts.log.append_event(turn)
    await parts.log.append_event(replace(turn, bus=a_place(2)))
    await parts.log.append_event(a_retraction("t1", bus=a_place(3)))
    async with running_forgetter(parts):
        await wait_until(lambda: b"xylophon" not in stored_bytes(log_path))
        assert bus.erased == []
        bus.away = False
        await parts.say("wake up", session_id="s2")
        await wait_until(lambda: len(bus.erased) == 2)

    assert [position.seq for position in bus.erased] == [1, 2]


async def test_forgetting_with_the_bus_away_says_so_and_ends_once_it_is_back(parts: Parts) -> None:
    bus, bucket = parts.erasing.bus, parts.erasing.bucket
    assert isinstance(bus, ScriptedEraser)
    assert isinstance(bucket, ScriptedBucket)
    bus.away = bucket.away = True
    await parts.log.append_event(a_turn("Zebra xylophon.", bus=a_place(1)))
    async with running_forgetter(parts):
        impatient = Forgetter(parts.erasing, parts.memories, wait_s=0.2)
        waiting = await impatient.forget("alice", "s1")
        bus.away = bucket.away = False
        await wait_until(lambda: bool(parts.reported.fields("forgetting.erased")))
        done = await parts.forgetter.forget("alice", "s1")

    assert (waiting.complete, waiting.bus_messages_left) == (False, 1)
    assert (done.complete, done.bus_messages_left, done.bus_messages_erased) == (True, 0, 1)
    assert list(bucket.tombstones) == [S1]
