"""What became of what was published: messages that the daemon took from the bus and did not record as turns.

The bus takes everything; that a message could not be decoded, contradicts an earlier one or belongs to a forgotten
session shows only afterwards (design 3.2).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memforest import calls
from memforest.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from memforest.dead_letters import DeadLetter
    from memforest.publishing import Caller

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Before:
    """How the daemon stood before anything was published."""

    letter: int
    user_seqs: Mapping[str, int]
    turns: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """Messages of one session that are no turns: `why` is dead letter, conflict or forgotten session.

    `count` is None where the daemon keeps none, which is so for a forgotten session.
    """

    user_id: str
    session_id: str
    why: str
    count: int | None


def look_before(caller: Caller) -> Before:
    """Where dead letters and users' events end, so that what comes afterwards can be told from it."""
    last = 0
    for letter in _letters(caller, 0):
        last = letter.id
    users = caller.call(calls.users())
    return Before(
        last, {user.user_id: user.user_seq for user in users}, {user.user_id: user.turns for user in users}
    )


def find_not_recorded(caller: Caller, before: Before, sessions: Mapping[str, set[str]]) -> tuple[NotRecorded, ...]:
    """What of these sessions (by user) was not recorded since `before`; asked once the rest is built."""
    found: list[NotRecorded] = []
    letters: Counter[tuple[str, str]] = Counter()
    for letter in _letters(caller, before.letter):
        if letter.user_id is not None and letter.session_id in sessions.get(letter.user_id, ()):
            letters[letter.user_id, letter.session_id or ""] += 1
    for user_id in sorted(sessions):
        after = before.user_seqs.get(user_id, 0)
        for session_id in sorted(sessions[user_id]):
            if count := letters[user_id, session_id]:
                found.append(NotRecorded(user_id, session_id, "dead letter", count))
            try:
                forgotten = caller.call(calls.session(user_id, session_id)).state == "forgotten"
                conflicts = 0 if forgotten else _conflicts(caller, user_id, session_id, after)
            except NotFound:
                continue  # nothing of it was recorded; the letters say why
            if forgotten:
                found.append(NotRecorded(user_id, session_id, "forgotten session", None))
            elif conflicts:
                found.append(NotRecorded(user_id, session_id, "conflict", conflicts))
    return tuple(found)


def count_known(
    caller: Caller, before: Before, user_ids: Collection[str], sent: int, not_recorded: Sequence[NotRecorded]
) -> int | None:
    """How many of the turns `sent` to these users were there before; None where it cannot be told.

    Asked once the rest is built. What others publish to the same users meanwhile makes it less.
    """
    after = {user.user_id: user.turns for user in caller.call(calls.users())}
    lost = [each.count for each in not_recorded]
    if None in lost or not after.keys() >= set(user_ids):
        return None
    new = sum(after[user_id] - before.turns.get(user_id, 0) for user_id in user_ids)
    return max(0, min(sent, sent - new - sum(count or 0 for count in lost)))


def _letters(caller: Caller, after: int) -> Iterator[DeadLetter]:
    call = calls.dead_letters(limit=_PAGE, after=after)
    while True:
        page = caller.call(call)
        yield from page.dead_letters
        if page.next is None or not page.dead_letters:
            return
        call = replace(call, params={**call.params, "after": page.next})


def _conflicts(caller: Caller, user_id: str, session_id: str, after: int) -> int:
    count = 0
    while True:
        page = caller.call(calls.session_events(user_id, session_id, after=after, limit=_PAGE))
        count += sum(event.type == "turn.conflicted" for event in page.events)
        if not page.more or page.next <= after:
            return count
        after = page.next
