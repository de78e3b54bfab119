"""Named points at which a test can kill the process, make it fail or make it wait; nothing happens unless armed.

The daemon arms one point when it starts, from the variable MF_FAULT, and reports that it did (fault matrix,
engineering.md 2; after FoundationDB's BUGGIFY and the kill points of SQLite's own tests).
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from events.errors import InvalidInput

# Every point there is, as `part.moment`; one that the code passes and this does not list cannot be armed.
FAULT_POINTS = (
    "append.before_begin",
    "append.after_insert",
    "append.before_commit",
    "append.after_commit",
    "ingest.before_append",
    "ingest.after_append",
    "ingest.after_ack",
    "answer.before_append",
    "decide.before_append",
    "decide.after_append",
    "merge.before_append",
    "merge.after_append",
    "vectors.before_keep",
    "vectors.after_keep",
    "log.before_checkpoint",
    "erase.before_words",
    "erase.after_slice",
    "erase.before_wal",
    "erase.before_derived",
    "erase.before_tombstone",
    "erase.before_bus",
    "erase.after_bus",
    "erase.before_scan",
    "erase.before_receipt",
)

Deed: TypeAlias = Literal["kill", "raise", "sleep"]


class FaultInjected(sqlite3.OperationalError):
    """What an armed point raises: to everyone else a failure of the disk."""


@dataclass(slots=True)
class Fault:
    """What happens at one point: at its `passing`-th passing, or for `sleep` at each one for `seconds_s`."""

    point: str
    deed: Deed
    passing: int = 1
    seconds_s: float = 0.0
    passed: int = field(default=0, compare=False)

    def meet(self) -> None:
        """The point was passed once more. Raises `FaultInjected` when it is time to."""
        self.passed += 1
        if self.deed == "sleep":
            # Holds the thread on purpose: that is the fault.
            threading.Event().wait(self.seconds_s)
        elif self.passed == self.passing:
            if self.deed == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise FaultInjected(f"armed at {self.point}")


_armed: Fault | None = None


def fault_point(name: str) -> None:
    """A place where tests may break in; costs one look at a global when nothing is armed."""
    if _armed is not None and _armed.point == name:
        _armed.meet()


def arm(specification: str | None) -> Fault | None:
    """Arm `point:kill[:k]`, `point:raise[:k]` or `point:sleep:seconds`; None or "" disarms.

    Raises `InvalidInput` for anything else: a misspelt fault must not pass for a test that went well.
    """
    global _armed
    _armed = None
    if specification:
        _armed = _parse(specification)
    return _armed


def _parse(specification: str) -> Fault:
    point, _, rest = specification.partition(":")
    deed, _, amount = rest.partition(":")
    if point not in FAULT_POINTS:
        raise InvalidInput("MF_FAULT names no point of events/faults.py")
    try:
        match deed:
            case "kill" | "raise":
                passing = int(amount or 1)
                if passing >= 1:
                    return Fault(point, deed, passing=passing)
            case "sleep":
                return Fault(point, deed, seconds_s=float(amount))
            case _:
                pass
    except ValueError:
        pass
    raise InvalidInput(f"MF_FAULT is point:deed[:amount], the deed one of {', '.join(get_args(Deed))}")
