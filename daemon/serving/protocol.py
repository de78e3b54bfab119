"""The words spoken on the socket: newline-delimited JSON-RPC 2.0, without any input or output.

Bytes become lines, lines become requests or refusals, results and errors become answers. Nothing here
awaits, so the same framing is tested without a socket. Of two equal keys in one object the last one
counts (RFC 8259 section 4); there is one decoder in this process, so no two parts can read it differently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

import msgspec

from daemon.untrusted import nests_too_deep, reason_without_values
from events.errors import MemForestError

BATCH_REQUESTS_MAX = 64  # Twice what one connection may have in flight; more is better sent as lines.
NESTING_MAX = 100  # No method needs ten; far below the interpreter's own limit, which differs by version.

# JSON-RPC 2.0 section 5.1 reserves -32000..-32099 for the server. `data.code` is the one to decide on.
#   -32700 invalid    the line is not JSON           -32000 busy         too much in flight, ask again
#   -32600 invalid    not a JSON-RPC 2.0 request     -32001 not_found    no such user, session, fact
#   -32601 not_found  no such method                 -32002 conflict     the state forbids it
#   -32602 invalid    parameters do not fit          -32003 unavailable  not now, or not in time
#   -32603 internal   our fault; the log says what
RPC_CODES: Mapping[str, int] = {
    "invalid": -32602,
    "internal": -32603,
    "busy": -32000,
    "not_found": -32001,
    "conflict": -32002,
    "unavailable": -32003,
}
INTERNAL_SENTENCE = "Something went wrong inside the daemon; look at its log."

# An id is written back, so it is small, and a number that every JSON reader has.
RequestId: TypeAlias = (
    Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    | float
    | Annotated[str, msgspec.Meta(max_length=256)]
    | None
)


class ProtocolError(MemForestError):
    """The line cannot be served as it stands."""

    code = "invalid"
    rpc_code: ClassVar[int] = RPC_CODES["invalid"]


class LineUnreadable(ProtocolError):
    """The line is not JSON in UTF-8; send one JSON-RPC 2.0 request a line, without a byte order mark."""

    rpc_code = -32700


class LineTooLong(ProtocolError):
    """The line is longer than the socket takes and was thrown away; send less in one request."""

    rpc_code = -32600


class LineTooSlow(ProtocolError):
    """The rest of the line did not come in time; send a request in one go. The connection is closed."""

    rpc_code = -32600


class RequestMalformed(ProtocolError):
    """This is not a JSON-RPC 2.0 request; send an object with jsonrpc, id, method and params."""

    rpc_code = -32600


class ParamsRefused(ProtocolError):
    """The parameters do not fit the method."""


class MethodUnknown(ProtocolError):
    """There is no such method; the README lists those that exist."""

    code = "not_found"
    rpc_code = -32601


@dataclass(frozen=True, slots=True)
class Method:
    """One entry of the table: what it takes, what it does, whether it changes anything, and its time.

    `call` is handed a `params_type`. A query (`write` false) is cancelled when its client goes away,
    a write is not: whoever asked may have left because the daemon seemed slow, and still wants it done.
    `more_s`: how much longer it may take with such parameters, as where a model is waited for.
    """

    params_type: type[msgspec.Struct]
    call: Callable[[Any], Awaitable[object]]
    write: bool
    deadline_s: float
    more_s: Callable[[Any], float] = lambda _: 0.0

    def __post_init__(self) -> None:
        """Raises ValueError: a misspelt parameter would be taken for a missing one, and never noticed."""
        if not self.params_type.__struct_config__.forbid_unknown_fields:
            raise ValueError(f"{self.params_type.__name__} must forbid unknown fields")
        if not self.deadline_s > 0:
            raise ValueError("a method needs a positive deadline")


Handlers: TypeAlias = Mapping[str, Method]


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `params` is as it came; `read_params` gives it its type."""

    id: RequestId
    method: str
    params: object
    is_notification: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """What stands in the place of a request that could not be read; `id` is null where none was found."""

    id: RequestId
    error: ProtocolError


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request as JSON-RPC 2.0 section 4 has it."""

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] | list[Any] = {}
    id: RequestId | msgspec.UnsetType = msgspec.UNSET


class _Answer(msgspec.Struct, frozen=True):
    """A result as JSON-RPC 2.0 section 5 has it."""

    id: RequestId
    result: object
    jsonrpc: str = "2.0"


class _ErrorCode(msgspec.Struct, frozen=True):
    """`error.data`: the code that a program decides on."""

    code: str


class _ErrorBody(msgspec.Struct, frozen=True):
    """`error`: section 5.1."""

    code: int
    message: str
    data: _ErrorCode


class _Failure(msgspec.Struct, frozen=True):
    """An error answer."""

    id: RequestId
    error: _ErrorBody
    jsonrpc: str = "2.0"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def decode_line(line: bytes) -> Request | Refused | tuple[Request | Refused, ...]:
    """One line: a request, why it is none, or a batch (section 6) of both. Never raises for any bytes."""
    try:
        message = decode(line)
    except LineUnreadable as error:
        return Refused(None, error)
    if not isinstance(message, list):
        return _read_request(message)
    if not 1 <= len(message) <= BATCH_REQUESTS_MAX:
        return Refused(None, RequestMalformed(f"A batch holds 1 to {BATCH_REQUESTS_MAX} requests; split it."))
    return tuple(_read_request(member) for member in message)


def decode(text: bytes) -> object:
    """The value that a JSON text holds. Raises LineUnreadable."""
    try:
        value = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise LineUnreadable from None
    if nests_too_deep(text, value, NESTING_MAX):
        raise LineUnreadable(f"The line nests deeper than {NESTING_MAX} levels; flatten it.")
    return value


def encode(value: object) -> bytes:
    """A value as JSON. Raises TypeError, ValueError, OverflowError or RecursionError."""
    return _encoder.encode(value)


def read_params(name: str, given: object, method: Method) -> msgspec.Struct:
    """Parameters in their method's own type. Raises ParamsRefused, which names the place, not the value."""
    if not isinstance(given, dict):
        raise ParamsRefused("Parameters have names here; send params as an object, not as an array.")
    try:
        return msgspec.convert(given, method.params_type)
    except msgspec.ValidationError as error:
        raise ParamsRefused(f"{reason_without_values(error)}; correct the parameters of `{name}`.") from None


