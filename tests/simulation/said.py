"""What was said, kept as simply as can be: an oracle for the texts of chunks after edits, and what must be gone.

Every wording has a word of its own, by which it is found again in answers and files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.world import PARAMETERS

_MARK = re.compile(r"wq[a-z]+\d+qx\d+r\d+w")


@dataclass
class Session:
    """The turns of a session by number: their wordings by revision, and the chunks as lists of numbers."""

    wordings: dict[int, dict[int, str]] = field(default_factory=dict[int, dict[int, str]])
    # What came under a known key with other content.
    conflicting: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    retracted: set[int] = field(default_factory=set[int])
    closed: list[list[int]] = field(default_factory=list[list[int]])
    open: list[int] = field(default_factory=list[int])

    def take(self, number: int, revision: int, line: str) -> None:
        """A wording that was recorded; the first one of a turn gives it its place."""
        if number not in self.wordings:
            self.open.append(number)
        self.wordings.setdefault(number, {})[revision] = line
        if len(self.open) == PARAMETERS.chunk_turns:
            self.close()

    def close(self) -> None:
        """The open chunk ends, if there is one."""
        if self.open:
            self.closed.append(self.open)
            self.open = []

    def texts(self) -> list[str]:
        """The chunks in order, without those of which nothing stands."""
        chunks = [[self.line(number) for number in chunk] for chunk in (*self.closed, self.open)]
        return ["\n".join(standing) for lines in chunks if (standing := [line for line in lines if line])]

    def line(self, number: int) -> str | None:
        """What a turn says now."""
        if number in self.retracted or number not in self.wordings:
            return None
        return self.wordings[number][max(self.wordings[number])]

    def gone(self) -> Iterator[str]:
        """Marks of what was retracted: in no file."""
        for number in self.retracted & self.wordings.keys():
            lines = [*self.wordings[number].values(), *self.conflicting.get(number, [])]
            yield from (mark for line in lines for mark in _MARK.findall(line))

    def superseded(self) -> Iterator[str]:
        """Marks of older wordings: history, but in no Memory."""
        for number, wordings in self.wordings.items():
            last = max(wordings)
            for revision, line in wordings.items():
                if revision != last or number in self.retracted:
                    yield from _MARK.findall(line)


def mark_of(session_id: str, number: int, revision: int) -> str:
    """A word that only this wording says."""
    return f"w{session_id}x{number}r{revision}w"
