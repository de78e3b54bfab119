"""The table of socket methods: what each takes, who answers it, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.asking.answer_judging import AnswerJudge, JudgeParams
from daemon.asking.answers import Answerer
from daemon.asking.differences import Differences, DiffParams
from daemon.asking.listings import Listings, NoParams, SessionParams, UserParams, find_user
from daemon.asking.merges import Merges, MergesParams
from daemon.asking.query_params import QueryParams
from daemon.asking.session_events import SessionEvents, SessionEventsParams
from daemon.asking.structures import FactsParams, PageParams, Structures
from daemon.asking.tree_nodes import TreeNodesReader, TreeParams
from daemon.asking.why import Provenance, WhyParams
from daemon.building.compacted import CompactionResult
from daemon.building.compaction import Compactor
from daemon.building.corrections import Corrections, CorrectParams, FactParams, PinParams
from daemon.building.policies import Policies, PolicyParams
from daemon.building.replaying import Replaying, ReplayParams
from daemon.building.undoing import Undone
from daemon.bus.publishing import CloseParams, IngestParams, Publisher, RetractParams
from daemon.dead_letters import DeadLetters, LetterParams, LettersParams
from daemon.erasure.forgetting import Forgetter
from daemon.erasure.receipts import Preview, Receipt
from daemon.parked import Parked, ParkedListParams, ParkedParams, ResumeParams
from daemon.serving.metrics import Metrics
from daemon.serving.protocol import Handlers, Method
from daemon.serving.schemas import Schemas
from daemon.status import Status, StatusParams
from daemon.untrusted import Params
from events.errors import InvalidInput
from events.log import EventLog

# Reads are quick; what waits for a model or for erasing gets longer.
READ_DEADLINE_S = 30.0
# Of a long poll of 30 s, and of two folds of the past.
POLL_DEADLINE_S = 60.0
WRITE_DEADLINE_S = 60.0
# Three calls of a slow machine, one after the other.
JUDGE_DEADLINE_S = 300.0
WORK_DEADLINE_S = 3600.0

# Every method with what it does; the README lists the same (a test compares).
METHODS: dict[str, str] = {
    "query": "the memories for a question, best first, and the same as prompt-ready text",
    "answers.judge": "whether an answer to a question is right, as a model says",
    "ingest": "publish turns for a caller without a NATS client",
    "sessions.list": "the sessions of a user",
    "sessions.get": "one session",
    "sessions.events": "everything that happened in and because of a session, page by page or as it comes",
    "sessions.close": "publish that a session is over",
    "sessions.replay": "extract a session again under today's models, or show beforehand what that would cost",
    "sessions.forget": "forget a session and erase its words, or show beforehand what that would take",
    "turns.retract": "publish that a turn was taken back: its words and what was made of them are erased",
    "users.forget": "forget all of a user and erase it",
    "users.list": "the users of the store",
    "facts.list": "the facts of a user in time order, or their contradictions, page by page",
    "facts.get": "one fact",
    "facts.correct": "say what is so in place of a fact",
    "facts.retract": "say that a fact is not so: it is shown no more, also when its turns are read again",
    "facts.pin": "keep a fact as it is, whatever is extracted or merged later, or let it go again",
    "trees.list": "the MemTrees of a user, the largest first",
    "trees.get": "one MemTree from its root downwards, with the texts that its nodes have",
    "units.list": "the EventTree units of a user and their groups, page by page",
    "units.compact": "merge redundant facts until a ratio is reached, or show beforehand what that would take",
    "units.undo": "take groups apart again: their facts are searched by themselves",
    "units.policy": "how far a user's memory is compressed, and who says so",
    "units.set_policy": "say how far a user's memory is compressed",
    "units.merges": "the texts of groups and of their members, page by page: what a merge model learns from",
    "dead_letters.list": "input that could not be decoded, with its reason",
    "dead_letters.get": "one dead letter with its content",
    "dead_letters.retry": "decode a dead letter again and record what it says",
    "dead_letters.drop": "erase a dead letter for good",
    "parked.list": "work that was given up, newest first, with its reason",
    "parked.get": "one piece of it with what the model would be asked about",
    "parked.retry": "have parked work tried again: one piece, all of a user, or all there is",
    "why": "where a memory comes from: group, facts, what a model read, turns, messages on the bus",
    "diff": "what became known of a user, and what no longer is, between two positions",
    "digest": "hashes of a user's Memory",
    "metrics": "the daemon in figures, as Prometheus reads them",
    "schema": "the OpenAPI document of what the socket answers over HTTP",
    "healthz": "that the daemon answers",
    "readyz": "whether everything works, or which part is degraded and why",
    "status": "how the daemon is; with a user, how far that user's Memory is",
}


class CompactParams(Params, frozen=True, kw_only=True):
    """Parameters of `units.compact`; without a ratio that of the user's policy, else of the configuration.

    With `dry_run` nothing is changed. With `reindex` the units are made anew first; groups stay as they are.
    """

    user_id: str
    ratio: float | None = None
    dry_run: bool = False
    reindex: bool = False


class UndoParams(Params, frozen=True, kw_only=True):
    """Parameters of `units.undo`: the ids of groups; without any, all of the user's."""

    user_id: str
    groups: list[str] | None = None


