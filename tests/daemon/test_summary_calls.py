"""How many summaries are asked for, against a count of what trees built from scratch say is new.

What is new in the trees after a session, and too long to be its children put together, has to be what was
summarised since the session before: nothing else, nothing twice, nothing forgotten.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from events.log import EventLog
from events.memory import Task
from projections.facts.scopes import ScopeKind
from tests.builders import ManualClock
from tests.daemon.parts_in_use import QUICK, SMALL, build_parts, running
from tests.scripted_models import ScriptedModel
from tests.summary_recount import Recount, read_summaries

WHO = ("Alice", "Bob", "Carol", "Rex")
WHERE = ("Miami", "Davis", "Boston", "Paris", "Rome")
WHAT = ("a red kite", "two old books", "the night train", "some fresh bread", "a broken lamp", "the long bridge")
DID = ("saw", "bought", "lost", "painted", "sold", "remembered")
SESSIONS = 5


def a_sentence(chance: random.Random, number: int, *, of_old: bool) -> str:
    """Something that is said once; now and then of a day long before, if that is allowed."""
    dated = of_old and chance.random() < 0.2
    when = f"on day {chance.randrange(19_000, 19_900)}" if dated else f"for the {number}th time"
    return f"{when} {chance.choice(WHO)} {chance.choice(DID)} {chance.choice(WHAT)} in {chance.choice(WHERE)}."


# With slots for all no node goes ahead of the facts that are to come; with few some do, and what is said then of
# days of old may change one of them once more.
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("concatenation_max", "slots"), [(0, 64), (400, 64), (0, 2)])
async def test_after_each_session_just_the_new_nodes_of_its_trees_were_summarised(
    log: EventLog, clock: ManualClock, seed: int, concatenation_max: int, slots: int
) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    parameters = replace(SMALL, concatenation_max=concatenation_max)
    parts = build_parts(
        log, clock, model=ScriptedModel(), memory=parameters, worker=replace(QUICK, concurrency=slots)
    )
    recount, seen, sentences = Recount(concatenation_max), 0, 0
    kinds: set[ScopeKind] = set()
    async with running(parts):
        for session in range(SESSIONS):
            for _ in range(chance.randrange(8, 16)):
                said = " ".join(
                    a_sentence(chance, sentences + n, of_old=slots > 2) for n in range(chance.randrange(1, 3))
                )
                sentences += 2
                await parts.say(said, session_id=f"s{session}")
            await parts.close(f"s{session}")
            await parts.until_done()
            memory = await parts.memory()
            new = await recount.count(log, memory)
            asked = [each.digest for each in await read_summaries(log, memory)][seen:]
            kinds |= {scope.kind for scope in memory.forest.trees}
            seen += len(asked)

            assert len(asked) == len(set(asked)) == len(new), (seed, session)
            assert set(asked) == new

    assert kinds == set(ScopeKind), "there were trees of all kinds"
    assert seen == sum(call.task is Task.SUMMARISE for call in parts.model.calls) > SESSIONS
