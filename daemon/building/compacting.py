"""Compaction in the background (algorithms.md 2, way 3): units that outgrew their target are planned and fused.

Nothing here waits for anything: facts are put into units beside, units are planned on a thread, and the groups are
handed to the worker, which asks for them when nobody waits for something fresher. What a plan wants is held until
it is done, so that what is being fused is not planned otherwise; after a crash it is planned again from what is
recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from daemon.building.fusing import Merge
from daemon.building.held_groups import Held, HeldGroups
from daemon.building.live_nodes import LiveNode, MergeRules, due_trajectories, may_be_merged
from daemon.building.partitioning import Partitioning
from daemon.building.refreshing import Window, read_standing
from daemon.building.unit_plans import PlannedGroup, plan_groups_of
from daemon.building.unit_vectors import Places
from daemon.building.unit_watch import Together, UnitWatch, judge, make_rules
from daemon.logs import Report
from daemon.memories import Memories
from events.envelope import Reference
from events.eventtree import UnitId
from events.time import Instant
from projections.memory import Memory

# Groups of a user, and of all together, that are planned and not fused: enough that no slot waits for a plan. A
# group holds some hundred bytes a member; units beyond are planned when there is room.
HELD_MAX: Final = 256
ALL_HELD_MAX: Final = 4_096
# Units that are planned before the first of their groups are asked for.
UNITS_AT_ONCE: Final = 16
# Units that are looked at on the loop at once, a fifth of a millisecond each; of more, one page after the other.
LOOKED_AT_MAX: Final = 8


@dataclass(slots=True)
class _User:
    """What is planned of one user."""

    watch: UnitWatch
    # Groups that were given up, with their units, until they are resumed.
    given_up: dict[bytes, UnitId] = field(default_factory=dict[bytes, UnitId])
    recorded: int = 0  # groups, since that was reported last
    # Whether all chains of states were looked at once; from then on those that changed are.
    knows_chains: bool = False


class Compacting:
    """What is to be merged of all users whose facts are compacted in the background."""

    def __init__(
        self,
        memories: Memories,
        partitioning: Partitioning,
        clock: Callable[[], Instant],
        report: Report,
        idle_s: float,
        refresh_age_s: float,
    ) -> None:
        # Users of whom somebody compacts all there is; they are left alone.
        self.gives_way: Callable[[Reference], bool] = lambda _: False
        # Called with a user for whom there is more to do by now.
        self.on_ready: Callable[[Reference], None] = lambda _: None
        self._memories = memories
        self._partitioning = partitioning
        self._clock = clock
        self._report = report
        self._idle_ms, self._age_ms = int(idle_s * 1000), int(refresh_age_s * 1000)
        self._users: dict[Reference, _User] = {}
        self._windows: dict[Reference, Window] = {}
        self._held: dict[Reference, HeldGroups] = {}
        self._left_alone: dict[Reference, None] = {}
        # When facts will be old enough, of users whose Memory is not here.
        self._old_at: dict[Reference, Instant] = {}
        partitioning.units.held_together = self._together

    def count_planned(self, user: Reference, *, is_wanted: bool) -> int:
        """Groups of a user that are planned and not fused, and what is to be planned yet: part of `pending`.

        A unit counts for one group until it is planned, and so do all facts together that wait for a unit.
        `is_wanted`: the user is about to be planned. Of one who was not since the start nothing else is known.
        """
        memory, state = self._memories.peek(user), self._users.get(user)
        if memory is None or memory.needs_rebuild or self.gives_way(user):
            return 0
        if not self._partitioning.parameters_of(memory).online:
            return 0
        units, waits = memory.units, self._partitioning.waits(memory)
        if state is None or state.watch.units is not units:
            return int(is_wanted and bool(units.facts_of or waits))
        watch = state.watch
        is_open = watch.is_behind or not watch.is_judged or waits
        return len(self._held_of(user).planned) + len(watch.due) + int(is_open)

    def plan(self, memory: Memory, in_flight: Collection[tuple[Reference, bytes]]) -> Iterator[Merge]:
        """The merges that are due of a user and are not `in_flight`; whatever else is to be done is begun."""
        user, parameters = memory.user, self._partitioning.parameters_of(memory)
        if not parameters.online or self.gives_way(user):
            self.forget(user)
            if parameters.online:
                self._left_alone[user] = None
            return
        state, now = self._state(memory), self._clock()
        watch, rules = state.watch, make_rules(parameters, now)
        if watch.count_unseen() <= LOOKED_AT_MAX:
            watch.look(memory, parameters, now, self._together(user), LOOKED_AT_MAX)
        if not self._take_up(memory, state, rules, now):
            return
        if self._partitioning.waits(memory):
            self._partitioning.begin(memory)
        elif (
            watch.is_behind
            or (watch.due and self._has_room(user))
            or not (watch.is_judged or self._held_of(user).planned)
        ):
            self._partitioning.errands.begin(user, "unit_plans", partial(self._plan_units, user))
        yield from self._offer(memory, rules, in_flight)

    def begin(self, work: Merge) -> None:
        """The worker begins a merge."""
        self._held.setdefault(work.origin.user, HeldGroups()).begin(work)

    def end(self, work: Merge, *, waits: bool) -> None:
        """A merge is over, or `waits` for the model."""
        user, request = work.origin.user, work.request
        held, memory = self._held_of(user), self._memories.peek(user)
        held.end(request)
        if request in held.planned and not waits:
            self._drop(user, request, is_recorded=memory is not None and request in memory.units.groups)
        self._tidy(user)

    def count_held(self) -> int:
        """Groups of all users that are planned and not fused."""
        return sum(len(held.planned) for held in self._held.values())

    def is_asking(self, user: Reference) -> bool:
        """Whether the model is asked for groups of a user."""
        return bool(self._held_of(user).begun)

    def is_overdue(self, user: Reference) -> bool:
        """Whether the groups of a user wait for longer than any refresh may."""
        since = self._held_of(user).since
        return since is not None and (anyio.current_time() - since) * 1000 > self._age_ms

    def find_due(self, passed_over: Container[Reference] = ()) -> list[Reference]:
        """Users who are to be planned again: by the clock, or since nobody else compacts their facts any more.

        Of those who are overdue it is the one who waits longest: no more than one merge goes ahead at a time.
        """
        now = self._clock()
        found = [user for user in self._left_alone if not self.gives_way(user)]
        for user in found:
            del self._left_alone[user]
        found += [user for user, old_at in self._old_at.items() if old_at <= now]
        for user, window in self._windows.items():
            # Further ahead than any refresh: the clock was set back since. Then it is worked out anew.
            if window.due_at is not None and not 0 < window.due_at - now <= self._age_ms:
                found.append(user)
        for user, state in self._users.items():
            is_older = state.watch.old_at is not None and state.watch.old_at <= now
            if is_older or self._has_waited_for_room(user, state.watch):
                found.append(user)
        waiting = [user for user, held in self._held.items() if held.has_unbegun and self.is_overdue(user)]
        waiting.sort(key=lambda user: self._held[user].since or 0.0)
        found += islice((user for user in waiting if user not in passed_over), 1)
        return [user for user in dict.fromkeys(found) if user not in passed_over]

    def forget(self, user: Reference) -> None:
        """Keep no plan of a user: some of it may be of words that are to be forgotten."""
        self._users.pop(user, None)
        self._old_at.pop(user, None)
        self._held_of(user).clear()
        self._tidy(user)

    def let_go(self, user: Reference) -> None:
        """The Memory of a user goes, and what is planned of it. What was begun is recorded all the same."""
        state, window = self._users.get(user), self._windows.get(user)
        old_at = self._old_at.get(user) if state is None else state.watch.old_at
        self.forget(user)
        if old_at is not None:
            self._old_at[user] = old_at
        if window is not None and window.due_at is None:
            del self._windows[user]

    def remembers(self, user: Reference) -> bool:
        """Whether anything is known of a user beside the Memory."""
        return any(user in each for each in (self._users, self._windows, self._held, self._old_at))

    def _take_up(self, memory: Memory, state: _User, rules: MergeRules, now: Instant) -> bool:
        """Whether something is to be done now; trajectories that are due are held from then on."""
        window, watch, user = self._window(memory.user), state.watch, memory.user
        due = self._find_trajectories(memory, state, rules) if window.is_open else []
        ended = bool(due if window.is_open else memory.placement.validity.resettled) or not state.knows_chains
        is_watched = watch.is_behind or not watch.is_judged or bool(watch.due)
        wants = self._partitioning.waits(memory) or is_watched or ended or bool(self._held_of(user).planned)
        was_open = window.is_open
        if not window.take_up(wants, read_standing(memory, now, window.idle_ms), now):
            if was_open and state.recorded:
                self._report("worker.facts_compacted", groups=state.recorded)
                state.recorded = 0
            return False
        if not was_open:
            due = self._find_trajectories(memory, state, rules)
        state.knows_chains = True
        for states in due:
            self._hold(user, Held(PlannedGroup(states, 0), None))
        return True

    def _state(self, memory: Memory) -> _User:
        state, policy = self._users.get(memory.user), memory.units.policy
        if state is None or state.watch.units is not memory.units or state.watch.policy != policy:
            self.forget(memory.user)
            watch = UnitWatch(memory.units, policy, self._partitioning.units.alike)
            watch.is_judged = not memory.units.facts_of
            state = self._users[memory.user] = _User(watch)
        for group in [group for group in state.given_up if group not in memory.units.parked]:
            state.watch.try_again(state.given_up.pop(group))
        return state

    def _window(self, user: Reference) -> Window:
        window = self._windows.get(user)
        if window is None:
            window = self._windows[user] = Window(self._idle_ms, self._age_ms)
        return window

    def _find_trajectories(self, memory: Memory, state: _User, rules: MergeRules) -> list[tuple[LiveNode, ...]]:
        """Trajectories that are to be fused and are not planned yet; the first time of all chains."""
        if state.knows_chains and not memory.placement.validity.resettled:
            return []
        parked, begun = memory.units.parked, self._held_of(memory.user).begun
        due = due_trajectories(memory, rules, every=not state.knows_chains)
        return [
            states
            for states in due
            if (name := Held(PlannedGroup(states, 0), None).request) not in parked and name not in begun
        ]

    async def _plan_units(self, user: Reference) -> None:
        """Look at all units that changed, judge them, and plan what is due, as far as there is room."""
        async with self._memories.use(user) as memory:
            state = self._users.get(user)
            if memory.needs_rebuild or state is None or state.watch.units is not memory.units:
                return
            parameters, watch = self._partitioning.parameters_of(memory), state.watch
            while watch.is_behind:
                watch.look(memory, parameters, self._clock(), self._together(user), LOOKED_AT_MAX)
                await anyio.lowlevel.checkpoint()
            if not watch.is_judged and not self._held_of(user).planned:
                looks, work = watch.looks, partial(judge, watch.sizes(), parameters)
                due = await anyio.to_thread.run_sync(work, limiter=self._partitioning.threads)
                if watch.is_behind or watch.looks != looks:
                    return  # something changed meanwhile
                watch.note_due(due, parameters)
            if self._partitioning.waits(memory):
                return
            places = await self._partitioning.units.places(memory)
            while watch.due and self._has_room(user):
                for unit in list(islice(watch.due, UNITS_AT_ONCE)):
                    await self._plan_unit(memory, state, unit, places)
                if self._users.get(user) is not state or memory.needs_rebuild:
                    return
                self.on_ready(user)  # the first ones are asked for while the others are planned

    async def _plan_unit(self, memory: Memory, state: _User, unit: UnitId, places: Places) -> None:
        user, watch, changes = memory.user, state.watch, memory.units.changed.get(unit, 0)
        parameters = self._partitioning.parameters_of(memory)
        rules = make_rules(parameters, self._clock())
        standing = watch.stand(memory, unit, rules, self._together(user), places)
        pointers = [ref.occurrence for node in standing.nodes for ref in node.member_refs]
        rows = await self._partitioning.units.rows(memory, pointers)
        # One at a time, a millisecond each: the loop waits for no more than that.
        work = partial(plan_groups_of, standing, rows, parameters)
        planned = await anyio.to_thread.run_sync(work, limiter=self._partitioning.threads)
        watch.due.pop(unit, None)
        if self._users.get(user) is not state or memory.units.changed.get(unit, 0) != changes:
            watch.again[unit] = None
            return
        held, parked = [Held(group, unit) for group in planned], memory.units.parked
        state.given_up |= {each.request: unit for each in held if each.request in parked}
        wanted = [each for each in held if each.request not in parked]
        if not wanted:
            watch.note_in_vain(unit, changes)
        for each in wanted:
            self._hold(user, each)

    def _offer(
        self,
        memory: Memory,
        rules: MergeRules,
        in_flight: Collection[tuple[Reference, bytes]],
    ) -> Iterator[Merge]:
        """The groups that are held, without those whose members changed: their units are looked at again."""
        for request, held in list(self._held_of(memory.user).planned.items()):
            if (memory.user, request) in in_flight:
                continue
            fits = all(may_be_merged(memory, node, rules) for node in held.group.nodes)
            work = held.make(memory) if fits and request not in memory.units.parked else None
            if work is None:
                self._drop(memory.user, request, is_recorded=False)
            else:
                yield work

    def _hold(self, user: Reference, held: Held) -> None:
        self._held.setdefault(user, HeldGroups()).hold(held)

    def _drop(self, user: Reference, request: bytes, *, is_recorded: bool) -> None:
        """A group is planned no more: its unit is planned again, unless all that was planned of it is recorded."""
        unit, is_whole = self._held_of(user).drop(request, is_recorded=is_recorded)
        state = self._users.get(user)
        if state is not None:
            state.recorded += is_recorded
        if unit is not None and state is not None:
            state.watch.again[unit] = None
            if is_whole:
                state.watch.note_in_vain(unit, state.watch.units.changed.get(unit, 0))
        self._tidy(user)

    def _tidy(self, user: Reference) -> None:
        """Keep no place for groups of a user of whom there are none."""
        if user in self._held and not self._held[user]:
            del self._held[user]

    def _held_of(self, user: Reference) -> HeldGroups:
        """What is held of a user; of one of whom nothing is, a new one."""
        return self._held.get(user) or HeldGroups()

    def _has_room(self, user: Reference) -> bool:
        return len(self._held_of(user).planned) < HELD_MAX and self.count_held() < ALL_HELD_MAX

    def _has_waited_for_room(self, user: Reference, watch: UnitWatch) -> bool:
        """Whether units of a user are due that can be planned by now, and nobody else would say so."""
        if not watch.due or self._held_of(user).planned or not self._window(user).is_open:
            return False
        return self._has_room(user) and not self._partitioning.errands.is_away(user)

    def _together(self, user: Reference) -> Together:
        """The groups of a user that are planned or being fused, by their facts; not trajectories."""
        return self._held_of(user).bound
