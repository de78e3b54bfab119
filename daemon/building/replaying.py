"""`sessions.replay`: extract a session again under today's models and prompts (design 4.2).

One event asks for it, so a restart goes on; each chunk's new extraction is recorded beside the old one; when
none is left to do, one event puts all of them in place. The worker does the extracting like any other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio

from daemon.building.extractions import Extraction, preview_extraction
from daemon.building.work import hash_request
from daemon.bus.subjects import encode_token
from daemon.chat.prompts import INSTRUCTIONS
from daemon.erasure.receipts import SessionUnknown
from daemon.memories import Memories
from daemon.texts import read_texts
from daemon.untrusted import Params
from events.envelope import NewEvent, Reference
from events.errors import StaleDecision
from events.ledger import find_answer
from events.log import EventLog
from events.memory import Task
from events.registry import read_sessions
from events.session import ReplayStarted, SessionReplayed
from events.time import Instant
from projections.memory import Memory
from projections.ports import LanguageModel
from projections.recall.answering import CHARACTERS_PER_TOKEN
from projections.texts import TurnsText

# How long a caller waits for the end of a replay; it goes on without them.
WAIT_S = 30.0
# Chunks of a preview that are looked up on one reader in one go.
PREVIEWED_AT_ONCE = 256
# Of each prompt, besides the turns.
INSTRUCTION_CHARS = len(INSTRUCTIONS[Task.EXTRACT])


class ReplayParams(Params, frozen=True, kw_only=True):
    """Parameters of `sessions.replay`; with `dry_run` nothing is changed."""

    user_id: str
    session_id: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ReplayState:
    """How far a replay is: chunks to extract again, what they hold, and how many of them are done.

    Each chunk is one call of the language model, but for those whose answer is `recorded` already: the same turns,
    read by the same model with the same prompt. `prompt_tokens` is about what the calls of the others take; both
    are told by a dry run only, and null otherwise. `started_user_seq` is null unless a replay runs.
    """

    chunks: int
    characters: int
    done: int
    complete: bool
    started_user_seq: int | None
    recorded: int | None = None
    prompt_tokens: int | None = None


class Replaying:
    """Asks for replays and tells how far they are."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        model: LanguageModel,
        clock: Callable[[], Instant],
        wait_s: float = WAIT_S,
    ) -> None:
        self._log = log
        self._memories = memories
        self._model = model
        self._clock = clock
        self._wait_s = wait_s

    async def replay(self, params: ReplayParams) -> ReplayState:
        """Begin the replay of a session, or join the one that runs, and wait a while for its end.

        Raises `SessionUnknown`.
        """
        user = self._log.keys.user(params.user_id)
        session = self._log.keys.session(params.user_id, params.session_id)
        rows = await self._log.read(partial(read_sessions, user=user, session=session))
        if not rows or rows[0].state == "forgotten":
            raise SessionUnknown
        memory = await self._memories.catch_up(user)
        running = memory.replays.running.get(session)
        if params.dry_run:
            return await self._preview(memory, session, running.started if running else None)
        if running is None:
            await self._start(params, session, memory.user_seq)
        return await self._wait(user, session)

    async def _preview(self, memory: Memory, session: Reference, started: int | None) -> ReplayState:
        """What a replay would take; long sessions are looked at in slices, so that others come in between."""
        characters = recorded = prompt_tokens = 0
        chunks = [chunk for chunk in memory.chunks.values() if chunk.session == session]
        for at in range(0, len(chunks), PREVIEWED_AT_ONCE):
            some = [preview_extraction(memory, chunk) for chunk in chunks[at : at + PREVIEWED_AT_ONCE]]
            texts = await read_texts(self._log, [TurnsText(work.chunk.turns) for work in some])
            known = await self._log.read(partial(_find_answers, works=some, model=self._model))
            for text, answered in zip(texts, known, strict=True):
                length = 0 if text is None else len(text)
                characters += length
                recorded += answered
                prompt_tokens += 0 if answered else (INSTRUCTION_CHARS + length) // CHARACTERS_PER_TOKEN
        return ReplayState(len(chunks), characters, 0, False, started, recorded, prompt_tokens)

    async def _start(self, params: ReplayParams, session: Reference, user_seq: int) -> None:
        ids = f"{encode_token(params.user_id)}/{encode_token(params.session_id)}"
        await self._log.append_event(
            NewEvent(
                user_id=params.user_id,
                session_id=params.session_id,
                event=ReplayStarted(),
                key=f"replay/{ids}/{user_seq}",
                happened_at=self._clock(),
                lineage=(session,),
                time_assigned=True,
            )
        )

    async def _wait(self, user: Reference, session: Reference) -> ReplayState:
        state = ReplayState(0, 0, 0, False, None)
        with anyio.move_on_after(self._wait_s):
            while not state.complete:
                changed = self._memories.changed
                state = _look(await self._memories.catch_up(user), session, state)
                if not state.complete:
                    await self._memories.wait_a_moment(changed)
        return state


def _find_answers(connection: sqlite3.Connection, works: list[Extraction], model: LanguageModel) -> list[bool]:
    """Whether an answer to each of these is recorded."""
    return [find_answer(connection, work.origin.user, hash_request(work, model)) is not None for work in works]


def _look(memory: Memory, session: Reference, before: ReplayState) -> ReplayState:
    replay = memory.replays.running.get(session)
    if replay is None:
        return ReplayState(before.chunks, before.characters, before.chunks, True, before.started_user_seq)
    left = [chunk for chunk, _, _ in memory.replays.remaining(session, memory.chunks)]
    characters = sum(memory.nodes.node(memory.nodes.row_of[chunk.key]).length for chunk in left)
    return ReplayState(
        chunks=max(before.chunks, len(left) + len(replay.replaced)),
        characters=max(before.characters, characters),
        done=len(replay.replaced),
        complete=False,
        started_user_seq=replay.started,
    )


async def end_replays(log: EventLog, memories: Memories, planner: anyio.Lock, memory: Memory) -> Memory:
    """Put the new extractions of every replay that is done in place, and return the Memory with them."""
    while not memory.needs_rebuild and _find_ready(memory):
        async with planner:
            memory = await memories.advance(memory.user)
            if memory.needs_rebuild:
                return memory
            with suppress(StaleDecision):  # then it is looked at again
                for session in _find_ready(memory):
                    await log.append_event(_end(memory, session))
        memory = await memories.advance(memory.user)
    return memory


def _find_ready(memory: Memory) -> list[Reference]:
    running = memory.replays.running
    return [session for session in running if not any(memory.replays.remaining(session, memory.chunks))]


def _end(memory: Memory, session: Reference) -> NewEvent:
    replay = memory.replays.running[session]
    return NewEvent(
        user_id=memory.user_id,
        session_id=memory.session_ids.get(session),
        event=SessionReplayed(replay.started, replay.replacements),
        key=f"replayed/{session.hex()}/{replay.started}",
        happened_at=max((turn.said_at for turn in memory.turns.values()), default=0),
        lineage=(session,),
        basis=memory.user_seq,
        session=session,
    )
