"""What `status`, `healthz` and `readyz` answer: how every part of the daemon is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daemon.asking.answer_types import Watermark
from daemon.asking.spent import SpentShown, show_usage
from daemon.building.compacted import ProgressShown
from daemon.bus.readings import ReadingShown
from daemon.ledger_totals import Totals
from daemon.models.budget import Block, Budget
from daemon.models.endpoint import EndpointState
from daemon.models.query_spending import QueryTotals
from daemon.models.query_tasks import QueryTask
from events.envelope import Reference
from events.memory import Task, Usage
from events.time import to_iso
from projections.memory import Memory


@dataclass(frozen=True, slots=True)
class Alive:
    """That the process answers."""

    state: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """`ready`, or `degraded` with a reason by part."""

    state: str
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class DaemonShown:
    """The process. `memories_bytes` is about what its loaded Memories take."""

    version: str
    uptime_s: float
    memories_loaded: int
    memories_bytes: int


@dataclass(frozen=True, slots=True)
class BusShown:
    """The connection to the bus, how far it was read, and how much waits there; null when it cannot tell."""

    state: str
    reason: str
    url: str
    read_to: int
    lag_messages: int | None


@dataclass(frozen=True, slots=True)
class IngestShown:
    """Why the bus is not read for now, and how many messages were none of ours since the start."""

    paused: str | None
    ignored: int


@dataclass(frozen=True, slots=True)
class DiskShown:
    """Room on the disk of the store, and the write-ahead log."""

    free_bytes: int
    ballast_bytes: int
    wal_bytes: int
    wal_large: bool


@dataclass(frozen=True, slots=True)
class DerivedShown:
    """What derived.db holds, and why it cannot be used, if so."""

    vectors: int
    snapshots: int
    bytes: int
    trouble: str | None


@dataclass(frozen=True, slots=True)
class LogShown:
    """What is in the log. `refused`: messages for what was forgotten or taken back."""

    events: int
    users: int
    sessions: int
    dead_letters: int
    refused: int
    waiting_turns: int
    forgotten_not_erased: int


@dataclass(frozen=True, slots=True)
class WorkerShown:
    """Work under way, questions that are with the model, put to it and come to nothing since the start, and work
    that was given up. A question takes one call to an endpoint or several, which `models.chat` counts.

    `waiting_for_model`: work that waits for an endpoint or a budget, as far as it was planned: of each user who
    has to wait at least one piece. `recorded`: answers since the start that stood in the log already. `planned`:
    groups of all users that are to be fused in the background, as far as they are planned.
    """

    in_flight: int
    calling: int
    questions: int
    questions_failed: int
    parked: int
    waiting_for_model: int = 0
    recorded: int = 0
    planned: int = 0


@dataclass(frozen=True, slots=True)
class EndpointShown:
    """A model at an endpoint. `circuit` is closed, or open for `reason` until it is tried again in `retry_in_s`.

    `limit` of `concurrency` calls go out at once for now. Counts are since the start; `failed`: calls that came to
    nothing after all their attempts. `json_mode`: how JSON is asked for; null for embeddings and till it is tried.
    """

    name: str
    url: str
    circuit: str
    reason: str | None
    retry_in_s: float
    limit: int
    concurrency: int
    in_flight: int
    waiting: int
    calls: int
    failed: int
    retries: int
    json_mode: str | None = None


@dataclass(frozen=True, slots=True)
class ModelsShown:
    """The models by name; why the embedder does not answer, if so, and how many memories wait for their vectors.

    `node_vectors_waiting`: nodes of trees with a text that wait for its vector, for which nobody waits. `chat` and
    `embeddings` are null for models that run here, without network.
    """

    language_model: str
    embedder: str
    embedder_trouble: str | None
    vectors_waiting: int
    chat: EndpointShown | None = None
    embeddings: EndpointShown | None = None
    node_vectors_waiting: int = 0


@dataclass(frozen=True, slots=True)
class BudgetShown:
    """Tokens of today (UTC), of all users or of one; null for no limit, and while nothing waits for midnight."""

    spent_tokens: int
    limit_tokens: int | None
    waits_until: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class BudgetsShown:
    """The budget of all users together, and the user's when one was asked about."""

    all_users: BudgetShown
    user: BudgetShown | None = None


