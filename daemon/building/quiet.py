"""Closing the chunks of sessions that fell quiet: by an event, so that no fold looks at a clock (design 3.3)."""

from __future__ import annotations

from functools import partial

from events.appending import Batch
from events.envelope import NewEvent, Reference, identify
from events.log import EventLog
from events.registry import SessionRow, WaitingSession, read_session_rows, read_waiting_sessions
from events.session import ChunkClosed
from events.time import Instant
from projections.facts.chunking import open_turns

# Quiet sessions looked at in one go.
QUIET_SESSIONS_MAX = 64


async def close_quiet_chunks(
    log: EventLog, chunk_turns: int, now: Instant, idle_s: float, after: int
) -> tuple[list[Reference], int]:
    """Close the open chunks of some quiet sessions: their users, and where to go on (0: from the first).

    The registry alone tells what waits, so no Memory has to be here for it. Raises `StoreUnusable`.
    """
    idle_ms = int(idle_s * 1000)
    quiet = partial(read_waiting_sessions, quiet_since=now - idle_ms, ahead_from=now + idle_ms)
    sessions = await log.read(partial(quiet, after=after, limit=QUIET_SESSIONS_MAX))
    closings: list[NewEvent] = []
    for waiting in sessions:
        rows = await log.read(partial(read_session_rows, session=waiting.session))
        opened = open_turns(rows, chunk_turns)
        if opened:
            closings.append(_close_chunk(waiting, opened[-1]))
    if closings:
        await log.append(Batch(events=tuple(closings)))
    # Also one whose chunk is closed already: it may wait for a Memory that went.
    users = [waiting.user for waiting in sessions]
    return users, sessions[-1].first_turn if len(sessions) == QUIET_SESSIONS_MAX else 0


def _close_chunk(session: WaitingSession, last: SessionRow) -> NewEvent:
    key = identify(b"mf.closing", session.session, last.seq.to_bytes(8, "big")).hex()
    return NewEvent(
        user_id=session.user_id,
        session_id=session.session_id,
        event=ChunkClosed(last.seq),
        key=f"chunk/{key}",
        happened_at=last.recorded_at,
        lineage=(session.session,),
    )
