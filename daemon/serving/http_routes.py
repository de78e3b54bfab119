"""Which method an HTTP request asks for, and with what parameters: the table of routes and its reading.

Nothing here does input or output. A variable of a path is named as the parameter that it fills; what else a
method takes stands in the query string (GET, DELETE) or in a JSON body (POST, PUT).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args, get_type_hints
from urllib.parse import parse_qsl, unquote

import msgspec

from daemon.serving.http_failures import PathUnknown, TargetMalformed, VerbRefused
from daemon.serving.protocol import ParamsRefused

QUERY_PARAMETERS_MAX = 64  # No method has ten.
# Verbs whose parameters stand in a JSON body; of the others they stand in the query string.
BODY_VERBS = frozenset({"POST", "PUT"})
TEXT = "text/plain; version=0.0.4; charset=utf-8"  # As Prometheus names its exposition format.


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table: `verb` and `path` lead to a method.

    `status` is that of success; `status_of` tells it from the result where it depends on that. `raw` takes the
    answer out of the result where that is no JSON. `streams`: a client may ask for the result as a stream.
    """

    verb: str
    path: str
    method: str
    status: int = 200
    status_of: Callable[[Any], int] | None = None
    raw: Callable[[Any], str] | None = None
    streams: bool = False
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """The path in pieces; those in braces are variables."""
        object.__setattr__(self, "segments", tuple(self.path.split("/")))

    @property
    def variables(self) -> tuple[str, ...]:
        """The parameters that stand in the path."""
        return tuple(segment[1:-1] for segment in self.segments if segment.startswith("{"))

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The variables' values as they stand in a path, or None when this is another path."""
        found: dict[str, str] = {}
        for ours, given in zip(self.segments, segments, strict=True):
            if ours.startswith("{") and given:
                found[ours[1:-1]] = given
            elif ours != given:
                return None
        return found


def _ready_status(readiness: Any) -> int:
    return 200 if readiness.state == "ready" else 503


_USER = "/v1/users/{user_id}"
_SESSION = f"{_USER}/sessions/{{session_id}}"
_FACT = f"{_USER}/facts/{{fact_id}}"
_LETTER = "/v1/dead_letters/{id}"

# What goes over the bus is accepted (202), not done.
ROUTES_LISTED: tuple[Route, ...] = (
    Route("POST", "/v1/query", "query"),
    Route("POST", "/v1/judge", "answers.judge"),
    Route("POST", "/v1/turns", "ingest", status=202),
    Route("GET", "/v1/users", "users.list"),
    Route("DELETE", _USER, "users.forget"),
    Route("GET", f"{_USER}/sessions", "sessions.list"),
    Route("GET", _SESSION, "sessions.get"),
    Route("DELETE", _SESSION, "sessions.forget"),
    Route("GET", f"{_SESSION}/events", "sessions.events", streams=True),
    Route("POST", f"{_SESSION}/close", "sessions.close", status=202),
    Route("POST", f"{_SESSION}/replay", "sessions.replay"),
    Route("DELETE", f"{_SESSION}/turns/{{turn_id}}", "turns.retract", status=202),
    Route("GET", f"{_USER}/facts", "facts.list"),
    Route("GET", _FACT, "facts.get"),
    Route("DELETE", _FACT, "facts.retract"),
    Route("POST", f"{_FACT}/correct", "facts.correct"),
    Route("POST", f"{_FACT}/pin", "facts.pin"),
    Route("GET", f"{_USER}/trees", "trees.list"),
    Route("GET", f"{_USER}/tree", "trees.get"),
    Route("GET", f"{_USER}/units", "units.list"),
    Route("POST", f"{_USER}/units/compact", "units.compact"),
    Route("POST", f"{_USER}/units/undo", "units.undo"),
    Route("GET", f"{_USER}/units/policy", "units.policy"),
    Route("PUT", f"{_USER}/units/policy", "units.set_policy"),
    Route("GET", f"{_USER}/units/merges", "units.merges"),
    Route("GET", f"{_USER}/why/{{memory_id}}", "why"),
    Route("GET", f"{_USER}/digest", "digest"),
    Route("GET", f"{_USER}/diff", "diff"),
    Route("GET", "/v1/dead_letters", "dead_letters.list"),
    Route("GET", _LETTER, "dead_letters.get"),
    Route("POST", f"{_LETTER}/retry", "dead_letters.retry"),
    Route("DELETE", _LETTER, "dead_letters.drop"),
    Route("GET", "/v1/parked", "parked.list"),
    Route("POST", "/v1/parked/retry", "parked.retry"),
    Route("GET", f"{_USER}/parked/{{id}}", "parked.get"),
    Route("GET", "/v1/status", "status"),
    Route("GET", "/metrics", "metrics", raw=lambda metrics: metrics.text),
    Route("GET", "/healthz", "healthz"),
    Route("GET", "/readyz", "readyz", status_of=_ready_status),
    Route("GET", "/openapi.json", "schema"),
)


