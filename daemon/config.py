"""The configuration: one TOML file, then MEMFOREST_<SECTION>_<KEY>. An unknown key is an error."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from daemon.bus.subscriptions import Subscription, check_decoder, read_subscriptions
from daemon.config_models import AGPR_BY_EMBEDDER, Models, check_models, complete_endpoint
from daemon.config_query import Query, check_query
from daemon.config_values import ConfigInvalid, build_sections, parse_listen, parse_roles
from daemon.models.prices import Price, read_prices
from events.errors import InvalidInput
from projections.eventtree.parameters import EventTreeParameters, one_cap
from projections.facts.scene_planning import FACTS_MAX
from projections.memory import MemoryParameters
from projections.memtree.shape import TreeShape
from projections.recall.agpr import (
    PAPER,
    AgprParameters,
    TimeUnit,
)
from projections.recall.rooms import SearchOptions


@dataclass(frozen=True, slots=True)
class Data:
    """Where everything that is kept lives, and the room that is kept free there (MiB)."""

    dir: str = "memforest-data"
    ballast_mb: int = 16
    free_min_mb: int = 64
    derived_max_mb: int = 1024
    memories_mb: int = 512


@dataclass(frozen=True, slots=True)
class Bus:
    """Where session events come from."""

    url: str = "nats://127.0.0.1:4222"
    stream: str = "MEMFOREST"
    embedded: bool = False
    credentials: str = ""
    decoder: str = "native"
    zone: str = "UTC"
    reopen_forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Socket:
    """Where local programs ask. An empty path is `memforest.sock` in data.dir."""

    path: str = ""
    mode: str = "0600"


@dataclass(frozen=True, slots=True)
class Metrics:
    """A loopback port for metrics and health alone; empty for none."""

    listen: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """What the daemon writes to standard error."""

    level: str = "info"
    format: str = "auto"


@dataclass(frozen=True, slots=True)
class MemTree:
    """Paper B; the README says which symbol each is."""

    preset: str = "default"
    chunk_turns: int = 2
    branching: int = 10
    concatenation_max: int = 800
    scene_facts_max: int = FACTS_MAX
    second_scene: bool = True
    judge: bool = False
    idle_s: float = 30.0
    refresh_age_s: float = 600.0


@dataclass(frozen=True, slots=True)
class EventTree:
    """Paper A, section 3, and what of it is done in the background. `member_cap` None: as measured for `ratio`."""

    preset: str = "default"
    alpha: float = 0.05
    beta: float = 0.8
    window: int = 5
    eta: float = 0.99
    ratio: float = 0.5
    member_cap: int | None = None
    time_bonus: float = 0.5
    online: bool = True
    unit_cap: int = 40
    reassign: int = 3
    overgrown: float = 1.5
    slack: float = 0.02
    min_age_s: float = 0.0
    never_merged: str = ""


@dataclass(frozen=True, slots=True)
class Agpr:
    """Paper A, Eq. 9-10, and ours. What is None is as it measured best for the embedder (`AGPR_BY_EMBEDDER`)."""

    preset: str = "default"
    candidates_per_answer: int | None = None
    anchor_share: float | None = None
    time_unit: str | None = None
    gamma: float | None = None
    smoothing: float | None = None
    cosine_weight: float | None = None
    session_weight: float | None = None
    entity_weight: float | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """How vectors of very many nodes are kept and searched; 0 for never."""

    map_from_mb: int = 0
    graph_from_nodes: int = 0


@dataclass(frozen=True, slots=True)
class Config:
    """All sections. `read_config` checks them; afterwards they are trusted."""

    data: Data = field(default_factory=Data)
    bus: Bus = field(default_factory=Bus)
    socket: Socket = field(default_factory=Socket)
    models: Models = field(default_factory=Models)
    metrics: Metrics = field(default_factory=Metrics)
    log: Log = field(default_factory=Log)
    memtree: MemTree = field(default_factory=MemTree)
    eventtree: EventTree = field(default_factory=EventTree)
    agpr: Agpr = field(default_factory=Agpr)
    search: Search = field(default_factory=Search)
    query: Query = field(default_factory=Query)
    subscriptions: tuple[Subscription, ...] = ()
    prices: tuple[Price, ...] = ()

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
    def memtree_in_force(self) -> MemTree:
        """`[memtree]`, with preset "paper" as the paper and its code have it (algorithms.md 1)."""
        if self.memtree.preset != "paper":
            return self.memtree
        paper = MemTree(concatenation_max=0, judge=True)
        return replace(paper, preset="paper", idle_s=self.memtree.idle_s, refresh_age_s=self.memtree.refresh_age_s)

    @property
    def memory_parameters(self) -> MemoryParameters:
        """What the fold depends on, and how its nodes are searched."""
        tree, search = self.memtree_in_force, self.search
        options = SearchOptions(search.map_from_mb, self.data_dir, search.graph_from_nodes)
        return MemoryParameters(
            tree.chunk_turns, TreeShape(tree.branching), tree.concatenation_max, search=options
        )

    @property
    def eventtree_parameters(self) -> EventTreeParameters:
        """How nodes are merged."""
        tree, default = self.eventtree, EventTreeParameters()
        return EventTreeParameters(
            alpha=tree.alpha,
            beta=tree.beta,
            window=tree.window,
            eta=tree.eta,
            ratio=tree.ratio,
            member_caps=default.member_caps if tree.member_cap is None else one_cap(tree.member_cap),
            time_bonus=tree.time_bonus,
            online=tree.online,
            unit_cap=tree.unit_cap,
            reassign=tree.reassign,
            overgrown=tree.overgrown,
            slack=tree.slack,
            min_age_s=tree.min_age_s,
            never_merged=parse_roles(tree.never_merged),
            preset="paper" if tree.preset == "paper" else "default",
        )

    @property
    def agpr_parameters(self) -> AgprParameters:
        """How answers are ranked: the embedder's values, but for those that are set."""
        if self.agpr.preset == "paper":
            return PAPER
        keys = {key.name: getattr(self.agpr, key.name) for key in fields(Agpr) if key.name != "preset"}
        chosen = {name: value for name, value in keys.items() if value is not None}
        if "time_unit" in chosen:
            chosen["time_unit"] = TimeUnit(chosen["time_unit"])
        return replace(AGPR_BY_EMBEDDER[self.models.embedder], **chosen)


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
    environ = os.environ if environ is None else environ
    subscribed, priced = raw.pop("subscriptions", []), raw.pop("prices", [])
    config = build_sections(Config, raw, environ)
    config = replace(
        config,
        subscriptions=read_subscriptions(subscribed, config.bus.stream),
        prices=read_prices(priced),
        models=complete_endpoint(config.models, environ),
    )
    _check(config)
    return config


