"""What callers are told of a forgetting: beforehand what it would take, and afterwards what it took."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import partial

from events.envelope import Reference
from events.erasure import ErasureCounts, Unerased, count_erased, count_voided
from events.errors import MemForestError
from events.log import EventLog
from events.reading import read_events
from events.session import Erasure, SessionErased, UserErased
from events.time import to_iso
from events.tombstones import read_tombstone


class SessionUnknown(MemForestError):
    """There is no session of this id; `sessions.list` names those there are."""

    code = "not_found"


class UserUnknown(MemForestError):
    """There is no user of this id; `users.list` names those there are."""

    code = "not_found"


@dataclass(frozen=True, slots=True)
class TombstoneShown:
    """What keeps the forgotten from coming back: give it to `memforestd restore --receipts`."""

    session: str | None
    user: str
    forgotten_at: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What forgetting took so far. `complete`: erased from every store, and no residue was found.

    `proven`: and all files were searched for samples of all its words. Samples are in memory alone, so a restart
    in the middle of the erasing leaves it complete and not proven.
    `residues` are places where it still stands, and files that could not be searched; with `scan_windows` and no
    `scanned_files` the scan failed. `waiting_for` is `bus`, `erasing`, `bus_index` (the embedded bus names it in
    its index, which it will write anew), `operator` (the log names what keeps it) or null; `erased_user_seq` is
    the event of the receipt, which the user's chain covers.
    """

    forgotten_user_seq: int
    erased_user_seq: int | None
    events_voided: int
    words_erased: int
    names_erased: int
    dead_letters_erased: int
    bus_messages_erased: int
    bus_messages_left: int
    bus_left_until: str | None
    voided: dict[str, int]
    first_user_seq: int
    last_user_seq: int
    facts_admitted_again: int
    scanned_files: int
    scanned_bytes: int
    scan_windows: int
    residues: int
    tombstoned: bool
    tombstone: TombstoneShown
    complete: bool
    proven: bool
    waiting_for: str | None


@dataclass(frozen=True, slots=True)
class Preview:
    """What forgetting would take, by event type; nothing was changed.

    `summaries_again` and `groups_again` hold words of other sessions too: they are asked of the model again.
    """

    events: int
    voided: dict[str, int]
    dead_letters: int
    bus_messages: int
    summaries_again: int
    groups_again: int
    forgotten_user_seq: int | None = None  # it is forgotten already, and nothing more would go


@dataclass(frozen=True, slots=True)
class Pending:
    """What a receipt has to wait for that the log does not tell.

    `bus`: it is away, or has messages of the subject that were not read. `copies`: the bus was not asked yet to
    delete some that were read late. `bus_index`: that names the subject.
    """

    bus: bool = False
    copies: bool = False
    bus_index: bool = False


async def make_receipt(log: EventLog, subject: Reference, pending: Pending) -> Receipt:
    """The receipt of something forgotten, as far as its erasing has come."""
    forgotten, erased = await log.read(partial(_read_erasure, subject=subject))
    counts = await log.read(partial(count_erased, subject=subject))
    voided = await log.read(partial(count_voided, erased=forgotten))
    tombstone = await log.read(partial(read_tombstone, subject=subject))
    recorded = await log.read(partial(read_events, seqs=[] if erased is None else [erased[1]]))
    events = [each.event for each in recorded.values() if isinstance(each.event, SessionErased | UserErased)]
    done: Erasure | None = events[0].erasure if events else None
    until = done.bus_left_until if done else None
    waiting_for = _waiting_for(done, counts, pending)
    return Receipt(
        forgotten_user_seq=forgotten.forgotten,
        erased_user_seq=None if erased is None else erased[0],
        events_voided=sum(count for count, _, _ in voided.values()),
        words_erased=counts.words,
        names_erased=counts.names,
        dead_letters_erased=counts.dead_letters,
        bus_messages_erased=counts.bus_erased,
        bus_messages_left=counts.bus_left,
        bus_left_until=None if until is None else to_iso(until),
        voided={kind: count for kind, (count, _, _) in sorted(voided.items())},
        first_user_seq=min((first for _, first, _ in voided.values()), default=0),
        last_user_seq=max((last for _, _, last in voided.values()), default=0),
        facts_admitted_again=done.admitted_again if done else 0,
        scanned_files=done.scanned_files if done else 0,
        scanned_bytes=done.scanned_bytes if done else 0,
        scan_windows=done.windows if done else 0,
        residues=done.residues if done else 0,
        tombstoned=done is not None and done.tombstoned,
        tombstone=TombstoneShown(
            None if tombstone.session is None else tombstone.session.hex(),
            tombstone.user.hex(),
            tombstone.forgotten_at,
        ),
        complete=waiting_for is None,
        proven=waiting_for is None and done is not None and done.sampled and done.scanned_files > 0,
        waiting_for=waiting_for,
    )


