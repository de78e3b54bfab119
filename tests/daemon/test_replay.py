"""`memforestd replay`: event by event what changed, from the log alone; no words unless they are asked for."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner, Result

from daemon.folding import fold_from_nothing
from daemon.upkeep.cli_replay import replay_command
from daemon.upkeep.replay import NothingToReplay, Replayed, Span, Step, find_missing, find_users, replay
from events.erasure import erase_slice
from events.errors import InvalidInput, LogDamaged
from events.hindsight import read_hindsight
from events.log import EventLog, LogReader
from events.reading import read_user
from projections.digests import digest_memory
from projections.memory import Memory
from projections.watching import Watch
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_forgetting, seeded_nonces
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.daemon.turn_edits import a_retraction, a_revision
from tests.stored import damage, stored_rows

S1, S2 = (KEYS.session("alice", name) for name in ("s1", "s2"))


async def grow(log: EventLog, clock: ManualClock) -> Parts:
    """Two sessions with facts, trees, summaries and groups, and a second user; all built."""
    parts = build_parts(log, clock)
    async with running(parts):
        for session in ("s1", "s2"):
            said = (f"In {session} came Zoe {number}. Zoe likes Rex." for number in range(6))
            await parts.say(*said, session_id=session)
            await parts.close(session)
        await parts.say("Something else.", user_id="bob")
        await parts.until_done()
        await parts.compactor.compact(ALICE, 0.3)
    return parts


@pytest.fixture
async def store(log_path: Path, clock: ManualClock) -> Path:
    """The data directory of a daemon that stopped."""
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    await grow(log, clock)
    await log.close()
    return log_path.parent


async def replayed(log: LogReader, span: Span | None = None) -> tuple[Replayed, list[Step]]:
    steps: list[Step] = []

    async def show(step: Step) -> None:
        steps.append(step)

    return await replay(log, ALICE, SMALL, span or Span(), show), steps


def run(folder: Path, *arguments: object) -> Result:
    environ = {
        "MEMFOREST_MEMTREE_CHUNK_TURNS": "2",
        "MEMFOREST_MEMTREE_BRANCHING": "3",
        "MEMFOREST_MEMTREE_CONCATENATION_MAX": "0",
    }
    return CliRunner().invoke(replay_command, ["--data", str(folder), *map(str, arguments)], env=environ)


def objects(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_every_event_is_shown_once_and_the_end_is_the_fold(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)
    counted: list[tuple[int, int]] = []
    steps: list[Step] = []

    async def show(step: Step) -> None:
        steps.append(step)

    done = await replay(log, ALICE, SMALL, Span(), show, lambda *counts: counted.append(counts))
    fresh = await fold_from_nothing(log, ALICE, SMALL)

    assert [step.recorded.user_seq for step in steps] == list(range(1, fresh.user_seq + 1))
    assert done.digest == digest_memory(fresh)
    assert (done.events, done.shown, done.missing, done.dirty) == (fresh.user_seq, fresh.user_seq, (), 0)
    assert counted[-1] == (fresh.user_seq, fresh.user_seq)
    founded = [fact for step in steps for fact in step.changes.facts_founded]
    assert sorted(founded) == sorted(fresh.canon.facts)
    assert {digest for step in steps for digest in step.changes.summaries} == set(fresh.forest.summaries)


async def test_a_span_shows_a_part_and_folds_up_to_its_end(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)
    done, steps = await replayed(log, Span(first=3, to=9))

    assert [step.recorded.user_seq for step in steps] == [3, 4, 5, 6, 7, 8, 9]
    assert (done.events, done.shown) == (9, 7)
    assert done.digest == digest_memory(await fold_from_nothing(log, ALICE, SMALL, 9))


async def test_of_a_session_all_is_shown_that_its_words_went_into(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)
    done, steps = await replayed(log, Span(session=S1))
    kinds = Counter(step.recorded.type for step in steps)

    assert all(step.recorded.session == S1 or S1 in step.recorded.lineage for step in steps)
    assert kinds["turn.recorded"] == 6
    assert {"session.closed", "facts.extracted", "facts.admitted", "interval.summarised", "nodes.merged"} <= set(
        kinds
    )
    assert done.shown == len(steps) < done.events


async def test_answers_that_are_not_in_the_log_are_named(parts: Parts, log: EventLog) -> None:
    await parts.say("One.", "Two.")
    await parts.say("Three.", "Four.", session_id="s2")
    memory = await parts.memory()
    done, _ = await replayed(log)
    of_one, _ = await replayed(log, Span(session=S2))

    assert [(missing.task, missing.about) for missing in done.missing] == [
        ("extract", key.hex()) for key in memory.waiting_chunks
    ]
    assert len(done.missing) == 2
    assert len(of_one.missing) == 1


async def test_waiting_facts_and_nodes_without_summary_are_named(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)
    kinds: dict[str, Any] = {}
    for user_seq in range(1, 40):
        memory = await fold_from_nothing(log, ALICE, SMALL, user_seq)
        for missing in find_missing(memory):
            kinds.setdefault(missing.task, missing)

    assert kinds.keys() == {"extract", "admit", "route", "summarise"}
    assert kinds["summarise"].scope is not None


async def test_what_stands_no_more_changes_nothing(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)
    await log.append(a_batch(a_forgetting("s1")))
    done, steps = await replayed(log)
    voided = [step for step in steps if step.voided]

    assert {step.recorded.user_seq for step in voided} == {
        step.recorded.user_seq for step in steps if S1 in step.recorded.lineage
    }
    assert not any(step.changes for step in voided)
    assert done.digest == digest_memory(await fold_from_nothing(log, ALICE, SMALL))


async def test_a_watch_misses_nothing_of_edits_and_erased_words(log: EventLog, clock: ManualClock) -> None:
    """A second look in full finds nothing that the look at the event alone did not."""
    parts = await grow(log, clock)
    await log.append(a_batch(a_revision("In s1 came Rex."), a_retraction("t2"), a_forgetting("s2")))
    await log.write(lambda db: erase_slice(db, S2))
    async with running(parts):
        await parts.say("In s3 came Zoe.", "Zoe likes Rex.", session_id="s3")
        await parts.close("s3")
        await parts.until_done()
    hindsight = await log.read(lambda db: read_hindsight(db, ALICE))
    memory = Memory(ALICE, SMALL, hindsight)
    watch = Watch(memory)
    for recorded in await log.read(lambda db: read_user(db, ALICE, limit=10_000)):
        memory.apply(recorded)
        watch.look(recorded)

        assert not watch.look(), recorded.user_seq
    done, steps = await replayed(log)

    assert digest_memory(memory) == done.digest == digest_memory(await fold_from_nothing(log, ALICE, SMALL))
    assert any(step.recorded.event is None for step in steps)


async def test_a_session_is_found_under_its_user(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)

    assert await find_users(log, None, "s2") == [(ALICE, Span(session=S2))]
    assert {user for user, _ in await find_users(log, None, None)} == {ALICE, KEYS.user("bob")}
    for user_id, session_id in (("nobody", None), ("alice", "s9"), (None, "s9")):
        with pytest.raises(NothingToReplay):
            await find_users(log, user_id, session_id)


async def test_a_position_that_the_log_does_not_have_is_refused(log: EventLog, clock: ManualClock) -> None:
    await grow(log, clock)
    with pytest.raises(InvalidInput):
        await replayed(log, Span(to=10_000))
    before, _ = await replayed(log, Span(to="1999-01-01T00:00:00Z"))

    assert before.events == 0


async def test_a_damaged_event_is_named(store: Path) -> None:
    damage(
        store / "events.db",
        "UPDATE events SET happened_at = happened_at + 1 WHERE user_seq = 7 AND user = ?",
        ALICE,
    )
    log = await LogReader.open_to_read(store / "events.db")
    try:
        with pytest.raises(LogDamaged, match="user_seq 7"):
            await replayed(log)
    finally:
        await log.close()
    result = await anyio.to_thread.run_sync(run, store, "--user", "alice")

    assert result.exit_code == 65
    assert "user_seq 7" in result.stderr


def test_json_is_one_object_a_line_with_the_digest_at_the_end(store: Path) -> None:
    *steps, end = objects(run(store, "--user", "alice", "--json"))

    assert [step["user_seq"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0]["type"] == "turn.recorded"
    assert steps[0]["session_id"] == "s1"
    assert steps[0]["changes"]["chunks_opened"] == [S1.hex()]
    assert steps[0]["what"]["characters"] == len("In s1 came Zoe 0. Zoe likes Rex.")
    assert end["summary"]["events"] == len(steps)
    assert end["digest"]["user_seq"] == len(steps)
    assert end["missing"] == []


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_words_are_shown_only_when_they_are_asked_for(store: Path, form: tuple[str, ...]) -> None:
    """Entities' names are words, too; ids of users and sessions are not."""
    without, with_them = run(store, *form), run(store, "--texts", *form)

    for word in ("Zoe", "zoe", "Rex", "rex", "likes", "Something"):
        assert word not in without.output, word
    assert "Zoe likes Rex." in with_them.output
    assert "entity zoe" in with_them.output
    assert "entity 1" in without.output


