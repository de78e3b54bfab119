"""`verify`: a log that is as it was written is equal, and one that was touched is named where it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from daemon.upkeep.verify import UserVerdict, first_difference, verify
from events.digests import StoredDigest, record_digests
from events.errors import LogDamaged
from events.log import EventLog, LogReader
from projections.digests import MemoryDigest, digest_memory
from tests.builders import KEYS, SECRET, ManualClock, seeded_nonces
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running, running_forgetter
from tests.stored import damage, stored_rows

Ask = Callable[[str], Awaitable[MemoryDigest]]


async def grow(log: EventLog, clock: ManualClock) -> Parts:
    """A store with everything in it: facts, trees, groups, a forgotten session and a second user."""
    parts = build_parts(log, clock)
    async with running(parts):
        for session in ("s1", "s2", "s3"):
            await parts.say(*(f"In {session} came Zoe {number}." for number in range(6)), session_id=session)
            await parts.close(session)
        await parts.say("something else", user_id="bob")
        await parts.until_done()
        await parts.forgetter.forget("alice", "s2")
        await parts.until_done()
        await parts.compactor.compact(ALICE, 0.3)
        await parts.memory()
    return parts


async def leave_digests(parts: Parts) -> None:
    """What the daemon does when it stops."""
    digests = [
        StoredDigest(user, digest.user_seq, digest.facts, digest.scopes, digest.trees, digest.units)
        for user, digest in ((user, digest_memory(each)) for user, each in parts.memories.loaded().items())
    ]
    await parts.log.write(lambda db: record_digests(db, digests))


@pytest.fixture
async def store(log_path: Path, clock: ManualClock) -> Path:
    """A store of a daemon that stopped."""
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    parts = await grow(log, clock)
    await leave_digests(parts)
    await log.close()
    return log_path


async def verified(path: Path, ask: Ask | None = None) -> list[UserVerdict]:
    reader = await LogReader.open_to_read(path)
    try:
        return await verify(reader, SMALL, ask)
    finally:
        await reader.close()


def events_of(path: Path, user_id: str) -> int:
    return int(stored_rows(path, "SELECT user_seq FROM users WHERE user = ?", KEYS.user(user_id))[0][0])


async def test_a_log_as_it_was_written_is_equal_to_what_the_daemon_left(store: Path) -> None:
    assert await verified(store) == [
        UserVerdict("alice", events_of(store, "alice"), True, None),
        UserVerdict("bob", 1, True, None),
    ]


async def test_a_running_daemon_is_asked(log: EventLog, log_path: Path, clock: ManualClock) -> None:
    parts = await grow(log, clock)
    asked: list[str] = []

    async def ask(user_id: str) -> MemoryDigest:
        asked.append(user_id)
        return digest_memory(await parts.memory(user_id))

    verdicts = await verified(log_path, ask)

    assert asked == ["alice", "bob"]
    assert [(verdict.compared, verdict.difference) for verdict in verdicts] == [(True, None), (True, None)]


@pytest.mark.parametrize("part", ["facts", "scopes", "trees", "units"])
async def test_a_live_memory_that_differs_is_named_by_part(
    log: EventLog, log_path: Path, clock: ManualClock, part: str
) -> None:
    parts = await grow(log, clock)

    async def ask(user_id: str) -> MemoryDigest:
        fields = asdict(digest_memory(await parts.memory(user_id)))
        return MemoryDigest(**{**fields, part: "0" * 32})

    alice = (await verified(log_path, ask))[0]

    assert alice.difference is not None
    assert alice.difference.startswith(f"{part}: folded ")
    assert alice.difference.endswith("0" * 32)


async def test_a_memory_that_was_changed_behind_the_logs_back_differs(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    parts = await grow(log, clock)
    memory = await parts.memory()
    memory.canon.facts.pop(next(iter(memory.canon.facts)))

    async def ask(user_id: str) -> MemoryDigest:
        return digest_memory(await parts.memory(user_id))

    assert "facts: folded" in str((await verified(log_path, ask))[0].difference)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE words SET text = CAST('Xylophon' AS BLOB) WHERE seq = 3 AND n = 0", "seq 3"),
        ("UPDATE words SET text = substr(text, 2) WHERE seq = 3 AND n = 0", "seq 3"),
        ("DELETE FROM words WHERE seq = 3 AND n = 0", "seq 3"),
        ("UPDATE words SET nonce = zeroblob(16) WHERE seq = 3", "seq 3"),
        ("UPDATE words SET text = NULL WHERE seq = 3", "seq 3"),
        ("UPDATE events SET body = CAST(replace(body, '0', '1') AS BLOB) WHERE seq = 3", "seq 3"),
        ("UPDATE events SET happened_at = happened_at + 1 WHERE seq = 3", "seq 3"),
        ("UPDATE events SET recorded_at = 0 WHERE seq = 3", "seq 3"),
        ("UPDATE events SET lineage = zeroblob(16) WHERE seq = 3", "seq 3"),
        ("UPDATE events SET chain = zeroblob(32) WHERE seq = 3", "running hash"),
        ("DELETE FROM events WHERE seq = 3", "seq 3 is missing"),
        ("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)", "ends at seq"),
        ("UPDATE head SET seq = seq + 1", "ends at seq"),
        ("UPDATE head SET running = zeroblob(32)", "running hash"),
    ],
)
async def test_what_was_touched_is_named_and_not_quoted(store: Path, statement: str, named: str) -> None:
    damage(store, statement)
    with pytest.raises(LogDamaged, match=named) as raised:
        await verified(store)

    assert "Xylophon" not in str(raised.value)
    assert "Zoe" not in str(raised.value)


async def test_what_was_touched_behind_the_digest_of_an_earlier_stop_is_found_too(
    store: Path, clock: ManualClock
) -> None:
    """The daemon ran on and was killed: the digest it had left says nothing of what came then."""
    log = await EventLog.open(store, clock, seeded_nonces(2))
    later = build_parts(log, clock)
    later.turns = 100
    await later.say("later", session_id="s4")
    seq = log.head
    await log.close()

    alice = (await verified(store))[0]
    damage(store, "UPDATE words SET text = ? WHERE seq = ? AND n = 0", b"forged", seq)
    with pytest.raises(LogDamaged, match=f"seq {seq}"):
        await verified(store)

    assert (alice.events, alice.compared, alice.difference) == (events_of(store, "alice"), True, None)


async def test_a_digest_from_before_a_forgetting_is_not_compared_with_the_fold_that_knows_of_it(
    store: Path, clock: ManualClock
) -> None:
    log = await EventLog.open(store, clock, seeded_nonces(2))
    later = build_parts(log, clock)
    async with running_forgetter(later):
        await later.forgetter.forget("alice", "s1")
    await log.close()
    alice, bob = await verified(store)

    assert (alice.compared, alice.difference) == (False, None)
    assert bob.compared


async def test_a_session_forgotten_between_asking_and_folding_is_no_difference(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    parts = await grow(log, clock)
    asked: list[str] = []

    async def ask(user_id: str) -> MemoryDigest:
        asked.append(user_id)
        digest = digest_memory(await parts.memory(user_id))
        if asked == ["alice"]:
            async with running_forgetter(parts):
                await parts.forgetter.forget("alice", "s1")
        return digest

    verdicts = await verified(log_path, ask)

    assert asked == ["alice", "alice", "bob"]
    assert [verdict.difference for verdict in verdicts] == [None, None]


async def test_without_a_daemon_or_a_digest_the_log_is_folded_and_nothing_compared(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    await grow(log, clock)
    verdicts = await verified(log_path)

    assert [(verdict.compared, verdict.difference) for verdict in verdicts] == [(False, None), (False, None)]


async def test_a_digest_that_was_left_and_changed_differs(store: Path) -> None:
    damage(store, "UPDATE digests SET trees = 'forged' WHERE user = ?", ALICE)

    assert (await verified(store))[0].difference is not None


def test_the_first_difference_is_told_with_both_hashes() -> None:
    one = MemoryDigest(5, "f", "s", "t", "u")

    assert first_difference(one, one) is None
    assert first_difference(one, replace(one, units="v", scopes="r")) == "scopes: folded s, live r"
    assert first_difference(one, replace(one, user_seq=4)) == "user_seq: folded 5, live 4"
