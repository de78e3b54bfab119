"""`query`: wait if asked to, recall, read the texts, and say how fresh the answer is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from daemon.history import History, agree, count_redacted, locate
from daemon.memories import Memories
from daemon.protocol import Params
from events.envelope import Keys, RecordedEvent, Reference
from events.errors import InvalidInput, MemForestError
from events.hindsight import read_hindsight
from events.log import LogReader
from events.reading import read_events
from events.registry import knows_user
from events.session import Part, TurnRecorded
from events.time import Instant, to_iso
from projections.memory import Memory
from projections.ports import Embedder
from projections.recall.agpr import AgprParameters
from projections.recall.answering import CHARACTERS_PER_TOKEN, Recalled, recall
from projections.recall.nodes import format_date
from projections.texts import compose, events_behind

K_MAX = 200
QUESTION_CHARACTERS_MAX = 8_000
# Memories considered when only a budget of tokens was given.
K_WITHIN_TOKENS = 100


class TurnDeadLettered(InvalidInput):
    """The awaited message could not be decoded; it is kept as a dead letter."""


class TurnInConflict(MemForestError):
    """The awaited key was used before with other content; the first turn stands."""

    code = "conflict"


class TurnRefused(MemForestError):
    """The session of the awaited turn was forgotten; the turn was not taken."""

    code = "conflict"


class QueryParams(Params, frozen=True, kw_only=True):
    """Parameters of `query`."""

    user_id: str
    query: str
    k: int | None = None
    mode: str = "agpr"
    wait_for: str | int | None = None
    max_tokens: int | None = None
    as_of: int | str | None = None  # a user_seq, or an instant with its offset


@dataclass(frozen=True, slots=True)
class Source:
    """A turn that a memory carries; `turn_id` is null when the publisher gave none."""

    session_id: str | None
    turn_id: str | None


@dataclass(frozen=True, slots=True)
class PartShown:
    """A part of a turn that is no text."""

    kind: str
    reference: str
    caption: str | None


@dataclass(frozen=True, slots=True)
class MemoryShown:
    """A memory of an answer (design 4.2)."""

    id: str
    kind: str
    text: str
    said_at: str
    time_start: str
    time_end: str
    score: float
    similarity: float
    propagation: float
    sessions: list[str]
    sources: list[Source]
    parts: list[PartShown]


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far the answer reaches: the log's and the Memory's user_seq, work that waits, and seconds behind."""

    user_seq: int
    projected_user_seq: int
    pending: int
    lag_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What `query` returns: memories by rank, the same as prompt-ready text in time order, the watermark.

    `redacted` counts, for an answer as of then, the events of before whose words are gone by now.
    """

    memories: list[MemoryShown]
    context: str
    watermark: Watermark
    redacted: int | None = None


class Answerer:
    """Answers queries from the Memories."""

    def __init__(
        self,
        keys: Keys,
        reader: LogReader,
        memories: Memories,
        embedder: Embedder,
        parameters: AgprParameters,
        planned: Callable[[Reference], int],
        clock: Callable[[], Instant],
        history: History | None = None,
    ) -> None:
        """`reader` is for queries alone, or they would queue behind what the worker reads.

        `planned` says how many groups of a user are planned and not fused. Without a `history` it has its own.
        """
        self._keys = keys
        self._reader = reader
        self._memories = memories
        self._embedder = embedder
        self._parameters = parameters
        self._planned = planned
        self._clock = clock
        self._history = history or History(reader, memories.parameters)

    async def query(self, params: QueryParams) -> Answer:
        """The memories for a question. An unknown user has none.

        Raises `InvalidInput`, and for `wait_for` `TurnDeadLettered`, `TurnInConflict` or `TurnRefused`.
        """
        _check(params)
        user = self._keys.user(params.user_id)
        if params.wait_for is not None:
            await self.wait_for(user, params.wait_for)
        # Asked only when the Memory is not here: each reading costs a query a hop to another thread.
        if not self._memories.holds(user) and not await self._reader.read(partial(knows_user, user=user)):
            return Answer([], "", Watermark(0, 0, 0, 0.0))
        if params.as_of is not None:
            return await self._query_past(user, params, params.as_of)
        vector = None
        if self._parameters.cosine_weight:
            vector = (await self._embedder.embed([params.query]))[0]
        async with self._memories.use(user) as memory:
            return await self._show(memory, self._recall(memory, params, vector))

    async def _query_past(self, user: Reference, params: QueryParams, as_of: int | str) -> Answer:
        """What the memory knew then. By words alone, since a past Memory has no vectors."""
        user_seq = await self._reader.read(partial(locate, user=user, position=as_of))
        while True:
            async with self._history.at(user, user_seq) as (memory, hindsight):
                recalled = self._recall(memory, params, None)
                seqs = _seqs_of(recalled)
                recorded, known_now, redacted = await self._reader.read(
                    lambda db: (
                        read_events(db, seqs),  # noqa: B023
                        read_hindsight(db, user, user_seq),
                        count_redacted(db, user, user_seq, hindsight),
                    )
                )
                if agree(known_now, hindsight):  # otherwise something was forgotten since it was folded
                    watermark = Watermark(user_seq, user_seq, memory.pending(), 0.0)
                    return _make_answer(recalled, recorded, watermark, redacted)

    def _recall(self, memory: Memory, params: QueryParams, vector: NDArray[np.float32] | None) -> list[Recalled]:
        return recall(
            memory.nodes,
            params.query,
            params.k or (10 if params.max_tokens is None else K_WITHIN_TOKENS),
            self._parameters if params.mode == "agpr" else replace(self._parameters, gamma=1.0),
            query_vector=vector,
            hidden=memory.hidden,
            characters_max=None if params.max_tokens is None else params.max_tokens * CHARACTERS_PER_TOKEN,
        )

    async def wait_for(self, user: Reference, target: str | int) -> None:
        """Return once the event of a key, or a user_seq, is folded in. The method's deadline bounds the wait."""
        while True:
            user_seq: int | None
            if isinstance(target, str):
                key = self._keys.key(target)
                user_seq = await self._reader.read(partial(_find_key, user=user, key=key))
            elif await self._reader.read(partial(knows_user, user=user)):
                user_seq = target
            else:
                user_seq = None
            changed = self._memories.changed
            if user_seq is not None:
                async with self._memories.use(user) as memory:
                    if memory.user_seq >= user_seq:
                        return
                    changed = self._memories.changed
            # Dead letters come without an event, so waiting for the log to grow is not enough.
            await self._memories.wait_a_moment(changed)

    async def watermark(self, memory: Memory) -> Watermark:
        """How far a Memory reaches now."""
        projected = memory.user_seq
        lag = await self._reader.read(partial(_find_lag, user=memory.user, projected=projected))
        return self._make_watermark(memory, projected, *lag)

    def _make_watermark(self, memory: Memory, projected: int, user_seq: int, since: Instant | None) -> Watermark:
        """`projected`: where the Memory was when it was asked; it grows while texts are read."""
        lag_s = 0.0 if since is None else max(0, self._clock() - since) / 1000
        pending = memory.pending() + self._planned(memory.user)
        return Watermark(max(user_seq, projected), projected, pending, lag_s)

    async def _show(self, memory: Memory, recalled: list[Recalled]) -> Answer:
        projected = memory.user_seq
        seqs = _seqs_of(recalled)
        recorded, lag = await self._reader.read(
            lambda db: (read_events(db, seqs), _find_lag(db, memory.user, projected))
        )
        return _make_answer(recalled, recorded, self._make_watermark(memory, projected, *lag))


