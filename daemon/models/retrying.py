"""When a request is sent again: pauses between the attempts of a call, and a budget over all calls.

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
# Retries for each call in the long run, and how many may be saved up: an endpoint in trouble gets a fifth more
# requests and not four times as many (SRE book, chapter 21, "Client-Side Throttling").
RETRIES_PER_CALL: Final = 0.2
RETRIES_SAVED_MAX: Final = 10.0


def choose_pause(attempt: int, chance: float) -> float:
    """Seconds before the attempt after number `attempt` (from 1), with full jitter. `chance` is from 0 to 1.

    Full jitter: whoever failed together does not come back together (AWS Architecture Blog, "Exponential Backoff
    And Jitter").
    """
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
class RetryBudget:
    """How many retries an endpoint may still get. Each call adds a share of one, up to a bound."""

    saved: float = RETRIES_SAVED_MAX
    saved_max: float = RETRIES_SAVED_MAX

    def note_call(self) -> None:
        """A call begins."""
        self.saved = min(self.saved_max, self.saved + RETRIES_PER_CALL)

    def take(self) -> bool:
        """Whether one more retry may be sent; if so, it is counted."""
        if self.saved < 1.0:
            return False
        self.saved -= 1.0
        return True