def test_words_of_a_forgotten_session_are_shown_to_nobody(store: Path, log_path: Path) -> None:
    async def forget() -> None:
        log = await EventLog.open(log_path, ManualClock(), seeded_nonces(1), SECRET)
        await log.append(a_batch(a_forgetting("s1")))
        await log.close()

    anyio.run(forget)
    for form in ((), ("--json",)):
        output = run(store, "--texts", "--session", "s1", "--user", "alice", *form).output

        assert "came Zoe" not in output
        assert "erased" in output


def test_lines_for_people_say_what_changed(store: Path) -> None:
    lines = run(store, "--user", "alice").stdout.splitlines()

    assert lines[0].split()[:4] == ["1", "2024-07-01T09:00:00Z", "turn.recorded", "s1"]
    assert lines[1].strip().startswith("chunk opened in session: ")
    assert any(line.strip().startswith("chunk closed: ") for line in lines)
    assert any("facts joined, 0 left" in line for line in lines)
    assert any(line.strip().startswith("groups made: ") for line in lines)
    assert lines[-1].startswith("digest at user_seq ")


def test_a_missing_answer_is_an_error_only_when_strict(log_path: Path) -> None:
    async def say() -> None:
        log = await EventLog.open(log_path, ManualClock(), seeded_nonces(1), SECRET)
        await build_parts(log, ManualClock()).say("One.", "Two.")
        await log.close()

    anyio.run(say)
    lenient, strict = run(log_path.parent), run(log_path.parent, "--strict")
    key = next(iter(objects(run(log_path.parent, "--json"))[-1]["missing"]))["about"]

    assert (lenient.exit_code, strict.exit_code) == (0, 1)
    assert "still to do: 1 answers are not in the log" in lenient.stdout
    assert f"chunk {key} has no extraction" in strict.stdout
    assert "1 answers" in strict.stderr


