"""What the bus hands to the rest of the daemon, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from events.envelope import BusPosition
from events.errors import MemForestError
from events.time import Instant


class BusUnavailable(MemForestError):
    """The bus cannot be used now."""

    code = "unavailable"


class BusRefused(BusUnavailable):
    """JetStream answered with an error."""

    def __init__(self, error_code: int, description: str) -> None:
        super().__init__(f"{description} (JetStream error {error_code})")
        self.error_code = error_code


class BusForbidden(BusUnavailable):
    """The server does not let the user of our credentials do this."""


class PublishOutcomeUnknown(BusUnavailable):
    """The bus did not say whether it took the message; publish it again with the same Nats-Msg-Id."""


@dataclass(frozen=True, slots=True)
class BusMessage:
    """One message of the stream, and when the server stored it."""

    subject: str
    payload: bytes
    headers: Mapping[str, str]
    stream: str
    stream_seq: int
    published_at: Instant


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages in the order of the stream, none twice, and the position to store with what they became.

    `reset` says that the stream is another one than the position asked for: the numbers begin again, and
    the new position must be stored even without messages. `position` is None only before anything is known.
    """

    messages: tuple[BusMessage, ...]
    position: BusPosition | None
    reset: bool
    acknowledge_to: str | None = None


@dataclass(frozen=True, slots=True)
class PubAck:
    """The stream has the message. `duplicate`: it had it before, by its Nats-Msg-Id."""

    stream: str
    seq: int
    duplicate: bool
