"""What is decided on the facts of a user: which occurrence is which fact, which scenes a fact is in, what it ends.

It is planned on the fold, under one lock a user, which is never held across a call of an embedder or a model. The
vectors that it wants are made beside; what can be decided without them is, and the user is planned again when they
are there. While the embedder is away, what says exactly the same is joined and all else is admitted; scenes wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import anyio
import anyio.to_thread

from daemon.building.comparing import Compared, Comparing
from daemon.building.decided import (
    Founded,
    find_founded,
    make_admissions,
    make_merges,
    make_promotion,
    make_routes,
    make_supersessions,
)
from daemon.building.errands import FAILED_PAUSE_S, PATIENCE_S, Errands
from daemon.building.fact_vectors import FactVectors
from daemon.building.judging import Judging
from daemon.building.partitioning import Partitioning
from daemon.building.scene_vectors import SceneVectors
from daemon.logs import Report, quiet
from daemon.memories import Memories
from daemon.models.background import COSINE_PARTS, known_thresholds, measure, name_thresholds
from daemon.offline.embedder import HashingEmbedder
from daemon.vector_source import VectorSource
from events.appending import Batch
from events.decisions import GenerationPromoted, Route, Thresholds
from events.envelope import NewEvent, Reference
from events.errors import StaleDecision
from events.faults import fault_point
from events.log import EventLog
from events.memory import FactId, Pointer
from events.time import Instant
from projections.eventtree.parameters import EventTreeParameters
from projections.facts.admission import plan_admissions
from projections.facts.scene_planning import FACTS_MAX, Arrival, plan_scenes
from projections.facts.supersession import copy_chains, plan_differences, plan_supersessions
from projections.memory import Memory
from projections.ports import Embedder

# Facts that are routed in one go: a store of before there were scenes is routed page by page.
ROUTED_MAX: Final = 256
# Occurrences that are admitted in one go, which is planned on the loop.
ADMITTED_MAX: Final = 1_024
# Readings that are compared in one go; of more at once, only what says exactly the same is joined, and stays so.
COMPARED_MAX: Final = 2_048
# States that are planned on the loop, some milliseconds of it: of one kind there are seldom more than ten.
STATES_ON_LOOP_MAX: Final = 500
# Facts of a user that were admitted while they could not be compared, and are when they can; of more, the oldest
# stay as they are. Also those of before the last start.
UNCOMPARED_MAX: Final = 2_048
# More than any cosine.
_NEVER: Final = 2 * COSINE_PARTS


@dataclass(frozen=True, slots=True)
class DecidingParameters:
    """How facts are compared and routed. `judged`: a model has the last word of what is nearly the same.

    The rest is how much is done at a time, and how long the embedder is waited for and left alone.
    """

    scene_facts_max: int = FACTS_MAX
    second_scene: bool = True
    judged: bool = False
    routed_max: int = ROUTED_MAX
    states_on_loop_max: int = STATES_ON_LOOP_MAX
    patience_s: float = PATIENCE_S
    failed_pause_s: float = FAILED_PAUSE_S


@dataclass(slots=True)
class _User:
    """What is remembered of a user between plans."""

    planner: anyio.Lock = field(default_factory=anyio.Lock)
    # Facts that were admitted without being compared, and those of them that the plan under way compares.
    uncompared: dict[FactId, None] = field(default_factory=dict[FactId, None])
    compared: tuple[FactId, ...] = ()
    verdicts_seen: int = 0


class Deciding:
    """Decides on the facts of all users; `run` makes the vectors that it wants for that."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        embedder: Embedder | None = None,
        source: VectorSource | None = None,
        report: Report = quiet,
        parameters: DecidingParameters | None = None,
        eventtree: EventTreeParameters | None = None,
    ) -> None:
        """Without an `embedder` the built-in one compares; `source` is where its vectors are kept.

        Without an `eventtree` facts are put into no units.
        """
        # Called with a user for whom there is more to decide by now.
        self.on_ready: Callable[[Reference], None] = lambda _: None
        self.judging = Judging()
        self._parameters = parameters or DecidingParameters()
        self._log = log
        self._memories = memories
        self._embedder = embedder or HashingEmbedder()
        pauses = self._parameters
        self._errands = Errands(report, failed_pause_s=pauses.failed_pause_s, patience_s=pauses.patience_s)
        source = source or VectorSource(log, self._embedder)
        self._vectors = FactVectors(log, source, self._errands)
        self._comparing = Comparing(self._embedder, self._vectors, self._errands, judged=pauses.judged)
        self._scenes = SceneVectors(self._vectors, self._errands)
        self.partitioning: Partitioning | None = None
        if eventtree is not None:
            self.partitioning = Partitioning(memories, self._vectors, source, self._errands, eventtree)
        self._users: dict[Reference, _User] = {}
        # By the name they are recorded under: an endpoint tells its vectors' width with the first ones.
        self._measured: dict[str, Thresholds] = {}
        self._measuring = anyio.Lock()

    def planner(self, user: Reference) -> anyio.Lock:
        """Held by whoever decides on the facts of a user; never across a model call."""
        return self._users.setdefault(user, _User()).planner

    def forget(self, user: Reference) -> None:
        """Keep nothing that was made of the words of a user: some of them were forgotten, or reworded."""
        self._vectors.forget(user)
        self._scenes.forget(user)
        self._forget_units(user)

    def let_go(self, user: Reference) -> None:
        """The Memory of a user goes. Vectors stay as long as there is room: what was wanted is decided on yet."""
        self._forget_units(user)
        state = self._users.get(user)
        if state is not None and not (state.uncompared or state.planner.locked()):
            del self._users[user]

    def keeps_vectors(self, user: Reference) -> bool:
        """Whether vectors of a user's words are kept, or are to be made."""
        has_units = self.partitioning is not None and self.partitioning.keeps(user)
        return self._vectors.keeps(user) or self._scenes.keeps(user) or has_units

    def remembers(self, user: Reference) -> bool:
        """Whether anything is known of a user beside the Memory, but for vectors."""
        return user in self._users

    async def run(self) -> None:
        """Make the vectors that are wanted, for ever."""
        self._errands.on_done = self.on_ready
        await self._errands.run()

    async def decide(self, user: Reference, memory: Memory) -> Memory:
        """Decide what can be decided now, and return the Memory with it.

        A stale plan is simply made again. A Memory that has to be folded again is returned as it is.
        """
        if memory.needs_rebuild or not self._has_something(user, memory):
            return memory
        async with self.planner(user):
            while True:
                memory = await self._memories.advance(user)
                try:
                    for plan in (self._plan_facts, self._plan_supersessions, self._plan_units):
                        if memory.needs_rebuild:
                            return memory
                        events = await plan(user, memory)
                        if events:
                            fault_point("decide.before_append")
                            await self._log.append(Batch(events=tuple(events)))
                            fault_point("decide.after_append")
                            memory = await self._memories.advance(user)
                        self._note_compared(self._users[user])
                except StaleDecision:
                    continue
                return memory

    def _has_something(self, user: Reference, memory: Memory) -> bool:
        placement, state = memory.placement, self._users.get(user)
        if memory.canon.waiting or placement.scenes.unrouted or placement.validity.touched:
            return True
        if self._parameters.judged and self.judging.has_unseen(user):
            return True
        if self.partitioning is not None and self.partitioning.has_plan(user):
            return True
        seen = 0 if state is None else state.verdicts_seen
        return len(memory.canon.verdicts) != seen or (state is not None and bool(state.uncompared))

    async def _plan_units(self, _: Reference, memory: Memory) -> list[NewEvent]:
        """The units of facts, as far as they were planned beside."""
        return [] if self.partitioning is None else await self.partitioning.decide(memory)

    def _forget_units(self, user: Reference) -> None:
        if self.partitioning is not None:
            self.partitioning.forget(user)

    async def _plan_supersessions(self, user: Reference, memory: Memory) -> list[NewEvent]:
        if self._parameters.judged and self.judging.look_at_states(memory):
            self.on_ready(user)
        changed, changes = copy_chains(memory), memory.placement.validity.changes
        if changed.states <= self._parameters.states_on_loop_max:
            found = plan_differences(changed)
        else:
            found = await anyio.to_thread.run_sync(plan_differences, changed)
            if memory.needs_rebuild:
                return []
            if memory.placement.validity.changes != changes:
                raise StaleDecision
        return make_supersessions(memory, plan_supersessions(memory, memory.parameters.generation, found))

    async def _plan_facts(self, user: Reference, memory: Memory) -> list[NewEvent]:
        """Admissions, the routes of what they found and of what is known and in no scene yet, and merges."""
        state, canon = self._users[user], memory.canon
        thresholds = self._find_thresholds(memory)
        # Also what no admission founded: imported memories, and what people wrote.
        state.uncompared |= dict.fromkeys(_find_told(memory, self._parameters.routed_max))
        state.verdicts_seen = len(canon.verdicts)
        compared = await self._compare(state, memory, thresholds)
        if memory.needs_rebuild:
            return []
        links = None if compared is None else compared.links
        waiting: Collection[Pointer] = canon.waiting if compared is None else compared.waiting
        if len(waiting) > ADMITTED_MAX:
            waiting = sorted(waiting)[:ADMITTED_MAX]
            self.on_ready(user)  # for the others
        admissions = plan_admissions(canon, memory.parameters.generation, links, frozenset(waiting))
        if self._parameters.judged:
            self.judging.note(user, () if links is None else tuple(sorted(links.unjudged)))
        founded, joined = find_founded(memory, admissions)
        if compared is None and self._errands.is_away(user):
            state.uncompared |= dict.fromkeys(founded)
        facts = founded | _find_unrouted(memory, joined, self._parameters.routed_max)
        events, routes = make_admissions(memory, admissions), list[NewEvent]()
        if facts and self._embedder.dimensions:
            self._vectors.want(user, [each.first.pointer for each in facts.values()])
            routes = await self._plan_scenes(memory, facts, thresholds)
        by_thresholds = routes or (events if compared is not None and compared.by_vectors else [])
        if thresholds is not None and by_thresholds:
            events = self._promote(memory, thresholds, max(each.happened_at for each in by_thresholds)) + events
        return events + routes

    async def _plan_scenes(
        self, memory: Memory, facts: Mapping[FactId, Founded], thresholds: Thresholds | None
    ) -> list[NewEvent]:
        """Routes of these facts as far as their vectors are here, and merges of the scenes that grew by them."""
        sums = self._scenes.sums(memory)
        if sums is None or thresholds is None:
            return []
        by_pointer = {each.first.pointer: fact for fact, each in facts.items()}
        rows = self._vectors.rows(memory.user, by_pointer)
        arrivals = [
            Arrival(by_pointer[pointer], rows[pointer], facts[by_pointer[pointer]].first.time_start)
            for pointer in sorted(rows)[: self._parameters.routed_max]
        ]
        # Without a vector it is in no scene; else it would wait for ever.
        refused = [Route(by_pointer[each], ()) for each in sorted(self._vectors.are_refused(by_pointer))]
        if not (arrivals or refused):
            return []
        cap, taken = self._parameters.scene_facts_max, frozenset(memory.placement.scenes.absorbed)
        if not self._parameters.second_scene:
            thresholds = thresholds._replace(second=_NEVER)
        plan = partial(plan_scenes, arrivals, sums, thresholds, facts_max=cap, taken=taken)
        routes, merges = await anyio.to_thread.run_sync(plan)
        said_at = max(facts[route.fact].first.said_at for route in (*routes, *refused))
        return make_routes(memory, (*routes, *refused), facts) + make_merges(memory, merges, said_at)

    async def _compare(self, state: _User, memory: Memory, thresholds: Thresholds | None) -> Compared | None:
        """Which readings are one; None when that cannot be had."""
        fresh, state.compared = tuple(state.uncompared), ()
        near = None if thresholds is None else thresholds.near / COSINE_PARTS
        candidates, wanted = await self._comparing.find(memory.canon, fresh)
        if len(wanted) > COMPARED_MAX and fresh:
            state.uncompared.clear()
            fresh = ()
            candidates, wanted = await self._comparing.find(memory.canon)
        if len(wanted) > COMPARED_MAX:
            return None
        compared = await self._comparing.compare(memory, candidates, wanted, near)
        if compared is not None and compared.is_complete:
            state.compared = fresh
        return compared

    def _note_compared(self, state: _User) -> None:
        """What was compared is; of what could not be, only so much is remembered."""
        for fact in state.compared:
            state.uncompared.pop(fact, None)
        state.compared = ()
        while len(state.uncompared) > UNCOMPARED_MAX:
            del state.uncompared[next(iter(state.uncompared))]

    def _find_thresholds(self, memory: Memory) -> Thresholds | None:
        """The thresholds that count for a user, recorded or measured; None as long as they are being measured."""
        promoted, name = memory.promoted, self._name()
        if promoted is not None and promoted.embedder == name:
            return promoted.thresholds
        found = self._measured.get(name) or known_thresholds(name)
        if found is None:
            learns_width = promoted is not None and not self._embedder.dimensions
            errand = self._learn_width if learns_width else self._measure
            self._errands.begin(memory.user, "thresholds", errand)
        return found

    async def _learn_width(self) -> None:
        """Ask an endpoint for a vector: how wide it is tells which thresholds were recorded for it."""
        await self._embedder.embed(["."])

    async def _measure(self) -> None:
        async with self._measuring:
            if self._name() not in self._measured:
                measured = await measure(self._embedder, judged=self._parameters.judged)
                self._measured[self._name()] = measured  # by now the name is known

    def _name(self) -> str:
        return name_thresholds(self._embedder, judged=self._parameters.judged)

    def _promote(self, memory: Memory, thresholds: Thresholds, said_at: Instant) -> list[NewEvent]:
        if memory.promoted is not None and memory.promoted.embedder == self._name():
            return []
        promoted = GenerationPromoted(memory.parameters.generation, self._name(), thresholds)
        return [make_promotion(memory, promoted, said_at)]


def _find_told(memory: Memory, limit: int) -> list[FactId]:
    """Those of the first facts in no scene that no admission founded: imported, or written by a person."""
    facts = [memory.canon.facts[fact] for fact in islice(memory.placement.scenes.unrouted, limit)]
    return [fact.id for fact in facts if fact.stated or fact.first.pointer.seq in fact.first.turns]


def _find_unrouted(memory: Memory, joined: set[FactId], limit: int) -> dict[FactId, Founded]:
    """Facts that are known and in no scene yet, without those that are to be joined to others; the first ones."""
    unrouted = (fact for fact in memory.placement.scenes.unrouted if fact not in joined)
    facts = (memory.canon.facts[fact] for fact in islice(unrouted, limit))
    return {fact.id: Founded(fact.first, fact.sessions) for fact in facts}
