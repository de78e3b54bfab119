"""A benchmark from its first conversation to its last: publish, wait until it is built, ask, forget.

Each conversation is a user of its own, called after data set, run and conversation, and nobody else is touched.
What the log says is done is not done again; what was begun is published again, and the daemon knows each turn by
its id.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import anyio

from memforest import calls
from memforest.bench.asking import Asker, call_patiently
from memforest.bench.daemons import TIMEOUT_S
from memforest.bench.judging import judge_all, judge_one, mark
from memforest.bench.log import BadLog, Begun, Spending
from memforest.bench.records import Built
from memforest.client import AsyncClient
from memforest.errors import Conflict, InvalidInput, MemForestError, NotFound
from memforest.judged import judge_answer
from memforest.native import Record
from memforest.publishing import Tally, publish, wait_until_built

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memforest.bench.daemons import Daemon
    from memforest.bench.datasets.conversations import Conversation, Stage
    from memforest.bench.log import Log
    from memforest.bench.records import Asked, Case
    from memforest.bench.rows import Row
    from memforest.client import Client
    from memforest.judged import Judgement, Rubric

_NAME_CHARACTERS_MAX = 48
# Tasks of the daemon's ledger that make memories; the others are of questions.
_BUILDING = ("extract", "judge", "summarise", "merge")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of each conversation, and how; `wait_s` bounds the building of one stage."""

    data_set: str
    rows: tuple[Row, ...]
    k: int
    samples: int
    judge: bool
    keep: bool
    concurrency: int
    wait_s: float


class NotRecorded(MemForestError):
    """The daemon did not record everything that it was sent."""


class Watch(Protocol):
    """Who is told how far it is."""

    def doing(self, sentence: str) -> None:
        """What is done now."""
        ...

    def waiting(self, pending: int) -> None:
        """So many pieces of work wait until it is built."""
        ...

    def done(self) -> None:
        """One question was asked in one row."""
        ...


class Bench:
    """Runs a plan against the daemons, one conversation after the other."""

    def __init__(self, plan: Plan, daemons: Sequence[Daemon], log: Log, watch: Watch) -> None:
        self._plan = plan
        self._daemons = daemons
        self._log = log
        self._watch = watch

    def run(self, conversations: Iterable[Conversation]) -> None:
        """All of it. Raises MemForestError; what the log has then is done."""
        for number, conversation in enumerate(conversations, start=1):
            for daemon in self._daemons:
                user_id = self._user_of(number, conversation)
                with daemon.client() as client:
                    self._run_one(client, daemon, conversation, user_id)

    def forget_begun(self) -> None:
        """Forget whom this run has made and not forgotten; for a run whose log nobody keeps."""
        known = self._log.known
        for daemon in self._daemons:
            left = {
                each.conversation_id: each.user_id
                for each in known.begun.values()
                if each.daemon == daemon.name and (daemon.name, each.conversation_id) not in known.forgotten
            }
            with daemon.client() as client:
                for conversation_id, user_id in left.items():
                    self._forget(client, daemon, conversation_id, user_id)

    def _run_one(self, client: Client, daemon: Daemon, conversation: Conversation, user_id: str) -> None:
        name, known = conversation.conversation_id, self._log.known
        if self._plan.judge:
            self._judge_logged(daemon, conversation)
        if (daemon.name, name) in known.forgotten:
            return
        for number in range(len(conversation.stages)):
            left = self._left(daemon, conversation, number)
            if (daemon.name, name, number) not in known.built:
                self._build(client, daemon, conversation, number, user_id)
            if left:
                _check_known(client, user_id)
                self._watch.doing(f"asking {name}")
                anyio.run(self._ask, daemon, user_id, left)
        if not self._plan.keep:
            self._forget(client, daemon, name, user_id)

    def _left(self, daemon: Daemon, conversation: Conversation, number: int) -> list[tuple[Case, Row]]:
        """What was not asked of a stage, or in vain; not when more was published since."""
        known = self._log.known
        if (daemon.name, conversation.conversation_id, number + 1) in known.begun:
            return []
        return [
            (case, row)
            for case in conversation.stages[number].cases
            for row in self._plan.rows
            if (before := known.asked.get((daemon.name, row.name, case.case_id))) is None or before.fault
        ]

    def _build(
        self, client: Client, daemon: Daemon, conversation: Conversation, number: int, user_id: str
    ) -> None:
        """Publish a stage and return when nothing of it waits."""
        name = conversation.conversation_id
        begun = self._log.known.begun.get((daemon.name, name, number))
        resumed = begun is not None
        if begun is None:
            if number == 0:
                _check_unknown(client, user_id)
            begun = Begun(daemon.name, name, number, user_id, look_up_spending(client))
            self._log.begin(begun)
        stage = conversation.stages[number]
        self._watch.doing(f"publishing {name}")
        started = time.perf_counter()
        sent = Tally()
        for tally in publish(client, _records_of(stage, user_id), done=0, id_prefix=f"{name}-{number}"):
            sent = tally
        self._watch.doing(f"building {name}")
        watch = self._watch
        wait_until_built(client, sent, self._plan.wait_s, tell=watch.doing, pending=watch.waiting)
        spent = look_up_spending(client).since(begun.before)
        sessions = client.sessions(user_id)
        _check_recorded(sum(each.turns for each in sessions), conversation.stages[: number + 1])
        turns = sum(each["type"] == "turn" for each in stage.messages)
        facts = sum(each.facts for each in sessions)
        self._log.build(
            Built(
                daemon.name,
                name,
                len(sessions),
                turns,
                round(time.perf_counter() - started, 3),
                spent.calls,
                spent.tokens,
                spent.cost,
                facts,
                resumed,
            ),
            number,
        )

    async def _ask(self, daemon: Daemon, user_id: str, left: Sequence[tuple[Case, Row]]) -> None:
        """Ask what is left, so many at once as the plan says."""
        # One iterator for all: whoever is free takes the next one.
        waiting = iter(left)
        async with AsyncClient(daemon.socket_path, timeout_s=TIMEOUT_S) as client:
            asker = Asker(client, daemon.name, self._plan.k, self._plan.samples)
            failed: list[MemForestError] = []

            judge = partial(_judge, client, user_id)

            async def work() -> None:
                for case, row in waiting:
                    if failed:
                        return
                    try:
                        asked = _mark_all(await asker.ask(user_id, case, row), case)
                        if self._plan.judge:
                            asked = await judge_one(asked, case, judge)
                    except MemForestError as error:
                        failed.append(error)  # raised below, without a group around it
                        return
                    self._log.ask(asked, case)
                    self._watch.done()

            async with anyio.create_task_group() as tasks:
                for number in range(min(self._plan.concurrency, len(left))):
                    tasks.start_soon(work, name=f"bench.ask.{number}")
        if failed:
            raise failed[0]

    def _judge_logged(self, daemon: Daemon, conversation: Conversation) -> None:
        """Have judged what was logged with its words and no verdict, also of a user who is forgotten by now."""
        cases = {case.case_id: case for stage in conversation.stages for case in stage.cases}
        asked = [
            each for each in self._log.known.asked.values() if each.daemon == daemon.name and each.case_id in cases
        ]

        async def keep(each: Asked) -> None:
            self._log.ask(each, cases[each.case_id])

        async def judge() -> None:
            async with AsyncClient(daemon.socket_path, timeout_s=TIMEOUT_S) as client:
                await judge_all(
                    asked, cases, partial(_judge, client, None), keep, concurrency=self._plan.concurrency
                )

        if asked:
            self._watch.doing(f"judging {conversation.conversation_id}")
            anyio.run(judge)

    def _forget(self, client: Client, daemon: Daemon, conversation_id: str, user_id: str) -> None:
        self._watch.doing(f"forgetting {conversation_id}")
        with suppress(NotFound, Conflict):  # the run before this one did it last
            client.call(calls.forget_user(user_id))
        self._log.forget(daemon.name, conversation_id)

    def _user_of(self, number: int, conversation: Conversation) -> str:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", conversation.conversation_id)[:_NAME_CHARACTERS_MAX]
        return f"bench-{self._plan.data_set}-{self._log.run_id}-{number}-{plain}"


