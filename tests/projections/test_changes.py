"""What a Watch tells of each event: put together, it is the state; and it is what a full comparison finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from events.codec import Event
from events.decisions import (
    FactsRouted,
    FactsSuperseded,
    GenerationPromoted,
    JudgedPair,
    PairsJudged,
    PairVerdict,
    Route,
    ScenesMerged,
    Supersession,
    Thresholds,
)
from events.envelope import NewEvent, RecordedEvent
from events.eventtree import CompactionUndone, NodesMerged, UnitMembers, UnitsPartitioned
from events.memory import (
    ExtractedFact,
    FactId,
    FactsExtracted,
    IntervalSummarised,
    Mention,
    ParkReason,
    Pointer,
    Task,
    WorkParked,
    WorkResumed,
)
from events.session import MemoryImported, TurnRetracted
from projections.changes import Changes, ScopeMove
from projections.facts.admission import plan_admissions
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from projections.memory import Memory, MemoryParameters
from projections.memtree.shape import TreeShape
from projections.watching import Watch
from tests.builders import (
    KEYS,
    MONDAY,
    a_closed_chunk,
    a_closing,
    a_forgetting,
    a_turn,
    an_admission,
    an_extraction,
    an_id,
    as_recorded,
    lineage_of,
)

ALICE = KEYS.user("alice")
S1 = KEYS.session("alice", "s1")
HOUR_MS = 3_600_000
SEEDS = range(8)
STEPS = 180
NAMES = ("Zoe", "Rex", "Alice", "Miami")
SCENES = [an_id(f"scene {n}") for n in range(5)]
PROMOTED = GenerationPromoted(1, "static", Thresholds(93_000, 65_000, 55_000, 50_000, 88_000))


class Told:
    """A Memory under a Watch, and what was told of each event."""

    def __init__(self) -> None:
        self.memory = Memory(ALICE, MemoryParameters(shape=TreeShape(3), concatenation_max=0))
        self.watch = Watch(self.memory)
        self.events: list[RecordedEvent] = []
        self.parked: dict[int, WorkParked] = {}

    def apply(self, new: NewEvent) -> Changes:
        recorded = as_recorded(new, len(self.events) + 1)
        self.events.append(recorded)
        self.memory.apply(recorded)
        return self.watch.look(recorded)

    def say(self, content: str = "I moved.", session: str = "s1", *, hours: int = 0) -> Changes:
        turn = a_turn(
            content,
            session_id=session,
            turn_id=f"t{len(self.events)}",
            happened_at=MONDAY + hours * HOUR_MS + len(self.events),
        )
        return self.apply(turn)

    def take_over(self, content: str, session: str = "s1") -> Changes:
        """Import a memory."""
        sent_as = f"m{len(self.events)}"
        turn = a_turn(content, session_id=session, turn_id=sent_as)
        return self.apply(replace(turn, event=MemoryImported(content, sent_as)))

    def extract(self, *texts: str, session: str = "s1", labels: tuple[str, ...] = ()) -> Changes:
        """Read facts from the first waiting chunk of a session."""
        chunk = next(
            each for each in self.memory.waiting_chunks.values() if self.session_of(each.session) == session
        )
        new = an_extraction(chunk.turns, texts, session_id=session)
        assert isinstance(new.event, FactsExtracted)
        mentions = tuple(map(Mention, labels))
        facts = tuple(
            ExtractedFact(text, (0,), chunk.time_start, chunk.time_start, mentions=mentions) for text in texts
        )
        return self.apply(replace(new, event=replace(new.event, chunk=chunk.key, facts=facts)))

    def session_of(self, session: bytes) -> str:
        return self.memory.session_ids[session]

    def admit(self) -> list[Changes]:
        plan = plan_admissions(self.memory.canon, 1)
        return [
            self.apply(
                replace(
                    an_admission(Pointer(len(self.events), number)), event=event, lineage=tuple(sorted(lineage))
                )
            )
            for number, (event, lineage) in enumerate(plan)
        ]

    def decide(self, event: Event) -> Changes:
        key = f"decision/{len(self.events)}"
        return self.apply(NewEvent("alice", None, event, key, MONDAY, lineage_of(["s1"]), basis=0))

    def park(self, event: WorkParked) -> Changes:
        changes = self.decide(event)
        self.parked[len(self.events)] = event
        return changes

    def resume(self, seq: int) -> Changes:
        event = self.parked.pop(seq)
        return self.decide(WorkResumed(seq, event.task, event.request, event.turns, event.covers))

    def summarise(self) -> Changes:
        work = next(self.memory.forest.plan_summaries())
        return self.decide(a_summary_of(work.digest))


def a_summary_of(digest: bytes, text: str = "A summary.") -> IntervalSummarised:
    return IntervalSummarised(generation=1, digest=digest, sources=(), model="offline", text=text)


def a_group_of(members: tuple[FactId, ...], text: str = "All of it.") -> NodesMerged:
    return NodesMerged(1, an_id("unit"), members, (), "offline", text)


@dataclass
class State:
    """What the changes add up to."""

    facts: set[FactId] = field(default_factory=set[FactId])
    waiting: int = 0
    unrouted: int = 0
    superseded: set[FactId] = field(default_factory=set[FactId])
    judged: int = 0
    members: dict[Scope, set[FactId]] = field(default_factory=dict[Scope, set[FactId]])
    leaves: dict[Scope, set[bytes]] = field(default_factory=dict[Scope, set[bytes]])
    nodes: dict[Scope, set[bytes]] = field(default_factory=dict[Scope, set[bytes]])
    summaries: set[bytes] = field(default_factory=set[bytes])
    units: dict[FactId, bytes] = field(default_factory=dict[FactId, bytes])
    groups: set[bytes] = field(default_factory=set[bytes])
    chunks: set[bytes] = field(default_factory=set[bytes])
    waiting_chunks: set[bytes] = field(default_factory=set[bytes])
    hidden: set[bytes] = field(default_factory=set[bytes])

    def add(self, told: Changes) -> None:
        assert self.facts.isdisjoint(told.facts_founded)
        assert self.facts.issuperset((*told.facts_gone, *told.facts_joined))
        self.facts = (self.facts | set(told.facts_founded)) - set(told.facts_gone)
        self.waiting += told.occurrences_waiting
        self.unrouted += told.facts_unrouted
        assert self.superseded >= set(told.facts_standing)
        self.superseded = ((self.superseded - set(told.facts_standing)) | set(told.facts_superseded)) & self.facts
        self.judged += told.pairs_judged
        for move in told.scopes:
            _change(self.members, move.scope, move.joined, move.left)
        for tree in told.trees:
            _change(self.leaves, tree.scope, tree.leaves_joined, tree.leaves_left)
            _change(self.nodes, tree.scope, tree.nodes_new, tree.nodes_gone)
        self.summaries |= set(told.summaries)
        self.units.update(told.units)
        self.groups = (self.groups - set(told.groups_undone)) | set(told.groups_made)
        self.chunks = (self.chunks | set(told.chunks_closed)) - set(told.chunks_gone)
        self.waiting_chunks = (self.waiting_chunks | set(told.chunks_waiting)) - set(told.chunks_served)
        self.hidden |= set(told.sessions_hidden)


def _change(held: dict[Scope, set[bytes]], scope: Scope, came: tuple[bytes, ...], went: tuple[bytes, ...]) -> None:
    entries = held.setdefault(scope, set())
    assert entries.isdisjoint(came)
    assert entries.issuperset(went)
    entries |= set(came)
    entries -= set(went)
    if not entries:
        del held[scope]


def state_of(memory: Memory) -> State:
    """The same of the Memory as it is."""
    trees = memory.forest.trees
    nodes = {scope: {node.digest for node in tree.nodes()} for scope, tree in trees.items()}
    return State(
        facts=set(memory.canon.facts),
        waiting=len(memory.canon.waiting),
        unrouted=len(memory.placement.scenes.unrouted),
        superseded=set(memory.placement.validity.superseded),
        judged=len(memory.canon.verdicts),
        members={scope: set(facts) for scope, facts in memory.members.items()},
        leaves={scope: {leaf.key for leaf in tree.leaves()} for scope, tree in trees.items()},
        nodes={scope: digests for scope, digests in nodes.items() if digests},
        summaries=set(memory.forest.summaries),
        units=dict(memory.units.unit_of),
        groups=set(memory.units.groups),
        chunks=set(memory.chunks),
        waiting_chunks=set(memory.waiting_chunks),
        hidden=set(memory.hidden),
    )


def joined_between(before: dict[FactId, int], memory: Memory) -> set[FactId]:
    """The facts that were there and have other occurrences now."""
    return {fact for fact, count in before.items() if len(memory.canon.facts[fact].occurrences) != count}


def random_step(told: Told, chance: random.Random) -> Iterator[Changes]:
    """One thing that happens, or nothing when it cannot happen now."""
    memory = told.memory
    session = f"s{chance.randint(1, 4)}"
    facts = sorted(memory.canon.facts)
    match chance.choices(range(16), [30, 4, 3, 16, 14, 14, 3, 6, 2, 6, 2, 9, 2, 4, 1, 1])[0]:
        case 0:
            content = f"{chance.choice(NAMES)} and {chance.choice(NAMES)} said {chance.randint(1, 5)}."
            yield told.say(content, session, hours=chance.randrange(100))
        case 1:
            yield told.apply(a_closing(session, key=str(len(told.events))))
        case 2 if memory.open_chunk(KEYS.session("alice", session)):
            last = memory.open_chunk(KEYS.session("alice", session))[-1]
            yield told.apply(a_closed_chunk(last, session))
        case 3 if memory.waiting_chunks:
            chunk = chance.choice(list(memory.waiting_chunks.values()))
            labels = chance.sample(NAMES, chance.randint(0, 2))
            texts = [f"Fact {chance.randint(1, 30)}." for _ in range(chance.randint(0, 3))]
            yield told.extract(*dict.fromkeys(texts), session=told.session_of(chunk.session), labels=tuple(labels))
        case 4 if memory.canon.waiting:
            yield from told.admit()
        case 5 if list(memory.forest.plan_summaries()):
            yield told.summarise()
        case 6 if facts:
            unit = an_id(f"unit {chance.randint(1, 3)}")
            members = tuple(chance.sample(facts, chance.randint(1, len(facts))))
            yield told.decide(UnitsPartitioned(1, (UnitMembers(unit, members),)))
        case 7 if len(facts) > 3:
            yield told.decide(a_group_of(closed_under_groups(memory, chance.sample(facts, 3))))
        case 8 if memory.waiting_chunks:
            chunk = next(iter(memory.waiting_chunks.values()))
            yield told.park(
                WorkParked(Task.EXTRACT, chunk.key, ParkReason.MODEL_FAILED, chunk.turns, chunk.places)
            )
        case 10 if told.parked:
            yield told.resume(chance.choice(sorted(told.parked)))
        case 9:
            yield told.take_over(f"Fact {chance.randint(1, 30)}.", session)
        case 11 if facts:
            some = chance.sample(facts, min(len(facts), chance.randint(1, 5)))
            routes = (Route(fact, tuple(chance.sample(SCENES, chance.randrange(3)))) for fact in some)
            yield told.decide(FactsRouted(1, tuple(routes)))
        case 12:
            kept, *absorbed = chance.sample(SCENES, 2)
            yield told.decide(ScenesMerged(1, kept, tuple(absorbed)))
        case 13 if len(facts) > 1:
            fact, by = chance.sample(facts, 2)
            ended = Supersession(fact, by, MONDAY) if chance.random() < 0.7 else Supersession(fact, None, None)
            yield told.decide(FactsSuperseded(1, (ended,)))
        case 14 if len(facts) > 1:
            one, other = (memory.canon.facts[fact].first.pointer for fact in chance.sample(facts, 2))
            pair = JudgedPair(max(one, other), min(one, other), PairVerdict.DIFFERENT)
            yield told.decide(PairsJudged(1, (pair,), (), "offline"))
        case 15 if facts:
            yield told.decide(CompactionUndone(1, tuple(chance.sample(facts, 1))))
        case _:
            pass


def closed_under_groups(memory: Memory, facts: list[FactId]) -> tuple[FactId, ...]:
    """These facts with all that share a group with them, as the compactor takes them."""
    groups = {memory.units.group_of[fact] for fact in facts if fact in memory.units.group_of}
    others = {fact for group in groups for fact in memory.units.groups[group].members}
    return tuple(sorted({*facts, *others}))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_changes_of_all_events_add_up_to_the_state(seed: int) -> None:
    print(f"seed {seed}")
    chance, told, state, groups = random.Random(seed), Told(), State(), 0
    for _ in range(STEPS):
        before = {fact.id: len(fact.occurrences) for fact in told.memory.canon.facts.values()}
        joined: set[FactId] = set()
        for changes in random_step(told, chance):
            state.add(changes)
            groups += len(changes.groups_made)
            joined |= set(changes.facts_joined)

        assert state == state_of(told.memory)
        assert joined & before.keys() == joined_between(before, told.memory)
        assert not told.watch.look(), "nothing was passed over"
    assert len(told.memory.canon.facts) > 10
    assert groups > 1
    assert len(told.memory.members) > 1


def test_a_turn_opens_a_chunk_and_the_next_one_closes_it() -> None:
    told = Told()
    first, second = told.say(), told.say()
    (key,) = told.memory.chunks

    assert (first.chunks_opened, first.chunks_closed, first.trees) == ((S1,), (), ())
    assert (second.chunks_opened, second.chunks_closed, second.chunks_waiting) == ((), (key,), (key,))
    (tree,) = second.trees
    assert (tree.scope, len(tree.leaves_joined), tree.nodes_new) == (Scope(ScopeKind.SESSION, S1.hex()), 1, ())
    assert second.scopes == (), "the leaves of a session's tree are chunks, not facts"


def test_an_extraction_serves_its_chunk_and_its_facts_wait() -> None:
    told = Told()
    told.say()
    told.say()
    (key,) = told.memory.chunks

    assert told.extract("One.", "Two.") == Changes(occurrences_waiting=2, chunks_served=(key,))


def test_resumed_work_waits_again() -> None:
    told = Told()
    told.say()
    told.say()
    (chunk,) = told.memory.chunks.values()
    parked = told.park(WorkParked(Task.EXTRACT, chunk.key, ParkReason.REFUSED, chunk.turns, chunk.places))

    assert parked == Changes(chunks_served=(chunk.key,))
    assert told.resume(3) == Changes(chunks_waiting=(chunk.key,))


def test_an_admission_founds_facts_and_the_owners_scope_takes_them() -> None:
    told = Told()
    for session in ("s1", "s2"):
        told.say(session=session)
        told.say(session=session)
    told.extract("Alice moved.", labels=("Alice",))
    (founding,) = told.admit()
    told.extract("Alice moved.", session="s2", labels=("Alice",))
    (joining,) = told.admit()
    (fact,) = told.memory.canon.facts

    assert (founding.facts_founded, founding.facts_joined) == ((fact,), ())
    assert founding.scopes == (ScopeMove(USER_SCOPE, (fact,), ()),)
    assert (joining.facts_founded, joining.facts_joined, joining.scopes) == ((), (fact,), ())
    assert (founding.occurrences_waiting, joining.occurrences_waiting) == (-1, -1)


def test_an_imported_memory_founds_a_fact_or_joins_the_one_that_says_the_same() -> None:
    told = Told()
    founding, joining = told.take_over("Alice moved."), told.take_over("alice  moved.", "s2")
    (fact,) = told.memory.canon.facts

    assert (founding.facts_founded, founding.facts_joined) == ((fact,), ())
    assert (joining.facts_founded, joining.facts_joined) == ((), (fact,))


def two_facts(told: Told) -> tuple[FactId, FactId]:
    for _ in range(2):
        told.say()
    told.extract("One.", "Two.")
    told.admit()
    one, two = told.memory.canon.facts
    return one, two


def test_a_route_moves_facts_into_scenes_and_a_merge_moves_them_on() -> None:
    told = Told()
    one, two = two_facts(told)
    a, b = (Scope(ScopeKind.SCENE, scene.hex()) for scene in SCENES[:2])
    routed = told.decide(FactsRouted(1, (Route(one, (SCENES[0],)), Route(two, (SCENES[1],)))))
    merged = told.decide(ScenesMerged(1, SCENES[0], (SCENES[1],)))

    assert routed.facts_unrouted == -2
    assert routed.scopes == (ScopeMove(a, (one,), ()), ScopeMove(b, (two,), ()))
    assert set(merged.scopes) == {ScopeMove(a, (two,), ()), ScopeMove(b, (), (two,))}
    assert merged.facts_unrouted == 0


def test_a_state_that_ended_and_one_that_holds_again_are_told() -> None:
    told = Told()
    one, two = two_facts(told)
    ended = told.decide(FactsSuperseded(1, (Supersession(one, two, MONDAY),)))
    again = told.decide(FactsSuperseded(1, (Supersession(one, None, None),)))

    assert ended == Changes(facts_superseded=(one,))
    assert again == Changes(facts_standing=(one,))


def test_a_judged_pair_and_other_thresholds_are_told() -> None:
    told = Told()
    pair = JudgedPair(Pointer(9, 0), Pointer(3, 0), PairVerdict.SAME)

    assert told.decide(PairsJudged(1, (pair,), (), "offline")) == Changes(pairs_judged=1)
    assert told.decide(PROMOTED) == Changes(promoted=True)
    assert told.decide(PROMOTED) == Changes(), "the same ones"


def test_a_leaf_replaces_the_path_above_it_and_nothing_else() -> None:
    told = Told()
    for hour in range(60):
        told.say(hours=hour)
        told.say(hours=hour)
    (tree,) = told.memory.forest.trees.values()
    nodes = {node.digest for node in tree.nodes()}
    told.say(hours=60)
    (change,) = told.say(hours=60).trees

    assert set(change.nodes_gone) < nodes
    assert 0 < len(change.nodes_gone) <= tree.height + 1
    assert {node.digest for node in tree.nodes()} == (nodes - set(change.nodes_gone)) | set(change.nodes_new)
    assert tree.root is not None
    assert change.root == tree.root.digest


def test_a_summary_is_told_again_when_another_one_takes_its_place() -> None:
    told = Told()
    for hour in range(6):
        told.say(hours=hour)
        told.say(hours=hour)
    digest = next(told.memory.forest.plan_summaries()).digest
    first, again = (told.decide(a_summary_of(digest, text)) for text in ("One.", "Another."))

    assert first == again == Changes(summaries=(digest,))


def test_a_larger_group_undoes_the_smaller_one() -> None:
    told = Told()
    for _ in range(2):
        told.say()
    told.extract("One.", "Two.", "Three.")
    told.admit()
    one, two, three = told.memory.canon.facts
    small = told.decide(a_group_of((one, two)))
    large = told.decide(a_group_of((one, two, three)))

    assert small.groups_undone == ()
    assert large.groups_undone == small.groups_made
    assert large.groups_made == tuple(told.memory.units.groups)


def test_a_compaction_that_is_undone_undoes_its_groups_and_moves_no_fact() -> None:
    told = Told()
    told.say()
    told.say()
    told.extract("Alice swims.", "Alice runs.")
    told.admit()
    one, two = told.memory.canon.facts
    made = told.decide(a_group_of((one, two)))
    undone = told.decide(CompactionUndone(1, (one, two)))

    assert undone == Changes(groups_undone=made.groups_made)


def test_a_forgotten_session_hides_its_rows() -> None:
    told = Told()
    for session in ("s1", "s1", "s1", "s2"):
        told.say(session=session)
    changes = told.apply(a_forgetting("s1"))

    assert (changes.sessions_hidden, changes.rows_hidden) == ((S1,), 2)


def test_a_retracted_turn_is_hidden_with_the_rows_that_rest_on_it() -> None:
    told = Told()
    for _ in range(4):
        told.say()
    told.extract("One.", "Two.")
    told.admit()
    first = a_turn(turn_id="t0")
    changes = told.apply(replace(first, event=TurnRetracted(KEYS.key(first.key)), key="retract", lineage=()))

    assert (changes.turns_hidden, changes.rows_hidden) == ((1,), 3), "its chunk and two facts"
    assert changes.facts_gone == (), "until all is folded again"


def test_what_changes_nothing_tells_nothing() -> None:
    told = Told()
    told.say()
    told.say()

    assert not told.apply(a_closing("s1"))
    assert not told.watch.look()
