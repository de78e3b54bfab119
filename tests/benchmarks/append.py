"""What an event costs in the log, against the same rows put into the same tables without thinking."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio

from events.envelope import NewEvent
from events.log import GROUP_EVENTS_MAX, EventLog
from events.schema import open_writer
from tests.benchmarks.measuring import Figure, Row, Spent, Watch, median_cpu, median_wall, ms, sized
from tests.benchmarks.samples import Speech, append_all, fresh_log, turns_of
from tests.builders import MONDAY, a_forgetting

# Events appended by so many tasks at once: one at a time an event costs an fsync, so there are fewer.
LOADS = {1: 256, 32: 2_048, 256: 4_096}
REPEATS = 3
SESSION_TURNS = 100
STORE_EVENTS = 20_000
FORGETTINGS = 24
# Tables that grow with every event, in the order of their rows; the other two hold a row a user or session.
GROWING = ("events", "words", "names", "turns", "lineage")


def measure(share: float) -> list[Row]:
    """Appending with 1, 32 and 256 tasks, and the acceptance of a wish to forget."""
    rows = [row for appenders, count in LOADS.items() for row in _measure_load(appenders, sized(count, share, 8))]
    return [*rows, *anyio.run(_measure_forgetting, share)]


def _measure_load(appenders: int, count: int) -> list[Row]:
    ours, grouped, single = list[Spent](), list[Spent](), list[Spent]()
    transactions = anyio.run(_count_transactions, appenders, count)
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory(prefix="mf-bench-") as folder:
            spent, rows = anyio.run(_append, appenders, count)
            ours.append(spent)
            grouped.append(_insert_raw(Path(folder) / "grouped.db", rows, count, GROUP_EVENTS_MAX))
            if appenders == 1:
                single.append(_insert_raw(Path(folder) / "single.db", rows, count, 1))
    per_second = Figure("ours_events_per_s", count / median_wall(ours))
    grouping = Figure("events_per_transaction", count / transactions)

    def against(name: str, of: str, raw: list[Spent]) -> list[Row]:
        walls = (Figure("ours_ms", ms(median_wall(ours))), Figure("raw_ms", ms(median_wall(raw))))
        cpus = (Figure("ours_cpu_ms", ms(median_cpu(ours))), Figure("raw_cpu_ms", ms(median_cpu(raw))))
        return [
            Row(f"{name}, wall", median_wall(ours) / median_wall(raw), of, (*walls, per_second, grouping)),
            Row(f"{name}, CPU", median_cpu(ours) / median_cpu(raw), of, cpus),
        ]

    name = f"{count:,} events by {appenders} task{'s' * (appenders > 1)}"
    rows_of = against(name, f"the same rows raw, {GROUP_EVENTS_MAX} events a transaction", grouped)
    return [*rows_of, *against(name, "the same rows raw, a transaction an event", single)] if single else rows_of


def _events(count: int) -> list[NewEvent]:
    speech = Speech(1)
    sessions = -(-count // SESSION_TURNS)
    return [turn for n in range(sessions) for turn in turns_of(speech, f"s{n}", SESSION_TURNS)][:count]


async def _run_appenders(log: EventLog, events: Sequence[NewEvent], appenders: int) -> None:
    async def append_share(share: Sequence[NewEvent]) -> None:
        for event in share:
            await log.append_event(event)

    async with anyio.create_task_group() as tasks:
        for n in range(appenders):
            tasks.start_soon(append_share, events[n::appenders])


async def _append(appenders: int, count: int) -> tuple[Spent, dict[str, list[tuple[object, ...]]]]:
    events = _events(count)
    async with fresh_log() as (log, _):
        watch = Watch()
        await _run_appenders(log, events, appenders)
        return watch.read(), await log.read(_read_tables)


async def _count_transactions(appenders: int, count: int) -> int:
    """Transactions, each with one fsync of the write-ahead log; in a run of its own, since listening costs."""
    statements = Counter[str]()
    async with fresh_log() as (log, _):
        await log.write(lambda db: db.set_trace_callback(lambda text: statements.update([text])))
        await _run_appenders(log, _events(count), appenders)
        await log.write(lambda db: db.set_trace_callback(None))
    return statements["COMMIT"]


def _read_tables(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    order = {"lineage": "seq", "turns": "seq"}
    return {
        table: connection.execute(f"SELECT * FROM {table} ORDER BY {order.get(table, 'rowid')}").fetchall()
        for table in GROWING
    } | {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("users", "sessions")}


def _insert_raw(path: Path, tables: dict[str, list[tuple[object, ...]]], count: int, group: int) -> Spent:
    """The same rows into a store of the same schema and settings, nothing looked up and nothing hashed."""
    connection = open_writer(path, MONDAY)
    marks = {table: ",".join("?" * len(rows[0])) for table, rows in tables.items()}
    try:
        watch = Watch()
        for at in range(0, count, group):
            connection.execute("BEGIN IMMEDIATE")
            for table, rows in tables.items():
                start, end = (min(n, count) * len(rows) // count for n in (at, at + group))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks[table]})", rows[start:end])
            connection.execute("COMMIT")
        return watch.read()
    finally:
        connection.close()


async def _measure_forgetting(share: float) -> list[Row]:
    """A wish to forget closes the gate in the moment it is accepted; that must not take long."""
    size, rounds = sized(STORE_EVENTS, share, 400), sized(FORGETTINGS, share, 2)
    sessions = size // SESSION_TURNS
    rounds = min(rounds, sessions // 2)
    ordinary, forgetting = list[Spent](), list[Spent]()
    async with fresh_log() as (log, _):
        await append_all(log, _events(size))
        extra = turns_of(Speech(2), "another", rounds)
        for n in range(rounds):
            ordinary.append(await _spend(log, extra[n]))
            forgetting.append(await _spend(log, a_forgetting(f"s{2 * n}")))
    of = f"an ordinary append, {size:,} events in the store"
    name = f"accepting a wish to forget {SESSION_TURNS} turns"
    return [
        Row(
            f"{name}, {kind}",
            median_of(forgetting) / median_of(ordinary),
            of,
            (
                Figure(f"forget_{unit}", ms(median_of(forgetting))),
                Figure(f"append_{unit}", ms(median_of(ordinary))),
            ),
            goal=2.0,
        )
        for kind, unit, median_of in (("wall", "ms", median_wall), ("CPU", "cpu_ms", median_cpu))
    ]


async def _spend(log: EventLog, event: NewEvent) -> Spent:
    append = partial(log.append_event, event)
    watch = Watch()
    await append()
    return watch.read()
