"""The receipt of an erasing, as an event in the user's chain: what went from which store, and what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from daemon.erasure.residue import ScanResult
from daemon.logs import Report
from events.codec import Event
from events.decisions import FactsRouted, FactsSuperseded, PairsJudged
from events.envelope import NewEvent
from events.erasure import ErasureCounts, Unerased, count_erased, count_voided
from events.eventtree import NodesMerged, UnitsPartitioned
from events.log import EventLog
from events.memory import FactsAdmitted, FactsExtracted, IntervalSummarised
from events.reading import read_events
from events.session import SAID, Erasure, SessionErased, UserErased
from events.time import Instant


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an erasing came to besides what the log itself counts.

    `scanned`: None when there was nothing to look for. `left_until`: when the last message that the bus keeps
    expires. `sampled`: all words were there to be sampled.
    """

    scanned: ScanResult | None
    left_until: Instant | None
    tombstoned: bool
    sampled: bool

    @property
    def is_clean(self) -> bool:
        """Whether no file held any of the samples, as far as there were some."""
        return self.scanned is None or (self.scanned.files > 0 and self.scanned.is_clean)


async def record_receipt(
    log: EventLog,
    clock: Callable[[], Instant],
    report: Report,
    forgotten: Unerased,
    outcome: Outcome,
    *,
    again: bool = False,
) -> None:
    """Record what became of a subject; `again`: in place of a receipt by which something was left."""
    counts = await log.read(partial(count_erased, subject=forgotten.subject))
    voided = await log.read(partial(count_voided, erased=forgotten))
    admitted_again = await _count_admitted_again(log, forgotten)
    erasure = _sum_up(counts, voided, outcome, admitted_again)
    event = UserErased if forgotten.is_user else SessionErased
    await log.append_event(
        NewEvent(
            user_id=None,
            session_id=None,
            event=event(forgotten.forgotten, erasure),
            key=f"erased/{forgotten.subject.hex()}/{forgotten.forgotten}{'/again' if again else ''}",
            happened_at=clock(),
            user=forgotten.user,  # the names may be gone by now
            session=None if forgotten.is_user else forgotten.subject,
            time_assigned=True,
        )
    )
    report(
        "forgetting.erased",
        events=sum(count for count, _, _ in voided.values()),
        words=counts.words,
        bus_messages=counts.bus_erased,
        residues=erasure.residues,
    )


def _sum_up(
    counts: ErasureCounts, voided: dict[str, tuple[int, int, int]], outcome: Outcome, admitted_again: int
) -> Erasure:
    scanned = outcome.scanned

    def count(*types: type[Event]) -> int:
        return sum(voided.get(kind.wire_name, (0, 0, 0))[0] for kind in types)

    return Erasure(
        first=min((first for _, first, _ in voided.values()), default=0),
        last=max((last for _, _, last in voided.values()), default=0),
        turns=count(*SAID),
        extractions=count(FactsExtracted),
        summaries=count(IntervalSummarised),
        groups=count(NodesMerged),
        decisions=count(FactsAdmitted, FactsRouted, FactsSuperseded, PairsJudged, UnitsPartitioned),
        words=counts.words,
        names=counts.names,
        dead_letters=counts.dead_letters,
        bus_erased=counts.bus_erased,
        bus_left=counts.bus_left,
        bus_left_until=outcome.left_until,
        tombstoned=outcome.tombstoned,
        admitted_again=admitted_again,
        scanned_files=scanned.files if scanned else 0,
        scanned_bytes=scanned.bytes_read if scanned else 0,
        windows=scanned.windows if scanned else 0,
        sampled=outcome.sampled,
        # What could not be read may hold anything.
        residues=sum(residue.count for residue in scanned.residues) + len(scanned.unread) if scanned else 0,
    )


async def _count_admitted_again(log: EventLog, forgotten: Unerased) -> int:
    """Facts of other sessions that a voided admission had placed, and that are admitted anew."""
    if forgotten.is_user:
        return 0
    seqs = await log.read(
        lambda db: [
            seq
            for (seq,) in db.execute(
                """SELECT l.seq FROM lineage l JOIN events e ON e.seq = l.seq
                   WHERE l.session = ? AND e.type = 'facts.admitted' AND e.user_seq < ?""",
                (forgotten.subject, forgotten.forgotten),
            )
        ]
    )
    admissions = [
        admission.occurrence.seq
        for recorded in (await log.read(partial(read_events, seqs=seqs))).values()
        if isinstance(recorded.event, FactsAdmitted)
        for admission in recorded.event.admissions
    ]
    own = set(
        await log.read(
            lambda db: [
                seq for (seq,) in db.execute("SELECT seq FROM lineage WHERE session = ?", (forgotten.subject,))
            ]
        )
    )
    return sum(seq not in own for seq in admissions)
