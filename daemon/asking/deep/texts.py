"""The texts of tree nodes and leaves as a model is shown them, read level by level and kept nowhere.

Between two levels a model is asked, and anything may be forgotten or built anew: what is gone by then has no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from daemon.asking.standpoints import Standpoint
from daemon.asking.tree_nodes import may_be_shown, scope_name
from daemon.asking.words import is_gone, read_with_hindsight
from daemon.scene_names import SceneNaming, look_at_scene
from daemon.texts import join_texts
from events.envelope import RecordedEvent
from events.log import LogReader
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.items import Item, Leaf
from projections.ports import MemberText
from projections.texts import TextRef, events_behind

# Of a node that has no summary yet, the first of what it is made of: its text is cut anyway.
REFS_WITHOUT_SUMMARY: Final = 3


@dataclass(frozen=True, slots=True)
class Placed:
    """A node or leaf of a tree."""

    scope: Scope
    item: Item


@dataclass(frozen=True, slots=True)
class ItemTexts:
    """The texts of items, in the order asked for, None where there is none any more; what the trees are about; and
    the events that these words stand in."""

    texts: list[MemberText | None]
    about: Mapping[Scope, str]
    recorded: Mapping[int, RecordedEvent]


async def read_items(
    at: Standpoint, reader: LogReader, items: Sequence[Placed], *, is_filtered: bool
) -> ItemTexts:
    """The texts as they are there. Nothing is held afterwards. Raises `LogDamaged` or `StoreUnusable`.

    `is_filtered`: scenes have no name, which is made of all that is in them.
    """
    async with at.use() as memory:
        shown = {each.scope for each in items if may_be_shown(memory, each.scope)}
        refs = [_refs_now(memory, each.item) if each.scope in shown else () for each in items]
        named = {
            scope: _name_now(memory, scope)
            for scope in shown
            if scope in memory.forest.trees and not (is_filtered and scope.kind is ScopeKind.SCENE)
        }
    seqs = events_behind(ref for each in refs for ref in each)
    seqs.update(seq for name in named.values() if isinstance(name, SceneNaming) for seq in name.seqs)
    recorded, hindsight = await reader.read(partial(read_with_hindsight, user=at.user, seqs=seqs))
    kept = {seq: event for seq, event in recorded.items() if not is_gone(event, hindsight)}
    return ItemTexts(
        [_read(each.item, there, kept) for each, there in zip(items, refs, strict=True)],
        {scope: name.write(kept) if isinstance(name, SceneNaming) else name for scope, name in named.items()},
        kept,
    )


def _name_now(memory: Memory, scope: Scope) -> str | SceneNaming:
    return look_at_scene(memory, scope) if scope.kind is ScopeKind.SCENE else scope_name(memory, scope)


def _refs_now(memory: Memory, item: Item) -> tuple[TextRef, ...]:
    """The texts that an item consists of, also of one that stands in no tree any more; none when it has none."""
    if isinstance(item, Leaf):
        ref = memory.forest.leaf_ref(item.key)
        return () if ref is None else (ref,)
    summary = memory.forest.summaries.get(item.digest)
    if summary is not None:
        return (summary,)
    refs: list[TextRef] = []
    for child in item.children:
        refs += _refs_now(memory, child)
        if len(refs) >= REFS_WITHOUT_SUMMARY:
            break
    return tuple(refs[:REFS_WITHOUT_SUMMARY])


def _read(item: Item, refs: Sequence[TextRef], kept: Mapping[int, RecordedEvent]) -> MemberText | None:
    if not refs or not events_behind(refs) <= kept.keys():
        return None
    text = join_texts(refs, kept)
    return None if not text else MemberText(text, item.time_start, item.time_end)
