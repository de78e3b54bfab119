"""`make quality`: prints how much of the evidence answers carry. `ARGS="core static"` picks some parts.

`ARGS=sweeps` prints instead what chunk sizes, branchings, budgets and schedules cost and keep; `ARGS="baselines
ablations compression_sweeps"` what other ways of compression keep, and the EventTree without its parts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path

import anyio
import numpy as np
from sklearn.metrics import roc_auc_score

from daemon.config_values import ConfigInvalid
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.multilingual import MultilingualEmbedder
from daemon.offline.static import StaticEmbedder
from projections.ports import Embedder
from projections.recall.agpr import MULTILINGUAL, NO_EMBEDDER, STATIC, AgprParameters
from tests.quality.chunk_sweep import sweep_chunks
from tests.quality.compression_runs import RUNS, print_runs
from tests.quality.decisions import decide_on, decisions_table, joins_agree, scenes_agree
from tests.quality.forest_runs import ask_forest
from tests.quality.in_process import (
    Embed,
    Remembered,
    give_vectors,
    measure,
    measure_sessions,
    remember,
)
from tests.quality.languages import CHATS, LANGUAGES, load_chats, share_of_pairs_found
from tests.quality.locomo import FILE_NAME, Category, Conversation, load_conversations, locomo_file
from tests.quality.measure import Scores, bm25_ranker, core_ranker, evaluate, table
from tests.quality.through_daemon import measure_daemon
from tests.quality.tree_sweeps import grow_all, grow_inputs, sweep_budgets, sweep_refreshes, sweep_targets

EMBEDDERS: dict[str, tuple[Callable[[], Embedder], AgprParameters]] = {
    "static": (StaticEmbedder, STATIC),
    "multilingual": (MultilingualEmbedder, MULTILINGUAL),
}
PARTS = ("chunks", "core", *EMBEDDERS, "forest", "languages", "decisions", "daemon")
# How the defaults of chunks and trees were chosen; only when they are named.
SWEEPS = ("sweep_chunks", "sweep_targets", "sweep_budgets", "sweep_refreshes")
PAIRS = 500


def main(parts: Sequence[str]) -> int:
    """Print the parts, all by default; 0 when they could be measured."""
    path = locomo_file()
    if path is None or not set(parts) <= {*PARTS, *SWEEPS, "sweeps", *RUNS}:
        named = ", ".join((*PARTS, *SWEEPS, "sweeps", *RUNS))
        print(
            f"LOCOMO_DIR must name the folder that holds {FILE_NAME}; the parts are {named}",
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
    if "decisions" in wanted:
        anyio.run(_print_decisions, path)
    if "forest" in wanted:
        _print_forest(path)
    if "daemon" in wanted:
        rows = anyio.run(measure_daemon, path, load_conversations(path))
        _print_categories("core, the daemon as installed", rows)
    print_runs(wanted, path)
    _print_sweeps(SWEEPS if "sweeps" in wanted else wanted, load_conversations(path))
    return 0


def _print_sweeps(wanted: Sequence[str], conversations: tuple[Conversation, ...]) -> None:
    if "sweep_chunks" in wanted:
        for each in anyio.run(sweep_chunks, conversations):
            print(each.markdown(), end="\n\n", flush=True)
    if "sweep_targets" in wanted:
        print(sweep_targets(anyio.run(grow_all, conversations)).markdown(), end="\n\n", flush=True)
    if {"sweep_budgets", "sweep_refreshes"} & set(wanted):
        inputs = anyio.run(grow_inputs, conversations)
        for name, sweep in (("sweep_budgets", sweep_budgets), ("sweep_refreshes", sweep_refreshes)):
            if name in wanted:
                print(sweep(inputs).markdown(), end="\n\n", flush=True)


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


async def _print_decisions(path: Path) -> None:
    chats = load_chats(path.parent, asked_for=False) or {}
    talks = [*load_conversations(path), *(chat for language in LANGUAGES for chat in chats.get(language, ()))]
    decided = {talk.conversation_id: await decide_on(talk) for talk in talks}
    print(decisions_table((talk, decided[talk.conversation_id]) for talk in talks).markdown(), flush=True)
    for chat in CHATS if chats else ():
        english, chinese = (decided[f"{chat}-{language}"] for language in LANGUAGES)
        both, in_english, in_chinese = joins_agree(english, chinese)
        print(
            f"{chat}, English against Chinese: scenes agree {scenes_agree(english, chinese):.2f}; pairs of turns"
            f" with a common fact: in both {both}, in English only {in_english}, in Chinese only {in_chinese}",
            flush=True,
        )


def _print_forest(path: Path) -> None:
    """Modes `agpr` and `forest` of the same Memories, and how well confidence tells adversarial questions."""
    makes = {"core": (HashingEmbedder, NO_EMBEDDER), **EMBEDDERS}
    for name, (make, parameters) in makes.items():
        try:
            embedder = make()
        except ConfigInvalid as error:
            print(f"{name}: {error}", flush=True)
            continue
        asked = anyio.run(ask_forest, load_conversations(path, adversarial=True), embedder, parameters)
        for mode in ("agpr", "forest"):
            rows = [(each.category, each.scores[mode]) for each in asked if each.scores]
            _print_categories(f"{name}, mode {mode}", rows)
        answerable = np.array([each.category != Category.ADVERSARIAL for each in asked])
        for what, values in (
            ("confidence", [each.confidence for each in asked]),
            ("the best score", [each.top for each in asked]),
        ):
            print(f"{name}, forest, AUROC of {what}: {roc_auc_score(answerable, values):.3f}", flush=True)


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
