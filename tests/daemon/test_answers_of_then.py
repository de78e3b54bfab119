"""Every mode answers as of a position what it answered when that was the present, whatever was undone before."""

from __future__ import annotations

import random
from itertools import product

import msgspec
import pytest

from daemon.asking.answers import Answerer
from daemon.asking.history import History
from daemon.asking.query_params import QueryParams
from daemon.memories import Memories
from daemon.snapshots import Snapshots
from events.log import EventLog
from projections.memory import MemoryParameters
from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER, AgprParameters
from tests.builders import KEYS, ManualClock
from tests.daemon.lived import DAY_MS, MODES, QUESTIONS, Life, ask_past, comparable
from tests.daemon.parts_in_use import SMALL, build_parts
from tests.daemon.test_snapshots import Kept
from tests.daemon.test_validity import Rules
from tests.scripted_models import ScriptedEmbedder


async def check_past(
    log: EventLog,
    clock: ManualClock,
    seed: int,
    steps: tuple[int, int],
    agpr: AgprParameters,
    questions: int = 2,
    by_lot: int | None = None,
    memory: MemoryParameters = SMALL,
) -> int:
    """Live by this seed, with answers kept all along, and ask for the past; at how many positions.

    `steps`: with words that go, and then without. `by_lot`: so many positions in any order, the others one after
    the other, which is cheaper than to fold up to each (None: all in any order).
    """
    print(f"seed {seed}")
    parts = build_parts(log, clock, model=Rules(), agpr=agpr, memory=memory)
    life = Life(parts, clock, random.Random(seed))
    await life.live(steps[0], undoing=True)
    await life.live(steps[1], questions=questions)
    history = History(log, memory, past_max=3, copy_from_events=40)
    answerer = Answerer(KEYS, log, parts.memories, ScriptedEmbedder(), agpr, lambda _: 0, clock, history)
    positions = sorted({user_seq for user_seq, _, _ in life.answers})
    life.chance.shuffle(positions)
    if by_lot is not None:
        positions[by_lot:] = sorted(positions[by_lot:])
    found = 0
    for position in positions:
        for (user_seq, mode, question), then in life.answers.items():
            if user_seq == position:
                now = await ask_past(answerer, position, mode, question)
                assert comparable(now) == comparable(then), (position, mode, question)
                assert now.watermark.user_seq == now.watermark.projected_user_seq == position
                found += bool(now.memories)

    assert {mode for _, mode, _ in life.answers} == set(MODES)
    assert found > len(life.answers) // 2
    return len(positions)


@pytest.mark.parametrize(("seed", "agpr"), [(0, NO_EMBEDDER), (1, ANY_EMBEDDER)], ids=["words", "vectors"])
async def test_every_mode_answers_as_of_a_position_as_it_did_there(
    log: EventLog, clock: ManualClock, seed: int, agpr: AgprParameters
) -> None:
    assert await check_past(log, clock, seed, (7, 14), agpr) > 6


async def test_an_answer_as_of_then_counts_relative_dates_from_then(log: EventLog, clock: ManualClock) -> None:
    """The clock goes on; what was last week then is not what is last week now."""
    parts = build_parts(log, clock, model=Rules())
    await parts.say("Zoe likes Rex.")
    then = await parts.ask("What did Zoe like this week?", vectors=False, explain=True)
    clock.advance(30 * DAY_MS)
    await parts.say("Zoe was in Oslo.")
    past = await parts.ask("What did Zoe like this week?", vectors=False, explain=True, as_of=1)
    now = await parts.ask("What did Zoe like this week?", vectors=False, explain=True)

    assert then.explanation is not None
    assert past.explanation is not None
    assert now.explanation is not None
    assert then.explanation.time == past.explanation.time != now.explanation.time
    assert past.memories == then.memories


async def test_every_mode_answers_the_same_again_folded_from_nothing_and_from_a_snapshot(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=Rules(), agpr=NO_EMBEDDER)
    await Life(parts, clock, random.Random(3)).live(30, undoing=True)
    snapshots = Snapshots(Kept(), log, SMALL, "tests", parts.reported)
    memory = await parts.memory()
    assert await snapshots.leave(memory)

    def answerer_of(memories: Memories) -> Answerer:
        return Answerer(KEYS, log, memories, ScriptedEmbedder(), NO_EMBEDDER, lambda _: 0, clock)

    folded = answerer_of(Memories(log, SMALL, parts.reported))
    taken_up = answerer_of(Memories(log, SMALL, parts.reported, snapshots=snapshots))
    found = 0
    for mode, question in product(MODES, QUESTIONS):
        params = QueryParams(user_id="alice", query=question, mode=mode, k=8)
        answer = await parts.answerer.query(params)
        found += bool(answer.memories)
        for other in (parts.answerer, folded, taken_up):
            assert msgspec.json.encode(await other.query(params)) == msgspec.json.encode(answer), (mode, question)

    assert found > len(MODES) * len(QUESTIONS) // 2
