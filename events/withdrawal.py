"""What no longer stands: turns that were revised or retracted, and all that was made of them.

The table `sources` says which event read whose words, so what follows from a turn is found step by step, at the
moment of the edit and in its transaction. Forgotten sessions need no list: their tombstone voids by rule.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from events.codec import Event
from events.decisions import PairsJudged
from events.envelope import RecordedEvent, Reference
from events.eventtree import NodesMerged
from events.ledger import end_parked
from events.memory import (
    FactCorrected,
    FactPinned,
    FactRetracted,
    FactsExtracted,
    IntervalSummarised,
    WorkParked,
    WorkResumed,
)
from events.session import SessionReplayed, TurnConflicted, TurnRecorded, TurnRetracted, TurnRevised

# SQLite takes at most 32,766 variables in a statement; this keeps statements short, too.
_SEQS_AT_ONCE = 500
# The row of an imported memory in `turns`: it is in no chunk, and nothing of it waits.
MEMORY_ROW = 3


@dataclass(frozen=True, slots=True)
class Void:
    """Since which user_seq an event stands no more, and whether its words must go or are gone."""

    since: int
    erases: bool


def sources_of(event: Event) -> tuple[int, ...]:
    """The events whose words went into this one, by seq."""
    match event:
        case FactsExtracted(turns=turns, context=context):
            return (*context, *turns)
        case WorkParked(turns=turns):
            return turns
        case WorkResumed(parked=parked):
            return (parked,)
        case TurnConflicted(stands=stands):
            return (stands,)
        case IntervalSummarised(sources=sources) | NodesMerged(sources=sources) | PairsJudged(sources=sources):
            return sources
        case FactCorrected(turns=turns) | FactRetracted(turns=turns) | FactPinned(turns=turns):
            return turns
        case _:
            return ()


def faint_sources_of(event: Event) -> tuple[int, ...]:
    """The events whose words may stand in this one without its resting on them."""
    match event:
        case FactCorrected(read=read) | FactRetracted(read=read) | FactPinned(read=read):
            return read
        case _:
            return ()


def index_withdrawal(connection: sqlite3.Connection, recorded: RecordedEvent, event: Event) -> None:
    """Write down what an event was made of, and what it puts out of force."""
    rows = [(source, recorded.seq, 0) for source in sources_of(event)]
    rows += [(source, recorded.seq, 1) for source in faint_sources_of(event)]
    connection.executemany("INSERT OR IGNORE INTO sources VALUES (?, ?, ?)", rows)
    match event:
        case TurnRetracted(turn=turn):
            _retract(connection, recorded, turn)
        case FactPinned(replaces=int(pin)):
            _void(connection, recorded, pin, erases=False)
        case SessionReplayed(replaced=replaced):
            for old, new in replaced:
                _void(connection, recorded, old, erases=False, successor=new)
        case _:
            pass


def place_turn(connection: sqlite3.Connection, recorded: RecordedEvent, event: TurnRecorded | TurnRevised) -> bool:
    """Give a turn its place in the session, or a new wording to the one it has; whether the place is new.

    A wording below the highest revision that is here comes too late, and stands for nothing from the start.
    """
    turn = recorded.key if isinstance(event, TurnRecorded) else event.turn
    known = connection.execute("SELECT seq, revision, standing FROM turns WHERE turn = ?", (turn,)).fetchone()
    if known is None:
        connection.execute(
            "INSERT INTO turns (seq, session, closing, turn, revision, standing) VALUES (?1, ?2, 0, ?3, ?4, ?1)",
            (recorded.seq, recorded.session, turn, event.revision),
        )
        return True
    place, revision, standing = known
    if event.revision > revision:
        _void(connection, recorded, standing, erases=False)
        connection.execute(
            "UPDATE turns SET revision = ?, standing = ? WHERE seq = ?", (event.revision, recorded.seq, place)
        )
    else:
        connection.execute(
            "INSERT INTO voids VALUES (?, ?, ?, 0)", (recorded.seq, recorded.user, recorded.user_seq)
        )
    # So that retracting the turn finds every wording of it.
    connection.execute("INSERT INTO sources VALUES (?, ?, 0)", (place, recorded.seq))
    return False


def place_memory(connection: sqlite3.Connection, recorded: RecordedEvent) -> None:
    """Give an imported memory a row, so that it can be taken back like a turn. It waits for no extraction."""
    connection.execute(
        """INSERT INTO turns (seq, session, closing, turn, revision, standing, extraction)
           VALUES (?1, ?2, ?3, ?4, 0, ?1, ?1)""",
        (recorded.seq, recorded.session, MEMORY_ROW, recorded.key),
    )


def read_voids(connection: sqlite3.Connection, user: Reference, to_user_seq: int | None = None) -> dict[int, Void]:
    """The events of a user that stand no more at a user_seq (None: now), by seq; what is erased stands at none."""
    rows = connection.execute(
        "SELECT seq, since, erases FROM voids WHERE user = ?1 AND (erases OR ?2 IS NULL OR since <= ?2)",
        (user, to_user_seq),
    )
    return {seq: Void(since, bool(erases)) for seq, since, erases in rows}


def _retract(connection: sqlite3.Connection, recorded: RecordedEvent, turn: Reference) -> None:
    connection.execute("INSERT OR IGNORE INTO retractions VALUES (?, ?)", (turn, recorded.user_seq))
    known = connection.execute("SELECT seq, session FROM turns WHERE turn = ?", (turn,)).fetchone()
    if known is None:
        return
    place, session = known
    connection.execute("UPDATE turns SET standing = NULL WHERE seq = ?", (place,))
    connection.execute("UPDATE sessions SET turns = turns - 1 WHERE session = ?", (session,))
    _void(connection, recorded, place, erases=True)


def _void(
    connection: sqlite3.Connection,
    recorded: RecordedEvent,
    first: int,
    *,
    erases: bool,
    successor: int | None = None,
) -> None:
    """Put an event out of force, and all that was made of it. Chunks whose extraction falls wait for another.

    Unless the first has a `successor` that covers them already.
    """
    voided = [
        seq
        for (seq,) in connection.execute(
            """WITH RECURSIVE fallen (seq) AS (
                   VALUES (?1)
                   UNION SELECT s.seq FROM sources s JOIN fallen f ON s.source = f.seq WHERE s.faint <= ?2)
               SELECT seq FROM fallen""",
            (first, int(erases)),
        )
        if seq != recorded.seq
    ]
    connection.executemany(
        """INSERT INTO voids VALUES (?, ?, ?, ?)
           ON CONFLICT (seq) DO UPDATE SET erases = max(erases, excluded.erases)""",
        [(seq, recorded.user, recorded.user_seq, int(erases)) for seq in voided],
    )
    end_parked(connection, voided)
    for at in range(0, len(voided), _SEQS_AT_ONCE):
        some = voided[at : at + _SEQS_AT_ONCE]
        # All places of a chunk wait or none does. One whose turns are all retracted waits for nothing.
        covering = connection.execute(
            f"""SELECT extraction, count(standing) FROM turns
                WHERE extraction IN ({",".join("?" * len(some))}) GROUP BY extraction""",
            some,
        ).fetchall()
        for seq, standing in covering:
            instead = successor if seq == first and successor else None if standing else recorded.seq
            connection.execute("UPDATE turns SET extraction = ? WHERE extraction = ?", (instead, seq))
