"""A store of an older release becomes today's: nothing that was known is another, and nothing is lost on the way.

`tests/data/schema_1.sql` is a store that schema 1 wrote, with all kinds of answers, parked work, an edit, a replay
and a forgotten session in it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.folding import fold_from_nothing
from daemon.upkeep.restore import restore_backup
from events.appending import append_batches
from events.envelope import NewEvent, RecordedEvent
from events.errors import StoreUnusable
from events.gate import Verdict
from events.integrity import Walk, check_start
from events.ledger import read_parked, read_tokens_by_user
from events.log import EventLog
from events.memory import Usage, WorkParked
from events.migrations import MIGRATIONS
from events.query_usage import Spent, add_query_usage
from events.reading import read_events
from events.registry import read_user_references
from events.schema import APPLICATION_ID, copies_before_migration, open_reader, open_writer
from projections.digests import digest_memory
from projections.memory import MemoryParameters
from projections.memtree.shape import TreeShape
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_resuming, a_turn, an_extraction, seeded_nonces
from tests.stored import stored_rows, stored_tables

SCHEMA_1 = Path(__file__).parent.parent / "data" / "schema_1.sql"
PARAMETERS = MemoryParameters(chunk_turns=2, shape=TreeShape(3), concatenation_max=0)
ALICE, BOB = KEYS.user("alice"), KEYS.user("bob")
S1, S2, S3, S4 = (KEYS.session("alice", f"s{n}") for n in range(1, 5))
B1 = KEYS.session("bob", "b1")
# 2024-07-01: event n was recorded n hours after 9:00 of that day, so 19 to 38 on the next.
MONDAY_DAY = 19_905
# seq, session, task, facts of an extraction, and 0 for an answer, 1 for parked work that stands, 2 for other.
ANSWERS = [
    (19, S1, "extract", 2, 0),
    (20, S1, "extract", 0, 0),
    (21, S2, "extract", 2, 0),
    (22, B1, "extract", 1, 0),
    (23, S3, "extract", 1, 0),
    (24, S2, "extract", None, 1),
    (25, S4, "extract", None, 2),  # a turn of it was edited
    (26, S3, "extract", None, 2),  # its session was forgotten
    (31, S2, "summarise", None, 0),
    (32, S1, "summarise", None, 1),
    (33, None, "summarise", None, 0),
    (35, S2, "merge", None, 0),
    (37, S1, "extract", 1, 0),
    (38, S1, "extract", None, 2),  # its replay is over
]


@pytest.fixture
def old_store(log_path: Path) -> Path:
    with closing(sqlite3.connect(log_path)) as connection:
        connection.executescript(SCHEMA_1.read_text())
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA journal_mode = WAL")
    return log_path


async def opened(path: Path, clock: ManualClock) -> EventLog:
    return await EventLog.open(path, clock, seeded_nonces(6), SECRET)


async def test_the_ledger_is_filled_from_what_was_recorded(old_store: Path, clock: ManualClock) -> None:
    await (await opened(old_store, clock)).close()

    nothing = (0,) * 8
    rows = stored_rows(old_store, "SELECT seq, session, task, facts, parked FROM ledger ORDER BY seq")
    assert rows == ANSWERS
    assert stored_rows(
        old_store,
        """SELECT DISTINCT missed, skipped, calls, prompt_tokens, cached_tokens, completion_tokens, cost_nano,
               latency_ms, request FROM ledger""",
    ) == [(*nothing, None)]
    assert stored_rows(old_store, "SELECT DISTINCT day FROM ledger") == [(MONDAY_DAY + 1,)]
    assert stored_rows(old_store, "SELECT seq FROM ledger WHERE user = ?", BOB) == [(22,)]


async def test_every_memory_is_the_one_that_it_was(old_store: Path, clock: ManualClock) -> None:
    log = await opened(old_store, clock)
    memories = {user: await fold_from_nothing(log, user, PARAMETERS) for user in (ALICE, BOB)}
    walk = Walk()
    await log.read(walk.begin)
    while not await log.read(walk.step):
        pass
    await log.read(check_start)
    await log.close()

    assert set(memories) == {ALICE, BOB}
    for user, user_seq, facts, scopes, trees, units in stored_rows(old_store, "SELECT * FROM digests"):
        digest = digest_memory(memories[user])
        assert (digest.user_seq, digest.facts, digest.scopes) == (user_seq, facts, scopes)
        assert (digest.trees, digest.units) == (trees, units)
    assert memories[ALICE].units.groups
    assert memories[ALICE].forest.summaries
    assert walk.damages == []


async def test_what_was_there_is_as_it_was_and_a_copy_of_it_stands_beside_it(
    old_store: Path, clock: ManualClock
) -> None:
    before = stored_tables(old_store)
    await (await opened(old_store, clock)).close()
    after = stored_tables(old_store)
    (copy,) = copies_before_migration(old_store)

    assert {name: after[name] for name in before} == before
    assert stored_tables(copy) == before
    assert stored_rows(old_store, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert stored_rows(copy, "PRAGMA user_version") == [(1,)]


def test_a_migrated_store_has_the_tables_and_indexes_of_a_new_one(old_store: Path, tmp_path: Path) -> None:
    open_writer(old_store, 0).close()
    open_writer(tmp_path / "new.db", 0).close()

    def schema(path: Path) -> set[tuple[Any, ...]]:
        return {
            (kind, name, " ".join(sql.split()) if sql else None)
            for kind, name, sql in stored_rows(path, "SELECT type, name, sql FROM sqlite_master")
        }

    assert schema(old_store) == schema(tmp_path / "new.db")


def test_a_migration_that_fails_changes_nothing(old_store: Path) -> None:
    before = stored_tables(old_store)
    with pytest.raises(sqlite3.Error):
        _migrate_badly(old_store)

    assert stored_tables(old_store) == before
    assert stored_rows(old_store, "PRAGMA user_version") == [(1,)]


def _migrate_badly(path: Path) -> None:
    try:
        open_writer(path, 0, migrations=(*MIGRATIONS, "CREATE TABLE ledger (again INTEGER);"))
    except Exception as error:
        raise error.__cause__ or error from None


async def test_parked_work_of_the_older_release_can_be_resumed(old_store: Path, clock: ManualClock) -> None:
    log = await opened(old_store, clock)
    assert await log.read(read_parked) == [32, 24]
    events = await log.read(partial(read_events, seqs=(24, 32)))
    verdicts: list[Verdict] = []
    for seq, recorded in sorted(events.items()):
        assert isinstance(recorded.event, WorkParked)
        assert recorded.event.usage == Usage()
        parking = a_resuming(as_new(recorded), seq, basis=37)
        verdicts.append((await log.append_event(parking)).verdict)
    memory = await fold_from_nothing(log, ALICE, PARAMETERS)
    waiting = [chunk.turns for chunk in memory.waiting_chunks.values()]
    left = await log.read(read_parked)
    await log.close()

    assert verdicts == [Verdict.RECORDED] * 2
    assert left == []
    assert (7, 8) in waiting


def as_new(recorded: RecordedEvent) -> NewEvent:
    assert recorded.event is not None
    named = (recorded.user_id, recorded.session_id)
    return NewEvent(*named, recorded.event, "parked", recorded.happened_at, recorded.lineage)


async def test_what_was_answered_before_is_counted_and_cost_nothing(old_store: Path, clock: ManualClock) -> None:
    log = await opened(old_store, clock)
    users = await log.read(read_user_references)
    await log.close()

    counts = "SELECT task, count(*), sum(facts = 0), sum(facts) FROM ledger WHERE parked = 0 GROUP BY task"
    assert set(stored_rows(old_store, counts)) == {
        ("extract", 6, 1, 7),
        ("summarise", 2, None, None),
        ("merge", 1, None, None),
    }
    spent = (
        "SELECT DISTINCT calls, prompt_tokens, cached_tokens, completion_tokens, cost_nano, latency_ms FROM ledger"
    )
    assert stored_rows(old_store, spent) == [(0, 0, 0, 0, 0, 0)]
    assert set(users) == {ALICE, BOB}


async def test_a_backup_of_the_older_release_is_restored_as_a_store_of_today(
    old_store: Path, tmp_path: Path, clock: ManualClock
) -> None:
    restored = restore_backup(old_store, tmp_path / "data", clock(), force=True)
    log = await opened(tmp_path / "data" / "events.db", clock)
    memory = await fold_from_nothing(log, ALICE, PARAMETERS)
    await log.close()

    assert (restored.events, restored.users) == (41, 2)
    ((facts,),) = stored_rows(old_store, "SELECT facts FROM digests WHERE user = ?", ALICE)
    assert digest_memory(memory).facts == facts
    assert copies_before_migration(tmp_path / "data" / "events.db") == []


async def test_a_store_without_what_questions_took_is_as_it_was_and_counts_them_from_now_on(
    log_path: Path, clock: ManualClock
) -> None:
    """Schema 2 had the ledger, and questions were on a budget in memory alone."""
    ledger = MIGRATIONS[:2]
    with closing(open_writer(log_path, clock(), SECRET, ledger)) as connection:
        append_batches(connection, [a_batch(a_turn(), an_extraction((1,)))], KEYS, seeded_nonces(6), clock())
    before = stored_tables(log_path)
    log = await opened(log_path, clock)
    after = stored_tables(log_path)
    await log.write(partial(add_query_usage, spent={Spent(ALICE, MONDAY_DAY, "plan"): Usage(prompt_tokens=5)}))
    tokens = await log.read(partial(read_tokens_by_user, day=MONDAY_DAY))
    await log.close()
    (copy,) = copies_before_migration(log_path)

    assert stored_rows(copy, "PRAGMA user_version") == [(2,)]
    assert (len(before["events"]), len(before["ledger"])) == (2, 1)
    assert after == {**before, "query_usage": []}
    assert tokens == {ALICE: 5}


def test_a_reader_does_not_open_a_store_that_is_to_be_migrated(old_store: Path) -> None:
    with pytest.raises(StoreUnusable, match="memforestd migrate"):
        open_reader(old_store)
