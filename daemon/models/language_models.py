"""The language model that the configuration chooses, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from daemon.logs import Report, quiet
from daemon.models.prices import Prices
from daemon.offline.language_model import OfflineLanguageModel
from projections.ports import LanguageModel

if TYPE_CHECKING:
    from daemon.chat.model import EndpointLanguageModel
    from daemon.config import Config
    from daemon.models.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A model at an endpoint, with the endpoint; nothing is opened before it is asked."""

    model: EndpointLanguageModel
    endpoint: Endpoint


def make_chat_model(config: Config, report: Report = quiet) -> ChatModel | None:
    """The model of `models.chat_model`; None when none is set, and the built-in one serves."""
    models = config.models
    if not models.asks_endpoint:
        return None
    # Imported for those who ask an endpoint: others need not wait for it.
    from daemon.chat.calls import make_easy_call
    from daemon.chat.model import EndpointLanguageModel
    from daemon.models.endpoint import Endpoint, EndpointKeys

    endpoint = Endpoint(
        models.chat_url,
        models.api_key,
        EndpointKeys("models.chat_url", "models.chat_model"),
        concurrency=models.concurrency,
        use="chat",
        easy=make_easy_call(models.chat_model, models.extra_body),
        report=report,
    )
    model = EndpointLanguageModel(
        endpoint,
        models.chat_model,
        json_mode=models.chat_json,
        extra_body=models.extra_body,
        prices=Prices(config.prices),
        timeout_s=models.timeout_s,
    )
    return ChatModel(model, endpoint)


async def close_chat_model(chat: ChatModel | None) -> None:
    """Hang up, if it is one that holds connections."""
    if chat is not None:
        await chat.endpoint.close()


def language_model_of(chat: ChatModel | None) -> LanguageModel:
    """What is asked: the model at the endpoint, or the built-in one."""
    return OfflineLanguageModel() if chat is None else chat.model
