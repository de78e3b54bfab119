"""`why` tells in which trees a memory stands, page by page what is behind it, and of nobody else's."""

from __future__ import annotations

import pytest

from daemon.asking.provenance.memory_lookup import MemoryUnknown
from daemon.asking.provenance.origins import Why
from daemon.asking.provenance.ways_up import TREES_MAX
from daemon.asking.structures import FactsParams, PageParams, Structures
from daemon.asking.tree_nodes import TreeNodesReader, TreeParams
from daemon.asking.why import Provenance, WhyParams
from daemon.erasure.receipts import UserUnknown
from events.errors import InvalidInput
from events.log import EventLog
from tests.builders import MONDAY, ManualClock, a_batch, a_turn
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.scripted_models import ScriptedModel

HOSTILE = 'She said "\\N\\"}; a -> b" <b>&amp;\n\x1b[31m\x00\u202eevil\u2066'


async def why(parts: Parts, memory_id: str, user_id: str = "alice", *, limit: int = 200, after: int = 0) -> Why:
    params = WhyParams(user_id=user_id, memory_id=memory_id, limit=limit, after=after)
    return await Provenance(parts.log, parts.memories).why(params)


async def learn(parts: Parts, *contents: str, session_id: str = "s1", user_id: str = "alice") -> None:
    async with running(parts):
        await parts.say(*contents, session_id=session_id, user_id=user_id)
        await parts.close(session_id, user_id)
        await parts.until_done()


async def ids_of_facts(parts: Parts, user_id: str = "alice") -> list[str]:
    """In time order."""
    page = await Structures(parts.log, parts.memories).facts(FactsParams(user_id=user_id, limit=1000))
    return [fact.id for fact in page.facts]


async def way_by_hand(parts: Parts, kind: str, scope: str | None, leaf: str) -> list[str]:
    """The ids of the nodes above a leaf, found by walking `trees.get` from the root down."""
    params = TreeParams(user_id="alice", kind=kind, scope=scope, depth=32, limit=1000)
    ways: list[list[str]] = []
    waiting = [((await TreeNodesReader(parts.log, parts.memories).tree(params)).root, list[str]())]
    while waiting:
        node, above = waiting.pop()
        if node.id == leaf:
            ways.append(above)
        waiting += [(child, [node.id, *above]) for child in node.children or ()]
    (way,) = ways
    return way


async def test_every_fact_tells_its_way_to_the_root_in_each_tree_that_holds_it(parts: Parts) -> None:
    await learn(
        parts, *(f"Alice met Bob {number} times. Zoe saw Bob {number}." for number in range(6)), session_id="s1"
    )
    await learn(parts, *(f"Alice met Bob {number} times." for number in range(6, 12)), session_id="s2")
    listed = (await Structures(parts.log, parts.memories).trees(FactsParams(user_id="alice", limit=1000))).trees
    of_facts = {each.id: each for each in listed if each.kind != "session"}
    held = 0
    for fact_id in await ids_of_facts(parts):
        found = await why(parts, fact_id)
        assert found.trees_left_off == 0
        for tree in found.trees:
            held += 1
            assert (tree.kind, tree.scope, tree.leaves) == (
                of_facts[tree.id].kind,
                of_facts[tree.id].scope,
                of_facts[tree.id].leaves,
            )
            assert [node.id for node in tree.way] == await way_by_hand(
                parts, tree.kind, None if tree.kind == "user" else tree.scope, fact_id
            )
            assert all(node.written is not None and node.written.model == "scripted" for node in tree.way)

    assert held == sum(each.leaves for each in of_facts.values()), "each fact named all trees that hold it"


