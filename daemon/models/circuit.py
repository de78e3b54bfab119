"""When a model's endpoint is asked again: pauses between the attempts of one call, and a circuit over all calls.

Pure: instants are seconds of a clock that only moves forward, and chance is handed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

# Attempts of one call: with the pauses below the last one is a few seconds after the first.
ATTEMPTS_MAX: Final = 4
FIRST_PAUSE_S: Final = 0.25
PAUSE_MAX_S: Final = 8.0
# How long a server may tell us to wait; more is not believed, for a mistyped header must not silence us for days.
RETRY_AFTER_MAX_S: Final = 120.0
# Calls in a row that came to nothing before the circuit opens, and how long it stays open, doubling each time.
FAILURES_MAX: Final = 3
OPEN_S: Final = 5.0
OPEN_MAX_S: Final = 120.0


def choose_pause(attempt: int, chance: float, asked_s: float | None = None) -> float:
    """Seconds before the attempt after number `attempt` (from 1): what the server asked for, or full jitter.

    `chance` is from 0 to 1. Full jitter: whoever failed together does not come back together (AWS Architecture
    Blog, "Exponential Backoff And Jitter").
    """
    if asked_s is not None:
        return asked_s
    return chance * min(PAUSE_MAX_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1))


def read_retry_after(header: str | None, now_epoch_s: float) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3: seconds or a date); None for anything else."""
    if header is None:
        return None
    try:
        wait_s = float(header)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(header).timestamp() - now_epoch_s
        except (ValueError, OverflowError):
            return None
    return min(wait_s, RETRY_AFTER_MAX_S) if wait_s >= 0 and math.isfinite(wait_s) else None


@dataclass(slots=True)
class Circuit:
    """Whether calls are let through. It opens after some that failed in a row, and then lets one try at a time."""

    failures: int = 0
    # Why the last call failed; None after one that did not.
    reason: str | None = None
    _open_until: float = 0.0
    _open_s: float = OPEN_S

    @property
    def is_closed(self) -> bool:
        """Whether all calls are let through."""
        return self.failures < FAILURES_MAX

    def lets_through(self, now: float) -> bool:
        """Whether a call may go out now. The one that may try an open circuit puts off the next, twice as far."""
        if self.is_closed:
            return True
        if now < self._open_until:
            return False
        self._open_s = min(OPEN_MAX_S, self._open_s * 2)
        self._open_until = now + self._open_s
        return True

    def note_success(self) -> None:
        """A call was answered."""
        self.failures, self.reason, self._open_s = 0, None, OPEN_S

    def note_failure(self, reason: str, now: float, wait_s: float | None = None) -> None:
        """A call came to nothing after its last attempt. `wait_s`: the server said when to come again."""
        self.failures += 1
        self.reason = reason
        if wait_s is not None:
            self.failures = max(self.failures, FAILURES_MAX)
            self._open_until = max(self._open_until, now + wait_s)
        if (
            self.failures == FAILURES_MAX
        ):  # later ones were under way already, or are the try that an open one gets
            self._open_until = max(self._open_until, now + self._open_s)
