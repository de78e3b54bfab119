"""Watches that a model finds facts: an alarm when it begins not to, told once, and once when it is over."""

from __future__ import annotations

import anyio

from daemon.ledger_totals import LedgerTotals, Totals
from daemon.logs import Report
from daemon.zero_facts import describe, is_rising
from events.errors import StoreUnusable

# How often it looks when nobody asks: soon enough for whoever is on call.
LOOK_EVERY_S = 10.0


class ExtractionWatch:
    """Looks at the last answers of the model, by itself and whenever somebody asks."""

    def __init__(self, totals: LedgerTotals, report: Report, look_every_s: float = LOOK_EVERY_S) -> None:
        self.trouble: str | None = None  # the alarm as a sentence, None while all is well
        self._totals = totals
        self._report = report
        self._look_every_s = look_every_s

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await anyio.sleep(self._look_every_s)
            try:
                await self.look()
            except StoreUnusable:
                continue  # `store` says so in readyz, and there is nothing to look at

    async def look(self) -> Totals:
        """The sums of the ledger as they are now, with `trouble` brought up to them. Raises `StoreUnusable`."""
        totals = await self._totals.read()
        found, was_rising = totals.zero_facts, self.trouble is not None
        rises = is_rising(found, was_rising)
        self.trouble = describe(found) if rises else None
        if rises and not was_rising:
            self._report("extraction.zero_facts_rising", zero=found.recent_zero, answers=found.recent)
        if was_rising and not rises:
            self._report("extraction.zero_facts_settled", zero=found.recent_zero, answers=found.recent)
        return totals
