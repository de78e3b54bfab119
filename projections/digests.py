"""Digests of a Memory: what two folds of one log must agree on, in hashes that quote nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from events.eventtree import AS_CONFIGURED
from projections.eventtree.units import Group
from projections.memory import Memory
from projections.steps import Steps, at_once, sort_in_steps


@dataclass(frozen=True, slots=True)
class MemoryDigest:
    """Hashes of the parts of a Memory at a user_seq; two folds of one log have the same."""

    user_seq: int
    facts: str
    scopes: str
    trees: str
    units: str


class DigestParts(NamedTuple):
    """What the hashes are made of: lists of ids, which no change of the Memory changes."""

    user_seq: int
    facts: list[list[bytes]]
    scopes: list[list[bytes]]
    trees: list[list[bytes]]
    units: list[list[bytes]]

    def hash_in_steps(self) -> Steps[MemoryDigest]:
        """The hashes, in small steps."""
        return MemoryDigest(
            user_seq=self.user_seq,
            facts=(yield from _hash_lists(self.facts)),
            scopes=(yield from _hash_lists(self.scopes)),
            trees=(yield from _hash_lists(self.trees)),
            units=(yield from _hash_lists(self.units)),
        )


def digest_memory(memory: Memory) -> MemoryDigest:
    """Hashes over all parts, by keys that do not depend on where an event stands in the log."""
    return at_once(at_once(collect_parts(memory)).hash_in_steps())


def collect_parts(memory: Memory) -> Steps[DigestParts]:
    """What a digest is made of, in small steps. The Memory must not change in between."""
    return DigestParts(
        user_seq=memory.user_seq,
        facts=(yield from _collect(_list_facts(memory))),
        scopes=(yield from _collect(_list_scopes(memory))),
        trees=(yield from _collect(_list_trees(memory))),
        units=(yield from _collect(_list_units(memory))),
    )


def _list_facts(memory: Memory) -> Iterator[list[bytes]]:
    # In their order, for the first one speaks for the fact.
    for fact in memory.canon.facts.values():
        yield [fact.id, *(each.leaf_key for each in fact.occurrences)]
    for occurrence in memory.canon.waiting.values():
        yield [occurrence.leaf_key]
    for pair, verdict in memory.canon.verdicts.items():
        one, other = map(memory.canon.occurrence, pair)
        if one is not None and other is not None:
            yield [b"judged", one.leaf_key, other.leaf_key, verdict.encode()]
    for superseded, each in memory.placement.validity.superseded.items():
        yield [b"superseded", superseded, each.by or b"", str(each.until).encode()]
    for disclaimer in memory.placement.disclaimers.standing():
        yield [b"disclaimed", disclaimer.key]


def _list_scopes(memory: Memory) -> Iterator[list[bytes]]:
    for scope, facts in memory.members.items():
        yield [scope.kind.encode(), scope.name.encode(), *sorted(facts)]
    scenes = memory.placement.scenes
    # Which one of its scenes is the nearest to a fact, and which may never be founded again.
    for fact, places in scenes.routes():
        yield [b"route", fact, *places]
    for each in scenes.absorbed.items():
        yield [b"absorbed", *each]
    if memory.promoted is not None:
        yield [b"promoted", repr((memory.promoted.embedder, *memory.promoted.thresholds)).encode()]


def _list_trees(memory: Memory) -> Iterator[list[bytes]]:
    summaries = memory.forest.summaries
    for scope, tree in memory.forest.trees.items():
        if tree.root is not None:
            summarised = [node.digest for node in tree.nodes() if node.digest in summaries]
            yield [scope.kind.encode(), scope.name.encode(), tree.root.digest, *summarised]


def _list_units(memory: Memory) -> Iterator[list[bytes]]:
    for fact, unit in memory.units.unit_of.items():
        if fact in memory.canon.facts:
            yield [fact, unit]
    for group in memory.units.groups.values():
        yield [group.id, *group.members, *_cost_of(group)]
    for fact in memory.units.apart:
        yield [b"apart", fact]
    if memory.units.policy != AS_CONFIGURED:
        yield [b"policy", repr(memory.units.policy).encode()]


def _cost_of(group: Group) -> list[bytes]:
    """What a group costs a query; groups of before that was told have the digest that they had."""
    return [b"%d/%d" % (group.loss, group.extractive)] if group.loss or group.extractive else []


def _collect(lists: Iterator[list[bytes]]) -> Steps[list[list[bytes]]]:
    collected: list[list[bytes]] = []
    for each in lists:
        collected.append(each)
        yield
    return collected


def _hash_lists(lists: list[list[bytes]]) -> Steps[str]:
    """One hash over lists of ids, whatever their order."""
    ordered = yield from sort_in_steps(lists)
    state = blake2b(digest_size=16)
    for each in ordered:
        state.update(len(each).to_bytes(4, "big"))
        for part in each:
            state.update(len(part).to_bytes(4, "big") + part)
            yield  # one scope has all facts
    return state.hexdigest()
