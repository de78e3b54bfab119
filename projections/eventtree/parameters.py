"""The numbers of EventTree, each with its symbol in paper A, and the two presets they come in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from events.errors import InvalidInput
from events.eventtree import Policy
from events.memory import FactRole

# "default": with caps, time bonus and one budget. "paper": the algorithm as published.
Preset: TypeAlias = Literal["default", "paper"]

# Where the nodes to remove are taken from: wherever the best edge is, or an equal share of every unit.
Budget: TypeAlias = Literal["user", "unit"]


@dataclass(frozen=True, slots=True)
class EventTreeParameters:
    """How nodes are put into units and how far each unit is merged.

    Preset "paper" has no member caps, no time bonus, a quota per unit and no online units, whatever those fields
    are given as; a mixture is written under preset "default". Raises `InvalidInput` when a value is out of range.
    """

    # alpha (Eq. 1): units per node, so an average unit has 20.
    alpha: float = 0.05
    # beta (Eq. 3): weight of the global similarity g against the local continuity l.
    beta: float = 0.8
    # w (Eq. 2): the window around a centre node, in positions in time order (D.4 implies it).
    window: int = 5
    # eta (Eq. 6): weight of the similarity against the degrees; below 1 a hub merges late.
    eta: float = 0.99
    # The compression ratio of section 3.3: the share of nodes removed.
    ratio: float = 0.5
    # Ours: (ratio in percent, most members of a group). Plain contraction snowballs: 25-44 turns in one node.
    # One cap for all ratios is `one_cap`; none at all is ().
    member_caps: tuple[tuple[int, int], ...] = ((30, 2), (50, 3), (70, 5))
    # Ours: what two nodes of one position gain in Eq. 5; measured best for facts (1 for turns).
    time_bonus: float = 0.5
    # Ours: one budget for all units. The paper's loop runs in each EventTree by itself.
    budget: Budget = "user"
    preset: Preset = "default"
    # Ours (algorithms.md 2, way 3): units grow with the memory, in the background.
    online: bool = True
    # Most live nodes of a unit before it is split: twice the average unit of the batch.
    unit_cap: int = 40
    # How many units beside a split one have their nodes scored again.
    reassign: int = 3
    # A unit is compacted when it has more than so many times its target of live nodes ...
    overgrown: float = 1.5
    # ... and the most overgrown ones are when all nodes exceed the user's target by this share. By the first rule
    # alone a unit must double before it is due, and a cut of 50 % would on average be one of 36 %.
    slack: float = 0.02
    # What was said less long ago is not merged.
    min_age_s: float = 0
    # Kinds of facts that stay by themselves.
    never_merged: tuple[FactRole, ...] = ()

    def __post_init__(self) -> None:
        if self.preset not in ("default", "paper"):
            raise InvalidInput('eventtree.preset is "default" or "paper"')
        if self.preset == "paper":
            object.__setattr__(self, "member_caps", ())
            object.__setattr__(self, "time_bonus", 0.0)
            object.__setattr__(self, "budget", "unit")
            object.__setattr__(self, "online", False)
        self._check()

    def _check(self) -> None:
        if not 0 < self.alpha <= 1:
            raise InvalidInput("eventtree.alpha is above 0 and at most 1")
        if not 0 <= self.beta <= 1:
            raise InvalidInput("eventtree.beta is from 0 to 1")
        if self.window < 0:
            raise InvalidInput("eventtree.window is 0 or more positions")
        if not 0 <= self.eta <= 1:
            raise InvalidInput("eventtree.eta is from 0 to 1")
        if not 0 <= self.ratio < 1:
            raise InvalidInput("eventtree.ratio is from 0 to below 1")
        if not (math.isfinite(self.time_bonus) and self.time_bonus >= 0):
            raise InvalidInput("eventtree.time_bonus is 0 or more")
        if any(percent < 0 or cap < 1 for percent, cap in self.member_caps):
            raise InvalidInput("eventtree.member_caps holds pairs of a percentage and a cap of 1 or more")
        if self.budget not in ("user", "unit"):
            raise InvalidInput('eventtree.budget is "user" or "unit"')
        if self.unit_cap < 2:
            raise InvalidInput("eventtree.unit_cap is 2 or more nodes")
        if self.reassign < 0:
            raise InvalidInput("eventtree.reassign is 0 or more units")
        if not (math.isfinite(self.overgrown) and self.overgrown >= 1):
            raise InvalidInput("eventtree.overgrown is 1 or more")
        if not (math.isfinite(self.slack) and self.slack >= 0):
            raise InvalidInput("eventtree.slack is 0 or more")
        if not (math.isfinite(self.min_age_s) and self.min_age_s >= 0):
            raise InvalidInput("eventtree.min_age_s is 0 or more seconds")

    @property
    def member_cap(self) -> int | None:
        """Most members of one group at this ratio: the cap of the next listed ratio; none, no cap."""
        if not self.member_caps:
            return None
        caps = sorted(self.member_caps)
        percent = round(self.ratio * 100, 6)
        return next((cap for upto, cap in caps if percent <= upto), caps[-1][1])

    def with_policy(self, policy: Policy) -> EventTreeParameters:
        """These parameters for a user of that policy. Raises `InvalidInput` when a value is out of range.

        What preset "paper" rules out stays ruled out.
        """
        return replace(
            self,
            online=self.online if policy.online is None else policy.online,
            ratio=self.ratio if policy.ratio is None else policy.ratio / 1000,
            member_caps=self.member_caps if policy.member_cap is None else one_cap(policy.member_cap),
            time_bonus=self.time_bonus if policy.time_bonus is None else policy.time_bonus / 1000,
            min_age_s=self.min_age_s if policy.min_age_s is None else policy.min_age_s,
            never_merged=self.never_merged if policy.never_merged is None else policy.never_merged,
        )

    def unit_count(self, nodes: int) -> int:
        """ceil(alpha N) of Eq. 1."""
        return whole_ceil(self.alpha * nodes)

    def live_target(self, members: int) -> int:
        """How many nodes are left of so many members once the ratio is reached: ceil((1 - ratio) N)."""
        return whole_ceil((1 - self.ratio) * members)


def one_cap(members: int) -> tuple[tuple[int, int], ...]:
    """`member_caps` with the same cap at every ratio; of 0 members: no cap."""
    return ((100, members),) if members else ()


def whole_ceil(amount: float) -> int:
    """Ceiling of a product of decimals: (1 - 0.7) * 10 is 3, though in binary it lies above."""
    return math.ceil(round(amount, 9))
