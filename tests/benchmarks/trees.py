"""What a leaf costs a MemTree, and how many summaries a session asks for."""

from __future__ import annotations

import random
from functools import partial
from hashlib import blake2b
from statistics import fmean, median

import anyio

from daemon.texts import read_texts
from events.log import EventLog
from projections.memtree.forest import SEPARATOR, Forest
from projections.memtree.shape import TreeShape
from projections.memtree.tree import Leaf, MemTree
from tests.benchmarks.measuring import Figure, Row, percentile, sized, spend, us
from tests.benchmarks.samples import History, fresh_log

SIZES = (1_000, 10_000, 100_000)
INSERTS = 400
SESSIONS = 12
SESSION_TURNS = 20
DIGEST_BYTES = 16
TEN_DIGESTS = bytes(10 * DIGEST_BYTES)
HOUR_MS = 3_600_000


def measure(share: float) -> list[Row]:
    """Inserts into trees of three sizes, and the summaries of sessions."""
    rows, costs = list[Row](), list[float]()
    for size in SIZES:
        row, cost = _measure_inserts(sized(size, share, 50), sized(INSERTS, share, 20))
        rows.append(row)
        costs.append(cost)
    largest, smallest = sized(SIZES[-1], share, 50), sized(SIZES[0], share, 50)
    figures = (Figure("larger_cpu_us", us(costs[-1])), Figure("smaller_cpu_us", us(costs[0])))
    of = f"insert at {smallest:,} leaves"
    growth = Row(f"insert at {largest:,} leaves", costs[-1] / costs[0], of, figures, goal=2.0)
    return [*rows, growth, _measure_dirt(sized(4_000, share, 50)), anyio.run(_measure_summaries, share)]


def _leaves(count: int, seed: int) -> list[Leaf]:
    """Leaves at random times, as facts about any day come in."""
    return _spread(count, count, seed)


def _measure_inserts(size: int, inserts: int) -> tuple[Row, float]:
    """Inserts anywhere, each beside hashing what the way up to the root must at least hash."""
    tree = MemTree.build(_leaves(size, 1), TreeShape())
    ours, hashing = list[float](), list[float]()
    for leaf in _spread(size, inserts):
        height = tree.height
        ours.append(spend(partial(tree.insert, leaf)).thread_s)
        hashing.append(spend(partial(_hash_levels, height)).thread_s)
    figures = (
        Figure("insert_cpu_us", us(median(ours))),
        Figure("insert_cpu_us_p99", us(percentile(ours, 0.99))),
        Figure("hashing_cpu_us", us(median(hashing))),
        Figure("height", tree.height),
    )
    row = Row(
        f"insert at {size:,} leaves", median(ours) / median(hashing), "hashing height x 10 digests", figures, 20.0
    )
    return row, median(ours)


def _hash_levels(height: int) -> None:
    for _ in range(height):
        blake2b(TEN_DIGESTS, digest_size=DIGEST_BYTES).digest()


def _spread(size: int, count: int, seed: int = 2) -> list[Leaf]:
    """So many leaves over the time of a tree of `size`."""
    chance = random.Random(seed)
    times = [chance.randrange(size * HOUR_MS) for _ in range(count)]
    return [Leaf(time, chance.randbytes(DIGEST_BYTES), time) for time in times]


def _measure_dirt(size: int) -> Row:
    """Nodes whose summary an insert in the middle makes stale, beyond the way up to the root."""
    tree = MemTree.build(_leaves(size, 1), TreeShape())
    beyond = [len(tree.insert(leaf).added) - tree.height for leaf in _spread(size, min(size, 1_000))]
    dirty = fmean(beyond) + tree.height
    figures = (
        Figure("nodes_mean", dirty),
        Figure("beyond_height_mean", fmean(beyond)),
        Figure("beyond_height_p99", percentile(beyond, 0.99)),
    )
    name = f"nodes that an insert changes at {size:,} leaves"
    return Row(
        name, dirty / tree.height, "the height of the tree", figures, goal=(tree.height + 1.5) / tree.height
    )


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