@dataclass(frozen=True, slots=True)
class ExtractionShown:
    """What was found in chunks, ever. Each has facts, or none, or was `skipped`: nothing to remember, by rule.

    `flagged`: no fact carries some detail. `zero_share`: of an endpoint's last 100 chunks, the part of no facts;
    `trouble` when that is an alarm.
    """

    answers: int
    with_facts: int
    zero_facts: int
    skipped: int
    flagged: int
    zero_share: float | None
    trouble: str | None


@dataclass(frozen=True, slots=True)
class LedgerShown:
    """What was spent by task: extract, judge, summarise, merge; on questions: plan, rank, check, answer, grade.

    `price_missing`: a model without a price.
    """

    today: dict[str, SpentShown]
    in_all: dict[str, SpentShown]
    price_missing: str | None


@dataclass(frozen=True, slots=True)
class WaitsShown:
    """What `pending` of a user counts, by kind; groups are the planned ones."""

    chunks_to_read: int
    facts_to_admit: int
    facts_to_route: int
    nodes_to_summarise: int
    groups_to_fuse: int


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """How every part is; with a user, how far that user's Memory is, and the compaction that runs."""

    daemon: DaemonShown
    bus: BusShown
    health: Readiness
    ingest: IngestShown
    subscriptions: list[ReadingShown]
    disk: DiskShown
    derived: DerivedShown | None
    log: LogShown
    worker: WorkerShown
    models: ModelsShown
    budget: BudgetsShown
    extraction: ExtractionShown
    ledger: LedgerShown
    watermark: Watermark | None = None
    waits: WaitsShown | None = None
    compaction: ProgressShown | None = None


def show_waits(memory: Memory, pending: int) -> WaitsShown:
    """What waits of a Memory, by kind; `pending` in all, of which planned groups are what is not the Memory's."""
    return WaitsShown(
        chunks_to_read=len(memory.waiting_chunks),
        facts_to_admit=len(memory.canon.waiting),
        facts_to_route=len(memory.placement.scenes.unrouted),
        nodes_to_summarise=memory.forest.dirty_count(),
        groups_to_fuse=max(0, pending - memory.pending()),
    )


def show_endpoint(name: str, state: EndpointState, json_mode: str | None = None) -> EndpointShown:
    """An endpoint as it is now; its URL comes without a password."""
    return EndpointShown(
        name=name,
        url=state.url,
        circuit=state.circuit,
        reason=state.reason,
        retry_in_s=round(state.retry_in_s, 1),
        limit=state.limit,
        concurrency=state.concurrency,
        in_flight=state.in_flight,
        waiting=state.waiting,
        calls=state.calls,
        failed=state.failed,
        retries=state.retries,
        json_mode=json_mode,
    )


def show_budgets(budget: Budget, user: Reference | None) -> BudgetsShown:
    """What was spent today, and who has to wait."""
    everybody = _show_budget(budget.spent(), budget.tokens_per_day, budget.blocked())
    if user is None:
        return BudgetsShown(everybody)
    own = _show_budget(budget.spent(user), budget.tokens_per_day_user, budget.blocked(user))
    return BudgetsShown(everybody, own)


def _show_budget(spent: int, limit: int, block: Block | None) -> BudgetShown:
    until, reason = (None, None) if block is None else (to_iso(block.until), block.reason)
    return BudgetShown(spent, limit or None, until, reason)


def show_extraction(totals: Totals, trouble: str | None) -> ExtractionShown:
    """What was found in chunks."""
    found, share = totals.extractions, totals.zero_facts.share
    return ExtractionShown(
        answers=found.answers,
        with_facts=found.with_facts,
        zero_facts=found.zero,
        skipped=found.skipped,
        flagged=found.flagged,
        zero_share=None if share is None else round(share, 4),
        trouble=trouble,
    )


def show_ledger(recorded: Totals, asked: QueryTotals, price_missing: str | None) -> LedgerShown:
    """What was spent, as the events tell it and on questions."""
    today, in_all = _show_usages(recorded.today, asked.today), _show_usages(recorded.in_all, asked.in_all)
    return LedgerShown(today, in_all, price_missing)


def _show_usages(recorded: Mapping[Task, Usage], asked: Mapping[QueryTask, Usage]) -> dict[str, SpentShown]:
    return {task.value: show_usage(usage) for each in (recorded, asked) for task, usage in each.items()}
