"""Scenes as rows, and back: which facts are where, which wait to be routed, and which scenes went into which."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator

from projections.facts.scenes import Scenes, scene_scope
from projections.frozen import Reader, Section, Writer
from projections.placement import Placement


def freeze_scenes(scenes: Scenes, w: Writer) -> Iterator[Section]:
    """The sections of all scenes. Who is in a scene follows from where each fact is."""
    yield "unrouted", ((w.id(fact),) for fact in scenes.unrouted)
    yield "routes", ((w.id(fact), w.ids(places)) for fact, places in scenes.routes())
    yield "absorbed", ((w.id(scene), w.id(kept)) for scene, kept in scenes.absorbed.items())


def thaw_scenes(r: Reader, placement: Placement) -> Iterator[None]:
    """Fill the empty scenes of a placement, and what it says of their members."""
    scenes = placement.scenes
    for batch in r.batches("unrouted"):
        scenes.unrouted.update((r.id(fact), None) for (fact,) in batch)
    for batch in r.batches("routes"):
        for number, places in batch:
            fact = r.id(number)
            scenes._routes[fact] = tuple(r.ids(places))
            for scene in scenes._routes[fact]:
                scenes.members.setdefault(scene, set()).add(fact)
        yield
    for batch in r.batches("absorbed"):
        scenes.absorbed.update((r.id(scene), r.id(kept)) for scene, kept in batch)
    placement.members.update((scene_scope(scene), members) for scene, members in scenes.members.items())
