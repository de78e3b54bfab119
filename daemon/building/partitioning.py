"""Which unit a new fact is in (paper A, Eq. 1-4): planned beside everything else, recorded by `Deciding`.

A plan is made of the vectors of new facts and of the sums of units, for as many facts as wait at a time; it counts
only if no unit changed meanwhile. Without vectors nothing is planned: units wait, and nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import anyio
import anyio.from_thread
import anyio.to_thread

from daemon.building.decided import make_partitions
from daemon.building.errands import Errands
from daemon.building.fact_vectors import FactVectors
from daemon.building.unit_vectors import UnitVectors, order_of
from daemon.folding import in_slices, read_in_slices
from daemon.memories import Memories
from daemon.vector_source import VectorSource
from events.envelope import NewEvent, Reference
from events.errors import StaleDecision
from events.eventtree import UnitId
from events.memory import FactId
from projections.eventtree.online import Arrival, UnitsPlan, bootstrap_units, needs_bootstrap, plan_units
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.unit_sums import UnitNode
from projections.eventtree.units import Units
from projections.memory import Memory
from projections.steps import Steps, at_once, each_of

# Facts that are put into units in one go; the others come next.
PLACED_MAX: Final = 256
# Facts that are partitioned at once, the first in time; KMeans takes seconds for so many, and the square of more.
BOOTSTRAP_MAX: Final = 20_000
# Facts whose partition is written down on the loop, a microsecond each; of more on a thread.
ON_LOOP_MAX: Final = 1_000


@dataclass(slots=True)
class _User:
    """A plan that waits to be recorded, with the units that it was made of, and what cannot be placed."""

    units: Units | None = None
    changes: int = 0
    plan: UnitsPlan | None = None
    # Facts that wait in vain: without a vector.
    left: set[FactId] = field(default_factory=set[FactId])
    # How many waited, and which last, when only such were left.
    idle_at: tuple[int, FactId | None] | None = None


class Partitioning:
    """Plans units of users for `Deciding`, one plan a user at a time."""

    def __init__(
        self,
        memories: Memories,
        vectors: FactVectors,
        source: VectorSource,
        errands: Errands,
        parameters: EventTreeParameters,
    ) -> None:
        self.units = UnitVectors(vectors, source)
        # At most one plan at a time works beside the loop, or many users would take all threads.
        self.threads = anyio.CapacityLimiter(1)
        self.errands = errands
        self._memories = memories
        self._parameters = parameters
        self._users: dict[Reference, _User] = {}

    def parameters_of(self, memory: Memory) -> EventTreeParameters:
        """What counts for a user: the configuration, but for what their policy says."""
        return self._parameters.with_policy(memory.units.policy)

    def waits(self, memory: Memory) -> bool:
        """Whether some known fact could be in a unit and is in none."""
        unplaced, state = memory.units.unplaced, self._users.get(memory.user)
        if not unplaced:
            return False
        if state is None or state.units is not memory.units:
            return True
        stands = len(unplaced), next(reversed(unplaced))
        if state.idle_at == stands:
            return False
        if any(fact not in state.left for fact in reversed(unplaced)):
            return True
        state.idle_at = stands
        return False

    def begin(self, memory: Memory) -> None:
        """Have the facts that wait put into units; the user is planned again when a plan is there."""
        if not self.has_plan(memory.user):
            self.errands.begin(memory.user, "units", partial(self._work, memory.user))

    def has_plan(self, user: Reference) -> bool:
        """Whether a plan waits to be recorded."""
        state = self._users.get(user)
        return state is not None and state.plan is not None

    async def decide(self, memory: Memory) -> list[NewEvent]:
        """The plan that waits as events; none when it is stale by now. Call it under the planner lock."""
        state = self._users.get(memory.user)
        if state is None or state.plan is None:
            return []
        # Also one that is stale by the time it is written: the facts wait, so there is another one soon.
        plan, state.plan = state.plan, None
        if not _stands(plan, state, memory):
            return []
        make = partial(make_partitions, memory, plan.moved)
        if sum(len(each.facts) for each in plan.moved) <= ON_LOOP_MAX:
            return make()
        try:
            # Only who holds the planner lock takes facts away; what is folded beside is of an undoing.
            return await anyio.to_thread.run_sync(make)
        except KeyError:
            raise StaleDecision from None

    def forget(self, user: Reference) -> None:
        """Keep nothing that was made of a user's words."""
        self._users.pop(user, None)
        self.units.forget(user)

    def keeps(self, user: Reference) -> bool:
        """Whether anything of a user is kept."""
        return user in self._users or self.units.keeps(user)

    async def _work(self, user: Reference) -> None:
        async with self._memories.use(user) as memory:
            if memory.needs_rebuild:
                return
            state = self._users.get(user)
            if state is None or state.units is not memory.units:
                state = self._users[user] = _User(memory.units)
            parameters, units = self.parameters_of(memory), memory.units
            waiting = max(0, min(len(units.unplaced) - len(state.left), BOOTSTRAP_MAX))
            if needs_bootstrap(waiting, len(units.unit_of)):
                plan, changes = await self._bootstrap(memory, state, parameters)
            else:
                plan, changes = await self._place(memory, state, parameters)
            if plan is not None and self._users.get(user) is state:
                state.plan, state.changes = plan, changes

    async def _place(
        self, memory: Memory, state: _User, parameters: EventTreeParameters
    ) -> tuple[UnitsPlan | None, int]:
        """Each fact into the unit it fits best."""
        waiting = await read_in_slices(memory, partial(self._find_waiting, memory, state, PLACED_MAX))
        nodes = await self.units.arrivals(memory, waiting)
        arrivals = [Arrival(each.facts[0], each.vector, each.position) for each in at_once(_usable(nodes, state))]
        if not arrivals:
            return None, 0
        sums, changes = await self.units.sums(memory, self.units.space_of(memory, waiting))

        async def fetch_nodes(unit: UnitId) -> list[UnitNode]:
            return (await self.units.nodes(memory, (unit,)))[unit]

        def fetch(unit: UnitId) -> list[UnitNode]:
            return anyio.from_thread.run(fetch_nodes, unit)

        work = partial(plan_units, arrivals, sums, fetch, parameters)
        return await anyio.to_thread.run_sync(work, limiter=self.threads), changes

    async def _bootstrap(
        self, memory: Memory, state: _User, parameters: EventTreeParameters
    ) -> tuple[UnitsPlan | None, int]:
        """The units of a store that has none, or hardly any: all facts at once."""
        changes = memory.units.changes
        waiting = await read_in_slices(memory, partial(self._find_waiting, memory, state, BOOTSTRAP_MAX))
        placed = self._placed_beside(memory, waiting)
        try:
            nodes = await self.units.nodes_with(memory, [*placed, *waiting])
        except KeyError:
            return None, changes  # something was taken back meanwhile
        usable = await in_slices(_usable(nodes, state))
        if not usable:
            return None, changes
        work = partial(bootstrap_units, usable, parameters)
        return await anyio.to_thread.run_sync(work, limiter=self.threads), changes

    def _find_waiting(self, memory: Memory, state: _User, limit: int) -> Steps[list[FactId]]:
        """Facts of one space that could be in a unit, the first in time of those that wait longest."""
        units, facts = memory.units, memory.canon.facts
        fresh = [fact for fact in units.unplaced if fact not in state.left and fact in facts]
        if not fresh:
            last = next(reversed(units.unplaced), None)
            state.idle_at = len(units.unplaced), last
        if memory.spaces.known:
            alike = self.units.in_space(memory, fresh, self.units.space_of(memory, fresh))
            fresh = list(islice(alike, limit))
        yield
        ordered = yield from each_of(islice(fresh, limit), lambda fact: (order_of(facts[fact].first), fact))
        return [fact for _, fact in sorted(ordered)]

    def _placed_beside(self, memory: Memory, waiting: Iterable[FactId]) -> list[FactId]:
        """The facts in units of the space that these wait in."""
        placed, facts = memory.units.unit_of, memory.canon.facts
        if not memory.spaces.known:
            return list(placed)
        known = (fact for fact in placed if fact in facts)
        return list(self.units.in_space(memory, known, self.units.space_of(memory, waiting)))


def _stands(plan: UnitsPlan, state: _User, memory: Memory) -> bool:
    """Whether no unit that a plan touches or empties changed since, and the facts it moves are there."""
    units = memory.units
    if memory.needs_rebuild or state.units is not units:
        return False
    moved = [fact for each in plan.moved for fact in each.facts]
    left = {units.unit_of[fact] for fact in moved if fact in units.unit_of}
    if any(units.changed.get(unit, 0) > state.changes for unit in left.union(plan.standing)):
        return False
    return all(fact in units.unplaced or fact in units.unit_of for fact in moved)


def _usable(nodes: Iterable[UnitNode], state: _User) -> Steps[list[UnitNode]]:
    """Those that have a vector; the others would be like nothing."""
    usable: list[UnitNode] = []
    for node in nodes:
        if node.vector.any():
            usable.append(node)
        else:
            state.left.update(node.facts)
        yield
    return usable
