"""Forgetting a session from end to end: what is shown, what is taken, and what stands in the files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memforest import AsyncClient
from memforest.errors import Conflict
from tests.nats_server import running_server
from tests.stored import damage, stored_bytes, stored_rows
from tests.system.daemon_process import (
    BUILT_WITHIN_S,
    DaemonProcess,
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
# Stands in every field of the session to be forgotten, so that what stays of it is found in the files.
MARKER = "Quexalto"
SECRET_SESSION = f"{MARKER}-therapy"
SECRET_SUBJECT = f"memforest.turns.{USER}.{SECRET_SESSION}"
# Said in the forgotten session and in one that stays.
SHARED = "I am allergic to peanuts."

SURVIVORS: dict[str, tuple[str, ...]] = {
    "spring": (
        "I live in Lisbon with my sister Marta.",
        "I work as a baker in Porto.",
        "My brother Paul bought a red bicycle.",
        "I plan to visit Japan in April 2025.",
    ),
    "summer": (
        SHARED,
        "Marta moved to Berlin in June 2024.",
        "I started to learn Italian.",
        "My cat Felix was ill last week.",
    ),
    "autumn": (
        "I prefer tea to coffee.",
        "Paul sold his red bicycle to Anna.",
        "I work as a teacher in Lisbon now.",
        "Felix is healthy again.",
    ),
}
SECRETS = (
    f"I see Doctor {MARKER} every Monday because of my sleep.",
    SHARED,
    f"{MARKER} told me to leave my job in Porto.",
    f"Marta knows about {MARKER} and drives me there.",
)


def a_session(session_id: str, said: Sequence[str], month: int) -> list[dict[str, object]]:
    """Turns with every field filled, two minutes apart, and the closing."""
    secret = session_id == SECRET_SESSION
    more: dict[str, object] = (
        {"agent_id": f"{MARKER}-bot", "metadata": {MARKER: [MARKER]}, "name": f"Alice {MARKER}"}
        if secret
        else {"name": "Alice"}
    )
    turns = [
        a_turn(
            USER,
            session_id,
            content,
            id=f"{session_id}-{number}",
            timestamp=f"2024-{month:02}-01T09:{2 * number:02}:00Z",
            **more,
        )
        for number, content in enumerate(said)
    ]
    return [*turns, a_close(USER, session_id)]


def conversation(*, with_secrets: bool) -> list[dict[str, object]]:
    """The sessions in the order of their months; the secret one stands between the others."""
    spring, summer, autumn = SURVIVORS
    secrets = a_session(SECRET_SESSION, SECRETS, 5) if with_secrets else []
    return [
        *a_session(spring, SURVIVORS[spring], 4),
        *secrets,
        *a_session(summer, SURVIVORS[summer], 7),
        *a_session(autumn, SURVIVORS[autumn], 10),
    ]


AFTERWARDS = a_session("winter", ("I like rain.", "Marta likes snow."), 12)
SECRET_TURN = a_session(SECRET_SESSION, SECRETS, 5)[0]
# Dead letters of the session: half a message, and one with a field of its own.
UNREADABLE = (
    b'{"type":"turn","id":"' + MARKER.encode() + b'","content":',
    json.dumps({**SECRET_TURN, "id": MARKER, MARKER: MARKER}).encode(),
)


async def test_a_forgotten_session_is_gone_from_answers_listings_and_files_and_the_rest_is_as_without_it() -> None:
    with short_folder() as folder:
        async with (
            running_daemon(folder / "d") as daemon,
            daemon.client() as client,
            publisher_to(daemon.bus_url) as publisher,
        ):
            turns = await publish(publisher, conversation(with_secrets=True))
            for broken in UNREADABLE:
                await publisher.publish(
                    f"memforest.turns.{USER}.{SECRET_SESSION}", broken, MARKER + str(len(broken))
                )
            await until_known(client, turns, dead_letters=len(UNREADABLE))
            await until_built(client, USER)
            await client.compact(USER, 0.5)
            assert MARKER.lower() in await everything_shown(client)
            assert MARKER.lower().encode() in stored_bytes(daemon.store_path).lower()

            receipt = await client.forget_session(USER, SECRET_SESSION)
            shown_at_once = await everything_shown(client)
            await until_built(client, USER)

            # Turns, their closing, an extraction of each chunk, and at least one admission.
            found = [daemon.logged(f"forgetting.{name}") for name in ("residue_found", "scan_failed", "wal_busy")]
            assert receipt.complete, (receipt.residues, receipt.bus_messages_left, receipt.waiting_for, found)
            assert receipt.events_voided >= len(SECRETS) + 1 + len(SECRETS) // 2 + 1
            assert receipt.words_erased >= 4 * len(SECRETS)
            assert receipt.names_erased >= receipt.events_voided
            assert MARKER.lower() not in shown_at_once
            assert MARKER.lower() not in await everything_shown(client)
            assert (await client.session(USER, SECRET_SESSION)).state == "forgotten"
            await check_that_nothing_comes_back(daemon, client, publisher)
            assert stored_rows(daemon.store_path, "SELECT count(*) FROM dead_letters") == [(0,)]
            assert_equal(await verify(daemon.folder), users=1)
            await check_against_a_daemon_that_never_knew(folder, client)
            await daemon.stop()
        lose_the_place_on_the_bus(daemon.store_path)
        await daemon.start()
        async with daemon.client() as client:
            await until(lambda: has_read_everything(client))
            await until_built(client, USER)

            assert MARKER.lower() not in await everything_shown(client)
        assert await daemon.stop() == 0
        check_files(daemon)


async def check_that_nothing_comes_back(daemon: DaemonProcess, client: AsyncClient, publisher: Publisher) -> None:
    """The session's turns, old and new, are refused, and its messages do not even become dead letters."""
    refused_before = await refusals(daemon)
    key = (await client.ingest([SECRET_TURN]))[0].keys[0]
    for content in (f"{MARKER} called me.", f"{MARKER} called me."):
        await publisher.send(a_turn(USER, SECRET_SESSION, content), content)
    await publisher.send(a_turn(USER, SECRET_SESSION, f"Again {MARKER}.", id="new"))
    await publisher.publish(SECRET_SUBJECT, b"{" + MARKER.encode())
    await publish(publisher, AFTERWARDS)
    await until(lambda: has_read_everything(client))
    with pytest.raises(Conflict):
        await client.query(USER, "Where?", wait_for=f"turn/{USER}/{SECRET_SESSION}/new/0")
    # The first turn was recorded under its key: it is known, and not recorded again.
    await client.query(USER, "Where?", wait_for=key)
    await until_built(client, USER)

    # The redelivered turn, and two new ones: one of the two with the same Nats-Msg-Id never reached us.
    assert await refusals(daemon) == refused_before + 3
    assert MARKER.lower() not in await everything_shown(client)
    check_files(daemon)


