"""Which scenes facts go to, and which scenes are one: decided by vectors, without a model, a clock or a lot.

The rule is paper B's (algorithms.md 1, "scene"): the nearest centroid decides. Scores are whole numbers,
hundred-thousandths of a cosine, and ties go by id; so the last bits of a product decide nothing. For 256 facts
against 3,000 scenes of 1,024 dimensions one matrix product does most of it; only centroids that move are compared
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from events.decisions import Route, SceneId, Thresholds
from events.memory import FactId
from events.time import Instant
from projections.facts.scenes import found_scene

# Members of a scene (reference-code.md 2.6): a subject of which more is said has several scenes.
FACTS_MAX: Final = 60
# Scores are in these parts of a cosine, as thresholds are.
COSINE_PARTS: Final = 100_000
# What was said about at the same time is a little nearer: by so much at most, and by nothing from so far apart on
# (reference-code.md 2.6). Ours: never by more than half the way between two thresholds, since theirs are one
# embedder's; else whatever is said in one hour were one scene where cosines lie close together.
CLOSENESS_MAX: Final = 8_000
CLOSENESS_HORIZON_MS: Final = 45 * 86_400_000
# From so many facts at once on, and with fewer scenes than facts, those that are farthest from all others found
# scenes first, so that not the order of the first facts decides (reference-code.md 2.6).
SEEDED_FROM: Final = 24
SEED_SAMPLE_MAX: Final = 400
# Facts that are compared with all scenes in one product: it bounds what the scores take, 4 MB for 3,000 scenes.
_ARRIVALS_AT_ONCE: Final = 256
_SCENES_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A fact that is to be routed: its vector, and the time that it speaks of."""

    fact: FactId
    vector: NDArray[np.float32]
    at: Instant


@dataclass(frozen=True, slots=True, eq=False)
class SceneSum:
    """A scene as its members make it: the sum of their unit vectors, how many they are, and the latest time."""

    id: SceneId
    total: NDArray[np.float32]
    size: int
    last_at: Instant


def plan_scenes(
    arrivals: Sequence[Arrival],
    scenes: Sequence[SceneSum],
    thresholds: Thresholds,
    *,
    facts_max: int = FACTS_MAX,
    taken: Iterable[SceneId] = (),
) -> tuple[tuple[Route, ...], tuple[tuple[SceneId, tuple[SceneId, ...]], ...]]:
    """The scenes of each arrival (`plan_routes`), and the merges of those that grew by them."""
    routes = plan_routes(arrivals, scenes, thresholds, facts_max=facts_max, taken=taken)
    grown = {scene.id: scene for scene in scenes}
    touched: set[SceneId] = set()
    for arrival, route in zip(arrivals, routes, strict=True):
        for scene in route.scenes:
            before = grown.get(scene)
            total = arrival.vector if before is None else before.total + arrival.vector
            size, last_at = (0, arrival.at) if before is None else (before.size, before.last_at)
            grown[scene] = SceneSum(scene, total, size + 1, max(last_at, arrival.at))
            touched.add(scene)
    merges = plan_scene_merges(list(grown.values()), thresholds, facts_max=facts_max, touched=touched)
    return routes, merges


def plan_routes(
    arrivals: Sequence[Arrival],
    scenes: Sequence[SceneSum],
    thresholds: Thresholds,
    *,
    facts_max: int = FACTS_MAX,
    taken: Iterable[SceneId] = (),
) -> tuple[Route, ...]:
    """The scenes of each arrival, in their order; each one sees what became of those before it.

    A fact that founds a scene takes no id that is `taken` (by a scene that was absorbed, say) or a scene's.
    """
    if not arrivals:
        return ()
    board = _Board(scenes, len(arrivals), len(arrivals[0].vector), taken)
    vectors = _unit_rows(np.stack([arrival.vector for arrival in arrivals]))
    seeded: dict[int, int] = {}
    if len(arrivals) >= SEEDED_FROM and len(scenes) < len(arrivals):
        for at in _find_seeds(arrivals, vectors, board.centroids_of_open(facts_max), thresholds.spawn):
            seeded[at] = board.found(arrivals[at], vectors[at])
    routes: list[Route] = []
    for start in range(0, len(arrivals), _ARRIVALS_AT_ONCE):
        rows = vectors[start : start + _ARRIVALS_AT_ONCE]
        nearness = board.compare(rows)
        for n, arrival in enumerate(arrivals[start : start + _ARRIVALS_AT_ONCE]):
            if start + n in seeded:
                routes.append(Route(arrival.fact, (board.ids[seeded[start + n]],)))
                continue
            scores = nearness[n, : len(board.ids)] + board.closeness(arrival.at, _closeness_max(thresholds))
            chosen = _choose(scores, board, thresholds, facts_max)
            for scene in chosen:
                board.join(scene, arrival, rows[n])
            if not chosen:
                chosen = (board.found(arrival, rows[n]),)
            for scene in chosen:
                nearness[n + 1 :, scene] = _parts(rows[n + 1 :] @ board.centroids[scene])
            routes.append(Route(arrival.fact, tuple(board.ids[scene] for scene in chosen)))
    return tuple(routes)


