"""That the sweeps count what they say, on a talk small enough to be counted by hand."""

from __future__ import annotations

import pytest

from events.memory import ExtractedFact, Mention
from projections.facts.scopes import Scope, ScopeKind
from projections.memtree.items import Leaf
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from tests.builders import MONDAY
from tests.quality.chunk_sweep import (
    SESSION,
    Extracted,
    answer_retention,
    extract_at_most,
    name_retention,
    read_facts,
    sweep_chunks,
)
from tests.quality.decisions import (
    Decided,
    FactSeen,
    decide_on,
    decisions_table,
    evidence_together,
    joins_agree,
    scenes_agree,
)
from tests.quality.growing import Grown, Step, grow_trees
from tests.quality.locomo import Category, Conversation, Question, Session, Turn
from tests.quality.refreshes import figure_of, nodes_by_appending, nodes_by_inserting, refresh_all
from tests.quality.tables import Table
from tests.quality.tree_sweeps import sweep_budgets, sweep_refreshes, sweep_targets

HOUR_MS = 3_600_000
K = TreeShape(10)
# One fact a turn, which names its speaker and nobody else.
SAID = (
    ("I bought a red bicycle.", "I repaired an old radio.", "I sold the wooden table.", "I painted a small boat."),
    ("I visited a museum in Porto.", "I cooked a lentil soup.", "I lost a silver ring.", "I found a lost key."),
    ("I planted seven apple trees.", "I borrowed a tall ladder.", "I wrote a short poem.", "I sang an old song."),
)


def _talk() -> Conversation:
    """Twelve turns in three sessions of four; Anna and Ben take turns."""
    sessions = tuple(
        Session(
            f"s{n}",
            MONDAY + n * 24 * HOUR_MS,
            tuple(
                Turn(f"D{n}:{at}", ("Anna", "Ben")[at % 2], text, MONDAY + n * 24 * HOUR_MS + at * 60_000, None)
                for at, text in enumerate(said)
            ),
        )
        for n, said in enumerate(SAID)
    )
    asked = Question(
        "What did Anna buy?", Category.SINGLE_HOP, frozenset(("D0:0",)), {"D0:0": frozenset(("red", "bicycl"))}
    )
    return Conversation("anna-and-ben", sessions, (asked,))


async def _grown() -> Grown:
    """The talk's growth without its scenes, which hang on an embedder."""
    grown = await grow_trees(_talk())
    steps = tuple(
        Step(
            step.session, step.facts, {s: leaves for s, leaves in step.leaves.items() if s.kind != ScopeKind.SCENE}
        )
        for step in grown.steps
    )
    return Grown(steps, grown.lengths)


async def test_a_talk_grows_chunk_by_chunk_into_the_trees_of_its_sessions_and_speakers() -> None:
    grown = await _grown()

    assert [step.facts for step in grown.steps] == [2, 4, 6, 8, 10, 12]
    assert [step.session for step in grown.steps] == [0, 0, 1, 1, 2, 2]
    sizes = {
        scope.name if scope.kind == ScopeKind.ENTITY else "session": len(leaves)
        for scope, leaves in grown.final_leaves().items()
    }
    assert sizes == {"anna": 6, "ben": 6, "session": 2}
    assert len(grown.final_leaves()) == 5


@pytest.mark.parametrize(
    ("steps", "calls", "depth"),
    [
        # A session's tree has a node from its second chunk on, a speaker's from the third fact, in session 2.
        pytest.param("steps", (0, 1, 2, 3, 2, 3), 5, id="after every chunk"),
        pytest.param("by_session", (1, 3, 3), 3, id="after every session"),
        pytest.param("at_once", (5,), 1, id="once"),
    ],
)
async def test_refreshes_ask_for_as_many_summaries_as_counted_by_hand(
    steps: str, calls: tuple[int, ...], depth: int
) -> None:
    grown = await _grown()
    seen = {"steps": grown.steps, "by_session": grown.by_session(), "at_once": grown.at_once()}[steps]

    plain = refresh_all(seen, grown.lengths, K, 0)
    short = refresh_all(seen, grown.lengths, K, 10_000)

    assert tuple(each.calls for each in plain.refreshes) == calls
    assert plain.depth == depth
    assert (short.calls, short.depth) == (0, 0)


def test_a_summary_waits_for_those_below_it_and_short_nodes_are_nobodys_call() -> None:
    # 17 leaves of 100 characters do not fit under one root of at most 16 children.
    leaves = [Leaf(n, bytes([n]) * 16, n) for n in range(17)]
    lengths = {leaf.key: 100 for leaf in leaves}
    tree = MemTree.build(leaves, K)
    assert tree.root is not None
    below = [node for node in tree.nodes() if node.level == 1]
    step = Step(0, 17, {Scope(ScopeKind.SESSION, "s"): tuple(leaves)})

    all_written = refresh_all([step], lengths, K, 0)
    none_written = refresh_all([step], lengths, K, 100 * 17 + 16)
    again = refresh_all([step, step], lengths, K, 0)

    assert (all_written.calls, all_written.depth) == (len(below) + 1, 2)
    read = sum(101 * len(node.children) - 1 for node in below)
    # A node of seven leaves or more has a summary of 600 characters, a smaller one of all it says.
    written = sum(min(600, 101 * len(node.children) - 1) for node in below) + len(below) - 1
    assert all_written.tokens == (read + written) // 4
    assert none_written.calls == 0
    assert none_written.root_characters == 100 * 17 + 16
    assert [each.calls for each in again.refreshes] == [len(below) + 1, 0]


