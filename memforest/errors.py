"""Every error this package raises: one base class with a `code`, the docstring as the message.

The codes are those of the socket (invalid, not_found, conflict, unavailable, busy, internal), so a
caller needs one table only, whoever found the fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path


class MemForestError(Exception):
    """Something went wrong between this program and the daemon."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str | None = None) -> None:
        """The class's docstring is the message unless a better one is given. Never a stored word."""
        super().__init__(message or (self.__doc__ or "").strip())


class InvalidInput(MemForestError):
    """What was handed in does not have the form that is asked for; nothing was sent."""

    code = "invalid"


class ProtocolError(MemForestError):
    """The daemon's answer is not what the socket's contract says; are both of one version?"""


class DaemonUnreachable(MemForestError):
    """No daemon answers on the socket."""

    code = "unavailable"

    @classmethod
    def at(cls, path: Path, error: OSError) -> DaemonUnreachable:
        """The sentence for a socket that cannot be opened: what is wrong, and what to do about it."""
        if isinstance(error, PermissionError):
            return cls(
                f"The socket {path} may not be opened by this user. "
                "Run as the daemon's user, or set its `socket.mode` and group."
            )
        return cls(
            f"No daemon answers on {path}. Start one with `memforestd run`, "
            "or name its socket with --socket or MEMFOREST_SOCKET_PATH."
        )


class ConnectionLost(DaemonUnreachable):
    """The daemon closed the connection before it answered; a write may or may not have been done."""


class AnswerOverdue(DaemonUnreachable):
    """The daemon did not answer in time; it may still be at work on the request."""


class DaemonError(MemForestError):
    """The daemon answered with an error."""

    def __init__(self, message: str | None = None, rpc_code: int = 0) -> None:
        """Keep the JSON-RPC number beside the sentence of the daemon."""
        super().__init__(message)
        self.rpc_code = rpc_code


class RequestInvalid(DaemonError):
    """The daemon cannot read the request."""

    code = "invalid"


class NotFound(DaemonError):
    """The daemon knows nothing of this name."""

    code = "not_found"


class Conflict(DaemonError):
    """The request contradicts what the daemon has already recorded."""

    code = "conflict"


class Unavailable(DaemonError):
    """The daemon cannot do this now; `memforest status` says what it waits for."""

    code = "unavailable"


class Busy(DaemonError):
    """The daemon has too much in flight; ask again in a moment."""

    code = "busy"


_BY_CODE: dict[str, type[DaemonError]] = {
    kind.code: kind for kind in (RequestInvalid, NotFound, Conflict, Unavailable, Busy)
}


def error_from_daemon(code: str, message: str | None, rpc_code: int) -> DaemonError:
    """The exception for one error object of the socket; a code of a later version is a `DaemonError`."""
    return _BY_CODE.get(code, DaemonError)(message, rpc_code)
