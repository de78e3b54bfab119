"""The table of methods: all of them are there, each with its parameters, its time and whether it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from daemon.asking.answer_judging import AnswerJudge
from daemon.asking.differences import Differences
from daemon.asking.history import History
from daemon.asking.listings import Listings
from daemon.asking.merges import Merges
from daemon.asking.session_events import SessionEvents
from daemon.asking.structures import Structures
from daemon.asking.tree_nodes import TreeNodesReader
from daemon.asking.why import Provenance
from daemon.building.corrections import Corrections
from daemon.building.policies import Policies
from daemon.building.replaying import Replaying
from daemon.bus.nats_bus import NatsBus
from daemon.bus.publishing import Publisher
from daemon.dead_letters import DeadLetters
from daemon.decoders.decoding import Decoder
from daemon.disk import Disk
from daemon.extraction_watch import ExtractionWatch
from daemon.ingest import Ingest
from daemon.ledger_totals import LedgerTotals
from daemon.models.query_spending import QuerySpending
from daemon.offline.language_model import OfflineLanguageModel
from daemon.parked import Parked
from daemon.serving.calls import Tally
from daemon.serving.handlers import METHODS, Answering, make_handlers
from daemon.serving.metrics import Metrics
from daemon.serving.protocol import Handlers, read_params
from daemon.serving.schemas import Schemas
from daemon.status import ModelsInUse, Status
from events.errors import InvalidInput, MemForestError, StoreUnusable
from projections.eventtree.parameters import EventTreeParameters
from tests.builders import KEYS, ManualClock, a_batch, a_dead_letter
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import Parts, running, running_forgetter, unwritable
from tests.scripted_models import ModelFailed, ScriptedEmbedder

WRITES = {
    "ingest",
    "sessions.close",
    "sessions.replay",
    "turns.retract",
    "users.forget",
    "facts.correct",
    "facts.retract",
    "facts.pin",
    "sessions.forget",
    "units.compact",
    "units.undo",
    "units.set_policy",
    "dead_letters.retry",
    "dead_letters.drop",
    "parked.retry",
}


@pytest.fixture
def handlers(parts: Parts, clock: ManualClock) -> Handlers:
    """The table over real parts; the bus is one that nobody answers on."""
    bus = NatsBus("nats://127.0.0.1:1")
    decoder = Decoder(KEYS, ZoneInfo("UTC"))
    ingest = Ingest(bus, "MEMFOREST", parts.log, parts.memories, decoder, Reported())
    models = ModelsInUse(
        OfflineLanguageModel(),
        ScriptedEmbedder(),
        parts.worker.engine.budget,
        QuerySpending(parts.log, clock),
        ExtractionWatch(LedgerTotals(parts.log, clock), Reported()),
    )
    status = Status(
        "1.2.3",
        clock,
        parts.log,
        parts.memories,
        bus,
        lambda: "nats://127.0.0.1:1",
        ingest,
        parts.worker,
        parts.answerer,
        models,
        Disk(parts.log, Reported(), ballast_bytes=0, free_min_bytes=0),
    )
    structures = Structures(parts.log, parts.memories)
    return make_handlers(
        Answering(
            log=parts.log,
            answerer=parts.answerer,
            answer_judge=AnswerJudge(parts.log, None, parts.worker.engine.budget),
            listings=Listings(parts.log, parts.memories),
            structures=structures,
            tree_nodes=TreeNodesReader(parts.log, parts.memories),
            provenance=Provenance(parts.log, parts.memories),
            publisher=Publisher(bus, decoder),
            forgetter=parts.forgetter,
            compactor=parts.compactor,
            policies=Policies(parts.log, parts.memories, parts.worker, EventTreeParameters(), clock),
            merges=Merges(parts.log, parts.memories),
            dead_letters=DeadLetters(parts.log, decoder),
            parked=Parked(parts.log, clock),
            session_events=SessionEvents(parts.log),
            differences=Differences(parts.log, History(parts.log, parts.memories.parameters)),
            corrections=Corrections(parts.log, parts.memories, parts.worker, structures, clock),
            replaying=Replaying(parts.log, parts.memories, parts.model, clock),
            status=status,
            metrics=Metrics(parts.log, status.status, Tally()),
            schemas=Schemas(lambda: b"{}"),
        )
    )


async def call(handlers: Handlers, name: str, **params: Any) -> Any:
    """A call as the socket makes it, and its result as a client sees it."""
    method = handlers[name]
    return msgspec.to_builtins(await method.call(read_params(name, params, method)))


def test_the_table_has_the_methods_that_are_documented_and_what_writes_is_not_cancelled(
    handlers: Handlers,
) -> None:
    assert handlers.keys() == METHODS.keys()
    assert {name for name, method in handlers.items() if method.write} == WRITES
    assert all(0 < method.deadline_s <= 3600 for method in handlers.values())


async def test_every_method_refuses_a_parameter_it_does_not_know(handlers: Handlers) -> None:
    for name in METHODS:
        with pytest.raises(MemForestError) as raised:
            await call(handlers, name, surprise="Xylophon")
        assert raised.value.code == "invalid", name
        assert "Xylophon" not in str(raised.value), name


@pytest.mark.parametrize("ratio", [-0.1, 1.0, 2.0])
async def test_a_ratio_is_from_0_to_below_1(handlers: Handlers, ratio: float) -> None:
    with pytest.raises(InvalidInput, match="ratio"):
        await call(handlers, "units.compact", user_id="alice", ratio=ratio)


async def test_users_that_nobody_knows_are_not_found(handlers: Handlers) -> None:
    for name in ("units.compact", "digest"):
        with pytest.raises(MemForestError) as raised:
            await call(handlers, name, user_id="nobody")
        assert raised.value.code == "not_found", name


async def test_status_tells_how_every_part_is(parts: Parts, handlers: Handlers, clock: ManualClock) -> None:
    async with running(parts):
        parts.model.queue.extend([ModelFailed()] * 3)
        await parts.say("A first thing.", "A second thing.", "A third thing.")
        await parts.log.append(a_batch(letters=(a_dead_letter(b"Xylophon"),)))
        await parts.until_done()
        clock.advance(1_500)
        status = await call(handlers, "status", user_id="alice")

    assert status["daemon"].pop("memories_bytes") > 0
    assert status["daemon"] == {"version": "1.2.3", "uptime_s": 1.5, "memories_loaded": 1}
    assert (status["bus"]["state"], status["bus"]["lag_messages"]) == ("down", None)
    assert status["log"] == {
        "events": 4,
        "users": 1,
        "sessions": 1,
        "dead_letters": 1,
        "refused": 0,
        "waiting_turns": 1,
        "forgotten_not_erased": 0,
    }
    assert status["worker"] == {
        "in_flight": 0,
        "calling": 0,
        "questions": 3,
        "questions_failed": 3,
        "parked": 1,
        "waiting_for_model": 0,
        "recorded": 0,
        "planned": 0,
    }
    assert status["watermark"] == {"user_seq": 4, "projected_user_seq": 4, "pending": 0, "lag_s": 0.0}
    assert "Xylophon" not in str(status)


async def test_readyz_says_which_part_is_degraded_and_status_says_the_same(
    parts: Parts, handlers: Handlers, log_path: Path
) -> None:
    before = await call(handlers, "readyz")
    with unwritable(log_path), pytest.raises(StoreUnusable):
        await parts.say("one")
    during, status = await call(handlers, "readyz"), await call(handlers, "status")
    await parts.log.probe()

    assert (before["state"], list(before["reasons"])) == ("degraded", ["bus"])
    assert during["reasons"]["store"] == "locked by another program"
    assert status["health"] == during
    assert (status["ingest"], status["disk"]["wal_large"]) == ({"paused": None, "ignored": 0}, False)
    assert await call(handlers, "readyz") == before
    assert await call(handlers, "healthz") == {"state": "ok"}


async def test_status_of_a_user_that_nobody_knows_is_that_of_an_empty_memory(handlers: Handlers) -> None:
    status = await call(handlers, "status", user_id="nobody")

    assert status["watermark"] == {"user_seq": 0, "projected_user_seq": 0, "pending": 0, "lag_s": 0.0}


async def test_forgetting_over_the_table_works_with_the_bus_down(parts: Parts, handlers: Handlers) -> None:
    async with running_forgetter(parts):
        await parts.say("one")
        receipt = await call(handlers, "sessions.forget", user_id="alice", session_id="s1")
        with pytest.raises(MemForestError) as raised:
            await call(handlers, "sessions.close", user_id="alice", session_id="s1")

    assert receipt["complete"] is True
    assert raised.value.code == "unavailable"
