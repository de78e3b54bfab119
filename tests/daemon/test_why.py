"""`why` and `trees.get`: where a memory comes from, and a tree from its root downwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.asking.provenance.origins import Why
from daemon.asking.spent import SpentShown
from daemon.asking.structures import FactsParams, Structures
from daemon.asking.tree_nodes import NodeShown, TreeNodes, TreeNodesReader, TreeParams, TreeUnknown
from daemon.asking.why import MemoryUnknown, Provenance, WhyParams
from daemon.erasure.receipts import UserUnknown
from events.errors import InvalidInput
from events.memory import Usage
from tests.builders import KEYS, a_batch, a_forgetting, a_place, a_turn
from tests.daemon.parts_in_use import ALICE, Parts, running


@pytest.fixture
def structures(parts: Parts) -> Structures:
    return Structures(parts.log, parts.memories)


async def learn(parts: Parts, *contents: str, session_id: str = "s1") -> None:
    """Turns whose sentences are extracted, admitted and summarised."""
    async with running(parts):
        await parts.say(*contents, session_id=session_id)
        await parts.close(session_id)
        await parts.until_done()


async def why(parts: Parts, memory_id: str) -> Why:
    return await Provenance(parts.log, parts.memories).why(WhyParams(user_id="alice", memory_id=memory_id))


async def tree(parts: Parts, **more: str | int) -> TreeNodes:
    reader = TreeNodesReader(parts.log, parts.memories)
    return await reader.tree(TreeParams(user_id="alice", **more))  # type: ignore[arg-type]


def below(node: NodeShown) -> Iterator[NodeShown]:
    yield node
    for child in node.children or ():
        yield from below(child)


async def facts_by_text(structures: Structures) -> dict[str, str]:
    page = await structures.facts(FactsParams(user_id="alice", limit=1000))
    return {fact.text: fact.id for fact in page.facts}


async def test_a_fact_leads_to_who_read_it_the_turns_and_their_messages_on_the_bus(
    parts: Parts, structures: Structures
) -> None:
    async with running(parts):
        await parts.log.append(a_batch(a_turn("Rex is a dog.", turn_id="m-1", bus=a_place(41))))
        await parts.close()
        await parts.until_done()
    shown = await why(parts, (await facts_by_text(structures))["Rex is a dog."])
    (fact,) = shown.facts
    (reading,) = fact.readings
    (turn,) = reading.turns

    assert (shown.kind, shown.words, shown.text, shown.written) == ("fact", "kept", "Rex is a dog.", None)
    assert (reading.how, reading.model, reading.text) == ("extracted", parts.model.name, "Rex is a dog.")
    assert reading.at == "2024-07-01T09:00:00Z"
    assert (turn.session_id, turn.turn_id, turn.said_at) == ("s1", "m-1", "2024-07-01T09:00:00Z")
    assert turn.text == "Alice: Rex is a dog."
    assert turn.bus is not None
    assert (turn.user_seq, turn.bus.stream, turn.bus.seq) == (1, "MEMFOREST", 41)
    assert reading.spent is None, "rules cost nothing"
    assert reading.user_seq > turn.user_seq


async def test_what_a_model_took_is_told_with_what_it_read_and_wrote(parts: Parts, structures: Structures) -> None:
    parts.model.usage = Usage(
        calls=2, prompt_tokens=90, cached_tokens=40, completion_tokens=7, cost_nano=500_000_000
    )
    await learn(parts, "Rex is a dog.", "Rex ran.", "Zoe reads.", "Zoe sings.")
    (reading,) = (await why(parts, (await facts_by_text(structures))["Rex is a dog."])).facts[0].readings
    root = (await tree(parts, scope="s1", kind="session")).root
    assert root is not None
    summary = await why(parts, root.id)

    assert reading.spent == SpentShown(2, 90, 40, 7, 0.5)
    assert summary.written is not None
    assert summary.written.spent == reading.spent
    assert {len(request or "") for request in (reading.request, summary.written.request)} == {32}


async def test_what_was_said_twice_has_two_readings_and_no_bus_where_none_was(
    parts: Parts, structures: Structures
) -> None:
    await learn(parts, "Rex is a dog on day 3.", session_id="s1")
    await learn(parts, "Rex is a dog on day 3.", session_id="s2")
    (fact,) = (await why(parts, (await facts_by_text(structures))["Rex is a dog on day 3."])).facts

    assert [[turn.session_id for turn in reading.turns] for reading in fact.readings] == [["s1"], ["s2"]]
    assert all(turn.bus is None for reading in fact.readings for turn in reading.turns)


async def test_a_group_leads_to_its_members_and_they_to_it(parts: Parts, structures: Structures) -> None:
    await learn(parts, *(f"thing {number}." for number in range(20)))
    await parts.compactor.compact(ALICE, 0.5)
    units = await structures.units(FactsParams(user_id="alice"))
    group = units.groups[0]
    shown = await why(parts, group.id)

    assert (shown.kind, shown.text) == ("group", group.text)
    assert shown.written is not None
    assert shown.written.model == parts.model.name
    assert [fact.id for fact in shown.facts] == group.members
    assert {fact.group for fact in shown.facts} == {group.id}
    assert (await why(parts, group.members[0])).facts[0].group == group.id


async def test_a_chunk_leads_to_its_turns_also_while_it_is_open(parts: Parts) -> None:
    await parts.say("one", "two", "three")
    memory = await parts.memory()
    chunks = {name.hex() for name in memory.nodes.row_of}
    shown = {each.text: each for each in [await why(parts, chunk) for chunk in sorted(chunks)]}

    assert shown.keys() == {"Alice: one\nAlice: two", "Alice: three"}
    assert [turn.turn_id for turn in shown["Alice: one\nAlice: two"].turns] == ["t1", "t2"]
    assert {each.kind for each in shown.values()} == {"chunk"}


async def test_a_summary_names_its_trees_and_what_it_was_made_of(parts: Parts) -> None:
    await learn(parts, *(f"Then Alice said {number}." for number in range(8)))
    root = (await tree(parts, kind="session", scope="s1")).root
    shown = await why(parts, root.id)
    of_facts = await why(parts, (await tree(parts, kind="user")).root.id)

    assert (shown.kind, shown.text, shown.scopes) == ("summary", root.text, ["s1"])
    assert shown.written is not None
    assert [turn.turn_id for turn in shown.turns] == [f"t{number}" for number in range(1, 9)]
    assert [len(fact.readings) for fact in of_facts.facts] == [1] * 8


async def test_what_is_erased_is_said_to_be_erased_and_its_words_are_nowhere(
    parts: Parts, structures: Structures
) -> None:
    """Before the Memory is folded anew: the old one still knows of it."""
    await learn(parts, "Zoe is a cat on day 3.", session_id="s1")
    await learn(parts, "Zoe is a cat on day 3.", session_id="s2")
    fact_id = (await facts_by_text(structures))["Zoe is a cat on day 3."]
    await parts.log.append_event(a_forgetting("s1"))
    shown = await why(parts, fact_id)
    first, second = shown.facts[0].readings

    assert (shown.words, shown.text) == ("erased", None)
    assert (first.words, first.text, first.model) == ("erased", None, None)
    assert [(turn.words, turn.text, turn.turn_id, turn.session_id) for turn in first.turns] == [
        ("erased", None, None, None)
    ]
    assert (second.words, second.text) == ("kept", "Zoe is a cat on day 3.")


async def test_the_first_digits_of_an_id_do_as_long_as_no_other_id_begins_so(
    parts: Parts, structures: Structures
) -> None:
    await learn(parts, *(f"Rex is dog number {number}." for number in range(3)))
    ids = list((await facts_by_text(structures)).values())
    chunk = (await parts.ask("Rex", filters={"kinds": "chunk"})).memories[0].id
    root = (await tree(parts, scope="s1")).root.id
    shown = [await why(parts, each[:12].upper()) for each in (*ids, chunk, root)]

    assert [each.id for each in shown] == [*ids, chunk, root]
    assert shown == [await why(parts, each) for each in (*ids, chunk, root)]


async def test_first_digits_that_several_ids_have_or_none_are_refused(parts: Parts) -> None:
    await learn(parts, "Rex is a dog.")
    memory = await parts.memory()
    fact = memory.canon.facts[next(iter(memory.canon.facts))]
    begun = fact.id.hex()[:8]
    memory.canon.facts[fact.id[:4] + bytes(12)] = fact
    with pytest.raises(InvalidInput, match="begins 2 ids"):
        await why(parts, begun)
    with pytest.raises(InvalidInput, match="4 to 32 hexadecimal digits"):
        await why(parts, begun[:3])
    with pytest.raises(MemoryUnknown):
        await why(parts, "00000000" if begun != "00000000" else "11111111")


async def test_what_nobody_knows_is_not_found_and_not_quoted(parts: Parts, structures: Structures) -> None:
    await learn(parts, "Rex is a dog.")
    fact_id = (await facts_by_text(structures))["Rex is a dog."]
    parts.memories.hide(ALICE, KEYS.session("alice", "s1"))
    for unknown in ("00" * 16, fact_id):
        with pytest.raises(MemoryUnknown):
            await why(parts, unknown)
    with pytest.raises(InvalidInput) as raised:
        await why(parts, "Xylophon")
    with pytest.raises(UserUnknown):
        await Provenance(parts.log, parts.memories).why(WhyParams(user_id="Bo", memory_id="00" * 16))
    with pytest.raises(TreeUnknown):
        await tree(parts, kind="session", scope="s1")

    assert "Xylophon" not in str(raised.value)


async def test_a_tree_is_shown_from_its_root_to_its_leaves_with_texts_and_sources(parts: Parts) -> None:
    await learn(parts, *(f"Bob said {number}." for number in range(8)))
    listed = (await Structures(parts.log, parts.memories).trees(FactsParams(user_id="alice"))).trees
    by_name = {each.scope: each for each in listed}
    shown = await tree(parts, kind="session", scope="s1", depth=32)
    nodes = list(below(shown.root))
    leaves = [node for node in nodes if node.state == "leaf"]

    assert await tree(parts, tree=by_name["s1"].id, depth=32) == shown == await tree(parts, scope="s1", depth=32)
    assert (shown.leaves, shown.height, shown.left_off) == (by_name["s1"].leaves, by_name["s1"].height, 0)
    assert shown.root.text == by_name["s1"].root_text
    assert [leaf.kind for leaf in leaves] == ["chunk"] * 4
    assert [[source.turn_id for source in leaf.sources or ()] for leaf in leaves] == [
        ["t1", "t2"],
        ["t3", "t4"],
        ["t5", "t6"],
        ["t7", "t8"],
    ]
    assert {node.state for node in nodes if node.kind == "node"} == {"summarised"}
    for leaf in leaves:
        assert (await why(parts, leaf.id)).text == leaf.text


async def test_a_large_tree_ends_at_depth_and_limit_and_goes_on_from_a_node(parts: Parts) -> None:
    await learn(parts, *(f"Then Alice said {number}." for number in range(24)))
    whole = await tree(parts, kind="user", depth=32, limit=1000)
    shallow = await tree(parts, kind="user", depth=1)
    few = await tree(parts, kind="user", depth=32, limit=1)
    children = shallow.root.children or []
    deeper = await tree(parts, tree=shallow.id, node=children[0].id, depth=32)
    names = {fact.id for fact in (await why(parts, whole.root.id)).facts}

    assert {leaf.id for leaf in below(whole.root) if leaf.kind == "fact"} == names
    assert (len(names), whole.left_off) == (24, 0)
    assert [child.children for child in children] == [None] * len(children)
    assert sum(child.leaves for child in children) == 24
    assert (few.root.children, few.left_off) == (None, 24)
    assert deeper.root == (whole.root.children or [])[0]


async def test_a_node_without_a_summary_is_dirty_and_has_no_text(parts: Parts) -> None:
    await parts.say(*(f"turn {number}" for number in range(8)))
    shown = await tree(parts, kind="session", scope="s1", depth=32)

    assert shown.dirty > 0
    assert (shown.root.state, shown.root.text) == ("dirty", None)
    assert (await why(parts, shown.root.id)).words == "none"


@pytest.mark.parametrize(
    "wrong",
    [{"tree": "00", "kind": "user"}, {"tree": "00", "scope": "s1"}, {"depth": 0}, {"depth": 33}, {"limit": 0}],
)
async def test_a_tree_that_is_not_named_well_is_refused(parts: Parts, wrong: dict[str, str | int]) -> None:
    await parts.say("one")
    with pytest.raises(InvalidInput):
        await tree(parts, **wrong)


async def test_units_come_page_by_page_each_with_its_groups(parts: Parts, structures: Structures) -> None:
    await learn(parts, *(f"thing {number}." for number in range(60)))
    await parts.compactor.compact(ALICE, 0.3)
    whole = await structures.units(FactsParams(user_id="alice", limit=1000))
    units, groups, after = list[object](), list[object](), None
    while True:
        page = await structures.units(FactsParams(user_id="alice", limit=1, after=after))
        units += page.units
        groups += page.groups
        after = page.next
        if after is None:
            break

    assert (units, len(groups)) == (whole.units, len(whole.groups))
    assert whole.next is None
