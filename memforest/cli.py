"""The `memforest` command: what people type against a running daemon.

Exit codes: 0 done, 1 the daemon says error, 2 the command or its file is wrong, 69 (EX_UNAVAILABLE
of sysexits.h) no daemon answers. With --json an error is JSON, too, on standard error.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

import memforest
from memforest.commands.add import add
from memforest.commands.ask import query, users
from memforest.commands.bench import bench
from memforest.commands.compact import compact
from memforest.commands.completion import completion
from memforest.commands.diff import diff
from memforest.commands.dlq import dlq
from memforest.commands.events import events
from memforest.commands.export import export
from memforest.commands.facts import facts
from memforest.commands.forgetting import forget, replay, retract
from memforest.commands.importing import import_file
from memforest.commands.parked import parked
from memforest.commands.policy import policy
from memforest.commands.publish import publish_file
from memforest.commands.sessions import close, sessions
from memforest.commands.status import status
from memforest.commands.trees import tree
from memforest.commands.units import units
from memforest.commands.why import why
from memforest.errors import DaemonError, DaemonUnreachable, InvalidInput, MemForestError, RequestInvalid
from memforest.output import tidy

if TYPE_CHECKING:
    from collections.abc import Sequence

# What the daemon calls a parameter, and what someone typed for it. Only names that mean nothing else.
_TYPED = {
    "user_id": "USER",
    "session_id": "SESSION",
    "turn_id": "TURN",
    "fact_id": "FACT",
    "memory_id": "MEMORY",
    "max_tokens": "--max-tokens",
    "wait_for": "--wait-for",
    "as_of": "--as-of",
    "valid_at": "--valid-at",
    "reference_date": "--reference-date",
    "calls_max": "--calls-max",
    "model_tokens_max": "--model-tokens-max",
    "timeout_s": "--timeout",
    "time_start": "--from",
    "time_end": "--until",
    "dry_run": "--dry-run",
    "member_cap": "--member-cap",
    "time_bonus": "--time-bonus",
    "min_age_s": "--min-age",
    "never_merged": "--never-merge",
    "filters.sessions": "--session",
    "filters.not_sessions": "--not-session",
    "filters.roles": "--role",
    "filters.not_roles": "--not-role",
    "filters.kinds": "--kind",
    "filters.entities": "--entity",
    "filters.agents": "--agent",
    "filters.metadata": "--metadata",
    "filters.said_after": "--since",
    "filters.said_before": "--until",
}
# Methods that sentences of the daemon point to, and the commands that ask them.
_COMMAND_OF = {
    "users.list": "memforest users",
    "sessions.list": "memforest sessions",
    "facts.list": "memforest facts",
    "trees.list": "memforest tree",
    "dead_letters.list": "memforest dlq list",
    "parked.list": "memforest parked list",
    "units.list": "memforest units",
}
# Parameters that are words of English, too: only where the sentence is about them.
_TYPED_FIRST = {
    "k": "-k",
    "limit": "--limit",
    "after": "--after",
    "ratio": "--ratio",
    "query": "QUESTION",
    "between": "--between",
    "families": "--family",
    "planner": "--planner",
    "browse": "--browse",
}


class _Failure(click.ClickException):
    """An error of this package with the code that programs decide on."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class _Unreachable(_Failure):
    exit_code = 69


class _BadInput(_Failure):
    exit_code = 2


def failure_of(error: MemForestError) -> click.ClickException:
    """One sentence, and the exit code that tells a script who has to act: operator, caller or daemon."""
    kinds = {DaemonUnreachable: _Unreachable, InvalidInput: _BadInput}
    kind = next((kinds[base] for base in type(error).__mro__ if base in kinds), _Failure)
    sentence = tidy(str(error))
    if isinstance(error, DaemonError):
        sentence = _with_commands(as_typed(sentence) if isinstance(error, RequestInvalid) else sentence)
    return kind(sentence, error.code)


def _with_commands(sentence: str) -> str:
    return re.sub(r"`([a-z_]+\.list)`", lambda found: f"`{_COMMAND_OF.get(found[1], found[1])}`", sentence)


def as_typed(sentence: str) -> str:
    """A sentence of the daemon about parameters, with the options and arguments of the command in their place."""
    if sentence.startswith("message "):
        return sentence  # about a field of what is published, whose names are these
    sentence = re.sub(
        r"`?\b(" + "|".join(map(re.escape, _TYPED)) + r")\b`?", lambda found: _TYPED[found[1]], sentence
    )
    sentence = re.sub(r'\bin mode "([a-z]+)"', r"with --mode \1", sentence)
    sentence = re.sub(r'\bmode "([a-z]+)"', r"--mode \1", sentence)
    first = r"^`?(" + "|".join(_TYPED_FIRST) + r")`?(?= (?:is|has|holds)\b)"
    return re.sub(first, lambda found: _TYPED_FIRST[found[1]], sentence)


class _Commands(click.Group):
    """Every error of this package becomes one sentence and an exit code, never a stack trace."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except MemForestError as error:
            raise failure_of(error) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click does it, and with --json an error is `{"error": {"code", "message"}}` on standard error."""
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in (given[: given.index("--")] if "--" in given else given)
        if not (standalone_mode and as_json):
            return super().main(given, prog_name, complete_var, standalone_mode, **extra)
        ended: object = None
        try:
            ended = super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            code = error.code if isinstance(error, _Failure) else "invalid"
            _end_with(code, error.format_message(), error.exit_code)
        except click.Abort:
            _end_with("aborted", "Interrupted.", 1)
        sys.exit(ended if isinstance(ended, int) else 0)


def _end_with(code: str, message: str, exit_code: int) -> NoReturn:
    click.echo(json.dumps({"error": {"code": code, "message": message}}), err=True)
    sys.exit(exit_code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(memforest.__version__, prog_name="memforest")
def cli() -> None:
    """Talk to a running MemForest daemon."""


_COMMANDS = (
    add,
    publish_file,
    import_file,
    query,
    sessions,
    close,
    facts,
    why,
    tree,
    units,
    users,
    forget,
    retract,
    replay,
    compact,
    policy,
    export,
    events,
    diff,
    dlq,
    parked,
    status,
    bench,
    completion,
)
for _command in _COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """The entry point of the `memforest` script."""
    cli(prog_name="memforest")


if __name__ == "__main__":
    main()
