"""The document of the bus: it says of every message what the decoder takes, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner

from daemon.bus.bus_messages import BusMessage
from daemon.bus.subjects import control_subject, turn_subject
from daemon.cli import main
from daemon.decoders.decoding import Decoder
from daemon.serving.asyncapi import EXAMPLES, make_asyncapi
from events.dead_letters import DeadLetter
from tests.builders import KEYS, MONDAY

DOCUMENT = make_asyncapi("1.2.3")
README = Path(__file__).resolve().parents[2] / "README.md"
DECODER = Decoder(KEYS, ZoneInfo("UTC"))


def resolved(reference: str) -> Any:
    found: Any = DOCUMENT
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def references(part: Any) -> list[str]:
    if isinstance(part, list):
        return [each for child in part for each in references(child)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + [each for child in part.values() for each in references(child)]


def is_valid(tag: str, body: Any) -> bool:
    payload = DOCUMENT["components"]["messages"][tag]["payload"]
    schema = {**payload, "components": DOCUMENT["components"]}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(body))


def is_taken(tag: str, body: object) -> bool:
    on_turns = tag in DOCUMENT["channels"]["turns"]["messages"]
    subject = (turn_subject if on_turns else control_subject)("alice", "s2")
    message = BusMessage(subject, msgspec.json.encode(body), {}, "MEMFOREST", 1, MONDAY)
    return not isinstance(DECODER.decode(message, "e1"), DeadLetter)


def test_it_has_the_form_of_asyncapi_3_and_every_reference_leads_somewhere() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT.keys() == {"asyncapi", "info", "defaultContentType", "channels", "operations", "components"}
    assert DOCUMENT["info"].keys() >= {"title", "version"}
    for reference in references(DOCUMENT):
        assert resolved(reference), reference
    for channel in DOCUMENT["channels"].values():
        assert set(re.findall(r"\{(\w+)\}", channel["address"])) == channel["parameters"].keys()
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] == "receive"
        channel = operation["channel"]["$ref"]
        assert all(each["$ref"].startswith(f"{channel}/messages/") for each in operation["messages"])
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_it_has_every_type_of_the_readme_on_the_channel_that_the_readme_says() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (turns|control) \|", README.read_text(), flags=re.MULTILINE)

    assert {(tag, kind) for kind, channel in DOCUMENT["channels"].items() for tag in channel["messages"]} == set(
        rows
    )
    assert EXAMPLES.keys() == {tag for tag, _ in rows}


@pytest.mark.parametrize("tag", EXAMPLES)
def test_an_example_is_valid_and_is_taken(tag: str) -> None:
    assert is_valid(tag, EXAMPLES[tag])
    assert is_taken(tag, EXAMPLES[tag])


@pytest.mark.parametrize("tag", EXAMPLES)
def test_schema_and_decoder_refuse_the_same_fields(tag: str) -> None:
    """Each field left out, of another type, or unknown: the document and the daemon agree."""
    body = EXAMPLES[tag]
    changed = [{name: value for name, value in body.items() if name != left_out} for left_out in body]
    changed += [{**body, name: True} for name in body]
    changed += [{**body, "surprise": 1}, {**body, "type": "other"}]

    assert [is_valid(tag, each) for each in changed] == [is_taken(tag, each) for each in changed]


def test_the_command_prints_it() -> None:
    printed = CliRunner().invoke(main, ["schema", "asyncapi"])

    assert printed.exit_code == 0
    assert msgspec.json.decode(printed.output)["channels"] == DOCUMENT["channels"]
