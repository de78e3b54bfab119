"""What the daemon logs: every event name with its fields, and how lines are written.

A name that is not listed here cannot be logged, and no field ever holds what people said.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Protocol

import structlog

# Name of each log event and what it tells; the README lists the same (a test compares).
LOG_EVENTS: dict[str, str] = {
    "daemon.fault_armed": "a fault was armed by MF_FAULT, which only tests set; point",
    "daemon.started": "the daemon is ready; socket, version",
    "daemon.stopping": "a signal came; signal",
    "daemon.stopped": "everything is written and closed",
    "bus.state_changed": "the bus is down, without a stream, or up; stream, state, reason",
    "bus.stream_created": "the stream was created; stream",
    "bus.consumer_dropped": "delivery was in doubt and starts again; seq, reason",
    "bus.epoch_changed": "the stream is another than before, read from its start; stream, epoch, seq_before",
    "bus.messages_expired": "the stream dropped messages before they were read; first_seq, seq_before",
    "embedded_bus.started": "the supervised nats-server runs; port, pid",
    "embedded_bus.died": "the supervised nats-server ended by itself; exit_code, restart_after_s",
    "embedded_bus.start_failed": "the supervised nats-server could not be started; reason",
    "embedded_bus.stopped": "the supervised nats-server was ended; exit_code",
    "embedded_bus.leftover_ended": "a nats-server of an earlier run was ended first",
    "store.degraded": "nothing more is written for now, reading goes on; reason, free_bytes",
    "store.recovered": "writing works again",
    "store.ballast_given_up": "the disk is full, and its last room is used to take something back; bytes",
    "store.wal_large": "a reader keeps the write-ahead log from being moved into the store; bytes",
    "store.fsync_failed": "the disk lost a write: the process ends with 74 and has to be started again",
    "ingest.paused": "the bus is not read for now and keeps what comes; reason",
    "ingest.resumed": "the bus is read again",
    "ingest.batch_recorded": "messages were written; messages, recorded, duplicates, refused, ignored",
    "ingest.dead_letter": "a message could not be decoded and is kept; stream, seq, reason",
    "ingest.turn_conflicted": "a known key came with other content; the first turn stands; seq",
    "ingest.write_failed": "the log could not be written; ingest tries again; code",
    "extraction.zero_facts_rising": "the model finds nothing in many of the last chunks; zero, answers",
    "extraction.zero_facts_settled": "the model finds facts again as usual; zero, answers",
    "worker.facts_compacted": "a user's facts are compacted as far as they are to be for now; groups",
    "worker.question_failed": "a question came to nothing, to be asked again or parked; task, tries, code",
    "worker.work_parked": "work was given up after its last try; task, reason",
    "worker.plan_failed": "a fault of ours in planning a user's work, who is planned again later; error, place",
    "worker.write_failed": "the log could not be written; the work is tried again; code",
    "derived.begun_anew": "derived.db was deleted and is filled again as it is needed; reason",
    "derived.failed": "derived.db cannot be read or written, and everything is computed instead; reason",
    "budget.used_up": "the tokens of today are used up, and work waits for midnight UTC; tokens, until",
    "model.circuit_opened": "a model's endpoint keeps failing and is left alone; use, reason, retry_in_s",
    "model.circuit_closed": "a model's endpoint answers again; use",
    "embedder.state_changed": "the embedder fails and words alone rank, or (no reason) it works again; reason",
    "memory.snapshot_unusable": "a snapshot could not be taken up, and the log was folded instead; error",
    "memory.fold_failed": "a user's events cannot be folded; that user waits for `memforestd verify`; reason",
    "forgetting.wal_busy": "a reader keeps erased words in the write-ahead log, and it is tried again",
    "forgetting.write_failed": "erasing could not be written; it goes on later; code",
    "worker.answer_dropped": "words were forgotten or edited while a model had them: no answer is kept; task",
    "forgetting.erased": "what was forgotten is gone; events, words, bus_messages, residues",
    "forgetting.turns_erased": "the words of retracted turns and of what was made of them are gone; events",
    "forgetting.bus_away": "the copies on the bus of what was forgotten wait for the bus",
    "forgetting.bus_not_erased": "the bus keeps copies of what was forgotten; messages, reason",
    "forgetting.not_tombstoned": "the bucket on the bus could not be told of a forgetting; reason",
    "forgetting.tombstone_met": "something that was forgotten elsewhere is forgotten here",
    "forgetting.scan_failed": "the files could not be searched for what was erased; reason",
    "forgetting.residue_found": "a file still holds words that were erased; file, places",
    "tombstones.met": "the bucket on the bus knew of forgettings that this store did not; tombstones",
    "tombstones.not_compared": "the bucket on the bus could not be read; reason",
    "socket.request_failed": "a request ended in an internal error or at its deadline; method, code, error, place",
    "socket.connection_failed": "a connection ended in an error of ours; error, place",
    "socket.accept_failed": "no connection could be accepted for now; error",
    "socket.client_not_reading": "a client did not read its answers and was cut off; answer_bytes",
}


class Report(Protocol):
    """How a part of the daemon tells the log what happened."""

    def __call__(self, event: str, /, **fields: object) -> None:
        """Log one event with its fields."""
        ...


def quiet(_event: str, /, **_fields: object) -> None:
    """The Report of whoever wants nothing reported."""


def place_of(error: BaseException) -> str:
    """The file and line that raised, for whoever reads the log."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""


def configure_logs(level: str, form: str) -> Report:
    """Set structlog up to write lines to standard error, and return how to report.

    `form` is console, json, or auto: console on a terminal and json elsewhere.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    return make_report(structlog.get_logger("memforest"))


# Events that someone on call wants to see; the rest is information.
_WARNINGS = frozenset(
    {
        "daemon.fault_armed",
        "bus.messages_expired",
        "bus.consumer_dropped",
        "bus.epoch_changed",
        "embedded_bus.died",
        "embedded_bus.start_failed",
        "store.degraded",
        "store.ballast_given_up",
        "store.wal_large",
        "store.fsync_failed",
        "ingest.paused",
        "ingest.dead_letter",
        "ingest.turn_conflicted",
        "ingest.write_failed",
        "worker.question_failed",
        "worker.write_failed",
        "embedder.state_changed",
        "budget.used_up",
        "model.circuit_opened",
        "extraction.zero_facts_rising",
        "memory.fold_failed",
        "derived.failed",
        "forgetting.wal_busy",
        "forgetting.write_failed",
        "forgetting.bus_not_erased",
        "forgetting.not_tombstoned",
        "forgetting.scan_failed",
        "forgetting.residue_found",
        "tombstones.not_compared",
        "worker.plan_failed",
        "worker.work_parked",
        "socket.request_failed",
        "socket.connection_failed",
        "socket.accept_failed",
    }
)


def make_report(logger: structlog.typing.FilteringBoundLogger) -> Report:
    """A Report that writes to `logger` and refuses names that are not in LOG_EVENTS."""

    def report(event: str, /, **fields: object) -> None:
        if event not in LOG_EVENTS:
            raise KeyError(f"{event} is not in LOG_EVENTS")
        if event in _WARNINGS:
            logger.warning(event, **fields)
        else:
            logger.info(event, **fields)

    return report
