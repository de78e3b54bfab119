"""What forgetting costs in a large store: its acceptance against an ordinary append, its erasing, and the scan.

While something is erased someone asks all the time, and every answer is looked at: an unclean one ends the run.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median

import anyio

from daemon.asking.answers import Answerer
from daemon.asking.query_params import QueryParams
from daemon.erasure.fingerprints import Fingerprints
from daemon.erasure.forgetting import Forgetter
from daemon.erasure.receipts import Receipt
from daemon.erasure.residue import IsKept, ScanResult, scan
from daemon.logs import quiet
from daemon.memories import Memories
from daemon.offline.embedder import HashingEmbedder
from events.envelope import NewEvent, identify
from events.log import GROUP_EVENTS_MAX, EventLog
from events.memory import Admission, ExtractedFact, FactsAdmitted, FactsExtracted, Mention, Pointer
from events.session import TurnRecorded, TurnRetracted, UserForgotten
from projections.facts.chunking import make_chunk_key
from projections.memory import MemoryParameters
from projections.recall.agpr import NO_EMBEDDER
from tests.benchmarks.measuring import Figure, Row, Spent, Watch, median_cpu, median_wall, ms, percentile, sized
from tests.benchmarks.samples import SESSION_GAP_MS, Speech, append_all, turns_of
from tests.builders import KEYS, MONDAY, SECRET, ManualClock, a_closing, a_forgetting, seeded_nonces
from tests.scripted_bus import erasing_without_a_server

# 101,500 events, 69 of 100 turns: 20 turns, their end, 7 extractions and an admission a session.
USERS, SESSIONS, SESSION_TURNS, CHUNK_TURNS = 100, 35, 20, 3
ROUNDS = 40
# Whose Memories are here, and hide what is forgotten at once.
LOADED_USERS = 10
# Stands in every turn of the session, and the user, that are erased while someone asks.
MARKER = "Quexalto"
MARKED_SUBJECTS = (("user1", "s1"), ("user2", None))
MARKED = {("user1", "s1"), *(("user2", f"s{n}") for n in range(SESSIONS))}


def measure(share: float) -> list[Row]:
    """A store that is grown once: acceptances in one copy of it, erasing in another."""
    with tempfile.TemporaryDirectory(prefix="mf-bench-") as name:
        folder = Path(name)
        events = anyio.run(_grow, folder / "accepting" / "events.db", sized(USERS, share, 3))
        shutil.copytree(folder / "accepting", folder / "erasing")
        return [
            *anyio.run(_measure_acceptance, folder / "accepting", sized(ROUNDS, share, 2), events),
            *anyio.run(_measure_erasing, folder / "erasing", events),
        ]


async def _open(folder: Path) -> EventLog:
    return await EventLog.open(folder / "events.db", ManualClock(), seeded_nonces(1), SECRET)


async def _grow(path: Path, users: int) -> int:
    path.parent.mkdir()
    log = await _open(path.parent)
    for n in range(users):
        speech, events = Speech(n), list[NewEvent]()
        for session in range(SESSIONS):
            events += _session(speech, f"user{n}", session, log.head + len(events) + 1)
            if len(events) > GROUP_EVENTS_MAX:
                await append_all(log, events)
                events.clear()
        await append_all(log, events)
    await log.close()
    return log.head


def _session(speech: Speech, user_id: str, number: int, first_seq: int) -> list[NewEvent]:
    """The events of a session; `first_seq` is that of its first turn."""
    session_id = f"s{number}"
    said = turns_of(
        speech, session_id, SESSION_TURNS, user_id=user_id, started_at=MONDAY + number * SESSION_GAP_MS
    )
    if (user_id, session_id) in MARKED:
        said = [_mark(turn) for turn in said]
    events = [*said, a_closing(session_id, user_id=user_id)]
    admissions = list[Admission]()
    for at in range(0, len(said), CHUNK_TURNS):
        chunk = said[at : at + CHUNK_TURNS]
        key = make_chunk_key(KEYS.key(turn.key) for turn in chunk)
        seqs = tuple(range(first_seq + at, first_seq + at + len(chunk)))
        facts = tuple(_fact(n, turn) for n, turn in enumerate(chunk))
        pointers = (Pointer(first_seq + len(events), n) for n in range(len(facts)))
        admissions += [
            Admission(identify(b"mf.fact", key, n.to_bytes(4, "big")), pointer)
            for n, pointer in enumerate(pointers)
        ]
        extracted = FactsExtracted(1, key, seqs, (), seqs, None, "offline", facts)
        events.append(replace(said[0], event=extracted, key=f"facts/1/{key.hex()}", basis=0))
    decided = FactsAdmitted(1, tuple(admissions))
    return [*events, replace(said[0], event=decided, key=f"admission/{user_id}/{session_id}", session_id=None)]


def _text(turn: NewEvent) -> str:
    assert isinstance(turn.event, TurnRecorded)
    return turn.event.content


def _mark(turn: NewEvent) -> NewEvent:
    assert isinstance(turn.event, TurnRecorded)
    return replace(turn, event=replace(turn.event, content=f"{MARKER} {turn.event.content}"))


def _fact(number: int, turn: NewEvent) -> ExtractedFact:
    sentence = _text(turn).split(".")[0]
    return ExtractedFact(
        f"{sentence}.", (number,), turn.happened_at, turn.happened_at, mentions=(Mention(sentence.split()[-1]),)
    )


async def _measure_acceptance(folder: Path, rounds: int, events: int) -> list[Row]:
    """From the wish to the moment from which nothing is shown, nothing being erased meanwhile."""
    log = await _open(folder)
    memories = Memories(log, MemoryParameters(), quiet)
    users = [f"user{n}" for n in range(min(LOADED_USERS, rounds))]
    for user in users:
        await memories.catch_up(KEYS.user(user))
    extra = turns_of(Speech(1_000), "another", 2 * rounds, user_id=users[0])
    ordinary, forgetting, retracting = list[Spent](), list[Spent](), list[Spent]()
    for n in range(rounds):
        user, session = users[n % len(users)], f"s{2 + n // len(users)}"
        ordinary.append(await _spend(log, extra[2 * n], lambda: None))
        hide = partial(memories.hide, KEYS.user(user), KEYS.session(user, session))
        forgetting.append(await _spend(log, a_forgetting(session, user_id=user), hide))
        ordinary.append(await _spend(log, extra[2 * n + 1], lambda: None))
        retraction, turn = _retraction(user, f"s{SESSIONS - 1 - n // len(users)}", n % SESSION_TURNS)
        retracting.append(await _spend(log, retraction, partial(memories.hide_turn, KEYS.user(user), turn)))
    await log.close()
    return [
        row
        for name, spent in (
            (f"accepting a wish to forget a session of {SESSION_TURNS} turns", forgetting),
            ("accepting that a turn is retracted", retracting),
        )
        for row in _acceptance_rows(f"{name}, {rounds} times", spent, ordinary, events)
    ]


def _retraction(user_id: str, session_id: str, number: int) -> tuple[NewEvent, bytes]:
    wish = a_forgetting(session_id, user_id=user_id)
    turn_key = f"turn/{user_id}/{session_id}/t{number}/0"
    return replace(wish, event=TurnRetracted(KEYS.key(turn_key)), key=f"retract/{turn_key}"), KEYS.key(turn_key)


async def _spend(log: EventLog, event: NewEvent, hide: Callable[[], None]) -> Spent:
    watch = Watch()
    await log.append_event(event)
    hide()
    return watch.read()


def _acceptance_rows(name: str, spent: list[Spent], ordinary: list[Spent], events: int) -> list[Row]:
    of = f"an ordinary append of one event, {events:,} events in the store"
    return [
        Row(
            f"{name}, {kind}",
            middle(spent) / middle(ordinary),
            of,
            (Figure(f"acceptance_{unit}", ms(middle(spent))), Figure(f"append_{unit}", ms(middle(ordinary)))),
            goal=2.0,
        )
        for kind, unit, middle in (("wall", "ms", median_wall), ("CPU", "cpu_ms", median_cpu))
    ]


class _TimedScan:
    """The scan, with its time and its size."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.bytes_read = 0

    async def search(self, folder: Path, samples: Fingerprints, is_kept: IsKept) -> ScanResult:
        watch = Watch()
        result = await scan(folder, samples, is_kept)
        self.seconds += watch.read().wall_s
        self.bytes_read += result.bytes_read
        return result


