"""The socket's bytes, without the socket: newline JSON-RPC 2.0, and answers into typed records.

Both clients use this, so that there is one reading of the contract (design 4.2).
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import GenericAlias, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from memforest.errors import DaemonError, InvalidInput, ProtocolError, error_from_daemon

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
JsonObject: TypeAlias = dict[str, Any]

# The daemon refuses a longer request line; refusing here names the cause instead of a lost connection.
REQUEST_BYTES_MAX = 1 << 20
# An answer carries k memories or a page of facts; beyond this it is not an answer but a fault.
ANSWER_BYTES_MAX = 64 << 20

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how its result is read; `repeatable` = may be sent again when the line breaks."""

    method: str
    params: JsonObject
    read: Callable[[JsonObject], T]
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    """One line of the daemon: a result or an error, for the request of this id (None: unreadable one)."""

    id: int | None
    result: JsonObject | None = None
    error: DaemonError | None = None

    def unwrap(self) -> JsonObject:
        """The result; raises the daemon's error."""
        if self.error is not None:
            raise self.error
        if self.result is None:
            raise ProtocolError("The daemon's answer has neither a result nor an error.")
        return self.result


def encode_json(value: object) -> bytes:
    """Compact UTF-8 JSON. Raises InvalidInput (which shows nothing of it) for what JSON cannot carry."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError):
        # `from None`: the original names the offending text, and errors end up in logs.
        raise InvalidInput("This cannot be written as JSON in UTF-8.") from None


def decode_json(line: bytes) -> object:
    """The value of strict UTF-8 JSON (no NaN); raises ValueError without the text."""
    try:
        # utf-8-sig: editors on Windows begin a file with a byte order mark.
        return json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ValueError("not JSON in UTF-8") from None


def encode_request(request_id: int, method: str, params: JsonObject) -> bytes:
    """One request line; raises InvalidInput when it is longer than the daemon reads."""
    line = encode_json({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + b"\n"
    if len(line) > REQUEST_BYTES_MAX:
        raise InvalidInput(f"A request has at most {REQUEST_BYTES_MAX} bytes, this one has {len(line)}.")
    return line


def decode_response(line: bytes) -> Response:
    """One response line; raises ProtocolError when it is none."""
    try:
        value = decode_json(line)
    except ValueError:
        raise ProtocolError("The daemon answered something that is not JSON.") from None
    if not isinstance(value, dict):
        raise ProtocolError
    answer = cast("JsonObject", value)
    request_id: object = answer.get("id")
    if request_id is not None and type(request_id) is not int:
        raise ProtocolError("The daemon answered with an id we never gave.")
    if (error := answer.get("error")) is not None:
        return Response(request_id, error=_decode_error(error))
    result = answer.get("result")
    if not isinstance(result, dict):
        raise ProtocolError("The daemon's result is not an object.")
    return Response(request_id, result=cast("JsonObject", result))


def given(**params: Any) -> JsonObject:
    """The parameters that were given; None means the daemon's own default."""
    return {name: value for name, value in params.items() if value is not None}


def read_as(shape: type[T], value: object) -> T:
    """`value` (decoded JSON) as the dataclass `shape`.

    Unknown fields are ignored, a missing field takes its default; raises ProtocolError naming the
    place, never the content, when one does not fit.
    """
    return cast("T", _read(shape, value, shape.__name__.lower()))


def read_all(shape: type[T], value: object) -> tuple[T, ...]:
    """A JSON list as records of one shape; raises ProtocolError like `read_as`."""
    return cast(
        "tuple[T, ...]", _read(GenericAlias(tuple, (shape, ...)), value, f"list of {shape.__name__.lower()}")
    )


def _decode_error(error: object) -> DaemonError:
    if not isinstance(error, dict):
        raise ProtocolError("The daemon's error is not an object.")
    body = cast("JsonObject", error)
    about: object = body.get("data")
    code = cast("JsonObject", about).get("code") if isinstance(about, dict) else None
    message: object = body.get("message")
    number: object = body.get("code")
    return error_from_daemon(
        code if isinstance(code, str) else "internal",
        message if isinstance(message, str) else None,
        number if isinstance(number, int) else 0,
    )


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


@cache
def _shape_of(shape: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it must be there, of each field."""
    hints = get_type_hints(shape)
    return tuple(
        (f.name, hints[f.name], f.default is MISSING and f.default_factory is MISSING)
        for f in fields(cast("Any", shape))
    )


def _read(hint: Any, value: Any, place: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _read_union(hint, value, place)
    if origin is tuple and isinstance(value, list):
        inner = get_args(hint)[0]
        return tuple(_read(inner, item, f"{place}[{i}]") for i, item in enumerate(cast("list[object]", value)))
    if origin is dict and isinstance(value, dict):
        return cast("JsonObject", value)
    if is_dataclass(hint) and isinstance(value, dict):
        return _read_record(cast("type", hint), cast("JsonObject", value), place)
    if hint is datetime:
        return _read_time(value, place)
    if hint is float and type(value) in (int, float):
        return float(value)
    if hint in (str, int, bool, NoneType) and type(value) is hint:
        return value
    raise ProtocolError(f"The daemon's answer has no valid {place}.")


def _read_union(hint: Any, value: Any, place: str) -> Any:
    for option in get_args(hint):
        try:
            return _read(option, value, place)
        except ProtocolError:
            continue
    raise ProtocolError(f"The daemon's answer has no valid {place}.")


def _read_record(shape: type, value: JsonObject, place: str) -> Any:
    present: JsonObject = {}
    for name, hint, required in _shape_of(shape):
        if name in value:
            present[name] = _read(hint, value[name], f"{place}.{name}")
        elif required:
            raise ProtocolError(f"The daemon's answer has no {place}.{name}.")
    return shape(**present)


def _read_time(value: Any, place: str) -> datetime:
    """ISO 8601, or whole milliseconds since 1970 as the log keeps them; without a zone it is UTC."""
    try:
        if type(value) is int:
            return _EPOCH + timedelta(milliseconds=value)
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError):
        raise ProtocolError(f"The daemon's answer has no valid {place}.") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
