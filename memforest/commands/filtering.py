"""The options that say which memories may answer, put together as the `filters` of a query."""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import click

from memforest.commands.completing import complete_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memforest.wire import JsonObject

# What may be given several times: the option, the filter it goes into, and what it says.
_LISTS = (
    ("--session", "sessions", "ID", "Only memories from this session; can be repeated, as those below."),
    ("--not-session", "not_sessions", "ID", "No memories from this session."),
    ("--role", "roles", "NAME", "Only what was said in this role: user, assistant, …"),
    ("--not-role", "not_roles", "NAME", "Nothing that was said in this role."),
    ("--entity", "entities", "NAME", "Only memories that name this person or thing."),
    ("--agent", "agents", "ID", "Only what was said with this agent."),
)


def with_filters(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options, and hand the command what they say as `filters`, None without any."""

    @wraps(function)
    def command(
        *parts: Any,
        kinds: Sequence[str],
        metadata: Sequence[str],
        since: str | None,
        until: str | None,
        **given: Any,
    ) -> None:
        filters: JsonObject = {name: list(given.pop(name)) for _, name, _, _ in _LISTS}
        filters |= {"kinds": list(kinds), "metadata": _read_metadata(metadata)}
        filters |= {"said_after": since, "said_before": until}
        function(*parts, filters={name: value for name, value in filters.items() if value} or None, **given)

    decorated: Any = command
    for name, what in (("--until", "before"), ("--since", "at or after")):
        decorated = click.option(
            name, metavar="TIME", help=f"Only what was said {what} this date, or time with its offset."
        )(decorated)
    decorated = click.option(
        "--metadata", multiple=True, metavar="NAME=VALUE", help="Only turns that were published with this."
    )(decorated)
    decorated = click.option(
        "--kind", "kinds", multiple=True, type=click.Choice(["chunk", "fact", "group"]), help="Only these."
    )(decorated)
    for option, name, metavar, help_text in reversed(_LISTS):
        complete: Any = complete_session if "session" in option else None
        decorated = click.option(
            option, name, multiple=True, metavar=metavar, help=help_text, shell_complete=complete
        )(decorated)
    return cast("Callable[..., None]", decorated)


def _read_metadata(given: Sequence[str]) -> dict[str, list[object]]:
    """The values by name; a value that reads as a number, true or false is both that and its text."""
    values: dict[str, list[object]] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not name or not equals:
            raise click.BadParameter("is a name and a value: channel=email", param_hint="--metadata")
        values.setdefault(name, []).append(text)
        try:
            value: object = json.loads(text)
        except ValueError:
            continue
        if value is not None and not isinstance(value, str | list | dict):
            values[name].append(value)
    return values
