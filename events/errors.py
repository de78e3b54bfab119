"""The one base class of every error a caller may see, and the errors of the log."""

from __future__ import annotations

from typing import ClassVar


class MemForestError(Exception):
    """Something went wrong inside the daemon; its log says what."""

    # One of {invalid, not_found, conflict, unavailable, busy, internal} (design 4.2).
    code: ClassVar[str] = "internal"

    def __init__(self, message: str | None = None) -> None:
        """The class's docstring is the message unless a better one is given. Never a stored word."""
        super().__init__(message or (self.__doc__ or "").strip())


class InvalidInput(MemForestError):
    """The input does not have the form that is asked for."""

    code = "invalid"


class StoreUnusable(MemForestError):
    """The data directory cannot be used."""

    code = "unavailable"

    def __init__(self, message: str | None = None, reason: str = "unusable") -> None:
        """`reason` is one of those in events/database.py: words that stay, for `status` and for decisions."""
        super().__init__(message)
        self.reason = reason


class StoreIsNewer(StoreUnusable):
    """The store was written by a newer release; install that release."""


class LogClosed(MemForestError):
    """The log is closed; the daemon is stopping."""

    code = "unavailable"


class StaleDecision(MemForestError):
    """Facts, scopes or units changed after this was planned; plan it again from the present state."""

    code = "conflict"


class LogDamaged(MemForestError):
    """An event in the log does not match its chain."""

    code = "internal"
