"""kill -9 at every step of forgetting and of retracting: it goes on where it stopped, and nothing comes back.

Fault matrix row 40. By default each bus takes one of the two; with MF_TORTURE=1 both take both.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import nats
import pytest

from daemon.bus.tombstone_bucket import bucket_configuration, bucket_name
from daemon.bus.tombstone_sources import ask_bus
from daemon.config import read_config
from daemon.upkeep.backup import back_up
from daemon.upkeep.restore import Restored, restore_backup
from events.faults import FAULT_POINTS
from tests.builders import MONDAY
from tests.faults.folding import fold
from tests.faults.publishing import create_stream
from tests.nats_server import running_server
from tests.stored import damage, stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_close,
    a_turn,
    publisher_to,
    short_folder,
    until,
    until_built,
    until_recorded,
)
from tests.system.test_forgetting import a_reader_in_the_way

Kind: TypeAlias = Literal["embedded", "outside"]
Deed: TypeAlias = Literal["forget", "retract"]

TORTURE = os.environ.get("MF_TORTURE") == "1"
BY_DEFAULT: tuple[tuple[Kind, Deed], ...] = (("embedded", "forget"), ("outside", "retract"))
THE_OTHERS: tuple[tuple[Kind, Deed], ...] = (("embedded", "retract"), ("outside", "forget"))
# Every point of erasing, in the order in which it is passed; a retraction has no tombstone, scan and receipt.
FORGET_POINTS = tuple(point for point in FAULT_POINTS if point.startswith("erase."))
RETRACT_POINTS = tuple(
    point
    for point in FORGET_POINTS
    if point.split(".")[1] not in ("before_tombstone", "before_scan", "before_receipt")
)
USER, SECRET = "alice", "therapy"
MARKER = "Quexältö"
# More events than a slice has, so that one ends in the middle.
SECRET_TURNS = 160
KEPT = ("I live in Lisbon with my sister Marta.", "I work as a baker.", "Marta moved to Berlin.", "I like tea.")
RETRACTED = f"My doctor is called {MARKER}, like the lamp."
BACKUP = "backup.db"
DONE_WITHIN_S = 60.0


@dataclass(slots=True)
class Scene:
    """A daemon, its bus, and everything that was published to it."""

    folder: Path
    daemon: DaemonProcess
    publisher: Publisher
    deed: Deed
    bodies: list[dict[str, Any]]

    @property
    def outside(self) -> bool:
        """Whether the bus is a server of its own."""
        return self.daemon.url is not None

    async def publish(self, bodies: Sequence[Mapping[str, Any]], again: str = "") -> None:
        """In order; each under an id that only `again` makes another one."""
        for body in bodies:
            await self.publisher.send(body, json.dumps(body) + again)

    async def say_something(self, number: int) -> None:
        """A turn of someone who stays; when it is recorded everything before it was read, too."""
        await self.publish([a_turn("bob", "s1", f"Bob said this for the {number}. time.", id=f"b{number}")])
        async with self.daemon.client() as client:
            await until_recorded(client, "bob", number)

    async def wish(self) -> None:
        """Ask for it over the bus."""
        wish, session = (
            ({"type": "session.forget"}, SECRET)
            if self.deed == "forget"
            else ({"type": "turn.retract", "turn_id": "r"}, "spring")
        )
        body = json.dumps({**wish, "user_id": USER, "session_id": session}).encode()
        await self.publisher.publish(f"memforest.control.{USER}.{session}", body, "wish")

    async def is_done(self) -> bool:
        """Words, files and bus are done, and the receipt is there."""
        open_rows = """SELECT (SELECT count(*) FROM erasures WHERE erased IS NULL)
            + (SELECT count(*) FROM voids WHERE erases IN (1, 2)) + (SELECT count(*) FROM unwanted)"""
        taken = "SELECT (SELECT count(*) FROM erasures) + (SELECT count(*) FROM voids WHERE erases)"
        path = self.daemon.store_path
        return stored_rows(path, open_rows) == [(0,)] and stored_rows(path, taken) > [(0,)]

    async def restore(self, folder: Path) -> Restored:
        """What `memforestd restore BACKUP --data FOLDER` does, without the start of another process."""
        bus = {"MEMFOREST_BUS_URL": self.daemon.url} if self.daemon.url else {"MEMFOREST_BUS_EMBEDDED": "true"}
        known = await ask_bus(read_config(None, {**bus, "MEMFOREST_DATA_DIR": str(folder)}))
        return restore_backup(self.folder / BACKUP, folder, MONDAY, (known,))


@asynccontextmanager
async def a_scene(kind: Kind, deed: Deed, fault: str) -> AsyncGenerator[Scene]:
    """A daemon that has built everything and is backed up; the fault waits."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(short_folder())
        url = None
        if kind == "outside":
            server = await stack.enter_async_context(running_server(folder / "nats"))
            url = server.url
            await create_stream(url)
            await create_bucket(url)
        daemon = DaemonProcess(folder / "d", url, {"MF_FAULT": fault})
        stack.push_async_callback(end, daemon)
        await daemon.start()
        publisher = await stack.enter_async_context(publisher_to(daemon.bus_url))
        scene = Scene(folder, daemon, publisher, deed, said(deed))
        await scene.publish(scene.bodies)
        await scene.say_something(1)
        async with daemon.client() as client:
            await until_built(client, USER)
        back_up(daemon.folder, folder / BACKUP)
        yield scene


