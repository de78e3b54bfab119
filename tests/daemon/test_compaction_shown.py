"""What people see of a compaction: units with losses, where a group comes from, its event, and the difference."""

from __future__ import annotations

import pytest

from daemon.asking.differences import Differences, DiffParams
from daemon.asking.history import History
from daemon.asking.session_events import SessionEvents, SessionEventsParams
from daemon.asking.structures import PageParams, Structures
from daemon.asking.why import Provenance, WhyParams
from events.memory import ParkReason
from projections.ports import AnswerUnusable
from tests.daemon.parts_in_use import ALICE, Parts, running


async def learn(parts: Parts, facts: int) -> None:
    async with running(parts):
        await parts.say(*(f"thing {number}." for number in range(facts)))
        await parts.close()
        await parts.until_done()


@pytest.fixture
async def compacted(parts: Parts) -> Parts:
    """Twenty facts at half; one group has its members' own words, because the model refused."""
    await learn(parts, 20)
    parts.model.queue.append(AnswerUnusable(ParkReason.REFUSED))
    await parts.compactor.compact(ALICE, 0.5)
    return parts


async def test_units_tell_what_their_groups_cost_and_who_wrote_them(compacted: Parts) -> None:
    page = await Structures(compacted.log, compacted.memories).units(PageParams(user_id="alice"))
    memory = await compacted.memory()

    losses = [group.loss for group in memory.units.groups.values()]
    assert all(loss > 0 for loss in losses)
    assert page.loss_bound == pytest.approx(sum(losses) / 100_000)
    assert sum(unit.loss_bound for unit in page.units) == pytest.approx(page.loss_bound)
    assert (
        sum(unit.extractive for unit in page.units) == 1 == [group.extractive for group in page.groups].count(True)
    )
    assert (page.facts, page.nodes, page.compaction) == (
        20,
        20 - sum(len(g.members) - 1 for g in page.groups),
        None,
    )
    assert not any(group.trajectory for group in page.groups)


async def test_why_tells_of_a_group_that_no_model_wrote_it_and_what_it_costs(compacted: Parts) -> None:
    memory = await compacted.memory()
    (group,) = [each for each in memory.units.groups.values() if each.extractive]
    other = next(each for each in memory.units.groups.values() if not each.extractive)
    provenance = Provenance(compacted.log, compacted.memories)
    found = await provenance.why(WhyParams(user_id="alice", memory_id=group.id.hex()))
    by_model = await provenance.why(WhyParams(user_id="alice", memory_id=other.id.hex()))
    fact = await provenance.why(WhyParams(user_id="alice", memory_id=group.members[0].hex()))

    assert found.written is not None
    assert by_model.written is not None
    assert (found.written.extractive, by_model.written.extractive) == (True, False)
    assert found.written.loss_bound == group.loss / 100_000
    assert not found.written.trajectory
    assert fact.facts[0].group == group.id.hex()


async def test_events_tell_the_loss_of_a_merge_and_how_many_facts_went_into_units(compacted: Parts) -> None:
    params = SessionEventsParams(user_id="alice", session_id="s1", limit=500)
    events = (await SessionEvents(compacted.log).events(params)).events
    merges = [each.what for each in events if each.type == "nodes.merged"]
    (units,) = [each.what for each in events if each.type == "units.partitioned"]

    assert units["facts"] == 20
    assert all(0 < float(what["loss_bound"]) < 10 for what in merges)
    assert [what.get("extractive") for what in merges].count(True) == 1


async def test_a_difference_has_the_groups_that_were_made_and_those_that_were_undone(compacted: Parts) -> None:
    made = (await compacted.memory()).user_seq
    groups = {group.hex() for group in (await compacted.memory()).units.groups}
    await compacted.compactor.undo(ALICE)
    differences = Differences(compacted.log, History(compacted.log, compacted.memories.parameters))
    then = await differences.diff(DiffParams(user_id="alice", a=1, b=made))
    now = await differences.diff(DiffParams(user_id="alice", a=made))

    assert {group.id for group in then.groups_made} == groups == {group.id for group in now.groups_undone}
    assert [group.extractive for group in then.groups_made].count(True) == 1
    assert all(group.loss_bound > 0 for group in then.groups_made)
    assert now.groups_made == []
