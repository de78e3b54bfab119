"""`memforestd demo`: the whole product on one conversation, with real processes, judged by what it returns."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, track

import daemon
from daemon.upkeep.demo_conversation import (
    DEMO_FORGOTTEN_SESSION_ID,
    DEMO_USER_ID,
    QUESTIONS,
    DemoQuestion,
    Evidence,
    QuestionKind,
    load_conversation,
)
from memforest import AsyncClient
from memforest.errors import DaemonUnreachable
from memforest.fact_types import Fact
from memforest.types import Answer, Memory

# A question passes when its memory is among the first so many.
PLACES = 5
START_WITHIN_S = 30.0
BUILD_WITHIN_S = 120.0
COMPACTION_RATIO = 0.5
TEXT_SHOWN = 110
LISTED_MAX = 1_000


@dataclass(slots=True)
class _Run:
    """What the demo counts."""

    console: Console
    failures: list[str] = field(default_factory=list[str])
    queries: int = 0
    query_s: float = 0.0


async def run_demo(keep: bool) -> int:
    """Run the demo; the exit code: 0 only if everything expected was found and the forgotten is gone."""
    run = _Run(Console(highlight=False))
    folder = Path(tempfile.mkdtemp(prefix="memforest-demo-"))
    socket_path = folder / "memforest.sock"
    process = _start_daemon(folder)
    try:
        await _wait_for_daemon(socket_path, process)
        async with AsyncClient(socket_path) as client:
            code = await _show_everything(run, client)
        if keep:
            await _stay(run.console, folder, process)
        return code
    finally:
        process.send_signal(signal.SIGTERM)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(process.wait)
        shutil.rmtree(folder, ignore_errors=True)


def _start_daemon(folder: Path) -> subprocess.Popen[bytes]:
    """Start the daemon as a process of its own, with a bus of its own."""
    home = str(Path(daemon.__file__).parent.parent)
    program = "from daemon.cli import main; main()"
    arguments = ["run", "--embedded-bus", "--data", str(folder)]
    # What is configured here must neither change what is shown nor lend its store, bus or model.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MEMFOREST_")}
    # Which groups the background makes depends on when it comes to it; those that are asked for are the same.
    environment["MEMFOREST_EVENTTREE_ONLINE"] = "false"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    with (folder / "daemon.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stderr=log, env=environment, cwd=folder
        )


async def _wait_for_daemon(socket_path: Path, process: subprocess.Popen[bytes]) -> None:
    with anyio.fail_after(START_WITHIN_S):
        while True:
            if process.poll() is not None:
                log = socket_path.with_name("daemon.log").read_text()
                raise SystemExit(f"the daemon did not start:\n{log}")
            try:
                async with AsyncClient(socket_path) as client:
                    status = await client.request("status", {})
                    bus = status["bus"]
                    if isinstance(bus, dict) and bus["state"] == "up":
                        return
            except DaemonUnreachable:
                pass
            await anyio.sleep(0.05)


async def _show_everything(run: _Run, client: AsyncClient) -> int:
    console = run.console
    turns = await _publish(run, client)
    facts, trees = await _count(client)
    console.print(
        f"\n[bold]Asking[/] {len(QUESTIONS)} questions of {facts} facts in {trees} trees. A question is ok when "
        f"what answers it is among the first {PLACES} memories; they are shown with rank, time and source.\n"
    )
    for question in QUESTIONS:
        await _ask(run, client, question, forgotten=False)
    await _compact(run, client)
    await _forget(run, client)
    console.print("[bold]Asking again[/]\n")
    for question in QUESTIONS:
        await _ask(run, client, question, forgotten=True)
    return await _conclude(run, client, turns)


async def _publish(run: _Run, client: AsyncClient) -> int:
    """Publish the conversation, session by session, and wait until both structures are built."""
    turns = 0
    last_key = ""
    messages = load_conversation()
    for message in track(messages, "Publishing a year of conversation", console=run.console):
        if message["type"] == "session.close":
            await client.close_session(message["user_id"], message["session_id"])
            continue
        (published,) = await client.ingest([message])
        last_key = published.keys[-1]
        turns += 1
    await client.query(DEMO_USER_ID, "memory", k=1, wait_for=last_key)
    with Progress(console=run.console) as progress:
        task = progress.add_task("Building facts and trees", total=None)
        await _wait_until_built(client)
        progress.update(task, total=1, completed=1)
    return turns


async def _wait_until_built(client: AsyncClient) -> None:
    """Wait until no session is open and nothing is pending."""
    with anyio.fail_after(BUILD_WITHIN_S):
        while True:
            sessions = await client.sessions(DEMO_USER_ID)
            status = await client.status(DEMO_USER_ID)
            open_sessions = [session for session in sessions if session.state == "open"]
            if not open_sessions and status.watermark is not None and status.watermark.pending == 0:
                return
            await anyio.sleep(0.05)


async def _facts(client: AsyncClient) -> list[Fact]:
    facts: list[Fact] = []
    after: str | None = None
    while True:
        page = await client.facts(DEMO_USER_ID, limit=LISTED_MAX, after=after)
        facts += page.facts
        after = page.next
        if after is None:
            return facts


async def _count(client: AsyncClient) -> tuple[int, int]:
    """Facts and trees."""
    return len(await _facts(client)), len(await client.trees(DEMO_USER_ID, limit=LISTED_MAX))


async def _compact(run: _Run, client: AsyncClient) -> None:
    """Compact: first what that would do, then really."""
    planned = await client.compact(DEMO_USER_ID, COMPACTION_RATIO, dry_run=True, reindex=True)
    made = len(await _groups(client))
    done = await client.compact(DEMO_USER_ID, COMPACTION_RATIO, reindex=True)
    run.console.print(
        f"\n[bold]Dry run[/] {planned.nodes_before} nodes would become {planned.nodes_after} in {planned.groups} "
        f"groups, put together by rule since no model is configured\n"
        f"[bold]Compacted[/] {done.nodes_before} nodes to {done.nodes_after} ({done.cut:.0%} less) in "
        f"{done.groups} groups; every fact stays behind its group"
    )
    if made:
        run.failures.append(f"compaction: a dry run made {made} groups")
    if (planned.nodes_after, planned.groups) != (done.nodes_after, done.groups):
        run.failures.append("compaction: it did something else than its dry run said")


async def _forget(run: _Run, client: AsyncClient) -> None:
    """Forget a session: what groups have of it goes, all others stay."""
    before = await _groups(client)
    theirs = {
        fact.id
        for fact in await _facts(client)
        if any(source.session_id == DEMO_FORGOTTEN_SESSION_ID for source in fact.sources)
    }
    receipt = await client.forget_session(DEMO_USER_ID, DEMO_FORGOTTEN_SESSION_ID)
    await _wait_until_built(client)
    after = await _groups(client)
    others = {members for members in before if members.isdisjoint(theirs)}
    lost = len(others - after)
    run.console.print(
        f"[bold]Forgot[/] session {DEMO_FORGOTTEN_SESSION_ID}: {receipt.events_voided} events voided, "
        f"{receipt.words_erased} words and {receipt.names_erased} names erased; {len(others) - lost} of the "
        f"{len(others)} groups without a part in it stand\n"
    )
    if lost:
        run.failures.append(f"forgetting: {lost} groups are gone that had no part in the session")


async def _groups(client: AsyncClient) -> set[frozenset[str]]:
    """The members of each group."""
    return {frozenset(group.members) for group in (await client.units(DEMO_USER_ID, limit=LISTED_MAX)).groups}


async def _ask(run: _Run, client: AsyncClient, question: DemoQuestion, *, forgotten: bool) -> None:
    """Ask one question, show the memories that answer it with their ranks, and note whether it passed."""
    started = time.perf_counter()
    answer = await client.query(DEMO_USER_ID, question.text, k=PLACES)
    run.query_s += time.perf_counter() - started
    run.queries += 1
    problem = judge(question, answer, forgotten=forgotten)
    mark = "[green]ok[/]  " if problem is None else "[red]FAIL[/]"
    run.console.print(f"{mark} [dim]{question.kind:16}[/] {escape(question.text)}")
    expected = [] if forgotten and question.kind is QuestionKind.FORGOTTEN else list(question.expects)
    shown: dict[int, Memory] = {}
    for evidence in expected:
        found = [(rank, each) for rank, each in enumerate(answer.memories, start=1) if meets(each, evidence)]
        shown.update(found[:1])
    for rank, memory in sorted(shown.items(), key=lambda each: each[0]):
        sources = ", ".join(f"{source.session_id}/{source.turn_id}" for source in memory.sources)
        text = " ".join(memory.text.split())
        text = text if len(text) <= TEXT_SHOWN else text[: TEXT_SHOWN - 1] + "…"
        run.console.print(
            f"       [dim]{rank} of {PLACES}[/] [cyan]{memory.said_at:%Y-%m-%d}[/] {escape(text)} "
            f"[dim]({escape(sources)})[/]"
        )
    if not expected and problem is None:
        run.console.print("       [dim]nothing that was remembered says so[/]")
    if problem is not None:
        run.failures.append(f"{question.id}: {problem}")


def judge(question: DemoQuestion, answer: Answer, *, forgotten: bool) -> str | None:
    """Why an answer does not pass, or None. `forgotten`: the demo's session was forgotten before."""
    memories = answer.memories[:PLACES]
    if question.kind is QuestionKind.FORGOTTEN and forgotten:
        if any(source.session_id == DEMO_FORGOTTEN_SESSION_ID for each in memories for source in each.sources):
            return "a memory of the forgotten session came back"
        return _find_absent(question, memories)
    if question.kind is QuestionKind.NEVER:
        return _find_absent(question, memories)
    missing = [evidence for evidence in question.expects if not any(meets(each, evidence) for each in memories)]
    return (
        f"{len(missing)} of {len(question.expects)} memories are not among the first {PLACES}" if missing else None
    )


