"""Answers of models as they stand in the log, with what they took: for tests of what is counted."""

from __future__ import annotations

from dataclasses import replace

from events.decisions import PairsJudged
from events.envelope import NewEvent
from events.eventtree import NodesMerged
from events.log import EventLog
from events.memory import FactsExtracted, IntervalSummarised, Usage, WorkParked
from tests.builders import a_batch, a_merge, a_parking, a_summary, a_turn, an_extraction

NOTHING = Usage()
ONE_CALL = Usage(calls=1)


def taking(new: NewEvent, usage: Usage) -> NewEvent:
    """The same answer, for which so much was spent."""
    event = new.event
    assert isinstance(event, FactsExtracted | IntervalSummarised | NodesMerged | WorkParked)
    return replace(new, event=replace(event, usage=usage))


class Answers:
    """Appends turns of one user, and what models made of them."""

    def __init__(self, log: EventLog, user_id: str = "alice") -> None:
        self.log = log
        self.user_id = user_id
        self.count = 0

    async def say(self, session_id: str = "s1") -> int:
        """A turn; its seq."""
        self.count += 1
        turn = a_turn(f"Turn {self.count}.", user_id=self.user_id, session_id=session_id, turn_id=f"t{self.count}")
        await self.log.append(a_batch(turn))
        return self.log.head

    async def extract(
        self,
        facts: int,
        usage: Usage = ONE_CALL,
        *,
        missed: int = 0,
        skipped: bool = False,
        session_id: str = "s1",
    ) -> None:
        """A turn was read, and so many facts were found in it."""
        seq = await self.say(session_id)
        texts = tuple(f"Fact {number} of turn {self.count}." for number in range(facts))
        new = an_extraction((seq,), texts, session_id=session_id, user_id=self.user_id)
        event = new.event
        assert isinstance(event, FactsExtracted)
        read = replace(event, missed=missed, skipped=skipped)
        await self.log.append_event(taking(replace(new, event=read), usage))

    async def park(self, usage: Usage = NOTHING, session_id: str = "s1") -> None:
        """A turn could not be read."""
        seq = await self.say(session_id)
        await self.log.append_event(taking(a_parking((seq,), session_id, user_id=self.user_id), usage))

    async def summarise(self, usage: Usage = NOTHING, *sessions: str) -> None:
        """A summary of these sessions."""
        self.count += 1
        new = a_summary(sessions=sessions or ("s1",), user_id=self.user_id, node=f"node {self.count}")
        await self.log.append_event(taking(new, usage))

    async def judge(self, usage: Usage = NOTHING, *sessions: str) -> None:
        """Readings of these sessions were compared."""
        self.count += 1
        new = a_summary(sessions=sessions or ("s1",), user_id=self.user_id)
        judged = PairsJudged(1, (), (), "offline", usage=usage)
        await self.log.append_event(replace(new, event=judged, key=f"judged/{self.user_id}/{self.count}"))

    async def merge(self, usage: Usage = NOTHING, *sessions: str) -> None:
        """A group of facts of these sessions."""
        self.count += 1
        new = replace(
            a_merge(sessions=sessions or ("s1",), user_id=self.user_id),
            key=f"merge/{self.user_id}/{self.count}",
            basis=None,
        )
        await self.log.append_event(taking(new, usage))
