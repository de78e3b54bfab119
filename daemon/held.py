"""A Memory as the daemon holds it: who folds into it, who reads it, and what it must not show."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from daemon.folding import Begun
from events.envelope import Reference
from events.errors import LogDamaged
from projections.memory import Memory


@dataclass(eq=False, slots=True)
class Held:
    """A Memory in use: one task at a time folds into it, several may read it."""

    memory: Memory | None = None
    # A fold from nothing that is under way, or was given up by whoever waited for it.
    begun: Begun = field(default_factory=Begun)
    folding: anyio.Lock = field(default_factory=anyio.Lock)
    pins: int = 0
    queued: bool = False
    # Where the log ended when it was read last, and into which Memory.
    read_to: tuple[int, Memory] | None = None
    # Up to which user_seq there is a snapshot, and when it grew last (monotonic).
    snapshot_seq: int = 0
    grown_at: float = 0.0
    # What it takes, as it was counted last.
    size_bytes: int = 0
    # When its events could not be folded last (monotonic), and why.
    broken_at: float = 0.0
    broken: LogDamaged | None = None
    # Sessions forgotten and turns retracted that may not be known to the Memory yet.
    hidden: set[Reference] = field(default_factory=set[Reference])
    hidden_turns: set[Reference] = field(default_factory=set[Reference])
    # The user was forgotten.
    hidden_whole: bool = False

    @property
    def unsaved_events(self) -> int:
        """How many events would have to be folded again without a new snapshot."""
        return 0 if self.memory is None else self.memory.user_seq - self.snapshot_seq

    def show(self, memory: Memory) -> None:
        """From now on this Memory answers, without what was forgotten meanwhile."""
        self.memory = memory
        self.hide()

    def hide(self) -> None:
        """Keep from the Memory's answers what it may still hold."""
        if self.memory is not None:
            for session in self.hidden:
                self.memory.forget_session(session)
            for turn in self.hidden_turns:
                self.memory.withdraw_turn(turn)
            if self.hidden_whole:
                self.memory.forget_user()
