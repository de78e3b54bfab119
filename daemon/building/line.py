"""The line of users whose work is to be planned: who comes next, and who waits for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import anyio

from daemon.models.limiter import FIRST_IN_A_ROW, PRIORITY
from events.envelope import Reference
from events.memory import Task

# The priorities of what the worker plans.
_EXTRACT: Final = PRIORITY[Task.EXTRACT]
_SUMMARISE: Final = PRIORITY[Task.SUMMARISE]
_MERGE: Final = PRIORITY[Task.MERGE]


@dataclass(frozen=True, slots=True)
class Turn:
    """A user to plan; `priority` is that of the work for which it waited longest, if it waited for room."""

    user: Reference
    priority: int | None = None


@dataclass(slots=True)
class Line:
    """Users of whom something is wanted, those whose work found no room, and those whose work has to wait.

    When room is short, fresh turns of one user go before another's summaries, but for one place in a few, and
    these before merges; among equals the one that waits longest comes first: nobody stands behind everything that
    another one ever said.
    """

    wanted: dict[Reference, None] = field(default_factory=dict[Reference, None])
    # By the priority of the first piece that found no room; true while the user has a turn, which is a claim, too.
    crowded_out: dict[int, dict[Reference, bool]] = field(
        default_factory=lambda: {_EXTRACT: {}, _SUMMARISE: {}, _MERGE: {}}
    )
    # Chunks in a row that were begun while others waited for summaries.
    fresh_in_a_row: int = 0
    # The model or their budget has no room for them: they are planned when that is over.
    held_back: dict[Reference, None] = field(default_factory=dict[Reference, None])
    # Of whom chunks are begun whose turns are still read: which, by request.
    reading: dict[Reference, set[bytes]] = field(default_factory=dict[Reference, set[bytes]])
    # Users being planned: one plan a user at a time.
    planned_now: set[Reference] = field(default_factory=set[Reference])
    woken: anyio.Event = field(default_factory=anyio.Event)

    def want(self, user: Reference) -> None:
        """Something of a user changed."""
        self.wanted[user] = None
        self.wake()

    def wake(self) -> None:
        """Let those who wait for a turn look again."""
        woken, self.woken = self.woken, anyio.Event()
        woken.set()

    def begin_reading(self, user: Reference, request: bytes) -> None:
        """A chunk is begun: until its turns are read, summaries that are begun would be asked before it."""
        self.reading.setdefault(user, set()).add(request)

    def end_reading(self, user: Reference, request: bytes) -> None:
        """A chunk is asked, or need not be; behind the last one there may be room for summaries."""
        requests = self.reading.get(user, set())
        requests.discard(request)
        if not requests and self.reading.pop(user, None) is not None:
            self.want(user)

    def take_next(self, has_room: bool, may_merge: bool = False) -> Turn | None:
        """Whom to plan now, until `leave` is called. `may_merge`: there is room for merges, too.

        First those who found no room, if there is some now, fresh turns before summaries and these before merges;
        then what is new. While there is none, all that is new is planned and gets its place among those who wait.
        """
        turn = self._choose(has_room, may_merge)
        if turn is not None:
            self.planned_now.add(turn.user)
            if turn.priority is None:
                del self.wanted[turn.user]
            else:
                self.crowded_out[turn.priority][turn.user] = True
        return turn

    def leave(self, turn: Turn) -> None:
        """A user's plan is over; somebody may have wanted that user meanwhile."""
        self.planned_now.discard(turn.user)
        if turn.priority is not None and self.crowded_out[turn.priority].get(turn.user):
            del self.crowded_out[turn.priority][turn.user]
        self.wake()

    def take_room(self, turn: Turn, priority: int) -> bool:
        """Whether a piece may begin, which it does then: nobody else waits for this room with a better claim."""
        others = [each for each, users in self.crowded_out.items() if any(user != turn.user for user in users)]
        if self._is_for_summary and priority == turn.priority == _SUMMARISE:
            self.fresh_in_a_row = 0
            return True
        better = [each for each in others if each < priority]
        equal = priority in others and turn.priority != priority
        is_fresh = priority == _EXTRACT and _SUMMARISE in others
        if better or equal or (is_fresh and self._is_for_summary):
            return False
        self.fresh_in_a_row += is_fresh
        return True

    def crowd_out(self, turn: Turn, priority: int) -> None:
        """A piece found no room. Who had a turn goes to the end, and who waits already keeps the place."""
        waiting = self.crowded_out[priority]
        if turn.priority == priority:
            waiting.pop(turn.user, None)
        waiting.setdefault(turn.user, False)

    def wants(self, user: Reference) -> bool:
        """Whether a user is being planned, or is to be: next, or when there is room, the model or a budget."""
        places = (self.wanted, self.planned_now, *self.crowded_out.values(), self.held_back)
        return any(user in place for place in places)

    def waits(self, user: Reference) -> bool:
        """Whether a user comes up before long without being wanted again; who only merges may not."""
        return user in self.held_back or any(user in self.crowded_out[each] for each in (_EXTRACT, _SUMMARISE))

    def give_up_claims(self, user: Reference) -> None:
        """All work of a user is under way or done: nothing of it waits."""
        for waiting in self.crowded_out.values():
            waiting.pop(user, None)
        self.held_back.pop(user, None)

    def hold_back(self, user: Reference) -> None:
        """The work of a user has to wait, and takes no room meanwhile."""
        self.held_back[user] = None

    def release(self, still_blocked: Callable[[Reference], bool]) -> None:
        """Want everybody again whose work need not wait any more."""
        self._let_in(user for user in self.held_back if not still_blocked(user))

    def release_all(self) -> None:
        """Want everybody again who was held back."""
        self._let_in(self.held_back)

    def _let_in(self, users: Iterable[Reference]) -> None:
        for user in list(users):
            del self.held_back[user]
            self.want(user)

    @property
    def _is_for_summary(self) -> bool:
        """Whether the next place is for a summary, if one waits."""
        return self.fresh_in_a_row >= FIRST_IN_A_ROW

    def _choose(self, has_room: bool, may_merge: bool) -> Turn | None:
        order = (_SUMMARISE, _EXTRACT) if self._is_for_summary else (_EXTRACT, _SUMMARISE)
        for priority in order if has_room else ():
            if (user := self._first(self.crowded_out[priority])) is not None:
                return Turn(user, priority)
            if self.crowded_out[priority]:
                break  # the room is theirs who are being planned: others would be turned away, again and again
        if (user := self._first(self.wanted)) is not None:
            return Turn(user)
        # After what is new: somebody may have said something.
        may_merge &= has_room and not any(self.crowded_out[each] for each in order)
        user = self._first(self.crowded_out[_MERGE]) if may_merge else None
        return None if user is None else Turn(user, _MERGE)

    def _first(self, waiting: Iterable[Reference]) -> Reference | None:
        return next((each for each in waiting if each not in self.planned_now), None)
