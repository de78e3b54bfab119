"""Erasing messages from the bus one by one, with proof as far as a server can give it (engineering rule D7).

Removing by subject leaves every byte in the server's files, deleting by sequence overwrites them; so this
needs the position of each message. Not here: which positions, and what the receipt says of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final, Literal, TypeAlias

import anyio

from daemon.bus.bus_messages import BusForbidden, BusRefused, BusUnavailable
from daemon.bus.jetstream import start_position
from daemon.bus.jetstream_api import (
    MESSAGE_NOT_FOUND,
    NOT_ENABLED,
    STREAM_NOT_FOUND,
    AnyReply,
    MessageReply,
    StreamConfiguration,
    StreamReply,
)
from daemon.bus.nats_bus import NatsBus
from daemon.bus.subjects import ROOT, encode_token
from events.envelope import BusPosition
from events.time import Instant, from_datetime

# Each waits for the server's disk, about 4 ms. More would only queue there and wear out API_TIMEOUT_S.
IN_FLIGHT_MAX: Final = 32
# Different reasons that a report names; there is rarely more than one.
REASONS_MAX: Final = 3
_NANOSECONDS_PER_MS: Final = 1_000_000

_Fate: TypeAlias = Literal["erased", "gone", "foreign", "left"]


@dataclass(frozen=True, slots=True)
class BusErasure:
    """What became of some positions, in numbers of them.

    `erased`: overwritten on our word, and looked for in vain afterwards. `gone`: not there when we came, because
    it expired, or an earlier call erased it; the server overwrites nothing that expires, its bytes stay in the
    file until the server drops or compacts that file. `foreign`: of an epoch that is over. `left`: still
    there, or perhaps, because of `reason`; by `left_until` (milliseconds) all of them are expired, with None
    and something left the stream keeps them for ever. `done` are all but those that are left.
    """

    erased: int
    gone: int
    foreign: int
    left: int
    reason: str | None
    left_until: Instant | None
    done: tuple[BusPosition, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    position: BusPosition
    fate: _Fate
    reason: str = ""
    # By when it expires if it is left; None for never.
    until: Instant | None = None


class BusEraser:
    """Erases messages from the streams that are read, and says what it could not.

    What no server tells us and the receipt cannot claim: whether other streams mirror or source this one
    (each holds copies that its operator must erase), whether there are backups of the store, and what
    the replicas' logs of a clustered stream still hold until they are compacted. Besides the message itself,
    a server names its *subject* in the stream's index.db, until it writes that anew (daemon/erasure/bus_index.py).
    """

    def __init__(self, bus: NatsBus, others: Callable[[], Mapping[str, BusPosition | None]] = dict) -> None:
        """`others`: how far each further stream on the server was read, by its name."""
        self._bus = bus
        self._others = others

    async def erase(self, positions: Sequence[BusPosition], checkpoint: BusPosition | None) -> BusErasure:
        """Erase what stands at these positions; `checkpoint` is how far the bus's stream was read, from the log.

        Other streams that are read are treated alike; one that cannot be asked holds up no other.

        May be called again with the same positions, or those that are not `done`, whatever became of the
        first call; hand over slices of some thousand, since a call that raises reports nothing.

        Nothing is deleted at a position of another epoch than the checkpoint's: its number means another
        message by now. It may be skipped for good (`foreign`) in two cases only.
        - The stream was made again: its store never held the message. A copy that a publisher, a source
          or a backup brought into the new one is another message with a position of its own.
        - The store was rolled back and has been read again past that number: whatever stands there was read in
          the checkpoint's epoch, and is recorded under that. Until then it counts as left.
        Both ask of the caller that every message it reads of a forgotten session comes to be erased, also a
        duplicate and one that was refused. Of a stream that is no longer read nothing is deleted, as
        nobody watches its epoch. A rollback that nobody noticed, since as many messages were stored again
        before we looked, is beyond this check as it is beyond rule I7.

        Raises BusUnavailable when the server is away, or when the stream is missing, made again or rolled
        back and not read since.
        """
        streams = dict.fromkeys(position.stream for position in positions)
        read = {**self._others(), self._bus.stream: checkpoint}
        outcomes: list[_Outcome] = []
        failures: list[BusUnavailable] = []
        for stream in streams:
            here = tuple(dict.fromkeys(position for position in positions if position.stream == stream))
            try:
                if stream in read:
                    outcomes += await self._erase_from_ours(stream, here, read[stream])
                else:
                    outcomes += await self._look_into_another(stream, here)
            except BusUnavailable as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return _sum_up(outcomes)

    async def count_messages(self, user_id: str, session_id: str | None) -> int | None:
        """Messages under the subjects of a session, or (None) of a user, on the bus's stream, read or not.

        None while the bus cannot tell.
        """
        session = "*" if session_id is None else encode_token(session_id)
        subjects = f"{ROOT}.*.{encode_token(user_id)}.{session}"
        try:
            reply = await self._bus.ask(
                f"STREAM.INFO.{self._bus.stream}", {"subjects_filter": subjects}, StreamReply
            )
        except BusUnavailable:
            return None
        return sum((reply.state.subjects or {}).values())

    async def _erase_from_ours(
        self, name: str, positions: Sequence[BusPosition], checkpoint: BusPosition | None
    ) -> list[_Outcome]:
        state = await self._bus.ask(f"STREAM.INFO.{name}", {}, StreamReply)
        _, reset = start_position(checkpoint, name, state.created, state.state.last_seq)
        if checkpoint is None or reset:
            raise BusUnavailable(f"{name} was made again or rolled back, and not read since")
        foreign = [position for position in positions if is_foreign(position, checkpoint)]
        ours = set(positions).difference(foreign)
        old = sorted((each for each in ours if each.epoch != checkpoint.epoch), key=_seq_of)
        current = sorted((each for each in ours if each.epoch == checkpoint.epoch), key=_seq_of)
        not_read_again = f"{name} was rolled back and has not been read again so far"
        return [
            *(_Outcome(position, "foreign") for position in foreign),
            *await _settle_all(_Visit(self._bus, name, state, not_read_again), old),
            *await _settle_all(_Visit(self._bus, name, state, obstacle_of(name, state.config)), current),
        ]

    async def _look_into_another(self, stream: str, positions: Sequence[BusPosition]) -> list[_Outcome]:
        try:
            state = await self._bus.ask(f"STREAM.INFO.{stream}", {}, StreamReply)
        except BusRefused as refusal:
            if refusal.error_code != STREAM_NOT_FOUND:
                raise
            return [_Outcome(position, "gone") for position in positions]
        kept = [position for position in positions if _created(position) == state.created]
        foreign = [position for position in positions if _created(position) != state.created]
        visit = _Visit(self._bus, stream, state, f"{stream} is not read any more; erase it there or remove it")
        return [*(_Outcome(position, "foreign") for position in foreign), *await _settle_all(visit, kept)]


def is_foreign(position: BusPosition, checkpoint: BusPosition) -> bool:
    """Whether a position of the checkpoint's stream certainly names nothing that is not recorded elsewhere."""
    if _created(position) != _created(checkpoint):
        return True
    return position.epoch != checkpoint.epoch and position.seq <= checkpoint.seq


