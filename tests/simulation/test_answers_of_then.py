"""Two hundred positions of one memory, asked in every mode when they were the present and when they are past."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from events.log import EventLog
from projections.memtree.shape import TreeShape
from projections.recall.agpr import NO_EMBEDDER
from tests.builders import ManualClock
from tests.daemon.parts_in_use import SMALL
from tests.daemon.test_answers_of_then import check_past

# More seeds: MEMFOREST_PAST_SEEDS="1,2,3".
SEEDS = [int(seed) for seed in os.environ.get("MEMFOREST_PAST_SEEDS", "7").split(",")]
POSITIONS = 200
# First with words that go; then some steps record nothing.
STEPS = 20, 240
# With few summaries: every edit folds all events again.
MEMORY = replace(SMALL, shape=TreeShape(5), concatenation_max=400)


@pytest.mark.timeout(900)  # half a minute, unless others need the machine
@pytest.mark.parametrize("seed", SEEDS)
async def test_two_hundred_positions_are_answered_as_they_were_then(
    log: EventLog, clock: ManualClock, seed: int
) -> None:
    asked = await check_past(log, clock, seed, STEPS, NO_EMBEDDER, questions=1, by_lot=10, memory=MEMORY)

    assert asked >= POSITIONS