def test_a_user_seq_without_its_user_is_refused_when_there_are_several(store: Path) -> None:
    result = run(store, "--to", "3")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "--user" in result.stderr
    assert run(store, "--to", "2030-01-01T00:00:00Z").exit_code == 0


def test_steps_are_refused_where_nobody_can_press_enter(store: Path) -> None:
    result = run(store, "--step")

    assert result.exit_code == 2
    assert "terminal" in result.output


def test_on_a_terminal_enter_shows_the_next_step(store: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"\n\n\n")
    program = "from daemon.upkeep.cli_replay import replay_command; replay_command()"
    command = [sys.executable, "-c", program, "--data", str(store), "--user", "bob", "--step"]
    done = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, timeout=30, check=False)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)

    assert done.returncode == 0
    assert shown.index("turn.recorded") < shown.index("bob: 1 events, 1 shown")


def test_a_store_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere")

    assert result.exit_code == 74
    assert "Traceback" not in result.output


async def test_it_reads_beside_the_daemon_and_writes_nothing(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    await grow(log, clock)
    before = stored_rows(log_path, "SELECT seq, running FROM head")
    reader = await LogReader.open_to_read(log_path)
    try:
        done, _ = await replayed(reader)
    finally:
        await reader.close()

    assert done.events == log.head - 1, "one is bob's"
    assert stored_rows(log_path, "SELECT seq, running FROM head") == before
