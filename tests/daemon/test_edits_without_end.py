"""Turns that are edited faster than a Memory is folded: nobody waits for the end of it who need not."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from daemon.building.worker import PLANNERS
from daemon.folding import fold_from_nothing
from events.hindsight import read_hindsight
from events.log import EventLog
from tests.builders import KEYS, SECRET, ManualClock, a_revision, a_turn, seeded_nonces
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running, running_forgetter
from tests.waiting import wait_until

T = TypeVar("T")
WITHIN_S = 10
# As many as there are planners, so that none is left if each waits for one of them.
EDITED = {KEYS.user(user_id): user_id for user_id in ("alice", *(f"u{number}" for number in range(1, PLANNERS)))}


class EditedLog(EventLog):
    """While `edited`, a user's t1 is reworded whenever a fold from nothing has looked at the end of the log."""

    edited = False
    folds = 0
    wording = ""  # the last one

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        found = await super().read(work)
        if isinstance(work, partial) and work.func is read_hindsight:
            self.folds += 1
            user = work.keywords["user"]
            if self.edited and user in EDITED:
                self.wording = f"Wording {self.folds}."
                await self.append_event(a_revision(self.wording, self.folds, turn_id="t1", user_id=EDITED[user]))
        return found


@pytest.fixture
async def edited(log_path: Path, clock: ManualClock) -> AsyncIterator[EditedLog]:
    log = await EditedLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, EditedLog)
    yield log
    await log.close()


@pytest.fixture
def parts(edited: EditedLog, clock: ManualClock) -> Parts:
    return build_parts(edited, clock)


async def say(parts: Parts) -> None:
    """A turn that will be edited, and one of another session, so that they share no chunk."""
    await parts.say("Wording 0.")
    await parts.say("Rex runs.", session_id="s2")


def is_whole(parts: Parts) -> bool:
    """The Memory of alice, the only user, stands at the log's end and hides nothing."""
    memory = parts.memories.loaded()[ALICE]
    return memory.user_seq == parts.log.head and not memory.needs_rebuild


async def begin_to_edit(parts: Parts, log: EditedLog) -> None:
    """A Memory is here, and knows that it is to be folded from nothing."""
    await say(parts)
    await parts.memory()
    await log.append_event(a_revision("Wording 1000.", 1000, turn_id="t1"))
    log.edited = True
    log.folds = 1000  # the revisions go on from there


async def test_one_step_folds_from_nothing_once(parts: Parts, edited: EditedLog) -> None:
    await begin_to_edit(parts, edited)
    with anyio.fail_after(WITHIN_S):
        memory = await parts.memories.advance(ALICE)

    assert edited.folds == 1001
    assert memory.needs_rebuild


async def test_a_query_does_not_wait_for_the_end_of_the_edits(parts: Parts, edited: EditedLog) -> None:
    await begin_to_edit(parts, edited)
    with anyio.fail_after(WITHIN_S):
        async with running_forgetter(parts):
            await parts.say("Nate sings.", session_id="s3")
            await wait_until(lambda: edited.folds > 1003)
            texts = await parts.texts("Rex")

    assert any("Rex runs." in text for text in texts)


async def test_the_first_query_about_a_user_does_not_wait_for_the_end_of_the_edits(
    parts: Parts, edited: EditedLog
) -> None:
    await say(parts)
    edited.edited = True
    with anyio.fail_after(WITHIN_S):
        texts = await parts.texts("Rex")

    assert any("Rex runs." in text for text in texts)
    assert edited.folds <= 2


async def test_the_worker_plans_others_meanwhile(parts: Parts, edited: EditedLog) -> None:
    for user_id in EDITED.values():
        await edited.append_event(a_turn("Wording 0.", user_id=user_id))
    edited.edited = True
    edited.folds = 1000
    async with running(parts):
        for user in EDITED:
            await edited.append_event(a_revision("Wording 1.", 1, turn_id="t1", user_id=EDITED[user]))
        await wait_until(lambda: edited.folds > 1000 + 3 * PLANNERS)
        for content in ("Nate swims.", "Nate sings."):
            await parts.say(content, user_id="bob", session_id="of bob")
        await wait_until(lambda: bool(parts.model.calls))
        asked = repr(parts.model.calls[0].question)

    assert "Nate swims." in asked


async def test_a_fold_from_nothing_ends_where_the_log_stood_as_it_began(parts: Parts, edited: EditedLog) -> None:
    await say(parts)
    edited.edited = True
    memory = await fold_from_nothing(edited, ALICE, SMALL)

    assert (memory.user_seq, edited.head) == (2, 3)
    assert not memory.needs_rebuild


async def test_new_turns_are_found_once_the_edits_end(parts: Parts, edited: EditedLog) -> None:
    await begin_to_edit(parts, edited)
    async with running_forgetter(parts):
        await parts.say("Zanzibar is far.", session_id="s3")
        await wait_until(lambda: edited.folds > 1003)
        edited.edited = False
        await wait_until(lambda: is_whole(parts))
        texts = await parts.texts("Zanzibar") + await parts.texts("Wording")

    assert any("Zanzibar is far." in text for text in texts)
    assert any("Wording" in text for text in texts)


async def test_a_memory_that_was_loaded_amid_the_edits_is_whole_once_they_end(
    parts: Parts, edited: EditedLog
) -> None:
    await say(parts)
    async with running_forgetter(parts):
        edited.edited = True
        await parts.texts("Rex")
        edited.edited = False
        await wait_until(lambda: is_whole(parts))
        texts = await parts.texts("Wording")

    assert any(edited.wording in text for text in texts)


async def test_who_must_see_all_of_it_waits_until_the_edits_end(parts: Parts, edited: EditedLog) -> None:
    await begin_to_edit(parts, edited)
    done, waited = anyio.Event(), list[bool]()

    async def catch_up() -> None:
        await parts.memory()
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(catch_up)
        await wait_until(lambda: edited.folds > 1004)
        waited.append(not done.is_set())
        edited.edited = False
        with anyio.fail_after(WITHIN_S):
            await done.wait()

    assert waited == [True]
    assert not parts.memories.loaded()[ALICE].needs_rebuild
