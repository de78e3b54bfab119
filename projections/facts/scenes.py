"""Which scenes a fact is in, folded from what was recorded (paper B, Eq. B6).

A scene is a scope that was found by nearness of vectors. The vectors are not here: `scene_planning` decides by
them, and what it decided is an event. So the fold needs no model, and nothing that was routed is ever wiped.
"""

from __future__ import annotations

from collections.abc import Container, ItemsView

from events.decisions import FactsRouted, SceneId, ScenesMerged
from events.envelope import identify
from events.memory import FactId
from projections.facts.scopes import Scope, ScopeChange, ScopeKind


def found_scene(fact: FactId, taken: Container[SceneId] = ()) -> SceneId:
    """The id of the scene that a fact founds: of those that are not taken, the first.

    Taken are the scenes there are and those that were absorbed: a fact that is routed anew founds another one.
    """
    scene = identify(b"mf.scene", fact)
    while scene in taken:
        scene = identify(b"mf.scene", scene)
    return scene


def scene_scope(scene: SceneId) -> Scope:
    """The scope of a scene."""
    return Scope(ScopeKind.SCENE, scene.hex())


class Scenes:
    """The scenes of one user: their members, and the facts that were not routed yet."""

    def __init__(self) -> None:
        # Facts that are known and not routed, in the order in which they were founded.
        self.unrouted: dict[FactId, None] = {}
        # A scene without members is none.
        self.members: dict[SceneId, set[FactId]] = {}
        # The scene that each absorbed one went into, which may have been absorbed since. Only grows.
        self.absorbed: dict[SceneId, SceneId] = {}
        # Where each fact that was routed is, absorbed scenes resolved; nowhere is a place, too.
        self._routes: dict[FactId, tuple[SceneId, ...]] = {}

    def add_fact(self, fact: FactId) -> None:
        """A fact was founded: it waits to be routed."""
        if fact not in self._routes:
            self.unrouted[fact] = None

    def remove_fact(self, fact: FactId) -> list[ScopeChange]:
        """A fact is known no more; what its scenes lose."""
        self.unrouted.pop(fact, None)
        return self._move({fact: ()}, forget=True)

    def route(self, event: FactsRouted, known: Container[FactId]) -> list[ScopeChange]:
        """These facts are in these scenes from now on, the `known` ones; what the scenes gain and lose.

        A fact that is known no more stays away, also when one of the same id is founded later.
        """
        places: dict[FactId, tuple[SceneId, ...]] = {}
        for route in event.routes:
            if route.fact in known:
                places[route.fact] = self._resolve_all(route.scenes)
                self.unrouted.pop(route.fact, None)
        return self._move(places)

    def merge(self, event: ScenesMerged) -> list[ScopeChange]:
        """All that is or ever gets routed to an absorbed scene is in the kept one; no member is lost."""
        kept = self.resolve(event.kept)
        moved: set[FactId] = set()
        for scene in map(self.resolve, event.absorbed):
            if scene != kept:
                self.absorbed[scene] = kept
                moved |= self.members.get(scene, set())
        return self._move({fact: self._resolve_all(self._routes[fact]) for fact in sorted(moved)})

    def scenes_of(self, fact: FactId) -> tuple[SceneId, ...]:
        """Where a fact is, the nearest first."""
        return self._routes.get(fact, ())

    def resolve(self, scene: SceneId) -> SceneId:
        """The scene that stands for this one: itself, or the one that kept it at last."""
        while scene in self.absorbed:
            scene = self.absorbed[scene]
        return scene

    @property
    def size_bytes(self) -> int:
        """About what scenes and their trees take in memory (measured): many have one or two members."""
        return 800 * len(self.members) + 400 * len(self._routes)

    def routes(self) -> ItemsView[FactId, tuple[SceneId, ...]]:
        """All facts that were routed, with their scenes."""
        return self._routes.items()

    def _resolve_all(self, scenes: tuple[SceneId, ...]) -> tuple[SceneId, ...]:
        return tuple(dict.fromkeys(map(self.resolve, scenes)))

    def _move(self, places: dict[FactId, tuple[SceneId, ...]], *, forget: bool = False) -> list[ScopeChange]:
        """Put facts where they are now. Each scene changes once, however many facts come and go."""
        joining: dict[SceneId, set[FactId]] = {}
        leaving: dict[SceneId, set[FactId]] = {}
        for fact, scenes in places.items():
            before = self._routes.pop(fact, ())
            if not forget:
                self._routes[fact] = scenes
            for scene in before:
                if scene not in scenes:
                    leaving.setdefault(scene, set()).add(fact)
            for scene in scenes:
                if scene not in before:
                    joining.setdefault(scene, set()).add(fact)
        changes: list[ScopeChange] = []
        for scene in dict.fromkeys((*leaving, *joining)):
            joined, left = joining.get(scene, set()), leaving.get(scene, set())
            held = self.members.setdefault(scene, set())
            held |= joined
            held -= left
            if not held:
                del self.members[scene]
            changes.append(ScopeChange(scene_scope(scene), frozenset(joined), frozenset(left)))
        return changes
