"""Whether the chat model of the configuration works: `memforestd doctor` asks it something that nobody said."""

from __future__ import annotations

from importlib.util import find_spec
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import anyio

from daemon.chat.probe import ProbeResult
from daemon.config import Config, hide_password
from daemon.models.language_models import ChatModel, close_chat_model, make_chat_model
from daemon.models.prices import Prices
from daemon.upkeep.findings import Finding
from projections.ports import ModelFailed, ModelUnavailable

SUBJECT: Final = "chat model"
# Each of the four ways to ask for JSON once: a model on a slow machine is loaded first.
ANSWER_WITHIN_S: Final = 300.0
# Ways to ask for JSON as they are shown, by what `models.chat_json` calls them.
_SHOWN: Final = {"json_object_schema": "json_object+schema"}
_MEND: Final = (
    "see that the server runs, models.chat_url and models.chat_model; until then turns wait for their facts"
)
_MEND_MODE: Final = 'models.chat_json = "auto", or another model'
_MEND_THINKING: Final = (
    "switch it off by models.chat_extra_body: for Qwen3 at vLLM or llama.cpp "
    """'{"chat_template_kwargs": {"enable_thinking": false}}'"""
)
# A question with the room for its answer; longer ones are asked in parts.
CONTEXT_TOKENS: Final = 8_192


async def examine_chat(config: Config) -> list[Finding]:
    """Reach it, find out how it answers in JSON, and say what is missing; each with its mend, and never a key."""
    chat = make_chat_model(config)
    if chat is None:
        return [Finding("ok", SUBJECT, "none: the built-in rules read and write here, and nothing is sent")]
    try:
        found = await try_chat_model(config, chat)
    finally:
        with anyio.CancelScope(shield=True):
            await close_chat_model(chat)
    return [*found, *find_missing(config)]


async def try_chat_model(config: Config, chat: ChatModel) -> list[Finding]:
    """Ask a model what nobody said, and say how it answered."""
    place = f"{config.models.chat_model} at {hide_password(config.models.chat_url)}"
    try:
        with anyio.fail_after(ANSWER_WITHIN_S):
            await chat.endpoint.open()  # or its second would count as the model's
            result = await chat.model.probe()
    except (ModelUnavailable, ModelFailed, TimeoutError) as error:
        reason = str(error) or "it did not answer in time"
        return [Finding("error", SUBJECT, f"{place}: {reason}", _mend_failure(reason))]
    refused = _show_refused(result)
    if not result.works:
        mend = _MEND_MODE if len(result.refused) == 1 else "another model, for this one gives no JSON of use"
        return [Finding("error", SUBJECT, f"{place}: no answer as it was asked for, {refused}", mend)]
    named = f", calls itself {result.model}" if result.model not in ("", config.models.chat_model) else ""
    sentence = f"{place}: answers in {result.latency_ms} ms{named}, JSON by {_show_mode(result.mode)}"
    found = [Finding("ok", SUBJECT, f"{sentence}, {refused}" if refused else sentence)]
    if result.thinks:
        why = "each answer takes longer and costs more"
        found.append(Finding("warning", SUBJECT, "the model thinks aloud before it answers", _MEND_THINKING, why))
    return found


def _show_refused(result: ProbeResult) -> str:
    """The ways to ask for JSON that did not work, by what was wrong with them."""
    modes: dict[str, list[str]] = {}
    for mode, reason in result.refused:
        modes.setdefault(reason, []).append(_show_mode(mode))
    return "; ".join(f"not by {', '.join(names)} ({reason})" for reason, names in modes.items())


def _show_mode(mode: str) -> str:
    return _SHOWN.get(mode, mode)


def _mend_failure(reason: str) -> str:
    """What to do about a failure whose reason may name a key or a parameter already."""
    if "response_format" in reason:
        return _MEND_MODE
    _, _, rest = reason.partition(": ")
    return rest if "models." in rest else _MEND


def find_missing(config: Config) -> list[Finding]:
    """What the set-up of a chat model lacks, whether its endpoint answers or not."""
    models, found = config.models, list[Finding]()
    is_here = _is_here(models.chat_url)
    if urlsplit(models.chat_url).scheme == "http" and not is_here:
        mend = "an address with https://, or a proxy of your own that speaks TLS"
        why = "whoever is on the way can read it, and the key with it"
        found.append(Finding("warning", SUBJECT, "what people said is sent there without encryption", mend, why))
    if not Prices(config.prices).knows(models.chat_model):
        sentence = f"no [[prices]] for {models.chat_model}: what it costs is counted as 0"
        mend = f'a table [[prices]] with model = "{models.chat_model}", if its tokens cost anything'
        found.append(Finding("ok" if is_here else "warning", "prices", sentence, mend))
    if urlsplit(models.chat_url).hostname != "api.openai.com":
        sentence = (
            f"the server has to give the model a context of {CONTEXT_TOKENS:,} tokens or more; some cut what is "
            "longer without a word (Ollama: OLLAMA_CONTEXT_LENGTH)"
        )
        found.append(Finding("ok", "chat context", sentence))
    return found


def examine_transport(config: Config) -> list[Finding]:
    """Whether the faster way to ask endpoints is installed, when there are any."""
    asks = config.models.asks_endpoint or config.models.embedder == "endpoint"
    if not asks or find_spec("aiohttp") is not None:
        return []
    sentence = "aiohttp is not installed, so endpoints are asked the slower way"
    why = "many calls at once take more of the processor"
    return [Finding("warning", "transport", sentence, 'pip install "memforest-daemon[endpoint]"', why)]


def _is_here(url: str) -> bool:
    """Whether an address is one of this machine or of a private network, where tokens mostly cost nothing."""
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or "." not in host
    return address.is_loopback or address.is_private