class Routes:
    """A table of routes, by how many pieces their paths have."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._by_length: dict[int, list[Route]] = {}
        for route in routes:
            self._by_length.setdefault(len(route.segments), []).append(route)

    def find(self, verb: str, target: str) -> tuple[Route, dict[str, str]]:
        """The route of a request and the values in its path. Raises PathUnknown, VerbRefused, TargetMalformed.

        The path is cut before it is decoded, so that an id may have a slash in it (%2F).
        """
        if re.search("%(?![0-9A-Fa-f]{2})", target):
            raise TargetMalformed  # Read as it stands it would name the same as another target does.
        path = _path_of(target)
        segments = path.split("/")
        found: dict[str, tuple[Route, dict[str, str]]] = {}
        for route in self._by_length.get(len(segments), ()):
            values = route.match(segments)
            if values is not None:
                found[route.verb] = (route, values)
        if not found:
            raise PathUnknown
        asked = found.get("GET" if verb == "HEAD" else verb)
        if asked is None:
            raise VerbRefused(tuple(sorted({*found, "HEAD"} if "GET" in found else found)))
        route, values = asked
        return route, {name: _decode(value) for name, value in values.items()}


ROUTES = Routes(ROUTES_LISTED)


def read_query(target: str) -> dict[str, str]:
    """The query string of a target. Raises TargetMalformed; a name that stands there twice is an error, too."""
    _, mark, query = target.partition("?")
    if not mark:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=QUERY_PARAMETERS_MAX)
    except ValueError:
        raise TargetMalformed from None
    values = dict(pairs)
    if len(values) < len(pairs):
        raise TargetMalformed("A parameter stands twice in the query string; give each once.")
    return values


def type_texts(params_type: type[msgspec.Struct], texts: Mapping[str, str]) -> dict[str, object]:
    """Texts of a path or a query string as values: a number or a truth value where no text may stand.

    What does not read so stays a text, which the method's own check then refuses by the parameter's name.
    """
    return {name: _type_text(_kinds_of(params_type).get(name, frozenset()), text) for name, text in texts.items()}


def join_params(*parts: Mapping[str, object]) -> dict[str, object]:
    """The parameters of a request out of path, query string and body. Raises ParamsRefused for one given twice."""
    joined: dict[str, object] = {}
    for part in parts:
        if joined.keys() & part.keys():
            raise ParamsRefused("A parameter stands in more than one place; those of the path only there.")
        joined.update(part)
    return joined


def _path_of(target: str) -> str:
    """The path without the query string; also of `GET http://host/path` (RFC 9112 section 3.2.2)."""
    path = target.partition("?")[0]
    if not path.startswith("/"):
        found = re.fullmatch(r"https?://[^/]*(/.*)?", path, flags=re.IGNORECASE)
        if found is None:
            raise TargetMalformed
        path = found[1] or "/"
    return path


def _decode(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise TargetMalformed from None


@cache
def _kinds_of(params_type: type[msgspec.Struct]) -> dict[str, frozenset[type]]:
    """The types that each parameter may have."""
    hints = get_type_hints(params_type)
    return {name: frozenset(get_args(hint) or (hint,)) for name, hint in hints.items()}


def _type_text(kinds: frozenset[type], text: str) -> object:
    if int in kinds and re.fullmatch(r"-?[0-9]{1,19}", text):
        return int(text)
    if str in kinds:
        return text
    if float in kinds and re.fullmatch(r"-?[0-9]{1,19}(\.[0-9]{1,19})?", text):
        return float(text)
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    return text
