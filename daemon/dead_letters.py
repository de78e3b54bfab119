"""`dead_letters.*`: look at input that could not be decoded, try it again, or drop it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from daemon.bus.bus_messages import BusMessage
from daemon.decoders.decoding import Decoder
from daemon.fitting import Fitting
from daemon.untrusted import Params, check_limit
from events.appending import Batch
from events.dead_letters import DeadLetter, StoredLetter, drop_letter, read_letter, read_letters
from events.erasure import truncate_wal
from events.errors import MemForestError
from events.log import EventLog
from events.time import to_iso

LIMIT_DEFAULT = 100
# What SQLite takes for a row's id.
ID_MAX = 2**63 - 1


class LetterUnknown(MemForestError):
    """There is no dead letter of this id; `dead_letters.list` names those there are."""

    code = "not_found"


class LetterStillDead(MemForestError):
    """The message still cannot be decoded."""

    code = "conflict"


class LettersParams(Params, frozen=True, kw_only=True):
    """Parameters of `dead_letters.list`."""

    limit: int = LIMIT_DEFAULT
    after: int = 0


class LetterParams(Params, frozen=True, kw_only=True):
    """Parameters of the methods about one letter."""

    id: int


@dataclass(frozen=True, slots=True)
class LetterShown:
    """A dead letter without its content."""

    id: int
    received_at: str
    user_id: str | None
    session_id: str | None
    subject: str
    reason: str
    bytes: int
    stream: str
    seq: int


@dataclass(frozen=True, slots=True)
class LetterContent:
    """A dead letter whole: `payload` as text, or in base64 when it is not UTF-8."""

    letter: LetterShown
    encoding: str
    payload: str


@dataclass(frozen=True, slots=True)
class LetterRetried:
    """What became of a letter's turns: how many were recorded now, and how many were there already."""

    id: int
    recorded: int
    other: int


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Letters, oldest first; `next` is the `after` to go on from, null on the last page."""

    dead_letters: list[LetterShown]
    next: int | None


@dataclass(frozen=True, slots=True)
class LetterDropped:
    """The number of the letter that is no more."""

    dropped: int


class DeadLetters:
    """Reads, retries and drops dead letters."""

    def __init__(
        self,
        log: EventLog,
        decoder: Decoder,
        others: Mapping[str, Decoder] | None = None,
        fitting: Fitting | None = None,
    ) -> None:
        """`others`: the decoder of each further stream that is read, by name; `fitting` looks at embeddings."""
        self._fitting = fitting
        self._log = log
        self._decoder = decoder
        self._others = others or {}

    async def list(self, params: LettersParams) -> LetterPage:
        """A page of letters, oldest first, and the id to go on from."""
        check_limit(params.limit)
        after = min(max(params.after, 0), ID_MAX)
        letters = await self._log.read(partial(read_letters, after=after, limit=params.limit + 1))
        page = letters[: params.limit]
        following = page[-1].id if len(letters) > params.limit else None
        return LetterPage([_show(letter) for letter in page], following)

    async def get(self, params: LetterParams) -> LetterContent:
        """One letter with its content; raises `LetterUnknown`."""
        letter = await self._read(params.id)
        try:
            return LetterContent(_show(letter), "utf-8", letter.payload.decode())
        except UnicodeDecodeError:
            return LetterContent(_show(letter), "base64", b64encode(letter.payload).decode())

    async def retry(self, params: LetterParams) -> LetterRetried:
        """Decode a letter again, as this release does, and record what it says.

        Raises `LetterUnknown`, and `LetterStillDead` with the reason of today. A crash in the middle leaves
        the letter, and trying again records nothing twice.
        """
        letter = await self._read(params.id)
        headers = {} if letter.message_id is None else {"Nats-Msg-Id": letter.message_id}
        message = BusMessage(
            letter.subject, letter.payload, headers, letter.bus.stream, letter.bus.seq, letter.published_at
        )
        decoder = self._others.get(letter.bus.stream, self._decoder)
        decoded = decoder.decode(message, letter.bus.epoch)
        if isinstance(decoded, DeadLetter):
            raise LetterStillDead(f"it still cannot be decoded: {decoded.reason}")
        for reason in () if self._fitting is None else await self._fitting.find_unfit(decoded):
            if reason is not None:
                raise LetterStillDead(f"it still cannot be taken: {reason}")
        outcomes = await self._log.append(Batch(events=decoded))
        await self._log.write(partial(drop_letter, letter=params.id))
        recorded = sum(outcome.verdict == "recorded" for outcome in outcomes)
        return LetterRetried(params.id, recorded, len(outcomes) - recorded)

    async def drop(self, params: LetterParams) -> LetterDropped:
        """Erase a letter's content for good; raises `LetterUnknown`."""
        await self._read(params.id)
        await self._log.write(partial(drop_letter, letter=params.id))
        await self._log.write(truncate_wal)
        return LetterDropped(params.id)

    async def _read(self, letter: int) -> StoredLetter:
        found = None
        if 0 < letter <= ID_MAX:
            found = await self._log.read(partial(read_letter, letter=letter))
        if found is None:
            raise LetterUnknown
        return found


def _show(letter: StoredLetter) -> LetterShown:
    return LetterShown(
        id=letter.id,
        received_at=to_iso(letter.received_at),
        user_id=letter.user_id,
        session_id=letter.session_id,
        subject=letter.subject,
        reason=letter.reason,
        bytes=len(letter.payload),
        stream=letter.bus.stream,
        seq=letter.bus.seq,
    )
