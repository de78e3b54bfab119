"""The daemon's figures in the text format that Prometheus reads, which prometheus-client writes.

A registry of ours holds one collector, filled at each scrape. No label has an id or a word in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from daemon.asking.spent import SpentShown
from daemon.serving.calls import LATENCY_BOUNDS_S, Tally
from daemon.status_shown import BudgetShown, DaemonStatus, EndpointShown

_LATENCY_LABELS = (*map(str, LATENCY_BOUNDS_S), "+Inf")


def write(status: DaemonStatus, tally: Tally, events: Mapping[str, int]) -> str:
    """Every figure; `events`: how many there are of each type."""
    registry = CollectorRegistry()
    families = (*_show_status(status), *_show_models(status), *_show_ledger(status))
    registry.register(_Collected((*families, *_show_tally(tally), *_show_events(events))))
    return generate_latest(registry).decode()


class _Collected(Collector):
    """Figures that are ready, for a registry."""

    def __init__(self, families: tuple[Metric, ...]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._families


def _gauge(name: str, sentence: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"memforest_{name}", sentence, value=value)


def _counter(name: str, sentence: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"memforest_{name}", sentence, value=value)


def _show_status(status: DaemonStatus) -> Iterator[Metric]:
    log, worker, bus, disk = status.log, status.worker, status.bus, status.disk
    build = GaugeMetricFamily("memforest_build_info", "The version that runs; always 1.", labels=["version"])
    build.add_metric([status.daemon.version], 1)
    yield build
    yield _gauge("uptime_seconds", "Time since the daemon was built up.", status.daemon.uptime_s)
    yield _gauge("ready", "1 when every part works, 0 when readyz says degraded.", status.health.state == "ready")
    degraded = GaugeMetricFamily("memforest_degraded", "1 for each part that does not work.", labels=["part"])
    for part in status.health.reasons:
        degraded.add_metric([part], 1)
    yield degraded
    yield _gauge("log_seq", "The number of the last event in the log.", log.events)
    yield _gauge("users", "Users in the store.", log.users)
    yield _gauge("sessions", "Sessions in the store, forgotten ones too.", log.sessions)
    yield _gauge("dead_letters", "Messages kept because they could not be decoded.", log.dead_letters)
    yield _counter("refused_messages", "Messages for what was forgotten or taken back.", log.refused)
    yield _gauge("waiting_turns", "Turns whose facts have not been extracted.", log.waiting_turns)
    yield _gauge(
        "forgotten_not_erased", "Sessions and users that are forgotten, not erased yet.", log.forgotten_not_erased
    )
    yield _gauge("bus_up", "1 while the bus is connected and its stream is read.", bus.state == "up")
    yield _gauge("bus_read_to", "The sequence of the last message that is in the log.", bus.read_to)
    if bus.lag_messages is not None:
        yield _gauge(
            "ingest_lag_messages", "Messages on the stream that are not in the log yet.", bus.lag_messages
        )
    yield _gauge(
        "ingest_paused", "1 while the bus is not read for want of room.", status.ingest.paused is not None
    )
    yield _counter("ingest_ignored_messages", "Messages that were none of ours.", status.ingest.ignored)
    yield _gauge("worker_in_flight", "Pieces of work that are under way.", worker.in_flight)
    yield _gauge("worker_calling", "Questions that are with the language model.", worker.calling)
    yield _counter("model_questions", "Questions that were put to the language model.", worker.questions)
    yield _counter("model_questions_failed", "Those of them that came to nothing.", worker.questions_failed)
    yield _counter("model_answers_recorded", "Questions whose answer stood in the log already.", worker.recorded)
    yield _gauge("worker_waiting_for_model", "Pieces of work that wait for a model.", worker.waiting_for_model)
    yield _gauge("groups_planned", "Groups that are to be fused in the background.", worker.planned)
    yield _gauge("parked_work", "Pieces of work that were given up until somebody looks.", worker.parked)
    yield _gauge("vectors_waiting", "Memories whose vectors are not made yet.", status.models.vectors_waiting)
    of_nodes = status.models.node_vectors_waiting
    yield _gauge("node_vectors_waiting", "Nodes of trees whose vectors are not made yet.", of_nodes)
    yield _gauge("memories_loaded", "Users whose Memory is loaded.", status.daemon.memories_loaded)
    yield _gauge(
        "memories_bytes", "Room that the search of the loaded Memories takes.", status.daemon.memories_bytes
    )
    yield _gauge("disk_free_bytes", "Room on the disk of the store.", disk.free_bytes)
    yield _gauge("wal_bytes", "Size of the write-ahead log.", disk.wal_bytes)


def _labelled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    sentence: str,
    label: str,
    values: Mapping[str, float | None],
) -> Iterator[Metric]:
    """One family with a value for each label; nothing for None, and no family without a value."""
    known = {key: value for key, value in values.items() if value is not None}
    if known:
        family = kind(f"memforest_{name}", sentence, labels=[label])
        for key, value in known.items():
            family.add_metric([key], value)
        yield family


def _show_models(status: DaemonStatus) -> Iterator[Metric]:
    """The models at endpoints, by use; what works here has none of these."""
    uses = {"chat": status.models.chat, "embeddings": status.models.embeddings}
    endpoints = {use: each for use, each in uses.items() if each is not None}

    def of(read: Callable[[EndpointShown], float]) -> dict[str, float | None]:
        return {use: read(each) for use, each in endpoints.items()}

    gauge, counter = partial(_labelled, GaugeMetricFamily), partial(_labelled, CounterMetricFamily)
    yield from gauge("endpoint_up", "1 while the endpoint is asked.", "use", of(lambda e: e.circuit == "closed"))
    yield from gauge("endpoint_limit", "Calls that may be under way now.", "use", of(lambda e: e.limit))
    yield from gauge("endpoint_limit_max", "models.concurrency.", "use", of(lambda e: e.concurrency))
    yield from gauge("endpoint_in_flight", "Calls that are under way.", "use", of(lambda e: e.in_flight))
    yield from gauge("endpoint_waiting", "Calls that wait to go out.", "use", of(lambda e: e.waiting))
    yield from counter("endpoint_calls", "Calls since the start.", "use", of(lambda e: e.calls))
    yield from counter("endpoint_calls_failed", "Calls that came to nothing.", "use", of(lambda e: e.failed))
    yield from counter("endpoint_retries", "Attempts after the first of a call.", "use", of(lambda e: e.retries))
    found = status.extraction
    yield from counter(
        "chunks",
        "Chunks that were read, by what was found.",
        "found",
        {"facts": found.with_facts, "nothing": found.zero_facts, "skipped": found.skipped},
    )
    yield _counter("chunks_flagged", "Chunks of which no fact carries some detail.", found.flagged)
    if found.zero_share is not None:
        yield _gauge("zero_facts_share", "Part of a model's last 100 chunks without facts.", found.zero_share)
    yield _gauge("zero_facts_rising", "1 while that is an alarm.", found.trouble is not None)


def _show_ledger(status: DaemonStatus) -> Iterator[Metric]:
    """What the language model took, by task, ever; and the day's budget."""

    def of(read: Callable[[SpentShown], float]) -> dict[str, float | None]:
        return {task: read(each) for task, each in status.ledger.in_all.items()}

    counter = partial(_labelled, CounterMetricFamily)
    yield from counter("model_calls", "Calls that answers took, ever.", "task", of(lambda spent: spent.calls))
    yield from counter("model_cost", "Their cost at the prices of then.", "task", of(lambda spent: spent.cost))
    tokens = CounterMetricFamily("memforest_model_tokens", "Their tokens, ever.", labels=["task", "kind"])
    for task, spent in status.ledger.in_all.items():
        tokens.add_metric([task, "prompt"], spent.prompt_tokens - spent.cached_tokens)
        tokens.add_metric([task, "cached"], spent.cached_tokens)
        tokens.add_metric([task, "completion"], spent.completion_tokens)
    yield tokens
    budget: BudgetShown = status.budget.all_users
    yield _gauge("budget_spent_tokens", "Tokens of today (UTC), all users together.", budget.spent_tokens)
    if budget.limit_tokens is not None:
        yield _gauge("budget_limit_tokens", "models.tokens_per_day.", budget.limit_tokens)
    waits = budget.waits_until is not None
    yield _gauge("budget_used_up", "1 while work waits for midnight (UTC).", waits)


def _show_tally(tally: Tally) -> Iterator[Metric]:
    yield _gauge("connections", "Clients that are connected.", tally.connections)
    yield _gauge("requests_in_flight", "Requests that are under way.", tally.in_flight)
    yield _gauge("streams", "HTTP answers that stream a session's events.", tally.streams)
    errors = CounterMetricFamily("memforest_request_errors", "Requests answered with an error.", labels=["code"])
    for code, count in sorted(tally.errors.items()):
        errors.add_metric([code], count)
    yield errors
    seconds = HistogramMetricFamily(
        "memforest_request_seconds", "From a request's start to its result or error.", labels=["method"]
    )
    for method, latencies in sorted(tally.latencies.items()):
        seconds.add_metric(
            [method],
            [
                (label, float(count))
                for label, count in zip(_LATENCY_LABELS, accumulate(latencies.counts), strict=True)
            ],
            latencies.seconds,
        )
    yield seconds


def _show_events(events: Mapping[str, int]) -> Iterator[Metric]:
    family = CounterMetricFamily("memforest_events", "Events in the log.", labels=["type"])
    for kind, count in sorted(events.items()):
        family.add_metric([kind], count)
    yield family
