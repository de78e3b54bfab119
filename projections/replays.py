"""Sessions that are being extracted again: what is done of each, and what is still to do.

The old extractions stand until all of a session is extracted anew; then one event puts the new ones in their
place, so nobody sees half of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from events.envelope import RecordedEvent, Reference, identify
from events.memory import ChunkKey, FactsExtracted
from events.session import Replacement
from projections.facts.chunking import Chunk


class _Extraction(NamedTuple):
    session: Reference | None
    seq: int
    user_seq: int


@dataclass(slots=True)
class Replay:
    """One session's replay, begun at a user_seq: which extraction of before is replaced by which."""

    started: int
    replaced: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """What takes the place of what, in the order of the log."""
        return tuple(Replacement(old, new) for old, new in sorted(self.replaced.items()))


class Replays:
    """The replays of one user that are not complete."""

    def __init__(self) -> None:
        self.running: dict[Reference, Replay] = {}
        # Which extraction of a chunk stands.
        self._standing: dict[ChunkKey, _Extraction] = {}
        self._parked: set[bytes] = set()

    def start(self, recorded: RecordedEvent) -> None:
        """A replay was asked for; one that runs already goes on."""
        assert recorded.session is not None
        self.running.setdefault(recorded.session, Replay(recorded.user_seq))

    def end(self, session: Reference) -> None:
        """The replay is complete."""
        self.running.pop(session, None)

    def note_extraction(self, recorded: RecordedEvent, event: FactsExtracted) -> None:
        """An extraction stands for its chunk from now on."""
        self._standing[event.chunk] = _Extraction(recorded.session, recorded.seq, recorded.user_seq)

    def note_replacement(self, recorded: RecordedEvent, replaced: int) -> None:
        """An extraction waits to take the place of another."""
        if recorded.session in self.running:
            self.running[recorded.session].replaced[replaced] = recorded.seq

    def note_parked(self, request: bytes) -> None:
        """A chunk could not be extracted again: its old extraction stays."""
        self._parked.add(request)

    def note_resumed(self, request: bytes) -> None:
        """A chunk that could not be extracted again is to be tried once more, if its replay still runs."""
        self._parked.discard(request)

    def remaining(
        self, session: Reference, chunks: Mapping[ChunkKey, Chunk]
    ) -> Iterator[tuple[Chunk, int, bytes]]:
        """Chunks of a session that are still to be extracted again: (chunk, extraction to replace, request)."""
        replay = self.running[session]
        started = replay.started.to_bytes(8, "big")
        for key, standing in self._standing.items():
            # Most are of other sessions, and a hash takes ten times as long as all that.
            if (
                standing.session == session
                and standing.user_seq < replay.started
                and standing.seq not in replay.replaced
                and key in chunks
            ):
                request = identify(b"mf.replay", key, started)
                if request not in self._parked:
                    yield chunks[key], standing.seq, request