def test_other_keys_are_other_boundaries_in_trees_of_the_same_leaves() -> None:
    leaves = tuple(Leaf(n, n.to_bytes(16, "big"), n) for n in range(400))
    grown = Grown((Step(0, 400, {Scope(ScopeKind.SESSION, "s"): leaves}),), {leaf.key: 50 for leaf in leaves})

    one, other = (grown.rekeyed(seed).final_leaves()[Scope(ScopeKind.SESSION, "s")] for seed in (1, 2))

    assert [leaf.time_start for leaf in one] == [leaf.time_start for leaf in other]
    assert _sizes(one) != _sizes(other)
    assert set(grown.rekeyed(1).lengths) == {leaf.key for leaf in one}


def _sizes(leaves: tuple[Leaf, ...]) -> list[int]:
    return [node.size for node in MemTree.build(leaves, K).nodes()]


def test_a_small_tree_is_one_node_which_every_leaf_makes_new() -> None:
    leaves = [Leaf(n, bytes([n]) * 16, n) for n in range(5)]

    figure = figure_of([MemTree.build(leaves, K)])

    assert (figure.height, figure.nodes, figure.children) == (1, 1, 5)
    assert nodes_by_appending(leaves, K) == [0, 1, 1, 1, 1]
    assert nodes_by_inserting(leaves, K) == [1, 1, 1, 1, 1]


def test_an_answer_is_kept_as_far_as_the_facts_of_its_turn_say_it() -> None:
    fact = ExtractedFact("Anna bought a bicycle.", (0,), MONDAY, MONDAY, mentions=(Mention("Anna"),))
    elsewhere = ExtractedFact("Ben's boat is red.", (0,), MONDAY, MONDAY, mentions=(Mention("Ben"),))
    extracted = Extracted(((frozenset(("D0:0",)), fact), (frozenset(("D0:3",)), elsewhere)), 1, 0.1)

    assert answer_retention(_talk().questions, extracted) == [0.5]


def test_a_name_is_kept_when_a_fact_of_its_turn_mentions_it() -> None:
    texts = ("Hey Ben, we met Eve Moss in Porto on Friday.", "And Oslo?")
    turns = tuple(Turn(f"D0:{n}", ("Anna", "Ben")[n], text, MONDAY, None) for n, text in enumerate(texts))
    talk = Conversation("talk", (Session("s0", MONDAY, turns),), ())
    fact = ExtractedFact("Anna met Eve Moss.", (0,), MONDAY, MONDAY, mentions=(Mention("Eve Moss"),))
    extracted = Extracted(((frozenset(("D0:0",)), fact),), 1, 0.1)

    # Eve, Moss and Porto, then Oslo; Ben is called, and Friday is a time.
    assert name_retention(talk, extracted) == [True, True, False, False]


def test_a_limit_a_call_keeps_less_the_larger_the_chunks_are() -> None:
    kept = [
        len(read_facts(_talk(), size, lambda chunk: extract_at_most(1, chunk)).facts) for size in (1, 2, SESSION)
    ]

    assert kept == [12, 6, 3]


async def test_every_sweep_gives_a_row_for_every_value() -> None:
    grown = {"the talk": (await _grown(),)}

    chunks, models = await sweep_chunks((_talk(),), (2, SESSION))
    targets = sweep_targets(grown["the talk"], (4, 10))
    budgets = sweep_budgets(grown, (0, 10_000))
    refreshes = sweep_refreshes(grown)

    assert [row[:2] for row in chunks.rows] == [(2, 12), ("session", 12)]
    assert [row[0] for row in models.rows] == [5, 5, 8, 8]
    assert [row[0] for row in targets.rows] == [4, 10]
    assert [(row[2], row[-1]) for row in budgets.rows] == [(7, "0 %"), (0, "100 %")]
    assert [row[3] for row in refreshes.rows if row[2] == 0] == [11, 7, 5]
    assert all(
        len(row) == len(table.headings)
        for table in (chunks, models, targets, budgets, refreshes)
        for row in table.rows
    )


def test_a_table_is_markdown() -> None:
    table = Table("Sizes", ("b", "share"), [(2, 0.256), ("session", 1234.5)])

    assert table.markdown().splitlines() == [
        "**Sizes**",
        "",
        "| b | share |",
        "|---|---|",
        "| 2 | 0.26 |",
        "| session | 1,234 |",
    ]


async def test_decisions_are_read_with_the_turns_and_scenes_of_their_facts() -> None:
    decided = await decide_on(_talk())

    assert len(decided.facts) == 12
    assert {turn for fact in decided.facts.values() for turn in fact.turn_ids} == {
        f"D{n}:{at}" for n in range(3) for at in range(4)
    }
    assert sum(decided.scene_sizes()) >= 12
    assert scenes_agree(decided, decided) == 1
    assert joins_agree(decided, decided) == (0, 0, 0)
    assert len(decisions_table([(_talk(), decided)]).rows) == 1


def test_scenes_bring_evidence_together_as_often_as_its_turns_share_one() -> None:
    here, there = bytes(16), bytes([1]) * 16
    scenes = {"D0:0": (here,), "D0:1": (here, there), "D0:2": (there,), "D0:3": ()}
    facts = {
        turn_id.encode(): FactSeen(turn_id, (), 0, frozenset((turn_id,)), scene, MONDAY)
        for turn_id, scene in scenes.items()
    }
    asked = Question("?", Category.MULTI_HOP, frozenset(("D0:0", "D0:1", "D0:2", "D9:9")), {})

    together = evidence_together(Conversation("talk", (), (asked,)), Decided("talk", facts, ()))

    # Of the evidence 0 and 1, and 1 and 2, but not 0 and 2; turn 3 is with nobody.
    assert (together.evidence, together.any_two) == (2 / 3, 2 / 6)
