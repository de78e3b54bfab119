"""What erasing asks of a bus, answered without a server; bus_erasure.py and tombstone_bucket.py of daemon do it.

The real eraser deletes each message by its sequence number and looks for it afterwards; the real bucket is a
key-value bucket on the server. tests/daemon/test_bus_erasure.py and test_tombstone_bucket.py are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from daemon.bus.bus_erasure import BusEraser, BusErasure
from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.nats_bus import NatsBus
from daemon.bus.tombstone_bucket import BucketMissing, TombstoneBucket
from daemon.erasure.erasing import Erasing
from daemon.logs import Report
from events.envelope import BusPosition
from events.log import EventLog
from events.time import Instant
from events.tombstones import Tombstone

# Nobody listens there, and nothing here asks.
_NOWHERE = "nats://127.0.0.1:1"


class ScriptedEraser(BusEraser):
    """Has every message gone at once, unless it is `away` or a message is among the `kept`."""

    def __init__(self) -> None:
        super().__init__(NatsBus(_NOWHERE))
        self.erased: list[BusPosition] = []
        self.kept: set[BusPosition] = set()
        self.away = False
        # Messages of the subject that nobody has read; None when the bus cannot tell.
        self.unread: int | None = 0
        self.counted = 0  # how often that was asked

    async def count_messages(self, user_id: str, session_id: str | None) -> int | None:
        """Those that are `unread`; the others are gone."""
        self.counted += 1
        return None if self.away else self.unread

    async def erase(self, positions: Sequence[BusPosition], checkpoint: BusPosition | None) -> BusErasure:
        """What the server would say of these positions."""
        if self.away:
            raise BusUnavailable("the bus is away")
        done = tuple(position for position in positions if position not in self.kept)
        left = len(positions) - len(done)
        self.erased += done
        return BusErasure(
            erased=len(done),
            gone=0,
            foreign=0,
            left=left,
            reason="the stream denies deletes" if left else None,
            left_until=None,
            done=done,
        )


class ScriptedBucket(TombstoneBucket):
    """Keeps tombstones in a dict, as long as the bus is not `away` and the bucket not `missing`."""

    def __init__(self) -> None:
        super().__init__(NatsBus(_NOWHERE), "memforest")
        self.tombstones: dict[bytes, Tombstone] = {}
        self.away = False
        self.missing = False

    async def create(self) -> None:
        """It is there already."""

    async def put(self, tombstone: Tombstone) -> None:
        """Keep a tombstone; the first one of a subject stays."""
        if self.missing:
            raise BucketMissing
        if self.away:
            raise BusUnavailable("the bus is away")
        self.tombstones.setdefault(tombstone.subject, tombstone)

    async def read_all(self) -> tuple[Tombstone, ...]:
        """All there are."""
        return tuple(self.tombstones.values())


def erasing_without_a_server(
    log: EventLog, folder: Path, clock: Callable[[], Instant], report: Report, pause_s: float = 0.05
) -> Erasing:
    """What a `Forgetter` needs, over a real log and a scripted bus that was read to its end."""
    return Erasing(
        log=log,
        folder=folder,
        clock=clock,
        report=report,
        bus=ScriptedEraser(),
        bucket=ScriptedBucket(),
        position=lambda: None,
        pause_s=pause_s,
    )
