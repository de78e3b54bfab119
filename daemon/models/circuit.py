"""Whether an endpoint is asked at all: a circuit over all its calls, which opens after some that failed in a row.

Pure: instants are seconds of a clock that only moves forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# Calls in a row that came to nothing before the circuit opens, and how long it stays open, doubling each time. The
# most is how long a server that is back may stand idle: one call in 20 s is a burden to nobody.
FAILURES_MAX: Final = 3
OPEN_S: Final = 5.0
OPEN_MAX_S: Final = 20.0


@dataclass(slots=True)
class Circuit:
    """Whether calls are let through. It opens after some that failed in a row, and then lets one try at a time.

    `open_s`: how long it stays open at first.
    """

    open_s: float = OPEN_S
    failures: int = field(default=0, init=False)
    # Why the last call failed; None after one that did not.
    reason: str | None = field(default=None, init=False)
    _open_until: float = field(default=0.0, init=False)
    _open_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Closed."""
        self._open_s = self.open_s

    @property
    def is_closed(self) -> bool:
        """Whether all calls are let through."""
        return self.failures < FAILURES_MAX

    def retry_in_s(self, now: float) -> float:
        """Seconds until the next try may go out; 0 when one may now."""
        return 0.0 if self.is_closed else max(0.0, self._open_until - now)

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
        self.failures, self.reason, self._open_s = 0, None, self.open_s

    def note_failure(self, reason: str, now: float, wait_s: float | None = None) -> None:
        """A call came to nothing after its last attempt. `wait_s`: the server said when to come again."""
        self.failures += 1
        self.reason = reason
        if wait_s is not None:
            self.failures = max(self.failures, FAILURES_MAX)
            self._open_until = max(self._open_until, now + wait_s)
        # Later ones were under way already, or are the try that an open one gets.
        if self.failures == FAILURES_MAX:
            self._open_until = max(self._open_until, now + self._open_s)
