"""Scenes as people see them: what they are called, how they are listed and found, and what a model is told."""

from __future__ import annotations

import pytest

from daemon.asking.differences import Differences, DiffParams
from daemon.asking.history import History
from daemon.asking.structures import PageParams, Structures
from daemon.asking.tree_listing import TreeShown
from daemon.asking.tree_nodes import TreeNodesReader, TreeParams, TreeUnknown
from daemon.asking.words import measure_event
from daemon.building.summaries import plan_summaries
from daemon.building.work import Origin
from daemon.memories import Memories
from daemon.scene_names import look_at_scene
from events.codec import Event
from events.decisions import (
    FactsRouted,
    FactsSuperseded,
    GenerationPromoted,
    Route,
    SceneId,
    ScenesMerged,
    Supersession,
    Thresholds,
)
from events.envelope import NewEvent, Reference
from events.errors import InvalidInput
from events.log import EventLog
from events.memory import ExtractedFact, FactId, FactsExtracted, Mention
from projections.facts.admission import plan_admissions
from projections.facts.scenes import scene_scope
from projections.facts.scopes import ScopeKind
from projections.memory import Memory, MemoryParameters
from projections.memtree.shape import TreeShape
from tests.builders import KEYS, MONDAY, a_batch, a_turn, an_id
from tests.bus_in_use import Reported

ALICE = KEYS.user("alice")
DAY_MS = 86_400_000
PARAMETERS = MemoryParameters(chunk_turns=2, shape=TreeShape(3), concatenation_max=0)
NORTH, SOUTH = bytes.fromhex("aaaa1111" + "0" * 24), bytes.fromhex("aaaa2222" + "0" * 24)


