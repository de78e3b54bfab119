"""How the code is laid out and named, checked like anything else (CONTRIBUTING, "House rules")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("daemon", "events", "projections", "memforest")
FILE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
# Longer files, each with the reason why it is better whole.
LONG_FILES: dict[str, str] = {}
# Words that say nothing of what a thing is, and words that we use for one thing only.
BANNED_WORD = re.compile(r"manager|helpers?|utils?|pipeline|coordinator|purged?|flush(ed)?")
# Where standard output is the product: commands and the demo.
PRINTING = re.compile(r"(cli|__main__|demo\w*|doctor|verify)\.py|commands/\w+\.py")
# Spelt so that this file does not find itself.
UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|XX" + r"X)\b")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".service", ""}


def python_files(*folders: str) -> list[Path]:
    """The Python files of some folders, in a fixed order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def named(path: Path, line: int | None = None) -> str:
    """The place as an editor opens it."""
    name = str(path.relative_to(ROOT))
    return name if line is None else f"{name}:{line}"


@cache
def nodes_in(path: Path) -> tuple[ast.AST, ...]:
    """Every syntax node of a file."""
    return tuple(ast.walk(ast.parse(path.read_text(), filename=str(path))))


def nodes_of(*folders: str) -> Iterator[tuple[Path, ast.AST]]:
    """Every syntax node of some folders, with its file."""
    return ((path, node) for path in python_files(*folders) for node in nodes_in(path))


def defined_name(node: ast.AST) -> str | None:
    """The name that a node gives to something, or None; using somebody else's name is no definition."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.arg(arg=name) | ast.alias(asname=str(name)):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case _:
            return None


def words_of(name: str) -> list[str]:
    """The words of an identifier: `HTTPServer_port` is http, server, port."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_banned(name: str) -> bool:
    """Whether an identifier says nothing, or says a word that we do not use."""
    return any(map(BANNED_WORD.fullmatch, words_of(name))) or name.lstrip("_").startswith("handle_")


def is_reading_of(node: ast.AST, module: str, name: str) -> bool:
    """Whether a node reads `module.name`, or imports `name` from `module`."""
    match node:
        case ast.Attribute(attr=attribute, value=ast.Name(id=owner)):
            return (owner, attribute) == (module, name)
        case ast.ImportFrom(module=source, names=names):
            return source == module and name in {alias.name for alias in names}
        case _:
            return False


def imports_of(node: ast.AST) -> list[str]:
    """The modules that a node imports; a relative one with its dots."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, level=level):
            return ["." * level + (module or "")]
        case _:
            return []


def test_a_file_is_about_one_thing_and_not_longer_than_350_lines() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in python_files(*ROOMS)}

    too_long = {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX}

    assert too_long.keys() - LONG_FILES.keys() == set(), too_long
    assert LONG_FILES.keys() - too_long.keys() == set(), "these are short enough by now: take them off the list"


def test_a_function_fits_a_screen_of_60_lines() -> None:
    too_long = [
        f"{named(path, node.lineno)} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path, node in nodes_of(*ROOMS)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]

    assert too_long == []


def test_no_folder_of_tests_is_a_package_and_hides_ours() -> None:
    packages = [named(path) for path in (ROOT / "tests").rglob("__init__.py")]

    assert packages == []


def test_names_say_what_a_thing_is() -> None:
    offences = [named(path) for path in python_files(*ROOMS, "tests") if is_banned(path.stem)]
    for path, node in nodes_of(*ROOMS, "tests"):
        name = defined_name(node)
        if name is not None and is_banned(name):
            offences.append(f"{named(path, getattr(node, 'lineno', None))} {name}")

    assert offences == []


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        ("SessionManager", True),
        ("text_utils", True),
        ("_handle_query", True),
        ("flush_words", True),
        ("HANDLERS", False),
        ("utility", False),
        ("flushing_point", False),
        ("manage", False),
    ],
)
def test_the_naming_rule_looks_at_whole_words(name: str, banned: bool) -> None:
    assert is_banned(name) is banned


def test_tests_run_against_real_parts_and_never_patch() -> None:
    offences = [
        named(path, getattr(node, "lineno", None))
        for path, node in nodes_of(*ROOMS, "tests")
        if any(module.split(".")[-1] == "mock" for module in imports_of(node))
        or is_reading_of(node, "unittest", "mock")
        or is_reading_of(node, "mock", "patch")
    ]

    assert offences == []


def test_nobody_calls_time_sleep() -> None:
    """To hand it over as the default of a parameter is no call: a test then waits for nothing."""
    offences = [
        named(path, getattr(node, "lineno", None))
        for path, node in nodes_of(*ROOMS, "tests")
        if is_reading_of(node.func if isinstance(node, ast.Call) else ast.Pass(), "time", "sleep")
        or (isinstance(node, ast.ImportFrom) and is_reading_of(node, "time", "sleep"))
    ]

    assert offences == []


def test_only_commands_and_the_demo_print() -> None:
    offences = [
        named(path, node.lineno)
        for path, node in nodes_of("events", "projections", "daemon")
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and not PRINTING.search(named(path))
    ]

    assert offences == []


def test_imports_are_flat() -> None:
    """`from events.log import EventLog`, everywhere: never relative, never through the wheel's own folder."""
    offences = [
        named(path, getattr(node, "lineno", None))
        for path, node in nodes_of(*ROOMS, "tests")
        for module in imports_of(node)
        if module.startswith(".") or module.split(".")[0] == "memforest_daemon"
    ]

    assert offences == []


def test_nothing_unfinished_is_left_behind() -> None:
    files = [path for place in (ROOT, ROOT / "deploy", ROOT / ".ci") for path in place.iterdir() if path.is_file()]
    texts = [path for path in files if path.suffix in TEXT_SUFFIXES]

    offences = [
        named(path, number)
        for path in (*texts, *python_files(*ROOMS, "tests"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if UNFINISHED.search(line)
    ]

    assert offences == []
