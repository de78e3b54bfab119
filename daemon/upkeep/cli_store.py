"""`memforestd backup`, `restore` and `migrate`: what is done to a store as a whole."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import click
import msgspec

from daemon.app import now
from daemon.bus.tombstone_sources import TombstoneList, ask_bus, read_receipts
from daemon.command_line import (
    EX_USAGE,
    config_option,
    data_option,
    explain,
    fail,
    read_configuration,
)
from daemon.upkeep.backup import Backup, back_up
from daemon.upkeep.restore import Restored, migrate_store, restore_backup
from events.backup import Watch, unwatched
from events.errors import InvalidInput

_json_option = click.option("--json", "as_json", is_flag=True)
_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("destination", type=_file)
@config_option
@data_option
@_json_option
def backup(destination: Path, config_path: Path | None, data: str | None, as_json: bool) -> None:
    """Write a verified copy of the store to DESTINATION; the daemon may run."""
    config = read_configuration(config_path, data)
    with _ending_in_sentences(), _progress() as watch:
        done = back_up(config.data_dir, destination, watch)
    if as_json:
        click.echo(msgspec.json.encode(done))
    else:
        click.echo(_describe_backup(done))
    click.echo("It holds the store's secret and everything that was said: keep it as safe as the store.", err=True)
    if done.forgotten_not_erased:
        click.echo(
            f"{done.forgotten_not_erased} sessions or users in it are forgotten and not erased yet: their words"
            " are in this file, and are erased after a restore. For a copy without them make another one later.",
            err=True,
        )


@click.command()
@click.argument("backup", type=_file)
@config_option
@data_option
@click.option("--receipts", type=_file, help="Receipts of forgetting, one JSON object a line.")
@click.option("--force", is_flag=True, help="Restore although nothing knows what was forgotten since.")
@click.option("--keep-replaced", is_flag=True, help="Keep the store that is replaced, in replaced/.")
@_json_option
def restore(
    backup: Path,
    config_path: Path | None,
    data: str | None,
    receipts: Path | None,
    force: bool,
    keep_replaced: bool,
    as_json: bool,
) -> None:
    """Put BACKUP in the place of the store; no daemon may run on it.

    What was forgotten since the backup is told by the store that stands there now, by the bus, and by --receipts.
    """
    config = read_configuration(config_path, data)
    os.umask(0o077)

    def ask() -> TombstoneList:
        return anyio.run(ask_bus, config)

    with _ending_in_sentences(), _progress() as watch:
        done = restore_backup(
            backup,
            config.data_dir,
            now(),
            () if receipts is None else (read_receipts(receipts),),
            ask,
            force=force,
            keep_replaced=keep_replaced,
            watch=watch,
        )
    click.echo(msgspec.json.encode(done) if as_json else _describe_restored(done))
    if not done.tombstones:
        click.echo(
            "WARNING: nothing told what was forgotten since this backup. Sessions that were forgotten after it are"
            " back, with every word, unless the bus still has the wish: forget them again.",
            err=True,
        )
    click.echo("Start the daemon: it reads what came after the backup again from the bus.", err=True)


@click.command()
@config_option
@data_option
@_json_option
def migrate(config_path: Path | None, data: str | None, as_json: bool) -> None:
    """Bring the store to this release's schema; no daemon may run on it, and `run` does the same."""
    config = read_configuration(config_path, data)
    with _ending_in_sentences():
        before, after = migrate_store(config.data_dir, now())
    if as_json:
        click.echo(msgspec.json.encode({"before": before, "after": after}))
    elif before == after:
        click.echo(f"the schema is of version {after} already")
    else:
        click.echo(f"the schema was of version {before} and is of version {after} now")


def _describe_backup(done: Backup) -> str:
    return (
        f"{done.destination}: verified, {done.events} events, {done.users} users, {done.bytes} bytes,"
        f" head seq {done.head_seq}, sha256 {done.sha256}"
    )


def _describe_restored(done: Restored) -> str:
    sources = ", ".join(f"{name} {count}" for name, count in done.tombstones.items()) or "no source"
    kept = "" if done.kept_at is None else f"; the store of before is kept at {done.kept_at}"
    return (
        f"restored and verified: {done.events} events, {done.users} users, head seq {done.head_seq};"
        f" tombstones: {sources}; {done.tombstones_added} of them new to it;"
        f" {done.forgotten_not_erased} sessions or users to be erased at the next start{kept}"
    )


@contextmanager
def _ending_in_sentences() -> Generator[None]:
    """Errors end the command with their exit code, and SIGTERM like Ctrl-C, so that nothing is left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except InvalidInput as error:
        fail(str(error), EX_USAGE)
    except Exception as error:
        code, sentence = explain(error)
        fail(sentence, code)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress() -> Generator[Watch]:
    """Shows how far long work is, on a terminal only."""
    if not sys.stderr.isatty():
        yield unwatched
        return

    def show(step: str, share: float) -> None:
        click.echo(f"\r\033[K{step} {share:.0%}" if share else f"\r\033[K{step}", nl=False, err=True)

    try:
        yield show
    finally:
        click.echo("\r\033[K", nl=False, err=True)