class Told:
    """A log in which facts are written as they are wanted, and what reads it; without a worker."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.memories = Memories(log, PARAMETERS, Reported())
        self.structures = Structures(log, self.memories)
        self.reader = TreeNodesReader(log, self.memories)

    async def memory(self) -> Memory:
        return await self.memories.catch_up(ALICE)

    async def say(self) -> None:
        """Two turns that nobody names anything in."""
        at = (await self.memory()).user_seq
        for n in range(2):
            await self.log.append(a_batch(a_turn("so it goes", turn_id=f"t{at + n}", name="Alice")))

    async def learn(self, *facts: ExtractedFact) -> list[FactId]:
        """These facts are known; their ids."""
        await self.say()
        memory = await self.memory()
        chunk = next(iter(memory.waiting_chunks.values()))
        read = FactsExtracted(1, chunk.key, chunk.turns, (), chunk.places, None, "offline", facts)
        await self.decide(read, chunk.session)
        known = set(memory.canon.facts)
        for event, _ in plan_admissions((await self.memory()).canon, 1):
            await self.decide(event)
        return [fact for fact in (await self.memory()).canon.facts if fact not in known]

    async def decide(self, event: Event, session: Reference | None = None) -> None:
        memory = await self.memory()
        new = NewEvent(
            user_id="alice",
            session_id=None if session is None else "s1",
            event=event,
            key=f"{event.wire_name}/{memory.user_seq}",
            happened_at=MONDAY,
            lineage=(KEYS.session("alice", "s1"),),
            basis=memory.user_seq,
        )
        await self.log.append(a_batch(new))
        await self.memory()

    async def put(self, scene: SceneId, facts: list[FactId]) -> None:
        await self.decide(FactsRouted(1, tuple(Route(fact, (scene,)) for fact in facts)))

    async def scenes(self) -> list[TreeShown]:
        listed = (await self.structures.trees(PageParams(user_id="alice", limit=1000))).trees
        return [tree for tree in listed if tree.kind == "scene"]


@pytest.fixture
async def told(log: EventLog) -> Told:
    return Told(log)


def a_fact(text: str, *labels: str, topics: tuple[str, ...] = (), day: int = 0) -> ExtractedFact:
    at = MONDAY + day * DAY_MS
    return ExtractedFact(text, (0,), at, at, mentions=tuple(map(Mention, labels)), topics=topics)


async def test_a_scene_is_called_by_what_its_facts_name_most(told: Told) -> None:
    facts = await told.learn(
        a_fact("Bob rode.", "Bob", "Alice", topics=("cycling", "weather")),
        a_fact("Bob fell.", "Bob", "Zoe", "Alice", topics=("cycling",)),
        a_fact("Zoe came.", "Zoe", "Alice", topics=("cycling",)),
        a_fact("Bob slept.", "Bob", "Oslo", "Alice", topics=("sleep",)),
    )
    await told.put(NORTH, facts)
    (scene,) = await told.scenes()

    assert (scene.scope, scene.kind, scene.leaves) == (NORTH.hex(), "scene", 4)
    assert scene.name == "bob, zoe, cycling", "neither the owner nor what one of four names"


async def test_a_scene_without_names_is_called_by_its_topic_or_by_how_the_middle_one_reads(told: Told) -> None:
    some = await told.learn(a_fact("It rained.", topics=("Weather",)), a_fact("It snowed.", topics=("weather",)))
    others = await told.learn(*(a_fact(f"So it was {n}.", day=n) for n in (3, 1, 2)))
    await told.put(NORTH, some)
    await told.put(SOUTH, others)

    assert {scene.scope: scene.name for scene in await told.scenes()} == {
        NORTH.hex(): "weather",
        SOUTH.hex(): "So it was 2.",
    }


async def test_of_a_large_scene_a_dozen_facts_are_read_and_a_name_stays_short(told: Told) -> None:
    facts = await told.learn(*(a_fact(f"so {n} " + "long " * 40, day=n) for n in range(60)))
    await told.put(NORTH, facts)
    naming = look_at_scene(await told.memory(), scene_scope(NORTH))
    (scene,) = await told.scenes()

    assert len(naming.readings) == 12
    assert scene.name.startswith("so 3")
    assert len(scene.name) <= 60


async def test_what_only_looks_like_a_name_names_no_scene_until_it_is_known_as_one(told: Told) -> None:
    fact = ExtractedFact("We ran.", (0,), MONDAY, MONDAY, mentions=(Mention("We", uncertain=True),))
    await told.put(NORTH, await told.learn(fact))

    assert [scene.name for scene in await told.scenes()] == ["We ran."]


async def test_large_scenes_come_before_small_ones_page_by_page(told: Told) -> None:
    for scene, count in ((NORTH, 1), (SOUTH, 3), (an_id("third"), 2)):
        await told.put(scene, await told.learn(*(a_fact(f"{scene.hex()} {n}") for n in range(count))))
    listed = (await told.structures.trees(PageParams(user_id="alice", limit=1000))).trees
    paged: list[TreeShown] = []
    after: str | None = None
    while True:
        page = await told.structures.trees(PageParams(user_id="alice", limit=2, after=after))
        paged += page.trees
        after = page.next
        if after is None:
            break

    assert paged == listed
    assert [tree.leaves for tree in listed if tree.kind == "scene"] == [3, 2, 1]
    assert {tree.name for tree in listed if tree.kind == "session"} == {"s1"}
    with pytest.raises(InvalidInput):
        await told.structures.trees(PageParams(user_id="alice", after=an_id("unknown").hex()))


async def test_the_tree_of_a_scene_is_found_by_its_id_by_the_first_digits_and_as_listed(told: Told) -> None:
    await told.put(NORTH, await told.learn(a_fact("Bob rode.", "Bob"), a_fact("Bob fell.", "Bob")))
    (listed,) = await told.scenes()

    for params in (
        TreeParams(user_id="alice", scope=listed.scope, kind=listed.kind),
        TreeParams(user_id="alice", scope=listed.scope),
        TreeParams(user_id="alice", scope="AAAA1"),
        TreeParams(user_id="alice", tree=listed.id),
    ):
        found = await told.reader.tree(params)

        assert (found.kind, found.scope, found.name, found.leaves) == ("scene", NORTH.hex(), "bob", 2)


async def test_digits_that_several_scenes_begin_with_are_refused_and_too_few_are_no_scene(told: Told) -> None:
    for scene, text in ((NORTH, "one"), (SOUTH, "two")):
        await told.put(scene, await told.learn(a_fact(text)))

    with pytest.raises(InvalidInput, match="2 scenes"):
        await told.reader.tree(TreeParams(user_id="alice", scope="aaaa"))
    for scope, kind in (("aaa", None), ("bbbb", None), ("aaaa1111", "entity")):
        with pytest.raises(TreeUnknown):
            await told.reader.tree(TreeParams(user_id="alice", scope=scope, kind=kind))


async def test_a_model_is_told_what_a_scene_names_and_never_an_id(told: Told) -> None:
    facts = await told.learn(*(a_fact(f"Bob {n}.", "Bob", day=n) for n in range(4)))
    others = await told.learn(*(a_fact(f"so {n}.", day=n) for n in range(4)))
    await told.put(NORTH, facts)
    await told.put(SOUTH, others)
    memory = await told.memory()
    origin = Origin(ALICE, "alice", memory.user_seq, 1)
    planned = list(plan_summaries(memory, origin, lambda *_: True))
    names = {work.node.scope: work.scope_name for work in planned if work.node.scope.kind is ScopeKind.SCENE}

    assert names == {scene_scope(NORTH): "bob", scene_scope(SOUTH): "a subject"}


async def test_a_model_is_told_no_name_that_the_node_itself_does_not_speak_of(told: Told) -> None:
    """Whoever named it may be forgotten by then, and the answer would keep the name."""
    facts = await told.learn(*(a_fact(f"Bob {n}.", "Bob" if n < 12 else "Zoe", day=n) for n in range(24)))
    await told.put(NORTH, facts)
    memory = await told.memory()
    planned = list(plan_summaries(memory, Origin(ALICE, "alice", memory.user_seq, 1), lambda *_: True))
    names = {
        each.scope_name: {child.time_start for child in each.node.children}
        for each in planned
        if each.node.scope.kind is ScopeKind.SCENE
    }

    assert max(names["bob"]) < MONDAY + 12 * DAY_MS <= min(names["zoe"])


async def test_a_difference_tells_which_facts_came_to_a_scene_and_which_states_ended(told: Told) -> None:
    boston, davis = await told.learn(a_fact("Lives in Boston."), a_fact("Lives in Davis.", day=9))
    before = (await told.memory()).user_seq
    await told.put(NORTH, [boston, davis])
    await told.decide(ScenesMerged(1, SOUTH, (NORTH,)))
    await told.decide(FactsSuperseded(1, (Supersession(boston, davis, MONDAY + 9 * DAY_MS),)))
    between = (await told.memory()).user_seq
    await told.decide(FactsSuperseded(1, (Supersession(boston, None, None),)))
    differences = Differences(told.log, History(told.log, PARAMETERS))
    found = await differences.diff(DiffParams(user_id="alice", a=before, b=between))
    again = await differences.diff(DiffParams(user_id="alice", a=between))

    (scene,) = found.scopes
    assert (scene.kind, scene.scope, set(scene.joined)) == ("scene", SOUTH.hex(), {boston.hex(), davis.hex()})
    (ended,) = found.ended
    assert (ended.id, ended.text, ended.until, ended.by) == (
        boston.hex(),
        "Lives in Boston.",
        "2024-07-10T09:00:00Z",
        davis.hex(),
    )
    assert (found.standing, found.came, again.ended, again.scopes) == ([], [], [], [])
    assert [fact.id for fact in again.standing] == [boston.hex()]


def test_the_numbers_of_an_event_name_each_threshold() -> None:
    promoted = GenerationPromoted(1, "static", Thresholds(5, 4, 3, 2, 1))

    assert measure_event(promoted) == {
        "generation": 1,
        "near": 5,
        "assign": 4,
        "second": 3,
        "spawn": 2,
        "merge": 1,
    }
