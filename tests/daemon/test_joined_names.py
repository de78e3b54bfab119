"""Names of one entity through the daemon's parts: what a turn says joins trees, listings and answers."""

from __future__ import annotations

import pytest

from daemon.asking.query_params import FilterParams
from daemon.asking.structures import PageParams, Structures
from daemon.asking.tree_nodes import TreeNodesReader, TreeParams, TreeUnknown
from events.memory import FactsExtracted
from events.reading import read_user
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.watching import Watch
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, running

SAID = "We know Robert, who everyone calls Bob."


async def told(parts: Parts) -> None:
    """Two sessions about Robert and Bob, and a third one that says who that is."""
    for session_id in ("s1", "s2"):
        await parts.say(f"We saw Robert in {session_id}.", f"We met Bob in {session_id}.", session_id=session_id)
        await parts.close(session_id)
    await parts.memory()
    await parts.until_done()
    await parts.say(SAID, "So it is.", session_id="s3")
    await parts.close("s3")
    await parts.until_done()


async def test_the_tree_of_all_names_is_listed_with_them_and_found_by_each(parts: Parts) -> None:
    async with running(parts):
        await told(parts)
        listed = (await Structures(parts.log, parts.memories).trees(PageParams(user_id="alice"))).trees
        reader = TreeNodesReader(parts.log, parts.memories)
        by_name = [
            await reader.tree(TreeParams(user_id="alice", scope=name, kind="entity"))
            for name in ("robert", "Bob", "BOB'S")
        ]
        with pytest.raises(TreeUnknown):
            await reader.tree(TreeParams(user_id="alice", scope="bobby"))
    (robert,) = [each for each in listed if each.scope == "robert"]

    assert (robert.aliases, robert.leaves) == (["bob"], 5)
    assert {tree.id for tree in by_name} == {robert.id}
    assert "bob" not in {each.scope for each in listed}


async def test_who_is_asked_for_by_one_name_is_found_by_all_until_the_session_that_said_so_is_forgotten(
    parts: Parts,
) -> None:
    async def found(name: str) -> set[str]:
        answer = await parts.ask("Whom did we see?", k=50, filters=FilterParams(entities=name, kinds="fact"))
        return {memory.text for memory in answer.memories}

    async with running(parts):
        await told(parts)
        together = await found("Bob"), await found("Robert")
        await parts.forgetter.forget("alice", "s3")
        await parts.until_done()
        apart = await found("Bob"), await found("Robert")

    assert together[0] == together[1]
    assert len(together[0]) == 5
    assert apart[0] == {"We met Bob in s1.", "We met Bob in s2."}
    assert apart[1] == {"We saw Robert in s1.", "We saw Robert in s2."}


async def test_whoever_looks_how_it_came_to_be_sees_the_facts_move_to_one_tree(parts: Parts) -> None:
    async with running(parts):
        await told(parts)
        recorded = await parts.log.read(lambda db: list(read_user(db, ALICE, limit=1_000)))
    memory = Memory(ALICE, SMALL)
    watch = Watch(memory)
    moves = {}
    for each in recorded:
        memory.apply(each)
        changes = watch.look(each)
        if isinstance(each.event, FactsExtracted) and each.event.aliases:
            moves = {move.scope: len(move.joined) for move in changes.scopes}

    assert moves == {Scope(ScopeKind.ENTITY, "robert"): 4}
