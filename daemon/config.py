"""The configuration: one TOML file, then MEMFOREST_<SECTION>_<KEY>. An unknown key is an error."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints
from zoneinfo import ZoneInfo

from events.errors import InvalidInput
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import MemoryParameters
from projections.memtree.shape import TreeShape
from projections.recall.agpr import PAPER, AgprParameters, TimeUnit

ENVIRONMENT_PREFIX = "MEMFOREST_"


class ConfigInvalid(InvalidInput):
    """The configuration cannot be used."""


@dataclass(frozen=True, slots=True)
class Data:
    """Where everything that is kept lives, and the room that is kept free there (MiB)."""

    dir: str = "memforest-data"
    ballast_mb: int = 16
    free_min_mb: int = 64


@dataclass(frozen=True, slots=True)
class Bus:
    """Where session events come from."""

    url: str = "nats://127.0.0.1:4222"
    stream: str = "MEMFOREST"
    embedded: bool = False
    credentials: str = ""
    zone: str = "UTC"
    reopen_forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Socket:
    """Where local programs ask. An empty path is `memforest.sock` in data.dir."""

    path: str = ""
    mode: str = "0600"


@dataclass(frozen=True, slots=True)
class Models:
    """Which models read, write and embed. Empty URLs: the built-in offline models."""

    chat_url: str = ""
    chat_model: str = ""
    embed_url: str = ""
    embed_model: str = ""
    embedder: str = "hashing"
    api_key: str = ""
    concurrency: int = 16


@dataclass(frozen=True, slots=True)
class Log:
    """What the daemon writes to standard error."""

    level: str = "info"
    format: str = "auto"


@dataclass(frozen=True, slots=True)
class MemTree:
    """Paper B; the README says which symbol each is."""

    chunk_turns: int = 2
    branching: int = 10
    concatenation_max: int = 800
    idle_s: float = 30.0
    refresh_age_s: float = 600.0


@dataclass(frozen=True, slots=True)
class EventTree:
    """Paper A, section 3."""

    preset: str = "default"
    alpha: float = 0.05
    beta: float = 0.8
    window: int = 5
    eta: float = 0.99
    ratio: float = 0.5
    time_bonus: float = 0.5


@dataclass(frozen=True, slots=True)
class Agpr:
    """Paper A, Eq. 9-10, and ours."""

    preset: str = "default"
    candidates_per_answer: int = 4
    anchor_share: float = 0.2
    time_unit: str = "hours"
    gamma: float = 0.85
    smoothing: float = 0.6
    cosine_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Config:
    """All sections. `read_config` checks them; afterwards they are trusted."""

    data: Data = field(default_factory=Data)
    bus: Bus = field(default_factory=Bus)
    socket: Socket = field(default_factory=Socket)
    models: Models = field(default_factory=Models)
    log: Log = field(default_factory=Log)
    memtree: MemTree = field(default_factory=MemTree)
    eventtree: EventTree = field(default_factory=EventTree)
    agpr: Agpr = field(default_factory=Agpr)

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        return Path(self.data.dir).expanduser()

    @property
    def socket_path(self) -> Path:
        """Where the socket is bound."""
        return Path(self.socket.path).expanduser() if self.socket.path else self.data_dir / "memforest.sock"

    @property
    def credentials_path(self) -> Path | None:
        """The NATS credentials file, if one is used."""
        return Path(self.bus.credentials).expanduser() if self.bus.credentials else None

    @property
    def memory_parameters(self) -> MemoryParameters:
        """What the fold depends on."""
        tree = self.memtree
        return MemoryParameters(tree.chunk_turns, TreeShape(tree.branching), tree.concatenation_max)

    @property
    def eventtree_parameters(self) -> EventTreeParameters:
        """How nodes are merged."""
        tree = self.eventtree
        return EventTreeParameters(
            alpha=tree.alpha,
            beta=tree.beta,
            window=tree.window,
            eta=tree.eta,
            ratio=tree.ratio,
            time_bonus=tree.time_bonus,
            preset="paper" if tree.preset == "paper" else "default",
        )

    @property
    def agpr_parameters(self) -> AgprParameters:
        """How answers are ranked."""
        agpr = self.agpr
        if agpr.preset == "paper":
            return PAPER
        return AgprParameters(
            candidates_per_answer=agpr.candidates_per_answer,
            anchor_share=agpr.anchor_share,
            time_unit=TimeUnit(agpr.time_unit),
            gamma=agpr.gamma,
            smoothing=agpr.smoothing,
            cosine_weight=agpr.cosine_weight,
        )


def read_config(path: Path | None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of a file (if any) and the environment, checked.

    Raises `ConfigInvalid` with a sentence that names the key and what it may be.
    """
    raw: dict[str, Any] = {}
    if path is not None:
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigInvalid(f"{path} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigInvalid(f"{path} is not valid TOML: {error}") from error
    config = _build(raw, os.environ if environ is None else environ)
    _check(config)
    return config


def config_keys() -> list[tuple[str, object]]:
    """Every key with its default, as `section.key`."""
    config = Config()
    return [
        (f"{section.name}.{key.name}", getattr(getattr(config, section.name), key.name))
        for section in fields(Config)
        for key in fields(getattr(config, section.name))
    ]


def _build(raw: dict[str, Any], environ: Mapping[str, str]) -> Config:
    hints = get_type_hints(Config)
    known = {section: get_type_hints(kind) for section, kind in hints.items() if is_dataclass(kind)}
    values: dict[str, dict[str, Any]] = {section: {} for section in known}
    for section, content in raw.items():
        if section not in known:
            raise ConfigInvalid(f"unknown section [{section}]; the sections are {', '.join(sorted(known))}")
        if not isinstance(content, dict):
            raise ConfigInvalid(f"{section} is a section: write [{section}] and its keys below")
        for key, value in content.items():
            if key not in known[section]:
                raise ConfigInvalid(f"unknown key {section}.{key}; it may have {', '.join(known[section])}")
            values[section][key] = _typed(f"{section}.{key}", value, known[section][key])
    for name, text in environ.items():
        place = _find_key(name, known)
        if place is not None:
            section, key = place
            values[section][key] = _parsed(f"{section}.{key}", text, known[section][key])
    return Config(**{section: hints[section](**content) for section, content in values.items()})


def _find_key(name: str, known: Mapping[str, Mapping[str, type]]) -> tuple[str, str] | None:
    """The key an environment variable sets; unknown ones with our prefix are errors, too."""
    if not name.startswith(ENVIRONMENT_PREFIX):
        return None
    section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("_")
    if section not in known or key not in known[section]:
        raise ConfigInvalid(f"the environment sets {name}, which is no key of the configuration")
    return section, key


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


def _check(config: Config) -> None:
    """Everything that types do not say. The algorithm tables check themselves when they are built."""
    models, log = config.models, config.log
    remote = ("chat_url", "chat_model", "embed_url", "embed_model", "api_key")
    if any(getattr(models, key) for key in remote):
        raise ConfigInvalid(
            "models at an endpoint are not in this release; leave "
            + ", ".join(f"models.{key}" for key in remote)
            + " empty to use the built-in offline models"
        )
    rules = [
        (models.embedder == "hashing", 'models.embedder must be "hashing", the one that is built in'),
        (1 <= models.concurrency <= 4096, "models.concurrency must be from 1 to 4096"),
        (log.level in ("debug", "info", "warning", "error"), "log.level is debug, info, warning or error"),
        (log.format in ("auto", "console", "json"), "log.format is auto, console or json"),
        (1 <= config.memtree.chunk_turns <= 64, "memtree.chunk_turns must be from 1 to 64"),
        (3 <= config.memtree.branching <= 1000, "memtree.branching must be from 3 to 1000"),
        (config.memtree.concatenation_max >= 0, "memtree.concatenation_max must not be negative"),
        (config.memtree.idle_s > 0, "memtree.idle_s must be above 0"),
        (config.memtree.refresh_age_s > 0, "memtree.refresh_age_s must be above 0"),
        (config.eventtree.preset in ("default", "paper"), 'eventtree.preset is "default" or "paper"'),
        (config.agpr.preset in ("default", "paper"), 'agpr.preset is "default" or "paper"'),
        (config.agpr.time_unit in [unit.value for unit in TimeUnit], "agpr.time_unit is " + ", ".join(TimeUnit)),
        (config.data.dir != "", "data.dir must not be empty"),
        (0 <= config.data.ballast_mb <= 1024, "data.ballast_mb must be from 0 to 1024"),
        (0 <= config.data.free_min_mb <= 1 << 20, "data.free_min_mb must be from 0 to 1048576"),
        (config.bus.stream.replace("_", "").replace("-", "").isalnum(), "bus.stream has letters, digits, _ and -"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ConfigInvalid(sentence)
    parse_mode(config.socket.mode)
    parse_zone(config.bus.zone)
    try:
        _ = (config.memory_parameters, config.eventtree_parameters, config.agpr_parameters)
    except (InvalidInput, ValueError) as error:
        raise ConfigInvalid(str(error)) from error


def parse_mode(text: str) -> int:
    """The permission bits of socket.mode."""
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0o600 <= mode <= 0o777 or mode & 0o600 != 0o600:
        raise ConfigInvalid("socket.mode is octal and lets the owner read and write, such as 0600 or 0660")
    return mode


def hide_password(url: str) -> str:
    """A URL without what stands before its @, for everything that is shown."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def parse_zone(name: str) -> ZoneInfo:
    """The zone in which naive times are read."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigInvalid("bus.zone is a name of the IANA zones, such as Europe/Berlin") from None
