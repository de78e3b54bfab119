"""A nats-server's index names what was forgotten until it is written anew, and the receipt is incomplete so long.

Real servers, real stores. A server that is stopped writes its index at once, so nobody waits here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.bus.bus_erasure import BusEraser
from daemon.bus.subjects import turn_subject
from daemon.erasure.bus_index import is_bus_index, names_in_index, stands_in_index
from daemon.erasure.forgetting import Forgetter
from daemon.erasure.receipts import Receipt
from events.dead_letters import DeadLetter
from events.envelope import BusPosition
from events.log import EventLog
from tests.builders import SECRET, ManualClock, a_batch, a_turn, seeded_nonces
from tests.bus_in_use import bus_with_stream, fetch_all, unattended_server
from tests.daemon.parts_in_use import Parts, build_parts, running_forgetter

SESSION = "quexalto-therapy"
LETTER = b'{"type": "turn", "session_id": "quexalto-therapy", "content":'


async def index_of(folder: Path, *subjects: str) -> bytes:
    """The index that a stopped server leaves of a stream with a message of each subject."""
    async with unattended_server(folder / "nats") as url, bus_with_stream(url) as bus:
        for subject in subjects:
            await bus.publish(subject, b"{}")
    return read_index(folder)


def read_index(folder: Path) -> bytes:
    """The one index below a data directory."""
    (index,) = folder.rglob("index.db")
    assert is_bus_index(str(index.relative_to(folder)))
    return index.read_bytes()


async def publish(folder: Path, payloads: Sequence[bytes]) -> list[BusPosition]:
    """Messages of the session, in a store whose server is stopped afterwards and so has written its index."""
    async with unattended_server(folder / "nats") as url, bus_with_stream(url) as bus:
        for payload in payloads:
            await bus.publish(turn_subject("alice", SESSION), payload)
        epoch = (await bus.fetch(None)).position
        messages = await fetch_all(bus, None, len(payloads))
    assert epoch is not None
    return [replace(epoch, seq=message.stream_seq) for message in messages]


async def forget_beside_a_server(
    parts: Parts, folder: Path, place: BusPosition, *, user: bool, times: int
) -> list[Receipt]:
    """The receipts from daemons that were started one after the other."""
    receipts: list[Receipt] = []
    async with unattended_server(folder / "nats") as url, bus_with_stream(url) as bus:
        parts.erasing = replace(parts.erasing, folder=folder, bus=BusEraser(bus), position=lambda: place)
        for _ in range(times):
            forgetter = parts.forgetter = Forgetter(parts.erasing, parts.memories, wait_s=20)
            async with running_forgetter(parts):
                wish = forgetter.forget_user("alice") if user else forgetter.forget("alice", SESSION)
                receipts.append(await wish)
    return receipts


@pytest.mark.parametrize("user", [False, True])
async def test_a_receipt_waits_for_the_index_of_the_bus_across_restarts_and_is_complete_once_it_is_written(
    tmp_path: Path, clock: ManualClock, user: bool
) -> None:
    said = b'{"type": "turn", "content": "Quexalto meets me behind the old mill at nine."}'
    turn, letter = await publish(tmp_path, [said, LETTER])
    log = await EventLog.open(tmp_path / "events.db", clock, seeded_nonces(1), SECRET)
    parts = build_parts(log, clock)
    broken = DeadLetter(
        turn_subject("alice", SESSION), LETTER, "the message is not valid JSON", letter, "alice", SESSION
    )
    recorded = a_turn("Quexalto meets me behind the old mill at nine.", session_id=SESSION, bus=turn)
    await log.append(a_batch(recorded, letters=(broken,)))
    before, restarted = await forget_beside_a_server(parts, tmp_path, letter, user=user, times=2)
    # That server has ended, and so the index is written.
    (after,) = await forget_beside_a_server(parts, tmp_path, letter, user=user, times=1)
    await log.close()

    assert (before.bus_messages_erased, before.bus_messages_left, before.residues) == (2, 0, 0)
    assert (before.complete, before.proven, before.waiting_for) == (False, False, "bus_index")
    assert restarted == before
    assert (after.complete, after.proven, after.waiting_for) == (True, True, None)
    assert after.erased_user_seq == before.erased_user_seq, "one receipt in the chain"
    assert not parts.reported.fields("forgetting.residue_found")


async def test_an_index_names_a_session_whole_and_no_other_of_which_it_is_the_beginning(tmp_path: Path) -> None:
    long_one, longer = "s" * 200, "s" * 201
    await index_of(tmp_path, turn_subject("alice", "s10"), turn_subject("alice", longer), turn_subject("bob", "é"))

    def is_there(user_id: str, session_id: str | None) -> bool:
        return stands_in_index(tmp_path, names_in_index(user_id, session_id))

    assert [is_there("alice", each) for each in ("s10", "s1", longer, long_one, None)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert [is_there("bob", each) for each in ("é", "e", None)] == [True, False, True]
    assert [is_there("bo", None), is_there("bobby", None), is_there("ali", "s10")] == [False] * 3


async def test_a_name_across_two_blocks_of_a_large_index_is_found(tmp_path: Path) -> None:
    index = await index_of(tmp_path, *(turn_subject("alice", f"s{number}") for number in range(5)))
    names = names_in_index("alice", "s3")
    found = {stands_in_index(tmp_path, names, block_bytes) for block_bytes in range(1, len(index) + 1)}

    assert found == {True}


def test_an_index_that_cannot_be_read_may_name_anybody(tmp_path: Path) -> None:
    folder = tmp_path / "nats/jetstream/$G/streams/MEMFOREST/msgs"
    (folder / "index.db").mkdir(parents=True)

    assert stands_in_index(tmp_path, names_in_index("alice", "s1"))
