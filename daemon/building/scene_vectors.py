"""The centroids of scenes: of each, the sum of its members' unit vectors, as the scenes stand.

They are made when they are first needed and kept up from then on; losing them costs a look at members' vectors.
A scene that only grew by facts whose vectors are at hand grows here, too; any other one is summed up anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from daemon.building.errands import Errands
from daemon.building.fact_vectors import FactVectors, Row
from events.decisions import SceneId
from events.envelope import Reference
from events.memory import FactId, Pointer
from events.time import Instant
from projections.facts.scene_planning import SceneSum
from projections.memory import Memory

# Members whose vectors are looked up at once.
MEMBERS_AT_ONCE: Final = 512
# Scenes that are summed up in one go, as many as have so many members; the others come next.
SUMMED_UP_MAX: Final = 4_096
# Users whose sums are kept, and what these may take: those of the least recently used ones go first.
USERS_MAX: Final = 256
KEPT_BYTES_MAX: Final = 64 << 20


@dataclass(slots=True)
class _Member:
    """What is needed of a member: where its text stands, and the time it speaks of."""

    pointer: Pointer
    at: Instant


@dataclass(slots=True)
class _Sum:
    """A scene as it was summed up."""

    facts: set[FactId]
    total: NDArray[np.float32]
    last_at: Instant


@dataclass(slots=True)
class _Sums:
    """The scenes of one user."""

    scenes: dict[SceneId, _Sum] = field(default_factory=dict[SceneId, _Sum])

    @property
    def size_bytes(self) -> int:
        width = next((each.total.nbytes for each in self.scenes.values()), 0)
        # Besides, a set of some twenty members.
        return len(self.scenes) * (width + 2_000)


class SceneVectors:
    """The sums of scenes, by user."""

    def __init__(self, vectors: FactVectors, errands: Errands) -> None:
        self._vectors = vectors
        self._errands = errands
        self._kept: OrderedDict[Reference, _Sums] = OrderedDict()

    def sums(self, memory: Memory) -> list[SceneSum] | None:
        """The scenes of a user as they stand; None when some are not summed up yet.

        Then that is begun, and the user is planned again when it is done.
        """
        kept = self._kept.setdefault(memory.user, _Sums())
        self._kept.move_to_end(memory.user)
        members = memory.placement.scenes.members
        for gone in kept.scenes.keys() - members.keys():
            del kept.scenes[gone]
        stale = self._find_stale(memory, kept)
        if stale:
            wanted = {scene: _members_of(memory, members[scene]) for scene in stale}
            self._errands.begin(memory.user, "scene_vectors", lambda: self._sum_up(memory.user, kept, wanted))
            return None
        self._shrink()
        return [
            SceneSum(scene, each.total, len(each.facts), each.last_at)
            for scene, each in kept.scenes.items()
            if each.total.size  # else no member has a vector
        ]

    def forget(self, user: Reference) -> None:
        """Keep no sums of a user. What is being summed up for them now is not kept either."""
        self._kept.pop(user, None)

    def keeps(self, user: Reference) -> bool:
        """Whether sums of a user are kept."""
        return user in self._kept

    def _find_stale(self, memory: Memory, kept: _Sums) -> list[SceneId]:
        """The scenes that are to be summed up anew, the first of them; those that can be are added up."""
        stale: list[SceneId] = []
        size = 0
        for scene, members in memory.placement.scenes.members.items():
            known = kept.scenes.get(scene)
            if known is not None and known.facts == members:
                continue
            if not self._add_up(memory, kept, scene, members):
                stale.append(scene)
                size += len(members)
                if size >= SUMMED_UP_MAX:
                    break
        return stale

    def _add_up(self, memory: Memory, kept: _Sums, scene: SceneId, members: set[FactId]) -> bool:
        """Add what a scene grew by; False when it is not known, or also lost something."""
        known = kept.scenes.get(scene)
        grown = members if known is None else members - known.facts
        firsts = [memory.canon.facts[fact].first for fact in grown]
        rows = self._vectors.rows(memory.user, (first.pointer for first in firsts))
        if (known is not None and not known.facts <= members) or len(rows) < len(grown):
            return False
        latest = max(first.time_start for first in firsts)
        total: NDArray[np.float32] = np.stack(list(rows.values())).sum(axis=0)
        if known is not None:
            latest = max(latest, known.last_at)
            # Not in place: a plan on a thread may read the old one.
            total = total + known.total if known.total.size else total
        kept.scenes[scene] = _Sum(set(members), total, latest)
        return True

    async def _sum_up(
        self, user: Reference, kept: _Sums, wanted: Mapping[SceneId, Mapping[FactId, _Member]]
    ) -> None:
        """Sum up scenes, a page of members at a time. Without a vector of its own a member counts for nothing."""
        scenes_of: dict[Pointer, list[SceneId]] = {}
        for scene, members in wanted.items():
            for member in members.values():
                scenes_of.setdefault(member.pointer, []).append(scene)
        totals: dict[SceneId, NDArray[np.float32]] = {}
        pointers = sorted(scenes_of)
        for at in range(0, len(pointers), MEMBERS_AT_ONCE):
            rows: dict[Pointer, Row] = await self._vectors.make(user, pointers[at : at + MEMBERS_AT_ONCE])
            for pointer, row in rows.items():
                for scene in scenes_of[pointer]:
                    if scene in totals:
                        totals[scene] += row
                    else:
                        totals[scene] = row.astype(np.float32)
        width = next((len(total) for total in totals.values()), 0)
        for scene, members in wanted.items():
            total = totals.get(scene, np.zeros(width, np.float32))
            kept.scenes[scene] = _Sum(set(members), total, max(member.at for member in members.values()))

    def _shrink(self) -> None:
        """Let go of those that were used least recently, but for the last one's."""
        size_bytes = sum(kept.size_bytes for kept in self._kept.values())
        while len(self._kept) > USERS_MAX or (size_bytes > KEPT_BYTES_MAX and len(self._kept) > 1):
            _, kept = self._kept.popitem(last=False)
            size_bytes -= kept.size_bytes


def _members_of(memory: Memory, facts: set[FactId]) -> dict[FactId, _Member]:
    firsts = {fact: memory.canon.facts[fact].first for fact in facts}
    return {fact: _Member(first.pointer, first.time_start) for fact, first in firsts.items()}
