"""Nothing that was forgotten or retracted is shown from its acceptance on, however far the Memory lags behind."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from daemon.folding import PAGE_EVENTS
from events.envelope import NewEvent
from events.log import EventLog
from events.reading import read_user
from events.session import SessionForgotten, TurnRetracted, UserForgotten
from tests.builders import (
    KEYS,
    SECRET,
    ManualClock,
    a_batch,
    a_forgetting,
    a_retraction,
    a_turn,
    a_user_forgetting,
    seeded_nonces,
)
from tests.daemon.parts_in_use import ALICE, Parts, build_parts
from tests.waiting import wait_until

T = TypeVar("T")

WISHES = pytest.mark.parametrize(
    "wish",
    [a_retraction("secret"), a_forgetting("s1"), a_user_forgetting()],
    ids=["turn", "session", "user"],
)


class PagedLog(EventLog):
    """Once it is told to `hold`, a fold waits before each page that it reads until it is let go on."""

    held = False
    waiting = False

    def hold(self) -> None:
        """Hold the next page back."""
        self.held, self.pages = True, anyio.Semaphore(0)

    def go_on(self) -> None:
        """Let one page be read."""
        self.waiting = False
        self.pages.release()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self.held and isinstance(work, partial) and work.func is read_user:
            self.waiting = True
            await self.pages.acquire()
        return await super().read(work)


@pytest.fixture
async def paged(log_path: Path, clock: ManualClock) -> AsyncIterator[PagedLog]:
    log = await PagedLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, PagedLog)
    yield log
    await log.close()


def turns(session_id: str, count: int, said: str) -> list[NewEvent]:
    return [
        a_turn(f"{said} {number}", session_id=session_id, turn_id=f"{session_id}-{number}")
        for number in range(count)
    ]


async def accept(parts: Parts, wish: NewEvent) -> None:
    """Record a wish, and tell the Memories as whoever takes it does."""
    await parts.log.append_event(wish)
    match wish.event:
        case TurnRetracted(turn=turn):
            parts.memories.hide_turn(ALICE, turn)
        case SessionForgotten():
            parts.memories.hide(ALICE, KEYS.session("alice", wish.session_id or ""))
        case _:
            assert isinstance(wish.event, UserForgotten)
            parts.memories.hide_user(ALICE)


async def shown_while_folding(parts: Parts, log: PagedLog, wish: NewEvent | None = None) -> list[bool]:
    """Whether the secret was among the answers, page by page and at the end.

    `wish` is accepted while the first page is waited for. Nobody is asked who would wait for the first fold.
    """
    seen: list[bool] = []
    done = anyio.Event()

    async def catch_up() -> None:
        await parts.memory()
        done.set()

    async def look() -> None:
        if parts.memories.holds(ALICE):
            seen.append(any("Xylophon" in text for text in await parts.texts("Xylophon")))

    await look()
    log.hold()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(catch_up)
        if wish is not None:
            await wait_until(lambda: log.waiting)
            await accept(parts, wish)
        while not done.is_set():
            await wait_until(lambda: log.waiting or done.is_set())
            await look()
            log.go_on()
    log.held = False
    await look()
    return seen


@WISHES
async def test_a_memory_that_lags_never_shows_what_it_folds_in_after_the_wish(
    paged: PagedLog, clock: ManualClock, wish: NewEvent
) -> None:
    """The words are in the log and not in the Memory yet when they are forgotten."""
    parts = build_parts(paged, clock)
    await paged.append(a_batch(*turns("s2", 3, "Oslo")))
    await parts.memory()
    await paged.append(a_batch(a_turn("Xylophon", turn_id="secret"), *turns("s3", PAGE_EVENTS - 1, "Rex")))
    await paged.append(a_batch(*turns("s4", 20, "Nate")))
    await accept(parts, wish)
    seen = await shown_while_folding(parts, paged)

    assert len(seen) > 4, "it was folded in pages, and more than once"
    assert not any(seen)


@WISHES
async def test_what_a_memory_holds_is_not_shown_again_by_the_one_that_takes_its_place(
    paged: PagedLog, clock: ManualClock, wish: NewEvent
) -> None:
    parts = build_parts(paged, clock)
    await paged.append(a_batch(a_turn("Xylophon", turn_id="secret"), *turns("s2", 3, "Oslo")))
    await parts.memory()
    before = await parts.texts("Xylophon")
    await accept(parts, wish)
    seen = await shown_while_folding(parts, paged)

    assert any("Xylophon" in text for text in before)
    assert not any(seen)


@WISHES
async def test_a_memory_that_is_being_loaded_shows_nothing_of_what_is_forgotten_meanwhile(
    paged: PagedLog, clock: ManualClock, wish: NewEvent
) -> None:
    """It looked at the end of the log before the wish was there."""
    parts = build_parts(paged, clock)
    await paged.append(a_batch(a_turn("Xylophon", turn_id="secret"), *turns("s2", 3, "Oslo")))
    seen = await shown_while_folding(parts, paged, wish)

    assert len(seen) > 1, "it was there and not at the log's end"
    assert not any(seen)


@WISHES
async def test_one_that_is_folded_anew_shows_nothing_of_what_is_forgotten_meanwhile(
    paged: PagedLog, clock: ManualClock, wish: NewEvent
) -> None:
    parts = build_parts(paged, clock)
    await paged.append(a_batch(a_turn("Xylophon", turn_id="secret"), *turns("s2", 3, "Oslo")))
    await parts.memory()
    await accept(parts, a_retraction("s2-1", "s2"))
    seen = await shown_while_folding(parts, paged, wish)

    assert seen[0], "it was shown before"
    assert len(seen) > 2
    assert not any(seen[1:])


async def test_other_turns_of_the_session_are_shown_all_the_time(paged: PagedLog, clock: ManualClock) -> None:
    parts = build_parts(paged, clock)
    await paged.append(
        a_batch(a_turn("Xylophon", turn_id="secret"), a_turn("Marimba", turn_id="kept"), a_turn("x"))
    )
    await parts.memory()
    await accept(parts, a_retraction("secret"))
    await parts.memory()

    assert [text for text in await parts.texts("Marimba") if "Marimba" in text]
