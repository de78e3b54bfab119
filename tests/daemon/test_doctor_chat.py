"""`doctor` on the chat model: it works, how, and how fast; or what is wrong with it, and the mend."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from daemon.bus.embedded_bus import LOOPBACK, free_port
from daemon.chat.probe import ProbeResult
from daemon.chat.requests import JsonMode
from daemon.config import Config
from daemon.config_models import OPENAI_URL, Models
from daemon.models.language_models import ChatModel
from daemon.models.prices import Price
from daemon.upkeep.doctor_chat import examine_chat, examine_transport, find_missing, try_chat_model
from daemon.upkeep.findings import Finding
from tests.stub_models.process import running_stub_process

KEY = "sk-Xylophon"
MODEL = "stub-chat"
PRICES = (Price(MODEL, prompt=0.4, completion=1.6),)


async def examined(url: str, *, prices: tuple[Price, ...] = PRICES, **more: object) -> dict[str, Finding]:
    """The findings by their subject; none of them holds a key or a password."""
    chosen = {"chat_url": url, "chat_model": MODEL, "api_key": KEY, **more}
    config = replace(Config(), models=Models(**chosen), prices=prices)  # type: ignore[arg-type]
    found = await examine_chat(config)

    assert "Xylophon" not in str(found)
    return {each.subject: each for each in found}


async def test_without_a_chat_model_nothing_is_asked_and_nothing_is_missed() -> None:
    (finding,) = await examine_chat(Config())

    assert (finding.level, finding.subject, finding.mend) == ("ok", "chat model", "")
    assert "nothing is sent" in finding.sentence


async def test_a_model_that_works_is_shown_with_its_latency_and_way_of_json_and_without_a_password() -> None:
    async with running_stub_process() as stub:
        found = await examined(stub.url.replace("//", "//alice:Xylophon@"))

    finding = found["chat model"]
    assert (finding.level, finding.mend) == ("ok", "")
    assert f"{MODEL} at http://127.0.0.1:{stub.port}/v1: answers in " in finding.sentence
    assert " ms, JSON by json_schema" in finding.sentence
    assert "not by" not in finding.sentence
    assert "prices" not in found
    assert "8,192 tokens" in found["chat context"].sentence


@pytest.mark.parametrize(
    ("most", "shown", "refused"),
    [
        ("json_object_schema", "json_object+schema", "not by json_schema ("),
        ("text", "text", "not by json_schema, json_object+schema, json_object ("),
    ],
)
async def test_a_server_that_knows_less_is_asked_for_less_and_that_is_said(
    most: str, shown: str, refused: str
) -> None:
    async with running_stub_process("--json-mode", most) as stub:
        finding = (await examined(stub.url))["chat model"]

    assert finding.level == "ok"
    assert f"JSON by {shown}, {refused}" in finding.sentence


async def test_what_an_endpoint_gets_wrong_has_its_mend() -> None:
    async with running_stub_process() as stub:
        for faults, named in (
            ("401", "models.api_key"),
            ("404", "models.chat_model"),
            ("quota", "quota"),
            ("html200", "models.chat_url"),
        ):
            await stub.set_faults(faults)
            finding = (await examined(stub.url, timeout_s=5.0))["chat model"]

            assert finding.level == "error", faults
            assert named in finding.sentence + finding.mend, (faults, finding)
            assert finding.mend, faults


async def test_a_way_of_json_that_is_set_and_does_not_work_is_an_error_that_names_the_key() -> None:
    async with running_stub_process("--json-mode", "text") as stub:
        finding = (await examined(stub.url, chat_json="json_schema"))["chat model"]

    assert finding.level == "error"
    assert "models.chat_json" in finding.sentence + finding.mend


async def test_nobody_at_the_address_is_an_error_with_the_address() -> None:
    port = free_port()
    finding = (await examined(f"http://{LOOPBACK}:{port}/v1"))["chat model"]

    assert finding.level == "error"
    assert f":{port}/v1" in finding.sentence
    assert "nothing listens" in finding.sentence


async def test_a_model_that_calls_itself_otherwise_and_one_that_thinks_are_told() -> None:
    thinking = ProbeResult(JsonMode.JSON_OBJECT, True, "qwen3:8b", 1200, True, ())

    class Scripted:
        """A model and an endpoint in one."""

        async def open(self) -> None: ...

        async def probe(self) -> ProbeResult:
            return thinking

    chat = ChatModel(Scripted(), Scripted())  # type: ignore[arg-type]
    config = replace(Config(), models=Models(chat_url="http://host/v1", chat_model="qwen3"))
    works, thinks = await try_chat_model(config, chat)

    assert (
        works.sentence == "qwen3 at http://host/v1: answers in 1200 ms, calls itself qwen3:8b, JSON by json_object"
    )
    assert thinks.level == "warning"
    assert "models.chat_extra_body" in thinks.mend


@pytest.mark.parametrize(
    ("url", "level"),
    [
        (f"http://{LOOPBACK}:1/v1", "ok"),
        ("http://localhost:1/v1", "ok"),
        ("http://[::1]:1/v1", "ok"),
        ("http://nobody.invalid:1/v1", "warning"),
    ],
)
def test_a_model_without_a_price_is_told_and_a_warning_where_tokens_cost(url: str, level: str) -> None:
    config = replace(Config(), models=Models(chat_url=url, chat_model=MODEL), prices=(Price("another"),))
    (finding,) = [each for each in find_missing(config) if each.subject == "prices"]

    assert finding.level == level
    assert MODEL in finding.sentence
    assert "[[prices]]" in finding.mend


def test_openai_s_models_have_a_price_and_context_enough() -> None:
    config = replace(Config(), models=Models(chat_url=OPENAI_URL, chat_model=MODEL), prices=PRICES)

    assert find_missing(config) == []


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("http://models.example.org/v1", True),
        ("https://models.example.org/v1", False),
        ("http://192.168.1.7:8000/v1", False),
        ("http://8.8.8.8/v1", True),
    ],
)
def test_words_that_would_go_out_unencrypted_are_a_warning(url: str, warns: bool) -> None:
    config = replace(Config(), models=Models(chat_url=url, chat_model=MODEL), prices=PRICES)

    assert any("without encryption" in each.sentence for each in find_missing(config)) is warns


def test_the_transport_is_looked_at_for_endpoints_alone() -> None:
    installed = find_spec("aiohttp") is not None
    embeds = replace(Config(), models=Models(embedder="endpoint"))

    assert examine_transport(Config()) == []
    assert (examine_transport(embeds) == []) is installed
