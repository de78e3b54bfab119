"""`why`: where a memory comes from, step by step: group, facts, what a model read, turns, messages on the bus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from daemon.asking.listings import find_user
from daemon.asking.origins import BusMessageShown, FactBehind, ReadingShown, TurnShown, Why, Writing
from daemon.asking.spent import SpentShown, show_usage
from daemon.asking.tree_nodes import facts_by_leaf, may_be_shown, scope_name
from daemon.asking.unit_listing import is_trajectory
from daemon.asking.words import is_gone, read_with_hindsight, source_of, text_of
from daemon.building.compacted import LOSS_UNIT
from daemon.memories import Memories
from daemon.texts import join_texts
from daemon.untrusted import Params
from events.envelope import RecordedEvent, Reference
from events.errors import InvalidInput, MemForestError
from events.eventtree import NodesMerged
from events.hindsight import Hindsight
from events.log import EventLog
from events.memory import FactsExtracted
from events.time import to_iso
from projections.facts.canonical import Fact, Occurrence
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.items import Leaf, Node
from projections.recall.nodes import NodeKind
from projections.texts import FactText, TextRef, TurnsText, WrittenText, events_behind

# Of a summary over thousands of facts and turns, so many are shown; the tree shows the rest.
SHOWN_MAX = 200
ID_DIGITS = 32
# Commands show eight; with fewer than these an id is guessed, not named.
ID_DIGITS_MIN = 4
SCENE_DIGITS = 8
# How a fact came to be known, by the type of the event that says it.
_HOW = {
    "facts.extracted": "extracted",
    "fact.corrected": "corrected",
    "fact.pinned": "pinned",
    "memory.imported": "imported",
}


class MemoryUnknown(MemForestError):
    """There is no memory of this id (any more); ids are those of an answer, a listing or a tree."""

    code = "not_found"


class WhyParams(Params, frozen=True, kw_only=True):
    """Parameters of `why`: the id of a memory, whatever its kind, or how the id begins."""

    user_id: str
    memory_id: str


@dataclass(frozen=True, slots=True)
class _Found:
    """What the Memory says of an id; everything else is read from the log."""

    kind: str
    refs: tuple[TextRef, ...]
    facts: tuple[Fact, ...] = ()
    turns: tuple[int, ...] = ()
    scopes: tuple[str, ...] = ()
    written: int | None = None  # seq of the event that holds the text
    trajectory: bool = False
    left_off: int = 0

    def seqs(self) -> set[int]:
        """The events to read."""
        found = events_behind(self.refs) | set(self.turns)
        for fact in self.facts:
            for occurrence in fact.occurrences:
                found.add(occurrence.pointer.seq)
                found.update(occurrence.turns)
        return found


class Provenance:
    """Reads where memories come from."""

    def __init__(self, log: EventLog, memories: Memories) -> None:
        self._log = log
        self._memories = memories

    async def why(self, params: WhyParams) -> Why:
        """All that is known of a memory's origin. Raises `InvalidInput`, `UserUnknown`, `MemoryUnknown`."""
        if not re.fullmatch(f"[0-9a-fA-F]{{{ID_DIGITS_MIN},{ID_DIGITS}}}", params.memory_id):
            raise InvalidInput(
                f"memory_id is an id or its beginning: {ID_DIGITS_MIN} to {ID_DIGITS} hexadecimal digits"
            )
        user = await find_user(self._log, params.user_id)
        async with self._memories.use(user) as memory:
            memory_id = _complete(memory, params.memory_id)
            found = _find(memory, memory_id)
            group_of = {fact.id: memory.units.group_of.get(fact.id) for fact in found.facts}
        seqs = found.seqs()
        recorded, hindsight = await self._log.read(partial(read_with_hindsight, user=user, seqs=seqs))
        tale = _Tale(recorded, hindsight)
        words, text = tale.text(found.refs)
        return Why(
            id=memory_id.hex(),
            kind=found.kind,
            words=words,
            text=text,
            written=None if found.written is None else tale.writing(found.written, trajectory=found.trajectory),
            scopes=list(found.scopes),
            facts=[tale.fact(fact, group_of[fact.id]) for fact in found.facts],
            turns=[tale.turn(seq) for seq in found.turns],
            left_off=found.left_off,
        )


