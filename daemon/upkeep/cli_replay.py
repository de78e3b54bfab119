"""`memforestd replay`: what each event changed, as lines for people or as one JSON object a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path

import anyio
import click
import msgspec

from daemon.asking.history import parse_position
from daemon.asking.words import is_gone, measure_event, text_of
from daemon.command_line import (
    EX_DATAERR,
    EX_DIFFERENT,
    EX_IOERR,
    config_option,
    data_option,
    fail,
    read_configuration,
)
from daemon.config import Config
from daemon.upkeep.replay import Missing, Replayed, Step, find_users, replay
from events.errors import InvalidInput, LogDamaged, MemForestError, StoreUnusable
from events.log import LogReader
from events.time import to_iso
from projections.changes import Changes
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory

# Characters of an id that people see; JSON has all of them.
ID_CHARACTERS = 8
# Missing answers that people see by name.
MISSING_SHOWN_MAX = 20


@dataclass(slots=True)
class Printer:
    """Writes steps and ends. Words (of turns, facts, summaries, and entities' names) only when asked for."""

    as_json: bool
    texts: bool
    step: bool
    progress: bool
    # Entities by number, in the order in which they appear, when their names are not to be seen.
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
    _progress_shown: bool = False

    async def show(self, step: Step) -> None:
        """One event, and a wait for Enter when it was asked for."""
        self._clear_progress()
        if self.as_json:
            click.echo(msgspec.json.encode(self._as_object(step)).decode())
        else:
            for line in self._lines(step):
                click.echo(line)
        if self.step and not sys.stdin.readline():
            self.step = False  # the end of the input is as good as Enter for all the rest

    def count(self, done: int, total: int) -> None:
        """How far it is, where someone waits for it."""
        if self.progress and done < total:
            click.echo(f"\rreplay: {done:,} of {total:,} events", err=True, nl=False)
            self._progress_shown = True
        else:
            self._clear_progress()

    def end(self, done: Replayed) -> None:
        """What came of it all."""
        self._clear_progress()
        memory, digest = done.memory, done.digest
        counts = {
            "facts": len(memory.canon.facts),
            "trees": len(memory.forest.trees),
            "groups": len(memory.units.groups),
            "chunks": len(memory.chunks),
        }
        if self.as_json:
            missing = [
                {"task": m.task, "about": m.about, "scope": self._scope(memory, m.scope)} for m in done.missing
            ]
            summary = {"events": done.events, "shown": done.shown, **counts, "dirty": done.dirty}
            end = {"user_id": memory.user_id, "summary": summary, "missing": missing, "digest": digest}
            click.echo(msgspec.json.encode(end).decode())
            return
        parts = ", ".join(f"{count} {name}" for name, count in counts.items())
        click.echo(f"{memory.user_id}: {done.events} events, {done.shown} shown; {parts}")
        for line in self._missing_lines(memory, done):
            click.echo(line)
        hashes = "  ".join(f"{part} {getattr(digest, part)}" for part in ("facts", "scopes", "trees", "units"))
        click.echo(f"digest at user_seq {digest.user_seq}: {hashes}")

    def _missing_lines(self, memory: Memory, done: Replayed) -> Iterator[str]:
        if not done.missing:
            return
        yield f"still to do: {len(done.missing)} answers are not in the log, {done.dirty} nodes have no text"
        for missing in done.missing[:MISSING_SHOWN_MAX]:
            yield f"  {self._missing(memory, missing)}"
        if len(done.missing) > MISSING_SHOWN_MAX:
            yield f"  and {len(done.missing) - MISSING_SHOWN_MAX} more"

    def _missing(self, memory: Memory, missing: Missing) -> str:
        sentence = {
            "extract": "chunk {} has no extraction",
            "admit": "the fact at {} (seq/n) is not admitted",
            "route": "the fact {} is not routed to scenes",
            "summarise": "node {} has no summary",
        }[missing.task].format(missing.about[:ID_CHARACTERS] if missing.scope else missing.about)
        return sentence if missing.scope is None else f"{sentence}, in {self._scope(memory, missing.scope)}"

    def _lines(self, step: Step) -> Iterator[str]:
        recorded = step.recorded
        gone = is_gone(recorded, step.memory.hindsight)
        what = {} if gone or recorded.event is None else measure_event(recorded.event)
        session = "-" if recorded.session is None else (recorded.session_id or _short(recorded.session))
        numbers = " ".join(f"{name}={_shorten(value)}" for name, value in what.items() if value)
        state = "  (words erased)" if gone else "  (stands no more)" if step.voided else ""
        place = f"{recorded.user_seq:>6}  {to_iso(recorded.recorded_at)}"
        yield f"{place}  {recorded.type}  {session}  {numbers}{state}"
        if self.texts and not gone and recorded.event is not None:
            for line in (text_of(recorded.event) or "").splitlines():
                yield f"{'':8}| {_visible(line)}"
        for line in self._change_lines(step.memory, step.changes):
            yield f"{'':8}{line}"

    def _change_lines(self, memory: Memory, changes: Changes) -> Iterator[str]:
        for name, said in _SAID.items():
            ids: tuple[bytes, ...] = getattr(changes, name)
            if ids:
                yield f"{said}: {_list(ids)}"
        if changes.occurrences_waiting:
            yield f"facts to admit: {changes.occurrences_waiting:+}"
        if changes.facts_unrouted:
            yield f"facts to route: {changes.facts_unrouted:+}"
        if changes.pairs_judged:
            yield f"pairs judged: {changes.pairs_judged:+}"
        if changes.promoted:
            yield "facts are compared by other vectors from now on"
        for move in changes.scopes:
            yield f"{self._scope(memory, move.scope)}: {len(move.joined)} facts joined, {len(move.left)} left"
        for tree in changes.trees:
            leaves = f"{len(tree.leaves_joined)} leaves in, {len(tree.leaves_left)} out"
            nodes = f"nodes new {_list(tree.nodes_new)}, gone {_list(tree.nodes_gone)}"
            yield f"tree of {self._scope(memory, tree.scope)}: {leaves}; {nodes}"
        if changes.units:
            yield f"facts in other units: {len(changes.units)}"
        if changes.sessions_hidden:
            yield f"sessions hidden: {len(changes.sessions_hidden)}, with {changes.rows_hidden} rows of the search"

    def _as_object(self, step: Step) -> dict[str, object]:
        recorded = step.recorded
        gone = is_gone(recorded, step.memory.hindsight)
        event = None if gone else recorded.event
        shown: dict[str, object] = {
            "user_id": recorded.user_id,
            "user_seq": recorded.user_seq,
            "at": to_iso(recorded.recorded_at),
            "type": recorded.type,
            "happened_at": to_iso(recorded.happened_at),
            "session_id": recorded.session_id,
            "words": "erased" if gone else "kept",
            "stands": not step.voided,
            "what": {} if event is None else measure_event(event),
            "changes": self._plain(step.memory, step.changes),
        }
        if self.texts:
            shown["text"] = None if event is None else text_of(event)
        return shown

    def _plain(self, memory: Memory, value: object) -> object:
        """For JSON: ids in hex, scopes by name, and of a record only what is not empty."""
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, Scope):
            return self._scope(memory, value)
        if isinstance(value, tuple):
            return [self._plain(memory, each) for each in value]
        if is_dataclass(value):
            held = ((each.name, getattr(value, each.name)) for each in fields(value))
            return {name: self._plain(memory, each) for name, each in held if each}
        return value

    def _scope(self, memory: Memory, scope: Scope | None) -> str | None:
        """A scope by name; an entity, whose name someone said, by number unless words are to be seen."""
        if scope is None:
            return None
        if scope.kind is ScopeKind.SESSION:
            session = bytes.fromhex(scope.name)
            return f"session {memory.session_ids.get(session) or _short(session)}"
        if scope.kind is ScopeKind.USER:
            return "user"
        if scope.kind is ScopeKind.SCENE:
            return f"scene {_short(bytes.fromhex(scope.name))}"
        if self.texts:
            return f"entity {scope.name}"
        return f"entity {self._numbers.setdefault(scope.name, len(self._numbers) + 1)}"

    def _clear_progress(self) -> None:
        if self._progress_shown:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._progress_shown = False