def _find_absent(question: DemoQuestion, memories: tuple[Memory, ...] | list[Memory]) -> str | None:
    word = (question.absent or "").casefold()
    if word and any(word in memory.text.casefold() for memory in memories):
        return "a memory contains the word that must not come back"
    return None


def meets(memory: Memory, evidence: Evidence) -> bool:
    """Whether a memory is what is expected."""
    text = memory.text.casefold()
    if not any(source.turn_id in evidence.turns for source in memory.sources):
        return False
    if evidence.said_on is not None and f"{memory.said_at:%Y-%m-%d}" != evidence.said_on:
        return False
    return all(word.casefold() in text for word in evidence.contains)


async def _conclude(run: _Run, client: AsyncClient, turns: int) -> int:
    facts, trees = await _count(client)
    groups = len(await _groups(client))
    for failure in run.failures:
        run.console.print(f"[red]{escape(failure)}[/]")
    verdict = "OK" if not run.failures else "FAILED"
    run.console.print(
        f"\ndemo: {verdict} — {turns} turns, {facts} facts, {trees} trees, {groups} groups, "
        f"{len(QUESTIONS)} questions, {run.query_s / run.queries * 1000:.1f} ms per query"
    )
    return 0 if not run.failures else 1


async def _stay(console: Console, folder: Path, process: subprocess.Popen[bytes]) -> None:
    socket_path = folder / "memforest.sock"
    console.print(
        f"\nThe daemon goes on in {folder}; Ctrl-C ends it and removes the folder. In another terminal:\n"
        f"  export MEMFOREST_SOCKET_PATH={socket_path}\n"
        f'  memforest query {DEMO_USER_ID} "Where did I live before?"\n'
        f'  memforest query {DEMO_USER_ID} "Where do I live?" --valid-at 2024-06-01\n'
        f"  memforest sessions {DEMO_USER_ID}\n"
        f"  memforest facts {DEMO_USER_ID}\n"
        f"  memforest tree {DEMO_USER_ID}\n"
        f"  memforest units {DEMO_USER_ID}\n"
        f"  memforest compact --user {DEMO_USER_ID} --ratio .7 --dry-run\n"
        f"  memforest status\n"
        f"  memforestd verify --data {folder}"
    )
    try:
        await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
    except (KeyboardInterrupt, anyio.get_cancelled_exc_class()):
        console.print("stopping")
