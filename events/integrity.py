"""Whether the log is what was written: the whole of it for `doctor --deep`, its end at every start.

Reading checks what it reads and stops at the first damage (reading.py); here everything is looked at and every
damaged event is named. SQLite's own check sees damaged structure only: it finds no changed bit of a payload.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from events.database import DAMAGED, DISK_FAILED, FAILED, name_failure
from events.envelope import GENESIS, Reference, commit_to, link
from events.errors import LogDamaged
from events.reading import split_lineage

# What a check is called.
CHAIN: Final = "does not match its chain"
COMMITMENT: Final = "has words that do not match its commitment"
WORDS_MISSING: Final = "lost its words"
MISSING: Final = "is missing"
UNREADABLE: Final = "stands on an unreadable page"
LAST: Final = "is not the last one of its user"
RUNNING: Final = "the running hash over all events"
STRUCTURE: Final = "SQLite's own check of the file"

PAGE_EVENTS: Final = 500
# The end of the log that is checked at a start: the events that were written when something went wrong.
TAIL_EVENTS: Final = 1000
# SQLite's check takes 6 to 7 ms a MB: a start waits for it up to this size.
START_CHECK_BYTES_MAX: Final = 1 << 23
# Above this it would read for minutes beside those who ask; `doctor` does it.
QUICK_CHECK_BYTES_MAX: Final = 1 << 30
# Steps of SQLite between two questions whether to give up: a few ms.
_STEPS: Final = 100_000

_ENVELOPE: Final = """seq, user, user_seq, session, type, version, key, happened_at, recorded_at, caused_by,
    lineage, basis, bus_stream, bus_epoch, bus_seq, body, commitment, chain"""


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it was written; without `seq` it concerns the store as a whole or a user."""

    check: str
    seq: int | None = None
    user_seq: int | None = None


@dataclass(frozen=True, slots=True)
class _Last:
    """The last event of a user that was passed, and what the next one may link to."""

    seq: int
    user_seq: int
    chains: tuple[bytes, ...]