class _Tale:
    """Events as they may be told now: what was erased is said to be erased."""

    def __init__(self, recorded: dict[int, RecordedEvent], hindsight: Hindsight) -> None:
        self._recorded = recorded
        self._hindsight = hindsight

    def text(self, refs: Sequence[TextRef]) -> tuple[str, str | None]:
        """Whether the words of these texts are kept, and the texts."""
        if not refs:
            return "none", None
        if any(self._is_gone(seq) for seq in events_behind(refs)):
            return "erased", None
        return "kept", join_texts(refs, self._recorded)

    def writing(self, seq: int, *, trajectory: bool) -> Writing:
        """Who wrote a group or summary, and when."""
        recorded = self._recorded[seq]
        event = recorded.event
        merged = event if isinstance(event, NodesMerged) else None
        return Writing(
            model=None if self._is_gone(seq) else getattr(event, "model", None),
            user_seq=recorded.user_seq,
            at=to_iso(recorded.recorded_at),
            request=_request(recorded),
            spent=_spent(recorded),
            extractive=merged is not None and merged.extractive,
            loss_bound=None if merged is None else merged.loss / LOSS_UNIT,
            trajectory=trajectory,
        )

    def fact(self, fact: Fact, group: bytes | None) -> FactBehind:
        """A fact with its readings."""
        readings = [self._reading(occurrence) for occurrence in fact.occurrences]
        first = fact.first
        return FactBehind(
            id=fact.id.hex(),
            words=readings[0].words,
            text=readings[0].text,
            said_at=to_iso(first.said_at),
            time_start=to_iso(first.time_start),
            time_end=to_iso(first.time_end),
            pinned=fact.pinned,
            group=None if group is None else group.hex(),
            readings=readings,
        )

    def turn(self, seq: int) -> TurnShown:
        """A turn, or what was imported, and where it stood on the bus."""
        turn = self._recorded[seq]
        event = None if self._is_gone(seq) else turn.event
        return TurnShown(
            user_seq=turn.user_seq,
            session_id=None if event is None else turn.session_id,
            turn_id=None if event is None else source_of(turn).turn_id,
            said_at=to_iso(turn.happened_at),
            words="erased" if event is None else "kept",
            text=None if event is None else text_of(event),
            bus=None
            if turn.bus_stream is None or turn.bus_seq is None
            else BusMessageShown(turn.bus_stream, turn.bus_seq),
        )

    def _reading(self, occurrence: Occurrence) -> ReadingShown:
        recorded = self._recorded[occurrence.pointer.seq]
        event = None if self._is_gone(recorded.seq) else recorded.event
        if isinstance(event, FactsExtracted):
            text: str | None = event.facts[occurrence.pointer.n].text
        else:
            text = (
                None if event is None else getattr(getattr(event, "says", event), "text", None) or text_of(event)
            )
        return ReadingShown(
            how=_HOW.get(recorded.type, recorded.type),
            model=event.model if isinstance(event, FactsExtracted) else None,
            user_seq=recorded.user_seq,
            at=to_iso(recorded.recorded_at),
            words="erased" if event is None else "kept",
            text=text,
            turns=[self.turn(seq) for seq in occurrence.turns],
            request=_request(recorded),
            spent=_spent(recorded),
        )

    def _is_gone(self, seq: int) -> bool:
        return is_gone(self._recorded[seq], self._hindsight)


def _request(recorded: RecordedEvent) -> str | None:
    request = getattr(recorded.event, "request", b"")
    return request.hex() or None


def _spent(recorded: RecordedEvent) -> SpentShown | None:
    usage = getattr(recorded.event, "usage", None)
    return show_usage(usage) if usage is not None and usage.calls else None


def _complete(memory: Memory, begun: str) -> bytes:
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


def _find(memory: Memory, memory_id: bytes) -> _Found:
    """What is behind an id: a fact, a group, a chunk, or a node of a tree; raises `MemoryUnknown`."""
    fact = memory.canon.facts.get(memory_id)
    if fact is not None:
        if not memory.shows(fact):
            raise MemoryUnknown
        return _Found("fact", (FactText(fact.first.pointer),), (fact,))
    group = memory.units.groups.get(memory_id)
    if group is not None and not memory.needs_rebuild:
        facts = tuple(memory.canon.facts[member] for member in group.members[:SHOWN_MAX])
        left_off = len(group.members) - len(facts)
        texts, told = (WrittenText(group.seq),), is_trajectory(memory, group)
        return _Found("group", texts, facts, written=group.seq, left_off=left_off, trajectory=told)
    row = memory.nodes.row_of.get(memory_id)
    if row is not None:
        node = memory.nodes.node(row)
        if node.kind is NodeKind.CHUNK and not _is_hidden(memory, node.sessions, node.turns):
            return _Found("chunk", (node.ref,), turns=node.turns)
    return _find_in_trees(memory, memory_id)


def _find_in_trees(memory: Memory, digest: bytes) -> _Found:
    """A summary belongs to a digest, wherever a node of that digest stands."""
    scopes: list[Scope] = []
    found: Node | None = None
    for scope, tree in memory.forest.trees.items():
        if not may_be_shown(memory, scope):
            continue
        for node in tree.nodes():
            if node.digest == digest:
                scopes.append(scope)
                found = node
    if found is None:
        raise MemoryUnknown
    leaves = _first_leaves(found)
    facts = facts_by_leaf(memory, scopes[0], leaves)
    refs = [memory.forest.refs_of(leaf)[0] for leaf in leaves]
    has_text = memory.forest.state_of(found) in ("summarised", "concatenated")
    summary = memory.forest.summaries.get(digest)
    return _Found(
        kind="summary",
        refs=memory.forest.refs_of(found) if has_text else (),
        facts=tuple(facts[leaf.key] for leaf in leaves if leaf.key in facts),
        turns=tuple(seq for ref in refs if isinstance(ref, TurnsText) for seq in ref.turns),
        scopes=tuple(_call(memory, scope) for scope in scopes),
        written=None if summary is None else summary.seq,
        left_off=found.size - len(leaves),
    )


def _call(memory: Memory, scope: Scope) -> str:
    """A scope by name; a scene, which has none of its own, by its id."""
    name = scope_name(memory, scope)
    return f"scene {name[:SCENE_DIGITS]}" if scope.kind is ScopeKind.SCENE else name


def _first_leaves(node: Node) -> list[Leaf]:
    """The leaves below a node in time order, no more than can be shown."""
    leaves: list[Leaf] = []
    waiting = [*reversed(node.children)]
    while waiting and len(leaves) < SHOWN_MAX:
        item = waiting.pop()
        if isinstance(item, Leaf):
            leaves.append(item)
        else:
            waiting.extend(reversed(item.children))
    return leaves


def _is_hidden(memory: Memory, sessions: frozenset[Reference], turns: Sequence[int]) -> bool:
    return bool(sessions & memory.hidden or memory.hidden_turns.intersection(turns))
