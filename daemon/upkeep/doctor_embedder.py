"""Whether the embedder of the configuration works: `memforestd doctor` loads it and has it embed sentences."""

from __future__ import annotations

import time

import anyio
import numpy as np

from daemon.config import Config, hide_password
from daemon.config_values import ConfigInvalid
from daemon.models.embedders import close_embedder, make_embedder
from daemon.upkeep.findings import Finding
from projections.ports import Embedder, EmbedderUnavailable

# Nothing that anybody said. Three, so that an order and a batch can be wrong.
SENTENCES = (
    "The ferry to the island leaves at seven.",
    "A boat brings people over in the morning.",
    "Invoices are paid within thirty days.",
)
# Loading a model from a slow disk, and an endpoint's patience.
ANSWER_WITHIN_S = 90.0


async def examine_embedder(config: Config) -> Finding:
    """Load it, embed, and say how wide and how fast; or what is wrong, and its mend."""
    choice = config.models.embedder
    try:
        embedder = make_embedder(config.models)
    except ConfigInvalid as error:
        sentence, _, mend = str(error).partition(": ")
        return Finding("error", "embedder", sentence, mend)
    if choice == "hashing":
        return Finding("ok", "embedder", "hashing: answers are ranked by words alone")
    try:
        with anyio.fail_after(ANSWER_WITHIN_S):
            return await _try(embedder, choice, hide_password(config.models.embed_url))
    except (EmbedderUnavailable, TimeoutError) as error:
        sentence, _, mend = (str(error) or "it did not answer in time").partition(": ")
        where = f" ({hide_password(config.models.embed_url)})" if choice == "endpoint" else ""
        return Finding("error", "embedder", f"{choice}{where}: {sentence}", mend or _mend(choice))
    finally:
        with anyio.CancelScope(shield=True):
            await close_embedder(embedder)


async def _try(embedder: Embedder, choice: str, url: str) -> Finding:
    await embedder.embed_question(SENTENCES[0])  # loads, connects
    began = time.perf_counter()
    rows = await embedder.embed(SENTENCES)
    text_ms = (time.perf_counter() - began) * 1000 / len(SENTENCES)
    place = f" at {url}" if choice == "endpoint" else ""
    sentence = f"{choice}{place}: {embedder.name}, {rows.shape[1]} dimensions, {text_ms:.2g} ms a text"
    near, far = float(np.dot(rows[0], rows[1])), float(np.dot(rows[0], rows[2]))
    if near <= far:
        mend = "choose a model for sentence embeddings"
        return Finding("warning", "embedder", f"{sentence}; but it does not tell like from unlike", mend)
    return Finding("ok", "embedder", sentence)


def _mend(choice: str) -> str:
    if choice == "endpoint":
        return "see that the server runs, and models.embed_url; until then words alone rank"
    return "reinstall the package; until then words alone rank"
