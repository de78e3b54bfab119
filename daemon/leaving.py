"""What the daemon leaves when it stops: snapshots for the next start, and digests for `memforestd verify`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import anyio

from daemon.memories import Memories
from events.digests import StoredDigest, record_digests
from events.errors import StoreUnusable
from projections.digests import digest_memory

DIGESTS_WITHIN_S = 5.0
SNAPSHOTS_WITHIN_S = 5.0


async def leave(memories: Memories) -> None:
    """As much of both as there is time for."""
    await memories.leave_snapshots(SNAPSHOTS_WITHIN_S)
    await _leave_digests(memories)


async def _leave_digests(memories: Memories) -> None:
    digests: list[StoredDigest] = []
    until = anyio.current_time() + DIGESTS_WITHIN_S
    for user, memory in memories.loaded().items():
        if not memory.needs_rebuild and anyio.current_time() < until:
            digest = digest_memory(memory)
            parts = (digest.facts, digest.scopes, digest.trees, digest.units)
            digests.append(StoredDigest(user, digest.user_seq, *parts))
    with suppress(StoreUnusable):  # a full disk must not keep the daemon from ending
        await memories.log.write(partial(record_digests, digests=digests), urgent=False)
