"""LoCoMo through the product itself: the conversations go in over the bus, the questions over the socket."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio

from memforest import AsyncClient, Client
from memforest.bench.evidence import Retrieved, recall_at, recall_within, reciprocal_rank
from memforest.locomo import read_locomo
from memforest.publishing import Tally, publish, wait_until_built
from memforest.types import Answer
from tests.quality.locomo import Category, Conversation, Question
from tests.quality.measure import Scores, recall_worded
from tests.system.daemon_process import DaemonProcess, running_daemon

CHARACTERS_PER_TOKEN = 4  # what the daemon counts for a token (README, "Asking")
BUILD_WITHIN_S = 600.0


async def measure_daemon(path: Path, conversations: Sequence[Conversation]) -> list[tuple[Category, Scores]]:
    """Publish the conversations to a daemon of our own and ask all their questions."""
    with tempfile.TemporaryDirectory(prefix="mf-") as folder:
        async with running_daemon(Path(folder)) as daemon:
            await anyio.to_thread.run_sync(_publish, path, daemon)
            async with AsyncClient(daemon.socket_path) as client:
                return [
                    (question.category, await _ask(client, conversation, question))
                    for conversation in conversations
                    for question in conversation.questions
                ]


def _publish(path: Path, daemon: DaemonProcess) -> None:
    sent = Tally()
    with Client(daemon.socket_path) as client:
        for tally in publish(client, read_locomo(path), done=0, id_prefix="locomo"):
            sent = tally
        wait_until_built(client, sent, BUILD_WITHIN_S)


async def _ask(client: AsyncClient, conversation: Conversation, question: Question) -> Scores:
    """Each measure as a user would ask for it: so many memories, or so many characters."""
    user = conversation.conversation_id

    async def first(k: int) -> list[Retrieved]:
        return _retrieved(await client.query(user, question.text, k=k))

    async def fitting(characters: int) -> list[Retrieved]:
        return _retrieved(await client.query(user, question.text, max_tokens=characters // CHARACTERS_PER_TOKEN))

    async def within(characters: int) -> float:
        return recall_within(await fitting(characters), question.gold, characters)

    ten = await first(10)
    return Scores(
        recall_at(await first(5), question.gold, 5),
        recall_at(ten, question.gold, 10),
        recall_at(await first(20), question.gold, 20),
        reciprocal_rank(ten, question.gold),
        await within(2_000),
        await within(4_000),
        await within(8_000),
        recall_worded(await fitting(4_000), question, 4_000),
    )


def _retrieved(answer: Answer) -> list[Retrieved]:
    return [
        Retrieved(frozenset(source.turn_id for source in each.sources if source.turn_id), each.text)
        for each in answer.memories
    ]