def obstacle_of(stream: str, configuration: StreamConfiguration) -> str | None:
    """Why a stream of this configuration cannot be erased from with proof, or None.

    A compressed block is not overwritten: after the deletion its bytes are all there, and nobody can ask for
    them any more. So we do not delete there at all, or the next call would take the message for gone.
    """
    if configuration.compression not in ("", "none"):
        return f"{stream} is compressed ({configuration.compression}), deleting leaves the bytes in its files"
    if configuration.deny_delete:
        return f"{stream} is configured to deny deletion"
    return None


class _Visit:
    """Deletes from one stream and looks what is there, and remembers what it may not do."""

    def __init__(self, bus: NatsBus, stream: str, state: StreamReply, obstacle: str | None) -> None:
        self._bus = bus
        self._stream = stream
        self._state = state
        self._obstacle = obstacle
        self._blind: str | None = None

    async def settle(self, position: BusPosition) -> _Outcome:
        """Delete unless something is in the way, then look. Raises BusUnavailable."""
        refusal = await self._delete(position.seq)
        stored_at: datetime | None = None
        if self._blind is None:
            try:
                found = await self._look(position.seq)
            except BusForbidden as denial:
                self._blind = str(denial)
            else:
                if found is None:
                    return _Outcome(position, "gone" if refusal is not None else "erased")
                stored_at = found
                refusal = refusal or "the server reported a deletion and still has the message"
        reason = refusal or f"deleted, but we may not look whether it is gone: {self._blind}"
        return _Outcome(position, "left", reason, self._expires(stored_at))

    async def _delete(self, seq: int) -> str | None:
        """Have one message overwritten; why it was not, or None."""
        if self._obstacle is not None:
            return self._obstacle
        try:
            request = {"seq": seq, "no_erase": False}
            await self._bus.ask(f"STREAM.MSG.DELETE.{self._stream}", request, AnyReply)
        except BusForbidden as denial:
            self._obstacle = str(denial)
            return self._obstacle
        except BusRefused as refusal:
            # What is not there has several error numbers; looking tells.
            return str(refusal)
        return None

    async def _look(self, seq: int) -> datetime | None:
        """When the message there was stored, None when there is none."""
        try:
            reply = await self._bus.ask(f"STREAM.MSG.GET.{self._stream}", {"seq": seq}, MessageReply)
        except BusRefused as refusal:
            if refusal.error_code == MESSAGE_NOT_FOUND:
                return None
            if refusal.error_code == NOT_ENABLED:  # it told us of the stream: this account may not look
                raise BusForbidden(str(refusal)) from None
            raise
        if reply.message is None:
            raise BusUnavailable("the server answers without a message and without an error")
        return reply.message.time

    def _expires(self, stored_at: datetime | None) -> Instant | None:
        max_age_ns = self._state.config.max_age
        # Unknown: as if it had been stored a moment ago, by the clock that lets it expire.
        since = stored_at or self._state.ts
        if max_age_ns == 0 or since is None:
            return None
        return from_datetime(since) + ceil(max_age_ns / _NANOSECONDS_PER_MS)