def _seqs_of(recalled: list[Recalled]) -> set[int]:
    """The events that the texts and the sources of these memories stand in."""
    seqs = events_behind(each.node.ref for each in recalled)
    seqs.update(seq for each in recalled for seq in each.node.turns)
    return seqs


def _make_answer(
    recalled: list[Recalled],
    recorded: dict[int, RecordedEvent],
    watermark: Watermark,
    redacted: int | None = None,
) -> Answer:
    shown = [
        (each.node.said_at, _show_memory(each, text, recorded))
        for each in recalled
        # None: erased between ranking and reading.
        if (text := compose(each.node.ref, recorded)) is not None
    ]
    in_time = sorted(shown, key=lambda each: each[0])
    context = "\n".join(f"{format_date(said_at)} {memory.text}" for said_at, memory in in_time)
    return Answer([memory for _, memory in shown], context, watermark, redacted)


def _show_memory(recalled: Recalled, text: str, recorded: dict[int, RecordedEvent]) -> MemoryShown:
    node = recalled.node
    turns = [recorded[seq] for seq in node.turns if recorded[seq].event is not None]
    parts: list[Part] = []
    sources: list[Source] = []
    for turn in turns:
        if isinstance(turn.event, TurnRecorded):
            sources.append(Source(turn.session_id, turn.event.turn_id))
            parts.extend(turn.event.parts)
    return MemoryShown(
        id=node.id.hex(),
        kind=node.kind,
        text=text,
        said_at=to_iso(node.said_at),
        time_start=to_iso(node.time_start),
        time_end=to_iso(node.time_end),
        score=recalled.score,
        similarity=recalled.similarity,
        propagation=recalled.propagation,
        sessions=sorted({turn.session_id for turn in turns if turn.session_id is not None}),
        sources=sources,
        parts=[PartShown(part.kind, part.reference, part.caption) for part in parts],
    )


def _check(params: QueryParams) -> None:
    if not params.user_id:
        raise InvalidInput("user_id is empty; say whose memory is asked")
    if params.mode not in ("agpr", "flat"):
        raise InvalidInput('mode is "agpr", or "flat" for ranking without propagation')
    if params.k is not None and not 1 <= params.k <= K_MAX:
        raise InvalidInput(f"k is from 1 to {K_MAX}")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise InvalidInput("max_tokens is at least 1")
    if not params.query.strip() or len(params.query) > QUESTION_CHARACTERS_MAX:
        raise InvalidInput(f"query has 1 to {QUESTION_CHARACTERS_MAX} characters")


def _find_key(connection: sqlite3.Connection, user: Reference, key: Reference) -> int | None:
    """The user_seq of the event with a key, None while there is none; raises what became of it otherwise."""
    named = "SELECT seq, user_seq FROM events WHERE key = ? AND user = ?"
    row = connection.execute(named, (key, user)).fetchone()
    if row is not None:
        conflicts = "SELECT 1 FROM events WHERE caused_by = ? AND type = 'turn.conflicted' LIMIT 1"
        if connection.execute(conflicts, (row[0],)).fetchone():
            raise TurnInConflict
        return int(row[1])
    letter = connection.execute("SELECT reason FROM dead_letters WHERE key = ?", (key,)).fetchone()
    if letter is not None:
        raise TurnDeadLettered(f"the awaited message is a dead letter: {letter[0]}")
    if connection.execute("SELECT 1 FROM refusals WHERE key = ?", (key,)).fetchone():
        raise TurnRefused
    return None


def _find_lag(connection: sqlite3.Connection, user: Reference, projected: int) -> tuple[int, Instant | None]:
    """The user's last user_seq, and when the first event behind `projected` was recorded."""
    row = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone()
    first = connection.execute(
        "SELECT recorded_at FROM events WHERE user = ? AND user_seq = ?", (user, projected + 1)
    ).fetchone()
    return (row[0] if row else 0), (first[0] if first else None)
