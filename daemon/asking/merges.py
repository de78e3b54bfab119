"""`units.merges`: what was fused into what, text by text: the pairs that a merge model learns from."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from daemon.memories import Memories
from daemon.texts import read_behind
from daemon.untrusted import Params, check_limit
from events.envelope import Reference
from events.errors import InvalidInput
from events.eventtree import NodesMerged
from events.log import EventLog
from events.registry import knows_user
from projections.eventtree.units import Group
from projections.memory import Memory
from projections.texts import FactText, TextRef, WrittenText, compose

LIMIT_DEFAULT = 100
# A page ends before its texts are longer than this; one group always fits.
PAGE_CHARACTERS_MAX = 1_000_000
AFTER_MAX = 2**62  # of what SQLite can count to


class MergesParams(Params, frozen=True, kw_only=True):
    """Parameters of `units.merges`: at most `limit` groups made behind user_seq `after`.

    Those whose text a model wrote, or with `extractive` all of them.
    """

    user_id: str
    limit: int = LIMIT_DEFAULT
    after: int | None = None
    extractive: bool = False


@dataclass(frozen=True, slots=True)
class MergedShown:
    """A group as it was fused: the texts of its facts in time order, and the one that stands for them."""

    group: str
    members: list[str]
    text: str
    model: str
    extractive: bool
    user_seq: int


@dataclass(frozen=True, slots=True)
class MergedPage:
    """Groups that stand, in the order in which they were made; `next` is the `after` to go on from."""

    merges: list[MergedShown]
    next: int | None


class Merges:
    """Reads the groups of users as pairs of texts. Of a user nobody knows there are none."""

    def __init__(self, log: EventLog, memories: Memories) -> None:
        self._log = log
        self._memories = memories

    async def merges(self, params: MergesParams) -> MergedPage:
        """A page of a user's groups with their texts. Raises `InvalidInput`."""
        check_limit(params.limit)
        if params.after is not None and not 0 <= params.after <= AFTER_MAX:
            raise InvalidInput("after is the `next` of the page before")
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return MergedPage([], None)
        behind = await self._log.read(partial(_find_seq, user=user, user_seq=params.after or 0))
        memory = await self._memories.catch_up(user)
        groups = [
            group
            for group in memory.units.groups.values()
            if group.seq > behind and (params.extractive or not group.extractive)
        ]
        groups.sort(key=lambda group: group.seq)
        page = _fit(memory, groups[: params.limit])
        refs = {group.id: _refs_of(memory, group) for group in page}
        recorded = await read_behind(self._log, [ref for of_group in refs.values() for ref in of_group])
        shown: list[MergedShown] = []
        for group in page:
            text, *members = (compose(ref, recorded) for ref in refs[group.id])
            event = recorded[group.seq].event
            kept = [each for each in members if each is not None]
            # What was erased since the page was chosen is left out.
            if isinstance(event, NodesMerged) and text is not None and len(kept) == len(members):
                at = recorded[group.seq].user_seq
                shown.append(MergedShown(group.id.hex(), kept, text, event.model, event.extractive, at))
        following = recorded[page[-1].seq].user_seq if len(page) < len(groups) else None
        return MergedPage(shown, following)


def _find_seq(connection: sqlite3.Connection, user: Reference, user_seq: int) -> int:
    """The seq of the last event of a user up to this user_seq."""
    query = "SELECT coalesce(max(seq), 0) FROM events WHERE user = ? AND user_seq <= ?"
    return int(connection.execute(query, (user, user_seq)).fetchone()[0])


def _fit(memory: Memory, groups: Sequence[Group]) -> list[Group]:
    """As many of the first groups as a page holds."""
    page: list[Group] = []
    left = PAGE_CHARACTERS_MAX
    for group in groups:
        left -= group.length + sum(memory.canon.facts[member].first.length for member in group.members)
        if page and left < 0:
            break
        page.append(group)
    return page


def _refs_of(memory: Memory, group: Group) -> list[TextRef]:
    """The group's own text, and those of its facts."""
    facts = memory.canon.facts
    return [WrittenText(group.seq), *(FactText(facts[member].first.pointer) for member in group.members)]
