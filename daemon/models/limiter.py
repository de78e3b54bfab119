"""Slots and who gets them first, and how many an endpoint has: additive increase, multiplicative decrease.

The engine takes them for questions, an endpoint for requests; only the latter hears of overload.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from daemon.models.query_tasks import QueryTask
from events.memory import Task

# Whose turn it is when there is room for one: who waits for an answer, fresh turns and what their facts wait for,
# then what is refreshed, then what is compacted.
PRIORITY: Final[dict[Task | QueryTask, int]] = {
    **dict.fromkeys(QueryTask, -1),
    Task.EXTRACT: 0,
    Task.JUDGE: 0,
    Task.SUMMARISE: 1,
    Task.MERGE: 2,
}
# A request that the server was too busy for halves the limit (AIMD: Chiu and Jain, 1989); answers that are only
# slow take a tenth off it.
HALVE: Final = 0.5
EASE: Final = 0.9
# Where it was too much the last time, the limit rises by a tenth as fast: a server with two slots would otherwise
# refuse every fourth request.
CAREFUL: Final = 0.1
# Slow: the mean of so many answers is above so many times the smallest such mean. Single answers differ tenfold by
# their length, which says nothing about the server.
WINDOW_ANSWERS: Final = 16
SLOW_TIMES: Final = 3.0
# The smallest mean is forgotten bit by bit, or a server that has got slower for good would never be believed.
FLOOR_GROWS: Final = 1.05
# Kinds of calls whose times are kept apart; names that come later share one.
KINDS_MAX: Final = 16
# Waiters that gave up stay in the heap until they come up, or until they are more than the others.
LEFT_MIN: Final = 32
# So many slots in a row go to who comes first while others wait, and then one to these. Who comes first: questions
# of people, and a server of two slots that is asked without a pause would else never read a turn; and of the rest
# fresh turns, and else nobody's trees would get a summary for the hours in which somebody imports.
FIRST_IN_A_ROW: Final = 4


@dataclass(slots=True)
class _Times:
    """How long answers of one kind take: the window that is being filled, and the floor of the full ones."""

    answers: int = 0
    sum_s: float = 0.0
    floor_s: float = math.inf

    def note(self, took_s: float) -> bool:
        """Take one in; whether a window is full with it and far above the floor."""
        self.answers += 1
        self.sum_s += took_s
        if self.answers < WINDOW_ANSWERS:
            return False
        mean_s = self.sum_s / self.answers
        self.answers, self.sum_s = 0, 0.0
        is_slow = mean_s > SLOW_TIMES * self.floor_s
        self.floor_s = min(mean_s, self.floor_s * FLOOR_GROWS)
        return is_slow


@dataclass(slots=True)
class Aimd:
    """The limit itself, from 1 to `most`. Pure: instants are seconds of a clock that only moves forward."""

    most: int
    _limit: float = field(init=False)
    _decreased_at: float = field(default=-math.inf, init=False)
    _too_many: float = field(default=math.inf, init=False)  # requests at once, the last time that it was too busy
    _times: dict[str, _Times] = field(default_factory=dict[str, _Times], init=False)

    def __post_init__(self) -> None:
        """Begins with all that is allowed: most endpoints take it."""
        self._limit = float(self.most)

    @property
    def limit(self) -> int:
        """How many requests may be out."""
        return int(self._limit)

    def note_overload(self, sent_at: float, now: float) -> None:
        """The server was too busy for a request that went out at `sent_at`."""
        if sent_at >= self._decreased_at:
            self._too_many = self.limit
        self._decrease(HALVE, sent_at, now)

    def note_answer(self, kind: str, in_flight: int, sent_at: float, now: float) -> None:
        """A request that went out at `sent_at` was answered, `in_flight` being out with it."""
        if kind not in self._times and len(self._times) >= KINDS_MAX:
            kind = ""
        if self._times.setdefault(kind, _Times()).note(now - sent_at):
            self._decrease(EASE, sent_at, now)
        # What went out before the limit fell, or while half of it would have done, says nothing for a higher one.
        elif sent_at >= self._decreased_at and in_flight * 2 >= self.limit:
            self._rise()

    def _rise(self) -> None:
        """By one for as many answers as the limit; slowly up to what was too many, and past that as before."""
        if self.limit > self._too_many:
            self._too_many = math.inf
        step = 1 / self._limit * (CAREFUL if self.limit >= self._too_many - 1 else 1.0)
        self._limit = min(float(self.most), self._limit + step)

    def _decrease(self, factor: float, sent_at: float, now: float) -> None:
        # Requests that went out before the last decrease tell of the limit that was.
        if sent_at >= self._decreased_at:
            self._limit = max(1.0, self._limit * factor)
            self._decreased_at = now


class Place(NamedTuple):
    """Where a call stands in the queue. It keeps it over its attempts."""

    priority: int
    arrival: int


class _Waiter(NamedTuple):
    place: Place
    entry: int  # tells two of the same place apart
    turn: asyncio.Future[None]


class _Queue:
    """Calls that wait for a slot, the smallest place first; who gave up does not count."""

    def __init__(self) -> None:
        self._heap: list[_Waiter] = []
        self._left = 0  # waiters in the heap whose call gave up

    def __len__(self) -> int:
        return len(self._heap) - self._left

    def push(self, waiter: _Waiter) -> None:
        """One more."""
        heapq.heappush(self._heap, waiter)

    def first(self) -> _Waiter | None:
        """Whose turn it is."""
        while self._heap and self._heap[0].turn.done():
            heapq.heappop(self._heap)
            self._left -= 1
        return self._heap[0] if self._heap else None

    def pop(self) -> None:
        """The first one has its turn."""
        heapq.heappop(self._heap)

    def leave(self) -> None:
        """One that is still in here gave up: its turn is done."""
        self._left += 1
        if self._left > max(LEFT_MIN, len(self)):
            kept = [waiter for waiter in self._heap if not waiter.turn.done()]
            # Some may be cancelled and not have come here yet.
            self._left -= len(self._heap) - len(kept)
            self._heap = kept
            heapq.heapify(self._heap)


class AdaptiveLimiter:
    """Slots: as many as `Aimd` finds good, the smallest (priority, arrival) first, none in a pause.

    Priorities below 0 leave one slot in a few to the others, and of these 0 to those behind it. Where nobody notes
    answers or overload there are always `concurrency` of them. Every operation costs at most the logarithm of how
    many wait. One event loop, no threads.
    """

    def __init__(self, concurrency: int, *, kept_for_first: int = 0) -> None:
        """`kept_for_first`: so many slots are left to calls of priority 0, as long as another is there."""
        self.aimd = Aimd(concurrency)
        self.in_flight = 0
        self._kept = kept_for_first
        self._queues = (_Queue(), _Queue(), _Queue())  # of priorities below 0, of 0, and above
        self._in_a_row = [0, 0, 0]  # slots that went to each of them while one behind it waited
        self._arrivals, self._entries = count(), count()
        self._paused_until = -math.inf
        self._resume: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """How many requests may be out."""
        return self.aimd.limit

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return sum(map(len, self._queues))

    def pause_left_s(self) -> float:
        """Seconds until requests go out again; 0 without a pause."""
        return max(0.0, self._paused_until - asyncio.get_running_loop().time())

    def queue_up(self, priority: int) -> Place:
        """A place behind all of this priority that came before."""
        return Place(priority, next(self._arrivals))

    @asynccontextmanager
    async def hold(self, priority: int) -> AsyncGenerator[None]:
        """Wait for a slot, and have it for as long as the block runs."""
        await self.acquire(self.queue_up(priority))
        try:
            yield
        finally:
            self.release()

    async def acquire(self, place: Place) -> None:
        """Wait for a slot, which then has to be released. Cancelled, it holds none."""
        if not self.waiting and self._has_room(place.priority):
            self.in_flight += 1
            return
        turn = asyncio.get_running_loop().create_future()
        queue = self._queues[0 if place.priority < 0 else 1 if place.priority == 0 else 2]
        queue.push(_Waiter(place, next(self._entries), turn))
        self._serve()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # it was served and cancelled at once
            else:
                turn.cancel()
                queue.leave()
                self._serve()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self.in_flight -= 1
        self._serve()

    def pause(self, wait_s: float) -> None:
        """Let no request out for so long; a longer pause that is on stays."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        if until > self._paused_until:
            self._paused_until = until
            if self._resume is not None:
                self._resume.cancel()
            self._resume = loop.call_at(until, self._end_pause)

    def close(self) -> None:
        """Forget a pause that is on; nothing may wait any more."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None

    def note_overload(self, sent_at: float) -> None:
        """The server was too busy for a request that went out at `sent_at`."""
        self.aimd.note_overload(sent_at, asyncio.get_running_loop().time())

    def note_answer(self, kind: str, sent_at: float) -> None:
        """A request that went out at `sent_at` was answered; called before its slot is released."""
        now = asyncio.get_running_loop().time()
        self.aimd.note_answer(kind, self.in_flight, sent_at, now)

    def _has_room(self, priority: int) -> bool:
        limit = self.aimd.limit
        room = limit if priority <= 0 else max(1, limit - self._kept)
        return self.in_flight < room and self._resume is None

    def _serve(self) -> None:
        while True:
            firsts = [queue.first() for queue in self._queues]
            able = [at for at, each in enumerate(firsts) if each and self._has_room(each.place.priority)]
            if not able:
                return
            at = next((at for at in able[:-1] if self._in_a_row[at] < FIRST_IN_A_ROW), able[-1])
            waiter = firsts[at]
            assert waiter is not None
            self._in_a_row[at] = self._in_a_row[at] + 1 if any(firsts[at + 1 :]) else 0
            self._in_a_row[:at] = [0] * at
            self._queues[at].pop()
            self.in_flight += 1
            waiter.turn.set_result(None)

    def _end_pause(self) -> None:
        self._resume = None
        self._serve()
