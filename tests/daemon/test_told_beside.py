"""What a model is told beside the texts of memories: which states ended, and what contradicts what."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.chat.model import EndpointLanguageModel
from daemon.offline.extraction import extract_facts
from events.log import EventLog
from events.time import from_datetime
from projections.ports import ChunkText, FactsRead
from tests.builders import ManualClock, a_batch, a_closing, a_forgetting, a_turn
from tests.daemon.chat.asking import asking
from tests.daemon.parts_in_use import Parts, build_parts, running
from tests.openai_stub import OpenAiStub
from tests.scripted_models import ScriptedModel

FACTS: dict[str, Any] = {"filters": {"kinds": "fact"}}
HOMES = (
    ("2022-03-01", "I live in Boston."),
    ("2023-05-20", "I moved to Davis this week."),
    ("2024-07-01", "I just moved to Miami!"),
)


class Rules(ScriptedModel):
    """Reads facts by the rules that come with the daemon."""

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        await super().extract_facts(chunk)
        return FactsRead(extract_facts(chunk), self.usage)


@pytest.fixture
async def model(stub: OpenAiStub) -> AsyncGenerator[EndpointLanguageModel]:
    stub.chat = lambda _: '{"answer":"Miami","cites":[1]}'
    async with asking(stub) as model:
        yield model


@pytest.fixture
def parts(log: EventLog, clock: ManualClock, model: EndpointLanguageModel) -> Parts:
    return build_parts(log, clock, model=Rules(), answers_by=model)


async def say(parts: Parts, *said: tuple[str, str]) -> None:
    """Turns of these days, each in a session of its own, read by the rules."""
    async with running(parts):
        for n, (date, content) in enumerate(said):
            at = from_datetime(datetime.fromisoformat(date).replace(hour=12, tzinfo=UTC))
            session = f"s{n}"
            turn = a_turn(content, session_id=session, turn_id=f"t{n}", name="Alice", happened_at=at)
            await parts.log.append(a_batch(turn))
            await parts.log.append_event(a_closing(session))
        await parts.until_done()


async def told(parts: Parts, stub: OpenAiStub, question: str, **more: Any) -> dict[str, Any]:
    """The object of the prompt."""
    await parts.ask(question, answer=True, **more)
    return dict(json.loads(stub.asked[-1].prompt))


async def test_a_turn_that_tells_of_a_state_that_ended_says_so(parts: Parts, stub: OpenAiStub) -> None:
    await say(parts, *HOMES)
    asked = await told(parts, stub, "Where does Alice live?", filters={"kinds": "chunk"})

    # "This week" of a Saturday ends with it, by the day it must have happened by.
    ended = [[each["until"][:7] for each in memory.get("ended", [])] for memory in asked["memories"]]
    assert ended == [["2023-05"], ["2024-07"], []]


async def test_a_fact_that_is_such_a_state_has_its_end(parts: Parts, stub: OpenAiStub) -> None:
    await say(parts, *HOMES)
    asked = await told(parts, stub, "Where does Alice live?", **FACTS)

    assert [memory.get("until", "")[:7] for memory in asked["memories"]] == ["2023-05", "2024-07", ""]
    assert not any("ended" in memory for memory in asked["memories"])


async def test_a_state_that_ended_is_told_in_the_words_of_the_turn_that_tells_of_it(
    parts: Parts, stub: OpenAiStub
) -> None:
    """Of a turn of a session that filters leave out nothing is shown, though it was the first to say so."""
    await say(parts, HOMES[0], ("2022-03-01", "I live in BOSTON."), *HOMES[1:])
    facts = (await parts.memory()).canon.facts.values()
    asked = await told(parts, stub, "Where does Alice live?", filters={"sessions": "s1", "kinds": "chunk"})
    both = await told(parts, stub, "Where does Alice live?", filters={"kinds": "chunk"})
    ended = [each["state"] for memory in asked["memories"] for each in memory["ended"]]
    told_twice = [[each["state"] for each in memory.get("ended", [])] for memory in both["memories"]]

    assert sorted(len(fact.occurrences) for fact in facts) == [1, 1, 2]
    assert ended == ["Alice lives in BOSTON."]
    assert "Boston" not in json.dumps(asked)
    assert told_twice[:2] == [["Alice lives in Boston."], ["Alice lives in BOSTON."]]


async def test_what_ended_by_something_forgotten_holds_again(parts: Parts, stub: OpenAiStub) -> None:
    await say(parts, *HOMES)
    async with running(parts):
        await parts.log.append_event(a_forgetting("s1"))
        await parts.until_done()
    asked = await told(parts, stub, "Where does Alice live?", filters={"kinds": "chunk"})

    assert [[each["until"][:7] for each in memory.get("ended", [])] for memory in asked["memories"]] == [
        ["2024-07"],
        [],
    ]
    assert "Davis" not in stub.asked[-1].prompt


async def test_memories_that_contradict_each_other_are_named(parts: Parts, stub: OpenAiStub) -> None:
    await say(
        parts,
        ("2024-07-01", "I paid 40 dollars for the lamp on 3 June 2024."),
        ("2024-07-02", "I paid 50 dollars for the lamp on 3 June 2024."),
        ("2024-07-03", "I like the lamp."),
    )
    asked = await told(parts, stub, "How much was the lamp?", **FACTS)
    (pair,) = asked["conflicts"]
    texts = {each["n"]: each["text"] for each in asked["memories"]}

    assert sorted(next(word for word in texts[n].split() if word.isdigit()) for n in pair) == ["40", "50"]
