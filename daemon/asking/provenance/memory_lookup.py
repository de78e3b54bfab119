"""What a Memory says of an id, for `why`: which kind of memory it is, and what stands behind and above it.

Structure alone, taken in one go while the Memory stands still; the words are read from the log afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from daemon.asking.fact_listing import FactStanding, look_at_fact
from daemon.asking.provenance.ways_up import TreeFound, call_scope, find_ways, leaves_below, summary_of
from daemon.asking.tree_nodes import facts_by_leaf, may_be_shown
from daemon.asking.unit_listing import is_trajectory
from events.decisions import PairVerdict, Supersession
from events.envelope import Reference
from events.errors import InvalidInput, MemForestError
from events.memory import FactId
from projections.eventtree.units import Group
from projections.facts.canonical import Fact, Occurrence, Pair
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.items import Item, Leaf, Node
from projections.recall.nodes import NodeKind, SearchNode
from projections.texts import FactText, TextRef, TurnsText, WrittenText, events_behind

ID_DIGITS = 32
# Beside a fact that was asked for all its readings are shown, page by page; of one among others the first few.
READINGS_AMONG_OTHERS_MAX = 3
# Pairs with one fact: it is asked about the nearest three when it comes, and by each that comes later.
JUDGED_MAX = 20
# Readings of one fact that others are looked up beside; what was said more often was said in the same words.
COMPARED_MAX = 200


class MemoryUnknown(MemForestError):
    """There is no memory of this id (any more, or not then); ids are those of an answer, a listing or a tree."""

    code = "not_found"


@dataclass(frozen=True, slots=True)
class Page:
    """Which of what is behind a memory is wanted: so many, after so many."""

    limit: int
    after: int = 0

    @property
    def end(self) -> int:
        """How many are passed behind it."""
        return self.after + self.limit


@dataclass(frozen=True, slots=True)
class JudgedFound:
    """A pair of readings that a model compared, one of them of a fact; `later`: that one was said later."""

    pair: Pair
    verdict: PairVerdict
    later: bool
    other: FactId


@dataclass(frozen=True, slots=True)
class FactFound:
    """A fact, those of its readings that are shown, what it is beside others, and what a model said of it.

    `others` has the facts that are spoken of: before and after it, what ended it, and what it was compared with.
    """

    standing: FactStanding
    readings: tuple[Occurrence, ...]
    left_off: int
    ended: Supersession | None
    judged: tuple[JudgedFound, ...]
    verdicts: Mapping[Pair, PairVerdict]
    others: Mapping[FactId, Fact]

    @property
    def fact(self) -> Fact:
        """The fact itself."""
        return self.standing.fact

    def seqs(self) -> Iterator[int]:
        """The events to read."""
        for occurrence in (self.fact.first, *self.readings):
            yield occurrence.pointer.seq
            yield from occurrence.turns
        yield from (other.first.pointer.seq for other in self.others.values())


@dataclass(frozen=True, slots=True)
class Found:
    """What a Memory says of an id; everything else is read from the log."""

    id: bytes
    kind: str
    user_seq: int
    near_from: int | None  # cosine in hundred-thousandths from which on two readings may be one
    refs: tuple[TextRef, ...] = ()
    facts: tuple[FactFound, ...] = ()
    turns: tuple[int, ...] = ()
    scopes: tuple[str, ...] = ()
    written: int | None = None  # seq of the event that holds the text
    group: Group | None = None
    trajectory: bool = False
    trees: tuple[TreeFound, ...] = ()
    trees_left_off: int = 0
    left_off: int = 0
    next: int | None = None

    def seqs(self) -> set[int]:
        """The events to read."""
        found = events_behind(self.refs) | set(self.turns)
        if self.group is not None:
            found.add(self.group.seq)
        for fact in self.facts:
            found.update(fact.seqs())
        found.update(step.written for tree in self.trees for step in tree.way if step.written is not None)
        return found

    def sessions(self) -> set[Reference]:
        """Where the readings were said that are shown."""
        return {each.session for fact in self.facts for each in (fact.fact.first, *fact.readings)}


def complete_id(memory: Memory, begun: str) -> bytes:
    """The one id that begins so. Raises `MemoryUnknown`, and `InvalidInput` when several do."""
    first, last = (bytes.fromhex(begun.ljust(ID_DIGITS, digit)) for digit in "0f")
    if first == last:
        return first
    trees = (tree for scope, tree in memory.forest.trees.items() if may_be_shown(memory, scope))
    digests = (node.digest for tree in trees for node in tree.nodes())
    known = chain(memory.canon.facts, memory.units.groups, memory.nodes.row_of, digests)
    found = {each for each in known if first <= each <= last}
    if not found:
        raise MemoryUnknown
    if len(found) > 1:
        raise InvalidInput(f"memory_id begins {len(found)} ids; give more of its digits")
    return found.pop()


def find_memory(memory: Memory, memory_id: bytes, page: Page) -> Found:
    """What is behind an id: a fact, a group, a chunk, or a node of a tree. Raises `MemoryUnknown`."""
    fact = memory.canon.facts.get(memory_id)
    if fact is not None:
        return _find_fact(memory, fact, page)
    group = memory.units.groups.get(memory_id)
    if group is not None and not memory.needs_rebuild:
        return _find_group(memory, group, page)
    row = memory.nodes.row_of.get(memory_id)
    if row is not None:
        node = memory.nodes.node(row)
        if node.kind is NodeKind.CHUNK and not _is_hidden(memory, node):
            return _find_chunk(memory, node, page)
    return _find_in_trees(memory, memory_id, page)


def _find_fact(memory: Memory, fact: Fact, page: Page) -> Found:
    if not memory.shows(fact):
        raise MemoryUnknown
    holding = [scope for scope, members in memory.members.items() if fact.id in members]
    start, key = fact.first.time_start, fact.first.leaf_key
    group = None if memory.needs_rebuild else memory.units.groups.get(memory.units.group_of.get(fact.id, b""))
    found = Found(
        id=fact.id,
        kind="fact",
        user_seq=memory.user_seq,
        near_from=_near_from(memory),
        refs=(FactText(fact.first.pointer),),
        facts=_look_at_facts(memory, [fact], fact.occurrences[page.after : page.end]),
        group=group,
        trajectory=group is not None and is_trajectory(memory, group),
    )
    with_trees = _put_into_trees(found, find_ways(memory, holding, start, lambda item: item.digest == key))
    return _turn_page(with_trees, len(fact.occurrences), page)


def _find_group(memory: Memory, group: Group, page: Page) -> Found:
    facts = [memory.canon.facts[member] for member in group.members[page.after : page.end]]
    found = Found(
        id=group.id,
        kind="group",
        user_seq=memory.user_seq,
        near_from=_near_from(memory),
        refs=(WrittenText(group.seq),),
        facts=_look_at_facts(memory, facts),
        written=group.seq,
        group=group,
        trajectory=is_trajectory(memory, group),
    )
    return _turn_page(found, len(group.members), page)


def _find_chunk(memory: Memory, node: SearchNode, page: Page) -> Found:
    turns = node.turns[page.after : page.end]
    found = Found(node.id, "chunk", memory.user_seq, None, (node.ref,), turns=turns)
    scopes = [Scope(ScopeKind.SESSION, session.hex()) for session in sorted(node.sessions)]

    def is_leaf_of_it(item: Item) -> bool:
        return isinstance(item, Leaf) and memory.forest.leaf_ref(item.key) == node.ref

    with_trees = _put_into_trees(found, find_ways(memory, scopes, node.time_start, is_leaf_of_it))
    return _turn_page(with_trees, len(node.turns), page)


def _find_in_trees(memory: Memory, digest: bytes, page: Page) -> Found:
    """A summary belongs to a digest, wherever a node of that digest stands."""
    scopes: list[Scope] = []
    node: Node | None = None
    for scope, tree in memory.forest.trees.items():
        if not may_be_shown(memory, scope):
            continue
        for each in tree.nodes():
            if each.digest == digest:
                scopes.append(scope)
                node = each
    if node is None:
        raise MemoryUnknown
    leaves = list(islice(leaves_below(node), page.after, page.end))
    facts = facts_by_leaf(memory, scopes[0], leaves)
    refs = [memory.forest.refs_of(leaf)[0] for leaf in leaves]
    found = Found(
        id=digest,
        kind="summary",
        user_seq=memory.user_seq,
        near_from=_near_from(memory),
        refs=memory.forest.refs_of(node) if memory.forest.has_text(node) else (),
        facts=_look_at_facts(memory, [facts[leaf.key] for leaf in leaves if leaf.key in facts]),
        turns=tuple(seq for ref in refs if isinstance(ref, TurnsText) for seq in ref.turns),
        scopes=tuple(call_scope(memory, scope) for scope in scopes),
        written=summary_of(memory, node),
    )
    ways = find_ways(memory, scopes, node.time_start, lambda item: item.digest == digest)
    with_trees = _put_into_trees(found, ways)
    return _turn_page(with_trees, node.size, page)


def _put_into_trees(found: Found, ways: tuple[list[TreeFound], int]) -> Found:
    return replace(found, trees=tuple(ways[0]), trees_left_off=ways[1])


def _turn_page(found: Found, count: int, page: Page) -> Found:
    """With how many there are behind this page, and where to go on."""
    left_off = max(0, count - page.end)
    return replace(found, left_off=left_off, next=page.end if left_off else None)


def _look_at_facts(
    memory: Memory, facts: Sequence[Fact], readings: Sequence[Occurrence] | None = None
) -> tuple[FactFound, ...]:
    """Facts among others, or (with `readings`) the one that was asked for, with a page of its readings."""
    judged = _find_judged(memory, facts)
    return tuple(_look_at(memory, fact, readings, judged.get(fact.id, [])) for fact in facts)


def _look_at(
    memory: Memory, fact: Fact, readings: Sequence[Occurrence] | None, judged: Sequence[JudgedFound]
) -> FactFound:
    canon, standing = memory.canon, look_at_fact(memory, fact)
    ended = memory.placement.validity.superseded.get(fact.id)
    named = [standing.predecessor, standing.successor, None if ended is None else ended.by]
    others = [each for each in named if each is not None] + [each.other for each in judged]
    shown = tuple(fact.occurrences[:READINGS_AMONG_OTHERS_MAX]) if readings is None else tuple(readings)
    return FactFound(
        standing=standing,
        readings=shown,
        left_off=len(fact.occurrences) - len(shown) if readings is None else 0,
        ended=ended,
        judged=tuple(judged),
        verdicts=_verdicts_inside(memory, fact, shown),
        others={
            each: canon.facts[each] for each in others if each in canon.facts and memory.shows(canon.facts[each])
        },
    )


def _find_judged(memory: Memory, facts: Sequence[Fact]) -> dict[FactId, list[JudgedFound]]:
    """What a model said of readings of these facts and of others, up to `JUDGED_MAX` for each."""
    wanted, found = {fact.id for fact in facts}, dict[FactId, list[JudgedFound]]()
    for pair, verdict in memory.canon.verdicts.items():
        one, other = map(memory.canon.holder, pair)
        if one is None or other is None or one is other:
            continue
        for fact, beside, later in ((one, other, True), (other, one, False)):
            if fact.id in wanted and memory.shows(beside):
                known = found.setdefault(fact.id, [])
                if len(known) < JUDGED_MAX:
                    known.append(JudgedFound(pair, verdict, later, beside.id))
    return found


def _verdicts_inside(memory: Memory, fact: Fact, shown: Sequence[Occurrence]) -> dict[Pair, PairVerdict]:
    """What a model said of these readings and others of the same fact."""
    verdicts, compared = memory.canon.verdicts, fact.occurrences[:COMPARED_MAX]
    pointers = [each.pointer for each in compared]
    pairs = ((max(one.pointer, other), min(one.pointer, other)) for one in shown for other in pointers)
    return {pair: verdicts[pair] for pair in pairs if pair in verdicts}


def _near_from(memory: Memory) -> int | None:
    return None if memory.promoted is None else memory.promoted.thresholds.near


def _is_hidden(memory: Memory, node: SearchNode) -> bool:
    return bool(node.sessions & memory.hidden or memory.hidden_turns.intersection(node.turns))