async def end(daemon: DaemonProcess) -> None:
    if daemon.exit_code is None:
        await daemon.stop()


async def create_bucket(url: str) -> None:
    """As an operator does it."""
    client = await nats.connect(url)
    name = bucket_name("MEMFOREST")
    bucket = bucket_configuration(f"KV_{name}", f"$KV.{name}.>")
    answer = await client.request(f"$JS.API.STREAM.CREATE.KV_{name}", json.dumps(bucket).encode(), timeout=5)
    await client.close()
    assert "error" not in json.loads(answer.data)


def said(deed: Deed) -> list[dict[str, Any]]:
    """Sessions that stay, and one with a marker in every turn, or a turn with it."""
    spring = [a_turn(USER, "spring", text, id=f"k{number}") for number, text in enumerate(KEPT)]
    if deed == "retract":
        return [*spring[:2], a_turn(USER, "spring", RETRACTED, id="r"), *spring[2:], a_close(USER, "spring")]
    turns = [
        {
            "role": "user",
            "content": f"Doctor {MARKER} showed me lamp {number}.",
            "id": f"t{number}",
            "name": f"Alice {MARKER}",
            "metadata": {MARKER: number},
        }
        for number in range(SECRET_TURNS)
    ]
    secret = [
        {"type": "turns", "user_id": USER, "session_id": SECRET, "turns": turns[at : at + 40]}
        for at in range(0, SECRET_TURNS, 40)
    ]
    return [*spring, a_close(USER, "spring"), *secret, a_close(USER, SECRET)]


def files_with_marker(folder: Path) -> list[str]:
    """Every file that holds the marker, in UTF-8 or escaped, in capitals or not; all but the backup."""
    forms = {form.encode().lower() for word in (MARKER, MARKER.lower()) for form in (word, json.dumps(word)[1:-1])}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != BACKUP]
    return [
        str(path.relative_to(folder)) for path in files if any(form in path.read_bytes().lower() for form in forms)
    ]


def rows_that_stay(path: Path) -> dict[str, dict[object, object]]:
    """Every event as it was written; words and names of what is not to be erased."""
    voided = """SELECT seq FROM lineage WHERE session IN (SELECT subject FROM erasures)
        UNION SELECT seq FROM voids WHERE erases"""
    named = f"SELECT key FROM events WHERE seq IN ({voided}) OR type = 'session.forgotten'"
    return {
        "events": dict(_keyed(path, "SELECT seq, * FROM events")),
        "words": dict(_keyed(path, f"SELECT seq || '/' || n, * FROM words WHERE seq NOT IN ({voided})")),
        "names": dict(
            _keyed(
                path,
                f"""SELECT reference, * FROM names WHERE reference NOT IN ({named})
                    AND reference NOT IN (SELECT subject FROM erasures)""",
            )
        ),
    }


def _keyed(path: Path, statement: str) -> Iterator[tuple[object, object]]:
    for key, *rest in stored_rows(path, statement):
        yield key, tuple(rest)


async def assert_nothing_is_left(scene: Scene, folder: Path | None = None) -> None:
    await until(scene.is_done, DONE_WITHIN_S, "the erasing does not come to its end")
    async with scene.daemon.client() as client:
        await until_built(client, USER)
        answers = [await client.query(USER, question, k=50) for question in ("Whom do I see?", "lamp doctor")]
        lists = [await client.request(method, {"user_id": USER}) for method in ("facts.list", "trees.list")]
    shown = repr(answers) + repr(lists)

    assert MARKER.lower() not in shown.lower()
    assert "Lisbon" in shown
    assert files_with_marker(folder or scene.folder) == []


