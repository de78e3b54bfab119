"""A thousand markers wherever people's words can be: each is in no file once it is retracted or forgotten.

Turns, names, metadata, captions, revisions, conflicts, duplicates, dead letters and ids; facts, summaries and
groups repeat them. Looked for from outside, in every file of the data directory and the bus's store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from daemon.bus.subjects import control_subject, encode_token, turn_subject
from memforest import AsyncClient
from tests.stored import stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    publisher_to,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
)

# The second letter is written as two bytes, or escaped.
_FOUND = re.compile(rb"qx(?:\xc3\xa9|\\u00e9)(\d{4})", re.IGNORECASE)
DONE_WITHIN_S = 60.0


@dataclass(slots=True)
class Speech:
    """The messages of one session of one user, and the markers in them."""

    user: str
    session: str
    numbers: Iterator[int]
    markers: set[int] = field(default_factory=set)
    turns: int = 0

    def mark(self) -> str:
        """The next marker."""
        number = next(self.numbers)
        self.markers.add(number)
        return f"Qxé{number:04}"

    def turn(self, turn_id: str, revision: int = 0) -> dict[str, Any]:
        """A turn with a marker in every field that may hold one."""
        content = [
            {"type": "text", "text": f"Doctor {self.mark()} showed me the lamp of Marta in Porto."},
            {"type": "image_url", "image_url": {"url": "https://example.org/1.png"}, "caption": self.mark()},
        ]
        return {
            "role": "user",
            "content": content,
            "id": turn_id,
            "revision": revision,
            "name": self.mark(),
            "metadata": {"seen": [self.mark()]},
        }

    def send_turns(self, *turns: dict[str, Any]) -> tuple[str, bytes]:
        """Subject and payload; every other message is written in ASCII."""
        body = {"type": "turns", "user_id": self.user, "session_id": self.session, "turns": list(turns)}
        self.turns += len(turns)
        text = json.dumps(body, ensure_ascii=self.turns % 2 == 0)
        return turn_subject(self.user, self.session), text.encode()

    def send_broken(self) -> tuple[str, bytes]:
        """A message that becomes a dead letter."""
        broken = f'{{"type": "turn", "id": "{self.mark()}", "content": "{self.mark()} wrote this"'
        return turn_subject(self.user, self.session), broken.encode()

    def send_control(self, kind: str, **more: str) -> tuple[str, bytes]:
        body = {"type": kind, "user_id": self.user, "session_id": self.session, **more}
        return control_subject(self.user, self.session), json.dumps(body).encode()


def everything_said(speech: Speech, turns: int, others: int) -> list[tuple[str, bytes]]:
    """Turns, then of some another wording, a contradiction and a copy; dead letters; the end."""
    said = [speech.turn(f"t{number}") for number in range(turns)]
    messages = [speech.send_turns(*said[at : at + 8]) for at in range(0, turns, 8)]
    copies = messages[: max(1, others // 8)]
    for number in range(others):
        messages.append(speech.send_turns(speech.turn(f"t{number}", revision=1)))
        messages.append(speech.send_turns(speech.turn(f"t{turns - 1 - number}")))
        messages.append(speech.send_broken())
    speech.turns = turns
    return [*messages, *copies, speech.send_control("session.close")]


async def publish(publisher: Publisher, messages: Sequence[tuple[str, bytes]], mark: str = "") -> None:
    """Each under an id of its own, so that the stream keeps copies, too."""
    for number, (subject, payload) in enumerate(messages):
        await publisher.publish(subject, payload, f"{mark}{number}-{hash(payload)}")


def found_in(folder: Path) -> set[int]:
    """The markers that stand in any file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {int(number) for path in files for number in _FOUND.findall(path.read_bytes())}


def files_with(folder: Path, *texts: str) -> list[str]:
    """The files that hold one of these texts."""
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return [path.name for path, content in files.items() if any(text.encode() in content for text in texts)]


def markers_of(path: Path, event_type: str) -> set[int]:
    """The markers in the words of the events of a type."""
    rows = stored_rows(
        path,
        "SELECT w.text FROM words w JOIN events e ON e.seq = w.seq WHERE e.type = ? AND w.text IS NOT NULL",
        event_type,
    )
    return {int(number) for (text,) in rows for number in _FOUND.findall(text)}


async def until_erased(daemon: DaemonProcess) -> None:
    """Nothing waits to be erased from tables, files or bus."""

    async def is_erased() -> bool:
        statement = """SELECT (SELECT count(*) FROM erasures WHERE erased IS NULL)
            + (SELECT count(*) FROM voids WHERE erases IN (1, 2)) + (SELECT count(*) FROM unwanted)"""
        return stored_rows(daemon.store_path, statement) == [(0,)]

    await until(is_erased, DONE_WITHIN_S, "the erasing does not come to its end")