# What people read of the changes that are lists of ids.
_SAID = {
    "chunks_opened": "chunk opened in session",
    "chunks_closed": "chunk closed",
    "chunks_gone": "chunk gone",
    "chunks_waiting": "waits for its extraction",
    "chunks_served": "waits no more",
    "facts_founded": "facts founded",
    "facts_joined": "facts joined",
    "facts_gone": "facts gone",
    "facts_superseded": "states ended",
    "facts_standing": "states hold again",
    "summaries": "summaries noted",
    "groups_made": "groups made",
    "groups_undone": "groups undone",
}


@click.command(name="replay")
@config_option
@data_option
@click.option("--user", "user_id", help="Only this user; all of them otherwise.")
@click.option("--session", "session_id", help="Show only what happened in and because of this session.")
@click.option("--from", "first", type=click.IntRange(1), default=1, help="Show from this user_seq on.")
@click.option("--to", metavar="USER_SEQ|TIME", help="Fold up to here only; a time in ISO 8601 with its offset.")
@click.option("--step", is_flag=True, help="Wait for Enter after each event.")
@click.option("--texts", is_flag=True, help="Also show what was said: turns, facts, summaries, names.")
@click.option("--strict", is_flag=True, help="Exit 1 when an answer of a model is missing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def replay_command(
    config_path: Path | None,
    data: str | None,
    user_id: str | None,
    session_id: str | None,
    first: int,
    to: str | None,
    step: bool,
    texts: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Fold the log into a scratch Memory and show, event by event, what changed. Asks no model."""
    if step and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("--step waits for Enter, so it needs a terminal.")
    config = read_configuration(config_path, data)
    seldom = session_id is not None or not sys.stdout.isatty()
    printer = Printer(as_json, texts, step, progress=sys.stderr.isatty() and seldom and not step)
    try:
        missing = anyio.run(_replay, config, printer, (user_id, session_id, first, to))
    except LogDamaged as error:
        fail(str(error), EX_DATAERR)
    except StoreUnusable as error:
        fail(str(error), EX_IOERR)
    except MemForestError as error:
        fail(str(error), EX_DIFFERENT)
    if missing and strict:
        fail(f"{missing} answers are not in the log; they are named above", EX_DIFFERENT)


async def _replay(config: Config, printer: Printer, asked: tuple[str | None, str | None, int, str | None]) -> int:
    """Replay user by user; how many answers are missing."""
    user_id, session_id, first, to = asked
    missing = 0
    log = await LogReader.open_to_read(config.data_dir / "events.db")
    try:
        users = await find_users(log, user_id, session_id)
        if len(users) > 1 and (first > 1 or (to is not None and isinstance(parse_position(to), int))):
            raise InvalidInput("a user_seq is a place among one user's events; say whose with --user")
        for user, span in users:
            span = replace(span, first=first, to=None if to is None else parse_position(to))
            done = await replay(log, user, config.memory_parameters, span, printer.show, printer.count)
            printer.end(done)
            missing += len(done.missing)
    finally:
        await log.close()
    return missing


def _short(reference: bytes) -> str:
    return reference.hex()[:ID_CHARACTERS]


def _shorten(value: object) -> str:
    """A number as it is, an id as people see it."""
    return value[:ID_CHARACTERS] if isinstance(value, str) else str(value)


def _list(ids: tuple[bytes, ...]) -> str:
    """A few ids, or how many there are."""
    few = " ".join(_short(each) for each in ids[:4])
    return few + (f" and {len(ids) - 4} more" if len(ids) > 4 else "") if ids else "none"


def _visible(line: str) -> str:
    """Without what acts on a terminal: people may have said escape sequences."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