def plan_scene_merges(
    scenes: Sequence[SceneSum],
    thresholds: Thresholds,
    *,
    facts_max: int = FACTS_MAX,
    touched: Collection[SceneId] | None = None,
) -> tuple[tuple[SceneId, tuple[SceneId, ...]], ...]:
    """The scenes to keep, each with those that it absorbs: the closest pair first, each scene once a round.

    The larger one is kept. With `touched` only pairs with one of these are looked at: those that changed since
    the last round.
    """
    room = sorted((scene for scene in scenes if scene.size < facts_max), key=lambda scene: scene.id)
    if len(room) < 2:
        return ()
    centroids = _unit_rows(np.stack([scene.total for scene in room]))
    sizes = np.array([scene.size for scene in room])
    looked_at = [n for n, scene in enumerate(room) if touched is None or scene.id in touched]
    pairs: list[tuple[int, int, int]] = []
    for start in range(0, len(looked_at), _SCENES_AT_ONCE):
        rows = np.array(looked_at[start : start + _SCENES_AT_ONCE])
        nearness = _parts(centroids[rows] @ centroids.T)
        fits = (nearness >= thresholds.merge) & (sizes[rows, None] + sizes <= facts_max)
        for at, other in np.argwhere(fits).tolist():
            one = int(rows[at])
            if one != other:
                pairs.append((-int(nearness[at, other]), min(one, other), max(one, other)))
    merges: list[tuple[SceneId, tuple[SceneId, ...]]] = []
    used: set[int] = set()
    for _, one, other in sorted(pairs):
        if one not in used and other not in used:
            used |= {one, other}
            kept, absorbed = (other, one) if sizes[other] > sizes[one] else (one, other)
            merges.append((room[kept].id, (room[absorbed].id,)))
    return tuple(merges)


