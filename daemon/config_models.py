"""`[models]` of the configuration: which models read, write and embed, and how answers are ranked by each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, cast
from urllib.parse import urlsplit

from daemon.config_values import ConfigInvalid
from projections.recall.agpr import ANY_EMBEDDER, MULTILINGUAL, NO_EMBEDDER, STATIC, AgprParameters

# Every choice of models.embedder, with how answers are ranked by it.
AGPR_BY_EMBEDDER: Final[Mapping[str, AgprParameters]] = {
    "hashing": NO_EMBEDDER,
    "static": STATIC,
    "multilingual": MULTILINGUAL,
    "endpoint": ANY_EMBEDDER,
}
OPENAI_URL: Final = "https://api.openai.com/v1"
# How an answer in JSON is asked for, the strictest first; "auto" is the strictest that the endpoint takes.
JSON_MODES: Final = ("auto", "json_schema", "json_object_schema", "json_object", "text")
# What a request says by itself; other values would make answers that nobody here reads.
_OURS_IN_A_REQUEST: Final = ("messages", "model", "n", "response_format", "stream")
TIMEOUT_MAX_S: Final = 3600.0
TOKENS_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Models:
    """Which models read, write and embed, and how many tokens a day may be spent.

    Nothing leaves the machine unless `chat_model` is set or `embedder` is "endpoint".
    """

    chat_url: str = ""
    chat_model: str = ""
    chat_json: str = "auto"
    chat_extra_body: str = ""
    embed_url: str = ""
    embed_model: str = ""
    embed_dimensions: int = 0
    embed_api_key: str = ""
    embedder: str = "hashing"
    api_key: str = ""
    concurrency: int = 16
    timeout_s: float = 120.0
    tokens_per_day: int = 0
    tokens_per_day_user: int = 0

    @property
    def asks_endpoint(self) -> bool:
        """Whether a model at an endpoint reads and writes, and not the built-in offline one."""
        return self.chat_model != ""

    @property
    def embed_key(self) -> str:
        """The key that the embedder's endpoint gets."""
        return self.embed_api_key or self.api_key

    @property
    def extra_body(self) -> dict[str, object]:
        """`chat_extra_body` as the fields that it adds to each request."""
        return _read_extra_body(self.chat_extra_body)


def complete_endpoint(models: Models, environ: Mapping[str, str]) -> Models:
    """What is left open of an endpoint that is asked comes from the variables that OpenAI's own library reads."""
    embeds = models.embedder == "endpoint"
    if not (models.asks_endpoint or embeds):
        return models
    url = environ.get("OPENAI_BASE_URL") or OPENAI_URL
    return replace(
        models,
        chat_url=models.chat_url or (url if models.asks_endpoint else ""),
        embed_url=models.embed_url or (url if embeds else ""),
        api_key=models.api_key or environ.get("OPENAI_API_KEY") or "",
    )


def check_models(models: Models) -> None:
    """Raises `ConfigInvalid` with a sentence that names the key."""
    _check_chat(models)
    _check_embedder(models)
    if models.api_key and not models.asks_endpoint and models.embedder != "endpoint":
        raise ConfigInvalid(
            "models.api_key is for an endpoint, and none is chosen: nothing is sent anywhere until you set "
            'models.chat_model or models.embedder = "endpoint"'
        )
    rules = [
        (1 <= models.concurrency <= 4096, "models.concurrency must be from 1 to 4096"),
        (1 <= models.timeout_s <= TIMEOUT_MAX_S, f"models.timeout_s must be from 1 to {TIMEOUT_MAX_S:.0f}"),
        (0 <= models.tokens_per_day <= TOKENS_MAX, "models.tokens_per_day is above 0, or 0: no limit"),
        (0 <= models.tokens_per_day_user <= TOKENS_MAX, "models.tokens_per_day_user is above 0, or 0: no limit"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ConfigInvalid(sentence)


def _check_chat(models: Models) -> None:
    if models.chat_json not in JSON_MODES:
        raise ConfigInvalid("models.chat_json is one of " + ", ".join(JSON_MODES))
    if not models.asks_endpoint:
        for key in ("chat_url", "chat_extra_body"):
            if getattr(models, key):
                raise ConfigInvalid(
                    f"models.{key} is for a chat model at an endpoint, and models.chat_model names none: "
                    f"set it, or leave models.{key} out; nothing is sent anywhere until then"
                )
    elif not _is_web_address(models.chat_url):
        raise ConfigInvalid("models.chat_url begins with http:// or https:// and mostly ends in /v1")
    elif models.chat_url.rstrip("/").endswith("/chat/completions"):
        raise ConfigInvalid("models.chat_url mostly ends in /v1: leave /chat/completions out, the daemon adds it")
    _ = models.extra_body


def _check_embedder(models: Models) -> None:
    if models.embedder not in AGPR_BY_EMBEDDER:
        raise ConfigInvalid("models.embedder is one of " + ", ".join(AGPR_BY_EMBEDDER))
    if models.embedder == "endpoint":
        if not models.embed_model:
            raise ConfigInvalid('models.embed_model must name a model: models.embedder is "endpoint"')
        if not _is_web_address(models.embed_url):
            raise ConfigInvalid("models.embed_url begins with http:// or https:// and mostly ends in /v1")
        if models.embed_url.rstrip("/").endswith("/embeddings"):
            raise ConfigInvalid("models.embed_url mostly ends in /v1: leave /embeddings out, the daemon adds it")
        if not 0 <= models.embed_dimensions <= 8192:
            raise ConfigInvalid("models.embed_dimensions is from 1 to 8192, or 0 for what the model gives")
        return
    for key in ("embed_url", "embed_model", "embed_dimensions", "embed_api_key"):
        if getattr(models, key):
            raise ConfigInvalid(
                f'models.{key} is for models.embedder = "endpoint", and that is "{models.embedder}": '
                "nothing is sent anywhere until you choose so"
            )


def _is_web_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:  # such as a bracket that nothing closes
        return False


def _read_extra_body(text: str) -> dict[str, object]:
    """The fields of a JSON object; none of no text. Raises `ConfigInvalid`."""
    if not text:
        return {}
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigInvalid(
            "models.chat_extra_body is a JSON object in quotes, such as "
            """'{"chat_template_kwargs": {"enable_thinking": false}}'"""
        )
    fields = cast("dict[str, object]", found)
    for name in _OURS_IN_A_REQUEST:
        if name in fields:
            raise ConfigInvalid(f"models.chat_extra_body must not set {name}: the daemon does")
    return fields
