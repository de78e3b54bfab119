"""Compaction through the daemon: what somebody asks for, against the waves of calls it takes, and pair by pair.

Made-up facts, published over NATS as `memory` messages; daemon, bus and the stub of `tests/stub_models` are
processes of their own. Compaction in the background, while sessions arrive, is in `compaction_online`.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio

from memforest import AsyncClient
from memforest.structures import Compaction
from tests.benchmarks import compaction_online
from tests.benchmarks.measuring import Figure, Row, sized
from tests.benchmarks.samples import SESSION_GAP_MS, TURN_MS, Speech
from tests.benchmarks.stub_run import BUILT_WITHIN_S, Models, Run, cpu_s, running
from tests.builders import MONDAY
from tests.system.daemon_process import a_close, until, until_recorded

FACTS = 2_000
# Of one session, and messages that are out at once.
SESSION_FACTS, PUBLISHED_AT_ONCE = 100, 16
SLOTS, LATENCY_S, LONG_LATENCY_S = 64, 0.2, 1.0
# What is compared by its tokens, pair by pair too, and by its groups with one slot.
FEW, FEW_MIN = 400, 20
FEW_LATENCY_S = 0.01
LOOK_S = 0.2
WALL_MAX, CALLS_MAX, TOKENS_MAX = 1.2, 0.35, 0.3


@dataclass(frozen=True, slots=True)
class Wanted:
    """A compaction: the share of nodes that is to go, and the most facts of a group; None for the default cap."""

    ratio: float
    member_cap: int | None = None

    @property
    def name(self) -> str:
        """What the rows of it are called."""
        cap = "the default cap" if self.member_cap is None else f"cap {self.member_cap}"
        return f"{self.ratio:.0%} with {'no cap' if self.member_cap == 0 else cap}"

    @property
    def user(self) -> str:
        """Whose facts are compacted: answers are kept for a user, so that each has its own."""
        return f"u{self.ratio * 100:.0f}-{self.member_cap}"


CAPPED = Wanted(0.5, 8)
DEFAULT = Wanted(0.5)
UNCAPPED = Wanted(0.5, 0)
# What the daemon only says it would do; a run does just that.
TOLD = (Wanted(0.7), Wanted(0.7, 8))


@dataclass(frozen=True, slots=True)
class Done:
    """What a compaction took."""

    wanted: Wanted
    result: Compaction
    planned_s: float  # what a dry run takes
    wall_s: float
    cpu_s: float  # of the daemon, all its threads
    stats: dict[str, Any]  # of the stub, from its beginning on

    @property
    def removed(self) -> int:
        """Nodes that are searched no more."""
        return self.result.nodes_before - self.result.nodes_after

    @property
    def calls(self) -> int:
        """Questions to the chat model, with those that ask for a better text."""
        return sum(count for kind, count in self.stats["calls"].items() if kind != "embed")

    @property
    def tokens(self) -> int:
        """Of all prompts and answers, as the server counted them."""
        return int(self.stats["chat_prompt_tokens"]) + int(self.stats["chat_completion_tokens"])

    @property
    def tokens_per_removed(self) -> float:
        """What one node less costs."""
        return self.tokens / max(self.removed, 1)


Groups = frozenset[tuple[str, ...]]


def measure(share: float) -> list[Row]:
    """What is asked for, its tokens, its groups, and the background."""
    if share < 1:
        rows = anyio.run(_measure_quickly, sized(FEW, share, FEW_MIN))
    else:
        rows = anyio.run(_measure_wall, Models(LONG_LATENCY_S, SLOTS), FACTS)
        rows += anyio.run(_measure_asked, Models(LATENCY_S, SLOTS), FACTS)
        rows += anyio.run(_measure_few, FEW)
    return [*rows, *compaction_online.measure(share)]


async def _measure_asked(models: Models, facts: int) -> list[Row]:
    rows, told = list[Row](), list[Row]()
    async with running(models) as up, _patient(up) as client:
        for wanted in (CAPPED, DEFAULT):
            await _learn(up, wanted.user, facts)
            if wanted == CAPPED:
                told = [_told_row(other, await _preview(client, other, wanted.user)) for other in TOLD]
            done = await _compact(up, client, wanted)
            rows += [_wall_row(models, done), *_calls_rows(done)]
    return [*rows, *told]


async def _measure_wall(models: Models, facts: int) -> list[Row]:
    async with running(models) as up, _patient(up) as client:
        await _learn(up, CAPPED.user, facts)
        return [_wall_row(models, await _compact(up, client, CAPPED))]


async def _measure_few(facts: int) -> list[Row]:
    """The same facts planned ahead, pair by pair, and with one slot."""
    each, models = (CAPPED, DEFAULT, UNCAPPED), Models(FEW_LATENCY_S, SLOTS)
    many = await _run_few(models, facts, each)
    ((literal, _),) = await _run_few(replace(models, paper=True), facts, (DEFAULT,))
    one = await _run_few(replace(models, slots=1), facts, each)
    rows = [_tokens_row(done, literal) for done, _ in many]
    return [*rows, *(_groups_row(*both) for both in zip(many, one, strict=True))]


async def _measure_quickly(facts: int) -> list[Row]:
    models = Models(FEW_LATENCY_S, SLOTS)
    ((done, groups),) = await _run_few(models, facts, (CAPPED,))
    ((literal, _),) = await _run_few(replace(models, paper=True), facts, (DEFAULT,))
    itself = _groups_row((done, groups), (done, groups))
    return [_wall_row(models, done), *_calls_rows(done), _tokens_row(done, literal), itself]


async def _run_few(models: Models, facts: int, each: Sequence[Wanted]) -> list[tuple[Done, Groups]]:
    async with running(models) as up, _patient(up) as client:
        found: list[tuple[Done, Groups]] = []
        for wanted in each:
            await _learn(up, wanted.user, facts)
            done = await _compact(up, client, wanted)
            page = await client.merges(wanted.user, limit=facts, extractive=True)
            found.append((done, frozenset(merged.members for merged in page.merges)))
    return found


@asynccontextmanager
async def _patient(up: Run) -> AsyncGenerator[AsyncClient]:
    """A client that waits for as long as a compaction takes."""
    async with AsyncClient(up.daemon.socket_path, timeout_s=BUILT_WITHIN_S) as client:
        yield client


async def _learn(up: Run, user: str, facts: int) -> None:
    """Publish so many facts of a user, the same of each, and return when nothing waits."""
    speech, at_once = Speech(1), anyio.CapacityLimiter(PUBLISHED_AT_ONCE)
    memories = [_a_memory(user, number, speech.sentence()) for number in range(facts)]

    async def publish(memory: dict[str, object]) -> None:
        async with at_once:
            await up.publisher.send(memory, f"{user}/{memory['id']}")

    await publish(memories[0])  # one connection for all
    async with anyio.create_task_group() as publishing:
        for memory in memories[1:]:
            publishing.start_soon(publish, memory)
    for session in dict.fromkeys(str(memory["session_id"]) for memory in memories):
        await up.publisher.send(a_close(user, session))

    async def is_learned() -> bool:
        listed = await up.client.request("sessions.list", {"user_id": user})
        return all(session["state"] == "closed" for session in listed["sessions"])

    await until_recorded(up.client, user, facts)
    await until(is_learned, BUILT_WITHIN_S, "the sessions did not end", poll_s=LOOK_S)
    await up.until_built(user, 0)


def _a_memory(user: str, number: int, text: str) -> dict[str, object]:
    session = number // SESSION_FACTS
    return {
        "type": "memory",
        "id": f"f{number}",
        "user_id": user,
        "session_id": f"s{session}",
        "content": text,
        "timestamp": MONDAY + session * SESSION_GAP_MS + number * TURN_MS,
    }


async def _preview(client: AsyncClient, wanted: Wanted, user: str) -> Compaction:
    await client.set_policy(user, member_cap=wanted.member_cap, reset=True)
    return await client.compact(user, wanted.ratio, dry_run=True)


async def _compact(up: Run, client: AsyncClient, wanted: Wanted) -> Done:
    began_s = time.monotonic()
    await _preview(client, wanted, wanted.user)
    planned_s = time.monotonic() - began_s
    await up.stub.reset()
    began_s, before_s = time.monotonic(), cpu_s(up.daemon.pid)
    result = await client.compact(wanted.user, wanted.ratio)
    wall_s, spent_s = time.monotonic() - began_s, cpu_s(up.daemon.pid) - before_s
    return Done(wanted, result, planned_s, wall_s, spent_s, await up.stub.stats())


def _wall_row(models: Models, done: Done) -> Row:
    bound_s = math.ceil(done.result.groups / models.slots) * models.latency_s
    figures = (
        Figure("wall_s", done.wall_s),
        Figure("bound_s", bound_s),
        Figure("dry_run_s", done.planned_s),
        Figure("daemon_cpu_s", done.cpu_s),
        Figure("chat_in_flight_peak", done.stats["in_flight_peak"]["chat"]),
        *_figures_of(done.result),
    )
    name = f"{done.wanted.name}, {models.slots} slots, L = {models.latency_s:g} s, wall"
    return Row(name, done.wall_s / bound_s, "waves of calls", figures, WALL_MAX)


def _calls_rows(done: Done) -> list[Row]:
    name, calls = f"{done.wanted.name}, calls", Figure("calls", done.calls)
    groups, removed = Figure("groups", done.result.groups), Figure("removed", done.removed)
    goal = CALLS_MAX if done.wanted == CAPPED else None
    return [
        Row(name, calls.value / groups.value, "groups", (calls, groups), 1.0),
        Row(name, calls.value / removed.value, "nodes removed", (calls, removed), goal),
    ]


def _told_row(wanted: Wanted, told: Compaction) -> Row:
    removed = told.nodes_before - told.nodes_after
    calls = told.calls or 0
    figures = (Figure("calls", calls), Figure("removed", removed), *_figures_of(told))
    return Row(f"{wanted.name}, calls by a dry run", calls / removed, "nodes removed", figures)


def _figures_of(result: Compaction) -> tuple[Figure, ...]:
    return (
        Figure("facts", result.facts),
        Figure("groups", result.groups),
        Figure("extractive", result.extractive),
        Figure("cut", result.cut),
    )


def _tokens_row(done: Done, literal: Done) -> Row:
    figures = (
        Figure("tokens", done.tokens_per_removed),
        Figure("pairwise_tokens", literal.tokens_per_removed),
        Figure("calls", done.calls),
        Figure("pairwise_calls", literal.calls),
        Figure("removed", done.removed),
        Figure("pairwise_removed", literal.removed),
        Figure("facts", done.result.facts),
    )
    ratio = done.tokens_per_removed / literal.tokens_per_removed
    goal = TOKENS_MAX if done.wanted == CAPPED else None
    return Row(f"{done.wanted.name}, tokens per node removed", ratio, "pair by pair, no cap", figures, goal)


def _groups_row(many: tuple[Done, Groups], one: tuple[Done, Groups]) -> Row:
    (done, found), (_, planned) = many, one
    differ = len(found ^ planned)
    figures = (Figure("groups", len(found)), Figure("with_one_slot", len(planned)), Figure("differ", differ))
    name = f"{done.wanted.name}, groups that are not those of one slot"
    return Row(name, differ / max(len(planned), 1), "its groups", figures, 0.0)
