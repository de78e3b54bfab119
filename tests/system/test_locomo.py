"""A long conversation of a public data set, all the way: over NATS, into both structures, out of the socket."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest

from memforest import AsyncClient
from tests.quality.locomo import Conversation, load_conversations, locomo_file
from tests.system.daemon_process import (
    DaemonProcess,
    assert_equal,
    memforest,
    running_daemon,
    short_folder,
    until_built,
    verify,
)

SAMPLE = "conv-26"
QUESTIONS = 150
FOUND_MIN = 100
K = 10
FORGOTTEN = "session_4"


@pytest.fixture
def conversations_file() -> Path:
    path = locomo_file()
    if path is None:
        pytest.skip("LOCOMO_DIR does not name a folder with LoCoMo's conversations")
    return path


async def test_questions_find_their_turns_and_a_forgotten_session_leaves_memory_equal_to_its_log(
    conversations_file: Path,
) -> None:
    conversation = next(one for one in load_conversations(conversations_file) if one.conversation_id == SAMPLE)
    with short_folder() as folder:
        # The command notes how far it came beside the file, and the data set is not ours to write into.
        file = folder / conversations_file.name
        file.symlink_to(conversations_file)
        async with running_daemon(folder / "d") as daemon:
            await _publish(daemon, file, conversation)
            async with daemon.client() as client:
                found = await _questions_found(client, conversation)
                print(f"\n{SAMPLE}: {found} of {len(conversation.questions)} questions found their turn")

                assert len(conversation.questions) == QUESTIONS
                assert found >= FOUND_MIN

                await _forget(client)
            assert_equal(await verify(daemon.folder), users=1)
            assert await daemon.stop() == 0
            # Now against the digests it left.
            assert_equal(await verify(daemon.folder), users=1)


async def _publish(daemon: DaemonProcess, file: Path, conversation: Conversation) -> None:
    began = time.perf_counter()
    published = await memforest(daemon, "publish", str(file), "--sample", SAMPLE, "--wait", "--json")
    assert published.code == 0, published.errors
    receipt = json.loads(published.output)
    turns = sum(len(session.turns) for session in conversation.sessions)
    print(f"\n{SAMPLE}: {turns} turns published and built in {time.perf_counter() - began:.1f} s")

    assert (receipt["turns"], receipt["sessions_closed"]) == (turns, len(conversation.sessions))
    assert receipt["built"] is True


async def _questions_found(client: AsyncClient, conversation: Conversation) -> int:
    """Questions with at least one gold turn among the sources of the first K memories."""
    found = 0

    async def ask(text: str, gold: frozenset[str]) -> None:
        nonlocal found
        answer = await client.query(SAMPLE, text, k=K)
        sources = {source.turn_id for memory in answer.memories for source in memory.sources}
        found += bool(sources & gold)

    async with anyio.create_task_group() as asking:
        for question in conversation.questions:
            asking.start_soon(ask, question.text, question.gold)
    return found


async def _forget(client: AsyncClient) -> None:
    before = await client.session(SAMPLE, FORGOTTEN)
    receipt = await client.forget_session(SAMPLE, FORGOTTEN)
    await until_built(client, SAMPLE)
    facts = await client.facts(SAMPLE, limit=1000)

    assert receipt.complete
    assert receipt.events_voided >= before.turns
    assert receipt.words_erased >= before.turns
    assert FORGOTTEN not in {session for fact in facts.facts for session in fact.sessions}
