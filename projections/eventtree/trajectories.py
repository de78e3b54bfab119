"""Trajectories: the ended states of one chain in order, as one group ("Boston, then Davis, then Miami").

What held one after the other is merged with nothing else: a group of three homes and a dog would hold at no time.
The state that holds now stays a fact by itself; once it ends, it joins the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from events.memory import FactId
from projections.eventtree.units import make_group_id

# A state that ends has its trajectory fused again, with all that is in it. The widest group that was measured has
# as many members (quality.md 2); what a model reads at once, and what is paid again, stays within it.
TRAJECTORY_MAX: Final = 8


def plan_trajectories(
    chains: Iterable[Sequence[FactId]], standing: Collection[bytes] = (), cap: int = TRAJECTORY_MAX
) -> list[tuple[FactId, ...]]:
    """The groups that are to be made of ended states; `chains` has those of each chain in order.

    A long chain is cut from its beginning, so that what is full stays as it is while the chain goes on. A state
    alone is no group, and those whose ids are `standing` are there. Raises ValueError for a cap below 2.
    """
    if cap < 2:
        raise ValueError("a trajectory has two states at least")
    runs = (tuple(ended[at : at + cap]) for ended in chains for at in range(0, len(ended), cap))
    return [run for run in runs if len(run) > 1 and make_group_id(run) not in standing]
