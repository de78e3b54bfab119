"""What all commands of `memforestd` share: options, reading the configuration, and how an error ends one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from daemon.config import Config, read_config
from daemon.config_values import ConfigInvalid
from daemon.lifecycle import DirectoryInUse
from daemon.logs import place_of
from events import database as reasons
from events.errors import LogDamaged, MemForestError, StoreIsNewer, StoreUnusable

# Exit codes of sysexits.h; systemd is told not to restart after EX_CONFIG.
EX_DIFFERENT = 1
EX_USAGE = 64
EX_DATAERR = 65
EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_IOERR = 74
EX_TEMPFAIL = 75
EX_CONFIG = 78

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="MEMFOREST_CONFIG",
    help="TOML file; without one the defaults and MEMFOREST_<SECTION>_<KEY> count.",
)
data_option = click.option("--data", help="Data directory, in place of data.dir.")

# Variables with our prefix that are not keys of the configuration.
_NOT_KEYS = frozenset({"MEMFOREST_CONFIG"})


def read_configuration(path: Path | None, data: str | None, overrides: dict[str, str] | None = None) -> Config:
    """The configuration of a command, which ends when it cannot be used."""
    try:
        return load_configuration(path, data, overrides)
    except ConfigInvalid as error:
        fail(str(error), EX_CONFIG)


def load_configuration(path: Path | None, data: str | None, overrides: dict[str, str] | None = None) -> Config:
    """What file, environment, `--data` and other options say together. Raises `ConfigInvalid`."""
    environ = {key: value for key, value in os.environ.items() if key not in _NOT_KEYS}
    asked = dict(overrides or {})
    if data is not None:
        asked["MEMFOREST_DATA_DIR"] = data
    return read_config(path, {**environ, **asked})


def explain(error: Exception) -> tuple[int, str]:
    """Exit code and sentence for what ended the daemon; the text of an unknown error is not shown."""
    match error:
        case DirectoryInUse():
            return EX_TEMPFAIL, str(error)
        case StoreIsNewer() | ConfigInvalid():
            return EX_CONFIG, str(error)
        case LogDamaged() | StoreUnusable(reason=reasons.DAMAGED):
            return EX_DATAERR, str(error)
        case StoreUnusable():
            return EX_IOERR, str(error)
        case MemForestError():
            return EX_UNAVAILABLE, str(error)
        case OSError():
            return EX_IOERR, f"{error.filename or 'the system'}: {error.strerror}"
        case _:
            return EX_SOFTWARE, f"an unexpected {type(error).__name__} at {place_of(error)}"


def first_error(group: BaseExceptionGroup[Exception]) -> Exception:
    """The first error inside a group, however deep."""
    for error in group.exceptions:
        return first_error(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group is never empty")


def fail(sentence: str, code: int) -> NoReturn:
    """End the command with a sentence on standard error."""
    click.echo(f"memforestd: {sentence}", err=True)
    sys.exit(code)