@dataclass(slots=True)
class Walk:
    """Looks at each event of the log once, in order, a page at a time, through a read-only connection.

    `begin`, then `step` until it returns True, then read `damages`. A daemon may write meanwhile: what comes
    after `begin` is not looked at.
    """

    seq: int = 0
    head: int = 0
    damages: list[Damage] = field(default_factory=list[Damage])
    _from: int = 0
    _running: bytes = GENESIS
    _running_head: bytes = GENESIS
    _last: dict[Reference, _Last] = field(default_factory=dict[Reference, _Last])
    # Damages whose place in their user's chain is not known: indices into `damages`.
    _loose: list[int] = field(default_factory=list[int])

    def begin(self, connection: sqlite3.Connection, last_events: int | None = None) -> None:
        """Take the end of the log as it is now; with `last_events` only those before it are looked at."""
        self.head, self._running_head = connection.execute("SELECT seq, running FROM head").fetchone()
        self.seq = self._from = 0 if last_events is None else max(0, self.head - last_events)

    def step(self, connection: sqlite3.Connection) -> bool:
        """Look at the next page; True when the end is reached."""
        until = min(self.seq + PAGE_EVENTS, self.head)
        with _lenient(connection):
            rows = self._read_rows(connection, until)
            words = self._read_words(connection, rows)
            for seq in range(self.seq + 1, until + 1):
                if seq in rows:
                    self._check(connection, rows[seq], words.get(seq))
            if until == self.head:
                self._check_end(connection)
        self.seq = until
        return until == self.head

    def _read_rows(self, connection: sqlite3.Connection, until: int) -> dict[int, tuple[Any, ...]]:
        """The rows that can be read; those that cannot, or are not there, are damages from here on."""
        query = f"SELECT {_ENVELOPE} FROM events WHERE seq BETWEEN ? AND ?"
        seqs = range(self.seq + 1, until + 1)
        found, unreadable = _read_what_can_be_read(connection, query, seqs)
        rows = {row[0]: row for row in found}
        for seq in seqs:
            if seq not in rows:
                self._loose.append(len(self.damages))
                self.damages.append(Damage(UNREADABLE if seq in unreadable else MISSING, seq))
        return rows

    def _read_words(
        self, connection: sqlite3.Connection, rows: dict[int, tuple[Any, ...]]
    ) -> dict[int, tuple[bytes, list[bytes]]]:
        """Nonce and words of each of the rows that has any."""
        query = """SELECT seq, CAST(nonce AS BLOB), CAST(text AS BLOB) FROM words
            WHERE seq BETWEEN ? AND ? AND text IS NOT NULL ORDER BY seq, n"""
        found, unreadable = _read_what_can_be_read(connection, query, rows)
        words: dict[int, tuple[bytes, list[bytes]]] = {}
        for seq, nonce, text in found:
            words.setdefault(seq, (nonce, []))[1].append(text)
        for seq in unreadable:
            self.damages.append(Damage(UNREADABLE, seq, rows[seq][2]))
            words[seq] = (b"", [])
        return words

    def _check(
        self, connection: sqlite3.Connection, row: tuple[Any, ...], words: tuple[bytes, list[bytes]] | None
    ) -> None:
        self._check_place(connection, row)
        self._running = link(self._running, [row[-1]])
        if words is None and row[16] != commit_to(b"", ()):
            if not _is_erased(connection, row):
                self.damages.append(Damage(WORDS_MISSING, row[0], row[2]))
        elif words is not None and words[1] and commit_to(*words) != row[16]:
            self.damages.append(Damage(COMMITMENT, row[0], row[2]))

    def _check_place(self, connection: sqlite3.Connection, row: tuple[Any, ...]) -> None:
        """Whether the event is the next one of its user, and linked to the one before."""
        seq, user, user_seq, chain = row[0], row[1], row[2], row[-1]
        last = self._last.get(user) or self._find_last(connection, row)
        gap = user_seq - last.user_seq - 1 if isinstance(user_seq, int) else -1
        if gap > 0 and self._settle(last, seq, gap):
            self._last[user] = _Last(seq, user_seq, (chain,))  # the one before it is gone: nothing to link to
            return
        links = [link(previous, row[:-1]) for previous in last.chains]
        if gap == 0 and chain in links:
            self._last[user] = _Last(seq, user_seq, (chain,))
            return
        self._loose.append(len(self.damages))
        self.damages.append(Damage(CHAIN, seq, user_seq if isinstance(user_seq, int) else None))
        # The chain itself may be what was changed: then the next event links to what it should be.
        self._last[user] = _Last(seq, last.user_seq + 1, (chain, *links[:1]))

    def _find_last(self, connection: sqlite3.Connection, row: tuple[Any, ...]) -> _Last:
        """What comes before the first event of a user that is looked at: nothing, or an event before the tail."""
        if self._from:
            before = connection.execute(
                "SELECT seq, user_seq, chain FROM events WHERE user = ? AND user_seq < ? AND seq <= ? "
                "ORDER BY user_seq DESC LIMIT 1",
                (row[1], row[2], self._from),
            ).fetchone()
            if before is not None:
                return _Last(before[0], before[1], (before[2],))
        return _Last(0, 0, (GENESIS,))

    def _settle(self, last: _Last, seq: int, gap: int) -> bool:
        """Give the damages that explain a gap in a user's chain their place; False when they explain less."""
        between = [at for at in self._loose if last.seq < (self.damages[at].seq or 0) < seq]
        if len(between) < gap:
            return False
        if len(between) == gap:
            for user_seq, at in enumerate(between, start=last.user_seq + 1):
                if self.damages[at].user_seq is None:
                    self.damages[at] = replace(self.damages[at], user_seq=user_seq)
                self._loose.remove(at)
        return True

    def _check_end(self, connection: sqlite3.Connection) -> None:
        """Whether head and users know of the same last events."""
        if not self._from and self._running != self._running_head:
            self.damages.append(Damage(RUNNING))
        grown = {user for (user,) in connection.execute("SELECT user FROM events WHERE seq > ?", (self.head,))}
        for user, user_seq, chain in connection.execute("SELECT user, user_seq, chain FROM users"):
            last = self._last.get(user)
            if user in grown or (last is None and self._from):
                continue
            last = last or _Last(0, 0, (GENESIS,))
            gap = user_seq - last.user_seq
            if gap > 0 and self._settle(last, self.head + 1, gap):
                continue
            if gap or chain not in last.chains:
                self.damages.append(Damage(LAST, last.seq, last.user_seq))


