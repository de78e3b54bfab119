"""How SQLite finds the rows of what is erased or folded: by an index and in its order, whatever the log's size."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import partial

import pytest

from events import erasure
from events.bus_copies import read_unwanted, read_unwanted_subjects
from events.hindsight import read_hindsight
from events.ledger import (
    count_parked,
    end_parked,
    find_answer,
    read_parked,
    read_session_usage,
    read_tokens_by_user,
)
from events.log import EventLog
from events.registry import read_waiting_sessions
from tests.builders import KEYS, a_batch, a_forgetting, a_place, a_turn

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    """The steps of a statement's plan, every parameter unknown."""
    parameters = len(set(re.findall(r"\?\d+", statement)))
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * parameters)
    return [str(row[3]) for row in rows]


def plans_of(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> list[list[str]]:
    """The plans of all statements that something runs."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    try:
        work(connection)
    finally:
        connection.set_trace_callback(None)
    return [
        plan_of(connection, each) for each in statements if each.lstrip().startswith(("SELECT", "WITH", "UPDATE"))
    ]


@pytest.mark.parametrize("statement", [erasure._OF_USER, erasure._OF_SESSION], ids=["user", "session"])  # pyright: ignore[reportPrivateUsage]
async def test_a_slice_is_read_in_the_order_of_an_index(log: EventLog, statement: str) -> None:
    """Sorting all that is left for each slice would cost the square of what is forgotten."""
    plan = await log.read(partial(plan_of, statement=statement))

    assert any("SEARCH" in step for step in plan)
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN e") for step in plan), plan


async def test_holes_are_found_by_their_own_index(log: EventLog) -> None:
    """Reading every turn of a user for the few that were retracted would cost each fold as much."""
    await log.append(a_batch(a_turn()))
    plans = await log.read(partial(plans_of, work=partial(read_hindsight, user=ALICE)))
    (holes,) = [plan for plan in plans if any(" t USING" in step for step in plan)]

    assert any("turns_retracted" in step for step in holes), holes


async def test_the_messages_of_an_erasing_are_found_by_their_subject(log: EventLog) -> None:
    await log.append(a_batch(a_turn(bus=a_place(1)), a_forgetting()))
    (plan,) = await log.read(partial(plans_of, work=partial(read_unwanted, subject=S1)))

    assert any("unwanted_by_subject" in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


@pytest.mark.parametrize("work", [read_unwanted_subjects, read_waiting_sessions])
async def test_what_is_looked_for_all_the_time_scans_no_event(
    log: EventLog, work: Callable[[sqlite3.Connection], object]
) -> None:
    plans = await log.read(partial(plans_of, work=work))

    assert plans
    assert not any(step.startswith("SCAN e") and "INDEX" not in step for plan in plans for step in plan), plans


@pytest.mark.parametrize(
    ("work", "index"),
    [
        (partial(find_answer, user=ALICE, request=b"r"), "ledger_by_request"),
        (partial(read_tokens_by_user, day=1), "ledger_by_day"),
        (partial(read_tokens_by_user, day=1), "query_usage_by_day"),
        (partial(read_session_usage, session=S1), "ledger_by_session"),
        (count_parked, "ledger_parked"),
        (read_parked, "ledger_parked"),
        (partial(read_parked, user=ALICE, before=9), "ledger_parked"),
    ],
)
async def test_the_ledger_is_read_by_its_indexes(
    log: EventLog, work: Callable[[sqlite3.Connection], object], index: str
) -> None:
    """It grows with every answer, and budgets, listings and metrics look into it all the time."""
    plans = await log.read(partial(plans_of, work=work))
    tables = re.compile("ledger|query_usage| l$")
    steps = [step for plan in plans for step in plan if tables.search(step)]

    assert any(index in step for step in steps), plans
    assert not any(step.startswith("SCAN") and "INDEX" not in step for step in steps), plans


async def test_what_ends_a_parking_is_found_by_its_place(log: EventLog) -> None:
    """Asked with every answer, also while a thousand pieces are parked."""
    await log.append(a_batch(a_turn()))
    plans = await log.write(partial(plans_of, work=partial(end_parked, seqs=(1,))))

    assert any("PRIMARY KEY" in step or "ledger_parked (seq=" in step for plan in plans for step in plan), plans