@dataclass(slots=True)
class _Asking:
    """Someone who asks for what is being erased, again and again."""

    answerer: Answerer
    user_id: str
    waits_s: list[float] = field(default_factory=list[float])

    async def ask(self) -> str:
        """One answer."""
        watch = Watch()
        answer = await self.answerer.query(QueryParams(user_id=self.user_id, query=f"What about {MARKER}?", k=20))
        self.waits_s.append(watch.read().wall_s)
        return repr(answer.memories)

    async def go_on(self) -> None:
        """For ever; every question here is put after the acceptance."""
        while True:
            assert MARKER.lower() not in (await self.ask()).lower(), "an answer with words that were forgotten"
            await anyio.sleep(random.uniform(0, 0.02))


async def _measure_erasing(folder: Path, events: int) -> list[Row]:
    """A session, then a user: until the receipt is there, with questions all the while."""
    log = await _open(folder)
    memories = Memories(log, MemoryParameters(), quiet)
    answerer = Answerer(KEYS, log, memories, HashingEmbedder(), NO_EMBEDDER, lambda _: 0, ManualClock())
    rows: list[Row] = []
    for user_id, session_id in MARKED_SUBJECTS:
        timed, asking = _TimedScan(), _Asking(answerer, user_id)
        erasing = replace(erasing_without_a_server(log, folder, ManualClock(), quiet), search=timed.search)
        forgetter = Forgetter(erasing, memories, wait_s=600)
        assert MARKER.lower() in (await asking.ask()).lower(), "there was something to forget"
        receipt, erased_s = await _erase(log, memories, forgetter, asking, session_id)
        assert receipt.complete, "erased and proven"
        rows.append(_erasing_row(receipt, erased_s, timed, asking, events))
    await log.close()
    return rows


