"""What can be wrong with an HTTP request as such, and how any error is said in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import h11
import msgspec

from daemon.serving import protocol
from daemon.serving.protocol import ProtocolError
from events.errors import MemForestError

JSON = "application/json"
# Statuses of HTTP by the code of an error (design 4.2). The daemon as a whole is `busy`, not one client: no 429.
STATUSES: Mapping[str, int] = {
    "invalid": 400,
    "not_found": 404,
    "conflict": 409,
    "internal": 500,
    "unavailable": 503,
    "busy": 503,
}
RETRY_AFTER_S = 1

Headers: TypeAlias = list[tuple[str, str]]


class HttpError(ProtocolError):
    """What came is no HTTP/1.1 request; send one with a Host header and sound framing."""

    status: ClassVar[int] = 400


class PathUnknown(MemForestError):
    """There is nothing at this path; GET /openapi.json on the Unix socket lists what there is."""

    code = "not_found"


class VerbRefused(HttpError):
    """This path takes other HTTP methods, those of the Allow header."""

    status = 405

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__(f"This path takes {', '.join(allowed)} only.")
        self.allowed = allowed


class TargetMalformed(HttpError):
    """The path or the query string is not UTF-8, percent-encoded where it must be; encode it anew."""


class BodyUnreadable(HttpError):
    """The body is not a JSON object in UTF-8; send the parameters as one, without a byte order mark."""


class BodyNotWanted(HttpError):
    """GET and DELETE take no body; send the parameters in the query string."""


class TooSlow(HttpError):
    """The rest of the request did not come in time; send it in one go. The connection is closed."""

    status = 408


class BodyTooLarge(HttpError):
    """The body is larger than a request may be; send less in one request."""

    status = 413


class BodyNotJson(HttpError):
    """A body is JSON here; send it with Content-Type: application/json."""

    status = 415


class HeadTooLarge(HttpError):
    """The request line and the headers are larger than they may be; send what is long in the body."""

    status = 431


class CodingUnknown(HttpError):
    """The body comes in a transfer coding that is not taken here; send it plain or chunked."""

    status = 501


class Wrong(msgspec.Struct, frozen=True):
    """What is wrong: a code for programs, a sentence for people."""

    code: str
    message: str


class Failure(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Wrong


def explain(error: h11.RemoteProtocolError) -> HttpError:
    """Bytes that h11 refused, in words of ours: its own quote what came."""
    match error.error_status_hint:
        case 431:
            return HeadTooLarge()
        case 501:
            return CodingUnknown()
        case _:
            return HttpError()


def encode_failure(error: Exception) -> bytes:
    """The body of an error."""
    return protocol.encode(Failure(Wrong(protocol.code_of(error), protocol.sentence_of(error))))


def failure_of(error: Exception) -> tuple[int, bytes, Headers]:
    """Status, body and headers of an error."""
    code = protocol.code_of(error)
    headers: Headers = [("Content-Type", JSON)]
    if code == "busy":
        headers.append(("Retry-After", str(RETRY_AFTER_S)))
    if isinstance(error, VerbRefused):
        headers.append(("Allow", ", ".join(error.allowed)))
    status = error.status if isinstance(error, HttpError) else STATUSES[code]
    return status, encode_failure(error), headers
