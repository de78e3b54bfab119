"""A daemon that lost everything that can be made again, and gets neither vectors nor answers to make it from."""

from __future__ import annotations

from memforest.structures import MergedPage, Units
from tests.stub_models.process import running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    running_daemon,
    short_folder,
    until_built,
    until_recorded,
    verify,
)

USER, SESSIONS, TURNS = "alice", 2, 40
# A start asks nothing: how JSON is asked for is known.
ENVIRON = {"MEMFOREST_MODELS_CHAT_JSON": "json_schema"}


async def learn(daemon: DaemonProcess) -> None:
    """Facts of two sessions, compacted in the background and then further; one group is taken apart again."""
    async with publisher_to(daemon.bus_url) as publisher:
        for number in range(SESSIONS * TURNS):
            session = f"s{number // TURNS}"
            content = f"I bought {number + 20} pieces of kite number {number % 7 + 50} in Davis yesterday."
            await publisher.send(a_turn(USER, session, content, id=f"t{number}"), f"m{number}")
        for ended in range(SESSIONS):
            await publisher.send(a_close(USER, f"s{ended}"), f"close{ended}")
    async with daemon.client() as client:
        await until_recorded(client, USER, SESSIONS * TURNS)
        await until_built(client, USER)
        await client.compact(USER, 0.6)
        (first, *_) = (await client.merges(USER)).merges
        await client.undo_compaction(USER, [first.group])


async def shown(daemon: DaemonProcess) -> tuple[Units, MergedPage]:
    """All units with their groups, and what the groups say."""
    async with daemon.client() as client:
        await until_built(client, USER)
        return await client.units(USER, limit=1_000), await client.merges(USER, limit=1_000)


async def test_a_rebuild_without_vectors_has_the_same_units_groups_and_digests_and_asks_nothing() -> None:
    async with running_stub_process() as stub:
        with short_folder() as folder:
            async with running_daemon(folder / "d", environ={**stub.environ(), **ENVIRON}) as daemon:
                await learn(daemon)
                before = await shown(daemon)
                await daemon.stop()
                for derived in daemon.folder.glob("derived.db*"):
                    derived.unlink()
                left_behind = await verify(daemon.folder)
                await stub.reset()
                await stub.set_faults("503@embed")
                await daemon.start()
                after, asked = await shown(daemon), await verify(daemon.folder)
                calls = (await stub.stats())["calls"]

    assert before == after
    assert len(before[1].merges) > 10
    assert_equal(left_behind, users=1)
    assert_equal(asked, users=1)
    assert calls.keys() <= {"embed"}
