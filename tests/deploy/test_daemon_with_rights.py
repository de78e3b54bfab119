"""The daemon itself, as a process, with the rights that deploy/nats/memforest.conf gives it and no others."""

from __future__ import annotations

from tests.deploy.server_with_rights import Connection, connected, server_with_stream
from tests.system.daemon_process import (
    a_close,
    a_turn,
    running_daemon,
    short_folder,
    until_built,
    until_recorded,
)


async def say(service: Connection, content: str) -> None:
    """A turn of alice's, stored when this returns."""
    body = a_turn("alice", "s1", content)
    assert "error" not in await service.ask("memforest.turns.alice.s1", body)


async def test_turns_of_services_and_of_the_socket_become_memory_with_the_rights_of_the_daemon() -> None:
    with short_folder() as folder:
        async with (
            server_with_stream(folder / "nats") as server,
            running_daemon(folder / "memory", server.url_of("daemon")) as daemon,
            connected(server, "publisher") as publisher,
            connected(server, "controller") as controller,
            daemon.client() as client,
        ):
            await say(publisher, "I moved to Miami.")
            await say(publisher, "My sister Clara lives there too.")
            # The socket's own publishing takes the daemon's rights.
            await client.request("ingest", {"messages": [a_turn("alice", "s2", "We like the sea.")]})
            await client.request("sessions.close", {"user_id": "alice", "session_id": "s2"})
            await controller.ask("memforest.control.alice.s1", a_close("alice", "s1"))
            await until_recorded(client, "alice", 3)
            await until_built(client, "alice")
            answer = await client.query("alice", "Where did I move?")
            sessions = {session.session_id: session.state for session in await client.sessions("alice")}
            denied = server.violations("daemon")
            password_shown = server.passwords["daemon"] in daemon.log_text()

    assert "Miami" in answer.memories[0].text
    assert sessions == {"s1": "closed", "s2": "closed"}
    assert denied == []
    assert not password_shown