def check_start(connection: sqlite3.Connection) -> None:
    """Refuse a store that is damaged as far as a start can tell. Raises `LogDamaged`, which names the damage.

    The structure of a large file is looked at later: see `needs_structure_check`.
    """
    found: list[Damage] = []
    if _size(connection) <= START_CHECK_BYTES_MAX and not _has_sound_structure(connection):
        found.append(Damage(STRUCTURE))
    walk = Walk()
    walk.begin(connection, TAIL_EVENTS)
    while not walk.step(connection):
        pass
    # The structure first: it may be why events do not match.
    _refuse(describe(found) + describe(walk.damages))


def needs_structure_check(connection: sqlite3.Connection) -> bool:
    """Whether `check_start` left SQLite's own check to `check_structure`, and it ends within seconds."""
    return START_CHECK_BYTES_MAX < _size(connection) <= QUICK_CHECK_BYTES_MAX


def check_structure(connection: sqlite3.Connection, given_up: Callable[[], bool] = lambda: False) -> None:
    """SQLite's own check of the whole file, until done or `given_up`. Raises `LogDamaged`."""
    connection.set_progress_handler(given_up, _STEPS)
    try:
        sound = _has_sound_structure(connection)
    except sqlite3.OperationalError:
        if not given_up():
            raise
        return
    finally:
        connection.set_progress_handler(None, 0)
    _refuse([] if sound else describe([Damage(STRUCTURE)]))


def _size(connection: sqlite3.Connection) -> int:
    query = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    return int(connection.execute(query).fetchone()[0])


def _has_sound_structure(connection: sqlite3.Connection) -> bool:
    (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return bool(result == "ok")


def _refuse(found: list[str]) -> None:
    if found:
        more = "; ..." if len(found) > 3 else ""
        raise LogDamaged(f"the log is damaged: {'; '.join(found[:3])}{more}; `memforestd doctor --deep` names all")


def describe(damages: Iterable[Damage]) -> list[str]:
    """A sentence for each damage, and one for each run of events with the same."""
    runs: list[tuple[Damage, Damage]] = []
    for each in sorted(damages, key=lambda damage: (damage.seq is None, damage.seq or 0)):
        first, last = runs[-1] if runs else (each, each)
        if runs and each.check == first.check and each.seq and each.seq == (last.seq or 0) + 1:
            runs[-1] = (first, each)
        else:
            runs.append((each, each))
    return [_sentence(first, last) for first, last in runs]


def _sentence(first: Damage, last: Damage) -> str:
    if first.seq is None:
        return f"{first.check} does not match"
    if first is not last:
        return f"each event from seq {first.seq} to {last.seq} {first.check}"
    place = "" if first.user_seq is None else f" (user_seq {first.user_seq})"
    return f"the event at seq {first.seq}{place} {first.check}"


def _is_erased(connection: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
    """Whether an event without words may have none: it was forgotten with its session or user, or retracted."""
    seq, subjects = row[0], [row[1]]
    if isinstance(row[10], bytes):
        subjects += split_lineage(row[10])
    if connection.execute("SELECT 1 FROM voids WHERE seq = ? AND erases > 0", (seq,)).fetchone():
        return True
    return any(
        connection.execute(
            "SELECT 1 FROM erasures WHERE subject = ? AND forgotten_seq > ?", (subject, seq)
        ).fetchone()
        for subject in subjects
    )


def _read_what_can_be_read(
    connection: sqlite3.Connection, query: str, seqs: Iterable[int]
) -> tuple[list[tuple[Any, ...]], set[int]]:
    """The rows of a range of seqs, one by one when they cannot be read together, and the seqs that cannot."""
    wanted = list(seqs)
    if not wanted:
        return [], set()
    try:
        return connection.execute(query, (wanted[0], wanted[-1])).fetchall(), set()
    except sqlite3.Error as error:
        _check_unreadable(error)
    found: list[tuple[Any, ...]] = []
    unreadable: set[int] = set()
    for seq in wanted:
        try:
            found += connection.execute(query, (seq, seq)).fetchall()
        except sqlite3.Error as error:
            _check_unreadable(error)
            unreadable.add(seq)
    return found, unreadable


def _check_unreadable(error: sqlite3.Error) -> None:
    """Go on only after what damage on the disk does."""
    if name_failure(error) not in (DAMAGED, DISK_FAILED, FAILED):
        raise error


@contextmanager
def _lenient(connection: sqlite3.Connection) -> Generator[None]:
    """Read text that is no UTF-8 any more, instead of an error that would quote it."""
    before: Callable[[bytes], Any] = connection.text_factory
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        yield
    finally:
        connection.text_factory = before
