"""Ingest: from the bus into the log. Decode, append with the checkpoint in one transaction, then acknowledge.

Undecodable input becomes a dead letter in that same transaction, so nothing is lost and nothing blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import anyio

from daemon.backpressure import Backpressure
from daemon.bus.bus_messages import Batch as BusBatch
from daemon.bus.bus_messages import BusMessage, BusUnavailable
from daemon.bus.nats_bus import NatsBus
from daemon.decoders.decoding import Decoder
from daemon.fitting import Fitting
from daemon.logs import Report
from daemon.memories import Memories
from events.appending import Batch, Outcome
from events.dead_letters import DeadLetter
from events.envelope import BusPosition, NewEvent
from events.errors import InvalidInput, StoreUnusable
from events.faults import fault_point
from events.gate import Verdict
from events.log import GROUP_EVENTS_MAX, EventLog
from events.session import SessionForgotten, TurnRetracted

# After a failed write; the bus keeps what waits.
WRITE_PAUSE_S = 5.0

Decoded: TypeAlias = tuple[NewEvent, ...] | DeadLetter


class Ingest:
    """Reads one stream into one log, in order, each message with an effect exactly once."""

    def __init__(
        self,
        bus: NatsBus,
        stream: str,
        log: EventLog,
        memories: Memories,
        decoder: Decoder,
        report: Report,
        write_pause_s: float = WRITE_PAUSE_S,
        backpressure: Backpressure | None = None,
    ) -> None:
        """`backpressure` is asked before each fetch, also after a failed write; `write_pause_s` is without one."""
        self._fitting = Fitting(log.keys, memories)
        self.position: BusPosition | None = None
        self._bus = bus
        self._stream = stream
        self._log = log
        self._memories = memories
        self._decoder = decoder
        self._report = report
        self._write_pause_s = write_pause_s
        self._backpressure = backpressure
        # Messages of no concern to us since the start.
        self.ignored = 0

    async def run(self) -> None:
        """Fetch, append and acknowledge for ever. Our own checkpoint says where to go on, not the bus."""
        self.position = await self._log.read_checkpoint(self._stream)
        while True:
            await self._wait_for_room()
            batch = await self._bus.fetch(self.position)
            if not batch.messages and not batch.reset:
                continue
            try:
                await self._take(batch)
            except StoreUnusable as error:
                self._report("ingest.write_failed", code=error.code)
                if self._backpressure is None:
                    await anyio.sleep(self._write_pause_s)
                continue
            self.position = batch.position
            await self._bus.acknowledge(batch)
            fault_point("ingest.after_ack")

    @property
    def paused(self) -> str | None:
        """Why the bus is not read for now; None while it is."""
        return None if self._backpressure is None else self._backpressure.paused

    async def _wait_for_room(self) -> None:
        if self._backpressure is not None:
            await self._backpressure.wait()

    def reached(self) -> BusPosition | None:
        """How far the bus was read into the log."""
        return self.position

    async def lag_messages(self) -> int | None:
        """Messages on the stream that are not in the log yet; None while the bus cannot tell."""
        try:
            return await self._bus.count_waiting(self.position)
        except BusUnavailable:
            return None

    async def _take(self, batch: BusBatch) -> None:
        """Write a batch; the checkpoint moves with the messages it stands for."""
        epoch = batch.position.epoch if batch.position else ""
        counts: Counter[Verdict] = Counter()
        ignored = self.ignored
        try:
            for part in _split(batch, await self._decode(batch.messages, epoch), epoch):
                counts.update(await self._append(part))
        except InvalidInput:
            # The log refuses what the decoder let through: find that message and keep it as a dead letter.
            self.ignored = ignored
            for message in batch.messages:
                counts.update(await self._append_alone(message, epoch))
        self._report(
            "ingest.batch_recorded",
            messages=len(batch.messages),
            recorded=counts[Verdict.RECORDED],
            duplicates=counts[Verdict.DUPLICATE],
            refused=counts[Verdict.REFUSED],
            ignored=self.ignored - ignored,
        )

    async def _decode(self, messages: Sequence[BusMessage], epoch: str) -> list[Decoded]:
        """What messages become, in their order; a memory whose embedding does not fit, a dead letter."""
        decoded = [self._decoder.decode(message, epoch) for message in messages]
        self.ignored += decoded.count(())
        events = [event for each in decoded if isinstance(each, tuple) for event in each]
        unfit = [each for each in zip(events, await self._fitting.find_unfit(events), strict=True) if each[1]]
        for event, reason in unfit:
            at = next(at for at, each in enumerate(decoded) if isinstance(each, tuple) and event in each)
            decoded[at] = self._reject(messages[at], epoch, event, reason or "")
        return decoded

    def _reject(self, message: BusMessage, epoch: str, first: NewEvent, reason: str) -> DeadLetter:
        ids = (first.user_id, first.session_id)
        return self._decoder.reject(message, _place_of(message, epoch), reason, ids, (first.key, None))

    async def _append(self, part: Batch) -> list[Verdict]:
        fault_point("ingest.before_append")
        outcomes = await self._log.append(part)
        fault_point("ingest.after_append")
        self._hide_forgotten(part)
        self._report_oddities(part, outcomes)
        return [outcome.verdict for outcome in outcomes]

    async def _append_alone(self, message: BusMessage, epoch: str) -> list[Verdict]:
        """Write one message with its own checkpoint, as a dead letter if the log refuses it."""
        place = _place_of(message, epoch)
        (decoded,) = await self._decode((message,), epoch)
        if isinstance(decoded, tuple):
            try:
                return await self._append(Batch(events=decoded, checkpoint=place))
            except InvalidInput as error:
                decoded = self._reject(message, epoch, decoded[0], str(error))
        return await self._append(Batch(dead_letters=(decoded,), checkpoint=place))

    def _hide_forgotten(self, part: Batch) -> None:
        keys = self._log.keys
        for new in part.events:
            if new.user_id is None or new.session_id is None:
                continue
            user = keys.user(new.user_id)
            if isinstance(new.event, SessionForgotten):
                self._memories.hide(user, keys.session(new.user_id, new.session_id))
            elif isinstance(new.event, TurnRetracted):
                self._memories.hide_turn(user, new.event.turn)

    def _report_oddities(self, part: Batch, outcomes: tuple[Outcome, ...]) -> None:
        for letter in part.dead_letters:
            self._report("ingest.dead_letter", stream=letter.bus.stream, seq=letter.bus.seq, reason=letter.reason)
        for outcome in outcomes:
            if outcome.verdict is Verdict.CONFLICTING:
                self._report("ingest.turn_conflicted", seq=outcome.seq)


def _place_of(message: BusMessage, epoch: str) -> BusPosition:
    return BusPosition(message.stream, epoch, message.stream_seq, message.published_at)


def _split(batch: BusBatch, decoded: Sequence[Decoded], epoch: str) -> Iterator[Batch]:
    """Parts of a batch that fit one transaction each, in order; whole messages only."""
    events: list[NewEvent] = []
    letters: list[DeadLetter] = []
    last: BusMessage | None = None
    for message, became in zip(batch.messages, decoded, strict=True):
        if last is not None and isinstance(became, tuple) and len(events) + len(became) > GROUP_EVENTS_MAX:
            yield Batch(tuple(events), tuple(letters), _place_of(last, epoch))
            events, letters = [], []
        if isinstance(became, DeadLetter):
            letters.append(became)
        else:
            events.extend(became)
        last = message
    yield Batch(tuple(events), tuple(letters), batch.position)
