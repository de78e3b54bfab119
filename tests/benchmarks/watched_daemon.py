"""`python -m tests.benchmarks.watched_daemon FILE`: the daemon with a task beside it that only wants its turn.

Configured by the environment alone. When it ends, FILE has how late each turn came: wall, and CPU of the loop's
thread meanwhile, which is our own doing whatever else the machine was at.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio
import msgspec

from daemon.app import serve
from daemon.config import read_config
from daemon.logs import configure_logs
from tests.benchmarks.measuring import Watch

TICK_S = 0.005


class Stalls(msgspec.Struct):
    """By how many seconds each turn of the loop was late, CPU seconds since the one before, and when it came.

    The clock is the machine's monotonic one, which processes share.
    """

    late_s: list[float] = []
    cpu_s: list[float] = []
    at_s: list[float] = []


async def _tick(stalls: Stalls) -> None:
    watch = Watch()
    while True:
        await anyio.sleep(TICK_S)
        spent, watch = watch.read(), Watch()
        stalls.late_s.append(max(0.0, spent.wall_s - TICK_S))
        stalls.cpu_s.append(spent.thread_s)
        stalls.at_s.append(time.monotonic())


async def _serve(stalls: Stalls) -> None:
    config = read_config(None)
    report = configure_logs(config.log.level, config.log.format)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tick, stalls)
        await serve(config, report)
        tasks.cancel_scope.cancel()


def main() -> None:
    """Run until a signal, then write the file."""
    stalls = Stalls()
    anyio.run(_serve, stalls)
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(stalls))


if __name__ == "__main__":
    main()
