"""The daemon with an embedder of choice: paraphrases are found, and a server that fails costs no answer."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import anyio
import pytest

from memforest import AsyncClient
from tests.openai_stub import Answers, running_stub
from tests.system.daemon_process import (
    DaemonProcess,
    a_close,
    a_turn,
    publisher_to,
    run_command,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
)

KEY = "sk-Xylophon"
# Nothing of the question stands in the answer, and much of it in the others.
SAID = (
    "We adopted a puppy from the shelter.",
    "Which invoices does the new tenant owe, and why does the office have none of them?",
    "Why does the printer on the second floor have no paper, does anyone know?",
    "The dentist moved my appointment to Thursday.",
    "Do they have any plans for the summer, or does the office stay open?",
    "My sister repairs old bicycles in her garage.",
)
QUESTION = "Does the family have any pets?"


async def tell(daemon: DaemonProcess, client: AsyncClient) -> None:
    """Say it all, one session a sentence."""
    async with publisher_to(daemon.bus_url) as publisher:
        for number, content in enumerate(SAID):
            await publisher.send(a_turn("alice", f"s{number}", content, id=f"t{number}"), f"t{number}")
            await publisher.send(a_close("alice", f"s{number}"), f"c{number}")
    await until_recorded(client, "alice", len(SAID))


async def models_of(client: AsyncClient) -> dict[str, Any]:
    models: dict[str, Any] = (await client.request("status", {}))["models"]
    return models


async def until_embedded(client: AsyncClient) -> None:
    async def is_done() -> bool:
        await client.query("alice", QUESTION)  # its Memory is here
        return bool((await models_of(client))["vectors_waiting"] == 0)

    await until(is_done, 30, "vectors are missing")


@pytest.mark.skipif(find_spec("wordllama") is None, reason="wordllama is not installed")
async def test_static_vectors_find_a_paraphrase_that_words_miss_also_after_a_restart() -> None:
    environ = {"MEMFOREST_MODELS_EMBEDDER": "static"}
    asked = {"user_id": "alice", "query": QUESTION}
    with short_folder() as folder:
        async with running_daemon(folder / "data", environ=environ) as daemon, daemon.client() as client:
            await tell(daemon, client)
            await until_built(client, "alice")
            await until_embedded(client)
            first = await client.request("query", asked)
            # What is past is ranked by words alone.
            by_words = await client.request("query", {**asked, "as_of": first["watermark"]["user_seq"]})
        async with running_daemon(folder / "data", environ=environ) as daemon, daemon.client() as client:
            await until_embedded(client)
            second = await client.request("query", asked)
            models = await models_of(client)

    assert {each["similarity"] for each in by_words["memories"]} == {0}, "no word of the question was said"
    assert "puppy" in first["memories"][0]["text"]
    assert first == second, "to the last digit"
    assert models["embedder"].startswith("wordllama-")
    assert (models["embedder_trouble"], models["vectors_waiting"]) == (None, 0)


async def test_a_failing_endpoint_is_told_and_words_answer_until_it_works() -> None:
    with short_folder() as folder:
        async with running_stub(64) as stub:
            stub.always = Answers(401)
            environ = {
                "MEMFOREST_MODELS_EMBEDDER": "endpoint",
                "MEMFOREST_MODELS_EMBED_URL": stub.url,
                "MEMFOREST_MODELS_EMBED_MODEL": "some-model",
                "MEMFOREST_MODELS_API_KEY": KEY,
            }
            async with running_daemon(folder / "data", environ=environ) as daemon, daemon.client() as client:
                await tell(daemon, client)

                async def is_degraded() -> bool:
                    return "embedder" in (await client.request("readyz", {}))["reasons"]

                await until(is_degraded)
                reasons = (await client.request("readyz", {}))["reasons"]
                with anyio.fail_after(10):
                    answered = await client.query("alice", "puppy", k=1)
                stub.always = None
                await until_embedded(client)

                async def is_told() -> bool:
                    return len(daemon.logged("embedder.state_changed")) == 2

                await until(is_told)
                models = await models_of(client)
                ready = await client.request("readyz", {})
            doctor = await run_command("daemon", "doctor", "--data", str(folder / "data"), environ=environ)
            log, changes = daemon.log_text(), daemon.logged("embedder.state_changed")

    assert reasons["embedder"] == "the endpoint refuses the key (401): set models.api_key or OPENAI_API_KEY"
    assert "puppy" in answered.memories[0].text
    assert models["embedder"].startswith("endpoint-some-model-64-")
    assert "embedder" not in ready["reasons"]
    assert [line["reason"] != "" for line in changes] == [True, False]
    assert "64 dimensions" in doctor.output
    assert KEY not in log + doctor.output + doctor.errors + str(models)
    assert {asked.headers["authorization"] for asked in stub.asked} == {f"Bearer {KEY}"}
