"""Stores of other releases: migrated whole or not at all, and events nobody here knows (fault matrix row 38)."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import anyio
import pytest

from daemon.bus.embedded_bus import tied_to_this_process
from daemon.folding import fold_from_nothing
from events.envelope import NewEvent
from events.errors import LogDamaged
from events.integrity import check_start
from events.log import EventLog
from events.memory import ExtractedFact, FactsExtracted, Word
from events.migrations import MIGRATIONS
from events.reading import read_user
from events.schema import copies_before_migration
from projections.digests import digest_memory
from tests.builders import (
    KEYS,
    MONDAY,
    SECRET,
    ManualClock,
    a_batch,
    a_turn,
    an_id,
    lineage_of,
    seeded_nonces,
)
from tests.daemon.parts_in_use import ALICE, SMALL, build_parts, running
from tests.stored import damage, stored_bytes, stored_rows
from tests.system.daemon_process import ROOT, command_environment
from tests.waiting import wait_until

BOB = KEYS.user("bob")
# Makes a table and then fills it for ever, so that the process is killed in the middle of the migration.
ENDLESS = """
import sys
from pathlib import Path
from events.migrations import MIGRATIONS
from events.schema import open_writer

FILL = '''WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT randomblob(1000) FROM n'''
open_writer(Path(sys.argv[1]), 0, migrations=(*MIGRATIONS, f'''CREATE TABLE added (x);
DROP TABLE voids;
INSERT INTO added {FILL};
'''))
"""
SPILLED_BYTES = 8 << 20


async def test_a_process_killed_in_the_middle_of_a_migration_leaves_the_store_of_before(
    log_path: Path, clock: ManualClock
) -> None:
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    await log.append(a_batch(*(a_turn(f"words {n}", turn_id=f"t{n}") for n in range(50))))
    await log.close()
    before = stored_rows(log_path, "SELECT * FROM sqlite_master"), stored_rows(log_path, "SELECT * FROM events")
    wal = log_path.with_name("events.db-wal")
    migrating = await anyio.open_process(
        tied_to_this_process([sys.executable, "-c", ENDLESS, str(log_path)]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None,
        env=command_environment({}),
        cwd=ROOT,
    )
    # What does not fit into SQLite's cache is in the write-ahead log by then, without its commit.
    await wait_until(lambda: wal.exists() and wal.stat().st_size > SPILLED_BYTES, 30, "nothing was migrated")
    migrating.kill()
    ended = await migrating.wait()
    (copy,) = copies_before_migration(log_path)
    again = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    await again.read(check_start)
    outcome = await again.append_event(a_turn("after it", turn_id="after"))
    await again.close()

    assert ended == -signal.SIGKILL
    assert stored_rows(log_path, "SELECT * FROM sqlite_master") == before[0]
    assert stored_rows(log_path, "SELECT * FROM events WHERE seq <= 50") == before[1]
    assert stored_rows(log_path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert outcome.seq == 51
    assert stored_rows(copy, "SELECT * FROM events") == before[1], "and what was stands beside it, whole"


@dataclass(frozen=True, slots=True)
class DreamRemembered:
    """What a later release records, and this one has never heard of."""

    wire_name: ClassVar[str] = "dream.remembered"
    version: ClassVar[int] = 1

    content: Word


@dataclass(frozen=True, slots=True)
class LaterClosing:
    """An event that is known here, as a later release writes it."""

    wire_name: ClassVar[str] = "session.closed"
    version: ClassVar[int] = 2

    reason: int


@dataclass(frozen=True, slots=True)
class EarlierExtraction:
    """`facts.extracted` as the first release wrote it: it covered what it read."""

    wire_name: ClassVar[str] = "facts.extracted"
    version: ClassVar[int] = 1

    generation: int
    chunk: bytes
    turns: tuple[int, ...]
    model: Word
    facts: tuple[ExtractedFact, ...]


def of_another_release(event: object, user_id: str = "alice") -> NewEvent:
    """An event as that release appends it: in the chain, with its words where words belong."""
    key = f"other/{type(event).__name__}"
    return NewEvent(user_id, "s1", cast("Any", event), key, MONDAY, lineage_of(["s1"], user_id), basis=2)


UNKNOWN = pytest.mark.parametrize(
    ("event", "named"),
    [
        (DreamRemembered("Xylophon in the sky."), "dream.remembered version 1"),
        (LaterClosing(7), "session.closed version 2"),
    ],
    ids=["type", "version"],
)


@UNKNOWN
async def test_an_event_that_only_a_later_release_knows_stops_its_user_with_a_clear_reason_and_nobody_else(
    log: EventLog, clock: ManualClock, event: object, named: str
) -> None:
    parts = build_parts(log, clock)
    async with running(parts):
        await parts.say("Rex runs.", "Nate swims.", user_id="alice")
        await parts.say("Zoe reads.", "Zoe sings.", user_id="bob")
        await parts.memory("alice")
        await parts.memory("bob")
        await parts.log.append_event(of_another_release(event))
        await wait_until(lambda: bool(parts.reported.fields("memory.fold_failed")))
        with pytest.raises(LogDamaged, match=f"the log holds {named}, which this release does not know"):
            await parts.ask("Rex", "alice")
        recorded = (await log.append_event(a_turn("More.", turn_id="more"))).user_seq
        await parts.say("Zoe runs.", user_id="bob")
        await parts.close(user_id="bob")
        await wait_until(lambda: len(parts.memories.loaded()[BOB].canon.facts) == 3)
        texts = await parts.texts("Zoe runs", "bob")
    await log.read(check_start)  # the daemon starts with such a log, for everybody else

    assert recorded is not None, "what is said is recorded all the same"
    assert "Zoe runs." in " ".join(texts)
    assert ALICE not in parts.memories.loaded()
    reasons = {str(fields["reason"]) for fields in parts.reported.fields("memory.fold_failed")}
    assert len(reasons) == 1, reasons
    assert named in reasons.pop()
    assert "Xylophon" not in str(parts.reported.events)


@pytest.mark.parametrize("fault", ["unknown type", "damaged words"])
async def test_a_session_that_cannot_be_folded_can_be_forgotten_and_then_its_user_goes_on(
    log: EventLog, log_path: Path, clock: ManualClock, fault: str
) -> None:
    """Nothing of the erasing needs to understand what it erases."""
    parts = build_parts(log, clock)
    await parts.say("Zebra.", session_id="s1")
    await parts.say("Rex runs.", session_id="s2")
    if fault == "unknown type":
        await log.append_event(of_another_release(DreamRemembered("Zebra in the sky.")))
    else:
        damage(log_path, "UPDATE words SET text = ? WHERE seq = 1 AND n = 0", b"Zebra!")
    with pytest.raises(LogDamaged):
        await parts.memory()
    async with running(parts):
        receipt = await parts.forgetter.forget("alice", "s1")
    memory = await fold_from_nothing(log, ALICE, SMALL)

    assert receipt.complete
    assert stored_bytes(log_path).count(b"Zebra") == 0
    assert len(memory.nodes.live_rows(frozenset())) == 1


async def test_an_extraction_of_the_first_release_is_folded_as_what_it_says_today(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Upcast on the way from the log; the log keeps it as it was."""
    facts = (ExtractedFact("Rex runs.", (0,), MONDAY, MONDAY), ExtractedFact("Nate swims.", (1,), MONDAY, MONDAY))
    earlier = EarlierExtraction(1, an_id("chunk"), (1, 2), "offline", facts)
    today = FactsExtracted(1, an_id("chunk"), (1, 2), (), (1, 2), None, "offline", facts)
    folded: list[tuple[str, set[int]]] = []
    for name, extraction in (("earlier", earlier), ("today", today)):
        log = await EventLog.open(tmp_path / f"{name}.db", clock, seeded_nonces(1), SECRET)
        try:
            await log.append(a_batch(a_turn("Rex runs.", turn_id="t1"), a_turn("Nate swims.", turn_id="t2")))
            await log.append_event(replace(of_another_release(extraction), key="extraction"))
            memory = await build_parts(log, clock).memory()
            read = list(await log.read(partial(read_user, user=ALICE)))
            folded.append((digest_memory(memory).facts, {memory.pending(), len(memory.waiting_chunks)}))
        finally:
            await log.close()

        assert read[-1].event == today

    assert folded[0] == folded[1]
    rows = stored_rows(tmp_path / "earlier.db", "SELECT version, body FROM events WHERE seq = 3")
    assert rows[0][0] == 1
    assert b"covers" not in rows[0][1]
