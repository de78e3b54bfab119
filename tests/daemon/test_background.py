"""Thresholds: quantiles of an embedder's own background, and no user's words."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import anyio
import numpy as np
import pytest

from daemon.models.background import known_thresholds, measure, name_thresholds, read_background
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.static import StaticEmbedder
from projections.ports import Embedder, TextRefused, Vectors
from tests.scripted_models import ScriptedEmbedder

# A token has three to four characters in English, and one to two in Chinese.
CHARACTERS_MAX = 12_000
TEXTS_MAX = 250


class Touchy(HashingEmbedder):
    """An endpoint whose filter takes offence at one sentence."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if any("divorce" in text for text in texts):
            raise TextRefused("not this one")
        return await super().embed(texts)


class Refusing(HashingEmbedder):
    async def embed(self, texts: Sequence[str]) -> Vectors:
        raise TextRefused("none of these")


def test_the_background_is_small_graded_and_in_many_languages() -> None:
    subjects = read_background()
    texts = [sentence for subject in subjects for sentence in subject.sentences]
    pairs = sum(len(each.sentences) * (len(each.sentences) - 1) // 2 for each in subjects)

    assert len({subject.language for subject in subjects}) >= 10
    assert pairs >= 150
    assert all(subject.same and subject.alike for subject in subjects)
    assert len(texts) == len(set(texts)) <= TEXTS_MAX
    assert sum(map(len, texts)) <= CHARACTERS_MAX


@pytest.mark.parametrize("judged", [False, True])
async def test_what_is_known_of_the_built_in_embedder_is_what_is_measured(judged: bool) -> None:
    embedder = HashingEmbedder()

    assert await measure(embedder, judged=judged) == known_thresholds(name_thresholds(embedder, judged=judged))


@pytest.mark.skipif(find_spec("wordllama") is None, reason="the extra `local` is not installed")
@pytest.mark.parametrize("judged", [False, True])
async def test_what_is_known_of_the_static_embedder_is_what_is_measured(judged: bool) -> None:
    embedder = StaticEmbedder()

    assert await measure(embedder, judged=judged) == known_thresholds(name_thresholds(embedder, judged=judged))


@pytest.mark.parametrize("embedder", [HashingEmbedder(), HashingEmbedder(64), ScriptedEmbedder()])
async def test_thresholds_are_in_order_and_below_one_whatever_the_embedder_is_worth(embedder: Embedder) -> None:
    found = await measure(embedder)

    assert found.spawn <= found.assign <= found.second <= found.merge <= 100_000
    assert found.near < 100_000


async def test_no_two_sentences_that_only_look_alike_are_near() -> None:
    embedder = HashingEmbedder()
    near = (await measure(embedder)).near / 100_000
    for subject in read_background():
        rows = await embedder.embed(subject.sentences)

        assert all(float(rows[one] @ rows[other]) < near for one, other in subject.alike)


async def test_a_model_that_judges_is_asked_about_half_of_what_does_say_the_same() -> None:
    embedder = HashingEmbedder()
    near = (await measure(embedder, judged=True)).near / 100_000
    cosines: list[float] = []
    for subject in read_background():
        rows = await embedder.embed(subject.sentences)
        cosines += [float(rows[one] @ rows[other]) for one, other in subject.same]

    assert np.mean([cosine >= near for cosine in cosines]) == pytest.approx(0.5, abs=0.02)


async def test_a_subject_that_is_refused_is_left_out_and_all_of_them_are_a_failure() -> None:
    found, whole = await measure(Touchy()), await measure(HashingEmbedder())

    assert abs(found.spawn - whole.spawn) < 1_000
    with anyio.fail_after(5), pytest.raises(TextRefused):
        await measure(Refusing())
