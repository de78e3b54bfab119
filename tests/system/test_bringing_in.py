"""What people bring in with commands, all the way: over the bus, into memory, and back to where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.system.daemon_process import DaemonProcess, memforest, running_daemon, short_folder

MEM0 = {"results": [{"id": "x-1", "memory": "Alice is allergic to nuts.", "created_at": "2024-01-02T03:04:05Z"}]}
CHAT = [
    {"messages": [{"role": "user", "content": "I bought Rex, a dog."}], "id": "c-1", "created_at": 1719824400},
    {"messages": [{"role": "user", "content": "I sold Mia, a cat."}], "id": "c-2", "created_at": 1719834400},
]
CONFLICT = {
    "type": "turn",
    "id": "m-1",
    "user_id": "alice",
    "session_id": "s9",
    "role": "user",
    "content": "No dog.",
}


async def imported(daemon: DaemonProcess, file: Path) -> dict[str, Any]:
    ended = await memforest(daemon, "import", str(file), "--user", "alice", "--wait", "--json")
    assert ended.code == 0, ended
    shown: dict[str, Any] = json.loads(ended.output)
    return shown


async def test_what_was_brought_in_is_there_once_and_leads_back_to_its_message_on_the_bus() -> None:
    with short_folder() as folder:
        memories, chat, conflict = folder / "mem0.json", folder / "chat.jsonl", folder / "native.jsonl"
        memories.write_text(json.dumps(MEM0))
        chat.write_text("\n".join(map(json.dumps, CHAT)))
        conflict.write_text(json.dumps(CONFLICT))
        async with running_daemon(folder / "d") as daemon:
            first = [await imported(daemon, file) for file in (memories, chat)]
            again = await imported(daemon, chat)
            added = await memforest(daemon, "add", "alice", "A dog.", "--session", "s9", "--id", "m-1", "--wait")
            told = await memforest(daemon, "publish", str(conflict), "--wait")
            async with daemon.client() as client:
                known = (await client.facts("alice")).facts
                (bought,) = [fact for fact in known if fact.sessions == ("c-1",)]
                (taken,) = [fact for fact in known if fact.sessions == ("import",)]
                why, why_taken = await client.why("alice", bought.id), await client.why("alice", taken.id)
                tree = await client.tree("alice", "c-1")

        (turn,) = why.facts[0].readings[0].turns
        assert ([shown["duplicates"] for shown in first], again["duplicates"]) == ([0, 0], 2)
        assert (turn.session_id, turn.text) == ("c-1", "user: I bought Rex, a dog.")
        assert turn.bus is not None
        assert turn.bus.stream == "MEMFOREST"
        assert (taken.text, why_taken.facts[0].readings[0].how) == ("Alice is allergic to nuts.", "imported")
        assert (tree.kind, tree.root.text) == ("session", turn.text)
        assert added.output.startswith("Turn m-1 of session s9 of alice added"), added
        assert (told.code, "other words" in told.errors) == (1, True), told
