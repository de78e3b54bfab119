"""The ways in which `query` finds memories."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """How memories are found.

    `agpr`: over all of them, and around the best in time; `flat`: by words and vectors alone; `forest`: in the
    trees that the question recalls, down to their leaves; `roots`: the summaries of these trees alone;
    `deep`: as `forest`, where a language model plans, says which nodes to go into, and whether that is enough;
    `auto`: the one of `agpr`, `forest` and `deep` that the question and the memories ask for.
    """

    AGPR = "agpr"
    FLAT = "flat"
    FOREST = "forest"
    ROOTS = "roots"
    DEEP = "deep"
    AUTO = "auto"


# Those that recall trees.
BY_TREES = frozenset((Mode.FOREST, Mode.ROOTS, Mode.DEEP, Mode.AUTO))
# Those in which a model may be asked where memories are.
MAY_ASK = frozenset((Mode.DEEP, Mode.AUTO))


class Family(StrEnum):
    """What a tree is about: a session, an entity (the owner is one), or a scene."""

    SESSION = "session"
    ENTITY = "entity"
    SCENE = "scene"
