"""Chat services that publish to a stream while things are killed, each like a careful one, but none tidy.

Every turn is sent again until the stream has it; then it counts as said. Now and then an old one is sent once
more, a known id comes with other words, or something comes that is no message at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import nats

from daemon.bus.subjects import CONTROL_SUBJECTS, TURN_SUBJECTS
from tests.faults.checker import Said
from tests.system.daemon_process import Publisher, a_close, a_turn, publisher_to

# The stream forgets ids so soon that a message sent again later is stored again.
DEDUP_WINDOW_S = 2.0
# Of each hundred turns: sent twice in a row, sent again later, contradicted, followed by rubbish.
TWICE, LATER, CONTRADICTED, RUBBISH = 4, 6, 2, 2


async def create_stream(url: str, dedup_window_s: float = DEDUP_WINDOW_S) -> None:
    """The daemon's stream, as an operator makes it, with a short window for duplicates."""
    client = await nats.connect(url)
    try:
        subjects = [TURN_SUBJECTS, CONTROL_SUBJECTS]
        await client.jetstream().add_stream(name="MEMFOREST", subjects=subjects, duplicate_window=dedup_window_s)
    finally:
        await client.close()


@dataclass(slots=True)
class Crowd:
    """Sessions of several users, published side by side, in step with what is killed."""

    rng: random.Random
    url: Callable[[], str]
    sessions: int
    users: int
    turns: int
    kills_at: Sequence[int] = ()  # acknowledged turns after which each kill comes
    said: Said = field(default_factory=Said)
    repeated: int = 0
    retries: int = 0
    reached: list[anyio.Event] = field(init=False)
    survived: list[anyio.Event] = field(init=False)

    def __post_init__(self) -> None:
        """One pair of events a kill."""
        self.reached = [anyio.Event() for _ in self.kills_at]
        self.survived = [anyio.Event() for _ in self.kills_at]

    async def publish(self) -> None:
        """Everything, to the end; returns when the stream has it all."""
        async with anyio.create_task_group() as tasks:
            for session in range(self.sessions):
                # Each has a generator of its own: who comes when depends on the machine, what is sent does not.
                tasks.start_soon(self._publish_session, session, random.Random(self.rng.randrange(2**32)))

    async def _publish_session(self, session: int, rng: random.Random) -> None:
        user_id, session_id = f"user{session % self.users}", f"s{session}"
        count = self.turns // self.sessions + (session < self.turns % self.sessions)
        async with publisher_to(self.url) as publisher:
            voice = _Voice(self, publisher, rng, user_id, session_id)
            for number in range(count):
                await self._until_allowed()
                await anyio.sleep(rng.random() * 0.002)  # sessions overtake one another
                await voice.say(number)
                self._count()
            await publisher.send(a_close(user_id, session_id), f"{session_id}-close")
            self.retries += publisher.retries

    def _count(self) -> None:
        """Whoever waits to kill goes on at once, while other turns are under way."""
        for place, reached in zip(self.kills_at, self.reached, strict=True):
            if self.said.count >= place:
                reached.set()

    async def _until_allowed(self) -> None:
        """Not beyond the next kill before the last one is survived, or the kills would outlast the turns."""
        for place, survived in zip(self.kills_at[1:], self.survived, strict=False):
            if self.said.count >= place:
                await survived.wait()


@dataclass(frozen=True, slots=True)
class _Voice:
    """One session's publisher. Turns of every other session have no id of their own, only their messages do."""

    crowd: Crowd
    publisher: Publisher
    rng: random.Random
    user_id: str
    session_id: str

    async def say(self, number: int) -> None:
        """One turn, and what comes with it by chance."""
        content = f"In session {self.session_id} I said number {number}."
        await self._send(number, content)
        self.crowd.said.turns[self.user_id, self.session_id].append(content)
        chance = self.rng.randrange(100)
        if chance < TWICE:
            await self._send(number, content)
            self.crowd.repeated += 1
        elif chance < TWICE + LATER:
            again = self.rng.randrange(number + 1)
            await self._send(again, f"In session {self.session_id} I said number {again}.")
            self.crowd.repeated += 1
        elif chance < TWICE + LATER + CONTRADICTED and self._has_ids:
            await self._contradict(number)
        elif chance < TWICE + LATER + CONTRADICTED + RUBBISH:
            rubbish = f"rubbish {number} of {self.session_id}".encode()
            subject = f"memforest.turns.{self.user_id}.{self.session_id}"
            await self.publisher.publish(subject, rubbish, f"{self.session_id}-{number}-rubbish")
            self.crowd.said.undecodable.add(rubbish)

    async def _send(self, number: int, content: str) -> None:
        ids = {"id": f"t{number}"} if self._has_ids else {}
        turn = a_turn(self.user_id, self.session_id, content, **ids)
        await self.publisher.send(turn, f"{self.session_id}-{number}")

    async def _contradict(self, number: int) -> None:
        """The id of a turn that is there, with other words, in a message of its own."""
        content = f"In session {self.session_id} I never said number {number}."
        turn = a_turn(self.user_id, self.session_id, content, id=f"t{number}")
        await self.publisher.send(turn, f"{self.session_id}-{number}-contradiction")
        self.crowd.said.contradictions.add(content)

    @property
    def _has_ids(self) -> bool:
        return int(self.session_id[1:]) % 2 == 1


def kills_among(rng: random.Random, turns: int, kills: int) -> list[int]:
    """A place for each kill, spread over the turns and not before the first of them."""
    step = turns // (kills + 1)
    return [step * number + rng.randrange(step) for number in range(1, kills + 1)]
