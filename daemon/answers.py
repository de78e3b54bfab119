"""`query`: wait if asked to, recall, read the texts, and say how fresh the answer is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from daemon.memories import Memories
from daemon.protocol import Params
from events.appending import Keys
from events.envelope import RecordedEvent, Reference
from events.errors import InvalidInput, MemForestError
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
    """What `query` returns: memories by rank, the same as prompt-ready text in time order, the watermark."""

    memories: list[MemoryShown]
    context: str
    watermark: Watermark


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
    ) -> None:
        """`reader` is for queries alone, or they would queue behind what the worker reads.

        `planned` says how many groups of a user are planned and not fused.
        """
        self._keys = keys
        self._reader = reader
        self._memories = memories
        self._embedder = embedder
        self._parameters = parameters
        self._planned = planned
        self._clock = clock

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
        vector = None
        if self._parameters.cosine_weight:
            vector = (await self._embedder.embed([params.query]))[0]
        parameters = self._parameters if params.mode == "agpr" else replace(self._parameters, gamma=1.0)
        k = params.k or (10 if params.max_tokens is None else K_WITHIN_TOKENS)
        budget = None if params.max_tokens is None else params.max_tokens * CHARACTERS_PER_TOKEN
        async with self._memories.use(user) as memory:
            recalled = recall(
                memory.nodes,
                params.query,
                k,
                parameters,
                query_vector=vector,
                hidden=memory.hidden,
                characters_max=budget,
            )
            return await self._show(memory, recalled)

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
        lag = await self._reader.read(partial(_find_lag, user=memory.user, projected=memory.user_seq))
        return self._make_watermark(memory, *lag)

    def _make_watermark(self, memory: Memory, user_seq: int, since: Instant | None) -> Watermark:
        lag_s = 0.0 if since is None else max(0, self._clock() - since) / 1000
        pending = memory.pending() + self._planned(memory.user)
        return Watermark(max(user_seq, memory.user_seq), memory.user_seq, pending, lag_s)

    async def _show(self, memory: Memory, recalled: list[Recalled]) -> Answer:
        projected = memory.user_seq
        seqs = events_behind(each.node.ref for each in recalled)
        seqs.update(seq for each in recalled for seq in each.node.turns)
        recorded, lag = await self._reader.read(
            lambda db: (read_events(db, seqs), _find_lag(db, memory.user, projected))
        )
        watermark = self._make_watermark(memory, *lag)
        shown = [
            (each.node.said_at, _show_memory(each, text, recorded))
            for each in recalled
            # None: erased between ranking and reading.
            if (text := compose(each.node.ref, recorded)) is not None
        ]
        in_time = sorted(shown, key=lambda each: each[0])
        context = "\n".join(f"{format_date(said_at)} {memory.text}" for said_at, memory in in_time)
        return Answer([memory for _, memory in shown], context, watermark)


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
