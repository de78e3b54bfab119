"""The OpenAPI document: valid, whole, and the same from the command and from the daemon."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from click.testing import CliRunner
from openapi_spec_validator import validate

from daemon.app import daemon_version
from daemon.asking.listings import NoParams
from daemon.cli import main
from daemon.serving.handlers import METHODS
from daemon.serving.http_routes import ROUTES_LISTED
from daemon.serving.openapi import encode_openapi, make_openapi, signatures
from daemon.serving.schemas import Schemas

DOCUMENT = make_openapi("1.2.3")


def operations() -> dict[str, dict[str, Any]]:
    """Every operation by the name of its method."""
    return {found["operationId"]: found for verbs in DOCUMENT["paths"].values() for found in verbs.values()}


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)

    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == "1.2.3"


def test_every_method_is_an_operation_with_the_sentence_that_describes_it() -> None:
    found = operations()

    assert found.keys() == METHODS.keys()
    for name, sentence in METHODS.items():
        assert found[name]["summary"].lower() == sentence.lower()


def test_every_parameter_of_a_method_stands_in_its_path_its_query_string_or_its_body() -> None:
    handlers = signatures()
    for route in ROUTES_LISTED:
        operation = DOCUMENT["paths"][route.path][route.verb.lower()]
        given = {each["name"]: each["in"] for each in operation.get("parameters", ())}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        names = given.keys() | body.get("properties", {}).keys()

        assert names - {"follow"} == set(handlers[route.method].params_type.__struct_fields__), route.path
        assert {name for name, place in given.items() if place == "path"} == set(route.variables), route.path


def test_every_result_has_a_shape_that_is_told() -> None:
    for name, operation in operations().items():
        success = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
        for media, content in success["content"].items():
            assert content["schema"] or name == "schema", (name, media)


def test_what_goes_over_the_bus_is_accepted() -> None:
    accepted = {name for name, operation in operations().items() if "202" in operation["responses"]}

    assert accepted == {"ingest", "sessions.close", "turns.retract"}


async def test_the_command_prints_what_the_daemon_serves() -> None:
    printed = CliRunner().invoke(main, ["schema", "openapi"])
    served = await Schemas(partial(encode_openapi, daemon_version())).openapi(NoParams())

    assert printed.exit_code == 0
    assert json.loads(printed.output) == json.loads(bytes(served))