class ForgetParams(Params, frozen=True, kw_only=True):
    """Parameters of `sessions.forget`; with `dry_run` nothing is changed."""

    user_id: str
    session_id: str
    dry_run: bool = False


class ForgetUserParams(Params, frozen=True, kw_only=True):
    """Parameters of `users.forget`; with `dry_run` nothing is changed."""

    user_id: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Answering:
    """The parts that answer requests."""

    log: EventLog
    answerer: Answerer
    answer_judge: AnswerJudge
    listings: Listings
    structures: Structures
    tree_nodes: TreeNodesReader
    provenance: Provenance
    corrections: Corrections
    publisher: Publisher
    forgetter: Forgetter
    compactor: Compactor
    policies: Policies
    merges: Merges
    dead_letters: DeadLetters
    parked: Parked
    session_events: SessionEvents
    differences: Differences
    replaying: Replaying
    status: Status
    metrics: Metrics
    schemas: Schemas


def make_handlers(parts: Answering) -> Handlers:
    """The method table over the daemon's parts."""

    async def forget(params: ForgetParams) -> Receipt | Preview:
        if params.dry_run:
            return await parts.forgetter.preview(params.user_id, params.session_id)
        return await parts.forgetter.forget(params.user_id, params.session_id)

    async def forget_user(params: ForgetUserParams) -> Receipt | Preview:
        if params.dry_run:
            return await parts.forgetter.preview(params.user_id, None)
        return await parts.forgetter.forget_user(params.user_id)

    listings, structures, letters = parts.listings, parts.structures, parts.dead_letters
    table: Handlers = {
        "query": Method(
            QueryParams, parts.answerer.query, False, READ_DEADLINE_S, more_s=parts.answerer.time_for_models
        ),
        "answers.judge": Method(JudgeParams, parts.answer_judge.judge, False, JUDGE_DEADLINE_S),
        "ingest": Method(IngestParams, parts.publisher.ingest, True, WRITE_DEADLINE_S),
        "sessions.list": Method(UserParams, listings.sessions, False, READ_DEADLINE_S),
        "sessions.get": Method(SessionParams, listings.session, False, READ_DEADLINE_S),
        "sessions.events": Method(SessionEventsParams, parts.session_events.events, False, POLL_DEADLINE_S),
        "sessions.close": Method(CloseParams, parts.publisher.close_session, True, WRITE_DEADLINE_S),
        "sessions.replay": Method(ReplayParams, parts.replaying.replay, True, WORK_DEADLINE_S),
        "sessions.forget": Method(ForgetParams, forget, True, WORK_DEADLINE_S),
        "turns.retract": Method(RetractParams, parts.publisher.retract_turn, True, WRITE_DEADLINE_S),
        "users.forget": Method(ForgetUserParams, forget_user, True, WORK_DEADLINE_S),
        "users.list": Method(NoParams, listings.users, False, READ_DEADLINE_S),
        "facts.list": Method(FactsParams, structures.facts, False, READ_DEADLINE_S),
        "facts.get": Method(FactParams, parts.corrections.get, False, READ_DEADLINE_S),
        "facts.correct": Method(CorrectParams, parts.corrections.correct, True, WRITE_DEADLINE_S),
        "facts.retract": Method(FactParams, parts.corrections.retract, True, WRITE_DEADLINE_S),
        "facts.pin": Method(PinParams, parts.corrections.pin, True, WRITE_DEADLINE_S),
        "trees.list": Method(PageParams, structures.trees, False, READ_DEADLINE_S),
        "trees.get": Method(TreeParams, parts.tree_nodes.tree, False, READ_DEADLINE_S),
        **_unit_methods(parts),
        "dead_letters.list": Method(LettersParams, letters.list, False, READ_DEADLINE_S),
        "dead_letters.get": Method(LetterParams, letters.get, False, READ_DEADLINE_S),
        "dead_letters.retry": Method(LetterParams, letters.retry, True, WRITE_DEADLINE_S),
        "dead_letters.drop": Method(LetterParams, letters.drop, True, WRITE_DEADLINE_S),
        "parked.list": Method(ParkedListParams, parts.parked.list, False, READ_DEADLINE_S),
        "parked.get": Method(ParkedParams, parts.parked.get, False, READ_DEADLINE_S),
        "parked.retry": Method(ResumeParams, parts.parked.retry, True, WRITE_DEADLINE_S),
        "why": Method(WhyParams, parts.provenance.why, False, READ_DEADLINE_S),
        "diff": Method(DiffParams, parts.differences.diff, False, POLL_DEADLINE_S),
        "digest": Method(UserParams, structures.digest, False, READ_DEADLINE_S),
        "metrics": Method(NoParams, parts.metrics.metrics, False, READ_DEADLINE_S),
        "schema": Method(NoParams, parts.schemas.openapi, False, READ_DEADLINE_S),
        "healthz": Method(NoParams, parts.status.healthz, False, READ_DEADLINE_S),
        "readyz": Method(NoParams, parts.status.readyz, False, READ_DEADLINE_S),
        "status": Method(StatusParams, parts.status.status, False, READ_DEADLINE_S),
    }
    assert table.keys() == METHODS.keys()
    return table


def _unit_methods(parts: Answering) -> Handlers:
    """Those about EventTree units."""

    async def compact(params: CompactParams) -> CompactionResult:
        if params.ratio is not None and not 0 <= params.ratio < 1:
            raise InvalidInput("ratio is the share of nodes to remove, from 0 to below 1")
        user = await find_user(parts.log, params.user_id)
        act = parts.compactor.preview if params.dry_run else parts.compactor.compact
        return await act(user, params.ratio, reindex=params.reindex)

    async def undo(params: UndoParams) -> Undone:
        user = await find_user(parts.log, params.user_id)
        return await parts.compactor.undo(user, params.groups)

    return {
        "units.list": Method(PageParams, parts.structures.units, False, READ_DEADLINE_S),
        "units.compact": Method(CompactParams, compact, True, WORK_DEADLINE_S),
        "units.undo": Method(UndoParams, undo, True, WRITE_DEADLINE_S),
        "units.policy": Method(UserParams, parts.policies.get, False, READ_DEADLINE_S),
        "units.set_policy": Method(PolicyParams, parts.policies.set, True, WRITE_DEADLINE_S),
        "units.merges": Method(MergesParams, parts.merges.merges, False, READ_DEADLINE_S),
    }
