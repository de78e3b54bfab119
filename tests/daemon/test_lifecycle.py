"""One daemon a directory, what the service manager hears, and what signals do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from daemon.lifecycle import (
    DirectoryInUse,
    feed_watchdog,
    lock_directory,
    notify_systemd,
    watch_signals,
    watchdog_period_s,
)
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def test_a_second_daemon_on_a_directory_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    first = lock_directory(tmp_path)
    with pytest.raises(DirectoryInUse) as raised:
        lock_directory(tmp_path)
    os.close(first)
    os.close(lock_directory(tmp_path))

    assert raised.value.code == "unavailable"
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_refused_lock_leaves_no_descriptor_open(tmp_path: Path) -> None:
    first = lock_directory(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(DirectoryInUse):
            lock_directory(tmp_path)

    assert len(os.listdir("/proc/self/fd")) == before
    os.close(first)


def test_another_process_is_refused_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from daemon.lifecycle import lock_directory;"
        "lock_directory(Path(sys.argv[1])); print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with pytest.raises(DirectoryInUse):
            lock_directory(tmp_path)
        other.kill()
        other.wait()

    os.close(lock_directory(tmp_path))


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A nats-server that outlives its daemon must not keep the directory."""
    descriptor = lock_directory(tmp_path)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        os.close(descriptor)
        os.close(lock_directory(tmp_path))
        child.kill()


@pytest.fixture
def notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        yield listener


def test_systemd_is_told_in_one_datagram(notified: socket.socket) -> None:
    notify_systemd("READY=1")
    notify_systemd("STOPPING=1")

    assert [notified.recv(100), notified.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_an_abstract_address_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"memforest-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        notify_systemd("READY=1")

        assert listener.recv(100) == b"READY=1"


def test_a_systemd_that_does_not_read_holds_nobody_up(notified: socket.socket) -> None:
    for _ in range(2_000):  # far more than a socket takes
        notify_systemd("WATCHDOG=1")

    assert notified.recv(100) == b"WATCHDOG=1"


def test_one_that_is_gone_or_never_was_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify_systemd("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify_systemd("READY=1")


@pytest.mark.parametrize(("usec", "period_s"), [("30000000", 15.0), ("x", None), ("", None), (None, None)])
def test_the_watchdog_is_fed_twice_in_its_time(
    monkeypatch: pytest.MonkeyPatch, usec: str | None, period_s: float | None
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    if usec is not None:
        monkeypatch.setenv("WATCHDOG_USEC", usec)

    assert watchdog_period_s() == period_s


async def test_the_watchdog_is_fed_only_while_the_writer_answers(
    notified: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    asked: list[anyio.Event] = []

    async def answer() -> None:
        """Three times at once, and then as a disk that hangs."""
        asked.append(anyio.Event())
        if len(asked) > 3:
            await asked[-1].wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed_watchdog, answer)
        await wait_until(lambda: len(asked) == 4)
        fed = [notified.recv(100) for _ in range(3)]
        with anyio.move_on_after(0.1):
            await anyio.sleep_forever()
        with pytest.raises(BlockingIOError):
            notified.recv(100)
        asked[-1].set()
        await wait_until(lambda: len(asked) == 5)
        tasks.cancel_scope.cancel()

    assert fed == [b"WATCHDOG=1"] * 3
    assert notified.recv(100) == b"WATCHDOG=1"


async def test_nobody_is_asked_when_systemd_does_not_want_to_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)

    async def answer() -> None:
        raise AssertionError("nobody wants to hear")

    await feed_watchdog(answer)


def test_a_failed_fsync_ends_the_process_with_one_line_and_nothing_else() -> None:
    """Not even what is registered for the end of the process."""
    code = (
        "import atexit; atexit.register(print, 'at the end');"
        "from daemon.lifecycle import end_of_sync_failure; end_of_sync_failure(print)"
    )
    ended = subprocess.run(
        [sys.executable, "-u", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (os.EX_IOERR, "store.fsync_failed\n")


async def test_the_first_signal_asks_and_the_second_forces() -> None:
    heard: list[str] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_signals, heard.append, lambda: heard.append("forced"))
        await wait_until(lambda: signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        await wait_until(lambda: heard == ["SIGTERM"])
        os.kill(os.getpid(), signal.SIGINT)
        await wait_until(lambda: heard == ["SIGTERM", "forced"])

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the receiver is put away"
