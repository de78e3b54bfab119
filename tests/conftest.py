"""What every test may ask for: a clock moved by hand, and a log in a real SQLite file."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from events.log import EventLog
from tests.builders import SECRET, ManualClock, seeded_nonces

# A shell that runs the tests in the background has this ignored, and so would every process that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.fixture
async def log(log_path: Path, clock: ManualClock) -> AsyncIterator[EventLog]:
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    yield log
    await log.close()
