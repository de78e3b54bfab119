"""How many tokens a day may be spent on the chat model, for each user and for all of them together.

A day is one of UTC, since the bills of providers are. Every call counts with its prompt and its completion,
whatever became of the answer, unless it was broken off since its words were forgotten. Calls that are out when a
budget is reached go on to their end, so it is exceeded by what these take: at most `models.concurrency` pieces of
work, and as many questions of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import anyio

from daemon.logs import Report, quiet
from daemon.models.query_spending import QuerySpending
from daemon.models.query_tasks import QueryTask
from events.envelope import Reference
from events.ledger import DAY_MS, day_of, read_tokens_by_user
from events.log import EventLog
from events.memory import Usage
from events.query_usage import NOBODY
from events.time import Instant, to_iso

# A clock that is set back and forth comes back to days that were counted already; so many are kept.
DAYS_KEPT = 3
# As `models.concurrency` has it: more would only wait for one another.
QUESTIONS_MAX = 16


@dataclass(frozen=True, slots=True)
class Block:
    """Why nothing is started, in a sentence, until when, and how many seconds that is from now."""

    until: Instant
    reason: str
    in_s: float


@dataclass(slots=True)
class _Day:
    """What was spent on one day. `is_loaded`: also what the ledger says of it."""

    is_loaded: bool = False
    total: int = 0
    by_user: dict[Reference, int] = field(default_factory=dict[Reference, int])


class Budget:
    """Counts tokens by day and user, and says who has to wait for midnight. A limit of 0 is none.

    What questions took is handed on to `queries`, which keeps it; what background work took stands in its events.
    """

    def __init__(
        self,
        tokens_per_day: int,
        tokens_per_day_user: int,
        clock: Callable[[], Instant],
        report: Report = quiet,
        queries: QuerySpending | None = None,
        questions_max: int = QUESTIONS_MAX,
    ) -> None:
        """`questions_max`: of queries that ask at the same time. Whoever asks holds one of `questions`, and looks
        then whether the budget is spent: else all that wait for a slot would go out after it was."""
        self.tokens_per_day = tokens_per_day
        self.tokens_per_day_user = tokens_per_day_user
        self._clock, self._report, self._queries = clock, report, queries
        self._days: dict[int, _Day] = {}
        self.questions = anyio.Semaphore(questions_max)

    async def load(self, log: EventLog) -> None:
        """Take over what the store says of today, once; answers that were dropped before a restart are in none.

        Call it at the start and as time goes by: a clock that is set right later comes to a day with a past.
        """
        number = day_of(self._clock())
        day = self._days.get(number)
        if day is None or not day.is_loaded:
            self.take_over(number, await log.read(partial(read_tokens_by_user, day=number)))

    def take_over(self, number: int, by_user: Mapping[Reference, int]) -> None:
        """Count what was spent on a day (days since 1970) before this process came to it."""
        day = self._day(number)
        day.is_loaded = True
        for user, tokens in by_user.items():
            # What was spent since is in the ledger as well.
            day.by_user[user] = max(day.by_user.get(user, 0), tokens)
        day.total = max(day.total, sum(day.by_user.values()))

    def spend(self, user: Reference | None, usage: Usage) -> None:
        """A call was made for a user, or for nobody that this daemon knows."""
        was_spent = self.is_spent()
        today, whose = self._today(), NOBODY if user is None else user
        today.total += usage.tokens
        today.by_user[whose] = today.by_user.get(whose, 0) + usage.tokens
        if self.is_spent() and not was_spent:
            until = to_iso((day_of(self._clock()) + 1) * DAY_MS)
            self._report("budget.used_up", tokens=today.total, until=until)

    def spend_on_query(self, user: Reference | None, task: QueryTask, usage: Usage) -> None:
        """The same for a question, of which no event will tell."""
        self.spend(user, usage)
        if self._queries is not None:
            self._queries.note(user, task, usage)

    def spent(self, user: Reference | None = None) -> int:
        """Tokens of today: of one user, or of all."""
        today = self._today()
        return today.total if user is None else today.by_user.get(user, 0)

    def is_spent(self, user: Reference | None = None) -> bool:
        """Whether nothing may be started for a user (None: for anybody); the quick way to ask for many users."""
        today = self._today()
        if 0 < self.tokens_per_day <= today.total:
            return True
        return user is not None and 0 < self.tokens_per_day_user <= today.by_user.get(user, 0)

    def blocked(self, user: Reference | None = None) -> Block | None:
        """Why nothing may be started for a user (None: for anybody), if so."""
        if not self.is_spent(user):
            return None
        if self.is_spent():
            return self._block("the budget of all users", self.tokens_per_day, "models.tokens_per_day")
        return self._block("this user's budget", self.tokens_per_day_user, "models.tokens_per_day_user")

    def _today(self) -> _Day:
        return self._day(day_of(self._clock()))

    def _day(self, number: int) -> _Day:
        day = self._days.get(number)
        if day is None:
            day = self._days[number] = _Day()
            while len(self._days) > DAYS_KEPT:
                del self._days[next(iter(self._days))]
        return day

    def _block(self, whose: str, tokens: int, key: str) -> Block:
        now = self._clock()
        until = (day_of(now) + 1) * DAY_MS
        reason = f"{whose} of {tokens} tokens a day is used up ({key}); work goes on at {to_iso(until)}"
        return Block(until, reason, (until - now) / 1000)