class _Board:
    """The scenes while facts are routed to them, as rows of matrices; new ones come behind the others."""

    def __init__(self, scenes: Sequence[SceneSum], more: int, dimensions: int, taken: Iterable[SceneId]) -> None:
        """`more`: how many scenes may be founded at most."""
        self.ids = [scene.id for scene in scenes]
        self.totals = np.zeros((len(scenes) + more, dimensions), np.float32)
        if scenes:
            self.totals[: len(scenes)] = [scene.total for scene in scenes]
        self.centroids = np.zeros_like(self.totals)
        self.centroids[: len(scenes)] = _unit_rows(self.totals[: len(scenes)])
        self._sizes = np.zeros(len(self.totals), np.int64)
        self._sizes[: len(scenes)] = [scene.size for scene in scenes]
        self._last_at = np.zeros(len(self.totals), np.int64)
        self._last_at[: len(scenes)] = [scene.last_at for scene in scenes]
        self._taken = {*self.ids, *taken}

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Members of each scene."""
        return self._sizes[: len(self.ids)]

    def centroids_of_open(self, facts_max: int) -> NDArray[np.float32]:
        """The centroids of the scenes that accept facts at all."""
        return self.centroids[: len(self.ids)][self.sizes < facts_max]

    def compare(self, vectors: NDArray[np.float32]) -> NDArray[np.int32]:
        """How near each vector is to each scene, with columns for those that these vectors may found."""
        count = len(self.ids)
        nearness = np.zeros((len(vectors), count + len(vectors)), np.int32)
        nearness[:, :count] = _parts(vectors @ self.centroids[:count].T)
        return nearness

    def closeness(self, at: Instant, most: int) -> NDArray[np.int64]:
        """What being near in time adds to the score of each scene."""
        apart = np.abs(self._last_at[: len(self.ids)] - at)
        bonus: NDArray[np.int64] = np.maximum(CLOSENESS_HORIZON_MS - apart, 0) * most // CLOSENESS_HORIZON_MS
        return bonus

    def join(self, scene: int, arrival: Arrival, vector: NDArray[np.float32]) -> None:
        """A scene has one member more, and its centroid moves."""
        self.totals[scene] += vector
        self.centroids[scene] = _unit_rows(self.totals[scene : scene + 1])[0]
        self._sizes[scene] += 1
        self._last_at[scene] = max(int(self._last_at[scene]), arrival.at)

    def found(self, arrival: Arrival, vector: NDArray[np.float32]) -> int:
        """A fact makes a scene of its own; its number."""
        scene = len(self.ids)
        self.ids.append(found_scene(arrival.fact, self._taken))
        self._taken.add(self.ids[scene])
        self._last_at[scene] = arrival.at
        self.join(scene, arrival, vector)
        return scene


def _choose(scores: NDArray[np.int64], board: _Board, thresholds: Thresholds, facts_max: int) -> tuple[int, ...]:
    """The scenes that take a fact, none when it is to found one."""
    open_ones = board.sizes < facts_max
    first = _best(scores, open_ones & (scores >= thresholds.assign), board.ids)
    if first is not None:
        open_ones[first] = False
        second = _best(scores, open_ones & (scores >= thresholds.second), board.ids)
        return (first,) if second is None else (first, second)
    if (scores >= thresholds.assign).any():
        return ()  # its subject's scenes are full: one more of that subject, rather than a lesser fit
    small = _best(scores, (2 * board.sizes < facts_max) & (scores >= thresholds.spawn), board.ids)
    return () if small is None else (small,)


def _best(scores: NDArray[np.int64], among: NDArray[np.bool_], ids: Sequence[SceneId]) -> int | None:
    """The number of the scene with the highest score; of several the one with the lowest id."""
    if not among.any():
        return None
    best = np.flatnonzero(among & (scores == scores[among].max()))
    return min(best.tolist(), key=lambda scene: ids[scene])


def _closeness_max(thresholds: Thresholds) -> int:
    return max(0, min(CLOSENESS_MAX, (thresholds.assign - thresholds.spawn) // 2))


def _find_seeds(
    arrivals: Sequence[Arrival], vectors: NDArray[np.float32], centroids: NDArray[np.float32], spawn: int
) -> list[int]:
    """Facts that found scenes, the farthest from all others first (Gonzalez 1985), until none is far from all.

    Of many facts those with the lowest ids are looked at, which are hashes: as good as drawn by lot.
    """
    sample = sorted(range(len(arrivals)), key=lambda at: arrivals[at].fact)[:SEED_SAMPLE_MAX]
    rows = vectors[sample]
    among = _parts(rows @ rows.T)
    seeds: list[int] = []
    if len(centroids):
        nearest = _parts(rows @ centroids.T).max(axis=1)
    else:
        seeds.append(int(among.sum(axis=1).argmin()))  # of several the first, which has the lowest id
        nearest = among[seeds[0]]
    far = nearest < spawn
    far[seeds] = False
    while far.any():
        seeds.append(int(np.where(far, nearest, COSINE_PARTS).argmin()))
        nearest = np.maximum(nearest, among[seeds[-1]])
        far &= nearest < spawn
        far[seeds[-1]] = False
    return [sample[seed] for seed in seeds]


def _parts(cosines: NDArray[np.float32]) -> NDArray[np.int32]:
    """Cosines in hundred-thousandths."""
    parts: NDArray[np.int32] = np.rint(cosines * np.float32(COSINE_PARTS)).astype(np.int32)
    return parts


def _unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each row with the length 1; zeros stay zeros."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1
    unit: NDArray[np.float32] = rows / lengths[:, None]
    return unit
