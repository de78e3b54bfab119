"""`make quality`: prints how much of the evidence answers carry. `ARGS="core static"` picks some parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path

import anyio
import numpy as np

from daemon.config_values import ConfigInvalid
from daemon.offline.multilingual import MultilingualEmbedder
from daemon.offline.static import StaticEmbedder
from projections.ports import Embedder
from projections.recall.agpr import MULTILINGUAL, NO_EMBEDDER, STATIC, AgprParameters
from tests.quality.in_process import (
    Embed,
    Remembered,
    give_vectors,
    measure,
    measure_sessions,
    remember,
)
from tests.quality.languages import LANGUAGES, load_chats, share_of_pairs_found
from tests.quality.locomo import FILE_NAME, Category, Conversation, load_conversations, locomo_file
from tests.quality.measure import Scores, bm25_ranker, core_ranker, evaluate, table
from tests.quality.through_daemon import measure_daemon

EMBEDDERS: dict[str, tuple[Callable[[], Embedder], AgprParameters]] = {
    "static": (StaticEmbedder, STATIC),
    "multilingual": (MultilingualEmbedder, MULTILINGUAL),
}
PARTS = ("chunks", "core", *EMBEDDERS, "languages", "daemon")
PAIRS = 500


def main(parts: Sequence[str]) -> int:
    """Print the parts, all by default; 0 when they could be measured."""
    path = locomo_file()
    if path is None or not set(parts) <= set(PARTS):
        print(
            f"LOCOMO_DIR must name the folder that holds {FILE_NAME}; the parts are {', '.join(PARTS)}",
            file=sys.stderr,
        )
        return 2
    wanted = parts or PARTS
    if "chunks" in wanted:
        _print_chunks(load_conversations(path))
    remembered: list[Remembered] = []
    if {"core", *EMBEDDERS} & set(wanted):
        remembered = anyio.run(remember, load_conversations(path, adversarial=True))
    if "core" in wanted:
        _print_rows("core, in process", remembered, NO_EMBEDDER, None)
    for name, (make, parameters) in EMBEDDERS.items():
        if name in wanted:
            _print_embedder(name, make, parameters, path)
    if "languages" in wanted:
        _print_languages(path.parent)
    if "daemon" in wanted:
        rows = anyio.run(measure_daemon, path, load_conversations(path))
        _print_categories("core, the daemon as installed", rows)
    return 0


def _print_chunks(conversations: tuple[Conversation, ...]) -> None:
    rows = {
        "BM25, chunks": evaluate(conversations, bm25_ranker),
        "BM25, chunks, dated": evaluate(conversations, partial(bm25_ranker, dated=True)),
        "BM25 + smoothing + AGPR, chunks, dated": evaluate(conversations, partial(core_ranker, dated=True)),
    }
    print(table((name, [scores for _, scores in row]) for name, row in rows.items()), flush=True)


def _print_embedder(name: str, make: Callable[[], Embedder], parameters: AgprParameters, path: Path) -> None:
    """In a node set of its own, which takes the vectors of one model only."""
    try:
        embedder = make()
    except ConfigInvalid as error:
        print(f"{name}: {error}", flush=True)
        return
    remembered = anyio.run(remember, load_conversations(path, adversarial=True))

    def embed(texts: Sequence[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return anyio.run(embedder.embed, texts)

    def embed_question(texts: Sequence[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.array([anyio.run(embedder.embed_question, text) for text in texts], dtype=np.float32)

    give_vectors(remembered, embed)
    _print_rows(f"{name}, in process", remembered, parameters, embed_question)


def _print_rows(name: str, remembered: list[Remembered], parameters: AgprParameters, embed: Embed | None) -> None:
    _print_categories(name, measure(remembered, parameters, embed))
    sessions = measure_sessions(remembered, parameters, embed)
    figures = 100 * np.mean([astuple(each) for each in sessions], axis=0)
    headings = ("R@5", "R@10", "hit-any@5", "hit-any@10")
    shown = ", ".join(f"{heading} {figure:.1f}" for heading, figure in zip(headings, figures, strict=True))
    print(f"{name}, sessions, all categories: {shown}, n {len(sessions)}", flush=True)


def _print_categories(name: str, rows: list[tuple[Category, Scores]]) -> None:
    by_category = [
        (f"  {category.name}", [scores for found, scores in rows if found == category])
        for category in Category
        if category != Category.ADVERSARIAL
    ]
    print(table([(name, [scores for _, scores in rows]), *by_category]), flush=True)


def _print_languages(folder: Path) -> None:
    chats = load_chats(folder)
    if chats is None:
        print("languages: the evercore chats are not beside LoCoMo", flush=True)
        return
    for language in LANGUAGES:
        remembered = anyio.run(remember, chats[language])
        rows = measure(remembered, NO_EMBEDDER)
        print(table([(f"core, halves of messages, {language}", [scores for _, scores in rows])]), flush=True)
        if language == "zh":
            shares = [share_of_pairs_found(each, seed=1, count=PAIRS) for each in remembered]
            print(f"pairs of Chinese signs found: {100 * float(np.mean(shares)):.1f} %", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