def check_files(daemon: DaemonProcess) -> None:
    """Neither log nor write-ahead log nor what the daemon wrote of itself holds the marker; the bus still may."""
    assert MARKER.lower().encode() not in stored_bytes(daemon.store_path).lower()
    assert MARKER.lower() not in daemon.log_text().lower()


def lose_the_place_on_the_bus(store: Path) -> None:
    """Every message of the stream, those of the forgotten session too, will be delivered once more."""
    damage(store, "DELETE FROM bus_checkpoint")


async def check_against_a_daemon_that_never_knew(folder: Path, client: AsyncClient) -> None:
    """The survivors' facts and trees are those of a store that never saw the session."""
    async with (
        running_daemon(folder / "other") as other,
        other.client() as other_client,
        publisher_to(other.bus_url) as publisher,
    ):
        turns = await publish(publisher, [*conversation(with_secrets=False), *AFTERWARDS])
        await until_known(other_client, turns)
        await until_built(other_client, USER)

        ours = await structures_of(client)

        assert ours == await structures_of(other_client)
        assert "peanuts" in ours[0]


async def test_forgetting_over_the_bus_erases_and_forgetting_on_the_socket_needs_no_bus() -> None:
    with short_folder() as folder:
        async with running_server(folder / "nats") as server:
            await create_stream(folder / "d", server.url)
            async with running_daemon(folder / "d", server.url) as daemon, daemon.client() as client:
                async with publisher_to(server.url) as publisher:
                    turns = await publish(publisher, conversation(with_secrets=True))
                    await until_known(client, turns)
                    await publisher.send({"type": "session.forget", "user_id": USER, "session_id": SECRET_SESSION})
                    await until(lambda: is_erased(daemon, 1))
                await until_built(client, USER)

                assert MARKER.lower() not in await everything_shown(client)
                check_files(daemon)

                await server.kill()
                await daemon.until_ready("down")
                receipt = await client.forget_session(USER, "summer")
                again = await client.forget_session(USER, "summer")
                shown = await everything_shown(client)

                # The words are gone; the copies on the bus wait for it.
                assert (receipt.complete, receipt.waiting_for) == (False, "bus")
                assert receipt.words_erased >= len(SURVIVORS["summer"])
                assert again == receipt
                assert "italian" not in shown
                assert "tea" in shown
                assert b"learn Italian" not in stored_bytes(daemon.store_path)
                assert_equal(await verify(daemon.folder), users=1)

                await server.start()
                await until(lambda: is_erased(daemon, 2), BUILT_WITHIN_S)
                done = await client.forget_session(USER, "summer")

                assert done.complete
                assert done.bus_messages_erased >= len(SURVIVORS["summer"])