async def until_everything_is_built(
    daemon: DaemonProcess, client: AsyncClient, speeches: Sequence[Speech]
) -> None:
    """All messages are read, and facts, summaries and groups are made."""
    letters = "SELECT count(*) FROM letters"
    wanted = sum(speech.turns for speech in speeches)
    users = {speech.user for speech in speeches}

    async def is_read() -> bool:
        bus = (await client.request("status", {}))["bus"]
        return int(bus["read_to"]) > 0 and bus["lag_messages"] == 0

    for user in users:
        await until_recorded(client, user, sum(speech.turns for speech in speeches if speech.user == user))
    await until(is_read, DONE_WITHIN_S)
    for user in users:
        await until_built(client, user)
        await client.compact(user, 0.5)
        await until_built(client, user)
    assert wanted > 0
    assert stored_rows(daemon.store_path, letters) > [(0,)]


@pytest.mark.timeout(240)
async def test_a_thousand_markers_are_in_no_file_after_retracting_and_forgetting() -> None:
    numbers = count()
    # Ids of users and sessions are markers, too.
    zoe = f"Qxé{next(numbers):04}"
    kept = Speech("alice", "spring", numbers)
    retracted = Speech("alice", "spring", numbers)
    forgotten = Speech("alice", f"Qxé{next(numbers):04}", numbers)
    whole = [Speech(zoe, "one", numbers), Speech(zoe, "two", numbers)]
    messages = [
        kept.send_turns(*(kept.turn(f"k{number}") for number in range(6))),
        retracted.send_turns(*(retracted.turn(f"r{number}") for number in range(12))),
        retracted.send_turns(retracted.turn("r3", revision=2)),
        *everything_said(forgotten, turns=88, others=20),
        *[message for speech in whole for message in everything_said(speech, turns=32, others=8)],
        kept.send_control("session.close"),
    ]
    speeches = [kept, forgotten, *whole]
    kept.turns += 12
    session_marker, user_marker = {1}, {0}
    everything = set(range(next(numbers)))
    print(f"{len(everything)} markers in {len(messages)} messages")
    with short_folder() as folder:
        async with (
            running_daemon(folder / "d") as daemon,
            daemon.client() as client,
            publisher_to(daemon.bus_url) as publisher,
        ):
            await publish(publisher, messages)
            await publish(publisher, messages[1:3], "again")
            await until_everything_is_built(daemon, client, speeches)
            assert len(everything) >= 1_000
            assert files_with(folder, encode_token(forgotten.session))
            assert found_in(folder) >= everything - session_marker - user_marker
            for made in (
                "facts.extracted",
                "interval.summarised",
                "nodes.merged",
                "turn.conflicted",
                "turn.revised",
            ):
                assert markers_of(daemon.store_path, made) & forgotten.markers, made

            for number in range(12):
                await publish(publisher, [retracted.send_control("turn.retract", turn_id=f"r{number}")])
            await until(lambda: are_voided(daemon, 12), DONE_WITHIN_S)
            await until_erased(daemon)
            await until_built(client, "alice")
            left = found_in(folder)
            assert left & retracted.markers == set()
            assert left >= everything - retracted.markers - session_marker - user_marker, "and theirs only"

            receipt = await client.forget_session("alice", forgotten.session)
            await until_built(client, "alice")
            await until_erased(daemon)
            left = found_in(folder)
            assert (receipt.complete, receipt.residues, receipt.dead_letters_erased) == (True, 0, 20)
            assert left & (forgotten.markers | retracted.markers) == set()
            assert left >= kept.markers.union(*(speech.markers for speech in whole))

            receipt = await client.forget_user(zoe)
            await until_erased(daemon)
            assert (receipt.complete, receipt.residues, receipt.dead_letters_erased) == (True, 0, 16)
            assert found_in(folder) - session_marker - user_marker == kept.markers
            assert await daemon.stop() == 0

        # Until it is stopped, or for two and a half minutes, the bus's index names the subjects, and so the ids.
        assert found_in(folder) == kept.markers
        assert files_with(folder, encode_token(forgotten.session), encode_token(zoe)) == []


async def are_voided(daemon: DaemonProcess, turns: int) -> bool:
    """So many turns were taken back."""
    return stored_rows(daemon.store_path, "SELECT count(*) FROM retractions") == [(turns,)]
