"""What it takes to fold a log into a Memory, against reading, verifying and decoding the same events."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

import anyio

from daemon.folding import PAGE_EVENTS, SLICE_S, fold_from_nothing
from daemon.offline.extraction import extract_facts
from events.envelope import NewEvent, Reference, identify
from events.log import GROUP_EVENTS_MAX, EventLog
from events.memory import Admission, FactsAdmitted, FactsExtracted, Pointer
from events.reading import read_user
from events.session import TurnRecorded
from projections.facts.admission import ADMISSIONS_MAX
from projections.facts.chunking import make_chunk_key
from projections.memory import MemoryParameters
from projections.ports import ChunkText, TurnText
from tests.benchmarks.measuring import (
    Beats,
    Figure,
    Row,
    Spent,
    Watch,
    heartbeat,
    median_cpu,
    median_wall,
    ms,
    percentile,
    sized,
)
from tests.benchmarks.samples import SESSION_GAP_MS, Speech, append_all, fresh_log, turns_of
from tests.builders import KEYS, MONDAY, a_closing

LONG_TURNS = 20_000
# 100,000 events and more, some 60 % of them turns.
SHORT_USERS = 100
SHORT_TURNS = 700
SESSION_TURNS = 20
CHUNK_TURNS = MemoryParameters().chunk_turns
LONG_REPEATS, SHORT_REPEATS = 1, 1
# The loop is not to be held for longer than this (performance.md G11).
STALL_MAX_S = 0.020


def measure(share: float) -> list[Row]:
    """One user with a long past, and many users with a short one."""
    long = anyio.run(partial(_measure, users=1, turns=sized(LONG_TURNS, share, 100), repeats=LONG_REPEATS))
    short = anyio.run(
        partial(
            _measure,
            users=sized(SHORT_USERS, share, 2),
            turns=sized(SHORT_TURNS, share, 60),
            repeats=SHORT_REPEATS,
        )
    )
    return [*short, *long]


async def _measure(users: int, turns: int, repeats: int) -> list[Row]:
    reading, folding, beats = list[Spent](), list[Spent](), Beats()
    async with fresh_log() as (log, _):
        names = [f"user {n}" for n in range(users)]
        for n, name in enumerate(names):
            await grow(log, name, turns, seed=n)
        references = [log.keys.user(name) for name in names]
        for _ in range(repeats):
            reading.append(await _read(log, references))
            async with heartbeat() as some:
                folding.append(await _fold(log, references))
            beats.cpu_s += some.cpu_s
            beats.wall_s += some.wall_s
        events = log.head
    name = f"folding {users} user{'s' * (users > 1)}, {turns:,} turns each"
    figures = (
        Figure("events", events),
        Figure("fold_cpu_us_per_event", median_cpu(folding) / events * 1e6),
        Figure("read_cpu_us_per_event", median_cpu(reading) / events * 1e6),
        Figure("fold_ms", ms(median_wall(folding))),
        Figure("read_ms", ms(median_wall(reading))),
    )
    of = "reading, verifying and decoding the same events"
    return [
        Row(f"{name}, CPU", median_cpu(folding) / median_cpu(reading), of, figures, goal=12.0),
        _stall_row(f"longest stall of the loop, {name}", beats),
    ]


def _stall_row(name: str, beats: Beats) -> Row:
    """Stalls in CPU of the loop's thread: what a neighbour took from us in between does not count."""
    figures = (
        Figure("stall_cpu_ms_max", ms(max(beats.cpu_s))),
        Figure("stall_cpu_ms_p99", ms(percentile(beats.cpu_s, 0.99))),
        Figure("stall_cpu_ms_p50", ms(median(beats.cpu_s))),
        Figure("stall_ms_max", ms(max(beats.wall_s))),
    )
    return Row(
        name, max(beats.cpu_s) / SLICE_S, f"a slice of {ms(SLICE_S):g} ms", figures, goal=STALL_MAX_S / SLICE_S
    )


async def grow(log: EventLog, user_id: str, turns: int, seed: int, first_session: int = 0) -> None:
    """A log as the worker leaves it, written without a Memory: every chunk extracted, every fact admitted."""
    speech, events = Speech(seed), list[NewEvent]()
    for session in range(first_session, first_session + -(-turns // SESSION_TURNS)):
        started_at = MONDAY + session * SESSION_GAP_MS
        said = turns_of(speech, f"s{session}", SESSION_TURNS, user_id=user_id, started_at=started_at)
        events += _with_answers(said, first_seq=log.head + len(events) + 1)
        if len(events) > GROUP_EVENTS_MAX:
            await append_all(log, events)
            events.clear()
    await append_all(log, events)


def _with_answers(said: list[NewEvent], first_seq: int) -> list[NewEvent]:
    """The turns of a session, its end, and what was read from it; `first_seq` is that of the first turn."""
    user_id, session_id = said[0].user_id or "", said[0].session_id or ""
    events = [*said, a_closing(session_id, user_id=user_id)]
    admissions = list[Admission]()
    for at in range(0, len(said), CHUNK_TURNS):
        chunk = said[at : at + CHUNK_TURNS]
        facts = extract_facts(ChunkText(tuple(_turn_text(turn) for turn in chunk)))
        key = make_chunk_key(KEYS.key(turn.key) for turn in chunk)
        seqs = tuple(range(first_seq + at, first_seq + at + len(chunk)))
        seq = first_seq + len(events)
        origin = f"facts/1/{key.hex()}"
        admissions += [
            Admission(identify(b"mf.fact", KEYS.key(origin), n.to_bytes(4, "big")), Pointer(seq, n))
            for n in range(len(facts))
        ]
        extracted = FactsExtracted(1, key, seqs, (), seqs, None, "offline", facts)
        events.append(replace(said[0], event=extracted, key=origin, basis=0))
    for start in range(0, len(admissions), ADMISSIONS_MAX):
        decided = FactsAdmitted(1, tuple(admissions[start : start + ADMISSIONS_MAX]))
        # Without a basis nothing is checked: nobody else decides here.
        event = replace(said[0], event=decided, key=f"admission/{user_id}/{session_id}/{start}", session_id=None)
        events.append(event)
    return events


def _turn_text(turn: NewEvent) -> TurnText:
    assert isinstance(turn.event, TurnRecorded)
    return TurnText(turn.event.role, turn.event.name, turn.happened_at, turn.event.content)


async def _read(log: EventLog, users: list[Reference]) -> Spent:
    watch = Watch()
    for user in users:
        after = 0
        while page := await log.read(partial(read_user, user=user, after=after, limit=PAGE_EVENTS)):
            after = page[-1].user_seq
    return watch.read()


async def _fold(log: EventLog, users: list[Reference]) -> Spent:
    watch = Watch()
    for user in users:
        await fold_from_nothing(log, user, MemoryParameters())
    return watch.read()
