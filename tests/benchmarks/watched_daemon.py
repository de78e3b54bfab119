"""`python -m tests.benchmarks.watched_daemon FILE`: the daemon with a callback beside it that only wants its turn.

Configured by the environment alone. When it ends, FILE has how late each turn came: wall, and CPU of the loop's
thread meanwhile, which is our own doing whatever else the machine was at.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import anyio
import msgspec

from daemon.app import serve
from daemon.config import read_config
from daemon.logs import configure_logs

TICK_S = 0.005


class Stalls(msgspec.Struct):
    """By how many seconds each turn of the loop was late, CPU seconds since the one before, and when it came.

    The clock is the machine's monotonic one, which processes share.
    """

    late_s: list[float] = []
    cpu_s: list[float] = []
    at_s: list[float] = []


def _tick(stalls: Stalls, before: tuple[float, float]) -> None:
    """A callback and no task, which would take three times the CPU."""
    now = time.monotonic(), time.thread_time()
    stalls.late_s.append(max(0.0, now[0] - before[0] - TICK_S))
    stalls.cpu_s.append(now[1] - before[1])
    stalls.at_s.append(now[0])
    asyncio.get_running_loop().call_later(TICK_S, _tick, stalls, now)


async def _serve(stalls: Stalls) -> None:
    config = read_config(None)
    report = configure_logs(config.log.level, config.log.format)
    _tick(stalls, (time.monotonic(), time.thread_time()))
    await serve(config, report)


def main() -> None:
    """Run until a signal, then write the file."""
    stalls = Stalls()
    anyio.run(_serve, stalls)
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(stalls))


if __name__ == "__main__":
    main()
