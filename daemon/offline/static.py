"""`models.embedder = "static"`: one vector a token, averaged (wordllama, extra `[local]`).

Its files are read without its code, which would import a downloader, set up the root logger, and pad a batch to
its longest text: gigabytes for one long one. The vectors are the same (a test compares).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from daemon.offline.local_embedder import LocalEmbedder, LocalModel

if TYPE_CHECKING:
    from projections.ports import Vectors

PACKAGE: Final = "wordllama"
WEIGHTS: Final = Path("weights", "l2_supercat_256.safetensors")
TOKENIZER: Final = Path("tokenizers", "l2_supercat_tokenizer_config.json")

# 0.03 ms a sentence and 20 ms for 32,000 characters.
_MODEL: Final = LocalModel(
    choice="static",
    package=PACKAGE,
    extra="local",
    dimensions=256,
    characters_max=32_000,
    slice_characters=64_000,
    loop_characters_max=256,
)


class StaticEmbedder(LocalEmbedder):
    """The mean of the tokens' vectors, 256 wide. Questions are embedded as texts are."""

    def __init__(self) -> None:
        """Raises `ConfigInvalid` when wordllama is not installed."""
        super().__init__(_MODEL)
        self._tokenizer: Any = None
        # As it is stored, (tokens, 256) float16: 16 MB, of which a text needs a few rows.
        self._table: Any = None

    def _load(self) -> None:
        spec = find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError(PACKAGE)
        folder = Path(spec.submodule_search_locations[0])
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(folder / TOKENIZER))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        table = import_module("safetensors.numpy").load_file(folder / WEIGHTS)["embedding.weight"]
        if table.shape[1:] != (self.dimensions,) or len(table) < tokenizer.get_vocab_size():
            raise ValueError(f"{WEIGHTS.name} has the shape {table.shape}")
        self._tokenizer, self._table = tokenizer, table

    def _embed_text(self, text: str, *, is_question: bool) -> Vectors:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        row: Vectors = self._table[ids].sum(axis=0, dtype=np.float32)
        return row  # the sum has the mean's direction
