"""Which language model a configuration chooses, and what a start without one does not load."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from daemon.config import Config
from daemon.config_models import Models
from daemon.models.language_models import close_chat_model, language_model_of, make_chat_model
from daemon.offline.language_model import OfflineLanguageModel

ROOT = Path(__file__).resolve().parents[2]


async def test_without_a_chat_model_the_built_in_one_serves_whatever_else_is_set() -> None:
    config = replace(Config(), models=Models(embedder="endpoint", embed_url="http://host/v1", embed_model="bge"))
    chat = make_chat_model(config)
    await close_chat_model(chat)

    assert chat is None
    assert isinstance(language_model_of(chat), OfflineLanguageModel)


async def test_a_chat_model_is_asked_as_it_is_configured() -> None:
    models = Models(
        chat_url="http://alice:Xylophon@host/v1", chat_model="gpt", chat_json="json_object", concurrency=7
    )
    chat = make_chat_model(replace(Config(), models=models))
    assert chat is not None
    await close_chat_model(chat)

    assert language_model_of(chat) is chat.model
    assert (chat.model.name, chat.model.mode) == ("endpoint-gpt", "json_object")
    assert (chat.endpoint.state.url, chat.endpoint.state.concurrency) == ("http://host/v1", 7)


def test_a_start_without_an_endpoint_does_not_pay_for_one() -> None:
    heavy = ("openai", "httpx", "httpx2", "aiohttp", "daemon.chat.model")
    code = f"import sys, daemon.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)

    assert done.stdout.strip() == "[]"