async def live_through_kills(scene: Scene, points: Sequence[str]) -> None:
    """The daemon that runs is to die at the first point; one life after the other dies at the next."""
    await scene.wish()
    for point in points:
        if point != points[0]:
            scene.daemon.environ["MF_FAULT"] = f"{point}:kill"
            await scene.daemon.launch()
        assert await scene.daemon.ended() == -signal.SIGKILL, (point, scene.daemon.log_text())
        assert not await scene.is_done()
        if point == "erase.before_bus":  # all messages are there still, and all are read again
            damage(scene.daemon.store_path, "DELETE FROM bus_checkpoint")
    del scene.daemon.environ["MF_FAULT"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kind", "deed"), BY_DEFAULT + THE_OTHERS * TORTURE)
async def test_a_kill_at_every_step_of_erasing_leaves_nothing_behind_and_nothing_comes_back(
    kind: Kind, deed: Deed
) -> None:
    points = FORGET_POINTS if deed == "forget" else RETRACT_POINTS
    async with a_scene(kind, deed, f"{points[0]}:kill") as scene:
        daemon, path = scene.daemon, scene.daemon.store_path
        before = rows_that_stay(path)
        assert files_with_marker(scene.folder), "there was something to find"
        await live_through_kills(scene, points)
        with a_reader_in_the_way(path):
            await daemon.start()
            if deed == "forget":
                await until(lambda: is_held_up(scene), DONE_WITHIN_S)
        await assert_nothing_is_left(scene)
        after = rows_that_stay(path)
        for table, rows in after.items():
            assert rows.items() >= {key: row for key, row in before[table].items() if key in rows}.items(), table
        assert before["events"].keys() <= after["events"].keys()
        assert len(before["words"]) > len(set(before["words"]) & set(after["words"])) > len(KEPT)
        verdicts = await fold(daemon.folder, daemon.socket_path)
        assert [(verdict.compared, verdict.difference) for verdict in verdicts] == [(True, None)] * 2
        armed = [line["point"] for line in daemon.logged("daemon.fault_armed")]
        assert armed == list(points)

        # The same messages once more, under the same ids of turns.
        await scene.publish(scene.bodies, again="again")
        await scene.say_something(2)
        await assert_nothing_is_left(scene)
        if deed == "forget" or TORTURE:
            await replay_and_restore(scene)


async def is_held_up(scene: Scene) -> bool:
    """The write-ahead log could not be emptied, and so there is no receipt."""
    assert not await scene.is_done()
    return bool(scene.daemon.logged("forgetting.wal_busy"))


async def replay_and_restore(scene: Scene) -> None:
    """Ways for the past to come back that need another start of the daemon."""
    if TORTURE:  # the bus from its first message on, with copies that nobody has read
        await scene.publish(scene.bodies, again="once more")
        await scene.daemon.stop()
        damage(scene.daemon.store_path, "DELETE FROM bus_checkpoint")
        await scene.daemon.start()
        await scene.say_something(3)
        await assert_nothing_is_left(scene)
    await scene.daemon.stop()

    # The backup from before: in the store's place, and on a machine that has the bus and nothing else.
    if TORTURE:  # by default test_backup_restore.py does it
        restored = await scene.restore(scene.daemon.folder)
        assert restored.tombstones == (
            {"bus": 1, "store": 1} if scene.deed == "forget" else {"bus": 0, "store": 0}
        )
        await restart_and_check(scene)
    await move_to_an_empty_directory(scene)
    await restart_and_check(scene)


async def restart_and_check(scene: Scene) -> None:
    """A restored store holds the marker until its daemon has erased it again."""
    assert files_with_marker(scene.daemon.folder)
    await scene.daemon.start()
    await assert_nothing_is_left(scene, scene.daemon.folder)
    await scene.daemon.stop()


async def move_to_an_empty_directory(scene: Scene) -> None:
    """Restore the backup there. An embedded bus is a directory of its own and comes along."""
    new = scene.folder / "new"
    if not scene.outside:
        shutil.copytree(scene.daemon.folder / "nats", new / "nats")
    restored = await scene.restore(new)
    assert restored.tombstones == {"bus": int(scene.deed == "forget")}
    scene.daemon = DaemonProcess(new, scene.daemon.url)
