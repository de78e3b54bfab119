"""The methods of the socket as values: each function builds one `Call`, which either client performs.

Parameters are checked by the daemon; only what would never get there is refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memforest.errors import InvalidInput
from memforest.types import (
    Answer,
    Compaction,
    Digest,
    FactPage,
    LetterContent,
    LetterDropped,
    LetterPage,
    LetterRetried,
    Published,
    Receipt,
    Session,
    SessionClosed,
    Status,
    Tree,
    Units,
    User,
    Watermark,
)
from memforest.wire import Call, JsonObject, read_all, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence

# The daemon's bound on one `ingest` (one request waits for as many acknowledgements of the bus).
MESSAGES_MAX = 256


def query(
    user_id: str,
    query: str,
    *,
    k: int | None = None,
    mode: str | None = None,
    wait_for: str | int | None = None,
    max_tokens: int | None = None,
) -> Call[Answer]:
    """Ask this user's memory: at most `k` memories by rank, and `context` within `max_tokens`.

    `wait_for` (an event key, or a user_seq) holds the answer, bounded, until that event is projected.
    """
    params = _given(user_id=user_id, query=query, k=k, mode=mode, wait_for=wait_for, max_tokens=max_tokens)
    return Call("query", params, lambda result: read_as(Answer, result))


def ingest(messages: Sequence[JsonObject]) -> Call[tuple[Published, ...]]:
    """Publish native messages of types `turn` and `turns` (design 4.1), one `Published` for each.

    At most 256 at once and 1 MiB together: raises InvalidInput. Give turns an `id`, or a repetition
    is kept as a second turn.
    """
    if len(messages) > MESSAGES_MAX:
        raise InvalidInput(f"At most {MESSAGES_MAX} messages are published at once, not {len(messages)}.")
    return Call(
        "ingest",
        {"messages": list(messages)},
        lambda result: read_all(Published, result.get("published")),
        repeatable=False,
    )


def close_session(user_id: str, session_id: str, *, close_id: str | None = None) -> Call[SessionClosed]:
    """Say that a session is over, so that its memory is built at once. `close_id` allows repeating it."""
    params = _given(user_id=user_id, session_id=session_id, id=close_id)
    return Call("sessions.close", params, lambda result: read_as(SessionClosed, result), repeatable=False)


def sessions(user_id: str) -> Call[tuple[Session, ...]]:
    """Every session of this user as the registry knows it."""
    return Call("sessions.list", {"user_id": user_id}, lambda result: read_all(Session, result.get("sessions")))


def session(user_id: str, session_id: str) -> Call[Session]:
    """One session; the daemon raises NotFound when it knows none of this name."""
    params = {"user_id": user_id, "session_id": session_id}
    return Call("sessions.get", params, lambda result: read_as(Session, result))


def forget_session(user_id: str, session_id: str) -> Call[Receipt]:
    """Erase a session's words and all that was derived from them. It cannot be undone."""
    params = {"user_id": user_id, "session_id": session_id}
    return Call("sessions.forget", params, lambda result: read_as(Receipt, result), repeatable=False)


def users() -> Call[tuple[User, ...]]:
    """Everyone this daemon keeps a memory for."""
    return Call("users.list", {}, lambda result: read_all(User, result.get("users")))


def facts(user_id: str, *, limit: int | None = None, after: str | None = None) -> Call[FactPage]:
    """A page of this user's facts; `after` is the `next` of the page before."""
    params = _given(user_id=user_id, limit=limit, after=after)
    return Call("facts.list", params, lambda result: read_as(FactPage, result))


def trees(user_id: str) -> Call[tuple[Tree, ...]]:
    """This user's MemTrees: one for each session, each entity and the user (paper B)."""
    return Call("trees.list", {"user_id": user_id}, lambda result: read_all(Tree, result.get("trees")))


def units(user_id: str) -> Call[Units]:
    """This user's units and groups: the EventTree structure (paper A)."""
    return Call("units.list", {"user_id": user_id}, lambda result: read_as(Units, result))


def compact(user_id: str, ratio: float) -> Call[Compaction]:
    """Merge EventTree nodes until the share `ratio` (0-1) of them is gone (paper A)."""
    params: JsonObject = {"user_id": user_id, "ratio": ratio}
    return Call("units.compact", params, lambda result: read_as(Compaction, result), repeatable=False)


def dead_letters(*, limit: int | None = None, after: int | None = None) -> Call[LetterPage]:
    """A page of what the daemon could not decode, oldest first."""
    params = _given(limit=limit, after=after)
    return Call("dead_letters.list", params, lambda result: read_as(LetterPage, result))


def dead_letter(letter_id: int) -> Call[LetterContent]:
    """One dead letter with its content."""
    return Call("dead_letters.get", {"id": letter_id}, lambda result: read_as(LetterContent, result))


def retry_letter(letter_id: int) -> Call[LetterRetried]:
    """Decode a dead letter again and record what it says; the daemon raises Conflict when it still cannot."""
    params: JsonObject = {"id": letter_id}
    return Call("dead_letters.retry", params, lambda result: read_as(LetterRetried, result), repeatable=False)


def drop_letter(letter_id: int) -> Call[LetterDropped]:
    """Erase a dead letter for good."""
    params: JsonObject = {"id": letter_id}
    return Call("dead_letters.drop", params, lambda result: read_as(LetterDropped, result), repeatable=False)


def digest(user_id: str) -> Call[Digest]:
    """Hashes of this user's live memory, for comparing it with a replay."""
    return Call("digest", {"user_id": user_id}, lambda result: read_as(Digest, result))


def status(user_id: str | None = None) -> Call[Status]:
    """How the daemon is, section by section; with a `user_id` also that user's watermark."""
    return Call("status", _given(user_id=user_id), _read_status)


def _read_status(result: JsonObject) -> Status:
    mark: object = result.get("watermark")
    sections: dict[str, object] = {name: part for name, part in result.items() if name != "watermark"}
    return Status(sections, None if mark is None else read_as(Watermark, mark))


def _given(**params: Any) -> JsonObject:
    """What was given; None means the daemon's own default."""
    return {name: value for name, value in params.items() if value is not None}
