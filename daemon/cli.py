"""`memforestd`: run a store's daemon and look after the store."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from daemon.app import daemon_version, serve
from daemon.command_line import (
    EX_CONFIG,
    EX_DATAERR,
    EX_DIFFERENT,
    EX_IOERR,
    EX_UNAVAILABLE,
    config_option,
    data_option,
    explain,
    fail,
    first_error,
    load_configuration,
    read_configuration,
)
from daemon.config import Config, effective_values
from daemon.config_values import ConfigInvalid
from daemon.logs import configure_logs
from daemon.upkeep.cli_replay import replay_command
from daemon.upkeep.cli_store import backup, migrate, restore
from daemon.upkeep.findings import Finding
from daemon.upkeep.verify import UserVerdict, verify
from events.errors import LogDamaged, MemForestError, StoreUnusable
from events.integrity import PAGE_EVENTS
from events.log import LogReader
from projections.digests import MemoryDigest


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(daemon_version(), prog_name="memforestd")
def main() -> None:
    """Run and look after a MemForest store. To talk to a running daemon use `memforest`."""


@main.command()
@config_option
@data_option
@click.option("--embedded-bus", is_flag=True, help="Supervise a nats-server of our own, in the data directory.")
@click.option("--serve-damaged", is_flag=True, help="Serve the sound users of a store that is damaged.")
def run(config_path: Path | None, data: str | None, embedded_bus: bool, serve_damaged: bool) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second signal ends it at once."""
    overrides = {"MEMFOREST_BUS_EMBEDDED": "true"} if embedded_bus else {}
    config = read_configuration(config_path, data, overrides)
    report = configure_logs(config.log.level, config.log.format)
    os.umask(0o077)  # whatever is written is the daemon's user's alone
    try:
        anyio.run(serve, config, report, serve_damaged)
    except* Exception as group:
        code, sentence = explain(first_error(group))
        fail(sentence, code)


@main.command()
@click.option("--keep", is_flag=True, help="Leave the daemon running with the demo's store.")
def demo(keep: bool) -> None:
    """Show the whole product on a conversation of a year, in a temporary directory.

    With the defaults: a configuration file and MEMFOREST_ variables do not count here.
    """
    from daemon.upkeep.demo import run_demo

    for ending in (signal.SIGTERM, signal.SIGHUP):  # As Ctrl-C: the daemon ends and its folder goes, too.
        signal.signal(ending, signal.default_int_handler)
    sys.exit(anyio.run(run_demo, keep))


@main.command()
@config_option
@data_option
@click.option("--json", "as_json", is_flag=True)
def config(config_path: Path | None, data: str | None, as_json: bool) -> None:
    """Show every key with the value it has now."""
    read = read_configuration(config_path, data)
    values = effective_values(read)
    if as_json:
        click.echo(json.dumps(values, indent=2))
    else:
        for name, value in values.items():
            click.echo(f"{name} = {json.dumps(value)}")


@main.command()
@config_option
@data_option
@click.option("--create-stream", "create", is_flag=True, help="Create the stream on the NATS server, once.")
@click.option("--deep", is_flag=True, help="Check every event of the log; exit 65 when one is damaged.")
@click.option("--json", "as_json", is_flag=True)
def doctor(config_path: Path | None, data: str | None, create: bool, deep: bool, as_json: bool) -> None:
    """Look for the usual mistakes and say how to mend each.

    Ends with 0 when nothing is wrong or there are warnings only, 1 at an error, 65 at damage that --deep finds,
    78 when the configuration cannot be used.
    """
    from daemon.upkeep.doctor import create_stream, examine, examine_log

    try:
        read = load_configuration(config_path, data)
    except ConfigInvalid as error:
        mend = f"correct {config_path or 'the environment'}; `memforestd config` shows every key"
        _show_findings([Finding("error", "configuration", str(error), mend, "the daemon does not start")], as_json)
        sys.exit(EX_CONFIG)
    if create:
        try:
            click.echo(anyio.run(create_stream, read))
        except MemForestError as error:
            fail(str(error), EX_UNAVAILABLE)
        return
    findings = anyio.run(examine, read)
    damaged = []
    if deep and (read.data_dir / "events.db").exists():
        logged = anyio.run(examine_log, read, _show_progress)
        damaged = [finding for finding in logged if finding.level == "error"]
        findings += logged
    _show_findings(findings, as_json)
    if damaged:
        sys.exit(EX_DATAERR)
    if any(finding.level == "error" for finding in findings):
        sys.exit(EX_DIFFERENT)


@main.command(name="verify")
@config_option
@data_option
@click.option("--json", "as_json", is_flag=True)
def verify_command(config_path: Path | None, data: str | None, as_json: bool) -> None:
    """Fold the log from nothing and compare with the live Memory; exit 1 at a difference."""
    read = read_configuration(config_path, data)
    try:
        verdicts = anyio.run(_verify, read)
    except LogDamaged as error:
        fail(str(error), EX_DATAERR)
    except StoreUnusable as error:
        fail(str(error), EX_IOERR)
    if as_json:
        click.echo(msgspec.json.encode({"users": verdicts}))
    else:
        _show_verdicts(verdicts)
    if any(verdict.difference for verdict in verdicts):
        sys.exit(EX_DIFFERENT)


async def _verify(config: Config) -> list[UserVerdict]:
    from memforest.client import AsyncClient
    from memforest.errors import DaemonError, DaemonUnreachable

    log = await LogReader.open_to_read(config.data_dir / "events.db")
    try:
        try:
            async with AsyncClient(config.socket_path) as client:

                async def ask(user_id: str) -> MemoryDigest | None:
                    try:
                        answer: dict[str, Any] = await client.request("digest", {"user_id": user_id})
                    except DaemonError:
                        return None  # it cannot fold this user; what is wrong the log itself tells
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


def _show_progress(done: int, total: int) -> None:
    """How far a walk over the log is: on a terminal in place, in a pipe a line for every tenth."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[Klog: {done} of {total} events", nl=done >= total, err=True)
    elif done >= total or done * 10 // total > max(0, done - PAGE_EVENTS) * 10 // total:
        click.echo(f"log: {done} of {total} events", err=True)


def _show_findings(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"findings": findings}))
        return
    for finding in findings:
        click.echo(f"{finding.level:8}{finding.subject}: {finding.sentence}")
        if finding.why:
            click.echo(f"{'':8}   {finding.why}")
        if finding.mend:
            click.echo(f"{'':8}-> {finding.mend}")
    if not as_json:
        counts = Counter(finding.level for finding in findings)
        said = (f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}" for level in ("error", "warning"))
        click.echo(f"doctor: {', '.join(said)}")


@main.command()
@click.argument("document", type=click.Choice(["openapi", "asyncapi"]))
def schema(document: str) -> None:
    """Print the document that describes what the daemon answers over HTTP, or what it takes from the bus."""
    from daemon.serving.asyncapi import encode_asyncapi
    from daemon.serving.openapi import encode_openapi

    encode = encode_openapi if document == "openapi" else encode_asyncapi
    click.echo(encode(daemon_version()))


for command in (backup, restore, migrate, replay_command):
    main.add_command(command)
