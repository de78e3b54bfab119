"""The rows of the table: ways of asking, each with what `query` is told. Two plain ones always stand first.

Both are the daemon's own index over the turns as they were said, two a memory, without facts, groups, smoothing,
sessions, names or nearness in time: `BM25` by words alone, `hybrid` with its embedder beside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memforest.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODES = ("agpr", "flat", "roots", "forest", "deep", "auto")
FAMILIES = ("session", "entity", "scene")
BROWSES = ("emb", "llm")
_OF_TREES = ("roots", "forest", "deep")
# These may ask a model in each query: they get one query a question, and its ranking is cut.
_ASK_MODELS = ("deep", "auto")
PLAIN = ("BM25", "hybrid")


@dataclass(frozen=True, slots=True)
class Row:
    """A way of asking. `asks_model`: a query may cost model calls."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asks_model: bool = False


def make_rows(
    modes: Sequence[str],
    families: Sequence[Sequence[str]] = (),
    browses: Sequence[str] = (),
    planners: Sequence[bool] = (),
) -> tuple[Row, ...]:
    """The plain rows, and one for each mode with each of the options that it takes.

    Raises InvalidInput when an option is for none of the modes.
    """
    if families and not set(modes) & set(_OF_TREES):
        raise InvalidInput(f"--families is for the modes {', '.join(_OF_TREES)}; name one with --mode.")
    if (browses or planners) and "deep" not in modes:
        raise InvalidInput("--browse and --planner are for --mode deep.")
    chunks = {"kinds": ["chunk"]}
    return (
        Row("BM25", {"mode": "flat", "vectors": False, "filters": chunks}),
        Row("hybrid", {"mode": "flat", "filters": chunks}),
        *(row for mode in dict.fromkeys(modes) for row in _variants(mode, families, browses, planners)),
    )


def _variants(
    mode: str, families: Sequence[Sequence[str]], browses: Sequence[str], planners: Sequence[bool]
) -> Iterator[Row]:
    """The rows of one mode; what is left open is the daemon's default, and not named."""
    is_deep = mode == "deep"
    for trees in families if families and mode in _OF_TREES else (None,):
        for browse in browses if browses and is_deep else (None,):
            for planner in planners if planners and is_deep else (None,):
                named = {"families": trees and list(trees), "browse": browse, "planner": planner}
                words = (
                    mode,
                    "+".join(trees or ()),
                    browse or "",
                    {True: "planner", False: "no planner", None: ""}[planner],
                )
                params = {"mode": mode} | {name: value for name, value in named.items() if value is not None}
                yield Row(" ".join(filter(None, words)), params, mode in _ASK_MODELS)
