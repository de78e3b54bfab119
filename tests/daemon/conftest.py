"""The daemon's parts on the log of the test."""

from __future__ import annotations

import pytest

from events.log import EventLog
from tests.builders import ManualClock
from tests.daemon.parts_in_use import Parts, build_parts


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock)
