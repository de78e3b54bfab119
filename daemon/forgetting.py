"""Forgetting a session: the gate closes with one event, then the words go, slice by slice, then the receipt.

The order is that of design 3.2: from the moment SessionForgotten is durable nothing of the session is shown
or taken; what follows may be interrupted at any point and goes on at the next start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.lowlevel

from daemon.decoding import make_forget_key
from daemon.logs import Report
from daemon.memories import Memories
from events.envelope import NewEvent, Reference
from events.erasure import ErasureCounts, count_erased, erase_slice, read_unerased, truncate_wal
from events.errors import MemForestError, StoreUnusable
from events.log import EventLog
from events.registry import knows_session, read_user_name
from events.session import SessionErased, SessionForgotten
from events.time import Instant

# Before the write-ahead log is emptied again (each try holds up the writer), or after the disk failed.
PAUSE_S = 2.0
# How long a caller waits for the end of the erasing; it goes on without them.
WAIT_S = 30.0


class SessionUnknown(MemForestError):
    """There is no session of this id; `sessions.list` names those there are."""

    code = "not_found"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What forgetting a session took so far; `complete` says that its words are in no file of the log any more."""

    session_id: str
    forgotten_user_seq: int
    events_voided: int
    words_erased: int
    names_erased: int
    dead_letters_erased: int
    complete: bool


class Forgetter:
    """Takes the wish to forget, and erases what was forgotten in the background."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        clock: Callable[[], Instant],
        report: Report,
        write_pause_s: float = PAUSE_S,
        wait_s: float = WAIT_S,
    ) -> None:
        """`write_pause_s`: before a file that could not be written is tried again; `wait_s`: of a caller."""
        self._log = log
        self._memories = memories
        self._clock = clock
        self._report = report
        self._write_pause_s = write_pause_s
        self._wait_s = wait_s
        self._erased = anyio.Event()

    async def forget(self, user_id: str, session_id: str) -> Receipt:
        """Forget a session, and wait a while until it is erased. Works with the bus down; twice is the same.

        Raises `SessionUnknown`. Whoever stops waiting does not stop the erasing.
        """
        user = self._log.keys.user(user_id)
        session = self._log.keys.session(user_id, session_id)
        if not await self._log.read(partial(knows_session, session=session)):
            raise SessionUnknown
        wish = NewEvent(
            user_id=user_id,
            session_id=session_id,
            event=SessionForgotten(),
            key=make_forget_key(user_id, session_id),
            happened_at=self._clock(),
            time_assigned=True,
        )
        await self._log.append_event(wish)
        self._memories.hide(user, session)
        complete = False
        with anyio.move_on_after(self._wait_s):
            await self._wait_until_erased(session)
            complete = True
        await self._memories.catch_up(user)
        counts = await self._log.read(partial(count_erased, session=session))
        return _receipt(session_id, counts, complete=complete)

    async def _wait_until_erased(self, session: Reference) -> None:
        while True:
            erased = self._erased  # taken before the look, or an erasing in between would be slept through
            if session not in {each for _, each in await self._log.read(read_unerased)}:
                return
            await erased.wait()

    async def run(self) -> None:
        """Erase whatever is forgotten and not erased, for ever; also what an earlier run left."""
        while True:
            seen = self._log.head
            try:
                for user, session in await self._log.read(read_unerased):
                    await self._erase(user, session)
            except StoreUnusable as error:
                self._report("forgetting.write_failed", code=error.code)
                await anyio.sleep(self._write_pause_s)
                continue
            self._erased.set()
            self._erased = anyio.Event()
            await self._log.wait_past(seen)

    async def _erase(self, user: Reference, session: Reference) -> None:
        """Erase, and say so only when no file of the log holds the words any more (engineering.md D4)."""
        while not await self._log.write(partial(erase_slice, session=session)):
            await anyio.lowlevel.checkpoint()  # turns go first
        while not await self._log.write(truncate_wal):
            self._report("forgetting.wal_busy")
            await anyio.sleep(self._write_pause_s)  # a reader holds it
        counts = await self._log.read(partial(count_erased, session=session))
        await self._log.append_event(
            NewEvent(
                user_id=await self._log.read(partial(read_user_name, user=user)),
                session_id=None,
                session=session,  # its name is gone by now
                event=SessionErased(
                    forgotten=counts.forgotten,
                    events_voided=counts.events_voided,
                    words_erased=counts.words_erased,
                    names_erased=counts.names_erased,
                    dead_letters_erased=counts.dead_letters_erased,
                ),
                key=f"erased/{session.hex()}/{counts.forgotten}",
                happened_at=self._clock(),
                time_assigned=True,
            )
        )
        self._report("forgetting.session_erased", events=counts.events_voided, words=counts.words_erased)


def _receipt(session_id: str, counts: ErasureCounts, *, complete: bool) -> Receipt:
    return Receipt(
        session_id=session_id,
        forgotten_user_seq=counts.forgotten,
        events_voided=counts.events_voided,
        words_erased=counts.words_erased,
        names_erased=counts.names_erased,
        dead_letters_erased=counts.dead_letters_erased,
        complete=complete,
    )
