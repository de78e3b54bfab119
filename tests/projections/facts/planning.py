"""What a plan makes of readings that are all here at once; the daemon takes the same steps one by one."""

from __future__ import annotations

from collections.abc import Collection

from events.envelope import Reference
from events.memory import FactId, FactsAdmitted, Pointer
from projections.facts.admission import plan_admissions
from projections.facts.canonical import Canon, Pair
from projections.facts.near import Nearness, find_candidates


def plan_near(canon: Canon, nearness: Nearness | None) -> list[tuple[FactsAdmitted, frozenset[Reference]]]:
    """The admissions of what waits, with what is near by these readings; None: exact duplicates only."""
    links = None if nearness is None else find_candidates(canon, nearness.fresh).link(nearness)
    return plan_admissions(canon, 1, links)


def wanted_readings(canon: Canon, fresh: Collection[FactId] = ()) -> tuple[Pointer, ...]:
    """The readings that decide what is admitted next."""
    return find_candidates(canon, fresh).wanted()


def pairs_to_judge(canon: Canon, nearness: Nearness) -> tuple[Pair, ...]:
    """The pairs that a model is to be asked about, in the order of the log."""
    return tuple(sorted(find_candidates(canon, nearness.fresh).link(nearness).unjudged))
