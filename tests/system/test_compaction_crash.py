"""A daemon that dies in the middle of a compaction that somebody asked for, and one whose model misbehaves."""

from __future__ import annotations

from collections import Counter

import anyio

from memforest import AsyncClient, MemForestError
from tests.stored import stored_rows
from tests.stub_models.process import running_stub_process
from tests.system.daemon_process import (
    DaemonProcess,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    short_folder,
    until,
    until_built,
    until_recorded,
    verify,
)

USER, SESSION = "alice", "s1"
FACTS, CONCURRENCY = 40, 3
OFFLINE = {"MEMFOREST_EVENTTREE_ONLINE": "false", "MEMFOREST_MODELS_CONCURRENCY": str(CONCURRENCY)}


async def learn(daemon: DaemonProcess) -> None:
    async with publisher_to(daemon.bus_url) as publisher:
        for number in range(FACTS):
            content = f"This is the sentence number {number} of a long conversation about {number} birds."
            await publisher.send(a_turn(USER, SESSION, content, id=f"t{number}"), f"m{number}")
        await publisher.send(a_close(USER, SESSION), "close")
    async with daemon.client() as client:
        await until_recorded(client, USER, FACTS)
        await until_built(client, USER)


def merged(daemon: DaemonProcess) -> int:
    return Counter(kind for (kind,) in stored_rows(daemon.store_path, "SELECT type FROM events"))["nodes.merged"]


async def test_a_kill_in_the_middle_keeps_the_groups_that_were_made_and_asking_again_makes_the_others() -> None:
    async with running_stub_process("--latency", "0.25") as stub:
        with short_folder() as folder:
            daemon = DaemonProcess(folder / "d", environ={**stub.environ(), **OFFLINE})
            await daemon.start()
            await learn(daemon)
            async with daemon.client() as client:
                told = await client.compact(USER, 0.5, dry_run=True)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(compact_in_vain, daemon)

                    async def is_half_done() -> bool:
                        running = (await client.status(USER)).compaction
                        return running is not None and running.fused >= told.groups // 3

                    await until(is_half_done, 20, "the compaction does not get on")
                    await daemon.kill()
            kept = merged(daemon)
            await daemon.start()
            async with daemon.client() as client:
                done = await client.compact(USER, 0.5)
                units = await client.units(USER)
            asked = (await stub.stats())["calls"]["merge"]
            await daemon.stop()

            assert told.groups // 3 <= kept < told.groups == len(units.groups)
            assert (done.groups, done.nodes_after) == (told.groups - kept, told.nodes_after)
            assert merged(daemon) == told.groups, "none was made twice"
            assert told.groups <= asked <= told.groups + CONCURRENCY, "no more calls are repeated than were out"
            assert_equal(await verify(daemon.folder), users=1)


async def compact_in_vain(daemon: DaemonProcess) -> None:
    """Ask for a compaction whose answer never comes."""
    async with AsyncClient(daemon.socket_path) as client:
        try:
            await client.compact(USER, 0.5)
        except MemForestError:
            return
    raise AssertionError("the daemon was to die before")


async def test_a_hostile_model_makes_no_group_but_of_its_members_own_words() -> None:
    async with running_stub_process() as stub:
        with short_folder() as folder:
            daemon = DaemonProcess(folder / "d", environ={**stub.environ(), **OFFLINE})
            await daemon.start()
            await learn(daemon)
            await stub.set_faults("injection#12,other_language#12,wrong_schema")
            async with daemon.client() as client:
                done = await client.compact(USER, 0.5)
                units = await client.units(USER)
                facts = {fact.id: fact.text for fact in (await client.facts(USER, limit=100)).facts}
            await daemon.stop()

            assert done.groups == done.extractive == len(units.groups) > 5
            for group in units.groups:
                assert group.extractive
                assert all(facts[member] in group.text for member in group.members)
