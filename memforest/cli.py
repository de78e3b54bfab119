"""The `memforest` command: what people type against a running daemon.

Exit codes: 0 done, 1 the daemon says error, 2 the command or its file is wrong, 69 (EX_UNAVAILABLE
of sysexits.h) no daemon answers.
"""

from __future__ import annotations

from typing import Any

import click

import memforest
from memforest.commands.ask import query, status, users
from memforest.commands.diff import diff
from memforest.commands.dlq import dlq
from memforest.commands.events import events
from memforest.commands.facts import facts
from memforest.commands.forgetting import forget, replay, retract
from memforest.commands.publish import publish_file
from memforest.commands.sessions import close, compact, sessions
from memforest.errors import DaemonUnreachable, InvalidInput, MemForestError
from memforest.output import tidy


class _Unreachable(click.ClickException):
    exit_code = 69


class _BadInput(click.ClickException):
    exit_code = 2


def failure_of(error: MemForestError) -> click.ClickException:
    """One sentence, and the exit code that tells a script who has to act: operator, caller or daemon."""
    kinds = {DaemonUnreachable: _Unreachable, InvalidInput: _BadInput}
    kind = next((kinds[base] for base in type(error).__mro__ if base in kinds), click.ClickException)
    return kind(tidy(str(error)))


class _Commands(click.Group):
    """Every error of this package becomes one sentence and an exit code, never a stack trace."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except MemForestError as error:
            raise failure_of(error) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(memforest.__version__, prog_name="memforest")
def cli() -> None:
    """Talk to a running MemForest daemon."""


_COMMANDS = (
    publish_file,
    query,
    sessions,
    close,
    facts,
    users,
    forget,
    retract,
    replay,
    compact,
    events,
    diff,
    dlq,
    status,
)
for _command in _COMMANDS:
    cli.add_command(_command)


def main() -> None:
    """The entry point of the `memforest` script."""
    cli(prog_name="memforest")


if __name__ == "__main__":
    main()
