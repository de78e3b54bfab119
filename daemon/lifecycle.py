"""What a process owes the system around it: one daemon a data directory, readiness, and signals."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from daemon.logs import Report
from events.errors import MemForestError


class DirectoryInUse(MemForestError):
    """Another daemon runs on this data directory; stop it, or choose another data.dir."""

    code = "unavailable"


def lock_directory(folder: Path) -> int:
    """Take the data directory for this process; the descriptor holds the lock while it is open.

    Raises `DirectoryInUse`. Children do not inherit it, so a stray one cannot keep the directory.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DirectoryInUse from None
    return descriptor


def collect_seldom() -> None:
    """Let Python's garbage collector look at old objects seldom.

    A Memory is millions of small objects that stay. Full passes over them held the loop for hundreds of
    milliseconds and found nothing (BENCHMARKS.md); young objects are still looked at, few at a time: all that is
    made while a log is folded stays, and a pass over a million objects held the loop for a third of a second.
    """
    gc.set_threshold(1_000, 10, 100_000)


def notify_systemd(state: str) -> None:
    """Tell the service manager (sd_notify(3)): READY=1, STOPPING=1, WATCHDOG=1. Nothing without one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    # A service manager that does not read must not hold the loop.
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, kind) as sender:
        try:
            sender.sendto(state.encode(), address)
        except OSError:
            return  # one that went away or is busy is no reason to stop


def end_of_sync_failure(report: Report) -> None:
    """End the process at once, with EX_IOERR: what it did on its way out could touch the store.

    After a failed fsync the system may have dropped what it could not write, and says so only once. A new process
    reads what is really on the disk (wiki.postgresql.org/wiki/Fsync_Errors, engineering.md L8).
    """
    report("store.fsync_failed")
    os._exit(os.EX_IOERR)


def watchdog_period_s() -> float | None:
    """How often the service manager wants to hear from us: half of its limit; None when it does not."""
    try:
        return int(os.environ["WATCHDOG_USEC"]) / 2_000_000
    except (KeyError, ValueError):
        return None


async def feed_watchdog(answer: Callable[[], Awaitable[None]]) -> None:
    """Tell the service manager that we are alive, as often as it wants to hear it.

    That the loop runs shows by itself; `answer` returns when the writer answers. One that hangs is not waited for
    for ever: the service manager ends us, and a new process goes on.
    """
    period_s = watchdog_period_s()
    while period_s is not None:
        await answer()
        notify_systemd("WATCHDOG=1")
        await anyio.sleep(period_s)


async def watch_signals(stop: Callable[[str], None], force: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT and `force` at the second."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        asked = False
        async for number in signals:
            if asked:
                force()
                return
            asked = True
            stop(signal.Signals(number).name)
