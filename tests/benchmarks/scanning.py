"""What it costs to prove that erased words are gone, against looking for one string and against one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from daemon.erasure.fingerprints import Fingerprints
from daemon.erasure.searching import BLOCK_BYTES, Request, search_folder
from tests.benchmarks.measuring import Figure, Row, median_cpu, ms, sized, spend
from tests.benchmarks.samples import Speech

FILE_BYTES = 64 * 1024**2
# Of a small session, and as many as are kept of any.
TURNS = (400, 20_000)
# Looked for one by one: a search of every window would take minutes.
NEEDLES = 20
REPEATS = 3


def measure(share: float) -> list[Row]:
    """A folder of one file of other words, searched for windows of few and of many turns."""
    text = "\n".join(_words(1, 2_000)).encode()
    content = (text * (1 + FILE_BYTES // len(text)))[: sized(FILE_BYTES, share, BLOCK_BYTES)]
    return [row for turns in TURNS for row in _measure_windows(content, sized(turns, share, 20))]


def _measure_windows(content: bytes, turns: int) -> list[Row]:
    fingerprints = Fingerprints(b"")
    for words in _words(2, turns):
        fingerprints.add(words)
    windows = list(fingerprints.windows())
    with tempfile.TemporaryDirectory(prefix="mf-bench-") as folder:
        (Path(folder) / "content").write_bytes(content)
        request = Request(folder, windows)
        scan_s = median_cpu([spend(lambda: search_folder(request)) for _ in range(REPEATS)])
    count_s = median_cpu([spend(lambda: content.count(windows[0])) for _ in range(REPEATS)])
    needles = windows[:NEEDLES]
    each_s = spend(lambda: [content.count(needle) for needle in needles]).cpu_s / len(needles)
    megabytes = len(content) / 1e6
    figures = (Figure("windows", len(windows)), Figure("scan_mb_per_cpu_s", megabytes / scan_s))
    name = f"{megabytes:,.0f} MB scanned for {len(windows):,} windows, CPU"
    return [
        Row(name, scan_s / count_s, "bytes.count of one", (*figures, Figure("count_cpu_ms", ms(count_s)))),
        Row(name, scan_s / (each_s * len(windows)), "bytes.count of each, by what 20 take", figures),
    ]


def _words(seed: int, turns: int) -> list[str]:
    speech = Speech(seed)
    return [speech.turn() for _ in range(turns)]
