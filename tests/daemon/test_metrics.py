"""The figures for Prometheus: read back with its own parser, true to what they count, and without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.asking.listings import NoParams
from daemon.asking.spent import SpentShown
from daemon.config_values import ConfigInvalid, parse_listen
from daemon.logs import quiet
from daemon.serving.calls import LATENCY_BOUNDS_S, Tally
from daemon.serving.handlers import METHODS
from daemon.serving.metrics import Metrics
from daemon.serving.metrics_listener import MetricsListener, PortUnusable
from daemon.serving.protocol import Handlers, Method
from daemon.status import StatusParams
from daemon.status_shown import (
    BudgetShown,
    BudgetsShown,
    BusShown,
    DaemonShown,
    DaemonStatus,
    DiskShown,
    EndpointShown,
    ExtractionShown,
    IngestShown,
    LedgerShown,
    LogShown,
    ModelsShown,
    Readiness,
    WorkerShown,
)
from events.log import EventLog
from tests.builders import a_batch, a_closing, a_turn
from tests.daemon.sockets_in_use import HttpClient, Nothing, Reports, connected, serving

STATUS = DaemonStatus(
    daemon=DaemonShown("1.2.3", 7.5, memories_loaded=3, memories_bytes=4096),
    bus=BusShown("up", "", "nats://secret", read_to=41, lag_messages=2),
    health=Readiness("degraded", {"store": "disk full at /secret"}),
    ingest=IngestShown(None, ignored=5),
    disk=DiskShown(1 << 40, 0, wal_bytes=8192, wal_large=False),
    log=LogShown(
        events=44, users=6, sessions=9, dead_letters=1, refused=8, waiting_turns=10, forgotten_not_erased=11
    ),
    worker=WorkerShown(
        in_flight=12,
        calling=13,
        questions=14,
        questions_failed=15,
        parked=16,
        waiting_for_model=18,
        recorded=19,
        planned=26,
    ),
    models=ModelsShown("offline", "hashing", None, 17, node_vectors_waiting=25),
    budget=BudgetsShown(BudgetShown(20, None, None, None)),
    extraction=ExtractionShown(
        answers=66, with_facts=21, zero_facts=22, skipped=23, flagged=24, zero_share=None, trouble=None
    ),
    ledger=LedgerShown({}, {}, None),
    subscriptions=[],
    derived=None,
)


async def text_of(log: EventLog, tally: Tally | None = None, status: DaemonStatus = STATUS) -> str:
    async def ask(_: StatusParams) -> DaemonStatus:
        return status

    return (await Metrics(log, ask, tally or Tally()).metrics(NoParams())).text


def samples(text: str) -> dict[str, float]:
    """Every sample by its name and labels, as Prometheus reads it; each has a help and a type."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type in ("gauge", "counter", "histogram"), family.name
        for sample in family.samples:
            labels = ",".join(f"{name}={text}" for name, text in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_what_status_knows_is_there(log: EventLog) -> None:
    found = samples(await text_of(log))

    assert found["memforest_build_info{version=1.2.3}"] == 1
    assert found["memforest_uptime_seconds"] == 7.5
    assert (found["memforest_ready"], found["memforest_degraded{part=store}"]) == (0, 1)
    expected: Mapping[str, int] = {
        "ingest_lag_messages": 2,
        "memories_loaded": 3,
        "memories_bytes": 4096,
        "ingest_ignored_messages_total": 5,
        "users": 6,
        "bus_up": 1,
        "refused_messages_total": 8,
        "sessions": 9,
        "waiting_turns": 10,
        "forgotten_not_erased": 11,
        "worker_in_flight": 12,
        "worker_calling": 13,
        "model_questions_total": 14,
        "model_questions_failed_total": 15,
        "parked_work": 16,
        "vectors_waiting": 17,
        "node_vectors_waiting": 25,
        "worker_waiting_for_model": 18,
        "groups_planned": 26,
        "model_answers_recorded_total": 19,
        "budget_spent_tokens": 20,
        "budget_used_up": 0,
        "chunks_total{found=facts}": 21,
        "chunks_total{found=nothing}": 22,
        "chunks_total{found=skipped}": 23,
        "chunks_flagged_total": 24,
        "zero_facts_rising": 0,
        "bus_read_to": 41,
        "log_seq": 44,
        "dead_letters": 1,
        "wal_bytes": 8192,
        "disk_free_bytes": 1 << 40,
    }
    assert {name: found[f"memforest_{name}"] for name in expected} == expected


def an_endpoint(name: str, first: int, circuit: str) -> EndpointShown:
    """One whose figures are numbers from `first` on."""
    return EndpointShown(
        name,
        "https://secret",
        circuit,
        "secret",
        retry_in_s=1.0,
        limit=first,
        concurrency=first + 1,
        in_flight=first + 2,
        waiting=first + 3,
        calls=first + 4,
        failed=first + 5,
        retries=first + 6,
    )


async def test_endpoints_are_told_apart_by_what_they_are_for(log: EventLog) -> None:
    models = replace(
        STATUS.models, chat=an_endpoint("gpt", 10, "closed"), embeddings=an_endpoint("bge", 30, "open")
    )
    found = samples(await text_of(log, status=replace(STATUS, models=models)))
    names = (
        *("endpoint_limit", "endpoint_limit_max", "endpoint_in_flight", "endpoint_waiting"),
        *("endpoint_calls_total", "endpoint_calls_failed_total", "endpoint_retries_total"),
    )

    for use, first, up in (("chat", 10, 1), ("embeddings", 30, 0)):
        assert [found[f"memforest_{name}{{use={use}}}"] for name in names] == list(range(first, first + 7))
        assert found[f"memforest_endpoint_up{{use={use}}}"] == up


async def test_models_without_an_endpoint_have_no_figures_of_one(log: EventLog) -> None:
    chat_alone = replace(STATUS, models=replace(STATUS.models, chat=an_endpoint("gpt", 10, "closed")))

    assert not any("endpoint" in name for name in samples(await text_of(log)))
    found = [name for name in samples(await text_of(log, status=chat_alone)) if "endpoint" in name]
    assert found
    assert all("use=chat" in name for name in found)


async def test_what_was_spent_is_there_by_task_and_kind_of_token(log: EventLog) -> None:
    spent = {"extract": SpentShown(7, 1000, 600, 50, 0.25), "merge": SpentShown(1, 10, 0, 5, 0.5)}
    today = {"extract": SpentShown(1, 1, 1, 1, 1.0)}
    found = samples(await text_of(log, status=replace(STATUS, ledger=LedgerShown(today, spent, None))))
    tokens = "memforest_model_tokens_total{{kind={},task={}}}"

    assert found["memforest_model_calls_total{task=extract}"] == 7
    assert found["memforest_model_calls_total{task=merge}"] == 1
    assert (
        found["memforest_model_cost_total{task=extract}"],
        found["memforest_model_cost_total{task=merge}"],
    ) == (
        0.25,
        0.5,
    )
    assert [found[tokens.format(kind, "extract")] for kind in ("prompt", "cached", "completion")] == [400, 600, 50]
    assert found[tokens.format("prompt", "merge")] == 10


async def test_a_budget_that_is_used_up_and_an_alarm_are_ones(log: EventLog) -> None:
    waiting = replace(
        STATUS,
        budget=BudgetsShown(BudgetShown(500, 400, "2024-07-02T00:00:00Z", "secret")),
        extraction=replace(STATUS.extraction, zero_share=0.75, trouble="secret"),
    )
    found, calm = samples(await text_of(log, status=waiting)), samples(await text_of(log))

    assert (found["memforest_budget_spent_tokens"], found["memforest_budget_limit_tokens"]) == (500, 400)
    assert (found["memforest_budget_used_up"], found["memforest_zero_facts_rising"]) == (1, 1)
    assert found["memforest_zero_facts_share"] == 0.75
    assert {"memforest_budget_limit_tokens", "memforest_zero_facts_share"} & calm.keys() == set()


async def test_a_lag_that_nobody_knows_is_left_out(log: EventLog) -> None:
    lost = replace(STATUS, bus=replace(STATUS.bus, state="down", lag_messages=None))
    found = samples(await text_of(log, status=lost))

    assert "memforest_ingest_lag_messages" not in found
    assert found["memforest_bus_up"] == 0


async def test_no_id_no_word_and_no_address_is_in_the_text(log: EventLog) -> None:
    await log.append(a_batch(a_turn("Xylophon", user_id="Marimba", session_id="Glockenspiel")))
    endpoint = an_endpoint("secret", 0, "open")
    at_endpoints = ModelsShown("secret", "secret", "secret", 0, chat=endpoint, embeddings=endpoint)
    text = await text_of(log, status=replace(STATUS, models=at_endpoints))

    for word in ("Xylophon", "Marimba", "Glockenspiel", "secret"):
        assert word not in text


async def test_events_are_counted_by_type_and_only_the_new_ones_are_read(log: EventLog) -> None:
    async def ask(_: StatusParams) -> DaemonStatus:
        return STATUS

    metrics = Metrics(log, ask, Tally())
    await log.append(a_batch(a_turn(turn_id="t1"), a_turn(turn_id="t2")))
    first = samples((await metrics.metrics(NoParams())).text)
    await log.append_event(a_closing())
    second = samples((await metrics.metrics(NoParams())).text)
    again = samples((await metrics.metrics(NoParams())).text)

    assert first["memforest_events_total{type=turn.recorded}"] == 2
    assert second["memforest_events_total{type=turn.recorded}"] == 2
    assert second["memforest_events_total{type=session.closed}"] == 1
    assert again == second


async def test_two_scrapes_at_once_count_nothing_twice(log: EventLog) -> None:
    async def ask(_: StatusParams) -> DaemonStatus:
        return STATUS

    metrics = Metrics(log, ask, Tally())
    await log.append(a_batch(a_turn(turn_id="t1"), a_turn(turn_id="t2")))
    await asyncio.gather(*(metrics.metrics(NoParams()) for _ in range(5)))

    assert samples((await metrics.metrics(NoParams())).text)["memforest_events_total{type=turn.recorded}"] == 2


async def test_requests_are_counted_by_method_and_errors_by_code(log: EventLog, path: Path) -> None:
    async def fail(_: Any) -> object:
        raise KeyError

    handlers = {
        "healthz": Method(Nothing, alive, write=False, deadline_s=5.0),
        "digest": Method(Nothing, fail, write=False, deadline_s=5.0),
    }
    async with serving(path, handlers, reports=Reports()) as server, connected(path) as client:
        for _ in range(3):
            await client.call("healthz")
        await client.call("digest")
        await client.call("Xylophon")
        await client.call("healthz", wrong=1)
        found = samples(await text_of(log, server.tally))

    assert found["memforest_request_seconds_count{method=healthz}"] == 3
    assert found["memforest_request_seconds_bucket{le=+Inf,method=healthz}"] == 3
    assert found["memforest_request_seconds_count{method=digest}"] == 1
    assert found["memforest_request_errors_total{code=internal}"] == 1
    assert found["memforest_request_errors_total{code=not_found}"] == 1
    assert found["memforest_request_errors_total{code=invalid}"] == 1
    assert (found["memforest_connections"], found["memforest_requests_in_flight"]) == (1, 0)
    assert not any("Xylophon" in name for name in found)


async def test_a_request_is_in_the_class_of_its_time(log: EventLog) -> None:
    tally = Tally()
    for seconds in (0.001, 0.0011, 59.0, 61.0):
        tally.latencies["query"].add(seconds)
    found = samples(await text_of(log, tally))
    bucket = "memforest_request_seconds_bucket{{le={},method=query}}"

    assert [found[bucket.format(le)] for le in ("0.001", "0.002", "30.0", "60.0", "+Inf")] == [1, 2, 2, 3, 4]
    assert found["memforest_request_seconds_sum{method=query}"] == pytest.approx(120.0021)
    assert sum("_bucket{" in name for name in found) == len(LATENCY_BOUNDS_S) + 1


# --- the port ---


async def alive(_: Any) -> object:
    return {"state": "ok"}


def a_table() -> Handlers:
    return {name: Method(Nothing, alive, write=False, deadline_s=5.0) for name in METHODS}


async def test_the_port_has_health_and_no_user(path: Path) -> None:
    listener = MetricsListener(("127.0.0.1", 0), a_table(), quiet)
    listener.bind()
    serving_port = asyncio.create_task(listener.serve())
    client = HttpClient(*await asyncio.open_connection(*listener.address))
    try:
        assert (await client.fetch("GET", "/healthz")).json == {"state": "ok"}
        assert (await client.fetch("GET", "/v1/users")).status == 404
        assert (await client.fetch("POST", "/v1/query", {})).status == 404
    finally:
        await client.close()
        serving_port.cancel()
        await asyncio.wait([serving_port])


async def test_the_port_does_not_speak_json_rpc() -> None:
    listener = MetricsListener(("127.0.0.1", 0), a_table(), quiet)
    listener.bind()
    serving_port = asyncio.create_task(listener.serve())
    client = HttpClient(*await asyncio.open_connection(*listener.address))
    try:
        assert (await client.call("users.list"))["error"]["data"]["code"] == "invalid"
        assert await client.at_end()
    finally:
        await client.close()
        serving_port.cancel()
        await asyncio.wait([serving_port])


def test_a_port_that_is_taken_is_told() -> None:
    first = MetricsListener(("127.0.0.1", 0), a_table(), quiet)
    first.bind()
    second = MetricsListener(first.address, a_table(), quiet)
    try:
        with pytest.raises(PortUnusable, match=r"metrics\.listen"):
            second.bind()
    finally:
        first.close()


def test_only_loopback_addresses_are_listened_at() -> None:
    assert parse_listen("") is None
    assert parse_listen("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert parse_listen("localhost:9464") == ("localhost", 9464)
    assert parse_listen("[::1]:9464") == ("::1", 9464)
    for wrong in (
        "0.0.0.0:9464",
        ":9464",
        "9464",
        "10.0.0.1:1",
        "[::]:1",
        "example.org:1",
        "127.0.0.1:65536",
        "127.0.0.1:",
    ):
        with pytest.raises(ConfigInvalid, match="loopback"):
            parse_listen(wrong)
