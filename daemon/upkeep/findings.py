"""What `memforestd doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `level` is ok, warning or error.

    `mend` says what to do, as a command where there is one; `why` what happens if nobody does.
    """

    level: str
    subject: str
    sentence: str
    mend: str = ""
    why: str = ""
