"""`memforestd`: run a store's daemon and look after the store."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import anyio
import click
import msgspec

from daemon.app import daemon_version, serve
from daemon.config import Config, ConfigInvalid, config_keys, hide_password, read_config
from daemon.doctor import Finding, create_stream, examine
from daemon.lifecycle import DirectoryInUse
from daemon.logs import configure_logs
from daemon.socket_connection import place_of
from daemon.verify import UserVerdict, verify
from events.errors import LogDamaged, MemForestError, StoreIsNewer, StoreUnusable
from events.log import LogReader
from memforest.client import AsyncClient
from memforest.errors import DaemonUnreachable
from projections.digests import MemoryDigest

# Exit codes of sysexits.h; systemd is told not to restart after EX_CONFIG.
EX_DIFFERENT = 1
EX_DATAERR = 65
EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_IOERR = 74
EX_TEMPFAIL = 75
EX_CONFIG = 78

_config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="MEMFOREST_CONFIG",
    help="TOML file; without one the defaults and MEMFOREST_<SECTION>_<KEY> count.",
)
_data_option = click.option("--data", help="Data directory, in place of data.dir.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(daemon_version(), prog_name="memforestd")
def main() -> None:
    """Run and look after a MemForest store. To talk to a running daemon use `memforest`."""


@main.command()
@_config_option
@_data_option
@click.option("--embedded-bus", is_flag=True, help="Supervise a nats-server of our own, in the data directory.")
def run(config_path: Path | None, data: str | None, embedded_bus: bool) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second signal ends it at once."""
    overrides = {"MEMFOREST_BUS_EMBEDDED": "true"} if embedded_bus else {}
    config = _read(config_path, data, overrides)
    report = configure_logs(config.log.level, config.log.format)
    os.umask(0o077)  # whatever is written is the daemon's user's alone
    try:
        anyio.run(serve, config, report)
    except* Exception as group:
        code, sentence = _explain(_first(group))
        _fail(sentence, code)


@main.command()
@click.option("--keep", is_flag=True, help="Leave the daemon running with the demo's store.")
def demo(keep: bool) -> None:
    """Show the whole product on a conversation of a year, in a temporary directory."""
    from daemon.demo import run_demo

    sys.exit(anyio.run(run_demo, keep))


@main.command()
@_config_option
@_data_option
@click.option("--json", "as_json", is_flag=True)
def config(config_path: Path | None, data: str | None, as_json: bool) -> None:
    """Show every key with the value it has now."""
    read = _read(config_path, data, {})
    values: dict[str, object] = {}
    for name, _ in config_keys():
        section, key = name.split(".")
        value = getattr(getattr(read, section), key)
        if name == "models.api_key" and value:
            value = "(set)"
        values[name] = hide_password(value) if name.endswith("url") else value
    if as_json:
        click.echo(json.dumps(values, indent=2))
    else:
        for name, value in values.items():
            click.echo(f"{name} = {json.dumps(value)}")


@main.command()
@_config_option
@_data_option
@click.option("--create-stream", "create", is_flag=True, help="Create the stream on the NATS server, once.")
@click.option("--json", "as_json", is_flag=True)
def doctor(config_path: Path | None, data: str | None, create: bool, as_json: bool) -> None:
    """Look for the usual mistakes and say how to mend each."""
    read = _read(config_path, data, {})
    if create:
        try:
            click.echo(anyio.run(create_stream, read))
        except MemForestError as error:
            _fail(str(error), EX_UNAVAILABLE)
        return
    findings = anyio.run(examine, read)
    _show_findings(findings, as_json)
    if any(finding.level == "error" for finding in findings):
        sys.exit(EX_DIFFERENT)


@main.command(name="verify")
@_config_option
@_data_option
@click.option("--json", "as_json", is_flag=True)
def verify_command(config_path: Path | None, data: str | None, as_json: bool) -> None:
    """Fold the log from nothing and compare with the live Memory; exit 1 at a difference."""
    read = _read(config_path, data, {})
    try:
        verdicts = anyio.run(_verify, read)
    except LogDamaged as error:
        _fail(str(error), EX_DATAERR)
    except StoreUnusable as error:
        _fail(str(error), EX_IOERR)
    if as_json:
        click.echo(msgspec.json.encode({"users": verdicts}))
    else:
        _show_verdicts(verdicts)
    if any(verdict.difference for verdict in verdicts):
        sys.exit(EX_DIFFERENT)


async def _verify(config: Config) -> list[UserVerdict]:
    log = await LogReader.open_to_read(config.data_dir / "events.db")
    try:
        try:
            async with AsyncClient(config.socket_path) as client:

                async def ask(user_id: str) -> MemoryDigest:
                    answer: dict[str, Any] = await client.request("digest", {"user_id": user_id})
                    return MemoryDigest(**answer)

                await client.request("status", {})
                return await verify(log, config.memory_parameters, ask)
        except DaemonUnreachable:
            return await verify(log, config.memory_parameters, None)
    finally:
        await log.close()


def _show_verdicts(verdicts: list[UserVerdict]) -> None:
    for verdict in verdicts:
        if verdict.difference:
            state = f"DIFFERENT  {verdict.difference}"
        elif verdict.compared:
            state = "equal"
        else:
            state = "the log is sound; no daemon runs and none left a digest to compare with"
        click.echo(f"{verdict.user_id}  {verdict.events} events  {state}")
    different = sum(verdict.difference is not None for verdict in verdicts)
    compared = sum(verdict.compared for verdict in verdicts)
    click.echo(f"verify: {len(verdicts)} users, {compared} compared, {different} different")


def _show_findings(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"findings": findings}))
        return
    for finding in findings:
        click.echo(f"{finding.level:8}{finding.subject}: {finding.sentence}")
        if finding.mend:
            click.echo(f"{'':8}-> {finding.mend}")


def _read(path: Path | None, data: str | None, overrides: dict[str, str]) -> Config:
    environ = {key: value for key, value in os.environ.items() if key not in _NOT_KEYS}
    if data is not None:
        overrides = {**overrides, "MEMFOREST_DATA_DIR": data}
    try:
        return read_config(path, {**environ, **overrides})
    except ConfigInvalid as error:
        _fail(str(error), EX_CONFIG)


# Variables with our prefix that are not keys of the configuration.
_NOT_KEYS = frozenset({"MEMFOREST_CONFIG"})


def _explain(error: Exception) -> tuple[int, str]:
    """Exit code and sentence for what ended the daemon; the text of an unknown error is not shown."""
    match error:
        case DirectoryInUse():
            return EX_TEMPFAIL, str(error)
        case StoreIsNewer() | ConfigInvalid():
            return EX_CONFIG, str(error)
        case LogDamaged():
            return EX_DATAERR, str(error)
        case StoreUnusable():
            return EX_IOERR, str(error)
        case MemForestError():
            return EX_UNAVAILABLE, str(error)
        case OSError():
            return EX_IOERR, f"{error.filename or 'the system'}: {error.strerror}"
        case _:
            return EX_SOFTWARE, f"an unexpected {type(error).__name__} at {place_of(error)}"


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    """The first error inside a group, however deep."""
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an exception group is never empty")


def _fail(sentence: str, code: int) -> NoReturn:
    click.echo(f"memforestd: {sentence}", err=True)
    sys.exit(code)
