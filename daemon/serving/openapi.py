"""The OpenAPI 3.1 document of the HTTP side, made from the routes, the methods and the types in their signatures.

Nothing in it is written by hand twice: parameters and results are what the code takes and returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import chain
from types import UnionType
from typing import Any, TypeAlias, get_args, get_type_hints

import msgspec

from daemon.serving.handlers import METHODS, Answering, make_handlers
from daemon.serving.http_failures import JSON, Failure
from daemon.serving.http_routes import BODY_VERBS, ROUTES_LISTED, TEXT, Route
from daemon.serving.http_stream import EVENT_STREAM, NDJSON
from daemon.serving.protocol import Handlers

JsonObject: TypeAlias = dict[str, Any]

# What every route may answer besides success, by status (daemon/serving/http_failures.py).
FAILURES: Mapping[str, str] = {
    "400": "The request is not one that can be served (`invalid`); also 405, 408, 413, 415, 431 and 501.",
    "404": "There is no such user, session, fact or path (`not_found`).",
    "409": "The state forbids it (`conflict`).",
    "500": "Our fault; the daemon's log says what (`internal`).",
    "503": "Not now, or not in time (`unavailable`), or too much under way (`busy`, with Retry-After).",
}
FOLLOW: JsonObject = {
    "name": "follow",
    "in": "query",
    "description": f"Go on with what comes; needs Accept: {NDJSON} or {EVENT_STREAM}.",
    "schema": {"type": "boolean", "default": False},
}


@cache
def encode_openapi(version: str) -> bytes:
    """The document as JSON."""
    return msgspec.json.format(msgspec.json.encode(make_openapi(version)), indent=2)


def make_openapi(version: str, routes: tuple[Route, ...] = ROUTES_LISTED) -> JsonObject:
    """The document. `version` is the daemon's."""
    handlers = signatures()
    params = {route.method: handlers[route.method].params_type for route in routes}
    results = {route.method: result_types(handlers, route.method) for route in routes}
    types = list(dict.fromkeys([*params.values(), *chain.from_iterable(results.values()), Failure]))
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    shown: dict[Any, JsonObject] = dict(zip(types, found, strict=True))
    paths: dict[str, JsonObject] = {}
    for route in routes:
        taken = resolve(shown[params[route.method]], components)
        parts = [shown[kind] for kind in results[route.method]]
        result = parts[0] if len(parts) == 1 else {"anyOf": parts}
        operation = _operation(route, taken, result, shown[Failure])
        paths.setdefault(route.path, {})[route.verb.lower()] = operation
    used = {shown[kind]["$ref"].rpartition("/")[2] for kind in params.values()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MemForest",
            "version": version,
            "description": "What the daemon answers over HTTP on its Unix socket. JSON-RPC 2.0 on the same "
            "socket has the same methods: `operationId` is the method's name.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost", "description": "the Unix socket; curl --unix-socket PATH"}],
        "paths": paths,
        # Parameters stand with their operations, so their types are nobody's reference.
        "components": {"schemas": {name: schema for name, schema in components.items() if name not in used}},
    }


@cache
def signatures() -> Handlers:
    """The table of methods over the parts' classes instead of parts: to be read, not to be called."""
    return make_handlers(Answering(**get_type_hints(Answering)))


def result_types(handlers: Handlers, method: str) -> tuple[Any, ...]:
    """What a method returns, as its annotation says; several when it depends on the parameters."""
    kind = get_type_hints(handlers[method].call)["return"]
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def resolve(schema: JsonObject, components: Mapping[str, JsonObject]) -> JsonObject:
    """A schema itself in place of a reference to it."""
    return components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _operation(route: Route, taken: JsonObject, result: JsonObject, failure: JsonObject) -> JsonObject:
    sentence = METHODS[route.method]
    operation: JsonObject = {
        "operationId": route.method,
        "summary": sentence[0].upper() + sentence[1:],
        "responses": {
            **_successes(route, result),
            **{status: _answer(text, JSON, failure) for status, text in FAILURES.items()},
        },
    }
    if route.status_of is not None:  # readyz: the result says so in both states
        operation["responses"]["503"] = _answer("Degraded, or not to be had.", JSON, {"anyOf": [result, failure]})
    if description := taken.get("description"):
        operation["description"] = description
    given: dict[str, JsonObject] = taken.get("properties", {})
    required = set(taken.get("required", ()))
    in_path, rest = set(route.variables), {name: given[name] for name in given if name not in route.variables}
    parameters = [_parameter(name, "path", given[name], required=True) for name in given if name in in_path]
    if route.verb not in BODY_VERBS:
        parameters += [_parameter(name, "query", rest[name], required=name in required) for name in rest]
    elif rest:
        needed = sorted(required - in_path)
        body = {"type": "object", "properties": rest, "additionalProperties": False}
        schema = {**body, "required": needed} if needed else body
        operation["requestBody"] = {"required": bool(needed), "content": {JSON: {"schema": schema}}}
    if route.streams:
        parameters.append(FOLLOW)
    if parameters:
        operation["parameters"] = parameters
    return operation


def _parameter(name: str, place: str, schema: JsonObject, *, required: bool) -> JsonObject:
    parameter: JsonObject = {"name": name, "in": place, "schema": schema}
    return {**parameter, "required": True} if required else parameter


def _successes(route: Route, result: JsonObject) -> JsonObject:
    if route.raw is not None:
        return {str(route.status): _answer("The text.", TEXT.partition(";")[0], {"type": "string"})}
    sentence = "Accepted: it goes over the bus." if route.status == 202 else "The result."
    answer = _answer(sentence, JSON, result)
    if route.streams:
        text = {"schema": {"type": "string"}}
        answer["content"] |= {NDJSON: text, EVENT_STREAM: text}
    return {str(route.status): answer}


def _answer(text: str, media: str, schema: JsonObject) -> JsonObject:
    return {"description": text, "content": {media: {"schema": schema}}}
