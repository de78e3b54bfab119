"""A power cut at any moment loses nothing that was acknowledged (fault matrix row 9, and mid-checkpoint of row 6).

A process appends under a preloaded shim that notes what is written and what is synced; from its trace the disk is
made as it would be after a cut. That the test can fail is shown by the same run under synchronous=NORMAL.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio
import pytest

from daemon.upkeep.verify import check_running_hash
from events.reading import read_user
from events.registry import read_user_references
from events.schema import open_reader, open_writer
from tests.builders import MONDAY
from tests.faults.disk import Disk, read_trace
from tests.system.daemon_process import run_command

SHIM = Path(__file__).with_name("power_cut_shim.c")
EVENTS = 150
# Cuts besides those after each sync and each acknowledgement.
CUTS_ANYWHERE = 60
SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)


@dataclass(frozen=True, slots=True)
class Lost:
    """A cut after which something acknowledged is missing."""

    acknowledged: int
    recovered: int


@cache
def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="the shim is C, and there is no compiler (cc, gcc, clang)"),
    pytest.mark.skipif(sys.platform != "linux", reason="the shim is preloaded by Linux's loader"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled shim."""
    library = tmp_path_factory.mktemp("shim") / "power_cut_shim.so"
    built = anyio.run(
        anyio.run_process, [compiler() or "cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"]
    )
    assert built.returncode == 0
    return library


def shimmed(shim: Path, store: Path, trace: Path, **more: str) -> dict[str, str]:
    """The environment of a process on `store` whose deeds are traced."""
    return {"LD_PRELOAD": str(shim), "CUT_STORE": str(store), "CUT_TRACE": str(trace), **more}


async def trace_of(shim: Path, folder: Path, synchronous: str) -> Path:
    """The trace of a process that appended EVENTS events and closed its log."""
    store, trace = folder / "events.db", folder / "trace"
    ended = await run_command(
        "tests.faults.appending", str(store), str(trace), str(EVENTS), synchronous,
        environ=shimmed(shim, store, trace),
    )  # fmt: skip
    assert ended.code == 0, ended
    return trace


def recovered_from(store: Path) -> int:
    """The last seq of the log that is opened after a cut; its chains are checked."""
    open_writer(store, MONDAY).close()
    reader = open_reader(store)
    try:
        check_running_hash(reader)
        for user in read_user_references(reader):
            read_user(reader, user, limit=EVENTS)
        (head,) = reader.execute("SELECT seq FROM head").fetchone()
        return int(head)
    finally:
        reader.close()


def cuts(trace: Path, folder: Path, torn: random.Random | None) -> Iterator[Lost | None]:
    """Cut the power after each sync and acknowledgement and at some other moments; None where nothing is lost."""
    rng = random.Random(SEED)
    records = list(read_trace(trace))
    moments = {number for number, record in enumerate(records) if record.op in "AS"}
    moments.update(rng.sample(range(len(records)), CUTS_ANYWHERE))
    disk = Disk()
    for number, record in enumerate(records):
        disk.follow(record)
        if number in moments:
            store = folder / str(number) / "events.db"
            disk.cut(store, torn)
            head = recovered_from(store)
            yield Lost(disk.acknowledged, head) if head < disk.acknowledged else None
            shutil.rmtree(store.parent)
    assert disk.syncs > 10, "the shim sees no syncs: is SQLite's library linked so that it cannot be hooked?"
    assert disk.checkpoints > 3, "a store is made, and there was no checkpoint since"
    assert disk.acknowledged >= EVENTS


@pytest.mark.parametrize("torn", [False, True], ids=["unsynced writes lost", "unsynced sectors at random"])
async def test_nothing_acknowledged_is_missing_after_a_power_cut(shim: Path, tmp_path: Path, torn: bool) -> None:
    print(f"\nSIMULATION_SEED={SEED}")
    trace = await trace_of(shim, tmp_path, "FULL")
    results = list(cuts(trace, tmp_path / "cuts", random.Random(SEED) if torn else None))

    assert len(results) > EVENTS + CUTS_ANYWHERE / 2
    assert [lost for lost in results if lost is not None] == []


async def test_the_same_cuts_lose_acknowledged_events_when_commits_are_not_synced(
    shim: Path, tmp_path: Path
) -> None:
    """What proves the test above: with synchronous=NORMAL it fails, though the log that is left is sound."""
    print(f"\nSIMULATION_SEED={SEED}")
    trace = await trace_of(shim, tmp_path, "NORMAL")
    results = list(cuts(trace, tmp_path / "cuts", None))
    lost = [each.acknowledged - each.recovered for each in results if each is not None]
    print(f"{len(lost)} of {len(results)} cuts lost acknowledged events, up to {max(lost, default=0)}")

    assert len(lost) > len(results) / 2


@pytest.mark.parametrize("page", [1, 7, 60])
async def test_a_process_killed_in_the_midst_of_a_checkpoint_loses_nothing(
    shim: Path, tmp_path: Path, page: int
) -> None:
    """kill -9 before the page is copied from the write-ahead log into events.db."""
    store, trace = tmp_path / "events.db", tmp_path / "trace"
    # Made without the shim, so that the first writes to the file are a checkpoint's.
    open_writer(store, MONDAY).close()
    ended = await run_command(
        "tests.faults.appending", str(store), str(trace), str(EVENTS), "FULL",
        environ=shimmed(shim, store, trace, CUT_KILL_AT=str(page)),
    )  # fmt: skip
    disk = Disk()
    for record in read_trace(trace):
        disk.follow(record)

    assert ended.code == -signal.SIGKILL, ended
    assert disk.acknowledged > 0
    assert disk.checkpointed_pages == page - 1
    assert recovered_from(store) >= disk.acknowledged
