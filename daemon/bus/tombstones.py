"""Keeps the log and the tombstone bucket on the bus in agreement: each learns what the other knows.

So a daemon that was restored from an older backup, or one that was away from the bus while something was
forgotten, catches up by itself (engineering.md D8).
"""

from __future__ import annotations

from functools import partial

import anyio

from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.nats_bus import NatsBus
from daemon.bus.tombstone_bucket import TombstoneBucket
from daemon.logs import Report
from events.errors import StoreUnusable
from events.log import EventLog
from events.tombstones import plant_tombstones, read_own_tombstones

# Between two comparisons; what is forgotten here meanwhile is told at once by the erasing itself.
COMPARE_EVERY_S = 300.0
LOOK_AGAIN_S = 1.0


class TombstoneKeeper:
    """Compares once the bus is there, and then now and again."""

    def __init__(
        self, log: EventLog, bus: NatsBus, bucket: TombstoneBucket, report: Report, *, ours: bool
    ) -> None:
        """`ours`: the bus is embedded, so a missing bucket is made; an outside server's is its operator's."""
        self._log = log
        self._bus = bus
        self._bucket = bucket
        self._report = report
        self._ours = ours
        # Set by every comparison, with how many tombstones were new here.
        self.compared = anyio.Event()

    async def run(self) -> None:
        """For ever. Without a bucket the log's own tombstones still count, and the operator is told."""
        told = False
        while True:
            if self._bus.state != "up":
                await anyio.sleep(LOOK_AGAIN_S)
                continue
            try:
                await self.compare()
                told = False
                await anyio.sleep(COMPARE_EVERY_S)
            except (BusUnavailable, StoreUnusable) as error:
                if not told:
                    self._report("tombstones.not_compared", reason=str(error))
                told = True
                await anyio.sleep(COMPARE_EVERY_S if self._bus.state == "up" else LOOK_AGAIN_S)

    async def compare(self) -> int:
        """Plant here what only the bucket knows, and put there what only the log knows; how many were planted.

        Raises `BusUnavailable`, also when there is no bucket, and `StoreUnusable`.
        """
        if self._ours:
            await self._bucket.create()
        there = await self._bucket.read_all()
        planted = await self._log.write(partial(plant_tombstones, tombstones=there))
        known = {each.subject for each in there}
        for tombstone in await self._log.read(read_own_tombstones):
            if tombstone.subject not in known:
                await self._bucket.put(tombstone)
        if planted:
            self._report("tombstones.met", tombstones=planted)
        self.compared.set()
        return planted