async def test_a_chunk_and_a_node_tell_their_way_too(parts: Parts) -> None:
    await learn(parts, *(f"Bob said {number}." for number in range(18)))
    memory = await parts.memory()
    chunks = [each.hex() for each in memory.chunks]
    root = (await TreeNodesReader(parts.log, parts.memories).tree(TreeParams(user_id="alice", scope="s1"))).root
    for chunk in chunks:
        (tree,) = (await why(parts, chunk)).trees
        assert [node.id for node in tree.way] == await way_by_hand(parts, "session", "s1", chunk)
    of_chunk = (await why(parts, chunks[0])).trees[0].way
    of_node = (await why(parts, of_chunk[0].id)).trees[0].way

    assert of_chunk[0].level == 1
    assert of_node == of_chunk[1:]
    assert [each.way for each in (await why(parts, root.id)).trees] == [[]]


async def test_a_fact_that_names_many_is_told_in_the_larger_trees_and_the_others_are_counted(parts: Parts) -> None:
    names = [f"N{chr(65 + number)}x" for number in range(TREES_MAX + 4)]
    sentence = f"They met {' and '.join(names)} on day"
    for session in ("s1", "s2"):
        await learn(parts, *(f"{sentence} {number}{session[1]}." for number in range(3)), session_id=session)
    found = await why(parts, (await ids_of_facts(parts))[0])

    assert len(found.trees) == TREES_MAX
    assert found.trees_left_off >= 4
    assert [tree.leaves for tree in found.trees[1:]] == sorted(
        (tree.leaves for tree in found.trees[1:]), reverse=True
    )


