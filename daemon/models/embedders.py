"""The embedder that the configuration chooses, and its end."""

from __future__ import annotations

from collections.abc import Sequence

from daemon.config_models import Models
from daemon.logs import Report, quiet
from daemon.models.embedding import KEYS, EndpointEmbedder
from daemon.models.endpoint import EndpointKeys
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.multilingual import MultilingualEmbedder
from daemon.offline.static import StaticEmbedder
from projections.ports import Embedder, Vectors

# What sentences name when the embedder's endpoint has a key of its own.
_KEYS = EndpointKeys(KEYS.url, KEYS.model, "models.embed_api_key")


def make_embedder(models: Models, report: Report = quiet) -> Embedder:
    """The embedder of `models.embedder`, not loaded yet; `report` hears when its endpoint is left alone.

    Raises `ConfigInvalid` when what it needs is not installed; the text says how to install it.
    """
    match models.embedder:
        case "static":
            return StaticEmbedder()
        case "multilingual":
            return MultilingualEmbedder()
        case "endpoint":
            return EndpointEmbedder(
                models.embed_url,
                models.embed_model,
                models.embed_key,
                dimensions=models.embed_dimensions,
                concurrency=models.concurrency,
                report=report,
                keys=_KEYS if models.embed_api_key else KEYS,
            )
        case _:
            return HashingEmbedder()


class Unhurried:
    """An embedder as those use it for whom nobody waits: at an endpoint its texts come after all others."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def name(self) -> str:
        """The same: so are the vectors."""
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        """Width of a row."""
        return self._embedder.dimensions

    @property
    def trouble(self) -> str | None:
        """See `Embedder`."""
        return self._embedder.trouble

    @property
    def ranks(self) -> bool:
        """See `Embedder`."""
        return self._embedder.ranks

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`."""
        if isinstance(self._embedder, EndpointEmbedder):
            return await self._embedder.embed_unhurried(texts)
        return await self._embedder.embed(texts)

    async def embed_question(self, text: str) -> Vectors:
        """See `Embedder`."""
        return await self._embedder.embed_question(text)


async def close_embedder(embedder: Embedder) -> None:
    """Hang up, if it is one that holds connections."""
    if isinstance(embedder, EndpointEmbedder):
        await embedder.close()
