"""`why`: where a memory comes from, step by step: group, facts, what a model read, turns, messages on the bus."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daemon.asking.history import History, locate
from daemon.asking.listings import find_user
from daemon.asking.provenance.decisions_told import find_decisions, find_policy, take_decisions
from daemon.asking.provenance.memory_lookup import ID_DIGITS, Found, MemoryUnknown, Page, complete_id, find_memory
from daemon.asking.provenance.origins import Why
from daemon.asking.provenance.telling import Tale, Told, has_standing
from daemon.asking.words import read_with_hindsight
from daemon.memories import Memories
from daemon.untrusted import Params, check_limit
from daemon.vector_source import VectorSource
from events.envelope import RecordedEvent, Reference
from events.errors import InvalidInput
from events.hindsight import Hindsight
from events.log import EventLog
from events.memory import Pointer
from projections.memory import Memory
from projections.ports import EmbedderUnavailable
from projections.texts import FactText

__all__ = ["MemoryUnknown", "Provenance", "WhyParams"]

# Commands show eight; with fewer than these an id is guessed, not named.
ID_DIGITS_MIN = 4
LIMIT_DEFAULT = 200
# No tree and no group is larger; what lies beyond is no place in one.
AFTER_MAX = 10_000_000
# Readings whose vectors are looked up to say how near they are; most facts have one, which is near to nothing.
COMPARED_MAX = 64


class WhyParams(Params, frozen=True, kw_only=True):
    """Parameters of `why`: the id of a memory, whatever its kind, or how the id begins.

    At most `limit` facts, turns or readings, after so many. `as_of` as in `query`.
    """

    user_id: str
    memory_id: str
    limit: int = LIMIT_DEFAULT
    after: int = 0
    as_of: int | str | None = None  # a user_seq, or an instant with its offset


class _Read(NamedTuple):
    """What the log says, in one reading of it."""

    recorded: dict[int, RecordedEvent]
    hindsight: Hindsight
    decisions: list[RecordedEvent]
    policy: RecordedEvent | None


class Provenance:
    """Reads where memories come from."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        history: History | None = None,
        source: VectorSource | None = None,
        stream: str = "MEMFOREST",
    ) -> None:
        """Without `history` there is no `as_of`; without `source` nobody says how near readings are.

        `stream` is the one whose subjects are ours.
        """
        self._log = log
        self._memories = memories
        self._history = history
        self._source = source
        self._stream = stream

    async def why(self, params: WhyParams) -> Why:
        """All that is known of a memory's origin. Raises `InvalidInput`, `UserUnknown`, `MemoryUnknown`."""
        if not re.fullmatch(f"[0-9a-fA-F]{{{ID_DIGITS_MIN},{ID_DIGITS}}}", params.memory_id):
            raise InvalidInput(
                f"memory_id is an id or its beginning: {ID_DIGITS_MIN} to {ID_DIGITS} hexadecimal digits"
            )
        check_limit(params.limit)
        if not 0 <= params.after <= AFTER_MAX:
            raise InvalidInput("after is the `next` of the page before, or 0")
        user = await find_user(self._log, params.user_id)
        async with self._memory(user, params.as_of) as (memory, then):
            found = find_memory(memory, complete_id(memory, params.memory_id), Page(params.limit, params.after))
        read = await self._log.read(partial(_read, user=user, found=found))
        standing = has_standing(read.decisions, read.hindsight, then or read.hindsight)
        told = Told(
            recorded=read.recorded,
            hindsight=read.hindsight,
            decisions=take_decisions(standing),
            vectors=await self._find_vectors(user, found),
            stream=self._stream,
            near_from=found.near_from,
        )
        return Tale(told).tell(found, read.policy)

    @asynccontextmanager
    async def _memory(
        self, user: Reference, as_of: int | str | None
    ) -> AsyncGenerator[tuple[Memory, Hindsight | None]]:
        """The Memory that is asked; of a past one also what was undone by then."""
        if as_of is None:
            async with self._memories.use(user) as memory:
                yield memory, None
            return
        if self._history is None:
            raise InvalidInput("as_of needs the history of the store; leave it out")
        user_seq = await self._log.read(partial(locate, user=user, position=as_of))
        async with self._history.at(user, user_seq) as memory:
            yield memory, memory.hindsight

    async def _find_vectors(self, user: Reference, found: Found) -> Mapping[Pointer, NDArray[np.float32]]:
        """The vectors of readings that were joined, as far as they are at hand."""
        joined = [fact for fact in found.facts if len(fact.fact.occurrences) > 1]
        wanted = [each.pointer for fact in joined for each in (fact.fact.first, *fact.readings)]
        pointers = list(dict.fromkeys(wanted))[:COMPARED_MAX]
        if self._source is None or not pointers:
            return {}
        refs = {pointer: FactText(pointer) for pointer in pointers}
        try:
            rows = await self._source.at_hand(user, list(refs.values()))
        except EmbedderUnavailable:
            return {}
        return {pointer: rows[ref].astype(np.float32) for pointer, ref in refs.items() if ref in rows}


def _read(connection: sqlite3.Connection, user: Reference, found: Found) -> _Read:
    """The events behind a memory, and the decisions on its facts."""
    decisions = find_decisions(connection, found.sessions(), found.user_seq)
    recorded, hindsight = read_with_hindsight(connection, user, found.seqs())
    group = None if found.group is None else recorded[found.group.seq]
    policy = None if group is None else find_policy(connection, user, group.user_seq)
    return _Read(recorded, hindsight, decisions, policy)
