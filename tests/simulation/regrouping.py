"""Units and groups in a random history: what other planners would have recorded, and what must hold of it."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

from daemon.building.decided import make_partitions
from daemon.building.fusing import decide, plan_merge
from daemon.building.live_nodes import copy_standing, live_nodes
from daemon.building.undoing import GroupUnknown, undo_groups
from daemon.texts import read_texts
from events.appending import Batch
from events.envelope import NewEvent, RecordedEvent, Reference
from events.errors import StaleDecision
from events.eventtree import NodesMerged, Policy, PolicyChanged, UnitMembers
from events.hindsight import read_hindsight
from events.reading import read_user
from events.time import Instant
from projections.digests import digest_memory
from projections.memory import Memory
from projections.recall.nodes import NodeKind
from projections.texts import events_behind
from tests.builders import an_id
from tests.projections.thawing import thawed
from tests.simulation.world import Daemon

UNITS = 4


async def move_facts(daemon: Daemon, chance: random.Random, user: Reference) -> None:
    """Some facts are in another unit from now on, or in the first one they are in: one event a session."""
    memory = await daemon.memories.catch_up(user)
    facts = list(memory.canon.facts)
    some = chance.sample(facts, min(len(facts), chance.randint(1, 4)))
    unit = an_id(f"unit {chance.randrange(UNITS)}")
    with suppress(StaleDecision):
        await daemon.log.append(Batch(tuple(make_partitions(memory, [UnitMembers(unit, tuple(some))]))))


async def merge_nodes(daemon: Daemon, chance: random.Random, user: Reference) -> None:
    """Any two nodes or three are one from now on, whatever a plan would say; the text has all of theirs."""
    memory = await daemon.memories.catch_up(user)
    nodes = [node for node in live_nodes(copy_standing(memory)) if node.id in memory.nodes.row_of]
    some = chance.sample(nodes, min(len(nodes), chance.randint(2, 3)))
    work = plan_merge(memory, tuple(some), an_id("unit 0")) if len(some) > 1 else None
    if work is None or any(memory.canon.facts[fact].pinned for fact in work.facts):
        return
    refs = [node.ref for node in some]
    texts = [text for text in await read_texts(daemon.log, refs) if text is not None]
    sources = tuple(sorted({*events_behind(refs), *work.ends}))
    merged = NodesMerged(1, work.unit, work.facts, sources, "the history", " ".join(texts), loss=len(texts))
    with suppress(StaleDecision):
        await daemon.log.append_event(decide(memory, merged))


async def undo_some(daemon: Daemon, chance: random.Random, user: Reference, now: Instant) -> None:
    """Somebody takes one group apart, or all of them."""
    groups = sorted((await daemon.memories.catch_up(user)).units.groups)
    chosen = [chance.choice(groups).hex()] if groups and chance.random() < 0.7 else None
    with suppress(GroupUnknown):
        await undo_groups(daemon.log, daemon.memories, daemon.worker.planner(user), user, chosen, now)


async def change_policy(daemon: Daemon, chance: random.Random, user_id: str, now: Instant) -> None:
    """Somebody wants more of it compressed, or less, or nothing in the background."""
    policy = Policy(ratio=chance.choice((None, 0, 300, 700)), online=chance.choice((None, None, False)))
    key = f"policy/{user_id}/{now}/{chance.random()}"
    await daemon.log.append_event(NewEvent(user_id, None, PolicyChanged(policy), key, now))


def check_units(memory: Memory) -> None:
    """Each fact is searched by exactly one node and is in one unit at most; nothing unknown is named anywhere."""
    units, facts = memory.units, memory.canon.facts
    members = [fact for group in units.groups.values() for fact in group.members]
    live = [memory.nodes.node(int(row)) for row in memory.nodes.live_rows()]
    searched = [node.id for node in live if node.kind is NodeKind.FACT]
    found = [node.id for node in live if node.kind is NodeKind.GROUP]

    assert sorted(searched + members) == sorted(facts)
    assert sorted(found) == sorted(units.groups)
    assert units.group_of == {fact: group.id for group in units.groups.values() for fact in group.members}
    assert sorted([*units.unit_of, *units.unplaced]) == sorted(facts)
    assert {fact: unit for unit, held in units.facts_of.items() for fact in held} == units.unit_of
    assert units.apart.keys() <= facts.keys() - units.group_of.keys()
    assert not any(facts[fact].pinned for fact in members)


async def check_nothing_waited_for(daemon: Daemon, user: Reference) -> None:
    """No group fell for a member that came later in the log: what a group names stands before it, or no more."""
    events = await daemon.log.read(partial(read_user, user=user, after=0, limit=1_000_000))
    hindsight = await daemon.log.read(partial(read_hindsight, user=user))
    memory = Memory(user, (await daemon.memories.catch_up(user)).parameters, hindsight)
    missing: set[bytes] = set()
    for recorded in events:
        stands = not memory.is_forgotten(recorded) and recorded.seq not in hindsight.voids
        if stands and isinstance(recorded.event, NodesMerged):
            missing |= set(recorded.event.members) - memory.canon.facts.keys()
        memory.apply(recorded)

    assert not missing & memory.canon.facts.keys()


async def check_snapshot(daemon: Daemon, user: Reference) -> None:
    """A snapshot taken now is the same Memory, in all that is searched, too."""
    memory = await daemon.memories.catch_up(user)
    log, read_to = list[RecordedEvent](), 0
    while memory.user_seq != read_to:  # more may come, and be folded, while the log is read
        read_to = memory.user_seq
        log = await daemon.log.read(partial(read_user, user=user, after=0, limit=read_to))
    if not read_to or memory.needs_rebuild:
        return
    again = thawed(memory, log)

    assert digest_memory(again) == digest_memory(memory)
    assert list(again.units.unplaced) == list(memory.units.unplaced)
    assert [*map(list, again.units.facts_of.values())] == [*map(list, memory.units.facts_of.values())]
    check_units(again)
