"""What a leaf costs a MemTree, and how many summaries a session asks for."""

from __future__ import annotations

import random
from functools import partial
from hashlib import blake2b
from statistics import fmean, median

import anyio
import numpy as np
from numpy.typing import NDArray

from daemon.texts import read_texts
from events.log import EventLog
from events.memory import Pointer
from projections.facts.scopes import Scope, ScopeKind
from projections.memtree.forest import SEPARATOR, Forest, LeafText
from projections.memtree.items import Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from projections.memtree.tree_vectors import TreeVectors, gather, look_for_wanted
from projections.texts import FactText
from tests.benchmarks.measuring import Figure, Row, percentile, sized, spend, us
from tests.benchmarks.samples import History, fresh_log

SIZES = (1_000, 10_000, 100_000)
TURNS = 8
INSERTS_A_TURN = 50
DIRT_SIZES = (20, 50, 100, 200, 400, 800, 1_600, 4_000)
DIRT_TREES = 20
DIRT_INSERTS = 250
TREES = 3_000
DIMENSIONS = 384
SESSIONS = 12
SESSION_TURNS = 20
DIGEST_BYTES = 16
TEN_DIGESTS = bytes(10 * DIGEST_BYTES)
HOUR_MS = 3_600_000


def measure(share: float) -> list[Row]:
    """Inserts into trees of three sizes, their vectors, and the summaries of sessions."""
    rows = [*_measure_inserts(share), *_measure_dirt(share), _measure_vectors(share)]
    return [*rows, anyio.run(_measure_summaries, share)]


def _leaves(count: int, seed: int) -> list[Leaf]:
    """Leaves at random times, as facts about any day come in."""
    return _spread(count, count, seed)


def _measure_inserts(share: float) -> list[Row]:
    """Inserts anywhere, each beside hashing what the way up to the root must at least hash."""
    trees = [MemTree.build(_leaves(sized(size, share, 50), 1), TreeShape()) for size in SIZES]
    sizes = [len(tree) for tree in trees]
    ours: list[list[float]] = [[] for _ in trees]
    hashing: list[list[float]] = [[] for _ in trees]
    # In turns, so that all sizes see the same neighbours on a shared machine.
    for turn in range(sized(TURNS, share, 2)):
        for tree, size, costs, floor in zip(trees, sizes, ours, hashing, strict=True):
            for leaf in _spread(size, INSERTS_A_TURN, seed=2 + turn):
                costs.append(spend(partial(tree.insert, leaf)).thread_s)
                floor.append(spend(partial(_hash_levels, tree.height)).thread_s)
    rows = [
        Row(
            f"insert at {size:,} leaves",
            median(costs) / median(floor),
            "hashing height x 10 digests",
            (
                Figure("insert_cpu_us", us(median(costs))),
                Figure("insert_cpu_us_p99", us(percentile(costs, 0.99))),
                Figure("hashing_cpu_us", us(median(floor))),
                Figure("height", tree.height),
            ),
            20.0,
        )
        for tree, size, costs, floor in zip(trees, sizes, ours, hashing, strict=True)
    ]
    larger, smaller = median(ours[-1]), median(ours[0])
    figures = (Figure("larger_cpu_us", us(larger)), Figure("smaller_cpu_us", us(smaller)))
    of = f"insert at {sizes[0]:,} leaves"
    return [*rows, Row(f"insert at {sizes[-1]:,} leaves", larger / smaller, of, figures, goal=2.0)]


def _hash_levels(height: int) -> None:
    for _ in range(height):
        blake2b(TEN_DIGESTS, digest_size=DIGEST_BYTES).digest()


def _spread(size: int, count: int, seed: int = 2) -> list[Leaf]:
    """So many leaves over the time of a tree of `size`."""
    chance = random.Random(seed)
    times = [chance.randrange(size * HOUR_MS) for _ in range(count)]
    return [Leaf(time, chance.randbytes(DIGEST_BYTES), time) for time in times]


def _measure_dirt(share: float) -> list[Row]:
    """Nodes that an insert makes new, beyond the way up to the root: the mean, and the 99th percentile."""
    beyond: dict[int, list[int]] = {}
    heights: list[int] = []
    for size in DIRT_SIZES:
        beyond[size] = []
        for seed in range(DIRT_TREES):
            tree = MemTree.build(_leaves(size, seed), TreeShape())
            for leaf in _spread(size, sized(DIRT_INSERTS, share, 10), seed=1_000 + seed):
                added = tree.insert(leaf).added
                beyond[size].append(len(added) - tree.height)
                heights.append(tree.height)
                tree.remove(leaf)
    together, height = [each for found in beyond.values() for each in found], fmean(heights)
    name = f"nodes that an insert changes at {DIRT_SIZES[0]} to {DIRT_SIZES[-1]:,} leaves"
    means = [Figure(f"beyond_at_{size}_mean", fmean(found)) for size, found in beyond.items()]
    tails = [Figure(f"beyond_at_{size}_p99", percentile(found, 0.99)) for size, found in beyond.items()]
    mean, tail = height + fmean(together), height + percentile(together, 0.99)
    return [
        Row(f"{name}, mean", mean / height, "the height of the tree", tuple(means), (height + 1.5) / height),
        Row(f"{name}, p99", tail / height, "the height of the tree", tuple(tails), (height + 11) / height),
    ]


