"""The ledger: what was asked of models, what it took, what stands recorded of it, and which work is parked.

Rows are written in the transaction of the events they count. They hold numbers and references, never a word, and
they stay when a session is forgotten: it was paid for. Its reference names nobody once its name is erased, and a
session that begins anew begins with nothing spent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from events.codec import Event
from events.envelope import RecordedEvent, Reference
from events.errors import LogDamaged
from events.memory import FactsExtracted, IntervalSummarised, NodesMerged, Task, Usage, WorkParked, WorkResumed
from events.reading import read_events, split_lineage
from events.session import SessionForgotten, SessionReplayed, UserForgotten
from events.time import Instant

DAY_MS = 86_400_000
# The latest answers to a request that are looked at: one that fell is followed by one that stands, or by none.
_ANSWERS_MAX = 8
_SUMS = """coalesce(sum(calls), 0), coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
    coalesce(sum(completion_tokens), 0), coalesce(sum(cost_nano), 0), coalesce(sum(latency_ms), 0)"""
_END_PARKED = "UPDATE ledger SET parked = 2 WHERE parked = 1"
# A session that began anew has spent nothing of what it spent before.
_OF_SESSION = """session = :session
    AND seq > coalesce((SELECT forgotten_seq FROM erasures WHERE subject = :session), 0)"""


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """How many answers of one task there are, and what the extractions among them came to.

    `zero` and `missed` are of chunks that a model was asked about: answers without a fact, and details that no
    fact carries. `skipped` are chunks that were passed over by rule. `parked` is work that stands parked now.
    """

    answers: int
    skipped: int
    zero: int
    facts: int
    missed: int
    parked: int


def day_of(at: Instant) -> int:
    """The day of an instant: whole days since 1970 in UTC."""
    return at // DAY_MS


def index_answer(connection: sqlite3.Connection, recorded: RecordedEvent, event: Event) -> None:
    """Write the row of an answer or a parking, and note which parked work an event puts an end to.

    Asked before the registry is told which turns the event covers.
    """
    match event:
        case FactsExtracted(covers=covers, replaces=replaces, facts=facts):
            _insert(connection, recorded, event, Task.EXTRACT, (len(facts), event.missed, event.skipped))
            if replaces is None:
                _end_covered(connection, covers)
        case IntervalSummarised(digest=digest):
            _insert(connection, recorded, event, Task.SUMMARISE)
            connection.execute(f"{_END_PARKED} AND user = ? AND request = ?", (recorded.user, digest))
        case NodesMerged():
            _insert(connection, recorded, event, Task.MERGE)
        case WorkParked(covers=covers):
            _end_covered(connection, covers)
            _insert(connection, recorded, event, event.task)
        case WorkResumed(parked=parked):
            end_parked(connection, (parked,))
        case SessionReplayed():
            # What a replay parked covers no turn, and is over with the replay.
            connection.execute(
                f"""{_END_PARKED} AND session = ? AND task = 'extract'
                    AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.extraction = ledger.seq)""",
                (recorded.session,),
            )
        case SessionForgotten():
            connection.execute(
                f"""{_END_PARKED} AND EXISTS (
                    SELECT 1 FROM lineage l WHERE l.session = ? AND l.seq = ledger.seq)""",
                (recorded.session,),
            )
        case UserForgotten():
            connection.execute(f"{_END_PARKED} AND user = ?", (recorded.user,))
        case _:
            pass


def end_parked(connection: sqlite3.Connection, seqs: Iterable[int]) -> None:
    """Note that what was parked by these events stands parked no more; other events are passed over."""
    connection.executemany(f"{_END_PARKED} AND seq = ?", [(seq,) for seq in seqs])


def _end_covered(connection: sqlite3.Connection, covers: Iterable[int]) -> None:
    connection.executemany(
        f"{_END_PARKED} AND seq = (SELECT extraction FROM turns WHERE seq = ?)", [(place,) for place in covers]
    )


def _insert(
    connection: sqlite3.Connection,
    recorded: RecordedEvent,
    event: FactsExtracted | IntervalSummarised | NodesMerged | WorkParked,
    task: Task,
    extraction: tuple[int | None, int, bool] = (None, 0, False),
) -> None:
    session = recorded.lineage[0] if len(recorded.lineage) == 1 else None
    parked = isinstance(event, WorkParked)
    usage = event.usage
    connection.execute(
        "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            recorded.seq,
            recorded.user,
            session,
            task.value,
            day_of(recorded.recorded_at),
            event.request or None,
            int(parked),
            *extraction,
            usage.calls,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            usage.cost_nano,
            usage.latency_ms,
        ),
    )


def find_answer(connection: sqlite3.Connection, user: Reference, request: bytes) -> int | None:
    """The seq of an answer of this user to a request; None when the model has to be asked.

    It stands: nothing that it was made of was edited, taken back or forgotten since, and its words are there.
    """
    rows = connection.execute(
        """SELECT l.seq, e.lineage FROM ledger l JOIN events e ON e.seq = l.seq
           WHERE l.user = ? AND l.request = ? AND l.parked = 0
               AND NOT EXISTS (SELECT 1 FROM voids v WHERE v.seq = l.seq)
           ORDER BY l.seq DESC LIMIT ?""",
        (user, request, _ANSWERS_MAX),
    ).fetchall()
    for seq, lineage in rows:
        if not _is_forgotten(connection, seq, (user, *split_lineage(lineage))) and _is_whole(connection, seq):
            return int(seq)
    return None


def _is_forgotten(connection: sqlite3.Connection, seq: int, subjects: Iterable[Reference]) -> bool:
    query = "SELECT 1 FROM erasures WHERE subject = ? AND forgotten_seq > ?"
    return any(connection.execute(query, (subject, seq)).fetchone() for subject in subjects)


def _is_whole(connection: sqlite3.Connection, seq: int) -> bool:
    """Whether the words of an event are those that were written; a damaged answer is asked for again."""
    try:
        return read_events(connection, (seq,))[seq].event is not None
    except LogDamaged:
        return False


def read_spent(connection: sqlite3.Connection, day: int, user: Reference | None = None) -> Usage:
    """What was spent on a day (`day_of`), by a user or (None) by all. Repairs and splits are not summed."""
    where = "day = :day" if user is None else "day = :day AND user = :user"
    row = connection.execute(f"SELECT {_SUMS} FROM ledger WHERE {where}", {"day": day, "user": user}).fetchone()
    return Usage(*row)


def read_tokens_by_user(connection: sqlite3.Connection, day: int) -> dict[Reference, int]:
    """Tokens of prompts and completions on a day (`day_of`), by user."""
    rows = connection.execute(
        "SELECT user, sum(prompt_tokens + completion_tokens) FROM ledger WHERE day = ? GROUP BY user", (day,)
    )
    return dict(rows.fetchall())


def read_usage(
    connection: sqlite3.Connection,
    *,
    user: Reference | None = None,
    session: Reference | None = None,
    since_day: int | None = None,
) -> dict[Task, Usage]:
    """What was spent by task, for those tasks that there is anything of. Repairs and splits are not summed.

    What was made of several sessions belongs to none of them.
    """
    where, values = _choose(user, session, since_day)
    rows = connection.execute(f"SELECT task, {_SUMS} FROM ledger WHERE {where} GROUP BY task", values)
    return {Task(task): Usage(*sums) for task, *sums in rows}


def read_answer_counts(
    connection: sqlite3.Connection,
    *,
    user: Reference | None = None,
    session: Reference | None = None,
    since_day: int | None = None,
) -> dict[Task, AnswerCounts]:
    """How many answers there are by task, for those tasks that there is anything of."""
    where, values = _choose(user, session, since_day)
    rows = connection.execute(
        f"""SELECT task, sum(parked = 0), sum(skipped), coalesce(sum(facts = 0 AND NOT skipped), 0),
                coalesce(sum(facts), 0), sum(missed), sum(parked = 1)
            FROM ledger WHERE {where} GROUP BY task""",
        values,
    )
    return {Task(task): AnswerCounts(*counts) for task, *counts in rows}


def _choose(
    user: Reference | None, session: Reference | None, since_day: int | None
) -> tuple[str, dict[str, object]]:
    conditions: list[str] = []
    if session is not None:
        conditions.append(_OF_SESSION)
    if user is not None:
        conditions.append("user = :user")
    if since_day is not None:
        conditions.append("day >= :day")
    values: dict[str, object] = {"user": user, "session": session, "day": since_day}
    return " AND ".join(conditions) or "1", values


def count_zero(connection: sqlite3.Connection, last: int) -> tuple[int, int]:
    """Of the last extractions that a model was asked for: how many found no fact, and how many there are."""
    zero, answers = connection.execute(
        """SELECT coalesce(sum(facts = 0), 0), count(*) FROM (
               SELECT facts FROM ledger WHERE facts IS NOT NULL AND skipped = 0 ORDER BY seq DESC LIMIT ?)""",
        (last,),
    ).fetchone()
    return int(zero), int(answers)


def count_parked(connection: sqlite3.Connection) -> int:
    """How much work stands parked: given up, and neither resumed nor without object since."""
    return int(connection.execute("SELECT count(*) FROM ledger WHERE parked = 1").fetchone()[0])


def is_parked(connection: sqlite3.Connection, user: Reference, seq: int) -> bool:
    """Whether the work of a user that the event at a seq put aside stands parked."""
    query = "SELECT 1 FROM ledger WHERE seq = ? AND user = ? AND parked = 1"
    return connection.execute(query, (seq, user)).fetchone() is not None


def read_parked(
    connection: sqlite3.Connection, user: Reference | None = None, before: int | None = None, limit: int = 100
) -> list[int]:
    """The seqs of the events whose work stands parked, newest first; those below seq `before`."""
    rows = connection.execute(
        """SELECT seq FROM ledger WHERE parked = 1 AND (?1 IS NULL OR user = ?1) AND (?2 IS NULL OR seq < ?2)
           ORDER BY seq DESC LIMIT ?3""",
        (user, before, limit),
    )
    return [seq for (seq,) in rows]
