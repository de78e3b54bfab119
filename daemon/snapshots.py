"""Taking a Memory up where its snapshot left it, and leaving one; a failure costs no more than a fold."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from anyio import CapacityLimiter, from_thread, to_thread

import events
import projections
from daemon.folding import in_slices
from daemon.logs import Report
from events.envelope import RecordedEvent, Reference
from events.errors import LogClosed, LogDamaged, StoreUnusable
from events.hindsight import read_hindsight
from events.log import LogReader
from events.names import read_names
from events.reading import read_events
from projections.memory import Memory, MemoryParameters
from projections.ports import SnapshotStore, StoredSnapshot
from projections.snapshot import Reader, SnapshotUnusable, Sources, can_freeze, freeze, made_by, thaw, thaw_nodes

# Events and names read at once.
_AT_ONCE = 256


def fingerprint_of_folding() -> str:
    """A hash of the code that folds and of the stemmer: another may fold otherwise, whatever its version says."""
    state = blake2b(version("PyStemmer").encode(), digest_size=16)
    for package in (events, projections):
        for folder in package.__path__:
            for path in sorted(Path(folder).rglob("*.py")):
                state.update(path.read_bytes())
    return state.hexdigest()


class Snapshots:
    """The snapshots of a store's Memories."""

    def __init__(
        self, store: SnapshotStore, log: LogReader, parameters: MemoryParameters, release: str, report: Report
    ) -> None:
        """`release`: what tells the program that folds from others, such as `fingerprint_of_folding`."""
        self._store = store
        self._log = log
        self._parameters = parameters
        self._made_by = made_by(parameters, release)
        self._report = report
        # One at a time: each more that works would keep the loop waiting for the interpreter as long again.
        self._thread = CapacityLimiter(1)

    async def take_up(self, user: Reference) -> Memory | None:
        """The Memory of a user as it was at its last snapshot; None when there is none that can be used.

        It is what a fold of the log up to its user_seq gives, with all that was undone by now left out.
        """
        stored = await self._store.load_snapshot(user)
        if stored is None or stored.made_by != self._made_by:
            return None
        hindsight = await self._log.read(partial(read_hindsight, user=user))
        if stored.user_seq > hindsight.user_seq or hindsight.undoes_after(stored.user_seq):
            return None
        memory = Memory(user, self._parameters, hindsight)
        try:
            # All of it in a thread: nobody else has this Memory yet, and some of its parts are big.
            reader = await to_thread.run_sync(Reader, stored.content, user, limiter=self._thread)
            sources = await self._read_sources(user, reader)
            await to_thread.run_sync(_thaw, reader, sources, memory, limiter=self._thread)
        except (LogDamaged, LogClosed, StoreUnusable):
            raise
        except Exception as error:  # the log has everything that is needed
            self._report("memory.snapshot_unusable", error=type(error).__name__)
            return None
        return memory

    async def _read_sources(self, user: Reference, reader: Reader) -> Sources:
        found: dict[int, RecordedEvent] = {}
        for at in range(0, len(reader.seqs), _AT_ONCE):
            found |= await self._log.read(partial(read_events, seqs=reader.seqs[at : at + _AT_ONCE]))
        names: dict[Reference, str] = {}
        # The user is not named in the snapshot: its reference is the key of the hashes in there.
        references = [user, *reader.names]
        for at in range(0, len(references), _AT_ONCE):
            names |= await self._log.read(partial(read_names, references=references[at : at + _AT_ONCE]))
        return Sources(found, names)

    async def leave(self, memory: Memory) -> bool:
        """Keep a snapshot of a Memory that nothing is folded into meanwhile; whether it can be frozen now."""
        if not can_freeze(memory):
            return False
        user_seq = memory.user_seq
        try:
            content = await in_slices(freeze(memory))
        except SnapshotUnusable:
            return False
        await self._store.keep_snapshot(memory.user, StoredSnapshot(user_seq, self._made_by, content))
        return True


def _thaw(reader: Reader, sources: Sources, memory: Memory) -> None:
    """Fill an empty Memory, and stop when whoever waits for it is cancelled."""
    for _ in thaw(reader, sources, memory):
        from_thread.check_cancelled()
    thaw_nodes(reader, memory)
