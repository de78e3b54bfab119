"""The methods of the socket as values: each function builds one `Call`, which either client performs.

Parameters are checked by the daemon; only what would never get there is refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memforest.dead_letters import LetterContent, LetterDropped, LetterPage, LetterRetried
from memforest.errors import InvalidInput
from memforest.fact_types import Fact, FactPage, FactSettled
from memforest.forgotten import Preview, Receipt
from memforest.origins import Why
from memforest.parked import ParkedContent, ParkedPage, Resumed
from memforest.past import Difference, EventPage
from memforest.structures import Tree, TreeNodes
from memforest.types import (
    CompactionProgress,
    Digest,
    Published,
    ReplayState,
    Session,
    SessionClosed,
    Status,
    User,
    Watermark,
)
from memforest.wire import Call, JsonObject, given, read_all, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence

# The daemon's bound on one `ingest` (one request waits for as many acknowledgements of the bus).
MESSAGES_MAX = 256


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


def session_events(
    user_id: str,
    session_id: str,
    *,
    after: int | None = None,
    limit: int | None = None,
    wait_s: float | None = None,
) -> Call[EventPage]:
    """A page of what happened in and because of a session; `after` is the `next` of the page before.

    With `wait_s` (up to 30) the daemon waits so long for the next event when there is none.
    """
    params = given(user_id=user_id, session_id=session_id, after=after, limit=limit, wait_s=wait_s)
    return Call("sessions.events", params, lambda result: read_as(EventPage, result))


def diff(user_id: str, a: str | int, b: str | int | None = None) -> Call[Difference]:
    """What this user's memory knew at `b` (now, unless given) and not at `a`, and the other way round.

    A position is a user_seq, or an instant in ISO 8601 with its offset.
    """
    return Call("diff", given(user_id=user_id, a=a, b=b), lambda result: read_as(Difference, result))


def close_session(user_id: str, session_id: str, *, close_id: str | None = None) -> Call[SessionClosed]:
    """Say that a session is over, so that its memory is built at once. `close_id` allows repeating it."""
    params = given(user_id=user_id, session_id=session_id, id=close_id)
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


def preview_forgetting(user_id: str, session_id: str | None = None) -> Call[Preview]:
    """What forgetting a session, or (None) all of the user, would take. Changes nothing."""
    method = "users.forget" if session_id is None else "sessions.forget"
    params = given(user_id=user_id, session_id=session_id, dry_run=True)
    return Call(method, params, lambda result: read_as(Preview, result))


def forget_user(user_id: str) -> Call[Receipt]:
    """Erase everything of a user, the name too. It cannot be undone."""
    params = {"user_id": user_id}
    return Call("users.forget", params, lambda result: read_as(Receipt, result), repeatable=False)


def retract_turn(user_id: str, session_id: str, turn_id: str) -> Call[SessionClosed]:
    """Take a turn back: its words, and those of what was made of them, are erased. It cannot be undone."""
    params = {"user_id": user_id, "session_id": session_id, "turn_id": turn_id}
    return Call("turns.retract", params, lambda result: read_as(SessionClosed, result), repeatable=False)


def replay_session(user_id: str, session_id: str, *, dry_run: bool = False) -> Call[ReplayState]:
    """Extract a session again under today's models; for a dry run only what it would cost.

    Waits a while for the end; asking again joins the replay that runs.
    """
    params = {"user_id": user_id, "session_id": session_id, "dry_run": dry_run}
    return Call("sessions.replay", params, lambda result: read_as(ReplayState, result), repeatable=False)


def users() -> Call[tuple[User, ...]]:
    """Everyone this daemon keeps a memory for."""
    return Call("users.list", {}, lambda result: read_all(User, result.get("users")))


def facts(
    user_id: str, *, limit: int | None = None, after: str | None = None, conflicts: bool = False
) -> Call[FactPage]:
    """A page of this user's facts, or of those that contradict each other.

    `after` is the `next` of the page before.
    """
    params = given(user_id=user_id, limit=limit, after=after, conflicts=conflicts or None)
    return Call("facts.list", params, lambda result: read_as(FactPage, result))


def fact(user_id: str, fact_id: str) -> Call[Fact]:
    """One fact; the daemon raises NotFound when there is none of this id (any more)."""
    params = {"user_id": user_id, "fact_id": fact_id}
    return Call("facts.get", params, lambda result: read_as(Fact, result))


def correct_fact(
    user_id: str,
    fact_id: str,
    text: str | None = None,
    *,
    time_start: str | None = None,
    time_end: str | None = None,
) -> Call[FactSettled]:
    """Say what is so in place of a fact. Times are ISO 8601 with their offset; a start alone is a moment."""
    params = given(user_id=user_id, fact_id=fact_id, text=text, time_start=time_start, time_end=time_end)
    return Call("facts.correct", params, lambda result: read_as(FactSettled, result), repeatable=False)


def retract_fact(user_id: str, fact_id: str) -> Call[FactSettled]:
    """Say that a fact is not so: it is shown no more, also when its turns are read again."""
    params = {"user_id": user_id, "fact_id": fact_id}
    return Call("facts.retract", params, lambda result: read_as(FactSettled, result), repeatable=False)


def pin_fact(user_id: str, fact_id: str, *, pinned: bool = True) -> Call[FactSettled]:
    """Keep a fact as it is, whatever is extracted or merged later; or let it go again."""
    params: JsonObject = {"user_id": user_id, "fact_id": fact_id, "pinned": pinned}
    return Call("facts.pin", params, lambda result: read_as(FactSettled, result), repeatable=False)


def trees(user_id: str, *, limit: int | None = None, after: str | None = None) -> Call[tuple[Tree, ...]]:
    """This user's MemTrees, the largest first: of each session, entity, scene and the user (paper B).

    `after` is the id of the last tree of the page before; a page that is not full is the last one.
    """
    params = given(user_id=user_id, limit=limit, after=after)
    return Call("trees.list", params, lambda result: read_all(Tree, result.get("trees")))


def tree(
    user_id: str,
    scope: str | None = None,
    kind: str | None = None,
    *,
    tree_id: str | None = None,
    node: str | None = None,
    depth: int | None = None,
    limit: int | None = None,
) -> Call[TreeNodes]:
    """One MemTree from its root downwards: by scope and kind, or by its id; all of them as in `trees`.

    Without any it is the tree of the user. `node` begins further down; at most `depth` levels and `limit` nodes
    come. The daemon raises NotFound when there is no such tree.
    """
    named = given(tree=tree_id, scope=scope, kind=kind)
    params = given(user_id=user_id, **named, node=node, depth=depth, limit=limit)
    return Call("trees.get", params, lambda result: read_as(TreeNodes, result))


def why(
    user_id: str,
    memory_id: str,
    *,
    limit: int | None = None,
    after: int | None = None,
    as_of: int | str | None = None,
) -> Call[Why]:
    """Where a memory comes from: its group, facts, what a model read when, turns, and messages on the bus.

    At most `limit` facts, turns or readings behind the first `after` (`next` of the page before); `as_of` as in
    `query`. The daemon raises NotFound when there is no memory of this id (any more).
    """
    params = given(user_id=user_id, memory_id=memory_id, limit=limit, after=after, as_of=as_of)
    return Call("why", params, lambda result: read_as(Why, result))


def dead_letters(*, limit: int | None = None, after: int | None = None) -> Call[LetterPage]:
    """A page of what the daemon could not decode, oldest first."""
    params = given(limit=limit, after=after)
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


def parked(user_id: str | None = None, *, limit: int | None = None, after: int | None = None) -> Call[ParkedPage]:
    """A page of work that the daemon gave up, newest first: of one user, or of all."""
    params = given(user_id=user_id, limit=limit, after=after)
    return Call("parked.list", params, lambda result: read_as(ParkedPage, result))


def parked_work(user_id: str, parked_id: int) -> Call[ParkedContent]:
    """One piece of parked work with what the model would be asked about."""
    params: JsonObject = {"user_id": user_id, "id": parked_id}
    return Call("parked.get", params, lambda result: read_as(ParkedContent, result))


def retry_parked(user_id: str | None = None, parked_id: int | None = None) -> Call[Resumed]:
    """Have parked work tried again: one piece of a user, all of a user, or all there is."""
    params = given(user_id=user_id, id=parked_id)
    return Call("parked.retry", params, lambda result: read_as(Resumed, result), repeatable=False)


def digest(user_id: str) -> Call[Digest]:
    """Hashes of this user's live memory, for comparing it with a replay."""
    return Call("digest", {"user_id": user_id}, lambda result: read_as(Digest, result))


def status(user_id: str | None = None) -> Call[Status]:
    """How the daemon is, section by section; with a `user_id` also that user's watermark."""
    return Call("status", given(user_id=user_id), _read_status)


def _read_status(result: JsonObject) -> Status:
    mark: object = result.get("watermark")
    running: object = result.get("compaction")
    sections: dict[str, object] = {name: part for name, part in result.items() if name != "watermark"}
    return Status(
        sections,
        None if mark is None else read_as(Watermark, mark),
        None if running is None else read_as(CompactionProgress, running),
    )
