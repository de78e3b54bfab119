"""Which spaces the vectors of a question are in, and which of a user's memories they reach.

Vectors of two models have nothing to say to each other: a question finds memories of another system's space by
nearness only with a vector of that space; else words alone find them, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.asking.answer_types import SpaceShown
from daemon.vector_source import VectorSource
from events.envelope import RecordedEvent
from events.errors import InvalidInput
from events.memory import FactId
from events.session import MemoryImported
from projections.memory import Memory
from projections.ports import Embedder
from projections.recall.agpr import SCORE_DECIMALS
from projections.spaces import Space, Spaces
from projections.texts import FactText

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Aim:
    """The vectors of a question: the caller's own in our space, and those in others, by number.

    `asks_us`: there are memories in our space, so without `ours` our embedder is asked.
    """

    ours: Vector | None = None
    elsewhere: Mapping[int, Vector] = field(default_factory=dict[int, Vector])
    asks_us: bool = True


@dataclass(frozen=True, slots=True)
class SpaceFound:
    """A space of the user (None: ours), how many live nodes it has, and whether it is asked by vector."""

    space: Space | None
    nodes: int
    reached: bool


def aim(vector: Vector | None, model: str | None, spaces: Spaces, embedder: Embedder, *, ours_rank: bool) -> Aim:
    """Where a caller's vector belongs; `ours_rank`: our own embedder's vectors count.

    By the name of its model, or without one by its width, when only one space has that. Raises `InvalidInput`
    with what to do.
    """
    if vector is None:
        return Aim()
    width, dimensions = len(vector), embedder.dimensions
    if model == embedder.name and ours_rank:
        _check_width(width, dimensions, embedder)
        return Aim(vector)
    if model is not None:
        space = spaces.find(model)
        if space is None:
            return Aim()  # no memory of it is here yet; the answer says that it reached none
        if space.width != width:
            raise InvalidInput(
                f"embedding has {width} numbers, and those of its embedding_model have {space.width} for this user"
            )
        return Aim(elsewhere={space.number: vector})
    same = spaces.find(embedder.name) if ours_rank else None
    fitting = [space for space in spaces.of_width(width) if space is not same]
    fits_us = ours_rank and dimensions in (0, width)
    if len(fitting) + fits_us > 1:
        raise InvalidInput(
            f"vectors of {width} numbers are here from more than one model; name the one that made this embedding "
            "with embedding_model, as the memories came with it"
        )
    if fitting:
        return Aim(elsewhere={fitting[0].number: vector})
    if not ours_rank:
        raise InvalidInput(
            "this daemon ranks by words alone and has no vectors to compare an embedding of this length with; "
            "leave it out, import memories with embeddings of its model, or choose an embedder in the daemon's "
            "configuration (models.embedder)"
        )
    _check_width(width, dimensions, embedder)
    return Aim(vector)


def _check_width(width: int, dimensions: int, embedder: Embedder) -> None:
    if dimensions not in (0, width):
        raise InvalidInput(
            f"embedding has {width} numbers, and the vectors here have {dimensions}, made by "
            f"{embedder.name}; embed the question with that model, or leave embedding out"
        )


def find_spaces(memory: Memory, ours: frozenset[int], aimed: Aim, *, reaches_us: bool) -> tuple[SpaceFound, ...]:
    """The spaces that hold memories, ours first; none when all is in ours. `ours`: the numbers that count so."""
    if not memory.spaces.known:
        return ()
    counts = memory.nodes.count_by_space()
    if not counts.keys() - ours:
        return ()
    others = (
        SpaceFound(space, counts[space.number], space.number in aimed.elsewhere)
        for space in memory.spaces.known
        if space.number not in ours and counts.get(space.number)
    )
    return SpaceFound(None, sum(counts.get(number, 0) for number in ours), reaches_us), *others


def show_spaces(
    found: Sequence[SpaceFound], embedder: Embedder, recorded: Mapping[int, RecordedEvent]
) -> list[SpaceShown]:
    """The same with names, which stand in the first memory of each."""
    return [_show(each, embedder, recorded) for each in found]


def _show(found: SpaceFound, embedder: Embedder, recorded: Mapping[int, RecordedEvent]) -> SpaceShown:
    if found.space is None:
        return SpaceShown(embedder.name, embedder.dimensions, found.nodes, found.reached, ours=True)
    event = recorded[found.space.first].event if found.space.first in recorded else None
    model = event.embedding_model if isinstance(event, MemoryImported) else None
    return SpaceShown(model, found.space.width, found.nodes, found.reached, ours=False)


async def find_nearness(
    source: VectorSource, memory: Memory, facts: Mapping[FactId, FactText], aimed: Aim
) -> dict[FactId, float]:
    """The cosine of each of these facts with the question, as far as it has a vector in the fact's space."""
    in_space: dict[int, dict[FactId, FactText]] = {}
    for fact, ref in facts.items():
        in_space.setdefault(source.space_of(memory, fact), {})[fact] = ref
    near: dict[FactId, float] = {}
    for number, listed in in_space.items():
        refs = list(listed.values())
        asked = aimed.elsewhere.get(number) if number else aimed.ours
        if asked is None:
            continue
        if number:
            found = dict(zip(refs, await source.brought.find(memory.user, refs, len(asked)), strict=True))
            rows: Mapping[FactText, NDArray[np.floating[Any]]] = found
        else:
            rows = {
                ref: row
                for ref, row in (await source.kept(memory.user, refs)).items()
                if isinstance(ref, FactText)
            }
        for fact, ref in listed.items():
            row = rows.get(ref)
            if row is not None and row.shape == asked.shape:
                near[fact] = round(float(row.astype(np.float32) @ asked), SCORE_DECIMALS)
    return near