def effective_values(config: Config) -> dict[str, object]:
    """Every key with the value that counts, as `section.key`; passwords hidden, keys only said to be set."""
    ranking = config.agpr_parameters
    values: dict[str, object] = {}
    for name, _ in config_keys():
        section, key = name.split(".")
        value = getattr(getattr(config, section), key)
        if section == "agpr" and key != "preset":
            value = getattr(ranking, key)
        if section == "memtree":
            value = getattr(config.memtree_in_force, key)
        if name == "eventtree.member_cap":
            cap = config.eventtree_parameters.member_cap
            values[name] = cap or 0
            continue
        if name.endswith("api_key") and value:
            value = "(set)"
        values[name] = hide_password(value) if name.endswith("url") else value
    for listed in ("subscriptions", "prices"):
        for number, each in enumerate(getattr(config, listed), start=1):
            values |= {f"{listed}.{number}.{key.name}": getattr(each, key.name) for key in fields(each)}
    return values


def config_keys() -> list[tuple[str, object]]:
    """Every key with its default, as `section.key`; None where it is the embedder's."""
    config = Config()
    return [
        (f"{section.name}.{key.name}", getattr(getattr(config, section.name), key.name))
        for section in fields(Config)
        if section.name not in ("subscriptions", "prices")  # lists of tables
        for key in fields(getattr(config, section.name))
    ]


def _check(config: Config) -> None:
    """Everything that types do not say. The algorithm tables check themselves when they are built."""
    log = config.log
    check_models(config.models)
    check_query(config.query)
    rules = [
        (log.level in ("debug", "info", "warning", "error"), "log.level is debug, info, warning or error"),
        (log.format in ("auto", "console", "json"), "log.format is auto, console or json"),
        (1 <= config.memtree.chunk_turns <= 64, "memtree.chunk_turns must be from 1 to 64"),
        (3 <= config.memtree.branching <= 1000, "memtree.branching must be from 3 to 1000"),
        (config.memtree.preset in ("default", "paper"), 'memtree.preset is "default" or "paper"'),
        (2 <= config.memtree.scene_facts_max <= 10_000, "memtree.scene_facts_max must be from 2 to 10000"),
        (config.memtree.concatenation_max >= 0, "memtree.concatenation_max must not be negative"),
        (config.memtree.idle_s > 0, "memtree.idle_s must be above 0"),
        (config.memtree.refresh_age_s > 0, "memtree.refresh_age_s must be above 0"),
        (config.eventtree.preset in ("default", "paper"), 'eventtree.preset is "default" or "paper"'),
        (config.agpr.preset in ("default", "paper"), 'agpr.preset is "default" or "paper"'),
        (config.agpr.time_unit in (None, *TimeUnit), "agpr.time_unit is " + ", ".join(TimeUnit)),
        (0 <= config.search.map_from_mb <= 1 << 20, "search.map_from_mb must be from 0 to 1048576"),
        (config.search.graph_from_nodes >= 0, "search.graph_from_nodes must not be negative"),
        (config.data.dir != "", "data.dir must not be empty"),
        (0 <= config.data.ballast_mb <= 1024, "data.ballast_mb must be from 0 to 1024"),
        (0 <= config.data.free_min_mb <= 1 << 20, "data.free_min_mb must be from 0 to 1048576"),
        (0 <= config.data.derived_max_mb <= 1 << 20, "data.derived_max_mb must be from 0 to 1048576"),
        (1 <= config.data.memories_mb <= 1 << 20, "data.memories_mb must be from 1 to 1048576"),
        (config.bus.stream.replace("_", "").replace("-", "").isalnum(), "bus.stream has letters, digits, _ and -"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ConfigInvalid(sentence)
    check_decoder(config.bus.decoder, "bus.decoder")
    parse_mode(config.socket.mode)
    parse_listen(config.metrics.listen)
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
    """A URL without what stands before its @ or behind its ?, where keys are, for everything that is shown."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"


def parse_zone(name: str) -> ZoneInfo:
    """The zone in which naive times are read."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigInvalid("bus.zone is a name of the IANA zones, such as Europe/Berlin") from None
