"""When the trees of a user are summarised: the rule of design 3.3, without a clock and without I/O.

A node that the same session changes again would be summarised twice. So what is due waits until the chunks of all
sessions that are over are extracted and their facts are in their trees; but not for long, since what one chunk
waits for must not keep all trees dirty. What is still being said holds nothing up, and is not due with the rest.

What waits goes ahead where nothing that is to come is likely to change it: a closed session's own tree; and what
lies in time before all that is to come, so that where slots are short they are full to the end of the extraction.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from events.envelope import Reference
from events.memory import Digest
from events.time import Instant
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.dirty import Bare

# Chunks and facts that are looked at for what is not in the trees yet: of each the first ones, if more wait.
REST_MAX: Final = 1_000


class Standing(NamedTuple):
    """What the rule looks at, of one Memory at one instant."""

    closings: int  # user_seq of the last SessionClosed
    heard_at: Instant  # when the last turn came in a session that is not closed; 0 without one
    # Of chunks and facts of sessions that are over and that are not in the trees yet, the earliest; None without.
    rest_from: Instant | None = None


@dataclass(slots=True)
class Refresh:
    """The refresh of one user between plans. Times are in milliseconds, instants those of the given clock."""

    idle_ms: int  # all is quiet after so long without a turn
    age_ms: int  # no change of a tree waits longer
    # The nodes that are to be summarised, and others that have gone since.
    due: frozenset[Digest] = frozenset()
    # More is due, and waits for the rest of what was said: since when, and from what time on the rest is.
    held_since: Instant | None = None
    rest_from: Instant | None = None
    # Whether what waits may go ahead now: chunks whose turns are still read would find its summaries before them.
    goes_ahead: bool = True
    # Whether chunks had to wait for a slot since all was in the trees.
    slots_are_short: bool = False
    # When what is not due yet falls due by the clock, if nothing else makes it due before.
    due_at: Instant | None = None
    dirty_since: Instant | None = None
    refreshed_closings: int = 0
    # Somebody wants all that is dirty summarised, whatever comes after.
    is_demanded: bool = False
    # user_seq of the Memory that was planned last, before what was decided on it in that plan.
    planned_to: int = 0

    def take_up(self, dirty: Set[Digest], standing: Standing, now: Instant) -> None:
        """Find what is due of the nodes that want a summary: at a session's close, in quiet, at age, on demand.

        `now` may be before what was told last: the clock was set back, and every wait is counted from there.
        """
        self.rest_from = None
        if dirty <= self.due:
            self._settle(dirty, standing)
            return
        self.dirty_since = min(self.dirty_since or now, now)
        self.due_at = min(standing.heard_at + self.idle_ms, self.dirty_since + self.age_ms)
        if not (self.is_demanded or standing.closings > self.refreshed_closings or now >= self.due_at):
            self.held_since = None
        elif not self.is_demanded and self._waits_for_rest(standing, now):
            self.rest_from = standing.rest_from
        else:
            self._settle(dirty, standing)

    @property
    def wants_any(self) -> bool:
        """Whether some node may be wanted."""
        return bool(self.due) or self.rest_from is not None

    @property
    def is_waiting(self) -> bool:
        """Whether something falls due later, or was asked for."""
        return self.is_demanded or self.due_at is not None

    def wants(self, bare: Bare, memory: Memory) -> bool:
        """Whether a node that can be summarised is to be."""
        node, forest = bare.node, memory.forest
        if node.digest in self.due:
            return True
        if self.rest_from is None or not self.goes_ahead:
            return False
        if any(is_of_closed_session(memory, scope) for scope in bare.scopes):
            return True
        lies_before = self.slots_are_short and node.time_end < self.rest_from
        return lies_before and not any(forest.may_grow(node, scope) for scope in bare.scopes)

    def note_blocked(self) -> None:
        """Nothing can be asked now: the wait for the rest begins when something can."""
        self.held_since = None

    def _settle(self, dirty: Set[Digest], standing: Standing) -> None:
        """All that is dirty is due."""
        self.due = frozenset(dirty)
        self.dirty_since = self.due_at = None
        self.is_demanded = False
        if standing.rest_from is None:
            self.held_since, self.refreshed_closings = None, standing.closings
            self.slots_are_short = False

    def _waits_for_rest(self, standing: Standing, now: Instant) -> bool:
        """Whether sessions that are over have more to come; for that it waits until all would be quiet."""
        if standing.rest_from is None:
            return False
        self.held_since = min(self.held_since or now, now)
        until = self.held_since + min(self.idle_ms, self.age_ms)
        if now < until:
            self.due_at = until
            return True
        self.held_since = now  # what comes later may wait as long
        return False


@dataclass(slots=True)
class Window:
    """When facts of one user are compacted: from when a refresh is due until nothing is left to do.

    What is said meanwhile is compacted with the rest. Times are as in `Refresh`.
    """

    idle_ms: int
    age_ms: int
    is_open: bool = False
    # Since when something was to be compacted while it was closed, and when it opens by the clock.
    wanted_since: Instant | None = None
    due_at: Instant | None = None
    # It would be open, and waits for the rest of what was said: since when.
    held_since: Instant | None = None
    closings: int = 0  # those that it was open for

    def take_up(self, wants: bool, standing: Standing, now: Instant) -> bool:
        """Whether facts are to be compacted now; `wants`: there is something to do."""
        if not wants:
            self.is_open = False
            self.wanted_since = self.due_at = self.held_since = None
            if standing.rest_from is None:
                self.closings = standing.closings
        elif not self.is_open:
            self.wanted_since = min(self.wanted_since or now, now)
            self.due_at = min(standing.heard_at + self.idle_ms, self.wanted_since + self.age_ms)
            if not (standing.closings > self.closings or now >= self.due_at):
                self.held_since = None
            elif not self._waits_for_rest(standing, now):
                self.is_open, self.closings, self.due_at = True, standing.closings, None
        return self.is_open

    def _waits_for_rest(self, standing: Standing, now: Instant) -> bool:
        """Units would be planned before the facts are there that are to be in them; that waits for so long."""
        if standing.rest_from is None:
            return False
        self.held_since = min(self.held_since or now, now)
        self.due_at = self.held_since + min(self.idle_ms, self.age_ms)
        return now < self.due_at


def read_standing(memory: Memory, now: Instant, idle_ms: int) -> Standing:
    """How a Memory stands."""
    # A turn from the future was recorded before the clock was set back, nobody knows how long ago.
    heard = {session: at for session, at in memory.active_sessions.items() if at <= now}
    talking = {session for session, at in heard.items() if now < at + idle_ms}
    rest = (at for session, at in _read_rest(memory, now - 2 * idle_ms) if session not in talking)
    return Standing(memory.closings, max(heard.values(), default=0), min(rest, default=None))


def is_of_closed_session(memory: Memory, scope: Scope) -> bool:
    """Whether a tree is that of a session's chunks, and closed: only the session's going on would change it."""
    return scope.kind is ScopeKind.SESSION and bytes.fromhex(scope.name) not in memory.active_sessions


def _read_rest(memory: Memory, quiet_since: Instant) -> Iterator[tuple[Reference, Instant]]:
    """What was said and is not in the trees yet: in which session, and from what time on it is."""
    for chunk in islice(memory.waiting_chunks.values(), REST_MAX):
        yield chunk.session, chunk.time_start
    for occurrence in islice(memory.canon.waiting.values(), REST_MAX):
        yield occurrence.session, occurrence.time_start
    for fact in islice(memory.placement.scenes.unrouted, REST_MAX):
        for occurrence in memory.canon.facts[fact].occurrences:
            yield occurrence.session, occurrence.time_start
    # The last chunk of a session that just fell quiet is about to be closed.
    for session, heard_at in memory.active_sessions.items():
        for seq in memory.open_chunk(session) if heard_at >= quiet_since else ():
            yield session, memory.turns[seq].said_at
