"""`add`: what someone just said, as one call, with the session and the id that were left out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from memforest.calls import ingest
from memforest.errors import InvalidInput
from memforest.wire import Call, JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memforest.types import Published


def add(
    user_id: str,
    content: str | Sequence[JsonObject],
    *,
    session_id: str | None = None,
    role: str = "user",
    name: str | None = None,
    at: datetime | str | None = None,
    turn_id: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> Call[Published]:
    """Publish one turn, or several as OpenAI messages (`role`, `content`, `name`), in a session.

    Without a `session_id` it is that of the day (UTC) of `at`, or of today. Without `at` the bus's own time counts
    and is flagged. Without a `turn_id` a random one is made, so that a repetition of this call is kept once.
    `metadata` goes with every turn that has none of its own; queries can filter by it.
    """
    when = None if at is None else read_instant(at)
    address: JsonObject = {"user_id": user_id, "session_id": session_id or day_of(when)}
    own_id = turn_id or uuid4().hex
    stamp: JsonObject = {} if when is None else {"timestamp": when.isoformat()}
    if metadata:
        stamp["metadata"] = dict(metadata)
    if isinstance(content, str):
        speaker: JsonObject = {"role": role} if name is None else {"role": role, "name": name}
        message: JsonObject = {"type": "turn", **address, "id": own_id, **speaker, "content": content, **stamp}
    else:
        turns = [{"id": f"{own_id}-{n}", **stamp, **each} for n, each in enumerate(content)]
        message = {"type": "turns", **address, "turns": turns}
    # It may be asked twice: its ids are the same both times.
    call = ingest([message])
    return Call(call.method, call.params, lambda result: call.read(result)[0])


def read_instant(at: datetime | str) -> datetime:
    """A time with its offset; raises InvalidInput without one, since whose noon it was nobody knows."""
    try:
        when = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        raise InvalidInput("A time is ISO 8601 with its offset, such as 2024-07-01T09:00:00Z.") from None
    if when.tzinfo is None:
        raise InvalidInput("A time has its offset: 2024-07-01T09:00:00Z, or +02:00 in place of Z.")
    return when


def day_of(when: datetime | None) -> str:
    """The session of a day in UTC, such as 2024-07-01; of today without a time."""
    return (when or datetime.now(UTC)).astimezone(UTC).date().isoformat()
