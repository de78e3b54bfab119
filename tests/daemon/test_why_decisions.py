"""`why` tells what was decided on a fact: how readings were joined, what it replaced, what people said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemon.asking.fact_listing import FactShown
from daemon.asking.history import History
from daemon.asking.provenance.memory_lookup import MemoryUnknown
from daemon.asking.provenance.origins import FactBehind, Why
from daemon.asking.structures import FactsParams, PageParams, Structures
from daemon.asking.why import Provenance, WhyParams
from daemon.building.corrections import Corrections, CorrectParams, FactParams, PinParams
from daemon.building.deciding import DecidingParameters
from daemon.building.policies import Policies, PolicyParams
from daemon.offline.embedder import HashingEmbedder
from daemon.vector_source import VectorSource
from events.decisions import FactsSuperseded, PairsJudged
from events.eventtree import NodesMerged, PolicyChanged
from events.log import EventLog
from events.memory import Admission, FactsAdmitted, Usage
from events.reading import read_user
from projections.eventtree.parameters import EventTreeParameters
from tests.builders import ManualClock, a_batch, a_forgetting, a_place, a_turn, an_admission
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.daemon.test_validity import Rules
from tests.scripted_models import ScriptedModel

DRIVES = "Today Ann drives her big old red car to the nice green lake."
OTHERWISE = "Today Ann drives her big old red car to a nice green lake."
REORDERED = "Today Ann drives her old big red car to the nice green lake."


def provenance(parts: Parts) -> Provenance:
    """With everything that the daemon gives it."""
    source = VectorSource(parts.log, HashingEmbedder())
    return Provenance(parts.log, parts.memories, History(parts.log, SMALL), source)


async def why(parts: Parts, memory_id: str, **more: str | int) -> Why:
    return await provenance(parts).why(WhyParams(user_id="alice", memory_id=memory_id, **more))  # type: ignore[arg-type]


async def learn(parts: Parts, *sessions: str) -> None:
    """Each text is a session that is over before the next one begins."""
    async with running(parts):
        for number, content in enumerate(sessions, start=1):
            await parts.say(content, session_id=f"s{number}")
            await parts.close(f"s{number}")
            await parts.until_done()


async def facts_of(parts: Parts) -> dict[str, FactShown]:
    """All facts by their texts."""
    page = await Structures(parts.log, parts.memories).facts(FactsParams(user_id="alice", limit=1000))
    return {fact.text: fact for fact in page.facts}


async def fact(parts: Parts, text: str) -> FactBehind:
    (found,) = (await why(parts, (await facts_of(parts))[text].id)).facts
    return found


async def events_of(parts: Parts, kind: type) -> list[int]:
    """user_seq of the events of a type."""
    events = await parts.log.read(lambda db: read_user(db, ALICE, limit=10_000))
    return [each.user_seq for each in events if isinstance(each.event, kind)]


async def test_a_reading_tells_whether_it_founded_its_fact_or_says_the_same(parts: Parts) -> None:
    await learn(parts, "Rex is a dog on day 3.", "Rex is a dog on day 3.")
    first, second = (await fact(parts, "Rex is a dog on day 3.")).readings
    founding, joining = await events_of(parts, FactsAdmitted)

    assert first.joined is not None
    assert second.joined is not None
    assert (first.joined.rule, first.joined.user_seq) == ("founded", founding)
    assert (second.joined.rule, second.joined.user_seq, second.joined.like) == ("same", joining, first.user_seq)
    assert (second.joined.cosine, second.joined.threshold) == (None, None), "the same words are not compared"


async def test_a_reading_in_another_order_of_words_tells_how_near_it_is_and_from_where_on_that_is_near(
    parts: Parts,
) -> None:
    await learn(parts, DRIVES, REORDERED)
    first, second = (await fact(parts, DRIVES)).readings
    memory = await parts.memory()
    one, other = HashingEmbedder().rows([DRIVES, REORDERED])

    assert second.joined is not None
    assert memory.promoted is not None
    assert (second.joined.rule, second.joined.like) == ("near", first.user_seq)
    assert second.joined.cosine == pytest.approx(float(one @ other), abs=1e-3)
    assert second.joined.threshold == memory.promoted.thresholds.near / 100_000
    assert (second.joined.cosine or 0.0) >= (second.joined.threshold or 1.0)


async def test_a_reading_that_a_model_took_for_the_same_names_the_call(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(), deciding=DecidingParameters(judged=True))
    parts.model.usage = Usage(calls=1, prompt_tokens=70)
    await learn(parts, DRIVES, OTHERWISE)
    first, second = (await fact(parts, DRIVES)).readings
    (judged,) = await events_of(parts, PairsJudged)

    assert second.joined is not None
    assert second.joined.call is not None
    assert (second.joined.rule, second.joined.like) == ("judged", first.user_seq)
    assert (second.joined.call.model, second.joined.call.user_seq) == ("scripted", judged)
    assert second.joined.call.spent is not None
    assert second.joined.call.spent.prompt_tokens == 70
    assert len(second.joined.call.prompt or "") == 16


async def test_a_pair_that_a_model_told_apart_is_told_at_both_ends(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(), deciding=DecidingParameters(judged=True))
    async with running(parts):
        await parts.say(DRIVES, session_id="s1")
        await parts.close("s1")
        await parts.until_done()
        parts.model.held = True
        await parts.say(OTHERWISE, session_id="s2")
        await parts.close("s2")
        await parts.until_asked(1)
        for call in parts.model.waiting():
            call.answer()
        await parts.until_asked(1)
        parts.model.queue.append("different")
        parts.model.release()
        await parts.until_done()
    earlier, later = await fact(parts, DRIVES), await fact(parts, OTHERWISE)
    (of_earlier,), (of_later,) = earlier.judged, later.judged

    assert (of_earlier.verdict, of_earlier.later, of_later.later) == ("different", False, True)
    assert of_earlier.other is not None
    assert (of_earlier.other.id, of_earlier.other.text) == (later.id, OTHERWISE)
    assert of_earlier.call == of_later.call
    assert of_later.call is not None


async def test_a_fact_that_turned_out_to_be_another_one_tells_what_it_was(
    log: EventLog, clock: ManualClock
) -> None:
    """a is like c and b is like c: c makes one fact of both (A15)."""
    parts = build_parts(log, clock)
    await learn(parts, "Rex is a dog on day 3.", "Zoe is a cat on day 3.")
    facts = await facts_of(parts)
    rex, zoe = (facts[text] for text in ("Rex is a dog on day 3.", "Zoe is a cat on day 3."))
    memory = await parts.memory()
    host, guest = (memory.canon.facts[bytes.fromhex(each.id)] for each in (rex, zoe))
    event = FactsAdmitted(1, (Admission(host.id, guest.first.pointer),))
    joining = an_admission(guest.first.pointer, ("s1", "s2"), basis=memory.user_seq)
    await parts.log.append_event(replace(joining, event=event))
    await parts.memory()
    (told,) = (await why(parts, rex.id)).facts

    assert [each.joined.rule for each in told.readings if each.joined] == ["founded", "bridge"]
    assert told.readings[1].joined is not None
    assert (told.readings[1].joined.took_up, told.readings[1].joined.user_seq) == (zoe.id, log.head)


async def test_a_state_tells_what_it_replaced_and_what_ended_it(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=Rules())
    async with running(parts):
        for day, content in enumerate(("I live in Boston.", "I moved to Davis.", "I just moved to Miami!")):
            at = clock() + day * 90 * 86_400_000
            turn = a_turn(content, session_id=f"s{day}", turn_id=f"t{day}", name="Bob", happened_at=at)
            await parts.log.append(a_batch(turn))
            await parts.close(f"s{day}")
            await parts.until_done()
    facts = {
        city: each
        for text, each in (await facts_of(parts)).items()
        for city in ("Boston", "Davis", "Miami")
        if city in text
    }
    boston, davis, miami = [
        (await why(parts, facts[city].id)).facts[0].state for city in ("Boston", "Davis", "Miami")
    ]

    assert boston is not None
    assert davis is not None
    assert miami is not None
    assert (boston.attribute, boston.entity) == ("home", "bob")
    assert (boston.predecessor, miami.successor, miami.valid_until, miami.ended_by) == (None, None, None, None)
    assert davis.predecessor is not None
    assert davis.successor is not None
    assert (davis.predecessor.id, davis.successor.id) == (facts["Boston"].id, facts["Miami"].id)
    assert davis.ended_by == davis.successor
    assert davis.successor.text == facts["Miami"].text
    assert davis.valid_until == facts["Davis"].valid_until
    assert [boston.user_seq, davis.user_seq] == await events_of(parts, FactsSuperseded)


async def test_what_people_said_of_a_fact_is_told_with_what_it_was_before(
    parts: Parts, clock: ManualClock
) -> None:
    await learn(parts, "She lives in Boston.")
    corrections = Corrections(
        parts.log, parts.memories, parts.worker, Structures(parts.log, parts.memories), clock
    )
    before = (await facts_of(parts))["She lives in Boston."]
    settled = await corrections.correct(
        CorrectParams(user_id="alice", fact_id=before.id, text="She lives in Miami.")
    )
    assert settled.fact is not None
    await corrections.pin(PinParams(user_id="alice", fact_id=settled.fact.id))
    (told,) = (await why(parts, settled.fact.id)).facts
    corrected, pinned = told.readings

    assert (corrected.how, corrected.text, corrected.model) == ("corrected", "She lives in Miami.", None)
    assert (corrected.replaces, corrected.was) == (before.id, "She lives in Boston.")
    assert (pinned.how, pinned.replaces, told.pinned) == ("pinned", None, True)
    assert [each.joined for each in told.readings] == [None, None]
    with pytest.raises(MemoryUnknown):
        await why(parts, before.id)
    await corrections.retract(FactParams(user_id="alice", fact_id=settled.fact.id))
    with pytest.raises(MemoryUnknown):
        await why(parts, settled.fact.id)


async def test_a_group_tells_its_unit_its_loss_and_the_policy_it_was_made_under(
    parts: Parts, clock: ManualClock
) -> None:
    await learn(parts, "thing of yesterday.")
    policies = Policies(parts.log, parts.memories, parts.worker, EventTreeParameters(), clock)
    await policies.set(PolicyParams(user_id="alice", ratio=0.5, never_merged=["plan"]))
    await learn(parts, "".join(f"thing {number}. " for number in range(20)))
    await parts.compactor.compact(ALICE, None)
    await policies.set(PolicyParams(user_id="alice", ratio=0.9))
    (group, *_) = (await Structures(parts.log, parts.memories).units(PageParams(user_id="alice"))).groups
    told, member = await why(parts, group.id), await why(parts, group.members[0])
    policy_seq, _ = await events_of(parts, PolicyChanged)

    assert told.group is not None
    assert (told.group.unit, told.group.members) == (group.unit, len(group.members))
    assert told.group.written == told.written
    assert told.group.written.loss_bound == group.loss_bound
    assert told.group.written.user_seq in await events_of(parts, NodesMerged)
    assert len(told.group.written.prompt or "") == 16
    assert told.group.policy is not None
    assert (told.group.policy.user_seq, told.group.policy.values) == (
        policy_seq,
        {"ratio": 0.5, "never_merged": "plan"},
    )
    assert member.group == told.group


async def test_a_turn_names_its_subject_where_subjects_are_ours(parts: Parts) -> None:
    async with running(parts):
        await parts.log.append(a_batch(a_turn("Rex is a dog.", turn_id="m-1", session_id="s 1", bus=a_place(41))))
        await parts.log.append(
            a_batch(a_turn("Zoe is a cat.", turn_id="m-2", session_id="s2", bus=a_place(5, "CHAT")))
        )
        await parts.close("s 1")
        await parts.close("s2")
        await parts.until_done()
    ours, theirs = [
        (await fact(parts, text)).readings[0].turns[0].bus for text in ("Rex is a dog.", "Zoe is a cat.")
    ]

    assert ours is not None
    assert theirs is not None
    assert (ours.stream, ours.seq, ours.subject) == ("MEMFOREST", 41, "memforest.turns.alice.b32-omqdc")
    assert (theirs.stream, theirs.seq, theirs.subject) == ("CHAT", 5, None)


async def test_of_a_forgotten_session_no_reading_joined_anything(parts: Parts) -> None:
    await learn(parts, "Rex is a dog on day 3.", "Rex is a dog on day 3.", "Rex is a dog on day 3.")
    await parts.log.append_event(a_forgetting("s1"))
    async with running(parts):
        await parts.until_done()
    told = await fact(parts, "Rex is a dog on day 3.")
    rules = [each.joined.rule for each in told.readings if each.joined]

    assert len(told.readings) == 2
    assert rules == ["founded", "same"]
    assert {turn.session_id for reading in told.readings for turn in reading.turns} == {"s2", "s3"}


async def test_what_was_known_then_is_told_as_of_then(parts: Parts) -> None:
    await learn(parts, "Rex is a dog on day 3.")
    then = parts.log.head
    await learn(parts, "Zoe.", "Rex is a dog on day 3.")
    fact_id = (await facts_of(parts))["Rex is a dog on day 3."].id
    now, past = await why(parts, fact_id), await why(parts, fact_id, as_of=then)
    await parts.log.append_event(a_forgetting("s1"))

    assert (len(past.facts[0].readings), len(now.facts[0].readings)) == (1, 2)
    assert (past.user_seq, now.user_seq) == (then, then + parts.log.head - 1 - then)
    with pytest.raises(MemoryUnknown):
        await why(parts, fact_id, as_of=1)
    with pytest.raises(MemoryUnknown):
        await why(parts, fact_id, as_of=then)
