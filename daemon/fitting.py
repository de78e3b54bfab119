"""Whether the embeddings that memories come with fit the spaces of their users, before they are taken in.

One model's vectors have one width. The log itself takes what comes; a vector that slipped through counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from daemon.memories import Memories
from events.envelope import Keys, NewEvent
from events.errors import InvalidInput, LogDamaged, StoreUnusable
from events.session import MemoryImported
from projections.facts.imported import read_width
from projections.spaces import SPACES_MAX, UNNAMED, Spaces

UNFIT_NAMED = "the embedding has {width} numbers, and those of its embedding_model have {known} for this user"
UNFIT_UNNAMED = (
    "the embedding has {width} numbers, and those that name no embedding_model have {known} for this user; name it"
)
TOO_MANY = f"this user has embeddings of {SPACES_MAX} models already, the most there may be; leave embedding out"


@dataclass(slots=True)
class _User:
    """The spaces of a user as they are, and those that begin with what was looked at just now."""

    spaces: Spaces
    begun: dict[bytes, int] = field(default_factory=dict[bytes, int])


class Fitting:
    """Looks at the spaces of users as their Memories have them."""

    def __init__(self, keys: Keys, memories: Memories) -> None:
        self._keys = keys
        self._memories = memories

    async def find_unfit(self, events: Sequence[NewEvent]) -> list[str | None]:
        """For each of these events, in this order, why its embedding is not taken; None where it is.

        Costs nothing where there are no embeddings.
        """
        users: dict[str, _User | None] = {}
        reasons: list[str | None] = []
        for new in events:
            event, user_id = new.event, new.user_id
            reason = None
            if isinstance(event, MemoryImported) and event.embedding is not None and user_id is not None:
                if user_id not in users:
                    users[user_id] = await self._look(user_id)
                reason = _find_reason(users[user_id], event, read_width(event.embedding))
            reasons.append(reason)
        return reasons

    async def check(self, events: Sequence[NewEvent]) -> None:
        """Raise `InvalidInput` with the reason of the first that is not taken."""
        for reason in await self.find_unfit(events):
            if reason is not None:
                raise InvalidInput(reason)

    async def _look(self, user_id: str) -> _User | None:
        """None: a Memory that cannot be folded tells nothing, and must keep nothing out of the log."""
        try:
            memory = await self._memories.advance(self._keys.user(user_id))
            if memory.needs_rebuild:  # perhaps what was forgotten was all there was of a space
                memory = await self._memories.advance(memory.user)
        except (LogDamaged, StoreUnusable):
            return None
        return _User(memory.spaces)


def _find_reason(user: _User | None, event: MemoryImported, width: int) -> str | None:
    if user is None:
        return None
    model = event.embedding_model or UNNAMED
    space, name = user.spaces.find(model), user.spaces.name_of(model)
    known = user.begun.get(name) if space is None else space.width
    if known is None:
        # Of those that begin here some may be known by now: the Memory follows the log meanwhile.
        if len(user.begun.keys() | {each.name for each in user.spaces.known}) >= SPACES_MAX:
            return TOO_MANY
        user.begun[name] = width
        return None
    if known == width:
        return None
    return (UNFIT_NAMED if model else UNFIT_UNNAMED).format(width=width, known=known)
