"""Dead letters as the daemon tells of them: messages that it could not decode."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message the daemon could not decode, and why; its content comes with `LetterContent`."""

    id: int
    received_at: datetime
    subject: str
    reason: str
    bytes: int
    stream: str
    seq: int
    user_id: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class LetterPage:
    """A page of dead letters; `next` is the `after` of the next page, None on the last one."""

    dead_letters: tuple[DeadLetter, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class LetterContent:
    """A dead letter whole; `encoding` of its payload is utf-8 or base64."""

    letter: DeadLetter
    encoding: str
    payload: str


@dataclass(frozen=True, slots=True)
class LetterRetried:
    """What became of a dead letter: turns recorded now, and others (known, or of a forgotten session)."""

    id: int
    recorded: int
    other: int


@dataclass(frozen=True, slots=True)
class LetterDropped:
    """The id of a dead letter that is gone."""

    dropped: int
