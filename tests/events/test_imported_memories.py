"""Imported memories in the log: one key with turns, conflicts, taking back, and what the registry counts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from events.appending import Outcome
from events.envelope import NewEvent
from events.erasure import erase_retracted
from events.gate import Verdict
from events.log import EventLog
from events.registry import read_session_rows, read_sessions, read_waiting_sessions
from events.session import MemoryImported
from tests.builders import KEYS, a_batch, a_place, a_retraction, a_revision, a_turn
from tests.stored import stored_bytes, stored_rows

IMPORT = KEYS.session("alice", "import")


def a_memory(content: str = "Xylophon", memory_id: str = "x-1", seq: int = 1) -> NewEvent:
    turn = a_turn(session_id="import", turn_id=memory_id, bus=a_place(seq))
    return replace(turn, event=MemoryImported(content, memory_id))


async def append(log: EventLog, new: NewEvent) -> Outcome:
    (outcome,) = await log.append(a_batch(new))
    return outcome


async def test_the_same_again_is_a_duplicate_and_other_content_a_conflict(log: EventLog, log_path: Path) -> None:
    verdicts = [
        (await append(log, new)).verdict for new in (a_memory(), a_memory(seq=2), a_memory("other", seq=3))
    ]
    turn = a_turn("I am a turn", session_id="import", turn_id="x-1", bus=a_place(4))
    edit = a_revision("I am an edit", session_id="import", turn_id="x-1", bus=a_place(5))
    verdicts += [(await append(log, new)).verdict for new in (turn, edit)]

    assert verdicts == [Verdict.RECORDED, Verdict.DUPLICATE, *[Verdict.CONFLICTING] * 3]
    types = [row[0] for row in stored_rows(log_path, "SELECT type FROM events ORDER BY seq")]
    assert types == ["memory.imported", *["turn.conflicted"] * 3]


async def test_a_memory_under_the_id_of_an_edited_turn_is_a_conflict(log: EventLog) -> None:
    await append(log, a_revision("I am an edit", session_id="import", turn_id="x-1"))

    assert (await append(log, a_memory())).verdict is Verdict.CONFLICTING


async def test_it_counts_as_a_turn_and_waits_for_nothing(log: EventLog) -> None:
    await log.append(a_batch(a_memory(), a_memory("Marimba", "x-2", 2)))
    await append(log, a_turn(session_id="import", turn_id="t"))
    (session,) = await log.read(partial(read_sessions, user=KEYS.user("alice")))
    rows = await log.read(partial(read_session_rows, session=IMPORT))
    (waiting,) = await log.read(read_waiting_sessions)

    assert (session.turns, session.waiting_turns) == (3, 1)
    assert [row.seq for row in rows] == [3]
    assert waiting.first_turn == 3


async def test_taking_it_back_erases_its_words_and_wants_every_copy_gone(log: EventLog, log_path: Path) -> None:
    await log.append(a_batch(a_memory(), a_memory(seq=2)))
    await log.append(a_batch(a_retraction("x-1", "import"), a_memory(seq=3)))
    await log.write(erase_retracted)
    (session,) = await log.read(partial(read_sessions, user=KEYS.user("alice")))
    await log.close()

    assert session.turns == 0
    assert [row[0] for row in stored_rows(log_path, "SELECT seq FROM unwanted ORDER BY seq")] == [1, 2, 3]
    assert b"Xylophon" not in stored_bytes(log_path)
