"""The bus: one NATS connection that never gives up, the turns we read from it and what we publish.

The daemon runs without it and says so (`state`); nothing here raises because the server is away, except
publishing, whose caller must know. nats-py's callbacks only wake the tasks here: they run outside our
task groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio

from daemon.bus.bus_messages import (
    Batch,
    BusForbidden,
    BusMessage,
    BusRefused,
    BusUnavailable,
    PubAck,
)
from daemon.bus.jetstream import (
    BATCH_MAX,
    OrderedConsumer,
    acknowledge,
    open_consumer,
    read_to_end,
    start_position,
)
from daemon.bus.jetstream_api import (
    API_PREFIX,
    STREAM_NAME_IN_USE,
    STREAM_NOT_FOUND,
    ConsumerReply,
    MessageReply,
    Reply,
    StreamNumbers,
    StreamReply,
    ask,
    publish_and_wait,
    stream_configuration,
)
from daemon.bus.nats_client import RECONNECT_WAIT_S, Denials, close, connect, make_client
from daemon.bus.subjects import CONTROL_SUBJECTS, TURN_SUBJECTS
from daemon.logs import Report, quiet
from events.envelope import BusPosition
from events.time import from_datetime

if TYPE_CHECKING:
    from nats.aio.client import Client

BusState: TypeAlias = Literal["down", "no stream", "up"]

FETCH_WAIT_S: Final = 1.0
# A consumer that was doubted is opened again after this, so that a broken server is not stormed.
DOUBT_PAUSE_S: Final = 0.1
# Its reconnecting has ways to die unseen; after so long without a connection we take a new client.
LOST_FOR_S: Final = 30.0
# After this the server delivers again what was not acknowledged; we drop it, so it only costs time.
ACK_WAIT_S: Final = 60.0
PUBLISH_TIMEOUT_S: Final = 5.0
OUR_SUBJECTS: Final = (TURN_SUBJECTS, CONTROL_SUBJECTS)
EVERY_SUBJECT: Final = (">",)


class NatsBus:
    """One stream on one NATS server. `run` in a task keeps it connected; one task at a time may fetch.

    The URL may be a function when the server can move (an embedded bus whose port was taken).
    """

    def __init__(
        self,
        url: str | Callable[[], str],
        stream_name: str = "MEMFOREST",
        subjects: tuple[str, ...] = OUR_SUBJECTS,
        credentials: Path | None = None,
        report: Report = quiet,
        ack_wait_s: float = ACK_WAIT_S,
        lost_for_s: float = LOST_FOR_S,
    ) -> None:
        self._url = url
        self._stream = stream_name
        self._subjects = subjects
        # Of which it can be said what is behind us, and what expired, by counting sequence numbers.
        self._reads_all = subjects in (OUR_SUBJECTS, EVERY_SUBJECT)
        self._credentials = credentials
        self._report = report
        self._ack_wait_s = ack_wait_s
        self._lost_for_s = lost_for_s
        self._client: Client | None = None
        self._consumer: OrderedConsumer | None = None
        self._consumer_name: str | None = None
        # What the connection said last, and what the stream looked like when we last looked.
        self._connection_error = "not connected yet"
        self._state: BusState = "down"
        self._reason = self._connection_error
        self._reported: BusState | None = None
        self._changed = anyio.Event()
        self._denials = Denials()

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._stream

    @property
    def state(self) -> BusState:
        """Whether turns can reach us: `down` without a server, `no stream` without one we can read."""
        return "down" if self._connected() is None else self._state

    @property
    def reason(self) -> str:
        """Why the state is not `up`; empty when it is."""
        return self._reason if self._connected() is not None else self._connection_error

    async def run(self) -> None:
        """Stay connected until cancelled, whatever the server does; closes on the way out."""
        try:
            while True:
                self._client = client = await make_client()
                try:
                    # The loop inside never ends by itself, and would never look at a URL that changed.
                    with anyio.move_on_after(self._lost_for_s) as patience:
                        url = self._url() if callable(self._url) else self._url
                        await connect(client, url, self._credentials, self._on_error, self._on_change)
                    if not patience.cancelled_caught:
                        await self._watch(client)
                except Exception as failure:  # a task's top: credentials that cannot be read, and the like
                    await self._on_error(failure)
                    self._settle("down", self._connection_error)
                await close(client)
                await anyio.sleep(RECONNECT_WAIT_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of the connection within CLOSE_WITHIN_S; also safe while being cancelled, and twice."""
        client, self._client, self._consumer = self._client, None, None
        if client is not None:
            await close(client)

    async def fetch(self, after: BusPosition | None) -> Batch:
        """The messages after a position, at most BATCH_MAX; empty after FETCH_WAIT_S without any.

        None reads from the beginning. Store the batch's position in the transaction of its messages and
        ask with it again; asking with another one starts anew there. Never raises because of the bus.
        """
        client = await self._wait_for_connection(FETCH_WAIT_S)
        if client is None:
            self._settle("down", self._connection_error)
            return Batch((), after, reset=False)
        try:
            consumer, reset = await self._consumer_after(client, after)
        except BusUnavailable:
            await anyio.sleep(FETCH_WAIT_S)  # the state says why; asking again at once would not help
            return Batch((), after, reset=False)
        # A fetch that is cancelled half-way has taken messages nobody got: then nobody may go on from there.
        self._consumer = None
        try:
            messages = await consumer.pull(BATCH_MAX, FETCH_WAIT_S)
            if consumer.doubt is None:
                self._consumer = consumer
        finally:
            if self._consumer is None:
                await consumer.close()
        if consumer.doubt is not None:
            if self._client is None:
                return Batch((), after, reset=False)  # we are letting go ourselves
            self._report("bus.consumer_dropped", seq=consumer.position.seq, reason=consumer.doubt)
            if not messages:
                await anyio.sleep(DOUBT_PAUSE_S)
        return Batch(messages, consumer.position, reset, consumer.acknowledge_to if messages else None)

    async def acknowledge(self, batch: Batch) -> None:
        """Tell the server that the batch is committed. Only its lag display needs it; a loss is harmless."""
        client = self._connected()
        if client is not None and batch.acknowledge_to is not None:
            await acknowledge(client, batch.acknowledge_to)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = PUBLISH_TIMEOUT_S,
    ) -> PubAck:
        """Put one message on the stream and wait until the server has it.

        Raises BusUnavailable when it certainly was not taken, PublishOutcomeUnknown (also a BusUnavailable)
        when it may or may not have been, InvalidInput when the bus can never take it.
        """
        client = self._connected()
        if client is None:
            raise BusUnavailable(f"not published: the bus is down ({self._connection_error}); send it again later")
        with self._denials.unless(lambda denied: denied == subject.lower()):
            return await publish_and_wait(client, subject, payload, headers, timeout_s)
        raise BusForbidden("not published: our user may not publish on this subject")

    async def ask(self, call: str, request: object, reply_type: type[Reply]) -> Reply:
        """One call of the JetStream API, `call` without its prefix.

        Raises BusRefused for an error it answers with, BusForbidden when our user may not ask this, else
        BusUnavailable.
        """
        subject = f"{API_PREFIX}{call}"
        with self._denials.unless(lambda denied: denied == subject.lower()):
            return await ask(self._connected_or_raise(), call, request, reply_type)
        raise BusForbidden(f"our user has no right to {subject}")

    async def read_to_end(self, stream: str, subjects: tuple[str, ...]) -> tuple[BusMessage, ...]:
        """All that another, small stream holds now, in its order. Raises BusForbidden, else BusUnavailable."""
        with self._denials.unless(lambda denied: f".{stream.lower()}." in f"{denied}."):
            return await read_to_end(self._connected_or_raise(), stream, subjects)
        raise BusForbidden(f"our user has no right to read {stream} with a consumer")

    async def create_stream(self) -> None:
        """Make the stream unless there is one of its name, which is left as it is. Raises BusUnavailable."""
        client = self._connected_or_raise()
        try:
            await self._inspect(client)
        except BusRefused as refusal:
            if refusal.error_code != STREAM_NOT_FOUND:
                raise
            try:
                configuration = stream_configuration(self._stream, self._subjects)
                await self.ask(f"STREAM.CREATE.{self._stream}", configuration, StreamReply)
            except BusRefused as race:
                if race.error_code != STREAM_NAME_IN_USE:
                    raise
            self._report("bus.stream_created", stream=self._stream)
            await self._inspect(client)

    async def count_waiting(self, after: BusPosition | None) -> int:
        """Messages behind a position; of single subjects, as the server counts them. Raises BusUnavailable."""
        if self._reads_all:
            return max(0, (await self.stream_state()).last_seq - (after.seq if after else 0))
        if self._consumer_name is None:
            raise BusUnavailable(f"{self._stream} has not been read yet")
        reply = await self.ask(f"CONSUMER.INFO.{self._stream}.{self._consumer_name}", {}, ConsumerReply)
        return reply.num_pending + reply.num_ack_pending

    async def stream_state(self) -> StreamNumbers:
        """First and last sequence, messages and bytes of the stream, for the lag. Raises BusUnavailable."""
        return (await self._inspect(self._connected_or_raise())).state

    async def _watch(self, client: Client) -> None:
        """Follow the connection; returns when this client will not come back."""
        while not client.is_closed:
            changed = self._changed
            if client.is_connected:
                with suppress(BusUnavailable):  # the state keeps it
                    await self._inspect(client)
                await changed.wait()
                continue
            self._settle("down", self._connection_error)
            with anyio.move_on_after(self._lost_for_s) as patience:
                await changed.wait()
            if patience.cancelled_caught:
                return

    async def _inspect(self, client: Client) -> StreamReply:
        """Look at the stream and settle the state accordingly. Raises BusUnavailable if we cannot read it."""
        try:
            stream = await ask(client, f"STREAM.INFO.{self._stream}", {}, StreamReply)
        except BusRefused as refusal:
            missing = refusal.error_code == STREAM_NOT_FOUND
            self._settle("no stream", f"there is no stream {self._stream}" if missing else str(refusal))
            raise
        except BusUnavailable as trouble:
            self._settle("down", str(trouble))
            raise
        if stream.config.retention != "limits":
            reason = f"{self._stream} has {stream.config.retention} retention and forgets what was read;"
            self._settle("no stream", f"{reason} give it limits retention")
            raise BusUnavailable(self._reason)
        self._settle("up", "")
        return stream

    async def _consumer_after(self, client: Client, after: BusPosition | None) -> tuple[OrderedConsumer, bool]:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            untouched = after is None and consumer.position.seq == 0
            if consumer.connected and (consumer.position == after or untouched):
                return consumer, False
            await consumer.close()
        stream = await self._inspect(client)
        replaced = after is not None and await self._holds_another(after)
        last_seq = stream.state.last_seq
        position, reset = start_position(after, self._stream, stream.created, last_seq, replaced=replaced)
        if reset and after is not None:
            self._report("bus.epoch_changed", stream=self._stream, epoch=position.epoch, seq_before=after.seq)
        elif after is not None and self._reads_all and stream.state.first_seq > after.seq + 1:
            self._report("bus.messages_expired", first_seq=stream.state.first_seq, seq_before=after.seq)
        consumer = await open_consumer(client, position, self._subjects, self._ack_wait_s)
        self._consumer_name = consumer.name
        return consumer, reset

    async def _holds_another(self, read: BusPosition) -> bool:
        """Whether another message stands where we read last. One that is gone or out of reach tells nothing."""
        if read.at is None:
            return False
        try:
            reply = await self.ask(f"STREAM.MSG.GET.{self._stream}", {"seq": read.seq}, MessageReply)
        except (BusRefused, BusForbidden):
            return False
        return reply.message is not None and from_datetime(reply.message.time) != read.at

    async def _wait_for_connection(self, wait_s: float) -> Client | None:
        with anyio.move_on_after(wait_s):
            while self._connected() is None:
                await self._changed.wait()
        return self._connected()

    def _connected(self) -> Client | None:
        return self._client if self._client is not None and self._client.is_connected else None

    def _connected_or_raise(self) -> Client:
        client = self._connected()
        if client is None:
            raise BusUnavailable(f"the bus is down ({self._connection_error})")
        return client

    def _settle(self, state: BusState, reason: str) -> None:
        # While it is down each attempt has its own words for why; the first is enough.
        new = state != self._reported or (state != "down" and reason != self._reason)
        self._state, self._reason = state, reason
        if new:
            self._reported = state
            self._report("bus.state_changed", stream=self._stream, state=state, reason=reason)

    async def _on_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _on_error(self, failure: Exception) -> None:
        if self._denials.tell(failure):
            return  # the connection stands
        self._connection_error = str(failure) or type(failure).__name__