async def _judge(
    client: AsyncClient, user_id: str | None, case: Case, gold: tuple[str, ...], answer: str, rubric: Rubric
) -> Judgement:
    call = judge_answer(user_id, case.question, gold, answer, rubric=rubric, asked_at=case.asked_at)
    return await call_patiently(client, call)


def look_up_spending(client: Client) -> Spending:
    """What the daemon's models were asked so far for building, whoever's memory it was."""
    ledger = cast("dict[str, dict[str, dict[str, float]]]", client.status().sections.get("ledger") or {})
    tasks = [spent for task, spent in ledger.get("in_all", {}).items() if task in _BUILDING]
    return Spending(
        calls=int(sum(each.get("calls", 0) for each in tasks)),
        tokens=int(sum(each.get("prompt_tokens", 0) + each.get("completion_tokens", 0) for each in tasks)),
        cost=sum(each.get("cost", 0.0) for each in tasks),
    )


def _is_known(client: Client, user_id: str) -> bool:
    mark = client.status(user_id).watermark
    return mark is not None and mark.user_seq > 0


def _check_unknown(client: Client, user_id: str) -> None:
    """Nobody of this name may be there: whoever it is would be forgotten at the end."""
    if _is_known(client, user_id):
        raise InvalidInput(f"The daemon knows a user {user_id} whom this run has not made.")


def _check_known(client: Client, user_id: str) -> None:
    """A log goes with its daemon: another one would answer every question with nothing."""
    if not _is_known(client, user_id):
        raise BadLog("The daemon does not know whom this log has made: it is another one, or they were forgotten.")


def _check_recorded(recorded: int, stages: Sequence[Stage]) -> None:
    """Every turn has to be there, or questions would be asked of a memory that never heard their answers."""
    turns = (each for stage in stages for each in stage.messages if each["type"] == "turn")
    published = len({(each["session_id"], each["id"]) for each in turns})
    if recorded < published:
        raise NotRecorded(
            f"{published - recorded} of {published} turns were not recorded; `memforest dlq list` says why."
        )


def _records_of(stage: Stage, user_id: str) -> Iterator[Record]:
    for number, body in enumerate(stage.messages, start=1):
        yield Record(number, {**body, "user_id": user_id})


def _mark_all(asked: Asked, case: Case) -> Asked:
    return replace(asked, worded=tuple(mark(case, each) for each in asked.worded))
