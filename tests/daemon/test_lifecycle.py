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

from daemon.lifecycle import DirectoryInUse, lock_directory, notify_systemd, watch_signals, watchdog_period_s
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