def encode_result(request_id: RequestId, result: object) -> bytes:
    """The answer, without the newline. Raises TypeError, ValueError, OverflowError or RecursionError."""
    # A document that was encoded before may be laid out for people; inside of texts JSON has no newline.
    return _encoder.encode(_Answer(request_id, result)).replace(b"\n", b" ")


def encode_error(request_id: RequestId, error: Exception) -> bytes:
    """The error answer, without the newline. What is not a MemForestError is `internal` and says nothing."""
    code = code_of(error)
    number = error.rpc_code if isinstance(error, ProtocolError) else RPC_CODES[code]
    return _encoder.encode(_Failure(request_id, _ErrorBody(number, sentence_of(error), _ErrorCode(code))))


def code_of(error: Exception) -> str:
    """The code by which a program decides: that of an error of ours, `internal` for any other."""
    return error.code if isinstance(error, MemForestError) and error.code in RPC_CODES else "internal"


def sentence_of(error: Exception) -> str:
    """What is wrong and what to do about it, for people; nothing of an error that is not ours."""
    if not isinstance(error, MemForestError) or error.code not in RPC_CODES:
        return INTERNAL_SENTENCE
    # A path in a sentence of ours may hold bytes that are not UTF-8, as surrogates.
    return str(error).encode("utf-8", "replace").decode("utf-8")


class BatchAnswer:
    """Collects the answers of one batch, in the order in which they are ready (section 6 allows any)."""

    def __init__(self, requests: int) -> None:
        self._missing = requests
        self._answers: list[bytes] = []

    def add(self, answer: bytes | None) -> bytes | None:
        """Take one answer (None for a notification); the whole batch's answer when this was the last."""
        self._missing -= 1
        if answer is not None:
            self._answers.append(answer)
        if self._missing or not self._answers:
            return None
        return b"[" + b",".join(self._answers) + b"]"


def _read_request(message: object) -> Request | Refused:
    try:
        envelope = msgspec.convert(message, _Envelope)
    except msgspec.ValidationError as error:
        reason = f"This is not a JSON-RPC 2.0 request: {reason_without_values(error)}; correct it."
        return Refused(_find_id(message), RequestMalformed(reason))
    if envelope.id is msgspec.UNSET:
        return Request(None, envelope.method, envelope.params, is_notification=True)
    return Request(envelope.id, envelope.method, envelope.params, is_notification=False)


def _find_id(message: object) -> RequestId:
    """The id of a request that is wrong elsewhere, so that the caller can tell which one it was."""
    if not isinstance(message, dict):
        return None
    try:
        found: RequestId = msgspec.convert(cast("dict[str, Any]", message).get("id"), RequestId)
    except msgspec.ValidationError:
        return None
    return found
