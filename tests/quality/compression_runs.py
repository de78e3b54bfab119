"""The parts `baselines`, `ablations` and `compression_sweeps` of `make quality`, as tables."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

from threadpoolctl import threadpool_limits

from daemon.config_values import ConfigInvalid
from tests.quality.ablation_runs import ablations_of_ours, ablations_of_paper
from tests.quality.baselines import (
    Measured,
    Method,
    comparison_table,
    kept_table,
    measure_methods,
    methods_for,
    missed_bars,
)
from tests.quality.bootstrap import DRAWS, SEED
from tests.quality.compression import SEEDS, settings_for
from tests.quality.compression_bars import bar_tables
from tests.quality.compression_inputs import Embedding, Inputs, Kind, embed_with, load_inputs
from tests.quality.compression_sweeps import sweep_search, sweep_tree
from tests.quality.tables import Table

# The built-in vectors and the best ones first.
ORDER: Final = (Embedding.HASHING, Embedding.MINILM, Embedding.STATIC)
# A kind of memories and an embedder in each.
PROCESSES: Final = 2

# The tables of the memories of some conversations, all of one kind and with vectors of one embedder.
MakeTables: TypeAlias = Callable[[Sequence[Inputs], Kind, Embedding], Iterable[Table]]


def print_runs(wanted: Sequence[str], path: Path) -> None:
    """Print the tables of the parts that are wanted, one kind and embedder after the other."""
    parts = [part for part in RUNS if part in wanted]
    if not parts:
        return
    # Spawned: a fork would take over the locks of whatever threads there are.
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for part in parts:
            print(f"{part}: seeds {SEEDS}, bootstrap of {DRAWS:,} draws, seed {SEED}", flush=True)
            asked = [(part, path, kind, embedding) for embedding in ORDER for kind in Kind]
            for lines in pool.map(_run, asked):
                print(lines, end="\n\n", flush=True)


def _run(asked: tuple[str, Path, Kind, Embedding]) -> str:
    """The tables of one kind of memories and one embedder, if it is there, and what they took."""
    part, path, kind, embedding = asked
    began = time.process_time()
    with threadpool_limits(limits=1):
        try:
            inputs = load_inputs(path, kind, embedding)
        except ConfigInvalid as error:
            return f"{kind}, {embedding}: {error}"
        tables = [each.markdown() for each in RUNS[part](inputs, kind, embedding)]
    return "\n\n".join([*tables, f"{time.process_time() - began:.0f} s of CPU"])


def _baselines(inputs: Sequence[Inputs], kind: Kind, embedding: Embedding) -> Iterable[Table]:
    name = _named(kind, embedding)
    # Of MiniLM the vectors of the texts alone were kept.
    embed = None if embedding is Embedding.MINILM else embed_with(embedding)
    methods = methods_for(kind, embed)
    measured = measure_methods(inputs, methods, settings=settings_for(embedding), report=_tell)
    yield from _tables(methods, measured, name)
    yield missed_bars(f"Bars, {name}", methods, measured)


def _ablations(inputs: Sequence[Inputs], kind: Kind, embedding: Embedding) -> Iterable[Table]:
    name = _named(kind, embedding)
    for whose, methods in (("ours", ablations_of_ours(kind)), ("the paper's settings", ablations_of_paper())):
        measured = measure_methods(inputs, methods, settings=settings_for(embedding), report=_tell)
        yield from _tables(methods, measured, f"{whose}, {name}")


def _tables(methods: Sequence[Method], measured: Measured, name: str) -> Iterable[Table]:
    yield kept_table(f"Kept, {name}", methods, measured)
    for setting in measured.settings:
        yield comparison_table(f"Compared, {name}", methods, measured, setting)


def _sweeps(inputs: Sequence[Inputs], kind: Kind, embedding: Embedding) -> Iterable[Table]:
    yield sweep_tree(inputs, kind, embedding)
    yield sweep_search(inputs, kind, embedding)


def _named(kind: Kind, embedding: Embedding) -> str:
    return f"{kind}, {embedding} vectors"


def _tell(method: str) -> None:
    """Something to see while one waits."""
    print(f"  {method}", file=sys.stderr, flush=True)


RUNS: Final[dict[str, MakeTables]] = {
    "compression": bar_tables,
    "baselines": _baselines,
    "ablations": _ablations,
    "compression_sweeps": _sweeps,
}
