"""The daemon's parts on the log of the test, a place for a socket, and a server in a model's place."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from events.log import EventLog
from tests.builders import ManualClock
from tests.daemon.parts_in_use import Parts, build_parts
from tests.openai_stub import OpenAiStub, running_stub


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock)


@pytest.fixture
def path() -> Iterator[Path]:
    # tmp_path holds the test's name, which leaves too little of 107 bytes.
    with tempfile.TemporaryDirectory(prefix="mf-") as folder:
        yield Path(folder) / "s"


@pytest.fixture
async def stub() -> AsyncGenerator[OpenAiStub]:
    async with running_stub() as stub:
        yield stub
