"""How far one user's memory is compressed: what is in force, whose it is, what is refused, and that it lasts."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.asking.listings import UserParams
from daemon.building.policies import Policies, PolicyParams
from events.errors import InvalidInput, MemForestError
from events.eventtree import Policy, PolicyChanged
from events.memory import FactRole
from events.reading import read_user
from projections.eventtree.parameters import EventTreeParameters
from tests.builders import ManualClock
from tests.daemon.parts_in_use import ALICE, Parts


@pytest.fixture
def policies(parts: Parts, clock: ManualClock) -> Policies:
    return Policies(parts.log, parts.memories, parts.worker, EventTreeParameters(), clock)


async def test_without_a_policy_all_is_the_daemons(parts: Parts, policies: Policies) -> None:
    await parts.say("one")
    shown = await policies.get(UserParams(user_id="alice"))

    assert (shown.preset, shown.online, shown.ratio, shown.member_cap) == ("default", True, 0.5, 3)
    assert (shown.time_bonus, shown.min_age_s, shown.never_merged) == (0.5, 0, [])
    assert shown.set_by_user == []


async def test_what_is_said_counts_and_what_is_not_stays_as_it_was(parts: Parts, policies: Policies) -> None:
    await parts.say("one")
    await policies.set(PolicyParams(user_id="alice", ratio=0.7, never_merged=["plan", "preference"]))
    shown = await policies.set(PolicyParams(user_id="alice", online=False, min_age_s=90.5))
    memory = await parts.memory()

    assert memory.units.policy == Policy(
        online=False, ratio=700, min_age_s=91, never_merged=(FactRole.PREFERENCE, FactRole.PLAN)
    )
    assert (shown.online, shown.ratio, shown.min_age_s) == (False, 0.7, 91)
    assert shown.never_merged == ["preference", "plan"]
    assert shown.set_by_user == ["online", "ratio", "min_age_s", "never_merged"]
    assert shown.member_cap == 5, "the daemon's table of caps, at this ratio"


async def test_a_reset_gives_back_to_the_daemon_what_is_not_said_anew(parts: Parts, policies: Policies) -> None:
    await parts.say("one")
    await policies.set(PolicyParams(user_id="alice", ratio=0.7, member_cap=2, never_merged=["plan"]))
    some = await policies.set(PolicyParams(user_id="alice", ratio=0.3, reset=True))
    none = await policies.set(PolicyParams(user_id="alice", reset=True))

    assert (some.ratio, some.member_cap, some.set_by_user) == (0.3, 2, ["ratio"])
    assert (none.ratio, none.set_by_user) == (0.5, [])


async def test_no_cap_and_nothing_apart_can_be_said_too(parts: Parts, policies: Policies) -> None:
    await parts.say("one")
    shown = await policies.set(PolicyParams(user_id="alice", member_cap=0, never_merged=[]))

    assert (shown.member_cap, shown.never_merged) == (None, [])
    assert shown.set_by_user == ["member_cap", "never_merged"]


async def test_each_change_is_an_event_of_no_session_and_none_is_none(parts: Parts, policies: Policies) -> None:
    await parts.say("one")
    for ratio in (0.7, 0.7, 0.3, 0.7):
        await policies.set(PolicyParams(user_id="alice", ratio=ratio))
    events = await parts.log.read(lambda db: read_user(db, ALICE, limit=100))

    changes = [each for each in events if isinstance(each.event, PolicyChanged)]
    assert [each.event.policy.ratio for each in changes if isinstance(each.event, PolicyChanged)] == [
        700,
        300,
        700,
    ]
    assert {(each.session, each.lineage) for each in changes} == {(None, ())}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ratio": 1.0}, "ratio"),
        ({"ratio": 0.9999}, "ratio"),
        ({"ratio": -0.1}, "ratio"),
        ({"ratio": float("nan")}, "ratio"),
        ({"ratio": 1e308}, "ratio"),
        ({"member_cap": 1}, "member_cap"),
        ({"member_cap": -2}, "member_cap"),
        ({"member_cap": 10**9}, "member_cap"),
        ({"time_bonus": -1.0}, "time_bonus"),
        ({"time_bonus": float("inf")}, "time_bonus"),
        ({"min_age_s": -1.0}, "min_age_s"),
        ({"min_age_s": float("inf")}, "min_age_s"),
        ({"never_merged": ["plan", "gossip"]}, "never_merged"),
    ],
)
async def test_what_cannot_be_is_refused_by_name_and_nothing_is_changed(
    parts: Parts, policies: Policies, wrong: dict[str, Any], says: str
) -> None:
    await parts.say("one")
    head = parts.log.head
    with pytest.raises(InvalidInput, match=says) as raised:
        await policies.set(PolicyParams(user_id="alice", **wrong))

    assert "gossip" not in str(raised.value)
    assert parts.log.head == head


async def test_preset_paper_rules_out_what_the_paper_does_not_have(parts: Parts, clock: ManualClock) -> None:
    await parts.say("one")
    policies = Policies(parts.log, parts.memories, parts.worker, EventTreeParameters(preset="paper"), clock)
    shown = await policies.set(PolicyParams(user_id="alice", online=True, member_cap=3, time_bonus=0.5, ratio=0.3))

    assert (shown.preset, shown.online, shown.member_cap, shown.time_bonus, shown.ratio) == (
        "paper",
        False,
        None,
        0,
        0.3,
    )


async def test_of_a_user_whom_nobody_knows_there_is_no_policy(policies: Policies) -> None:
    for ask in (policies.get(UserParams(user_id="ghost")), policies.set(PolicyParams(user_id="ghost", ratio=0.3))):
        with pytest.raises(MemForestError) as raised:
            await ask
        assert raised.value.code == "not_found"
