"""What `status` and `readyz` say of models, budgets, extraction and costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC

import pytest

from daemon.asking.listings import NoParams
from daemon.asking.spent import SpentShown
from daemon.bus.nats_bus import NatsBus
from daemon.decoders.decoding import Decoder
from daemon.disk import Disk
from daemon.extraction_watch import ExtractionWatch
from daemon.ingest import Ingest
from daemon.ledger_totals import LedgerTotals
from daemon.models.budget import Budget
from daemon.models.endpoint import EndpointState
from daemon.models.query_spending import QuerySpending
from daemon.models.query_tasks import QueryTask
from daemon.offline.language_model import OfflineLanguageModel
from daemon.status import ModelsInUse, Status, StatusParams
from daemon.status_shown import DaemonStatus, EndpointShown, show_endpoint
from events.memory import Usage
from tests.builders import KEYS, MONDAY, ManualClock
from tests.bus_in_use import Reported
from tests.daemon.model_answers import Answers
from tests.daemon.parts_in_use import ALICE, Parts, unwritable
from tests.scripted_models import ScriptedEmbedder

DAY_MS = 86_400_000
ASKED = Usage(calls=1, prompt_tokens=100, cached_tokens=60, completion_tokens=10, cost_nano=1_500_000)
STATE = EndpointState(
    url="http://host/v1",
    circuit="closed",
    reason=None,
    retry_in_s=0.0,
    limit=4,
    concurrency=16,
    in_flight=3,
    waiting=2,
    calls=40,
    failed=5,
    retries=6,
)
OPEN = replace(STATE, circuit="open", reason="nothing listens at models.chat_url", retry_in_s=7.4912)


@pytest.fixture
def build(parts: Parts, clock: ManualClock) -> Callable[..., Status]:
    """A `Status` over real parts; what is said of the models is handed in."""
    bus = NatsBus("nats://127.0.0.1:1")

    def build(
        budget: Budget | None = None,
        chat: EndpointShown | None = None,
        price: str | None = None,
        queries: QuerySpending | None = None,
    ) -> Status:
        models = ModelsInUse(
            OfflineLanguageModel(),
            ScriptedEmbedder(),
            budget or Budget(0, 0, clock),
            queries or QuerySpending(parts.log, clock),
            ExtractionWatch(LedgerTotals(parts.log, clock), Reported()),
            chat=lambda: chat,
            price_missing=price,
        )
        ingest = Ingest(bus, "MEMFOREST", parts.log, parts.memories, Decoder(KEYS, UTC), Reported())
        disk = Disk(parts.log, Reported(), ballast_bytes=0, free_min_bytes=0)
        parts_shown = (bus, lambda: "nats://127.0.0.1:1", ingest, parts.worker, parts.answerer, models, disk)
        return Status("1.2.3", clock, parts.log, parts.memories, *parts_shown)

    return build


@pytest.fixture
def answers(parts: Parts) -> Answers:
    return Answers(parts.log)


async def ask(status: Status, user_id: str | None = None) -> DaemonStatus:
    return await status.status(StatusParams(user_id=user_id))


async def test_models_that_run_here_have_no_endpoint_no_limit_and_no_share(build: Callable[..., Status]) -> None:
    shown = await ask(build())

    assert (shown.models.chat, shown.models.embeddings) == (None, None)
    assert (shown.budget.all_users.limit_tokens, shown.budget.all_users.waits_until) == (None, None)
    assert (shown.budget.user, shown.ledger.price_missing) == (None, None)
    assert (shown.extraction.answers, shown.extraction.zero_share, shown.extraction.trouble) == (0, None, None)
    assert shown.ledger.today == shown.ledger.in_all
    assert shown.ledger.in_all == dict.fromkeys(
        ("extract", "judge", "summarise", "merge", "plan", "rank", "check", "answer", "grade"),
        SpentShown(0, 0, 0, 0, 0.0),
    )


async def test_what_is_pending_of_a_user_is_told_by_kind_and_adds_up(
    build: Callable[..., Status], parts: Parts
) -> None:
    nobody = await ask(build())
    await parts.say("Zoe came.", "Zoe went.", "Zoe came back.")
    await parts.close()
    shown = await ask(build(), "alice")

    assert nobody.waits is None
    assert shown.waits is not None
    assert shown.watermark is not None
    waiting = asdict(shown.waits)
    assert waiting["chunks_to_read"] == 2
    assert sum(waiting.values()) == shown.watermark.pending


async def test_an_endpoint_is_shown_as_it_is_and_is_ready_while_its_circuit_is_closed(
    build: Callable[..., Status],
) -> None:
    status = build(chat=show_endpoint("gpt", STATE, "json_schema"))
    chat = (await ask(status)).models.chat

    assert chat == EndpointShown(
        *("gpt", "http://host/v1", "closed", None, 0.0),
        *(4, 16, 3, 2, 40, 5, 6),
        "json_schema",
    )
    assert "language_model" not in (await status.readyz(NoParams())).reasons


async def test_an_endpoint_that_is_left_alone_is_degraded_with_its_reason(build: Callable[..., Status]) -> None:
    status = build(chat=show_endpoint("gpt", OPEN))
    shown, ready = await ask(status), await status.readyz(NoParams())

    assert ready.reasons["language_model"] == "nothing listens at models.chat_url"
    assert shown.health == ready
    assert shown.models.chat is not None
    assert (shown.models.chat.circuit, shown.models.chat.retry_in_s) == ("open", 7.5)


async def test_what_was_spent_stands_by_task_with_its_cost(
    build: Callable[..., Status], answers: Answers, clock: ManualClock
) -> None:
    status = build(price="gpt")
    await answers.extract(1, ASKED)
    await answers.merge(ASKED)
    clock.advance(DAY_MS)
    await answers.extract(1, ASKED)
    ledger = (await ask(status)).ledger

    one, two = SpentShown(1, 100, 60, 10, 0.0015), SpentShown(2, 200, 120, 20, 0.003)
    assert (ledger.today["extract"], ledger.today["merge"].calls) == (one, 0)
    assert (ledger.in_all["extract"], ledger.in_all["merge"]) == (two, one)
    assert ledger.price_missing == "gpt"


async def test_what_questions_took_stands_beside_it(
    build: Callable[..., Status], answers: Answers, clock: ManualClock
) -> None:
    queries = QuerySpending(answers.log, clock)
    status = build(queries=queries)
    await answers.extract(1, ASKED)
    queries.note(ALICE, QueryTask.PLAN, ASKED)
    clock.advance(DAY_MS)
    queries.note(ALICE, QueryTask.PLAN, ASKED)
    queries.note(None, QueryTask.GRADE, ASKED)
    ledger = (await ask(status)).ledger

    one, two = SpentShown(1, 100, 60, 10, 0.0015), SpentShown(2, 200, 120, 20, 0.003)
    assert (ledger.today["extract"].calls, ledger.today["plan"], ledger.today["grade"]) == (0, one, one)
    assert (ledger.in_all["extract"], ledger.in_all["plan"], ledger.in_all["grade"]) == (one, two, one)


async def test_a_budget_says_what_is_spent_of_what_and_until_when_work_waits(
    build: Callable[..., Status], clock: ManualClock
) -> None:
    budget = Budget(1000, 300, clock)
    status = build(budget)
    budget.spend(ALICE, Usage(prompt_tokens=350))
    first = (await ask(status, "alice")).budget
    budget.spend(KEYS.user("bob"), Usage(completion_tokens=650))
    second = (await ask(status, "bob")).budget
    clock.advance(DAY_MS)
    later = (await ask(status, "alice")).budget

    midnight = "2024-07-02T00:00:00Z"
    assert MONDAY // DAY_MS * DAY_MS + DAY_MS == 1719878400000
    assert (first.all_users.spent_tokens, first.all_users.limit_tokens, first.all_users.waits_until) == (
        *(350, 1000),
        None,
    )
    assert first.user is not None
    assert (first.user.spent_tokens, first.user.limit_tokens, first.user.waits_until) == (350, 300, midnight)
    assert "models.tokens_per_day_user" in (first.user.reason or "")
    assert (second.all_users.spent_tokens, second.all_users.waits_until) == (1000, midnight)
    assert second.user is not None
    assert second.user.waits_until == midnight, "the budget of all holds for everybody"
    assert later.user is not None
    assert (later.all_users.spent_tokens, later.user.spent_tokens, later.user.waits_until) == (0, 0, None)


async def test_a_budget_that_is_used_up_is_no_fault(build: Callable[..., Status], clock: ManualClock) -> None:
    budget = Budget(10, 0, clock)
    budget.spend(ALICE, Usage(prompt_tokens=10))

    assert list((await build(budget).readyz(NoParams())).reasons) == ["bus"]


async def test_a_model_that_finds_nothing_makes_it_degraded_and_says_where_to_look(
    build: Callable[..., Status], answers: Answers
) -> None:
    status = build()
    await answers.extract(2, ASKED, missed=1)
    for _ in range(18):
        await answers.extract(0, ASKED)
    await answers.extract(0, skipped=True)
    before = await status.readyz(NoParams())
    await answers.extract(0, ASKED)
    after, shown = await status.readyz(NoParams()), (await ask(status)).extraction

    assert "extraction" not in before.reasons
    assert "19 of the last 20 chunks" in after.reasons["extraction"]
    assert (shown.answers, shown.with_facts, shown.zero_facts, shown.skipped, shown.flagged) == (21, 1, 19, 1, 1)
    assert (shown.zero_share, shown.trouble) == (0.95, after.reasons["extraction"])


async def test_parked_work_counts_while_it_stands_parked(build: Callable[..., Status], answers: Answers) -> None:
    await answers.park()
    await answers.park()

    assert (await ask(build())).worker.parked == 2


async def test_readiness_is_told_while_the_store_cannot_be_written(
    build: Callable[..., Status], answers: Answers, parts: Parts
) -> None:
    status = build()
    await answers.extract(1, ASKED)
    with unwritable(parts.log.path):
        ready = await status.readyz(NoParams())

    assert "extraction" not in ready.reasons
