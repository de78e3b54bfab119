"""`[models]` of the configuration: which models read, write and embed, and how answers are ranked by each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
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
OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Models:
    """Which models read, write and embed. Nothing leaves the machine unless `embedder` is "endpoint"."""

    chat_url: str = ""
    chat_model: str = ""
    embed_url: str = ""
    embed_model: str = ""
    embed_dimensions: int = 0
    embedder: str = "hashing"
    api_key: str = ""
    concurrency: int = 16


def complete_endpoint(models: Models, environ: Mapping[str, str]) -> Models:
    """What the file leaves open comes from the variables that OpenAI's own library reads."""
    return replace(
        models,
        embed_url=models.embed_url or environ.get("OPENAI_BASE_URL") or OPENAI_URL,
        api_key=models.api_key or environ.get("OPENAI_API_KEY") or "",
    )


def check_models(models: Models) -> None:
    """Raises `ConfigInvalid` with a sentence that names the key."""
    if models.chat_url or models.chat_model:
        raise ConfigInvalid(
            "chat models at an endpoint are not in this release; leave models.chat_url and models.chat_model "
            "empty to use the built-in offline model"
        )
    if models.embedder not in AGPR_BY_EMBEDDER:
        raise ConfigInvalid("models.embedder is one of " + ", ".join(AGPR_BY_EMBEDDER))
    if models.embedder == "endpoint":
        if not models.embed_model:
            raise ConfigInvalid('models.embed_model must name a model: models.embedder is "endpoint"')
        if urlsplit(models.embed_url).scheme not in ("http", "https"):
            raise ConfigInvalid("models.embed_url begins with http:// or https:// and mostly ends in /v1")
        if not 0 <= models.embed_dimensions <= 8192:
            raise ConfigInvalid("models.embed_dimensions is from 1 to 8192, or 0 for what the model gives")
        return
    for key in ("embed_url", "embed_model", "embed_dimensions", "api_key"):
        if getattr(models, key):
            raise ConfigInvalid(
                f'models.{key} is for models.embedder = "endpoint", and that is "{models.embedder}": '
                "nothing is sent anywhere until you choose so"
            )
