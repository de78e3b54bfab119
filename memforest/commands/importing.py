"""`import`: what other systems exported, read into native messages and sent over the bus, each once."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memforest.commands.completing import complete_session, complete_user
from memforest.commands.options import with_daemon
from memforest.commands.sending import WAIT_TIMEOUT_S, Sent, Waiting, send_file, show_summary, summary_of
from memforest.importing.entries import CLIP_S, Chosen, Found, Skipped
from memforest.importing.formats import READERS, read_export, recognise, records_of
from memforest.output import counted

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.native import Record
    from memforest.output import Screen

# Enough to see what is wrong; --json has as many.
SKIPPED_SHOWN_MAX = 20
# While a long file is read, a line is written after so many messages.
COUNTED_EACH = 50_000


@dataclass(slots=True)
class Content:
    """What a file holds. Of what was skipped the first are kept with their places, and all are counted."""

    messages: int = 0
    turns: int = 0
    memories: int = 0
    session_ids: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    dated: Counter[str] = field(default_factory=Counter[str])
    reasons: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    embedded: int = 0
    unnamed: int = 0
    bare: int = 0
    skipped: list[Skipped] = field(default_factory=list[Skipped])

    def count(self, found: Found) -> None:
        """Take one message in."""
        body = found.body
        self.messages += 1
        self.session_ids.add((body["user_id"], body["session_id"]))
        if body["type"] == "session.close":
            return
        number = len(body["turns"]) if body["type"] == "turns" else 1
        self.turns += 0 if body["type"] == "memory" else number
        self.memories += body["type"] == "memory"
        self.embedded += "embedding" in body
        self.unnamed += "embedding" in body and not body.get("embedding_model")
        self.bare += found.bare
        self.dated[found.dated] += number

    def skip(self, skipped: Skipped) -> None:
        """Note what was left out."""
        self.reasons[skipped.reason] += 1
        if len(self.skipped) < SKIPPED_SHOWN_MAX:
            self.skipped.append(skipped)

    def refuse(self, record: Record, reason: str) -> None:
        """Note what the daemon did not take."""
        self.refused += 1
        self.skip(Skipped(record.place, reason))


@click.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", *READERS]),
    default="auto",
    show_default=True,
    help="What FILE is; recognised by its first value.",
)
@click.option("--user", shell_complete=complete_user, help="Whose memory it goes to, whomever the file names.")
@click.option("--session", shell_complete=complete_session, help="Put everything into this session.")
@click.option("--embedding-model", metavar="NAME", help="The model that made FILE's embeddings (mem0, m3).")
@click.option("--no-embeddings", is_flag=True, help="Take texts alone; the daemon's own embedder sees to them.")
@click.option("--begins", metavar="TIME", help="When the video of an m3 graph begins, in ISO 8601.")
@click.option(
    "--clip-seconds",
    "clip_s",
    type=click.FloatRange(min=0, min_open=True),
    default=CLIP_S,
    show_default=True,
    help="How long a clip of an m3 graph is.",
)
@click.option("--wait", is_flag=True, help="Return when the memory is built.")
@click.option(
    "--wait-timeout", "wait_timeout_s", type=click.FloatRange(min=0), default=WAIT_TIMEOUT_S, hidden=True
)
@click.option("--dry-run", is_flag=True, help="Only say what FILE holds; no daemon is asked.")
@click.option("--restart", is_flag=True, help="Begin anew where an earlier run was interrupted.")
@with_daemon
def import_file(
    client: Client,
    screen: Screen,
    file: Path,
    form: str,
    user: str | None,
    session: str | None,
    wait: bool,
    wait_timeout_s: float,
    dry_run: bool,
    restart: bool,
    embedding_model: str | None,
    no_embeddings: bool,
    begins: str | None,
    clip_s: float,
) -> None:
    """Import what another system exported into FILE.

    A second import of the same records nothing twice. What cannot be read is skipped and listed; what is skipped
    never keeps the rest from coming in.
    """
    form = recognise(file) if form == "auto" else form
    chosen = Chosen(user, session, file.stem, embedding_model, not no_embeddings, begins, clip_s)
    content = _read_through(file, form, chosen)
    sent: Sent | None = None
    if not dry_run and content.messages:
        chosen_beside = [str(each) for each in (embedding_model, no_embeddings, begins, clip_s) if each]
        selection = f"import {form} {user or ''} {session or ''} {' '.join(chosen_beside)}"
        records = records_of(file, form, chosen)
        waiting = Waiting(wait, wait_timeout_s)
        sent = send_file(client, file, records, content.messages, selection, waiting, restart, content.refuse)
    if screen.as_json:
        screen.json({**_described(form, content), **({} if sent is None else summary_of(sent))})
    else:
        _show(screen, form, content, sent)
    if content.messages == content.refused or (sent is not None and sent.not_recorded):
        click.get_current_context().exit(1)


def _read_through(file: Path, form: str, chosen: Chosen) -> Content:
    """Read the file once without sending, so that a broken one is refused before it is half imported."""
    content = Content()
    for entry in read_export(file, form, chosen):
        if isinstance(entry, Skipped):
            content.skip(entry)
            continue
        content.count(entry)
        if content.messages % COUNTED_EACH == 0:
            here = "\r" if sys.stderr.isatty() else ""
            click.echo(f"{here}read {content.messages} messages", nl=not here, err=True)
    if content.messages >= COUNTED_EACH and sys.stderr.isatty():
        click.echo(err=True)
    return content


def _described(form: str, content: Content) -> dict[str, object]:
    return {
        "format": form,
        "turns": content.turns,
        "memories": content.memories,
        "embeddings": content.embedded,
        "embeddings_left_out": content.bare,
        "sessions": len(content.session_ids),
        "times": {name: content.dated[name] for name in ("itself", "session", "nowhere")},
        "skipped": sum(content.reasons.values()),
        "reasons": dict(content.reasons),
        "first_skipped": [{"place": each.place, "reason": each.reason} for each in content.skipped],
    }


def _show(screen: Screen, form: str, content: Content, sent: Sent | None) -> None:
    if sent is None:
        memories = f"{counted(content.memories, 'memory')}, " if content.memories else ""
        sessions = counted(len(content.session_ids), "session")
        screen.line(f"{form}: {memories}{counted(content.turns, 'turn')} in {sessions}; nothing was sent.")
    else:
        show_summary(screen, sent)
    if content.unnamed:
        screen.note(
            f"{counted(content.unnamed, 'embedding')} without the name of a model: --embedding-model NAME tells "
            "it, and questions are asked with vectors of that model."
        )
    if content.bare:
        screen.note(
            f"{counted(content.bare, 'embedding')} left out: no list of finite numbers that are not all 0."
        )
    if content.dated["session"]:
        screen.note(f"{content.dated['session']} have no time of their own and take that of their session.")
    if content.dated["nowhere"]:
        screen.note(f"{content.dated['nowhere']} have no time: that of their arrival counts, and is flagged.")
    for reason, count in content.reasons.most_common():
        places = [each.place for each in content.skipped if each.reason == reason]
        more = ", …" if count > len(places) else ""
        screen.note(f"Skipped {count}: {reason} ({'; '.join(places)}{more})")
