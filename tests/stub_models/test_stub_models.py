"""That the stub answers as a model would, and misbehaves as it is told: what its users rely on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.prompts import (
    Prompt,
    extraction_prompt,
    judge_prompt,
    mending_prompt,
    merge_prompt,
    summary_prompt,
)
from daemon.chat.text_answers import read_merged
from projections.ports import ChunkText, IntervalText, MemberText, PairText, TurnText
from tests.builders import MONDAY
from tests.stub_models.faults import CATALOGUE, Fault, Faults, FaultUnknown, parse_faults
from tests.stub_models.process import StubProcess, running_stub_process
from tests.stub_models.sentences import Said, entities_of, facts_of, join, shorten
from tests.stub_models.server import SLOW_S

TURN = TurnText("user", "Ann", MONDAY, "I moved from Davis to Miami. Nice! We paid 300 dollars to Bob, you know?")
CHUNK = ChunkText((TURN,))
MEMBERS = (MemberText("Ann moved to Miami.", MONDAY, MONDAY), MemberText("Ann paid 300 dollars.", MONDAY, MONDAY))

DENYING = (*MEMBERS, MemberText("Ann does not like the noise there.", MONDAY, MONDAY))
OF_TEXTS = {"lost_number", "lost_negation", "invented_name", "too_long", "other_language"}


@pytest.fixture
async def stub() -> AsyncGenerator[StubProcess]:
    async with running_stub_process("--dimensions", "8", "--seed", "7") as running:
        yield running


@pytest.fixture
async def client(stub: StubProcess) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=stub.url, api_key="none", max_retries=0, timeout=5) as made:
        yield made


async def ask(client: AsyncOpenAI, prompt: Prompt, **more: Any) -> ChatCompletion:
    messages: Any = [{"role": role, "content": content} for role, content in prompt.messages]
    completion: ChatCompletion = await client.chat.completions.create(model="stub-chat", messages=messages, **more)
    return completion


def facts_in(completion: ChatCompletion) -> list[Mapping[str, Any]]:
    facts: list[Mapping[str, Any]] = json.loads(completion.choices[0].message.content or "")["facts"]
    return facts


async def test_the_daemons_prompts_are_answered_and_counted_by_kind(
    stub: StubProcess, client: AsyncOpenAI
) -> None:
    extraction = extraction_prompt(CHUNK)
    extracted = await ask(client, extraction)
    again = await ask(client, extraction_prompt(CHUNK, missing=("Miami",)))
    repaired = await ask(client, mending_prompt(extraction, "nonsense", "it is no JSON"))
    summary = await ask(client, summary_prompt(IntervalText("Ann", MEMBERS)))
    merged = await ask(client, merge_prompt(MEMBERS))
    judged = await ask(client, judge_prompt((PairText(*MEMBERS), PairText(MEMBERS[0], MEMBERS[0]))))
    stats = await stub.stats()

    assert [(fact["text"], fact["turns"], fact["names"]) for fact in facts_in(extracted)] == [
        ("I moved from Davis to Miami.", [1], ["Ann", "Davis", "Miami"]),
        ("We paid 300 dollars to Bob, you know?", [1], ["Ann", "Bob"]),
    ]
    assert [fact["text"] for fact in facts_in(again)] == ["I moved from Davis to Miami."]
    assert facts_in(repaired) == facts_in(extracted)
    assert summary.choices[0].message.content == "Ann moved to Miami. paid 300 dollars."
    assert merged.choices[0].message.content == "Ann moved to Miami; Ann paid 300 dollars."
    assert json.loads(judged.choices[0].message.content or "") == {
        "verdicts": [{"n": 1, "verdict": "different"}, {"n": 2, "verdict": "same"}]
    }
    assert stats["calls"] == {"extract": 1, "judge": 1, "summarise": 1, "merge": 1, "repair": 1, "again": 1}
    assert stats["prompt_tokens"]["extract"] == -(-extraction.characters // 4)
    assert extracted.usage is not None
    assert extracted.usage.prompt_tokens == stats["prompt_tokens"]["extract"]
    assert (stats["in_flight"], stats["repeated"]) == ({"chat": 0, "embed": 0}, 0)


async def test_vectors_are_the_same_in_every_process_and_near_for_common_words(client: AsyncOpenAI) -> None:
    async with (
        running_stub_process("--dimensions", "8", "--seed", "7") as other,
        AsyncOpenAI(base_url=other.url, api_key="none") as second,
    ):
        texts = ["a red bicycle", "a red bicycle", "my red bicycle"]
        made = [
            await each.embeddings.create(model="stub-embed", input=texts, encoding_format="float")
            for each in (client, second)
        ]
    first, same, near = (item.embedding for item in made[0].data)

    assert made[0].data == made[1].data
    assert first == same
    assert 0.3 < sum(a * b for a, b in zip(first, near, strict=True)) < 0.999


async def test_only_so_many_calls_are_served_at_once_and_the_others_wait(client: AsyncOpenAI) -> None:
    async with (
        running_stub_process("--slots", "2", "--latency", "0.2") as narrow,
        AsyncOpenAI(base_url=narrow.url, api_key="none", max_retries=0) as asking,
    ):
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(ask, asking, summary_prompt(IntervalText(f"scope {number}", MEMBERS)))
        took_s = anyio.current_time() - began
        stats = await narrow.stats()

    assert took_s >= 0.4
    assert stats["in_flight_peak"]["chat"] == 4
    assert stats["calls"] == {"summarise": 4}


@pytest.mark.parametrize("json_mode", ["json_schema", "json_object_schema", "json_object", "text"])
async def test_a_form_of_answers_that_it_does_not_know_is_refused(json_mode: str) -> None:
    forms: dict[str, dict[str, object]] = {
        "json_schema": {"type": "json_schema", "json_schema": {"name": "facts", "schema": {"type": "object"}}},
        "json_object_schema": {"type": "json_object", "schema": {"type": "object"}},
        "json_object": {"type": "json_object"},
        "text": {"type": "text"},
    }
    taken: dict[str, bool] = {}
    async with (
        running_stub_process("--json-mode", json_mode) as stub,
        AsyncOpenAI(base_url=stub.url, api_key="none", max_retries=0) as client,
    ):
        for name, form in forms.items():
            try:
                await ask(client, extraction_prompt(CHUNK), response_format=form)
            except openai.BadRequestError:
                taken[name] = False
            else:
                taken[name] = True

    names = list(forms)
    assert taken == {name: names.index(name) >= names.index(json_mode) for name in names}


async def test_each_fault_of_chat_answers_is_told_from_a_right_answer(
    stub: StubProcess, client: AsyncOpenAI
) -> None:
    await ask(client, extraction_prompt(CHUNK))  # from now on its instruction is cached
    right = await ask(client, extraction_prompt(CHUNK))
    unspoilt: list[str] = []
    for name in CATALOGUE:
        await stub.set_faults(f"{name}=10@extract" if name == "context_overflow" else f"{name}=1@extract")
        try:
            with anyio.fail_after(0.8 * SLOW_S):
                answer = await ask(client, extraction_prompt(CHUNK))
        except Exception:
            continue
        if answer == right:
            unspoilt.append(name)
    await stub.set_faults()

    # What is about vectors, and about texts that stand for others.
    embed_only = {"wrong_dims", "nan", "inf", "null", "zero", "shuffled", "short", "base64"}
    assert set(unspoilt) == embed_only | OF_TEXTS
    assert await ask(client, extraction_prompt(CHUNK)) == right


async def test_each_fault_of_a_merge_is_refused_by_who_reads_it(stub: StubProcess, client: AsyncOpenAI) -> None:
    right = (await ask(client, merge_prompt(DENYING))).choices[0].message.content or ""
    refused: list[str] = []
    for name in (*OF_TEXTS, "empty_content", "injection", "garbage"):
        await stub.set_faults(f"{name}@merge")
        spoilt = (await ask(client, merge_prompt(DENYING))).choices[0].message.content or ""
        try:
            read_merged(spoilt, DENYING)
        except AnswerInvalid:
            refused.append(name)

    assert read_merged(right, DENYING) == right
    assert {*refused} == OF_TEXTS | {"empty_content", "injection", "garbage"}


def test_a_specification_names_faults_arguments_kinds_shares_and_counts() -> None:
    assert parse_faults("429=100@extract*0.3, hang#2,nan@embed") == (
        Fault("429", "100", "extract", 0.3, None),
        Fault("hang", "", None, 1.0, 2),
        Fault("nan", "", "embed", 1.0, None),
    )
    for wrong in ("hung", "429@nobody", "429**2", "hang#x"):
        with pytest.raises(FaultUnknown):
            parse_faults(wrong)


def test_a_fault_befalls_its_kind_and_its_share_alone_and_ends_with_its_count() -> None:
    faults = Faults("garbage@extract#2,nan,500@chat*0.5", seed=3)
    chosen = [faults.choose(kind, 10) for kind in ("extract", "embed", "extract", "embed")]
    later = [faults.choose("merge", 10) for _ in range(1_000)]

    assert [fault and fault.name for fault in chosen] == ["garbage", "nan", "garbage", "nan"]
    assert 400 < sum(fault is not None for fault in later) < 600
    assert faults.choose("embed", 10) == Fault("nan")


def test_a_fact_is_a_sentence_of_five_words_with_its_speaker_and_its_names() -> None:
    said = Said(2, "Ann", "Hello Bob. I saw José in San Juan today! Did you like it? 我昨天去了北京。")

    assert [(fact.text, fact.said) for fact in facts_of([said])] == [("I saw José in San Juan today!", said)]
    assert entities_of("I saw José's dog in San Juan, I think.", "Ann") == ("Ann", "José's", "San", "Juan")


def test_summaries_keep_names_and_numbers_and_merged_texts_keep_all() -> None:
    texts = ["one two three four five six seven Bob nine 42.", "one two."]

    assert shorten(texts) == "one two three four five six Bob 42. two."
    assert join(["One.", "Two.", "One."]) == "One; Two."
