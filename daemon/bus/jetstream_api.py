"""The JetStream API as we call it: one question, one answer, and what a refusal means.

We speak it directly instead of through nats-py's layer, which hides what we need (a stream's time of
creation, error numbers) and asks more than it must. Not here: the connection, which is daemon/bus/nats_bus.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import msgspec

from daemon.bus.bus_messages import BusRefused, BusUnavailable, PubAck, PublishOutcomeUnknown
from events.errors import InvalidInput

if TYPE_CHECKING:
    from nats.aio.client import Client

API_PREFIX: Final = "$JS.API."
API_TIMEOUT_S: Final = 2.0
NANOSECONDS: Final = 1_000_000_000

# Numbers of nats-server's server/errors.json.
MESSAGE_NOT_FOUND: Final = 10037
STREAM_NAME_IN_USE: Final = 10058
STREAM_NOT_FOUND: Final = 10059
NOT_ENABLED: Final = 10076
# What our own stream keeps: a week, or what fits; the daemon reads within seconds.
STREAM_MAX_AGE_S: Final = 7 * 24 * 3600
STREAM_BYTES_MAX: Final = 1024**3
DUPLICATE_WINDOW_S: Final = 120


class ApiError(msgspec.Struct, frozen=True):
    """What JetStream answers instead of a result (NATS ADR-1)."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class AnyReply(msgspec.Struct, frozen=True):
    """An answer of which only the error matters, and what all answers have."""

    error: ApiError | None = None


class StreamConfiguration(msgspec.Struct, frozen=True):
    """What matters to us of a stream's configuration. `max_age` is in nanoseconds, 0 for ever."""

    retention: str = "limits"
    storage: str = "file"
    compression: str = "none"
    deny_delete: bool = False
    max_age: int = 0
    subjects: tuple[str, ...] = ()
    discard: str = "old"
    max_bytes: int = -1
    max_msgs: int = -1
    max_msg_size: int = -1


class StreamNumbers(msgspec.Struct, frozen=True):
    """How much a stream holds, in messages and bytes, and its first and last sequence.

    `subjects`: the messages of each subject, of those that were asked for.
    """

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class StreamReply(AnyReply, frozen=True):
    """The answer to STREAM.INFO and STREAM.CREATE; `ts` is the server's time of answering."""

    created: str = ""
    ts: datetime | None = None
    config: StreamConfiguration = StreamConfiguration()
    state: StreamNumbers = StreamNumbers()


class ConsumerReply(AnyReply, frozen=True):
    """The answer to CONSUMER.INFO: messages it has not delivered yet, and those nobody acknowledged."""

    num_pending: int = 0
    num_ack_pending: int = 0


class StoredMessage(msgspec.Struct, frozen=True):
    """When a stream stored a message; its words are not decoded."""

    time: datetime


class MessageReply(AnyReply, frozen=True):
    """The answer to STREAM.MSG.GET."""

    message: StoredMessage | None = None


class PublishReply(AnyReply, frozen=True):
    """What a stream answers to a publisher."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False


Reply = TypeVar("Reply", bound=AnyReply)


async def ask(client: Client, call: str, request: object, reply_type: type[Reply]) -> Reply:
    """One call of the JetStream API.

    Raises BusRefused for an error it answers with and BusUnavailable when it does not answer.
    """
    from nats import errors

    try:
        body = msgspec.json.encode(request)
        answer = await client.request(f"{API_PREFIX}{call}", body, timeout=API_TIMEOUT_S)
        reply = msgspec.json.decode(answer.data, type=reply_type)
    except errors.NoRespondersError:
        raise BusRefused(NOT_ENABLED, "JetStream is not enabled on the server, or not for this user") from None
    except errors.TimeoutError:
        raise BusUnavailable("the server does not answer") from None
    except (errors.Error, OSError, msgspec.MsgspecError) as failure:
        raise BusUnavailable(str(failure)) from failure
    if reply.error is not None:
        raise BusRefused(reply.error.err_code, reply.error.description)
    return reply


async def publish_and_wait(
    client: Client, subject: str, payload: bytes, headers: Mapping[str, str] | None, timeout_s: float
) -> PubAck:
    """Publish one message and wait until a stream has it; raises as `NatsBus.publish` says."""
    from nats import errors

    # nats-py looks at the payload alone; the server counts the headers too, and hangs up on everyone.
    if size_on_the_wire(payload, headers or {}) > client.max_payload:
        raise InvalidInput(f"the bus takes messages of at most {client.max_payload} bytes")
    try:
        # Besides the answer's own timeout: nats-py can also wait for room to send.
        with anyio.fail_after(timeout_s):
            sent_headers = dict(headers) if headers else None
            answer = await client.request(subject, payload, timeout=timeout_s, headers=sent_headers)
        reply = msgspec.json.decode(answer.data, type=PublishReply)
    except errors.NoRespondersError:
        raise BusUnavailable("not published: no stream takes this subject; `memforestd doctor` helps") from None
    except errors.OutboundBufferLimitError:
        raise BusUnavailable("not published: the bus is down") from None
    except (errors.BadSubjectError, errors.BadHeaderError):
        raise InvalidInput("a subject or header that NATS does not allow") from None
    except (errors.Error, TimeoutError, OSError, msgspec.MsgspecError) as failure:
        raise PublishOutcomeUnknown from failure
    if reply.error is not None:
        raise BusRefused(reply.error.err_code, reply.error.description)
    if reply.seq == 0:  # somebody else than a stream answered
        raise PublishOutcomeUnknown
    return PubAck(reply.stream, reply.seq, reply.duplicate)


def stream_configuration(name: str, subjects: tuple[str, ...]) -> dict[str, object]:
    """The stream we make when asked to: kept in files, bounded, re-readable (LIMITS retention, rule I3)."""
    return {
        "name": name,
        "subjects": subjects,
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": STREAM_MAX_AGE_S * NANOSECONDS,
        "max_bytes": STREAM_BYTES_MAX,
        "max_msgs": -1,
        "max_consumers": -1,
        "num_replicas": 1,
        "duplicate_window": DUPLICATE_WINDOW_S * NANOSECONDS,
    }


def size_on_the_wire(payload: bytes, headers: Mapping[str, str]) -> int:
    """The bytes of a message that count towards the server's `max_payload` (NATS ADR-4)."""
    if not headers:
        return len(payload)
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    return len(b"NATS/1.0\r\n") + lines + len(b"\r\n") + len(payload)
