"""A Memory that was taken up from its snapshot is the Memory, whatever happened before and after it was left."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any

import msgspec
import pytest

from daemon.asking.structures import Structures
from daemon.building.corrections import Corrections, FactParams
from daemon.folding import fold, fold_from_nothing
from daemon.snapshots import Snapshots, fingerprint_of_folding
from events.envelope import Reference
from events.hindsight import Hindsight
from events.log import EventLog
from events.registry import read_user_references
from events.session import MemoryImported
from projections.digests import digest_memory
from projections.eventtree.units import Units
from projections.facts.canonical import Canon
from projections.facts.validity import Validity
from projections.memory import Memory
from projections.memtree.dirty import Bare, DirtyNodes
from projections.memtree.forest import Forest
from projections.memtree.items import Node
from projections.ports import StoredSnapshot
from projections.recall.nodes import NodeSet
from projections.steps import at_once
from tests.builders import a_batch, a_forgetting, a_retraction, a_revision, a_turn
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, running
from tests.simulation.history import History
from tests.simulation.world import PARAMETERS, Daemon
from tests.simulation.world import running as simulated

SEEDS = (
    [int(os.environ["SIMULATION_SEED"])]
    if "SIMULATION_SEED" in os.environ
    else [random.SystemRandom().randrange(1 << 32) for _ in range(3)]
)
STEPS = 30


@dataclass
class Kept:
    """A SnapshotStore that keeps everything and lets go of nothing, whatever is forgotten."""

    snapshots: dict[Reference, StoredSnapshot] = field(default_factory=dict[Reference, StoredSnapshot])

    async def load_snapshot(self, user: Reference) -> StoredSnapshot | None:
        return self.snapshots.get(user)

    async def keep_snapshot(self, user: Reference, snapshot: StoredSnapshot) -> None:
        self.snapshots[user] = snapshot


def look_into(part: object, seen: dict[int, str], name: str = "") -> Any:
    """Everything a part of a Memory consists of, in lists that can be compared; sets and dicts by their keys."""
    if part is None or isinstance(part, int | float | str | bytes):
        return part
    if isinstance(part, Hindsight):
        return None  # read anew; what it says of these events is the same
    if isinstance(part, dict):
        return sorted(
            ((repr(key), look_into(value, seen, f"{name}[]")) for key, value in part.items()),
            key=lambda each: each[0],
        )
    if isinstance(part, set | frozenset | KeysView):
        return sorted(map(repr, part))
    if isinstance(part, MethodType):
        return look_into(part.__self__, seen, name)
    if isinstance(part, list | tuple):
        return [look_into(each, seen, f"{name}[]") for each in part]
    if is_dataclass(part) and getattr(part, "__dataclass_params__").frozen:  # noqa: B009
        return [(each.name, look_into(getattr(part, each.name), seen, name)) for each in fields(part)]
    if isinstance(part, Node):
        return part.digest  # equal ones stand in several trees, each by itself
    if isinstance(part, Bare):
        above = sorted(each.node.digest for each in part.parents)
        return part.node.digest, part.waits_for, part.blocks, above, sorted(part.scopes)
    # The same part at two places is to be one at both.
    if id(part) in seen:
        return seen[id(part)]
    seen[id(part)] = name
    if isinstance(part, NodeSet):
        return msgspec.msgpack.encode(at_once(part.freeze()))
    return [(key, look_into(value, seen, f"{name}.{key}")) for key, value in attributes(part)]


def attributes(part: object) -> Iterator[tuple[str, object]]:
    if is_dataclass(part):
        yield from ((each.name, getattr(part, each.name)) for each in fields(part))
    elif isinstance(part, Forest):
        # Which lengths are known depends on who looked in between; what is to be summarised does not.
        works = [(work.scope, work.digest, work.children) for work in part.plan_summaries()]
        yield from sorted({**vars(part), "_lengths": None, "works": works}.items())
    elif isinstance(part, DirtyNodes):
        # Found on looking, as in Forest.
        found = dict.fromkeys(("_texts", "_heights", "_ordered", "_unplaced"))
        yield from sorted({**vars(part), **found}.items())
    elif isinstance(part, Canon):
        yield from sorted({**vars(part), "unjoined": None}.items())  # looked at once more, like those:
    elif isinstance(part, Validity):
        yield from sorted({**vars(part), "touched": None, "resettled": None}.items())  # whatever was looked at
    elif isinstance(part, Units):
        yield from sorted({**vars(part), "changes": None, "changed": None}.items())  # all are looked at once more
    else:
        yield from sorted(vars(part).items())


def everything(memory: Memory) -> Any:
    """All of a Memory. What is only found on looking is found first."""
    memory.forest.dirty_count()
    return look_into(memory, {}, "memory")


def first_difference(one: Any, other: Any, where: str = "memory") -> str | None:
    """Where two of these differ first."""
    if one == other:
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for n, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            name = mine[0] if isinstance(mine, tuple) and mine and isinstance(mine[0], str) else n
            found = first_difference(mine, theirs, f"{where} {name}")
            if found is not None:
                return found
    if isinstance(one, tuple) and isinstance(other, tuple):
        return first_difference(list(one), list(other), where)
    return f"{where}: {one!r} is not {other!r}"


def orders(memory: Memory) -> list[list[object]]:
    """What has an order that decides something."""
    return [
        list(memory.canon.facts),
        list(memory.canon.waiting),
        list(memory.placement.scenes.unrouted),
        list(memory.units.unplaced),
        [list(facts) for facts in memory.units.facts_of.values()],
        list(memory.chunks),
        list(memory.waiting_chunks),
        [(session, *replay.replacements) for session, replay in memory.replays.running.items()],
    ]


def snapshots_of(log: EventLog, kept: Kept, reported: Reported, release: str = "1") -> Snapshots:
    return Snapshots(kept, log, PARAMETERS, release, reported)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_memory_taken_up_and_folded_on_is_the_one_that_stayed_and_the_one_folded_from_nothing(
    seed: int, tmp_path: Path
) -> None:
    """Over random histories with edits, retractions, forgetting, corrections, summaries and compaction."""
    print("seed", seed)
    rng = random.Random(seed)
    history = History(seed, random.Random(seed), corrects=seed % 2 == 0)
    reported, kept = Reported(), Kept()
    left: dict[Reference, Memory] = {}
    taken = 0
    async with simulated(tmp_path / "events.db", history.clock, held=True) as daemon:
        snapshots = snapshots_of(daemon.log, kept, reported)
        for _ in range(STEPS):
            await history.step(daemon)
            await daemon.settle()
            for user in await daemon.log.read(read_user_references):
                memory = await daemon.memories.catch_up(user)
                usable = await check_taken_up(daemon, snapshots, memory, left.get(user))
                taken += usable
                wanted = not usable or rng.random() < 0.3
                if wanted and not memory.needs_rebuild and await snapshots.leave(memory):
                    left[user] = memory

    assert taken > STEPS / 3, "most of the time a snapshot can be taken up"
    assert reported.events == []


async def check_taken_up(daemon: Daemon, snapshots: Snapshots, live: Memory, left: Memory | None) -> bool:
    """Compare what a snapshot gives with what it should; whether there was one that could be used."""
    taken = await snapshots.take_up(live.user)
    if taken is None or live.needs_rebuild:
        return False
    await fold(daemon.log, taken, live.user_seq)
    folded = await fold_from_nothing(daemon.log, live.user, PARAMETERS, taken.user_seq)

    assert digest_memory(taken) == digest_memory(folded)
    assert orders(taken) == orders(folded)
    assert await daemon.chunk_texts(taken) == await daemon.chunk_texts(folded)
    # When it was not folded anew meanwhile its rows are the same, too; it may have grown while we looked.
    if left is live and live.user_seq == taken.user_seq and not live.needs_rebuild:
        assert first_difference(everything(taken), everything(live)) is None
    return True


async def build(parts: Parts) -> None:
    """Facts, scopes, summaries and groups, and a chunk that is open."""
    for session in ("s1", "s2", "s3"):
        await parts.say(
            "Nate moved to Miami.", "Nate bought a boat.", "I saw Nate.", "Bob met Nate.", session_id=session
        )
        await parts.close(session)
    await parts.say("and one more", session_id="s9")


async def test_the_same_questions_have_the_same_answers_byte_for_byte(parts: Parts) -> None:
    kept, reported = Kept(), Reported()
    snapshots = Snapshots(kept, parts.log, SMALL, "1", reported)
    async with running(parts):
        await build(parts)
        await parts.memory()
        await parts.until_done()
        before = [await parts.ask(question) for question in ("Where is Nate?", "boat", "Who met whom?")]
        memory = await parts.memory()
        left = await snapshots.leave(memory)
        taken = await snapshots.take_up(ALICE)
        assert left
        assert taken is not None
        parts.memories._held[ALICE].memory = taken
        after = [await parts.ask(question) for question in ("Where is Nate?", "boat", "Who met whom?")]

    assert repr(after) == repr(before)
    assert before[0].memories
    assert first_difference(everything(taken), everything(memory)) is None


@pytest.mark.parametrize("undoing", ["revision", "retraction", "forgetting"])
async def test_a_snapshot_that_holds_what_was_undone_since_is_not_taken_up(parts: Parts, undoing: str) -> None:
    kept = Kept()
    snapshots = Snapshots(kept, parts.log, SMALL, "1", Reported())
    await parts.log.append(a_batch(a_turn("one", turn_id="t1"), a_turn("two", turn_id="t2", session_id="s2")))
    await snapshots.leave(await parts.memory())
    fine = await snapshots.take_up(ALICE)
    events = {
        "revision": a_revision("other", turn_id="t1"),
        "retraction": a_retraction("t1"),
        "forgetting": a_forgetting(),
    }
    await parts.log.append_event(events[undoing])

    assert fine is not None
    assert await snapshots.take_up(ALICE) is None


async def test_a_late_wording_and_new_turns_leave_a_snapshot_good(parts: Parts) -> None:
    snapshots = Snapshots(Kept(), parts.log, SMALL, "1", Reported())
    await parts.say("one", "two", "three")
    await snapshots.leave(await parts.memory())
    await parts.say("four", "five", session_id="s2")
    taken = await snapshots.take_up(ALICE)
    assert taken is not None
    await fold(parts.log, taken)

    assert everything(taken) == everything(await parts.memory())


async def test_a_name_that_is_left_in_small_letters_alone_is_read_again(parts: Parts) -> None:
    """A memory may name somebody because others did, and stay when those are gone."""
    reported = Reported()
    snapshots = Snapshots(Kept(), parts.log, SMALL, "1", reported)
    for number, content in enumerate(("We met Rex.", "he likes rex, and 爱丽丝住在迈阿密")):
        turn = a_turn(turn_id=f"x-{number}")
        await parts.log.append(a_batch(replace(turn, event=MemoryImported(content, f"x-{number}"))))
    memory = await parts.memory()
    first = next(iter(memory.canon.facts.values()))
    corrections = Corrections(
        parts.log, parts.memories, parts.worker, Structures(parts.log, parts.memories), parts.clock
    )
    await corrections.retract(FactParams(user_id="alice", fact_id=first.id.hex()))
    memory = await parts.memory()
    await snapshots.leave(memory)
    taken = await snapshots.take_up(ALICE)

    assert [sorted(fact.labels) for fact in memory.canon.facts.values()] == [["rex"]]
    assert taken is not None
    assert reported.events == []
    assert first_difference(everything(taken), everything(memory)) is None


async def test_another_release_or_other_parameters_fold_from_nothing(parts: Parts) -> None:
    kept = Kept()
    await parts.say("one", "two")
    await Snapshots(kept, parts.log, SMALL, "1", Reported()).leave(await parts.memory())

    assert await Snapshots(kept, parts.log, SMALL, "1", Reported()).take_up(ALICE) is not None
    assert await Snapshots(kept, parts.log, SMALL, "2", Reported()).take_up(ALICE) is None
    assert await Snapshots(kept, parts.log, PARAMETERS, "1", Reported()).take_up(ALICE) is None


def test_the_code_that_folds_is_told_by_what_is_in_its_files() -> None:
    found = fingerprint_of_folding()

    assert len(found) == 32
    assert found == fingerprint_of_folding()


async def test_a_snapshot_of_ours_that_makes_no_sense_is_reported_and_the_log_is_folded(parts: Parts) -> None:
    kept, reported = Kept(), Reported()
    snapshots = Snapshots(kept, parts.log, SMALL, "1", reported)
    await parts.say("one", "two")
    await snapshots.leave(await parts.memory())
    known = kept.snapshots[ALICE]
    kept.snapshots[ALICE] = StoredSnapshot(known.user_seq, known.made_by, known.content[:-40])

    assert await snapshots.take_up(ALICE) is None
    assert reported.names() == ["memory.snapshot_unusable"]
