"""When a model has begun to find nothing: the rule of an alarm over its last answers. Pure.

A chunk without facts is an answer like any other, and one that is given up is parked. Many in a row are mostly a
model, a prompt or a JSON mode that went wrong, which nobody would see: every call succeeds and memory stays empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Answers that are looked at, and how few say nothing yet.
RECENT: Final = 100
RECENT_MIN: Final = 20
# The share without facts above which it is an alarm: whatever was before; and when it is so many times as
# large as in the long run, which so many answers must tell.
SHARE_MAX: Final = 0.5
SHARE_RISEN: Final = 0.3
RISEN_TIMES: Final = 2.0
LONG_RUN_MIN: Final = 100
# An alarm ends below this part of where it begins, or it would come and go with every answer.
SETTLED: Final = 0.8


@dataclass(frozen=True, slots=True)
class ZeroFacts:
    """Of how many chunks a model made no fact: among the last ones, and among those before them."""

    recent: int = 0
    recent_zero: int = 0
    before: int = 0
    before_zero: int = 0

    @property
    def share(self) -> float | None:
        """The share among the last answers; None when there are none."""
        return self.recent_zero / self.recent if self.recent else None

    @property
    def share_before(self) -> float | None:
        """The share in the long run; None when too few answers tell."""
        return self.before_zero / self.before if self.before >= LONG_RUN_MIN else None


def count_zero_facts(recent: Sequence[bool], answers: int, zero: int) -> ZeroFacts:
    """`recent`: whether each of the last answers had no fact, at most `RECENT`; `answers`, `zero`: of all."""
    recent_zero = sum(recent)
    return ZeroFacts(len(recent), recent_zero, answers - len(recent), zero - recent_zero)


def is_rising(found: ZeroFacts, was_rising: bool = False) -> bool:
    """Whether it is time to look; an alarm that was on goes off a little later than it came."""
    share, before = found.share, found.share_before
    if share is None or found.recent < RECENT_MIN:
        return False
    part = SETTLED if was_rising else 1.0
    if share > SHARE_MAX * part:
        return True
    return before is not None and share > SHARE_RISEN * part and share > RISEN_TIMES * before * part


def describe(found: ZeroFacts) -> str:
    """The alarm for whoever operates the daemon: what is seen, and where to look."""
    before = "" if found.share_before is None else f", {found.share_before:.0%} before"
    return (
        f"no fact came of {found.recent_zero} of the last {found.recent} chunks{before}: "
        "look at models.chat_model, models.chat_json and models.chat_extra_body, try them with "
        "`memforestd doctor`, and then ask again: with `memforest replay` what was read meanwhile, and with "
        "`memforest parked retry` what was given up"
    )