async def _erase(
    log: EventLog, memories: Memories, forgetter: Forgetter, asking: _Asking, session_id: str | None
) -> tuple[Receipt, float]:
    """The receipt, and the seconds from the wish to it."""
    done = list[tuple[Receipt, float]]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memories.follow)
        watch = Watch()
        await _accept(log, memories, asking.user_id, session_id)
        if session_id is not None:  # of a forgotten user nobody can ask
            tasks.start_soon(asking.go_on)
        tasks.start_soon(forgetter.run)
        # Asked again it is the same wish, and we wait for the receipt of the first.
        receipt = await (
            forgetter.forget_user(asking.user_id)
            if session_id is None
            else forgetter.forget(asking.user_id, session_id)
        )
        done.append((receipt, watch.read().wall_s))
        tasks.cancel_scope.cancel()
    return done[0]


async def _accept(log: EventLog, memories: Memories, user_id: str, session_id: str | None) -> None:
    if session_id is not None:
        await log.append_event(a_forgetting(session_id, user_id=user_id))
        memories.hide(KEYS.user(user_id), KEYS.session(user_id, session_id))
        return
    wish = replace(
        a_forgetting(user_id=user_id), event=UserForgotten(), session_id=None, key=f"forget_user/{user_id}"
    )
    await log.append_event(wish)
    memories.hide_user(KEYS.user(user_id))


def _erasing_row(receipt: Receipt, erased_s: float, timed: _TimedScan, asking: _Asking, events: int) -> Row:
    answers = asking.waits_s[1:]
    figures = [
        Figure("erasing_ms", ms(erased_s)),
        Figure("scan_ms", ms(timed.seconds)),
        Figure("scan_mb", timed.bytes_read / 1e6),
        Figure("scan_mb_per_s", timed.bytes_read / 1e6 / timed.seconds),
        Figure("windows", receipt.scan_windows),
        Figure("words", receipt.words_erased),
    ]
    if answers:
        figures += [
            Figure("clean_answers", len(answers)),
            Figure("answer_ms_p50", ms(median(answers))),
            Figure("answer_ms_p99", ms(percentile(answers, 0.99))),
        ]
    name = (
        f"erasing a {'user' if receipt.tombstone.session is None else 'session'} of {receipt.events_voided} events"
    )
    return Row(f"{name}, {events:,} in the store, wall", erased_s / timed.seconds, "its scan", tuple(figures))
