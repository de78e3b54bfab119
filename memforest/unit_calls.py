"""The methods of the socket about EventTree units, as `calls` has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memforest.structures import Compaction, CompactionPolicy, MergedPage, Undone, Units
from memforest.wire import Call, JsonObject, given, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence


def units(user_id: str, *, limit: int | None = None, after: str | None = None) -> Call[Units]:
    """A page of this user's units with their groups: the EventTree structure (paper A)."""
    params = given(user_id=user_id, limit=limit, after=after)
    return Call("units.list", params, lambda result: read_as(Units, result))


def compact(
    user_id: str, ratio: float | None = None, *, dry_run: bool = False, reindex: bool = False
) -> Call[Compaction]:
    """Merge EventTree nodes until the share `ratio` (0 to below 1) of them is gone (paper A).

    Without a ratio that of the user's policy counts. A dry run only tells what it would do and take. With
    `reindex` the units are made anew first. It returns when all is done; interrupted, the next one goes on.
    """
    params = given(user_id=user_id, ratio=ratio, dry_run=dry_run or None, reindex=reindex or None)
    return Call("units.compact", params, lambda result: read_as(Compaction, result), repeatable=False)


def undo_compaction(user_id: str, groups: Sequence[str] | None = None) -> Call[Undone]:
    """Take groups (by id) apart again, or all of them: their facts are searched by themselves at once.

    They are kept apart until a compaction is asked for. The daemon raises NotFound for a group that is not there.
    """
    params = given(user_id=user_id, groups=None if groups is None else list(groups))
    return Call("units.undo", params, lambda result: read_as(Undone, result), repeatable=False)


def policy(user_id: str) -> Call[CompactionPolicy]:
    """How far this user's memory is compressed."""
    return Call("units.policy", {"user_id": user_id}, lambda result: read_as(CompactionPolicy, result))


def set_policy(
    user_id: str,
    *,
    online: bool | None = None,
    ratio: float | None = None,
    member_cap: int | None = None,
    time_bonus: float | None = None,
    min_age_s: float | None = None,
    never_merged: Sequence[str] | None = None,
    reset: bool = False,
) -> Call[CompactionPolicy]:
    """Say how far this user's memory is compressed; what is not given stays as it is.

    `online` has it compressed in the background as it grows, `ratio` is the share of nodes that goes,
    `member_cap` the most facts of a group (0: no cap), `time_bonus` what nearness in time counts for, `min_age_s`
    how old a fact must be, `never_merged` the kinds of facts that stay by themselves. With `reset` all is the
    daemon's again first.
    """
    params: JsonObject = given(
        user_id=user_id,
        online=online,
        ratio=ratio,
        member_cap=member_cap,
        time_bonus=time_bonus,
        min_age_s=min_age_s,
        never_merged=None if never_merged is None else list(never_merged),
        reset=reset or None,
    )
    return Call("units.set_policy", params, lambda result: read_as(CompactionPolicy, result), repeatable=False)


def merges(
    user_id: str, *, limit: int | None = None, after: int | None = None, extractive: bool = False
) -> Call[MergedPage]:
    """A page of this user's groups with their members' texts, oldest first: what a merge model learns from.

    Only texts that a model wrote, unless `extractive`. It is what people said: treat it as such.
    """
    params = given(user_id=user_id, limit=limit, after=after, extractive=extractive or None)
    return Call("units.merges", params, lambda result: read_as(MergedPage, result))
