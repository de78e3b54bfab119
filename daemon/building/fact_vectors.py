"""Vectors and wordings of facts, made while nothing waits for them, and remembered for a while.

They are asked for by where the fact was read. A vector goes into the cache under the name of its text, as those of
searched nodes do, so a fact is embedded once. The answers about a session come within milliseconds of each other:
what is wanted then is collected, and several batches of a user are under way at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from daemon.building.errands import Errands
from daemon.texts import read_texts
from daemon.vector_source import VectorSource, Wanted
from events.envelope import Reference
from events.log import EventLog
from events.memory import Pointer
from projections.facts.canonical import Occurrence
from projections.facts.near import Reading
from projections.facts.saying import Said, read_said
from projections.facts.wording import Wording, read_wording
from projections.ports import TextRefused
from projections.steps import Steps, at_once
from projections.texts import FactText, name_text

# Texts of a batch, and batches of a user under way at a time; the embedder has a limit for all users.
TEXTS_MAX: Final = 128
BATCHES_MAX: Final = 8
# A batch waits so long for company.
COLLECT_S: Final = 0.005
# What is remembered of all users together: the least recently used go first. One that is wanted again is looked
# up again.
KEPT_BYTES_MAX: Final = 64 << 20
# A wording takes some hundred bytes a word, and most facts have ten to twenty.
WORDING_BYTES: Final = 2_500
# Texts whose words are read on the loop, a tenth of a millisecond each; more on a thread.
INLINE_MAX: Final = 32
# Texts that the embedder refuses, remembered so that they are not asked for again; beyond this they are.
REFUSED_MAX: Final = 10_000

Row = NDArray[np.float16]


@dataclass(slots=True)
class _Kept:
    """What is remembered of a user."""

    rows: dict[Pointer, Row] = field(default_factory=dict[Pointer, Row])
    wordings: dict[Pointer, tuple[Wording, Said]] = field(default_factory=dict[Pointer, tuple[Wording, Said]])

    @property
    def size_bytes(self) -> int:
        width = next((row.nbytes for row in self.rows.values()), 0)
        return len(self.rows) * width + len(self.wordings) * WORDING_BYTES


@dataclass(slots=True)
class _Queue:
    """What a user wants and nobody makes yet, what is being made, and by how many batches."""

    rows: dict[Pointer, None] = field(default_factory=dict[Pointer, None])
    wordings: dict[Pointer, Occurrence] = field(default_factory=dict[Pointer, Occurrence])
    under_way: set[Pointer] = field(default_factory=set[Pointer])
    batches: set[int] = field(default_factory=set[int])
    is_collecting: bool = False

    def __len__(self) -> int:
        return len(self.rows.keys() | self.wordings.keys())


class FactVectors:
    """`want` some, go on, and find them here when the user is planned again."""

    def __init__(self, log: EventLog, source: VectorSource, errands: Errands) -> None:
        self._log = log
        self._source = source
        self._errands = errands
        self._kept: OrderedDict[Reference, _Kept] = OrderedDict()
        self._size_bytes = 0
        self._queues: dict[Reference, _Queue] = {}
        self._refused: set[Pointer] = set()

    def rows(self, user: Reference, pointers: Iterable[Pointer]) -> dict[Pointer, NDArray[np.float32]]:
        """The unit vectors of these readings that are here, each of shape (dimensions,)."""
        return at_once(self.rows_in_steps(user, pointers))

    def rows_in_steps(
        self, user: Reference, pointers: Iterable[Pointer]
    ) -> Steps[dict[Pointer, NDArray[np.float32]]]:
        """The same in small steps, of those that are here when their turn comes."""
        kept = self._kept.get(user, _Kept()).rows
        rows: dict[Pointer, NDArray[np.float32]] = {}
        for each in pointers:
            if each in kept:
                rows[each] = kept[each].astype(np.float32)
            yield
        return rows

    def readings(self, user: Reference, pointers: Iterable[Pointer]) -> dict[Pointer, Reading]:
        """Those of these readings that are here, vector and words; one that is refused has no vector."""
        kept = self._kept.get(user, _Kept())
        found: dict[Pointer, Reading] = {}
        for each in pointers:
            words, row = kept.wordings.get(each), kept.rows.get(each)
            if words is not None and (row is not None or each in self._refused):
                found[each] = Reading(None if row is None else row.astype(np.float32), *words)
        return found

    def are_refused(self, pointers: Iterable[Pointer]) -> set[Pointer]:
        """Those of these whose texts the embedder does not take."""
        return self._refused.intersection(pointers)

    def want(
        self, user: Reference, pointers: Iterable[Pointer], worded: Mapping[Pointer, Occurrence] | None = None
    ) -> None:
        """Have the vectors of these made, and of `worded` the words looked at, too."""
        kept, queue = self._kept.get(user, _Kept()), self._queues.setdefault(user, _Queue())
        worded = worded or {}
        for pointer in (*pointers, *worded):
            if pointer not in kept.rows and pointer not in self._refused and pointer not in queue.under_way:
                queue.rows[pointer] = None
        for pointer, occurrence in worded.items():
            if pointer not in kept.wordings and pointer not in queue.under_way:
                queue.wordings[pointer] = occurrence
        self._begin_batch(user, queue)
        self._drop_if_empty(user, queue)

    def forget(self, user: Reference) -> None:
        """Remember nothing of a user, nor what is being made for them now: some of it may be forgotten words."""
        self._size_bytes -= self._kept.pop(user, _Kept()).size_bytes
        queue = self._queues.get(user)
        if queue is not None:
            queue.rows.clear()
            queue.wordings.clear()
            queue.under_way.clear()

    def keeps(self, user: Reference) -> bool:
        """Whether anything of a user is remembered, or is to be made."""
        return user in self._kept or user in self._queues

    async def make(self, user: Reference, pointers: Sequence[Pointer]) -> dict[Pointer, Row]:
        """The vectors of these, looked up or made, without those that are refused.

        Raises `EmbedderUnavailable`, `LogDamaged` or `StoreUnusable`.
        """
        wanted = [each for each in pointers if each not in self._refused]
        texts = [FactText(each) for each in wanted]
        try:
            rows = await self._source.find(user, [Wanted(text, name_text(text)) for text in texts])
        except TextRefused:
            return await self._make_one_by_one(user, wanted)
        return dict(zip(wanted, rows.astype(np.float16), strict=True))

    async def _make_one_by_one(self, user: Reference, pointers: Sequence[Pointer]) -> dict[Pointer, Row]:
        """One of these texts is refused: find it, and do without its vector."""
        if len(pointers) > 1:
            half = len(pointers) // 2
            return await self.make(user, pointers[:half]) | await self.make(user, pointers[half:])
        if len(self._refused) >= REFUSED_MAX:
            self._refused.clear()
        self._refused.add(pointers[0])
        return {}

    def _begin_batch(self, user: Reference, queue: _Queue) -> None:
        """Begin another batch, unless one still collects."""
        if not len(queue) or queue.is_collecting:
            return
        number = next((each for each in range(BATCHES_MAX) if each not in queue.batches), None)
        if number is None:
            return  # the first to come back takes them
        if self._errands.begin(user, f"fact_vectors_{number}", partial(self._make_batch, user, queue, number)):
            queue.batches.add(number)
            queue.is_collecting = True

    async def _make_batch(self, user: Reference, queue: _Queue, number: int) -> None:
        taken: list[Pointer] = []
        try:
            try:
                await anyio.sleep(COLLECT_S)
            finally:
                queue.is_collecting = False
            taken = sorted(queue.rows.keys() | queue.wordings.keys())[:TEXTS_MAX]
            rows = [each for each in taken if each in queue.rows]
            worded = [queue.wordings[each] for each in taken if each in queue.wordings]
            for each in taken:
                queue.rows.pop(each, None)
                queue.wordings.pop(each, None)
            queue.under_way.update(taken)
            self._begin_batch(user, queue)
            await self._take_in(user, queue, rows, worded)
        finally:
            queue.under_way.difference_update(taken)
            queue.batches.discard(number)
            self._drop_if_empty(user, queue)

    def _drop_if_empty(self, user: Reference, queue: _Queue) -> None:
        if not queue.batches and not len(queue):
            self._queues.pop(user, None)

    async def _take_in(
        self, user: Reference, queue: _Queue, wanted: Sequence[Pointer], worded: Sequence[Occurrence]
    ) -> None:
        made = await self.make(user, wanted) if wanted else {}
        texts = await read_texts(self._log, [FactText(each.pointer) for each in worded]) if worded else []
        # None: erased meanwhile; the occurrence is about to go.
        read = partial(_read_words, [text or "" for text in texts], worded, user)
        words = read() if len(worded) <= INLINE_MAX else await anyio.to_thread.run_sync(read)
        made = {each: row for each, row in made.items() if each in queue.under_way}
        still = [(each, said) for each, said in zip(worded, words, strict=True) if each.pointer in queue.under_way]
        if not (made or still):
            return
        kept = self._kept.setdefault(user, _Kept())
        self._kept.move_to_end(user)
        before = kept.size_bytes
        kept.rows |= made
        kept.wordings |= {occurrence.pointer: said for occurrence, said in still}
        self._size_bytes += kept.size_bytes - before
        self._shrink(kept)

    def _shrink(self, newest: _Kept) -> None:
        """Let go of those that were used least recently, and of one user's at last what came first."""
        while self._size_bytes > KEPT_BYTES_MAX and len(self._kept) > 1:
            _, kept = self._kept.popitem(last=False)
            self._size_bytes -= kept.size_bytes
        while self._size_bytes > KEPT_BYTES_MAX and newest.rows:
            before = newest.size_bytes
            oldest = next(iter(newest.rows))
            del newest.rows[oldest]
            newest.wordings.pop(oldest, None)
            self._size_bytes += newest.size_bytes - before


def _read_words(texts: Sequence[str], worded: Sequence[Occurrence], user: Reference) -> list[tuple[Wording, Said]]:
    """The words of texts, each as an occurrence has it."""
    labels = (frozenset(mention.label for mention in occurrence.mentions) for occurrence in worded)
    return [
        (read_wording(text, each, user), read_said(text, user)) for text, each in zip(texts, labels, strict=True)
    ]