async def test_a_daemon_killed_right_after_it_took_the_wish_finishes_erasing_after_its_start() -> None:
    """A reader holds the write-ahead log, so the kill falls between the acceptance and the receipt for certain."""
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            async with daemon.client() as client, publisher_to(daemon.bus_url) as publisher:
                turns = await publish(publisher, conversation(with_secrets=True))
                await until_known(client, turns)
                await until_built(client, USER)
                with a_reader_in_the_way(daemon.store_path):
                    await publisher.send({"type": "session.forget", "user_id": USER, "session_id": SECRET_SESSION})
                    await until(lambda: is_accepted(daemon))
                    await daemon.kill()
            left = stored_bytes(daemon.store_path)
            assert not await is_erased(daemon, 1)
            await daemon.start()
            await until(lambda: is_erased(daemon, 1))
            async with daemon.client() as client:
                await until_built(client, USER)

                assert MARKER.lower() not in await everything_shown(client)
            assert MARKER.encode() in left
            check_files(daemon)
            assert_equal(await verify(daemon.folder), users=1)


async def publish(publisher: Publisher, messages: Sequence[dict[str, object]]) -> int:
    """Publish in order; how many turns there were."""
    for message in messages:
        await publisher.send(message, json.dumps(message))
    return sum(message["type"] == "turn" for message in messages)


async def until_known(client: AsyncClient, turns: int, dead_letters: int = 0) -> None:
    await until_recorded(client, USER, turns)

    async def has_letters() -> bool:
        log = (await client.request("status", {}))["log"]
        return int(log["dead_letters"]) >= dead_letters

    await until(has_letters)


async def everything_shown(client: AsyncClient) -> str:
    """Answers and listings as one lower-case text."""
    # The questions do not contain the marker; it must come from what is kept.
    answers = [
        await client.query(USER, question, k=50)
        for question in ("Whom does Alice see?", "Monday sleep job", "Marta")
    ]
    listings = [
        await client.request(method, {"user_id": USER})
        for method in ("facts.list", "trees.list", "units.list", "sessions.list")
    ]
    return (repr(answers) + repr(listings) + repr(await client.users())).lower()


async def structures_of(client: AsyncClient) -> tuple[str, str]:
    """Facts and trees, sorted and without ids, which differ from store to store.

    Without scenes, too: who is in which depends on what came when.
    """
    facts = (await client.facts(USER, limit=1000)).facts
    told = sorted(repr(replace(fact, id="", group=None, predecessor=None, successor=None)) for fact in facts)
    trees = sorted(repr(replace(tree, id="")) for tree in await client.trees(USER) if tree.kind != "scene")
    return "\n".join(told), "\n".join(trees)


async def refusals(daemon: DaemonProcess) -> int:
    ((count,),) = stored_rows(daemon.store_path, "SELECT coalesce(sum(count), 0) FROM refusals")
    return int(count)


async def is_erased(daemon: DaemonProcess, sessions: int) -> bool:
    rows = stored_rows(daemon.store_path, "SELECT count(*) FROM erasures WHERE erased IS NOT NULL")
    return rows == [(sessions,)]


async def is_accepted(daemon: DaemonProcess) -> bool:
    return stored_rows(daemon.store_path, "SELECT count(*) FROM sessions WHERE forgotten IS NOT NULL") == [(1,)]


async def has_read_everything(client: AsyncClient) -> bool:
    bus = (await client.request("status", {}))["bus"]
    return int(bus["read_to"]) > 0 and bus["lag_messages"] == 0


async def create_stream(folder: Path, url: str) -> None:
    made = await run_command(
        "daemon", "doctor", "--create-stream", "--data", str(folder), environ={"MEMFOREST_BUS_URL": url}
    )
    assert made.code == 0, made


@contextmanager
def a_reader_in_the_way(path: Path) -> Generator[None]:
    """A read transaction that keeps the write-ahead log from being emptied."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT seq FROM head").fetchone()
        yield
    finally:
        connection.close()
