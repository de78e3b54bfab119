"""The embedder that the configuration chooses, and its end."""

from __future__ import annotations

from daemon.config_models import Models
from daemon.models.embedding import EndpointEmbedder
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.multilingual import MultilingualEmbedder
from daemon.offline.static import StaticEmbedder
from projections.ports import Embedder


def make_embedder(models: Models) -> Embedder:
    """The embedder of `models.embedder`, not loaded yet.

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
                models.api_key,
                dimensions=models.embed_dimensions,
                concurrency=models.concurrency,
            )
        case _:
            return HashingEmbedder()


async def close_embedder(embedder: Embedder) -> None:
    """Hang up, if it is one that holds connections."""
    if isinstance(embedder, EndpointEmbedder):
        await embedder.close()
