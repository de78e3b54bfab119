"""The one place that builds parts and ties them together. What is open already is handed in; nothing runs yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from daemon.asking.answer_judging import AnswerJudge
from daemon.asking.answers import Answerer
from daemon.asking.differences import Differences
from daemon.asking.history import History
from daemon.asking.listings import Listings
from daemon.asking.merges import Merges
from daemon.asking.session_events import SessionEvents
from daemon.asking.structures import Structures
from daemon.asking.tree_nodes import TreeNodesReader
from daemon.asking.why import Provenance
from daemon.asking.word_search import find_word_search
from daemon.backpressure import Backpressure
from daemon.building.compaction import Compactor
from daemon.building.corrections import Corrections
from daemon.building.deciding import Deciding, DecidingParameters
from daemon.building.policies import Policies
from daemon.building.replaying import Replaying
from daemon.building.worker import Worker, WorkerParameters
from daemon.bus.bus_erasure import BusEraser
from daemon.bus.embedded_bus import EMBEDDED_BUS_FOLDER, EmbeddedBus
from daemon.bus.nats_bus import NatsBus
from daemon.bus.publishing import Publisher
from daemon.bus.readings import Reading, build_readings, checkpoints, make_decoder
from daemon.bus.tombstone_bucket import TombstoneBucket, bucket_name
from daemon.bus.tombstones import TombstoneKeeper
from daemon.config import Config, hide_password, parse_mode
from daemon.config_values import parse_listen
from daemon.dead_letters import DeadLetters
from daemon.decoders.decoding import Decoder
from daemon.derived import DerivedStore
from daemon.disk import MIB, Disk
from daemon.erasure.erasing import Erasing
from daemon.erasure.forgetting import Forgetter
from daemon.extraction_watch import ExtractionWatch
from daemon.fitting import Fitting
from daemon.ingest import Ingest
from daemon.ledger_totals import LedgerTotals
from daemon.logs import Report
from daemon.memories import Memories
from daemon.models.budget import Budget
from daemon.models.embedders import Unhurried
from daemon.models.embedding import EndpointEmbedder
from daemon.models.language_models import ChatModel, language_model_of
from daemon.models.prices import Prices
from daemon.models.query_spending import QuerySpending
from daemon.parked import Parked
from daemon.reading.recalled import GivenOut
from daemon.serving.calls import Tally
from daemon.serving.handlers import Answering, make_handlers
from daemon.serving.metrics import Metrics
from daemon.serving.metrics_listener import MetricsListener
from daemon.serving.openapi import encode_openapi
from daemon.serving.schemas import Schemas
from daemon.serving.socket_server import SocketServer
from daemon.snapshots import Snapshots, fingerprint_of_folding
from daemon.status import ModelsInUse, Status
from daemon.status_shown import EndpointShown, show_endpoint
from daemon.tree_vectors import TreeVectorFiller
from daemon.vector_source import VectorSource
from daemon.vectors import BroughtFiller, VectorFiller
from events.envelope import Reference
from events.log import EventLog, LogReader
from events.time import Instant
from projections.ports import Embedder, LanguageModel

if TYPE_CHECKING:
    from daemon.asking.deep.deepening import Deepening
    from daemon.asking.grounded import Grounding
    from daemon.asking.recalling import Recalling

# Before a step of erasing is tried again; each try to empty the write-ahead log holds up the writer.
ERASE_PAUSE_S = 2.0
# Questions that are got ready while all of models.concurrency are out: answers often come as many at a time as
# were let out together. An endpoint lets no more out than it may; a model in this process has no such gate.
AHEAD_MAX = 16


@dataclass(frozen=True, slots=True)
class Setting:
    """What every part may be built with, and the stores that are open."""

    version: str
    config: Config
    report: Report
    clock: Callable[[], Instant]
    log: EventLog
    reader: LogReader  # for queries alone, or they would queue behind what the worker reads
    derived: DerivedStore
    embedder: Embedder
    chat: ChatModel | None


@dataclass(slots=True)
class App:
    """The daemon's parts, opened and bound. `run` it in a task group's life, then `stop` it."""

    report: Report
    log: EventLog
    memories: Memories
    queries: QuerySpending
    embedded_bus: EmbeddedBus | None
    bus: NatsBus
    disk: Disk
    ingest: Ingest
    readings: tuple[Reading, ...]
    worker: Worker
    forgetter: Forgetter
    tombstones: TombstoneKeeper
    history: History
    vectors: VectorFiller | None
    brought: BroughtFiller
    tree_vectors: TreeVectorFiller
    extraction: ExtractionWatch
    session_events: SessionEvents
    socket: SocketServer
    metrics: MetricsListener | None
    opened: AsyncExitStack
    unchecked: bool = False  # SQLite's own check of the file was left for later


def wire(setting: Setting) -> App:
    """Every part of the daemon, built and tied together."""
    config, report, clock, log = setting.config, setting.report, setting.clock, setting.log
    model, embedder = language_model_of(setting.chat), setting.embedder
    cache = setting.derived if embedder.ranks else None  # hashing a text is quicker than reading its vector
    source = VectorSource(log, embedder, cache, setting.derived)
    memories = _make_memories(setting, source)
    intake = _make_intake(setting, memories)
    bus, ingest, readings = intake.bus, intake.ingest, intake.readings
    given_out, queries, own = GivenOut(log.keys.secret, clock), QuerySpending(log, clock), config.models
    budget = Budget(own.tokens_per_day, own.tokens_per_day_user, clock, report, queries, own.concurrency)
    worker = _make_worker(setting, memories, model, source, budget, given_out)
    parameters, asks = config.eventtree_parameters, config.models.asks_endpoint
    compactor = Compactor(log, memories, worker, source, parameters, clock, asks_endpoint=asks)
    forgetter, keeper = _make_forgetting(setting, memories, bus, ingest, readings)
    history, recall = History(log, config.memory_parameters), config.agpr_parameters
    asking = (_share_users(compactor, worker), budget, given_out, worker.refresh)
    # The hashing embedder's vectors rank nothing by default, so nothing is embedded for it.
    vectors = VectorFiller(memories, embedder, source, report) if recall.cosine_weight else None
    tree_vectors = _make_tree_vectors(setting, memories, vectors, cache)
    answerer = _make_answerer(setting, (memories, history, source, tree_vectors), *asking)
    extraction = ExtractionWatch(LedgerTotals(log, clock), report)
    in_use = _find_models(setting, model, (budget, queries, extraction))
    parts = (bus, intake.shown_url, ingest, worker, answerer, in_use, intake.disk, vectors, readings)
    progress, brought = compactor.show_progress, BroughtFiller(memories, source)
    status = Status(setting.version, clock, log, memories, *parts, setting.derived, tree_vectors, progress)
    fitting, others = Fitting(log.keys, memories), {each.stream: each.decoder for each in readings}
    structures, session_events, tally = Structures(log, memories, progress), SessionEvents(log), Tally()
    handlers = make_handlers(
        Answering(
            log=log,
            answerer=answerer,
            answer_judge=AnswerJudge(log, setting.chat.model if setting.chat else None, budget),
            listings=Listings(log, memories),
            structures=structures,
            tree_nodes=TreeNodesReader(log, memories),
            provenance=Provenance(log, memories, history, source, config.bus.stream),
            corrections=Corrections(log, memories, worker, structures, clock),
            publisher=Publisher(bus, intake.decoder, fitting),
            forgetter=forgetter,
            compactor=compactor,
            policies=Policies(log, memories, worker, parameters, clock),
            merges=Merges(log, memories),
            dead_letters=DeadLetters(log, intake.decoder, others, fitting),
            parked=Parked(log, clock),
            session_events=session_events,
            differences=Differences(log, history),
            replaying=Replaying(log, memories, model, clock),
            status=status,
            metrics=Metrics(log, status.status, tally),
            schemas=Schemas(partial(encode_openapi, setting.version)),
        )
    )
    mode, listen = parse_mode(config.socket.mode), parse_listen(config.metrics.listen)
    socket = SocketServer(config.socket_path, mode, handlers=handlers, report=report, tally=tally)
    port = None if listen is None else MetricsListener(listen, handlers, report)
    taking = (intake.embedded, bus, intake.disk, ingest, readings)
    doing = (worker, forgetter, keeper, history, vectors)
    asked = (tree_vectors, extraction, session_events, socket, port)
    return App(report, log, memories, queries, *taking, *doing, brought, *asked, AsyncExitStack())


def _make_answerer(
    setting: Setting,
    asked: tuple[Memories, History, VectorSource, TreeVectorFiller],
    planned: Callable[[Reference], int],
    budget: Budget,
    given_out: GivenOut,
    refresh: Callable[[Reference], None],
) -> Answerer:
    config, embedder, reader = setting.config, setting.embedder, setting.reader
    memories, history, source, trees = asked
    recall = (embedder, config.agpr_parameters, planned, setting.clock, history, source)
    return Answerer(
        setting.log.keys,
        reader,
        memories,
        *recall,
        give_out=given_out.note,
        grounding=_make_grounding(setting, budget),
        trees=trees,
        words=find_word_search(reader, embedder),
        make_deepening=_find_deepening(setting, budget, refresh),
        bounds=config.query,
    )


def _make_grounding(setting: Setting, budget: Budget) -> Grounding | None:
    if setting.chat is None:
        return None
    from daemon.asking.grounded import Grounding  # its rules are loaded for those who have a model

    return Grounding(setting.log, setting.reader, setting.chat.model, budget, setting.config.query)


def _find_deepening(
    setting: Setting, budget: Budget, refresh: Callable[[Reference], None]
) -> Callable[[Recalling], Deepening] | None:
    if setting.chat is None:
        return None
    from daemon.asking.deep.deepening import Deepening  # as above

    chat, log, reader = setting.chat.model, setting.log, setting.reader
    return lambda recalling: Deepening(log, reader, recalling, chat, budget, refresh=refresh)


def _make_tree_vectors(
    setting: Setting, memories: Memories, vectors: VectorFiller | None, cache: DerivedStore | None
) -> TreeVectorFiller:
    embedder = setting.embedder
    behind = VectorSource(setting.log, Unhurried(embedder), cache)
    eager, quick = vectors is not None and embedder.ranks, not embedder.ranks
    return TreeVectorFiller(memories, behind, vectors, eager=eager, quick=quick)


def _share_users(compactor: Compactor, worker: Worker) -> Callable[[Reference], int]:
    """Whom somebody has compacted is left alone in the background; how many groups are planned by both."""
    if worker.compacting is not None:
        worker.compacting.gives_way = compactor.running.__contains__
    return lambda user: compactor.count_planned(user) + worker.count_planned(user)


def _find_models(
    setting: Setting, model: LanguageModel, counting: tuple[Budget, QuerySpending, ExtractionWatch]
) -> ModelsInUse:
    """What `status` looks at of the models."""
    config, chat, embedder = setting.config.models, setting.chat, setting.embedder

    def show_chat() -> EndpointShown | None:
        return None if chat is None else show_endpoint(config.chat_model, chat.endpoint.state, chat.model.mode)

    def show_embeddings() -> EndpointShown | None:
        if not isinstance(embedder, EndpointEmbedder):
            return None
        return show_endpoint(config.embed_model, embedder.endpoint.state)

    has_price = chat is None or Prices(setting.config.prices).knows(config.chat_model)
    missing = None if has_price else config.chat_model
    return ModelsInUse(model, embedder, *counting, show_chat, show_embeddings, missing)


@dataclass(frozen=True, slots=True)
class _Intake:
    """What takes in what is published."""

    embedded: EmbeddedBus | None
    url: Callable[[], str]
    bus: NatsBus
    decoder: Decoder
    disk: Disk
    ingest: Ingest
    readings: tuple[Reading, ...]

    def shown_url(self) -> str:
        """The server, for everything that is shown."""
        return hide_password(self.url())


def _make_intake(setting: Setting, memories: Memories) -> _Intake:
    config, log, report = setting.config, setting.log, setting.report
    embedded = EmbeddedBus(config.data_dir / EMBEDDED_BUS_FOLDER, report) if config.bus.embedded else None

    def url() -> str:
        return config.bus.url if embedded is None else embedded.url

    bus = NatsBus(url, config.bus.stream, credentials=config.credentials_path, report=report)
    room = config.data
    disk = Disk(log, report, ballast_bytes=room.ballast_mb * MIB, free_min_bytes=room.free_min_mb * MIB)
    pressure = partial(Backpressure, log, memories, disk, report)
    decoder = make_decoder(config, log.keys)
    ingest = Ingest(bus, config.bus.stream, log, memories, decoder, report, backpressure=pressure())
    readings = build_readings(config, url, memories, report, pressure)
    return _Intake(embedded, url, bus, decoder, disk, ingest, readings)


def _make_memories(setting: Setting, source: VectorSource) -> Memories:
    config, log, report = setting.config, setting.log, setting.report
    snapshots = Snapshots(setting.derived, log, config.memory_parameters, fingerprint_of_folding(), report)
    furnish = partial(source.furnish, ours=bool(config.agpr_parameters.cosine_weight))
    room = config.data.memories_mb * MIB
    return Memories(log, config.memory_parameters, report, bytes_max=room, snapshots=snapshots, furnish=furnish)


def _make_worker(
    setting: Setting,
    memories: Memories,
    model: LanguageModel,
    source: VectorSource,
    budget: Budget,
    given_out: GivenOut,
) -> Worker:
    tree, report = setting.config.memtree_in_force, setting.report
    comparing = DecidingParameters(tree.scene_facts_max, tree.second_scene, tree.judge)
    units = setting.config.eventtree_parameters
    deciding = Deciding(setting.log, memories, setting.embedder, source, report, comparing, units)
    slots = setting.config.models.concurrency
    ahead = min(slots, AHEAD_MAX) if setting.config.models.asks_endpoint else 0
    pace = WorkerParameters(slots, ahead=ahead, idle_s=tree.idle_s, refresh_age_s=tree.refresh_age_s)
    parts = (setting.log, memories, model, pace, setting.clock, report)
    return Worker(*parts, budget=budget, given_out=given_out, deciding=deciding)


def _make_forgetting(
    setting: Setting, memories: Memories, bus: NatsBus, ingest: Ingest, readings: tuple[Reading, ...]
) -> tuple[Forgetter, TombstoneKeeper]:
    config, log, report = setting.config, setting.log, setting.report
    bucket = TombstoneBucket(bus, bucket_name(config.bus.stream))
    eraser = BusEraser(bus, partial(checkpoints, readings))
    reached, derived = ingest.reached, setting.derived
    erasing = Erasing(log, config.data_dir, setting.clock, report, eraser, bucket, reached, ERASE_PAUSE_S, derived)
    keeper = TombstoneKeeper(log, bus, bucket, report, ours=config.bus.embedded)
    return Forgetter(erasing, memories), keeper
