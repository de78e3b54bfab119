"""What a model is asked for while somebody waits for an answer; nothing of it is recorded in the log."""

from __future__ import annotations

from enum import StrEnum


class QueryTask(StrEnum):
    """A task of a query. It changes no memory, so there is no event of it, unlike of a `Task`."""

    PLAN = "plan"
    RANK = "rank"
    CHECK = "check"
    ANSWER = "answer"
    GRADE = "grade"


class Cap(StrEnum):
    """What whoever asks has set a limit to."""

    CALLS = "calls"
    TOKENS = "tokens"
    TIME = "time"
