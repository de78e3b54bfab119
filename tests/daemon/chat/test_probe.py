"""What an endpoint takes is found out once, by its answers and not by what it says of itself."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import pytest

from daemon.chat.model import EndpointLanguageModel
from daemon.chat.requests import JsonMode
from projections.ports import FactsRead, ModelUnavailable
from tests.daemon.chat.asking import a_chunk, asking, echo, refusing
from tests.openai_stub import Answers, Asked, Fault, OpenAiStub, a_completion, running_stub
from tests.waiting import wait_until

RIGHT = json.dumps({"colour": "blue", "letters": 4})
CHUNK = a_chunk("One thing happened to Ann.")


@pytest.fixture
async def stub() -> AsyncGenerator[OpenAiStub]:
    async with running_stub() as stub:
        stub.chat = lambda asked: RIGHT if is_probe(asked) else echo(asked)
        yield stub


def is_probe(asked: Asked) -> bool:
    return "turns" not in asked.messages[1]["content"]


def mode_of(body: Mapping[str, Any]) -> JsonMode:
    form = body.get("response_format", {})
    match form.get("type"):
        case "json_schema":
            return JsonMode.JSON_SCHEMA
        case "json_object":
            return JsonMode.JSON_OBJECT_SCHEMA if "schema" in form else JsonMode.JSON_OBJECT
        case _:
            return JsonMode.TEXT


MODES = list(JsonMode)


@pytest.mark.parametrize("best", MODES)
@pytest.mark.parametrize("wrong", ["refused", "ignored", "failing"])
async def test_the_strictest_mode_whose_answer_is_right_is_used(
    stub: OpenAiStub, best: JsonMode, wrong: str
) -> None:
    def is_too_strict(asked: Asked) -> bool:
        return MODES.index(mode_of(asked.body)) < MODES.index(best)

    def judge(asked: Asked) -> Fault | None:
        faults: dict[str, Fault] = {"refused": refusing("response_format"), "failing": Answers(422)}
        return faults.get(wrong) if is_too_strict(asked) else None

    stub.judge = judge
    # A server that ignores the schema: the model cannot know the keys.
    stub.chat = lambda asked: (
        '{"color": "blue"}' if is_too_strict(asked) else RIGHT if is_probe(asked) else echo(asked)
    )
    async with asking(stub, "auto") as model:
        unknown = model.mode
        read = await model.extract_facts(CHUNK)
        again = await model.extract_facts(a_chunk("Another thing happened."))
        modes = [mode_of(asked.body) for asked in stub.asked]

    assert unknown is None
    assert model.mode == best.value
    assert modes == [*MODES[: MODES.index(best) + 1], best, best]
    assert read.usage.calls == MODES.index(best) + 2
    assert again.usage.calls == 1


async def test_keys_are_told_only_where_no_schema_goes_along(stub: OpenAiStub) -> None:
    stub.chat = lambda _: "{}"
    async with asking(stub, "auto") as model:
        await model.probe()

    assert ["colour" in asked.messages[1]["content"].split("?")[1] for asked in stub.asked] == [
        False,
        False,
        True,
        True,
    ]
    assert all("JSON" in asked.messages[0]["content"] for asked in stub.asked)


async def test_a_result_says_what_was_found_and_why_not_more(stub: OpenAiStub) -> None:
    stub.judge = lambda asked: refusing("response_format") if mode_of(asked.body) is JsonMode.JSON_SCHEMA else None
    stub.chat = lambda _: a_completion(f"<think>sky, blue</think>```json\n{RIGHT}\n```")
    async with asking(stub, "auto") as model:
        result = await model.probe()

    assert (result.mode, result.works, result.model, result.thinks) == (
        JsonMode.JSON_OBJECT_SCHEMA,
        True,
        "stub-model",
        True,
    )
    assert result.latency_ms >= 0
    assert [mode for mode, _ in result.refused] == [JsonMode.JSON_SCHEMA]


async def test_a_model_that_writes_no_json_is_asked_in_text_and_it_is_said(stub: OpenAiStub) -> None:
    stub.chat = lambda _: "Blue, four."
    async with asking(stub, "auto") as model:
        result = await model.probe()

    assert (result.mode, result.works) == (JsonMode.TEXT, False)
    assert [mode for mode, _ in result.refused] == MODES
    assert all("Blue" not in why for _, why in result.refused)
    assert model.mode == "text"


async def test_a_mode_that_was_found_while_no_answer_was_right_is_not_kept(stub: OpenAiStub) -> None:
    well = stub.chat
    async with asking(stub, "auto") as model:
        stub.chat = lambda _: "Sorry?"
        ill = await model.probe()
        stub.chat = well
        probes_at_once = await probes_of(stub, model)
        model._probe_again_at = 0.0  # some minutes later
        probes_later = [await probes_of(stub, model) for _ in range(2)]

    assert (ill.works, ill.mode) == (False, JsonMode.TEXT)
    assert (probes_at_once, probes_later) == (0, [1, 0])
    assert model.mode == JsonMode.JSON_SCHEMA


async def probes_of(stub: OpenAiStub, model: EndpointLanguageModel) -> int:
    """How many probes go out with a question."""
    asked = len(stub.asked)
    await model.extract_facts(CHUNK)
    return sum(map(is_probe, stub.asked[asked:]))


async def test_an_endpoint_that_is_away_is_probed_again_at_the_next_call(stub: OpenAiStub) -> None:
    stub.always = Answers(401)
    async with asking(stub, "auto") as model:
        with pytest.raises(ModelUnavailable):
            await model.extract_facts(CHUNK)
        away, stub.always = model.mode, None
        read = await model.extract_facts(CHUNK)

    assert away is None
    assert model.mode == "json_schema"
    assert len(read.facts) == 1


async def test_a_server_that_refuses_every_mode_makes_the_work_wait(stub: OpenAiStub) -> None:
    stub.always = Answers(400)
    async with asking(stub, "auto") as model:
        with pytest.raises(ModelUnavailable):
            await model.extract_facts(CHUNK)

    assert len(stub.asked) == len(MODES)
    assert model.mode is None


async def test_first_calls_at_the_same_time_share_one_probe(stub: OpenAiStub) -> None:
    stub.hold()
    reads: list[FactsRead] = []
    async with asking(stub, "auto") as model, anyio.create_task_group() as tasks:

        async def read(n: int) -> None:
            reads.append(await model.extract_facts(a_chunk(f"Thing number {n} happened.")))

        for n in range(4):
            tasks.start_soon(read, n)
        await wait_until(lambda: stub.in_flight == 1)
        await anyio.wait_all_tasks_blocked()
        stub.let_go.set()

    assert [is_probe(asked) for asked in stub.asked] == [True, False, False, False, False]
    assert sorted(each.usage.calls for each in reads) == [1, 1, 1, 2]


async def test_a_mode_that_is_configured_is_not_probed_and_can_be_checked(stub: OpenAiStub) -> None:
    async with asking(stub, "json_object") as model:
        await model.extract_facts(CHUNK)
        asked = [mode_of(asked.body) for asked in stub.asked]
        result = await model.probe()
        stub.chat = lambda _: "Blue."
        broken = await model.probe()

    assert (model.mode, asked) == ("json_object", [JsonMode.JSON_OBJECT])
    assert (result.mode, result.works) == (JsonMode.JSON_OBJECT, True)
    assert broken.works is False
    assert model.mode == "json_object"


async def test_a_probe_learns_the_other_parameters_too(stub: OpenAiStub) -> None:
    stub.judge = lambda asked: (
        refusing("max_tokens")
        if "max_tokens" in asked.body
        else refusing("temperature")
        if "temperature" in asked.body
        else None
    )
    async with asking(stub, "auto") as model:
        await model.extract_facts(CHUNK)

    assert model.mode == "json_schema"
    assert [is_probe(asked) for asked in stub.asked] == [True, True, True, False]
    assert set(stub.asked[-1].body) == {"model", "messages", "response_format", "max_completion_tokens"}


async def test_texts_need_no_probe(stub: OpenAiStub) -> None:
    from tests.daemon.chat.asking import members_of

    stub.chat = lambda _: "Ann moved to Oslo and likes it."
    async with asking(stub, "auto") as model:
        await model.merge(members_of("Ann moved to Oslo.", "Ann likes it."))

    assert len(stub.asked) == 1
    assert model.mode is None
