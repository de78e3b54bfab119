"""What was true then: real sentences through the built-in rules, the worker, and answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.asking.fact_listing import FactShown
from daemon.asking.structures import FactsParams, Structures
from daemon.building.corrections import Corrections, CorrectParams, FactParams, PinParams
from daemon.building.deciding import DecidingParameters
from daemon.folding import fold_from_nothing
from daemon.offline.extraction import extract_facts
from events.log import EventLog
from projections.digests import digest_memory
from projections.ports import ChunkText, FactsRead
from tests.builders import ManualClock, a_batch, a_closing, a_retraction, a_revision, a_turn
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, event_types, running
from tests.scripted_models import ScriptedModel

FACTS: dict[str, Any] = {"filters": {"kinds": "fact"}}
TOLD = {
    "en": (
        ("2022-03-01", "I live in Boston."),
        ("2023-05-20", "I moved to Davis this week."),
        ("2024-07-01", "I just moved to Miami!"),
    ),
    "de": (
        ("2022-03-01", "Ich wohne in Boston."),
        ("2023-05-20", "Ich bin nach Davis gezogen."),
        ("2024-07-01", "Ich lebe jetzt in Miami."),
    ),
    "fr": (
        ("2022-03-01", "J'habite à Boston."),
        ("2023-05-20", "J'ai déménagé à Davis."),
        ("2024-07-01", "Je vis maintenant à Miami."),
    ),
    "es": (
        ("2022-03-01", "Vivo en Boston."),
        ("2023-05-20", "Me mudé a Davis."),
        ("2024-07-01", "Ahora vivo en Miami."),
    ),
    "zh": (
        ("2022-03-01", "我住在波士顿。"),
        ("2023-05-20", "我搬到戴维斯了。"),
        ("2024-07-01", "我现在住在迈阿密。"),
    ),
}
PLACES = {"zh": ("波士顿", "戴维斯", "迈阿密")}


class Rules(ScriptedModel):
    """Reads facts by the rules that come with the daemon."""

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        await super().extract_facts(chunk)
        return FactsRead(extract_facts(chunk), self.usage)


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock, model=Rules())


@pytest.fixture
def structures(parts: Parts) -> Structures:
    return Structures(parts.log, parts.memories)


@pytest.fixture
def corrections(parts: Parts, structures: Structures, clock: ManualClock) -> Corrections:
    return Corrections(parts.log, parts.memories, parts.worker, structures, clock)


async def say(parts: Parts, date: str, content: str, session_id: str | None = None) -> None:
    """A turn of that day in a session of its own, which is over then."""
    session, at = session_id or date, _noon(date)
    turn = a_turn(content, session_id=session, turn_id=f"t{date}", name="Bob", happened_at=at)
    await parts.log.append(a_batch(turn))
    await parts.log.append_event(a_closing(session, key=date))
    await parts.until_done()


async def tell(parts: Parts, language: str = "en") -> None:
    for date, content in TOLD[language]:
        await say(parts, date, content)


async def known(structures: Structures) -> dict[str, FactShown]:
    """All facts by the place that they name."""
    page = await structures.facts(FactsParams(user_id="alice"))
    places = (*PLACES["zh"], "Boston", "Davis", "Miami", "Reno")
    return {next(place for place in places if place in fact.text): fact for fact in page.facts}


async def true_at(parts: Parts, date: str) -> list[str]:
    answer = await parts.ask("Where does Bob live?", valid_at=date, **FACTS)
    return sorted(memory.text for memory in answer.memories)


async def check_fold(parts: Parts) -> None:
    """The live Memory is what a fold from nothing gives."""
    live = digest_memory(await parts.memory())

    assert digest_memory(await fold_from_nothing(parts.log, ALICE, SMALL)) == live


@pytest.mark.parametrize("language", list(TOLD))
async def test_davis_was_home_in_between_and_neither_boston_nor_miami(
    parts: Parts, structures: Structures, language: str
) -> None:
    async with running(parts):
        await tell(parts, language)
        facts = await known(structures)
        boston, davis, miami = (facts[place] for place in PLACES.get(language, ("Boston", "Davis", "Miami")))

        assert await true_at(parts, "2024-01-15") == [davis.text]
        assert await true_at(parts, "2022-06-01") == [boston.text]
        assert await true_at(parts, "2025-01-15") == [miami.text]
        assert [fact.valid_until for fact in (boston, davis, miami)] == [davis.valid_from, miami.valid_from, None]
        assert [fact.valid_from[:7] for fact in (boston, davis, miami)] == ["2022-03", "2023-05", "2024-07"]
        assert [fact.predecessor for fact in (boston, davis, miami)] == [None, boston.id, davis.id]
        assert [fact.successor for fact in (boston, davis, miami)] == [davis.id, miami.id, None]
        assert {(fact.entity, fact.attribute) for fact in facts.values()} == {("bob", "home")}
        await check_fold(parts)


async def test_an_answer_says_when_a_state_ended(parts: Parts) -> None:
    async with running(parts):
        await tell(parts)
        answer = await parts.ask("Where does Bob live?", **FACTS)
        until = {memory.text: memory.valid_until for memory in answer.memories}

        assert until["Bob just moved to Miami!"] is None
        assert (until["Bob lives in Boston."] or "")[:7] == "2023-05"


async def test_a_stretch_of_time_meets_all_that_was_true_in_it(parts: Parts) -> None:
    async with running(parts):
        await tell(parts)
        answer = await parts.ask("Where does Bob live?", between=("2023-01-01", "2024-01-01"), **FACTS)

        assert sorted(memory.text for memory in answer.memories) == [
            "Bob lives in Boston.",
            "Bob moved to Davis this week.",
        ]


async def test_what_was_known_then_is_as_it_was_known_then(parts: Parts) -> None:
    async with running(parts):
        await say(parts, *TOLD["en"][0])
        then = (await parts.memory()).user_seq
        await say(parts, *TOLD["en"][2])
        now = await true_at(parts, "2025-01-15")
        past = await parts.ask("Where does Bob live?", valid_at="2025-01-15", as_of=then, **FACTS)

        assert now == ["Bob just moved to Miami!"]
        assert [memory.text for memory in past.memories] == ["Bob lives in Boston."]


async def test_a_state_told_late_goes_to_its_place(parts: Parts, structures: Structures) -> None:
    async with running(parts):
        await say(parts, *TOLD["en"][0])
        await say(parts, *TOLD["en"][2])
        await say(parts, "2024-08-01", "I moved to Davis in May 2023.")
        facts = await known(structures)

        assert await true_at(parts, "2024-01-15") == ["Bob moved to Davis in May 2023."]
        assert (facts["Boston"].successor, facts["Davis"].successor) == (facts["Davis"].id, facts["Miami"].id)


async def test_who_lives_there_no_longer_has_no_home_until_there_is_another(parts: Parts) -> None:
    async with running(parts):
        await say(parts, *TOLD["en"][0])
        await say(parts, "2023-05-20", "I don't live in Boston anymore.")

        assert await true_at(parts, "2022-06-01") == ["Bob lives in Boston."]
        assert await true_at(parts, "2024-06-01") == ["Bob doesn't live in Boston anymore."]


async def test_a_retracted_state_opens_the_one_before_it(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    async with running(parts):
        await tell(parts)
        davis = (await known(structures))["Davis"]
        await corrections.retract(FactParams(user_id="alice", fact_id=davis.id))
        await parts.until_done()
        await settled(parts)
        facts = await known(structures)

        assert facts["Boston"].valid_until == facts["Miami"].valid_from
        assert await true_at(parts, "2024-01-15") == ["Bob lives in Boston."]
        await check_fold(parts)


async def test_a_corrected_state_ends_the_one_before_it_when_it_says_so(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    async with running(parts):
        await tell(parts)
        davis = (await known(structures))["Davis"]
        changed = CorrectParams(
            user_id="alice", fact_id=davis.id, text="Bob moved to Reno.", time_start="2023-09-01T00:00:00Z"
        )
        await corrections.correct(changed)
        await settled(parts)
        facts = await known(structures)

        assert facts["Boston"].valid_until == facts["Reno"].valid_from == "2023-09-01T00:00:00Z"
        assert facts["Reno"].successor == facts["Miami"].id
        assert await true_at(parts, "2023-07-01") == ["Bob lives in Boston."]


async def test_a_pinned_state_is_in_its_place_still(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    async with running(parts):
        await tell(parts)
        davis = (await known(structures))["Davis"]
        await corrections.pin(PinParams(user_id="alice", fact_id=davis.id))
        await settled(parts)

        assert await true_at(parts, "2024-01-15") == [davis.text]
        assert (await known(structures))["Davis"].pinned


async def test_a_forgotten_session_ended_nothing(parts: Parts, structures: Structures) -> None:
    async with running(parts):
        await tell(parts)
        await parts.forgetter.forget("alice", "2023-05-20")
        await settled(parts)
        facts = await known(structures)

        assert facts.keys() == {"Boston", "Miami"}
        assert facts["Boston"].valid_until == facts["Miami"].valid_from
        assert await true_at(parts, "2024-01-15") == ["Bob lives in Boston."]
        await check_fold(parts)


async def test_a_retracted_turn_ended_nothing(parts: Parts, structures: Structures) -> None:
    async with running(parts):
        await tell(parts)
        await parts.log.append_event(a_retraction("t2024-07-01", session_id="2024-07-01"))
        await settled(parts)
        facts = await known(structures)

        assert facts.keys() == {"Boston", "Davis"}
        assert facts["Davis"].valid_until is None
        assert await true_at(parts, "2025-01-15") == [facts["Davis"].text]
        await check_fold(parts)


async def test_a_reworded_turn_ends_what_it_says_now(parts: Parts, structures: Structures) -> None:
    async with running(parts):
        await tell(parts)
        revision = a_revision(
            "I just moved to Reno!",
            session_id="2024-07-01",
            turn_id="t2024-07-01",
            name="Bob",
            happened_at=_noon("2024-07-01"),
        )
        await parts.log.append(a_batch(revision))
        await settled(parts)
        facts = await known(structures)

        assert facts.keys() == {"Boston", "Davis", "Reno"}
        assert facts["Davis"].successor == facts["Reno"].id


async def test_states_that_another_one_may_end_are_in_no_group(parts: Parts) -> None:
    async with running(parts):
        await tell(parts)
        for n in range(6):
            await say(parts, f"2024-09-1{n}", f"I saw whale number {n} in the bay.")
        result = await parts.compactor.compact(ALICE, 0.6)
        memory = await parts.memory()
        validity, groups = memory.placement.validity, memory.units.groups.values()
        trajectories = [group.members for group in groups if validity.superseded.keys() & set(group.members)]
        grouped = {fact for group in groups if group.members not in trajectories for fact in group.members}

        assert result.groups > 0
        assert not any(validity.may_change(fact) for fact in grouped)
        assert all(fact in validity.superseded for members in trajectories for fact in members)
        answer = await parts.ask("Where does Bob live?", valid_at="2024-01-15", filters={"kinds": ["group"]})
        texts = [memory.text for memory in answer.memories]
        assert "[15 May 2023 – 1 Jul 2024] Bob moved to Davis this week." in texts


async def test_a_long_chain_is_planned_off_the_loop_and_ends_as_a_short_one(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=Rules(), deciding=DecidingParameters(states_on_loop_max=0))
    structures = Structures(parts.log, parts.memories)
    async with running(parts):
        await tell(parts)
        facts = await known(structures)

        assert facts["Boston"].successor == facts["Davis"].id
        assert facts["Davis"].successor == facts["Miami"].id
        await check_fold(parts)


async def test_two_homes_of_one_day_are_shown_side_by_side(parts: Parts, structures: Structures) -> None:
    async with running(parts):
        await say(parts, "2024-07-01", "I live in Boston.", "s1")
        await say(parts, "2024-07-01", "I live in Davis.", "s2")
        page = await structures.facts(FactsParams(user_id="alice", conflicts=True))
        first = await structures.facts(FactsParams(user_id="alice", conflicts=True, limit=1))

        assert sorted(fact.text for fact in page.facts) == ["Bob lives in Boston.", "Bob lives in Davis."]
        assert [(each.reason, each.entity, each.attribute) for each in page.conflicts] == [
            ("state", "bob", "home")
        ]
        assert {page.conflicts[0].one, page.conflicts[0].other} == {fact.id for fact in page.facts}
        assert (first, page.next) == (page, None)


async def test_nothing_is_recorded_of_what_changes_nothing(parts: Parts) -> None:
    async with running(parts):
        await tell(parts)
        before = await event_types(parts.log, ALICE)
        await say(parts, "2024-09-01", "I still live in Miami.")
        after = await event_types(parts.log, ALICE)

        assert before.count("facts.superseded") == after.count("facts.superseded") == 2


async def settled(parts: Parts) -> None:
    """Folded again if need be, and planned to the end."""
    await parts.memory()
    await parts.until_done()


def _noon(date: str) -> int:
    return int(datetime.fromisoformat(date).replace(hour=12, tzinfo=UTC).timestamp() * 1000)
