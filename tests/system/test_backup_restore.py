"""A store is backed up while it runs and restored when it does not: nothing is lost, nothing forgotten is back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from daemon.upkeep.backup import Backup, back_up
from events.backup import verify_copy
from memforest import AsyncClient
from tests.nats_server import OutsideServer, running_server
from tests.stored import stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    Ended,
    Publisher,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    run_command,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
    verify,
)

USER = "alice"
SESSIONS = ("spring", "summer", "autumn")
FORGOTTEN = "summer"
# A new machine: an embedded bus that has no store yet.
NO_BUS = {"MEMFOREST_BUS_EMBEDDED": "true"}


@asynccontextmanager
async def bus_in(folder: Path) -> AsyncGenerator[OutsideServer]:
    """A server with our stream."""
    async with running_server(folder / "nats") as server:
        await memforestd(folder / "d", server, "doctor", "--create-stream")
        yield server


async def memforestd(data: Path, server: OutsideServer, *arguments: str | Path) -> Ended:
    """Run a command on a data directory."""
    environ = {"MEMFOREST_BUS_URL": server.url}
    return await run_command("daemon", *map(str, arguments), "--data", str(data), environ=environ)


def said_in(session: str, numbers: range) -> list[str]:
    return [f"In {session} I saw {number} birds." for number in numbers]


async def publish(publisher: Publisher, session: str, contents: Sequence[str]) -> None:
    for content in contents:
        await publisher.send(a_turn(USER, session, content, id=content.split()[4]), f"{session} {content}")


def recorded(store: Path) -> list[str]:
    """What was said in the turns of the log, as far as it is there, in its order."""
    rows = stored_rows(
        store,
        """SELECT w.text FROM events e JOIN words w ON w.seq = e.seq AND w.n = 0
           WHERE e.type = 'turn.recorded' AND w.text IS NOT NULL ORDER BY e.seq""",
    )
    return [text.decode() for (text,) in rows]


def bytes_in(folder: Path) -> bytes:
    """All files of a data directory, one behind the other."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def until_all_recorded(daemon: DaemonProcess, turns: int) -> None:
    async def are_there() -> bool:
        assert daemon.exit_code is None, f"the daemon ended with {daemon.exit_code}:\n{daemon.log_text()}"
        return len(recorded(daemon.store_path)) >= turns

    await until(are_there, 60, f"{turns} turns did not arrive")


async def back_up_and_forget(folder: Path, server: OutsideServer) -> dict[str, object]:
    """A daemon's life: turns, a backup, more turns, and a session of the backup is forgotten."""
    async with (
        running_daemon(folder / "d", server.url) as daemon,
        daemon.client() as client,
        publisher_to(server.url) as publisher,
    ):
        for session in SESSIONS:
            await publish(publisher, session, said_in(session, range(4)))
            await publisher.send(a_close(USER, session))
        await until_recorded(client, USER, 12)
        await until_built(client, USER)
        made = await memforestd(daemon.folder, server, "backup", folder / "backup.db", "--json")
        assert made.code == 0, made
        for session in SESSIONS:
            await publish(publisher, session, said_in(session, range(4, 6)))
        await until_recorded(client, USER, 18)
        receipt = await client.request("sessions.forget", {"user_id": USER, "session_id": FORGOTTEN})
        assert receipt["words_erased"] > 0
        assert await daemon.stop() == 0
    described: dict[str, object] = json.loads(made.output)
    return described


async def check_survivors(daemon: DaemonProcess, client: AsyncClient) -> None:
    """Every turn of the other sessions once, and nothing of the forgotten one, in answers and files."""
    others = [content for session in SESSIONS if session != FORGOTTEN for content in said_in(session, range(6))]

    async def is_erased() -> bool:
        return FORGOTTEN.encode() not in bytes_in(daemon.folder)

    await until_all_recorded(daemon, len(others))
    await until(is_erased, 60, "the forgotten session is still in the files")
    await until_built(client, USER)
    answer = await client.query(USER, f"How many birds did I see in {FORGOTTEN}?", k=50)
    sessions = await client.sessions(USER)

    assert Counter(recorded(daemon.store_path)) == Counter(others)
    assert {each.session_id for each in sessions} == {"spring", "autumn"}
    assert FORGOTTEN not in str(answer)
    assert "autumn" in str(answer)
    assert_equal(await verify(daemon.folder), users=1)


@pytest.mark.timeout(240)
async def test_a_restored_store_catches_up_and_what_was_forgotten_since_stays_forgotten() -> None:
    with short_folder() as folder:
        async with bus_in(folder) as server:
            made = await back_up_and_forget(folder, server)
            restored = await memforestd(folder / "d", server, "restore", folder / "backup.db", "--json")
            nowhere = await run_command(
                "daemon", "restore", str(folder / "backup.db"), "--data", str(folder / "new"), environ=NO_BUS
            )

            assert made["forgotten_not_erased"] == 0
            assert FORGOTTEN.encode() in bytes_in(folder / "d")  # as in the backup
            assert restored.code == 0, restored
            assert json.loads(restored.output)["tombstones"]["store"] == 1
            assert json.loads(restored.output)["tombstones_added"] == 1
            assert json.loads(restored.output)["head_seq"] == made["head_seq"]
            assert nowhere.code == 69, nowhere
            assert "--receipts" in nowhere.errors
            assert not (folder / "new" / "events.db").exists()
            async with running_daemon(folder / "d", server.url) as daemon, daemon.client() as client:
                await check_survivors(daemon, client)


async def back_up_in_the_midst(daemon: DaemonProcess, target: Path, after: int, made: list[Backup]) -> None:
    await until_all_recorded(daemon, after)
    made.append(await to_thread.run_sync(partial(back_up, daemon.folder, target)))


@pytest.mark.timeout(240)
async def test_a_backup_made_while_turns_come_in_is_a_prefix_of_the_log_and_a_daemon_goes_on_from_it() -> None:
    turns = 2000
    with short_folder() as folder:
        async with bus_in(folder) as server:
            backups: list[Backup] = []
            async with (
                running_daemon(folder / "d", server.url) as daemon,
                publisher_to(server.url) as publisher,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(back_up_in_the_midst, daemon, folder / "backup.db", 300, backups)
                await publish(publisher, "spring", said_in("spring", range(turns)))
                await until_all_recorded(daemon, turns)
            (made,) = backups
            chains = "SELECT seq, chain FROM events ORDER BY seq LIMIT ?"
            forced = await run_command(
                "daemon",
                "restore",
                str(folder / "backup.db"),
                "--data",
                str(folder / "new"),
                "--force",
                environ=NO_BUS,
            )
            sound = await verify(folder / "new")
            assert 300 <= len(recorded(folder / "backup.db")) < turns
            assert verify_copy(folder / "backup.db").head_seq == made.head_seq
            assert stored_rows(folder / "backup.db", chains, made.head_seq) == stored_rows(
                daemon.store_path, chains, made.head_seq
            )
            assert forced.code == 0, forced
            assert "WARNING" in forced.errors
            assert [(each["events"], each["difference"]) for each in sound] == [(made.events, None)]
            async with running_daemon(folder / "new", server.url) as restored:
                await until_all_recorded(restored, turns)

                assert recorded(restored.store_path) == said_in("spring", range(turns))
                assert_equal(await verify(restored.folder), users=1)