def _measure_vectors(share: float) -> Row:
    """Vectors of nodes that are their children put together; and what comparing a question with roots takes."""
    forest, vectors, chance = Forest(TreeShape(), 10**9), TreeVectors(), random.Random(4)
    rows = np.random.default_rng(4).normal(size=(1_024, DIMENSIONS))
    rows = (rows / np.linalg.norm(rows, axis=1)[:, None]).astype(np.float16).astype(np.float64)
    of_leaf: dict[bytes, NDArray[np.float64]] = {}
    for number in range(sized(TREES, share, 20)):
        leaves = _spread(100, chance.randrange(2, 40), seed=number)
        of_leaf.update((leaf.key, rows[chance.randrange(len(rows))]) for leaf in leaves)
        text = LeafText(FactText(Pointer(1, 0)), 40, frozenset())
        forest.change(Scope(ScopeKind.ENTITY, str(number)), [(leaf, text) for leaf in leaves])
    nodes: list[Node] = []
    for _ in look_for_wanted(forest, vectors, nodes):
        pass
    made = spend(lambda: vectors.settle(nodes, {}, {}, of_leaf)).thread_s
    summing = spend(lambda: [np.sum(rows[: len(node.children)], axis=0) for node in nodes]).thread_s
    roots = [item for scope in forest.trees for item in forest.recall_roots(scope)]
    told = gather(roots, [vectors.codes_of(item.digest for item in roots)])
    question = rows[0].astype(np.float32)
    asked = median(spend(lambda: told.cosines(question)).thread_s for _ in range(50))
    figures = (
        Figure("node_cpu_us", us(made) / len(nodes)),
        Figure("node_bytes", vectors.size_bytes / len(nodes)),
        Figure("roots", len(roots)),
        Figure("cosines_of_roots_cpu_us", us(asked)),
    )
    return Row(f"vectors of {len(nodes):,} nodes out of their children's", made / summing, "numpy's sums", figures)


async def _measure_summaries(share: float) -> Row:
    """Model calls for summaries, session after session, against trees built from scratch after each."""
    calls = needed = 0
    sessions = sized(SESSIONS, share, 2)
    known = set[bytes]()
    async with fresh_log() as (log, _):
        history = History(log, "alice", seed=3)
        for _ in range(sessions):
            await history.speak(SESSION_TURNS)
            await history.extract()
            calls += await history.summarise()
            parameters = history.memory.parameters
            wanted = await _summaries_from_scratch(log, history.memory.forest, parameters.concatenation_max)
            needed += len(wanted - known)
            known |= wanted
        facts = len(history.memory.canon.facts)
    figures = (
        Figure("calls_per_session", calls / sessions),
        Figure("needed_per_session", needed / sessions),
        Figure("facts_per_session", facts / sessions),
    )
    of = "new nodes of trees built from scratch"
    return Row(
        f"summary calls of {sessions} sessions of {SESSION_TURNS} turns", calls / needed, of, figures, goal=1.0
    )


async def _summaries_from_scratch(log: EventLog, forest: Forest, concatenation_max: int) -> set[bytes]:
    """The digests that need a model when all trees are built from their leaves, concatenations left out."""
    afresh = [MemTree.build(tree.leaves(), tree.shape) for tree in forest.trees.values()]
    leaves = [leaf for tree in afresh for leaf in tree.leaves()]
    refs = [forest.refs_of(leaf)[0] for leaf in leaves]
    summaries = list(forest.summaries)
    texts = await read_texts(log, [*refs, *(forest.summaries[digest] for digest in summaries)])
    # By digest, which of a leaf is its key.
    lengths = {
        digest: len(text or "")
        for digest, text in zip([*(leaf.digest for leaf in leaves), *summaries], texts, strict=True)
    }
    wanted = set[bytes]()
    for node in (node for tree in afresh for node in tree.nodes()):
        joined = sum(lengths[child.digest] for child in node.children) + len(SEPARATOR) * (len(node.children) - 1)
        if joined > concatenation_max:
            wanted.add(node.digest)
        else:
            lengths[node.digest] = joined
    return wanted