async def test_what_is_behind_a_group_comes_page_by_page(parts: Parts) -> None:
    await learn(parts, *(f"thing {number}." for number in range(30)))
    await parts.compactor.compact(ALICE, 0.9)
    groups = (await Structures(parts.log, parts.memories).units(PageParams(user_id="alice", limit=1000))).groups
    group = max(groups, key=lambda each: len(each.members))
    seen, after, pages = list[str](), 0, 0
    while True:
        page = await why(parts, group.id, limit=3, after=after)
        seen += [fact.id for fact in page.facts]
        pages += 1
        assert page.left_off == len(group.members) - len(seen)
        if page.next is None:
            break
        after = page.next

    assert (seen, pages) == (group.members, -(-len(group.members) // 3))
    assert len(group.members) > 3
    assert (await why(parts, group.id, after=1_000)).facts == []


async def test_a_tree_and_the_turns_of_a_chunk_come_page_by_page(parts: Parts) -> None:
    await learn(parts, *(f"Then Alice said {number}." for number in range(9)))
    reader = TreeNodesReader(parts.log, parts.memories)
    of_facts = (await reader.tree(TreeParams(user_id="alice", kind="user"))).root
    of_chunks = (await reader.tree(TreeParams(user_id="alice", scope="s1"))).root
    first, rest = await why(parts, of_facts.id, limit=5), await why(parts, of_facts.id, limit=5, after=5)
    chunks = [await why(parts, of_chunks.id, limit=2, after=after) for after in (0, 2, 4)]
    memory = await parts.memory()
    turns = [await why(parts, min(memory.chunks).hex(), limit=1, after=after) for after in (0, 1)]

    assert [fact.id for fact in (*first.facts, *rest.facts)] == await ids_of_facts(parts)
    assert (first.left_off, first.next, rest.left_off, rest.next) == (4, 5, 0, None)
    assert [turn.turn_id for page in chunks for turn in page.turns] == [f"t{n}" for n in range(1, 10)]
    assert [page.left_off for page in chunks] == [3, 1, 0]
    assert [len(page.turns) for page in turns] == [1, 1]


async def test_what_was_said_a_hundred_times_comes_page_by_page_and_is_short_beside_others(parts: Parts) -> None:
    for number in range(10):
        await learn(parts, *(["Now Alice has Rex on day 3."] * 2), "Then Alice ran.", session_id=f"s{number}")
    (rex,) = [
        each
        for each in await ids_of_facts(parts)
        if (await why(parts, each)).text == "Now Alice has Rex on day 3."
    ]
    pages = [await why(parts, rex, limit=8, after=after) for after in (0, 8, 16)]
    root = (await TreeNodesReader(parts.log, parts.memories).tree(TreeParams(user_id="alice", kind="user"))).root
    (beside,) = [fact for fact in (await why(parts, root.id)).facts if fact.id == rex]

    assert [len(page.facts[0].readings) for page in pages] == [8, 8, 4]
    assert [(page.left_off, page.next) for page in pages] == [(12, 8), (4, 16), (0, None)]
    assert (len(beside.readings), beside.left_off) == (3, 17)
    assert {reading.joined.rule for page in pages[1:] for reading in page.facts[0].readings if reading.joined} == {
        "same"
    }


@pytest.mark.parametrize(("limit", "after"), [(0, 0), (1001, 0), (5, -1), (5, 10**9)])
async def test_a_page_that_is_none_is_refused(parts: Parts, limit: int, after: int) -> None:
    await parts.say("one")
    with pytest.raises(InvalidInput):
        await why(parts, "00" * 16, limit=limit, after=after)


async def test_nobody_learns_of_another_users_memory(parts: Parts) -> None:
    for user in ("alice", "bob"):
        await learn(parts, *(f"thing {number} of Zoe." for number in range(9)), user_id=user)
    reader = TreeNodesReader(parts.log, parts.memories)
    memory = await parts.memory("bob")
    root = (await reader.tree(TreeParams(user_id="bob", scope="s1"))).root.id
    theirs = [*await ids_of_facts(parts, "bob"), *(each.hex() for each in memory.chunks), root]
    for memory_id in theirs:
        assert (await why(parts, memory_id, "bob")).id == memory_id
        for begun in (memory_id, memory_id[:16]):
            with pytest.raises(MemoryUnknown):
                await why(parts, begun)
    with pytest.raises(UserUnknown):
        await why(parts, theirs[0], "carol")


async def test_hostile_words_come_through_as_they_are(log: EventLog, clock: ManualClock) -> None:
    model = ScriptedModel()
    parts = build_parts(log, clock, model=model)
    turn = a_turn(HOSTILE.replace("\x00", ""), session_id='s"1', turn_id="t\\n", name='"Bob"', happened_at=MONDAY)
    async with running(parts):
        await parts.log.append(a_batch(turn))
        await parts.close('s"1')
        await parts.until_done()
    memory = await parts.memory()
    chunk = await why(parts, next(iter(memory.chunks)).hex())

    assert chunk.text == f'"Bob": {HOSTILE.replace(chr(0), "")}'
    assert (chunk.turns[0].session_id, chunk.turns[0].turn_id) == ('s"1', "t\\n")


async def test_of_a_forgotten_session_nothing_is_told_and_what_was_shared_stays(parts: Parts) -> None:
    await learn(parts, "Rex is a dog on day 3.", "It rained.", session_id="s1")
    await learn(parts, "Rex is a dog on day 3.", "It snowed.", session_id="s2")
    memory = await parts.memory()
    chunks = {each.hex(): chunk.session for each, chunk in memory.chunks.items()}
    known = {**dict.fromkeys(await ids_of_facts(parts)), **chunks}
    before = {each: await why(parts, each) for each in known}
    async with running(parts):
        await parts.forgetter.forget("alice", "s1")
        await parts.until_done()
    stands = set[str]()
    for each, told in before.items():
        if told.text in ("Rex is a dog on day 3.", "It rained.") or "It rained." in (told.text or ""):
            with pytest.raises(MemoryUnknown):
                await why(parts, each)
        else:
            stands.add((await why(parts, each)).text or "")
    (rex,) = [
        each for each in await ids_of_facts(parts) if (await why(parts, each)).text == "Rex is a dog on day 3."
    ]
    told = await why(parts, rex)

    assert stands == {"It snowed.", "Alice: Rex is a dog on day 3.\nAlice: It snowed."}
    assert [turn.session_id for reading in told.facts[0].readings for turn in reading.turns] == ["s2"]
    assert told.redacted == 0