async def _settle_all(visit: _Visit, positions: Sequence[BusPosition]) -> list[_Outcome]:
    """Settle them with at most IN_FLIGHT_MAX calls at a time. Raises the first BusUnavailable."""
    # The first alone: what is not permitted is then asked for once, not by all.
    outcomes = [await visit.settle(position) for position in positions[:1]]
    waiting = iter(positions[1:])
    failures: list[BusUnavailable] = []

    async def settle_some() -> None:
        try:
            outcomes.extend([await visit.settle(position) for position in waiting])
        except BusUnavailable as failure:
            failures.append(failure)
            # All of it: the server that comes back may be rolled back, and only the next call asks.
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(min(IN_FLIGHT_MAX, len(positions) - 1)):
            tasks.start_soon(settle_some)
    if failures:
        raise failures[0]
    return outcomes


def _sum_up(outcomes: Sequence[_Outcome]) -> BusErasure:
    counts = Counter(outcome.fate for outcome in outcomes)
    left = [outcome for outcome in outcomes if outcome.fate == "left"]
    reasons = list(dict.fromkeys(outcome.reason for outcome in left))
    ends = [outcome.until for outcome in left if outcome.until is not None]
    return BusErasure(
        erased=counts["erased"],
        gone=counts["gone"],
        foreign=counts["foreign"],
        left=counts["left"],
        reason="; ".join(reasons[:REASONS_MAX]) or None,
        left_until=max(ends, default=None) if len(ends) == len(left) else None,
        done=tuple(outcome.position for outcome in outcomes if outcome.fate != "left"),
    )


def _created(position: BusPosition) -> str:
    """The stream's time of creation that a position's epoch begins with."""
    return position.epoch.partition("#")[0]


def _seq_of(position: BusPosition) -> int:
    return position.seq
