"""What the shell completes: ids of users, sessions, facts and trees, asked of the daemon if it answers at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

from memforest import calls
from memforest.client import Client
from memforest.errors import MemForestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

# Someone holds the tab key; a daemon that is busy is not waited for.
WAIT_S = 0.5
# More than a shell shows at once.
SHOWN_MAX = 200


def complete_user(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Everyone a memory is kept for."""
    return _complete(ctx, incomplete, lambda client: ((user.user_id, "") for user in client.users()))


def complete_session(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The sessions of the user that was named before."""
    user = ctx.params.get("user")
    if not user:
        return []
    return _complete(ctx, incomplete, lambda client: ((s.session_id, s.state) for s in client.sessions(user)))


def complete_fact(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The facts of the user that was named before, with how they begin."""
    user = ctx.params.get("user")
    if not user:
        return []
    return _complete(
        ctx, incomplete, lambda client: ((f.id, f.text[:60]) for f in client.facts(user, limit=1000).facts)
    )


def complete_scope(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What the user that was named before has trees about."""
    user = ctx.params.get("user")
    if not user:
        return []
    return _complete(
        ctx,
        incomplete,
        lambda client: (
            (t.scope, f"{t.kind}: {t.name}" if t.kind == "scene" else t.kind)
            for t in client.call(calls.trees(user))
        ),
    )


def complete_parked(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The parked work of the user that was named before, with what it is and why."""
    user = ctx.params.get("user")
    if not user:
        return []
    return _complete(
        ctx,
        incomplete,
        lambda client: ((str(p.id), f"{p.task}: {p.reason}") for p in client.parked(user, limit=SHOWN_MAX).parked),
    )


def _complete(ctx: click.Context, incomplete: str, ask: Any) -> list[CompletionItem]:
    """Ids that begin as what was typed; none when the daemon does not answer: a shell shows no errors."""
    try:
        with Client(ctx.params.get("socket"), timeout_s=WAIT_S) as client:
            found: Iterable[tuple[str, str]] = ask(client)
            # A shell reads one candidate a line; ids with line breaks have to be typed.
            named = [(name, text) for name, text in found if name.startswith(incomplete) and name.isprintable()]
    except MemForestError:
        return []
    return [CompletionItem(name, help=" ".join(text.split()) or None) for name, text in named[:SHOWN_MAX]]
