"""Forgetting: the gate closes with one event, then what was forgotten is erased in the background.

The order is that of design 3.2: from the moment SessionForgotten is durable nothing of the session is shown
or taken; what follows (daemon/erasure/erasing.py) may be interrupted at any point and goes on at the next start.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import partial

import anyio
import anyio.to_thread

from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.subjects import encode_token
from daemon.decoders.decoding import make_forget_key
from daemon.erasure.bus_index import names_in_index, stands_in_index
from daemon.erasure.erasing import (
    Erasing,
    erase,
    erase_copies,
    erase_what_was_retracted,
    look_again,
    sample,
)
from daemon.erasure.fingerprints import Fingerprints
from daemon.erasure.receipts import Pending, Preview, Receipt, SessionUnknown, UserUnknown, make_receipt, preview
from daemon.erasure.recording import Outcome
from daemon.memories import Memories
from events.bus_copies import count_unwanted
from events.envelope import NewEvent, Reference
from events.erasure import Unerased, count_erased, has_emptied, has_retracted, read_unerased
from events.errors import LogDamaged, StoreUnusable
from events.registry import knows_session, knows_user
from events.session import SessionForgotten, UserForgotten
from events.tombstones import forget_as_told, read_planted

# How long a caller waits for the end of the erasing; it goes on without them.
WAIT_S = 30.0
# How often is looked for what no event tells of: refused copies on the bus, a bus that came back.
UPKEEP_S = 30.0
# What else grew the log is followed by a look after so long.
MOMENT_S = 0.2
# After so many failures in a row a caller is told that the bus is away: one may be a server that was slow.
BUS_FAILURES_MAX = 2
# Receipts by which something is left, and whose samples are kept to look again; each may take 5 MB.
LEFT_MAX = 8
# How often the bus is asked again for what it would not delete.
RETRY_S = 3600.0


class Forgetter:
    """Takes the wish to forget, and has erased what was forgotten."""

    def __init__(self, parts: Erasing, memories: Memories, wait_s: float = WAIT_S) -> None:
        """`wait_s`: how long a caller waits for the receipt."""
        self._parts = parts
        self._log = parts.log
        self._memories = memories
        self._wait_s = wait_s
        self._erased = anyio.Event()
        # Of what is being erased: once its words are gone they cannot be taken again.
        self._samples: dict[Reference, Fingerprints] = {}
        # Of what is erased and something was left of, the latest last.
        self._left: dict[Reference, tuple[Unerased, Fingerprints, Outcome]] = {}
        self._looking_again = anyio.Lock()
        # Copies on the bus that it would not delete, and when they are tried again.
        self._copies_kept = 0
        self._copies_due_at = 0.0
        # How often in a row the bus was not there for a subject.
        self._bus_failures: dict[Reference, int] = {}
        # Subjects whose erasing waits for the bus.
        self.waiting_for_bus: frozenset[Reference] = frozenset()

    async def forget(self, user_id: str, session_id: str) -> Receipt:
        """Forget a session, and wait a while until it is erased. Works with the bus down; twice is the same.

        Raises `SessionUnknown`. Whoever stops waiting does not stop the erasing.
        """
        user, session = self._log.keys.user(user_id), self._log.keys.session(user_id, session_id)
        await self._find_session(session)
        await self._record(user_id, session_id, SessionForgotten(), make_forget_key(user_id, session_id))
        self._memories.hide(user, session)
        subject = await self._find_erasure(user, session)
        return await self._wait_for_receipt(user, subject, user_id, None if subject == user else session_id)

    async def forget_user(self, user_id: str) -> Receipt:
        """Forget all of a user: every session, every fact, the name. Raises `UserUnknown`."""
        user = self._log.keys.user(user_id)
        await self._find_user(user)
        await self._record(user_id, None, UserForgotten(), f"forget_user/{encode_token(user_id)}")
        self._memories.hide_user(user)
        return await self._wait_for_receipt(user, user, user_id, None)

    async def preview(self, user_id: str, session_id: str | None) -> Preview:
        """What forgetting a session, or (None) all of a user, would take. Changes nothing.

        Raises `SessionUnknown` or `UserUnknown`.
        """
        user = self._log.keys.user(user_id)
        if session_id is None:
            await self._find_user(user)
            return await preview(self._log, user, user)
        session = self._log.keys.session(user_id, session_id)
        await self._find_session(session)
        return await preview(self._log, user, session)

    async def _find_session(self, session: Reference) -> None:
        if not await self._log.read(partial(knows_session, session=session)):
            raise SessionUnknown

    async def _find_user(self, user: Reference) -> None:
        forgotten = await self._log.read(
            lambda db: db.execute("SELECT 1 FROM erasures WHERE subject = ?", (user,)).fetchone()
        )
        if not forgotten and not await self._log.read(partial(knows_user, user=user)):
            raise UserUnknown

    async def _find_erasure(self, user: Reference, session: Reference) -> Reference:
        """What tells of a session's forgetting: what was forgotten last, itself or all of its user.

        That also took over what the bus had left of the other.
        """
        of_both = "SELECT subject FROM erasures WHERE subject IN (?, ?) ORDER BY forgotten DESC LIMIT 1"
        (last,) = await self._log.read(lambda db: db.execute(of_both, (session, user)).fetchone())
        return bytes(last)

    async def _record(
        self, user_id: str, session_id: str | None, event: SessionForgotten | UserForgotten, key: str
    ) -> None:
        await self._log.append_event(
            NewEvent(
                user_id=user_id,
                session_id=session_id,
                event=event,
                key=key,
                happened_at=self._parts.clock(),
                time_assigned=True,
            )
        )

    async def _wait_for_receipt(
        self, user: Reference, subject: Reference, user_id: str, session_id: str | None
    ) -> Receipt:
        with anyio.move_on_after(self._wait_s):
            await self._wait_until_erased(subject)
            if subject not in self.waiting_for_bus:
                await self._wait_until_read(subject, user_id, session_id)
            await self._look_again(subject)
        with suppress(LogDamaged):  # one that cannot be folded shows nothing, and is erased like any other
            await self._memories.catch_up(user)
        pending = Pending(
            bus=subject in self.waiting_for_bus or await self._count_unread(subject, user_id, session_id) != 0,
            copies=await self._log.read(count_unwanted) != self._copies_kept,
            bus_index=await self._is_indexed(subject, names_in_index(user_id, session_id)),
        )
        return await make_receipt(self._log, subject, pending)

    async def _wait_until_read(self, subject: Reference, user_id: str, session_id: str | None) -> None:
        """Until no message of the subject is unread, and the bus was asked to delete those that were late."""
        while unread := await self._count_unread(subject, user_id, session_id):
            await self._wait_a_moment(self._log.head)  # others may write all the time
        while unread is not None:
            told = self._erased  # taken before the look, as below
            if await self._log.read(count_unwanted) == self._copies_kept:
                return
            await told.wait()

    async def _count_unread(self, subject: Reference, user_id: str, session_id: str | None) -> int | None:
        """Messages of it on the bus that nobody has read; None if the bus cannot tell.

        Those that are left count for themselves, and what began anew has messages with reason.
        """
        if (await self._log.read(partial(count_erased, subject=subject))).bus_left or await self._is_anew(subject):
            return 0
        return await self._parts.bus.count_messages(user_id, session_id)

    async def _look_again(self, subject: Reference) -> None:
        """Whoever asks for a receipt by which something was left has the files searched once more."""
        async with self._looking_again:
            left = self._left.get(subject)
            if left is not None and await look_again(self._parts, *left):
                self._left.pop(subject, None)

    async def _is_indexed(self, subject: Reference, names: tuple[bytes, ...]) -> bool:
        """Whether the embedded bus names a subject without reason."""
        if await self._is_anew(subject):
            return False
        return await anyio.to_thread.run_sync(stands_in_index, self._parts.folder, names)

    async def _is_anew(self, subject: Reference) -> bool:
        begun_anew = "SELECT 1 FROM erasures WHERE subject = ? AND reopened"
        return await self._log.read(lambda db: db.execute(begun_anew, (subject,)).fetchone()) is not None

    async def _wait_until_erased(self, subject: Reference) -> None:
        while subject not in self.waiting_for_bus:
            erased = self._erased  # taken before the look, or an erasing in between would be slept through
            if subject not in {each.subject for each in await self._log.read(read_unerased)}:
                return
            await erased.wait()

    async def run(self) -> None:
        """Erase whatever is forgotten and not erased, for ever; also what an earlier run left."""
        while True:
            seen = self._log.head
            try:
                waits = await self._has_work() and await self._do_work()
            except StoreUnusable as error:
                self._parts.report("forgetting.write_failed", code=error.code)
                await anyio.sleep(self._parts.pause_s)
                continue
            self._tell()
            with anyio.move_on_after(self._parts.pause_s if waits else UPKEEP_S):
                await self._log.wait_past(seen)
                await self._wait_a_moment(seen)

    async def _wait_a_moment(self, seen: int) -> None:
        """Return when something was undone since, or soon: what no such event tells of is not looked for with
        every commit."""
        with anyio.move_on_after(MOMENT_S):
            while self._log.undone_at <= seen:
                await self._log.wait_past(self._log.head)

    async def _has_work(self) -> bool:
        """Whether there is anything to do: one look for all of it."""
        kept = self._copies_kept

        def look(connection: sqlite3.Connection) -> bool:
            left = (read_planted, read_unerased, has_retracted, has_emptied)
            return any(find(connection) for find in left) or count_unwanted(connection) != kept

        return anyio.current_time() >= self._copies_due_at or await self._log.read(look)

    async def _do_work(self) -> bool:
        """Forget and erase; whether something waits for the bus."""
        await self._forget_what_others_forgot()
        return await self._erase_all(await self._log.read(read_unerased))

    async def _erase_all(self, unerased: tuple[Unerased, ...]) -> bool:
        """Erase what there is to erase; whether something waits for the bus."""
        waiting: dict[Reference, int] = {}
        for forgotten in unerased:
            subject = forgotten.subject
            try:
                if subject not in self._samples:
                    self._samples[subject] = await self._sample(forgotten)
                self._left.pop(subject, None)
                outcome = await erase(self._parts, forgotten, self._samples[subject])
                self._keep_samples(forgotten, self._samples.pop(subject), outcome)
            except BusUnavailable:
                waiting[subject] = self._bus_failures.get(subject, 0) + 1
                if waiting[subject] == BUS_FAILURES_MAX:
                    self._parts.report("forgetting.bus_away")
            self._tell()
        self._bus_failures = waiting
        self.waiting_for_bus = frozenset(each for each, n in waiting.items() if n >= BUS_FAILURES_MAX)
        self._tell()
        await erase_what_was_retracted(self._parts)
        try:
            await self._erase_copies()
        except BusUnavailable:
            return True  # the rows wait; the words here are gone
        return bool(waiting)

    def _keep_samples(self, forgotten: Unerased, samples: Fingerprints, outcome: Outcome) -> None:
        """To look again for what was found; after a restart nobody can."""
        if not outcome.is_clean:
            self._left[forgotten.subject] = (forgotten, samples, outcome)
        while len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    async def _sample(self, forgotten: Unerased) -> Fingerprints:
        """What to look for when the words, and the vectors that were made of them, are gone."""
        samples = await sample(self._log, forgotten.subject)
        if self._parts.derived is not None:
            for vector in await self._parts.derived.read_vectors_of(forgotten):
                samples.add_bytes(vector)
        return samples

    async def _erase_copies(self) -> None:
        """Delete from the bus what retractions left and what was refused; what it keeps is tried again seldom."""
        unwanted = await self._log.read(count_unwanted)
        due = anyio.current_time() >= self._copies_due_at
        if unwanted == self._copies_kept and not due:
            return
        # What came meanwhile is not among these, and so it is tried the next time.
        self._copies_kept = await erase_copies(self._parts)
        self._copies_due_at = anyio.current_time() + RETRY_S

    async def _forget_what_others_forgot(self) -> None:
        """Tombstones from a restore or from the bucket are as good as the wish itself."""
        for tombstone in await self._log.read(read_planted):
            await self._log.append_event(forget_as_told(tombstone))
            if tombstone.session is None:
                self._memories.hide_user(tombstone.user)
            else:
                self._memories.hide(tombstone.user, tombstone.session)
            self._parts.report("forgetting.tombstone_met")

    def _tell(self) -> None:
        erased, self._erased = self._erased, anyio.Event()
        erased.set()
