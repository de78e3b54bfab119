"""The ledger: what was asked of models, what it took, what stands recorded of it, and which work is parked.

Rows are written in the transaction of the events they count. They hold numbers and references, never a word, and
they stay when a session is forgotten: it was paid for. Its reference names nobody once its name is erased, and a
session that begins anew begins with nothing spent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TypeAlias

from events.codec import Event
from events.decisions import PairsJudged
from events.envelope import RecordedEvent, Reference
from events.errors import LogDamaged
from events.eventtree import NodesMerged
from events.memory import FactsExtracted, IntervalSummarised, Task, Usage, WorkParked, WorkResumed
from events.query_usage import disown_query_usage
from events.reading import read_events, split_lineage
from events.session import SessionForgotten, SessionReplayed, UserForgotten
from events.time import Instant

# What a model answered, whatever it was asked.
Answer: TypeAlias = FactsExtracted | IntervalSummarised | NodesMerged | PairsJudged

DAY_MS = 86_400_000
# The latest answers to a request that are looked at: one that fell is followed by one that stands, or by none.
_ANSWERS_MAX = 8
# The columns of a `Usage`, summed, in its order.
USAGE_SUMS = """coalesce(sum(calls), 0), coalesce(sum(prompt_tokens), 0), coalesce(sum(cached_tokens), 0),
    coalesce(sum(completion_tokens), 0), coalesce(sum(cost_nano), 0), coalesce(sum(latency_ms), 0)"""
_END_PARKED = "UPDATE ledger SET parked = 2 WHERE parked = 1"


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
        case PairsJudged():
            _insert(connection, recorded, event, Task.JUDGE)
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
            disown_query_usage(connection, recorded.user)
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
    event: Answer | WorkParked,
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

    Nothing that it was made of was edited, taken back or forgotten since, and its words are there. One in whose
    place a replay put another model's is an answer still: going back to the first model costs nothing.
    """
    rows = connection.execute(
        """SELECT l.seq, e.lineage FROM ledger l JOIN events e ON e.seq = l.seq
           WHERE l.user = ? AND l.request = ? AND l.parked = 0
               AND NOT EXISTS (SELECT 1 FROM voids v WHERE v.seq = l.seq AND v.erases > 0)
           ORDER BY l.seq DESC LIMIT ?""",
        (user, request, _ANSWERS_MAX),
    ).fetchall()
    for seq, lineage in rows:
        if not _is_forgotten(connection, seq, (user, *split_lineage(lineage))) and _is_usable(connection, seq):
            return int(seq)
    return None


def _is_forgotten(connection: sqlite3.Connection, seq: int, subjects: Iterable[Reference]) -> bool:
    query = "SELECT 1 FROM erasures WHERE subject = ? AND forgotten_seq > ?"
    return any(connection.execute(query, (subject, seq)).fetchone() for subject in subjects)


def _is_usable(connection: sqlite3.Connection, seq: int) -> bool:
    """Whether an answer stands, or all that it was made of does; a damaged one is asked for again."""
    try:
        event = read_events(connection, (seq,))[seq].event
    except LogDamaged:
        return False
    if not _is_void(connection, seq):
        return event is not None
    return isinstance(event, FactsExtracted) and not any(
        _is_void(connection, source) for source in (*event.context, *event.turns)
    )


def _is_void(connection: sqlite3.Connection, seq: int) -> bool:
    return connection.execute("SELECT 1 FROM voids WHERE seq = ?", (seq,)).fetchone() is not None


def read_tokens_by_user(connection: sqlite3.Connection, day: int) -> dict[Reference, int]:
    """Tokens of prompts and completions on a day (`day_of`), by user; those of questions, too.

    Among the users is `query_usage.NOBODY`, when something was spent on questions of no user in the log.
    """
    rows = connection.execute(
        """SELECT user, sum(tokens) FROM (
               SELECT user, prompt_tokens + completion_tokens AS tokens FROM ledger WHERE day = ?1
               UNION ALL SELECT user, prompt_tokens + completion_tokens FROM query_usage WHERE day = ?1)
           GROUP BY user""",
        (day,),
    )
    return dict(rows.fetchall())


def read_session_usage(connection: sqlite3.Connection, session: Reference) -> Usage:
    """What was spent on a session alone since it last began; what was made of several sessions belongs to none.

    Repairs and splits are not summed.
    """
    query = f"""SELECT {USAGE_SUMS} FROM ledger WHERE session = :session
        AND seq > coalesce((SELECT forgotten_seq FROM erasures WHERE subject = :session), 0)"""
    return Usage(*connection.execute(query, {"session": session}).fetchone())


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
