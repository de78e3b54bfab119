"""README.md and the example configuration against the code: what exists is described, what is described exists."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import get_args

import click
import pytest

import daemon.cli
import memforest.cli
from daemon.config import Config, config_keys, effective_values, read_config
from daemon.decoders.native import Message
from daemon.logs import LOG_EVENTS
from daemon.serving.handlers import METHODS
from events.codec import EVENT_TYPES

ROOT = Path(__file__).resolve().parent.parent
CONFIG_KEYS = dict(config_keys())
MESSAGE_TYPES = {kind.__struct_config__.tag for kind in get_args(Message)}
# Dotted names that are none of ours, but look like one: the field that carries an error's code (JSON-RPC).
OTHER_NAMES = {"data.code"}
# What the example must say otherwise than the defaults, because systemd gives the daemon these folders.
EXAMPLE_SETS = {"data.dir": "/var/lib/memforest", "socket.path": "/run/memforest/memforest.sock"}
FILE_SUFFIXES = ("py", "md", "toml", "sock", "db", "json", "jsonl", "log", "lock", "conf", "service")


@cache
def text_of(name: str) -> str:
    """A document of the checkout."""
    return (ROOT / name).read_text()


def code_spans(text: str) -> set[str]:
    """What stands in single backticks, outside of fenced blocks."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"`([^`\n]+)`", prose))


def code_of(text: str) -> str:
    """All code of a document: spans and fenced blocks."""
    blocks = re.findall(r"^ *```.*?^ *```", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join([*blocks, *sorted(code_spans(text))])


def commands_named(text: str, program: str) -> set[str]:
    """The commands of `program` that a document's code calls, at the start of a line or after another command."""
    call = rf"(?:^|&& |\| )(?:\$ |sudo )*(?:[\w.~-]*/)*{program} ([a-z][a-z-]*)"
    return set(re.findall(call, code_of(text), flags=re.MULTILINE))


def reports_in(path: Path) -> list[tuple[str, set[str]]]:
    """The log events that a file reports, each with its fields."""
    return [
        (node.args[0].value, {keyword.arg for keyword in node.keywords if keyword.arg is not None})
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
        and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr).lstrip("_") == "report"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("config keys", set(CONFIG_KEYS)),
        ("socket methods", set(METHODS)),
        ("event types", set(EVENT_TYPES)),
        ("log events", set(LOG_EVENTS)),
        ("types of messages on the bus", MESSAGE_TYPES),
    ],
)
def test_the_readme_names_everything_there_is(kind: str, names: set[str]) -> None:
    missing = names - code_spans(text_of("README.md"))

    assert sorted(missing) == [], f"{kind} without a word in README.md"


def test_the_readme_names_nothing_that_does_not_exist() -> None:
    known = {*CONFIG_KEYS, *METHODS, *EVENT_TYPES, *LOG_EVENTS, *MESSAGE_TYPES, *OTHER_NAMES}
    ours = {name.split(".")[0] for name in known if "." in name}
    spans = {span for span in code_spans(text_of("README.md")) if re.fullmatch(r"[a-z_]+\.[a-z_]+", span)}

    unknown = {
        span for span in spans - known if span.split(".")[0] in ours and span.split(".")[1] not in FILE_SUFFIXES
    }

    assert sorted(unknown) == []


@pytest.mark.parametrize("document", ["README.md", "deploy/README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
@pytest.mark.parametrize(("program", "group"), [("memforestd", daemon.cli.main), ("memforest", memforest.cli.cli)])
def test_documents_call_only_commands_that_work(document: str, program: str, group: click.Group) -> None:
    assert commands_named(text_of(document), program) <= group.commands.keys()


@pytest.mark.parametrize(("program", "group"), [("memforestd", daemon.cli.main), ("memforest", memforest.cli.cli)])
def test_the_readme_shows_every_command(program: str, group: click.Group) -> None:
    assert commands_named(text_of("README.md"), program) == group.commands.keys()


@pytest.mark.parametrize("document", ["README.md", "deploy/README.md"])
def test_environment_variables_that_documents_name_set_a_key(document: str) -> None:
    named = set(re.findall(r"\bMEMFOREST_[A-Z_]+[A-Z]\b", text_of(document))) - {"MEMFOREST_CONFIG"}
    keys = {"MEMFOREST_" + name.upper().replace(".", "_") for name in CONFIG_KEYS}

    assert named <= keys


def test_links_between_documents_lead_somewhere() -> None:
    for document in ("README.md", "deploy/README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(document))

        assert [t for t in targets if not (ROOT / document).parent.joinpath(t).exists()] == [], document


def test_the_example_configuration_shows_every_key_with_its_default() -> None:
    """Every `# key = value` of the example is taken as if it were set."""
    text = text_of("deploy/memforest.toml")
    active = tomllib.loads(text)
    shown = tomllib.loads(re.sub(r"^# ?(\w+ = )", r"\1", text, flags=re.MULTILINE))

    assert {
        f"{section}.{key}": value for section, keys in active.items() for key, value in keys.items()
    } == EXAMPLE_SETS
    assert {f"{section}.{key}": value for section, keys in shown.items() for key, value in keys.items()} == {
        **effective_values(Config()),
        **EXAMPLE_SETS,
    }


def test_the_example_configuration_can_be_used_as_it_is() -> None:
    config = read_config(ROOT / "deploy" / "memforest.toml", {})

    assert isinstance(config, Config)
    assert (str(config.data_dir), str(config.socket_path)) == tuple(EXAMPLE_SETS.values())


def test_the_log_table_is_what_the_daemon_really_reports() -> None:
    reported: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "daemon").rglob("*.py")):
        for name, fields in reports_in(path):
            reported[name] |= fields
    # "what happened; field, field": the sentence itself may have semicolons.
    described = {
        name: set(text.split("; ")[-1].split(", ")) if "; " in text else set[str]()
        for name, text in LOG_EVENTS.items()
    }

    assert sorted(reported.keys() ^ LOG_EVENTS.keys()) == []
    assert {name: fields for name, fields in reported.items() if described[name] != fields} == {}
