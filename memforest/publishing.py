"""Sending a file of native messages through the socket, in order, so that it can be interrupted.

Bounded batches, an id for every turn that has none, and a small file that says how far it came.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from memforest import calls, query_calls
from memforest.errors import AnswerOverdue, Busy, Conflict, ProtocolError, RequestInvalid, Unavailable
from memforest.wire import REQUEST_BYTES_MAX, encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memforest.native import Record
    from memforest.wire import Call, JsonObject

T = TypeVar("T")

# Room for the request around the messages, so that a full batch still fits the daemon's line.
BATCH_BYTES_MAX = REQUEST_BYTES_MAX - 1024
# A busy daemon is asked again after .1, .2, .4 ... s: about six seconds in all, then it is an error.
BUSY_TRIES_MAX = 6
BUSY_PAUSE_S = 0.1
POLL_PAUSE_S = 0.25


class Caller(Protocol):
    """What performs calls: `memforest.Client`."""

    def call(self, call: Call[T], /) -> T:
        """Perform one call."""
        ...


@dataclass(slots=True)
class Tally:
    """What was confirmed so far. `done` counts messages of the file, those of earlier runs included."""

    done: int = 0
    turns: int = 0
    memories: int = 0
    duplicates: int = 0
    sessions_closed: int = 0
    # What to wait for: the last event key of each user, and the last place on the bus.
    last_keys: dict[str, str] = field(default_factory=dict[str, str])
    last_seq: int = 0
    # Everyone of whom something was sent, and the sessions it belongs to.
    sessions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])


def publish(
    caller: Caller,
    records: Iterable[Record],
    *,
    done: int,
    id_prefix: str,
    pause: Callable[[float], None] = time.sleep,
    refused: Callable[[Record, str], None] | None = None,
) -> Iterator[Tally]:
    """Send all but the first `done` records, and yield the tally each time a batch is confirmed.

    What the daemon finds wrong with a record is told to `refused`, and the rest is sent; otherwise that is raised.
    Raises DaemonError or DaemonUnreachable; everything up to the last tally is on the bus then.
    """
    tally = Tally(done=done)
    for batch in batches(islice(records, done, None)):
        waiting = [batch]
        while waiting:
            part = waiting.pop()
            try:
                _send(caller, part, tally, id_prefix, pause)
            except RequestInvalid as error:
                if refused is None:
                    raise
                # One record of the part: all of them are refused with it, so look for it by halves.
                if len(part) == 1:
                    refused(part[0], re.sub(r"^message \d+: ", "", str(error)))
                else:
                    waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
        tally.done += len(batch)
        yield tally


def _send(
    caller: Caller, batch: list[Record], tally: Tally, id_prefix: str, pause: Callable[[float], None]
) -> None:
    """Send a batch and count what was confirmed, but for `done`."""
    bodies = [with_ids(record, id_prefix) for record in batch]
    if batch[0].type == "session.close":
        body = bodies[0]
        close = calls.close_session(body["user_id"], body["session_id"], close_id=body["id"])
        closed = _patiently(caller, close, pause)
        tally.sessions_closed += 1
        tally.duplicates += closed.duplicate
        tally.last_seq = max(tally.last_seq, closed.seq)
        if closed.key:
            tally.last_keys[batch[0].user_id] = closed.key
    else:
        published = _patiently(caller, calls.ingest(bodies), pause)
        for record, receipt in zip(batch, published, strict=True):
            if record.type == "memory":
                tally.memories += 1
            else:
                tally.turns += len(record.body.get("turns", (record,)))
            tally.duplicates += receipt.duplicate
            tally.last_seq = max(tally.last_seq, receipt.seq)
            if receipt.keys:
                tally.last_keys[record.user_id] = receipt.keys[-1]
    for record in batch:
        tally.sessions.setdefault(record.user_id, set()).add(record.session_id)


def batches(
    records: Iterable[Record], count_max: int = calls.MESSAGES_MAX, bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[list[Record]]:
    """Records in order, in lists within both bounds; a `session.close` is a list of its own.

    A record larger than `bytes_max` is alone too, and left to the daemon to refuse.
    """
    batch: list[Record] = []
    size = 0
    for record in records:
        # The comma, and the longest id that `with_ids` gives to each turn.
        weight = len(encode_json(record.body)) + 1 + 64 * len(record.body.get("turns", (record,)))
        alone = record.type == "session.close"
        if batch and (alone or len(batch) == count_max or size + weight > bytes_max):
            yield batch
            batch, size = [], 0
        if alone:
            yield [record]
            continue
        batch.append(record)
        size += weight
    if batch:
        yield batch


def with_ids(record: Record, prefix: str) -> JsonObject:
    """The message with an id for each turn that has none, made of the file's digest and the line.

    Without one, a batch whose answer was lost would be kept twice when it is sent again (design 4.1).
    """
    body = dict(record.body)
    own_id = f"{prefix}-{record.number}"
    if body["type"] == "turns":
        turns = cast("list[JsonObject]", body["turns"])
        body["turns"] = [{**turn, "id": turn.get("id") or f"{own_id}-{i}"} for i, turn in enumerate(turns)]
    else:
        body["id"] = body.get("id") or own_id
    return body


def wait_until_built(
    caller: Caller,
    sent: Tally,
    timeout_s: float,
    pause: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] | None = None,
    pending: Callable[[int], None] | None = None,
) -> None:
    """Return when what was published is projected and no work of these users waits.

    Of what was `sent` the last keys are waited for, and the last place on the bus: where an earlier message had
    the same key, it is there before this one is read.

    A message that the daemon did not take ends the waiting for it, too. `tell` gets a sentence when a model or a
    budget holds the work up, and another when the reason is another; `pending` how much waits, each time it is
    looked at. Raises AnswerOverdue after `timeout_s`.
    """
    told = ""
    deadline = time.monotonic() + timeout_s
    for user_id, key in sent.last_keys.items():
        # The watermark alone is not enough: before the message is read from the bus nothing waits.
        arrived = built = False
        while not (arrived and built):
            if time.monotonic() > deadline:
                raise AnswerOverdue(f"Not built within {timeout_s:g} s; the daemon goes on with it.")
            try:
                if not arrived:
                    # Refused: it came, and `outcome` tells what became of it.
                    with suppress(Conflict, RequestInvalid):
                        caller.call(query_calls.query(user_id, "memory", k=1, wait_for=key))
                    arrived = True
                status = caller.call(calls.status(user_id))
                mark = status.watermark
                if mark is None:
                    raise ProtocolError("The daemon's status of a user has no watermark.")
                is_read = status.read_to is None or status.read_to >= sent.last_seq
                built = mark.is_current and is_read
                if pending is not None:
                    pending(mark.pending)
                reason = "" if built else status.held_up_by
                if tell is not None and reason not in ("", told):
                    told = reason
                    tell(f"Work waits: {reason}. Ctrl-C ends this waiting alone; the daemon goes on by itself.")
            except (AnswerOverdue, Busy, Unavailable):
                built = False
            if not built:
                pause(POLL_PAUSE_S)


def _patiently(caller: Caller, call: Call[T], pause: Callable[[float], None]) -> T:
    for attempt in range(BUSY_TRIES_MAX):
        try:
            return caller.call(call)
        except Busy:
            pause(BUSY_PAUSE_S * 2**attempt)
    return caller.call(call)


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """How many messages of one file one daemon has confirmed; holds counts and a hash, no words.

    `key` names what is sent and where to, so that another file or daemon never continues from it.
    """

    key: str
    places: tuple[Path, ...]

    @classmethod
    def beside(
        cls, path: Path, *, digest: str, socket_path: Path, selection: str, state_home: Path | None = None
    ) -> ProgressFile:
        """`FILE.memforest-progress`, or in `$XDG_STATE_HOME/memforest` when the folder is read-only."""
        key = hashlib.sha256(f"{digest}\n{socket_path}\n{selection}".encode()).hexdigest()
        home = state_home or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        own = path.with_name(path.name + ".memforest-progress")
        return cls(key, (own, home / "memforest" / f"{key[:16]}.memforest-progress"))

    def load(self) -> int:
        """The number of messages already confirmed; 0 when nothing is known."""
        for place in self.places:
            with suppress(OSError, ValueError, AttributeError):
                known = json.loads(place.read_text("utf-8"))
                if known.get("key") == self.key and type(known.get("done")) is int:
                    return max(0, cast("int", known["done"]))
        return 0

    def save(self, done: int) -> None:
        """Replace the file as a whole. Where none can be written, only the resuming is lost."""
        text = json.dumps({"key": self.key, "done": done})
        for index, place in enumerate(self.places):
            with suppress(OSError):
                if index:
                    place.parent.mkdir(parents=True, exist_ok=True)
                draft = place.with_name(place.name + ".tmp")
                draft.write_text(text, "utf-8")
                draft.replace(place)
                return

    def remove(self) -> None:
        """Everything was sent; leave no file of ours behind."""
        for place in self.places:
            with suppress(OSError, ValueError, AttributeError):
                if json.loads(place.read_text("utf-8")).get("key") == self.key:
                    place.unlink()