def _waiting_for(done: Erasure | None, counts: ErasureCounts, pending: Pending) -> str | None:
    """What a receipt that is not complete waits for; `operator` is for people to mend."""
    if done is None:
        return "bus" if pending.bus else "erasing"
    if not _found_nothing(done):
        return "operator"
    if pending.bus:
        return "bus"
    if counts.bus_left:
        return "erasing" if pending.copies else "operator"
    return "bus_index" if pending.bus_index else None


def _found_nothing(done: Erasure) -> bool:
    """Whether a scan found nothing; after a restart there may have been nothing left to look for."""
    return not done.residues and (done.scanned_files > 0 or not done.windows)


async def preview(log: EventLog, user: Reference, subject: Reference) -> Preview:
    """What forgetting a subject would take."""
    forgotten = await log.read(
        lambda db: db.execute(
            "SELECT forgotten FROM erasures WHERE subject IN (?, ?) AND reopened = 0", (subject, user)
        ).fetchone()
    )
    if forgotten is not None:
        return Preview(0, {}, 0, 0, 0, 0, forgotten[0])
    known = await log.read(partial(_read_erasure_of, user=user, subject=subject))
    voided = await log.read(partial(count_voided, erased=known))
    letters, messages, shared = await log.read(partial(_count_besides, user=user, subject=subject))
    return Preview(
        events=sum(count for count, _, _ in voided.values()),
        voided={kind: count for kind, (count, _, _) in sorted(voided.items())},
        dead_letters=letters,
        bus_messages=messages,
        summaries_again=shared.get("interval.summarised", 0),
        groups_again=shared.get("nodes.merged", 0),
    )


def _read_erasure(connection: sqlite3.Connection, subject: Reference) -> tuple[Unerased, tuple[int, int] | None]:
    """What was forgotten, and the (user_seq, seq) of its receipt."""
    user, forgotten, erased = connection.execute(
        "SELECT user, forgotten, erased FROM erasures WHERE subject = ?", (subject,)
    ).fetchone()
    if erased is None:
        return Unerased(user, subject, forgotten), None
    (seq,) = connection.execute(
        "SELECT seq FROM events WHERE user = ? AND user_seq = ?", (user, erased)
    ).fetchone()
    return Unerased(user, subject, forgotten), (erased, seq)


def _read_erasure_of(connection: sqlite3.Connection, user: Reference, subject: Reference) -> Unerased:
    """As if it were forgotten now."""
    (head,) = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone() or (0,)
    return Unerased(user, subject, head + 1)


def _count_besides(
    connection: sqlite3.Connection, user: Reference, subject: Reference
) -> tuple[int, int, dict[str, int]]:
    """Dead letters, messages on the bus, and voided events with words of other sessions by type."""
    owner = "user" if subject == user else "session"
    of_subject = "user = ?1" if subject == user else "seq IN (SELECT seq FROM lineage WHERE session = ?1)"
    (letters,) = connection.execute(f"SELECT count(*) FROM dead_letters WHERE {owner} = ?", (subject,)).fetchone()
    (messages,) = connection.execute(
        f"""SELECT count(*) FROM (
                SELECT bus_stream, bus_epoch, bus_seq FROM events WHERE {of_subject} AND bus_seq IS NOT NULL
                UNION SELECT c.stream, c.epoch, c.seq FROM copies c
                    WHERE c.event IN (SELECT seq FROM events WHERE {of_subject})
                UNION SELECT bus_stream, bus_epoch, bus_seq FROM letters WHERE {owner} = ?1)""",
        (subject,),
    ).fetchone()
    shared = connection.execute(
        f"SELECT type, count(*) FROM events WHERE {of_subject} AND length(lineage) > ?2 GROUP BY type",
        (subject, len(subject)),
    )
    return letters, messages, dict(shared.fetchall()) if subject != user else {}
