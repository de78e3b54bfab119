"""Filters on answers of real logs: over chunks, facts and groups, after edits and forgetting, and as of then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.query_params import QueryParams
from daemon.vector_source import NoCache, VectorSource
from events.envelope import Reference
from events.log import EventLog
from events.session import TurnRecorded, TurnRevised
from events.time import to_iso
from projections.recall.agpr import AgprParameters
from projections.texts import FactText, name_text
from tests.builders import MONDAY, ManualClock, a_batch, a_forgetting, a_revision, a_turn
from tests.daemon.parts_in_use import ALICE, MINUTE_MS, Parts, build_parts, running
from tests.scripted_models import ScriptedEmbedder

DAY_MS = 86_400_000


async def say(
    parts: Parts,
    content: str,
    *,
    session: str = "s1",
    role: str = "user",
    agent: str | None = None,
    metadata: dict[str, object] | None = None,
) -> None:
    """One turn, a minute after the one before."""
    parts.turns += 1
    new = a_turn(
        content,
        session_id=session,
        turn_id=f"t{parts.turns}",
        role=role,
        name="Alice" if role == "user" else None,
        happened_at=MONDAY + parts.turns * MINUTE_MS,
    )
    assert isinstance(new.event, TurnRecorded)
    written = None if metadata is None else json.dumps(metadata)
    event = replace(new.event, agent_id=agent, metadata=written)
    await parts.log.append(a_batch(replace(new, event=event)))


async def ask(parts: Parts, question: str = "Rome", **more: Any) -> Answer:
    return await parts.answerer.query(QueryParams(user_id="alice", query=question, k=100, **more))


async def kinds_and_texts(parts: Parts, **more: Any) -> set[tuple[str, str]]:
    return {(memory.kind, memory.text) for memory in (await ask(parts, **more)).memories}


async def texts(parts: Parts, **more: Any) -> set[str]:
    return {memory.text for memory in (await ask(parts, **more)).memories}


async def tell(parts: Parts) -> None:
    """Two sessions, each of a chunk, extracted and built."""
    async with running(parts):
        await say(parts, "We saw Rome with Kim.", metadata={"channel": "mail", "device": {"os": "ios"}})
        await say(parts, "Indeed it was Rome.", role="assistant", agent="guide")
        await say(parts, "Later Rome bored Nate.", session="s2", metadata={"channel": ["sms", "mail"], "floor": 3})
        await say(parts, "Nothing else to say of Rome.", session="s2")
        await parts.close("s1")
        await parts.close("s2")
        await parts.until_done()


S1 = "Alice: We saw Rome with Kim.\nassistant: Indeed it was Rome."
S2 = "Alice: Later Rome bored Nate.\nAlice: Nothing else to say of Rome."


@pytest.mark.parametrize(
    ("filters", "chunks"),
    [
        ({"sessions": "s1"}, {S1}),
        ({"sessions": ["s1", "s2"]}, {S1, S2}),
        ({"sessions": ["s1", "s2"], "not_sessions": ["s1"]}, {S2}),
        ({"sessions": "of nobody"}, set()),
        ({"roles": "assistant"}, {S1}),
        ({"not_roles": "assistant"}, {S2}),
        ({"agents": "guide"}, {S1}),
        ({"metadata": {"channel": "mail"}}, {S1, S2}),
        ({"metadata": {"channel": "sms"}}, {S2}),
        ({"metadata": {"channel": "mail", "floor": [2, 3]}}, {S2}),
        ({"metadata": {"device": {"os": "ios"}}}, {S1}),
        ({"metadata": {"floor": "3"}}, set()),
        ({"entities": "KIM"}, {S1}),
        ({"entities": ["kim", "nate"]}, {S1, S2}),
        ({"said_after": to_iso(MONDAY + 3 * MINUTE_MS)}, {S2}),
        ({"said_before": to_iso(MONDAY + 3 * MINUTE_MS)}, {S1}),
    ],
)
async def test_a_chunk_answers_when_its_turns_pass(
    parts: Parts, filters: dict[str, Any], chunks: set[str]
) -> None:
    await tell(parts)

    assert await texts(parts, filters={**filters, "kinds": "chunk"}) == chunks


async def test_a_fact_has_the_role_and_metadata_of_its_own_turns_alone(parts: Parts) -> None:
    await tell(parts)

    assert await texts(parts, filters={"roles": "assistant", "kinds": "fact"}) == {"Indeed it was Rome."}
    assert await texts(parts, filters={"metadata": {"floor": 3}, "kinds": "fact"}) == {"Later Rome bored Nate."}
    assert await texts(parts, filters={"entities": "kim", "kinds": "fact"}) == {"We saw Rome with Kim."}


async def test_filters_without_a_question_in_common_still_show_what_passes(parts: Parts) -> None:
    await tell(parts)
    answer = await ask(parts, "Zanzibar", filters={"sessions": "s2", "kinds": "chunk"})

    assert [memory.text for memory in answer.memories] == [S2]


async def test_a_group_passes_by_what_any_of_its_members_has(parts: Parts) -> None:
    await group_two_facts(parts)
    (group,) = (await ask(parts, filters={"kinds": "group"})).memories

    for filters in (
        {"roles": "assistant"},
        {"not_roles": "assistant"},
        {"entities": "nate"},
        {"entities": "kim"},
        {"sessions": "Kim"},
    ):
        found = await ask(parts, filters={**filters, "kinds": "group"})
        assert [memory.id for memory in found.memories] == [group.id]
    assert (await ask(parts, filters={"not_roles": ["assistant", "user"], "kinds": "group"})).memories == []


async def group_two_facts(parts: Parts) -> None:
    """Two sessions with a fact each, merged into one group."""
    async with running(parts):
        for role, name in (("user", "Kim"), ("assistant", "Nate")):
            await say(parts, f"In Rome I met {name} the baker again.", role=role, session=name)
            await say(parts, "Yes", session=name)
            await parts.close(name)
        await parts.until_done()
        await parts.compactor.compact(ALICE, 0.5)
        await parts.until_done()


async def test_an_opened_group_shows_its_facts(parts: Parts) -> None:
    await group_two_facts(parts)
    closed = await ask(parts, filters={"kinds": "group"})
    opened = await ask(parts, filters={"kinds": "group"}, open_groups=True)
    (group,) = opened.memories

    assert [memory.members for memory in closed.memories] == [None]
    assert group.members is not None
    assert [member.text for member in group.members] == [
        "In Rome I met Kim the baker again.",
        "In Rome I met Nate the baker again.",
    ]
    assert opened.context == (
        f"{closed.context}\n"
        "- [1 July 2024] In Rome I met Kim the baker again.\n- [1 July 2024] In Rome I met Nate the baker again."
    )
    facts = (await parts.memory()).canon.facts
    assert {member.id for member in group.members} <= {fact.hex() for fact in facts}


class Kept(NoCache):
    """Vectors that were made before, by key."""

    def __init__(self, vectors: dict[bytes, NDArray[np.float16]]) -> None:
        self.vectors = vectors

    async def load(self, user: Reference, model: str, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        return {key: self.vectors[key] for key in keys if key in self.vectors}


async def test_an_opened_group_begins_with_the_fact_nearest_to_the_question(
    log: EventLog, clock: ManualClock
) -> None:
    embedder, agpr = ScriptedEmbedder(), AgprParameters(cosine_weight=0.5)
    parts = build_parts(log, clock, embedder=embedder, agpr=agpr)
    await group_two_facts(parts)
    facts = (await parts.memory()).canon.facts.values()
    vectors = {name_text(FactText(fact.first.pointer)): await embedder.embed([fact.id.hex()]) for fact in facts}
    source = VectorSource(log, embedder, Kept({key: each[0].astype(np.float16) for key, each in vectors.items()}))
    answerer = Answerer(log.keys, log, parts.memories, embedder, agpr, lambda _: 0, clock, vectors=source)
    only = QueryParams(user_id="alice", query="Rome", filters={"kinds": "group"}, open_groups=True)
    for (vector,), fact in zip(vectors.values(), facts, strict=True):
        near = msgspec.structs.replace(only, embedding=vector.tolist())
        (group,) = (await answerer.query(near)).memories
        assert group.members is not None
        nearest, _ = group.members
        assert nearest.id == fact.id.hex()


async def test_a_revision_passes_by_what_it_says_and_not_by_what_the_turn_said_before(parts: Parts) -> None:
    await say(parts, "Rome", metadata={"channel": "mail"})
    before = await texts(parts, filters={"metadata": {"channel": "mail"}})
    revision = a_revision("Rome again", turn_id="t1", role="editor", happened_at=MONDAY + MINUTE_MS)
    assert isinstance(revision.event, TurnRevised)
    event = replace(revision.event, metadata='{"channel":"sms"}')
    await parts.log.append(a_batch(replace(revision, event=event)))
    await parts.memory()

    assert before == {"Alice: Rome"}
    assert await texts(parts, filters={"metadata": {"channel": "sms"}, "roles": "editor"}) == {"Alice: Rome again"}
    assert await texts(parts, filters={"metadata": {"channel": "mail"}}) == set()
    assert await texts(parts, filters={"roles": "user"}) == set()


async def test_what_was_forgotten_passes_no_filter(parts: Parts) -> None:
    await tell(parts)
    await parts.log.append_event(a_forgetting("s1"))
    await parts.memory()

    assert await texts(parts, filters={"metadata": {"channel": "mail"}, "kinds": "chunk"}) == {S2}
    assert await texts(parts, filters={"entities": "kim"}) == set()


async def test_filters_hold_for_what_was_known_then(parts: Parts) -> None:
    await tell(parts)
    then = (await parts.memory()).user_seq
    await say(parts, "Rome is new.", session="s3", role="assistant")
    await parts.memory()
    filters = {"roles": "assistant", "kinds": "chunk"}

    assert await texts(parts, filters=filters) == {S1, "assistant: Rome is new."}
    assert await texts(parts, filters=filters, as_of=then) == {S1}
    assert await texts(parts, filters=filters, as_of=1) == set()


async def test_valid_at_and_between_ask_what_was_true_then_whenever_it_was_said(parts: Parts) -> None:
    async with running(parts):
        await say(parts, "I was in Rome on day 3.")
        await say(parts, "I was in Rome on day 5.")
        await parts.close()
        await parts.until_done()
    facts = {"filters": {"kinds": "fact"}}

    assert await texts(parts, valid_at="1970-01-04", **facts) == {"I was in Rome on day 3."}
    assert await texts(parts, valid_at="1970-01-04T00:00:00Z", **facts) == {"I was in Rome on day 3."}
    assert await texts(parts, valid_at="1970-01-04T00:00:01Z", **facts) == set()
    assert await texts(parts, between=("1970-01-04", "1970-01-06"), **facts) == {"I was in Rome on day 3."}
    assert len(await texts(parts, between=("1970-01-04", "1970-01-06T00:00:01Z"), **facts)) == 2
    assert await texts(parts, between=("1970-01-05", None), **facts) == {"I was in Rome on day 5."}
    assert await kinds_and_texts(parts, valid_at=to_iso(MONDAY + MINUTE_MS)) == {
        ("chunk", "Alice: I was in Rome on day 3.\nAlice: I was in Rome on day 5.")
    }, "a chunk is about the time when it was said"


async def test_a_rebuilt_memory_gives_the_same_filtered_answers(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock)
    await tell(parts)
    afresh = build_parts(log, clock)
    for filters in ({"roles": "assistant"}, {"entities": "kim"}, {"metadata": {"channel": "mail"}}):
        assert await ask(parts, filters=filters) == await ask(afresh, filters=filters)


async def test_the_explanation_counts_what_each_filter_left(parts: Parts) -> None:
    await tell(parts)
    answer = await ask(parts, filters={"sessions": "s1", "kinds": "chunk"}, explain=True)
    assert answer.explanation is not None

    assert [(each.name, each.nodes) for each in answer.explanation.filters] == [
        ("nodes", 6),
        ("sessions", 3),
        ("kinds", 1),
    ]
