"""`tree`: the MemTrees of a memory, to be read on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.answer_view import NOBODY
from memforest.commands.completing import complete_scope, complete_user
from memforest.commands.options import with_daemon
from memforest.errors import NotFound
from memforest.output import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.client import Client
    from memforest.output import Screen
    from memforest.structures import Tree, TreeNode, TreeNodes
    from memforest.wire import JsonObject

_TREES_MAX = 1_000
# As many digits of a scene's id as people see.
_ID_CHARACTERS = 8
# As much of what a tree says as people read in a list of many; the tree itself has all of it.
_ROOT_CHARACTERS = 160


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("scope", required=False, shell_complete=complete_scope)
@click.option(
    "--kind", type=click.Choice(["session", "entity", "scene", "user"]), help="What SCOPE is, where it is unclear."
)
@click.option("--node", metavar="ID", help="Only what is below this node.")
@click.option("--depth", type=click.IntRange(1, 32), default=2, show_default=True, help="Levels below the root.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=200, show_default=True, help="At most so many nodes."
)
@click.option("--ids", is_flag=True, help="Show ids, for `memforest why` and --node; in a pipe they always are.")
@with_daemon
def tree(
    client: Client,
    screen: Screen,
    user: str,
    scope: str | None,
    kind: str | None,
    node: str | None,
    depth: int,
    limit: int,
    ids: bool,
) -> None:
    """Show the tree of SCOPE of USER from its root downwards; without SCOPE, list the trees there are.

    SCOPE is a session, the label of an entity, `user` for all that is known of USER, or the id of a scene (what
    was said of one subject), of which the first digits do.
    """
    if scope is None and kind is None:
        try:
            screen.answer(client, calls.trees(user, limit=_TREES_MAX), lambda found: _show_trees(screen, found))
        except NotFound:
            show_nobody(screen, {"trees": []})
        return
    call = calls.tree(user, scope, kind, node=node, depth=depth, limit=limit)

    def show(found: TreeNodes) -> None:
        for level, one in _walk(found.root):
            screen.row(level, _cells(one, ids=ids or not screen.is_terminal))
        if found.left_off:
            screen.note(
                f"{found.left_off} leaves are further down: --depth, --limit, or --node with an id of --ids."
            )
        if found.dirty:
            screen.note(f"{found.dirty} of its nodes wait for a summary.")

    screen.answer(client, call, show)


def show_nobody(screen: Screen, nothing: JsonObject) -> None:
    """As `query` answers it: of whom nothing is known there is nothing to list."""
    if screen.as_json:
        screen.json(nothing)
    screen.note(NOBODY)


def _show_trees(screen: Screen, found: tuple[Tree, ...]) -> None:
    screen.table(
        ("scope", "kind", "leaves", "height", "nodes", "dirty", "what it says"),
        (
            (
                _scope_cell(screen, one),
                one.kind,
                one.leaves,
                one.height,
                one.nodes,
                int(one.dirty) or (None if screen.is_terminal else 0),
                _first_line(one.root_text, _ROOT_CHARACTERS if screen.is_terminal else None),
            )
            for one in found
        ),
        empty="No tree yet: nothing of this user is remembered.",
    )
    if len(found) >= _TREES_MAX:
        screen.note(f"Only the {_TREES_MAX} largest are shown.")


def _scope_cell(screen: Screen, one: Tree) -> str:
    """What a tree is called by, here and on the command line.

    Of a scene people also read what it is about, of an entity which other names it has.
    """
    if not screen.is_terminal:
        return one.scope
    if one.kind != "scene":
        return f"{one.scope} ({', '.join(one.aliases)})" if one.aliases else one.scope
    return f"{one.scope[:_ID_CHARACTERS]} {one.name or ''}".rstrip()


def _first_line(text: str | None, characters_max: int | None) -> str | None:
    line = None if text is None else " / ".join(text.split("\n"))
    return line if line is None or len(line) <= (characters_max or len(line)) else f"{line[:characters_max]}…"


def _walk(node: TreeNode, depth: int = 0) -> Iterator[tuple[int, TreeNode]]:
    yield depth, node
    for child in node.children or ():
        yield from _walk(child, depth + 1)


def _cells(node: TreeNode, *, ids: bool) -> tuple[object, ...]:
    """Interval, what it is, and text."""
    start, end = (shown(at, people=True)[:10] for at in (node.time_start, node.time_end))
    days = start if start == end else f"{start} to {end}"
    if node.kind == "node":
        what = (
            f"{node.leaves} leaves"
            if node.state in ("summarised", "concatenated")
            else f"{node.leaves} leaves, {node.state}"
        )
    else:
        turns = ", ".join(
            "/".join(filter(None, (source.session_id, source.turn_id))) for source in node.sources or ()
        )
        what = f"{node.kind} of {turns}" if turns else node.kind
    gone = "(words erased)" if node.state in ("leaf", "summarised", "concatenated") else "(no summary yet)"
    text = " / ".join((node.text or gone).split("\n"))
    return days, f"{node.id} {what}" if ids else what, text
