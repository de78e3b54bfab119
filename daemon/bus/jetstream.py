"""Reading a stream: where to go on, and an ordered pull consumer that trusts nothing.

Where reading goes on is decided by our own position, never by the server's (engineering rules I1, I2, I7).
Not here: the connection (daemon/bus/nats_bus.py) and the single calls of the API (daemon/bus/jetstream_api.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from daemon.bus.bus_messages import BusMessage, BusUnavailable
from daemon.bus.jetstream_api import NANOSECONDS, AnyReply, StreamReply, ask
from events.envelope import BusPosition
from events.time import from_datetime

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

BATCH_MAX: Final = 256
# The server drops a connection with more than 64 MiB on the way to it; half of that is safe (rule I9).
BATCH_BYTES_MAX: Final = 32 * 1024**2
# How long the server may stay silent before we stop believing that it has our request.
SILENCE_MAX_S: Final = 1.0
# How often a waiting pull looks whether the connection is still the one it was sent on.
GLANCE_S: Final = 0.25
# Unacknowledged messages after which the server pauses: four batches.
ACK_PENDING_MAX: Final = 4 * BATCH_MAX
# The server forgets our consumer by itself when nothing was pulled for so long.
INACTIVE_AFTER_S: Final = 300.0


def start_position(
    after: BusPosition | None, stream: str, created: str, last_seq: int, *, replaced: bool = False
) -> tuple[BusPosition, bool]:
    """Where reading goes on, and whether the stream is not the one that `after` speaks of.

    A stream that was made again, and one whose store was rolled back or lost its unsynced tail, is read from the
    beginning: idempotency keys recognise what we have (rule I7). The latter holds less than we have read or, once
    more came than was lost, another message under the number we read last (`replaced`).
    """
    if after is None:
        return BusPosition(stream, created, 0), False
    known_created, _, rollbacks = after.epoch.partition("#")
    if after.stream != stream or known_created != created:
        return BusPosition(stream, created, 0), True
    if last_seq < after.seq or replaced:
        return BusPosition(stream, f"{created}#{int(rollbacks or 0) + 1}", 0), True
    return after, False


def doubt_about(delivery: Msg.Metadata, consumer_seq: int, stream_seq: int) -> str | None:
    """Why a message cannot be the one after the last accepted one (of these sequences), or None."""
    if delivery.num_delivered != 1:
        return "redelivered"
    if delivery.sequence.consumer != consumer_seq + 1:
        return "gap in the deliveries"
    if delivery.sequence.stream <= stream_seq:
        return "out of order"
    return None


class OrderedConsumer:
    """Pulls messages of one stream in order, each once, over one connection.

    It hands out only what provably follows what it handed out before. At the first doubt it sets `doubt`,
    drops the rest and is of no further use: open another one at the position that was reached.
    """

    def __init__(
        self, client: Client, name: str, inbox: str, subscription: Subscription, position: BusPosition
    ) -> None:
        self._client = client
        self._connection = client.stats["reconnects"]
        self._name = name
        self._inbox = inbox
        self._subscription = subscription
        self._consumer_seq = 0
        self._pulls = 0
        self.position = position
        self.doubt: str | None = None
        # Where to acknowledge the last accepted message, and with it all before (AckPolicy.ALL).
        self.acknowledge_to: str | None = None

    @property
    def name(self) -> str:
        """What the server calls it."""
        return self._name

    @property
    def connected(self) -> bool:
        """Whether the connection it was opened on still stands; a new one may hide lost deliveries."""
        return self._client.is_connected and self._client.stats["reconnects"] == self._connection

    async def pull(self, count: int, wait_s: float) -> tuple[BusMessage, ...]:
        """At most `count` messages and BATCH_BYTES_MAX of what is there, else the first within `wait_s`."""
        ready = {"batch": count, "max_bytes": BATCH_BYTES_MAX, "no_wait": True}
        messages = await self._request(ready, count, SILENCE_MAX_S)
        if not messages and self.doubt is None:
            # No bound on bytes here: a single message above it would otherwise block the stream for ever.
            next_one = {"batch": 1, "expires": int(wait_s * NANOSECONDS)}
            messages = await self._request(next_one, 1, wait_s + SILENCE_MAX_S)
        return tuple(messages)

    async def close(self) -> None:
        """Give the consumer back; what is lost on the way, the server clears by INACTIVE_AFTER_S."""
        from nats import errors

        with anyio.move_on_after(SILENCE_MAX_S, shield=True), suppress(errors.Error, OSError):
            await self._subscription.unsubscribe()
            if self._client.is_connected:
                await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self.position.stream}.{self._name}")

    async def _request(self, pull: Mapping[str, object], count: int, patience_s: float) -> list[BusMessage]:
        from nats import errors

        self._pulls += 1
        reply_to = f"{self._inbox}.{self._pulls}"
        accepted: list[BusMessage] = []
        try:
            call = f"$JS.API.CONSUMER.MSG.NEXT.{self.position.stream}.{self._name}"
            await self._client.publish(call, msgspec.json.encode(pull), reply=reply_to)
            while len(accepted) < count:
                message = await self._next(patience_s)
                if message is None:
                    self.doubt = "no answer" if self.connected else "reconnected"
                    break
                # A status has our inbox as its subject. Its headers prove nothing: publishers set those too.
                if not message.subject.startswith(self._inbox):
                    received = self._accept(message)
                    if received is None:
                        break
                    accepted.append(received)
                elif message.subject == reply_to and self._ends(message):
                    break
        except (errors.Error, OSError) as failure:
            self.doubt = str(failure)
        return accepted

    async def _next(self, patience_s: float) -> Msg | None:
        from nats import errors

        deadline = anyio.current_time() + patience_s
        while self.connected and (left_s := deadline - anyio.current_time()) > 0:
            with suppress(errors.TimeoutError):
                return await self._subscription.next_msg(timeout=min(left_s, GLANCE_S))
        return None

    def _accept(self, message: Msg) -> BusMessage | None:
        delivery = message.metadata
        self.doubt = doubt_about(delivery, self._consumer_seq, self.position.seq)
        if self.doubt is not None:
            return None
        self._consumer_seq = delivery.sequence.consumer
        at = from_datetime(delivery.timestamp)
        self.position = BusPosition(self.position.stream, self.position.epoch, delivery.sequence.stream, at)
        self.acknowledge_to = message.reply
        return BusMessage(
            subject=message.subject,
            payload=message.data,
            headers=dict(message.headers or {}),
            stream=delivery.stream,
            stream_seq=delivery.sequence.stream,
            published_at=at,
        )

    def _ends(self, status: Msg) -> bool:
        """Whether this is the last word on a pull (NATS ADR-13); an unexpected one is a doubt as well."""
        headers = status.headers or {}
        code, description = headers.get("Status"), headers.get("Description", "").lower()
        if code == "100":
            return False
        full = code == "409" and ("batch completed" in description or "maxbytes" in description)
        if code not in ("404", "408") and not full:
            self.doubt = "the consumer is gone" if code == "503" else f"status {code}"
        return True


async def open_consumer(
    client: Client, position: BusPosition, subjects: tuple[str, ...], ack_wait_s: float
) -> OrderedConsumer:
    """A consumer that starts after `position`. Raises BusUnavailable.

    Each has a name of its own, so that a late delivery of one can never be mistaken for another's.
    """
    from nats import errors

    inbox = client.new_inbox()
    name = f"memforest-{inbox.rpartition('.')[2]}"
    try:
        subscription = await client.subscribe(f"{inbox}.*")
    except errors.Error as failure:
        raise BusUnavailable(str(failure)) from failure
    consumer = OrderedConsumer(client, name, inbox, subscription, position)
    configuration = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": position.seq + 1,
        "ack_policy": "all",
        "ack_wait": int(ack_wait_s * NANOSECONDS),
        "max_ack_pending": ACK_PENDING_MAX,
        "filter_subjects": subjects,
        "inactive_threshold": int(INACTIVE_AFTER_S * NANOSECONDS),
        # Its state is worth nothing after a restart, so it is not written to the disk.
        "mem_storage": True,
        "num_replicas": 1,
    }
    request = {"stream_name": position.stream, "config": configuration}
    try:
        await ask(client, f"CONSUMER.CREATE.{position.stream}.{name}", request, AnyReply)
    except BaseException:
        await consumer.close()
        raise
    return consumer


async def acknowledge(client: Client, subject: str) -> None:
    """Acknowledge what was pulled up to the message of this subject; what is lost on the way is no harm."""
    from nats import errors

    with suppress(errors.Error, OSError):
        await client.publish(subject)


async def read_to_end(client: Client, stream: str, subjects: tuple[str, ...]) -> tuple[BusMessage, ...]:
    """What a stream holds now under some subjects, in its order; what comes later may be among it.

    Everything is in memory at once: for small streams of our own, such as a bucket. Raises BusUnavailable.
    """
    from nats import errors

    state = await ask(client, f"STREAM.INFO.{stream}", {}, StreamReply)
    consumer = await open_consumer(
        client, BusPosition(stream, state.created, 0), subjects, ack_wait_s=INACTIVE_AFTER_S
    )
    received: list[BusMessage] = []
    try:
        while consumer.position.seq < state.state.last_seq:
            # The last number may have no message any more: then nothing comes, and that is the end.
            messages = await consumer.pull(BATCH_MAX, GLANCE_S)
            if consumer.doubt is not None:
                raise BusUnavailable(f"{stream} could not be read to its end: {consumer.doubt}")
            if not messages:
                break
            received += messages
            if consumer.acknowledge_to is not None:
                await client.publish(consumer.acknowledge_to)
    except (errors.Error, OSError) as failure:
        raise BusUnavailable(str(failure)) from failure
    finally:
        await consumer.close()
    return tuple(received)
