"""What EventTree keeps of the evidence: methods of compression on equal inputs and within equal characters.

A method takes the memories of a conversation, the ratio and a seed, and says which become one node. Nothing is
written by a model: a group says what its members say, its vector is the normalised sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

import numpy as np

from projections.eventtree.merging import UnitNodes, plan_groups
from projections.eventtree.parameters import EventTreeParameters, Preset
from projections.eventtree.partition import partition_nodes
from projections.recall.agpr import AgprParameters
from tests.quality.compression_inputs import Embedding, Inputs, Kind
from tests.quality.compression_scores import Compressed, Groups, Near, Setting, Shares

# (inputs, ratio, seed) -> the nodes that are left, each as the memories in it; what is in none was pruned.
Compress: TypeAlias = Callable[[Inputs, float, int], Groups]

SEEDS: Final = (0, 1, 2)
RATIOS: Final = (0.3, 0.5, 0.7)

# The bars' setting (quality.md 2): the paper's gamma, hours, as much of cosine as of BM25.
AGPR: Final = Setting(
    "AGPR", AgprParameters(gamma=0.9, smoothing=0.0, cosine_weight=0.5, session_weight=0.0, entity_weight=0.0)
)
PLAIN: Final = Setting("plain", replace(AGPR.agpr, gamma=1.0))
SETTINGS: Final = (AGPR, PLAIN)


# A group that a model wrote is one text, which comes whole or not at all; so do the members' texts here.
WHOLE: Final = replace(AGPR, name="AGPR, groups whole", opened=False)
PAPER: Final[Preset] = "paper"


def settings_for(embedding: Embedding) -> tuple[Setting, ...]:
    """With AGPR as the daemon returns groups, without it, and with groups whole.

    The daemon tells the nearness of members by vectors where its embedder ranks, else by words.
    """
    near = Near.WORDS if embedding is Embedding.HASHING else Near.COSINE
    return replace(AGPR, near=near), replace(PLAIN, near=near), WHOLE


def parameters_for(kind: Kind) -> EventTreeParameters:
    """Those of the daemon, whose nodes are facts. A turn leans on the one before it, so time counts double."""
    return EventTreeParameters(time_bonus=1.0 if kind is Kind.TURNS else 0.5)


def ours(kind: Kind) -> Compress:
    """What a fact says is understood alone, so facts of all times share units; a turn's unit is its session."""
    return (by_session if kind is Kind.TURNS else eventtree)(parameters_for(kind))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method reached: of every question the share of its evidence, shape (seeds, questions); the cuts."""

    shares: Shares
    cuts: tuple[float, ...]

    @cached_property
    def by_question(self) -> Shares:
        """The mean over seeds: what `compare` takes."""
        mean: Shares = self.shares.mean(axis=0)
        return mean

    @property
    def score(self) -> float:
        """The mean over questions and seeds."""
        return float(self.shares.mean())

    @property
    def cut(self) -> float:
        """The share of nodes removed, all conversations together, mean over seeds."""
        return float(np.mean(self.cuts))

    def kept(self, uncompressed: Outcome) -> float:
        """The share of the uncompressed score."""
        return self.score / uncompressed.score


def evaluate(
    inputs: Sequence[Inputs],
    compress: Compress,
    ratio: float,
    *,
    seeds: Sequence[int] = SEEDS,
    settings: Sequence[Setting] = SETTINGS,
) -> dict[str, Outcome]:
    """Compress every conversation with every seed and ask all its questions; outcomes by the setting's name."""
    shares: dict[str, list[Shares]] = {setting.name: [] for setting in settings}
    cuts: list[float] = []
    for seed in seeds:
        left = [Compressed(each, compress(each, ratio, seed)) for each in inputs]
        cuts.append(1 - sum(map(len, left)) / sum(map(len, inputs)))
        for setting in settings:
            shares[setting.name].append(np.concatenate([each.shares(setting) for each in left]))
    return {name: Outcome(np.array(rows), tuple(cuts)) for name, rows in shares.items()}


def uncompressed(inputs: Sequence[Inputs], settings: Sequence[Setting] = SETTINGS) -> dict[str, Outcome]:
    """The outcome with every memory as a node of its own."""
    return evaluate(inputs, keep_all, 0.0, seeds=SEEDS[:1], settings=settings)


def keep_all(inputs: Inputs, _ratio: float, _seed: int) -> Groups:
    """Nothing is compressed."""
    return [(index,) for index in range(len(inputs))]


def with_singles(inputs: Inputs, groups: Groups) -> Groups:
    """The groups, and each memory that is in none of them as a node of its own."""
    grouped = {member for group in groups for member in group}
    return [*groups, *((index,) for index in range(len(inputs)) if index not in grouped)]


def make_ids(inputs: Inputs, seed: int) -> list[bytes]:
    """An id a memory, drawn by the seed: ids decide ties and the order in which KMeans sees the rows."""
    order = np.random.default_rng(seed).permutation(len(inputs)).tolist()
    return [place.to_bytes(4, "big") for place in order]


def eventtree(parameters: EventTreeParameters) -> Compress:
    """The batch: KMeans units, then a plan to the end."""

    def compress(inputs: Inputs, ratio: float, seed: int) -> Groups:
        labels = find_units(inputs, seed, parameters.alpha, parameters.beta, parameters.window)
        nodes = UnitNodes(inputs.vectors, inputs.positions, make_ids(inputs, seed), labels)
        return with_singles(inputs, plan_groups(nodes, replace(parameters, ratio=ratio)).groups)

    return compress


@lru_cache(maxsize=256)
def find_units(inputs: Inputs, seed: int, alpha: float, beta: float, window: int) -> tuple[int, ...]:
    """The unit of each memory (Eq. 1-4); nothing else of the parameters changes it."""
    parameters = EventTreeParameters(alpha=alpha, beta=beta, window=window)
    return partition_nodes(inputs.vectors, inputs.positions, make_ids(inputs, seed), parameters).labels


def by_session(parameters: EventTreeParameters) -> Compress:
    """The same with sessions as units."""

    def compress(inputs: Inputs, ratio: float, seed: int) -> Groups:
        nodes = UnitNodes(inputs.vectors, inputs.positions, make_ids(inputs, seed), inputs.sessions)
        return with_singles(inputs, plan_groups(nodes, replace(parameters, ratio=ratio)).groups)

    return compress
