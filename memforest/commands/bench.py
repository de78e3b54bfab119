"""`bench`: what the memory is worth on published data sets, through a running daemon."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memforest.bench.daemons import check_chat_models, check_models, notes_on, read_sockets
from memforest.bench.data_sets import DATA_SETS, Selection, look_through
from memforest.bench.flow import Bench, Plan
from memforest.bench.log import Log
from memforest.bench.progress import shown_progress
from memforest.bench.rows import BROWSES, FAMILIES, MODES, make_rows
from memforest.bench.runs import run_of
from memforest.bench.table_text import as_json, as_markdown, as_text
from memforest.bench.tables import make_tables
from memforest.commands.sending import WAIT_TIMEOUT_S
from memforest.errors import InvalidInput
from memforest.output import Screen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memforest.bench.daemons import Daemon
    from memforest.bench.records import Run

_HELP_SOCKET = (
    "The daemon's socket; otherwise $MEMFOREST_SOCKET_PATH or the usual places. Several: NAME=PATH each."
)
# Each has a task in the daemon, which serves 32 requests of a connection at a time.
_CONCURRENCY_MAX = 32


def _split(choices: Sequence[str]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that reads lists with commas, of these words alone."""

    def read(_: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        lists = tuple(tuple(word.strip() for word in each.split(",") if word.strip()) for each in given)
        if not all(lists) or not {word for each in lists for word in each} <= set(choices):
            raise click.BadParameter(f"a list, with commas, of {', '.join(choices)}", param=parameter)
        return lists

    return read


@click.command()
@click.argument("data_set", type=click.Choice(list(DATA_SETS)))
@click.option(
    "--data",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="The data set's file as it is published; of personamem the folder, or one of its two files.",
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    default=("agpr",),
    show_default=True,
    callback=_split(MODES),
    help="Ways of asking, with commas; a row each, beside plain BM25 and plain hybrid.",
)
@click.option(
    "--families",
    multiple=True,
    callback=_split(FAMILIES),
    help="Of which trees, with commas (session, entity, scene); given several times, a row each.",
)
@click.option(
    "--browse", "browses", multiple=True, callback=_split(BROWSES), help="Who browses in mode deep: emb, llm."
)
@click.option("--planner", is_flag=True, help="Mode deep with a planner; with --no-planner, too, a row each.")
@click.option("--no-planner", is_flag=True, help="Mode deep without one.")
@click.option(
    "-k", "--k", "k", type=click.IntRange(1, 200), default=10, show_default=True, help="Memories of an answer."
)
@click.option("--answer", is_flag=True, help="Have each question answered in words, too; needs a chat model.")
@click.option("--judge", is_flag=True, help="Have a model say whether answers are right; only with --answer.")
@click.option(
    "--samples", type=click.IntRange(min=1), default=1, show_default=True, help="Answers a question: pass@1 to n."
)
@click.option(
    "--merge-models",
    metavar="A,B",
    help="Compare models: a daemon has one (models.chat_model), which reads, summarises and merges: run a daemon "
    "for each and call it after its model: --socket A=PATH --socket B=PATH. Their status must say the same.",
)
@click.option("--conversations", type=click.IntRange(min=1), help="Only the first so many.")
@click.option("--questions", type=click.IntRange(min=1), help="Only the first so many of each conversation.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, _CONCURRENCY_MAX),
    default=1,
    show_default=True,
    help="Questions at once.",
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep a line a question here; again, it goes on.",
)
@click.option("--words", is_flag=True, help="Questions and answers stand in the log, too.")
@click.option("--keep", is_flag=True, help="Do not forget the conversations in the end.")
@click.option("--wait-timeout", "wait_s", type=click.FloatRange(min=0), default=WAIT_TIMEOUT_S, hidden=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="Of the tables.",
)
@click.option("--json", "as_json_too", is_flag=True, help="The same as --format json.")
@click.option("--socket", "sockets", metavar="[NAME=]PATH", multiple=True, help=_HELP_SOCKET)
def bench(
    data_set: str, data: Path, *, form: str, as_json_too: bool, sockets: Sequence[str], **given: Any
) -> None:
    """Measure the daemon on DATA_SET.

    Each conversation becomes a user of its own (bench-DATA_SET-...), who is forgotten once all was asked; nobody
    else is touched. Beside what is asked for there are always two plain rows: BM25 and hybrid search over the
    turns.
    """
    plan = _plan_of(data_set, **given)
    daemons = read_sockets(sockets)
    if models := given["merge_models"]:
        check_models(daemons, [name.strip() for name in models.split(",")])
    if plan.samples:
        check_chat_models(daemons, "--answer")
    if any(row.params.get("mode") == "deep" for row in plan.rows):
        check_chat_models(daemons, "--mode deep")
    notes = tuple(notes_on(daemons))
    selection = Selection(DATA_SETS[data_set], data, given["conversations"], given["questions"])
    contents = look_through(selection)
    settings = _settings_of(plan, daemons, selection)
    with _open_log(given["log_path"], settings, words=given["words"]) as log:
        total = contents.questions * len(plan.rows) * len(daemons)
        with shown_progress(sum(not each.fault for each in log.known.asked.values()), total) as watch:
            _run(Bench(plan, daemons, log, watch), selection, is_kept=given["log_path"] is not None)
        names = [daemon.name for daemon in daemons]
        _show(run_of(plan, log.known, names, contents.categories, notes), "json" if as_json_too else form)


def _plan_of(data_set: str, **given: Any) -> Plan:
    """Raises InvalidInput for options that do not go together."""
    if given["judge"] and not given["answer"]:
        raise InvalidInput("--judge says whether answers are right; ask for them with --answer.")
    if given["samples"] > 1 and not given["answer"]:
        raise InvalidInput("--samples is for answers in words; ask for them with --answer.")
    planners = [True] * given["planner"] + [False] * given["no_planner"]
    return Plan(
        data_set=data_set,
        rows=make_rows(_flat(given["modes"]), given["families"], _flat(given["browses"]), planners),
        k=given["k"],
        samples=given["samples"] if given["answer"] else 0,
        judge=given["judge"],
        keep=given["keep"],
        concurrency=given["concurrency"],
        wait_s=given["wait_s"],
    )


def _open_log(path: Path | None, settings: dict[str, Any], *, words: bool) -> Log:
    """Raises InvalidInput for a file that cannot be written."""
    try:
        return Log(path, settings, run_id=secrets.token_hex(6), words=words)
    except OSError as error:
        raise InvalidInput(f"--log cannot be written: {error.strerror}.") from None


def _settings_of(plan: Plan, daemons: Sequence[Daemon], selection: Selection) -> dict[str, Any]:
    """What a log is bound to: all that decides what is asked and of whom, and how it is scored."""
    return {
        "data_set": plan.data_set,
        "data": selection.digest(),
        "conversations": selection.conversations,
        "questions": selection.questions,
        "daemons": [daemon.name for daemon in daemons],
        "rows": {row.name: dict(row.params) for row in plan.rows},
        "k": plan.k,
        "samples": plan.samples,
    }


def _run(bench: Bench, selection: Selection, *, is_kept: bool) -> None:
    """Run it; where no log goes on later, whom it has made is forgotten however it ends."""
    ended = False
    try:
        bench.run(selection.read())
        ended = True
    finally:
        if not ended and is_kept:
            click.echo("Stopped; the same command goes on from there.", err=True)
        elif not ended:
            bench.forget_begun()


def _show(run: Run, form: str) -> None:
    tables = make_tables(run)
    if form == "json":
        Screen(as_json=True).json(as_json(run, tables))
    else:
        click.echo(as_markdown(tables, run.notes) if form == "markdown" else as_text(tables, run.notes), nl=False)


def _flat(lists: Sequence[Sequence[str]]) -> list[str]:
    return [word for each in lists for word in each]
