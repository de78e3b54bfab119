"""How the values of a configuration get their places: from TOML tables and the environment, by their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from events.errors import InvalidInput
from events.memory import FactRole

ENVIRONMENT_PREFIX = "MEMFOREST_"
C = TypeVar("C")


class ConfigInvalid(InvalidInput):
    """The configuration cannot be used."""


def build_sections(kind: type[C], raw: Mapping[str, Any], environ: Mapping[str, str]) -> C:
    """A dataclass whose fields are sections (dataclasses, too), filled from a file's tables and the environment.

    Raises `ConfigInvalid` with a sentence that names the section, key or variable.
    """
    hints = get_type_hints(kind)
    known = {section: _kinds(of) for section, of in hints.items() if is_dataclass(of)}
    values: dict[str, dict[str, Any]] = {section: {} for section in known}
    for section, content in raw.items():
        if section not in known:
            near = _near(section, known)
            raise ConfigInvalid(f"unknown section [{section}]{near}; the sections are {', '.join(sorted(known))}")
        if not isinstance(content, dict):
            raise ConfigInvalid(f"{section} is a section: write [{section}] and its keys below")
        for key, value in content.items():
            if key not in known[section]:
                near = _near(key, known[section])
                raise ConfigInvalid(f"unknown key {section}.{key}{near}; it may have {', '.join(known[section])}")
            values[section][key] = _typed(f"{section}.{key}", value, known[section][key])
    for name, text in environ.items():
        place = _find_key(name, known)
        if place is not None:
            section, key = place
            values[section][key] = _parsed(f"{section}.{key}", text, known[section][key])
    return kind(**{section: hints[section](**content) for section, content in values.items()})


def _kinds(section: Any) -> dict[str, type]:
    """The type of each key of a section; of `int | None` it is int, since None is a key that is left out."""
    hints = get_type_hints(section)
    return {key: get_args(kind)[0] if NoneType in get_args(kind) else kind for key, kind in hints.items()}


def _find_key(name: str, known: Mapping[str, Mapping[str, type]]) -> tuple[str, str] | None:
    """The key an environment variable sets; unknown ones with our prefix are errors, too."""
    if not name.startswith(ENVIRONMENT_PREFIX):
        return None
    section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
    if section not in known or key not in known[section]:
        keys = [f"{ENVIRONMENT_PREFIX}{each}_{one}".upper() for each in known for one in known[each]]
        near = _near(name, keys)
        raise ConfigInvalid(f"the environment sets {name}, which is no key of the configuration{near}")
    return section, key


def _near(name: str, known: Iterable[str]) -> str:
    """A question whether another name was meant; nothing when none is like it."""
    found = get_close_matches(name, known, n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def _typed(name: str, value: object, kind: type) -> object:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigInvalid(f"{name} must be a {_KIND_NAMES[kind]}")
    return value


def _parsed(name: str, text: str, kind: type) -> object:
    """The value of an environment variable."""
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ConfigInvalid(f"{name} must be true or false")
        return text.lower() in ("true", "1")
    try:
        return kind(text)
    except ValueError:
        raise ConfigInvalid(f"{name} must be a {_KIND_NAMES[kind]}") from None


_KIND_NAMES: dict[type, str] = {str: "string", int: "whole number", float: "number", bool: "true or false"}


def parse_listen(text: str) -> tuple[str, int] | None:
    """The address of metrics.listen, None for none. Raises ConfigInvalid for one that other machines reach."""
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        is_loopback = ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        is_loopback = False
    if not (colon and is_loopback and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigInvalid('metrics.listen is a loopback address and a port, such as "127.0.0.1:9464"')
    return host, int(port)


def parse_roles(text: str) -> tuple[FactRole, ...]:
    """The kinds of facts of eventtree.never_merged, with commas between. Raises ConfigInvalid for another one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not set(names) <= set(FactRole):
        raise ConfigInvalid(f"eventtree.never_merged names kinds of facts: {', '.join(FactRole)}")
    return tuple(map(FactRole, names))
