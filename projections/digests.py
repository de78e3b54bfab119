"""Digests of a Memory: what two folds of one log must agree on, in hashes that quote nothing."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from events.eventtree import AS_CONFIGURED
from projections.eventtree.units import Group
from projections.memory import Memory


@dataclass(frozen=True, slots=True)
class MemoryDigest:
    """Hashes of the parts of a Memory at a user_seq; two folds of one log have the same."""

    user_seq: int
    facts: str
    scopes: str
    trees: str
    units: str


def digest_memory(memory: Memory) -> MemoryDigest:
    """Hashes over all parts, by keys that do not depend on where an event stands in the log."""
    # In their order, for the first one speaks for the fact.
    facts = [[fact.id, *(each.leaf_key for each in fact.occurrences)] for fact in memory.canon.facts.values()]
    waiting = [[occurrence.leaf_key] for occurrence in memory.canon.waiting.values()]
    validity = [
        [b"superseded", fact, each.by or b"", str(each.until).encode()]
        for fact, each in memory.placement.validity.superseded.items()
    ]
    judged = [
        [b"judged", one.leaf_key, other.leaf_key, verdict.encode()]
        for pair, verdict in memory.canon.verdicts.items()
        for one, other in (map(memory.canon.occurrence, pair),)
        if one is not None and other is not None
    ]
    disclaimed = [[b"disclaimed", each.key] for each in memory.placement.disclaimers.standing()]
    scopes = [[scope.kind.encode(), scope.name.encode(), *sorted(f)] for scope, f in memory.members.items()]
    scenes = memory.placement.scenes
    # Which one of its scenes is the nearest to a fact, and which may never be founded again.
    routes = [[b"route", fact, *places] for fact, places in scenes.routes()]
    routes += [[b"absorbed", *each] for each in scenes.absorbed.items()]
    if memory.promoted is not None:
        routes += [[b"promoted", repr((memory.promoted.embedder, *memory.promoted.thresholds)).encode()]]
    summaries = memory.forest.summaries
    trees = [
        [
            scope.kind.encode(),
            scope.name.encode(),
            tree.root.digest,
            *(node.digest for node in tree.nodes() if node.digest in summaries),
        ]
        for scope, tree in memory.forest.trees.items()
        if tree.root is not None
    ]
    units = [[fact, unit] for fact, unit in memory.units.unit_of.items() if fact in memory.canon.facts]
    groups = [[group.id, *group.members, *_cost_of(group)] for group in memory.units.groups.values()]
    undone = [[b"apart", fact] for fact in memory.units.apart]
    if memory.units.policy != AS_CONFIGURED:
        undone += [[b"policy", repr(memory.units.policy).encode()]]
    return MemoryDigest(
        user_seq=memory.user_seq,
        facts=_hash_lists(facts + waiting + judged + validity + disclaimed),
        scopes=_hash_lists(scopes + routes),
        trees=_hash_lists(trees),
        units=_hash_lists(units + groups + undone),
    )


def _cost_of(group: Group) -> list[bytes]:
    """What a group costs a query; groups of before that was told have the digest that they had."""
    return [b"%d/%d" % (group.loss, group.extractive)] if group.loss or group.extractive else []


def _hash_lists(lists: list[list[bytes]]) -> str:
    """One hash over lists of ids, whatever their order."""
    state = blake2b(digest_size=16)
    for each in sorted(lists):
        state.update(len(each).to_bytes(4, "big"))
        for part in each:
            state.update(len(part).to_bytes(4, "big") + part)
    return state.hexdigest()
