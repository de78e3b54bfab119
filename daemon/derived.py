"""The derived store: vectors and snapshots in `derived.db`, which can be deleted at any time.

Nothing here is anybody's only copy, so whatever is wrong with the file costs time and no answer. One thing must
succeed: that what was forgotten is gone from it. When it cannot be overwritten, the whole file is deleted.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import numpy as np
from numpy.typing import NDArray

from daemon import derived_snapshots as snapshots
from daemon import derived_vectors as vectors
from daemon.derived_file import NotOurs, Sizes, measure, open_derived, owner_of, read_bound
from daemon.logs import Report
from daemon.store_files import remove, with_sidecars
from events.database import DAMAGED, FAILED, Database, immediate, name_failure
from events.envelope import Reference, identify, identify_each
from events.erasure import Unerased, truncate_wal
from events.errors import StoreUnusable
from events.log import EventLog
from events.undone import find_erased, last_undone, read_emptied, read_link, read_link_at, read_voided
from projections.ports import BROUGHT, CachedVector, StoredSnapshot

T = TypeVar("T")

# In the data directory.
DERIVED: Final = "derived.db"
# Keys of vectors are hashed for this use alone.
_VECTOR: Final = b"mf.vector"
# Vectors in a transaction: a few milliseconds, so that whoever reads does not wait long.
_VECTORS_AT_ONCE: Final = 256


class DerivedStore:
    """The `VectorCache` and `SnapshotStore` of a daemon. `open` it, `close` it; one process at a time."""

    def __init__(self, path: Path, log: EventLog, report: Report, max_bytes: int, free_min_bytes: int) -> None:
        """Use `open`."""
        self._path = path
        self._log = log
        self._report = report
        # Vectors and snapshots may take half of the room each, so that neither drives the other out.
        self._room_bytes = max_bytes // 2
        self._free_min_bytes = free_min_bytes
        # None while the file can neither be opened nor made.
        self._database: Database | None = None
        # What is checked against the log under it is not forgotten before it is written.
        self._turn = anyio.Lock()
        self._closed = False
        # Why the last statement failed.
        self.failure: str | None = None

    @classmethod
    async def open(
        cls, path: Path, log: EventLog, report: Report, max_bytes: int, free_min_bytes: int = 0
    ) -> DerivedStore:
        """Open the file at `path`; one that is missing, damaged, of another release or log is made anew.

        It takes at most `max_bytes`, and nothing while less than `free_min_bytes` of the disk are free.
        """
        store = cls(path, log, report, max_bytes, free_min_bytes)
        reason = await store._open() if store._is_there() else "missing"
        if reason is not None:
            await store._begin_anew(reason if log.head else None)
        return store

    async def load(self, user: Reference, model: str, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """See `VectorCache`."""
        owner, name = owner_of(user), _name_model(model)

        def work(connection: sqlite3.Connection) -> dict[bytes, NDArray[np.float16]]:
            names = dict(zip(identify_each(_VECTOR, keys), keys, strict=True))
            kept = vectors.load_vectors(connection, owner, name, list(names))
            found = {names[each]: vector for each, vector in kept.items()}
            if len(set(map(len, found.values()))) == 1:  # rows of one array are made six times faster
                together = np.frombuffer(b"".join(found.values()), dtype=np.float16)
                return dict(zip(found, together.reshape(len(found), -1), strict=True))
            return {key: np.frombuffer(vector, dtype=np.float16) for key, vector in found.items()}

        return await self._try(work, {})

    async def keep(self, user: Reference, model: str, vectors: Sequence[CachedVector]) -> None:
        """See `VectorCache`."""
        for at in range(0, len(vectors), _VECTORS_AT_ONCE):
            await self._keep(user, model, vectors[at : at + _VECTORS_AT_ONCE])

    async def _keep(self, user: Reference, model: str, some: Sequence[CachedVector]) -> None:
        async with self._turn:
            if not self._may_write():
                return
            seqs = {seq for each in some for seq in each.seqs}
            erased = await self._log.read(partial(find_erased, seqs=seqs))
            rows = [
                vectors.VectorRow(_name_vector(each.key), each.seqs, each.vector.tobytes())
                for each in some
                if erased.isdisjoint(each.seqs) and each.vector.shape == some[0].vector.shape
            ]
            last = max(seqs, default=0)
            bound = (last, await self._log.read(partial(read_link_at, seq=last)) or b"")
            work = partial(
                vectors.keep_vectors,
                owner=owner_of(user),
                model=_name_model(model),
                rows=rows,
                bound=bound,
                room_bytes=self._room_bytes,
                brought=_name_model(BROUGHT),
            )
            await self._run(work, None)

    async def load_snapshot(self, user: Reference) -> StoredSnapshot | None:
        """See `SnapshotStore`. One that was made of another log than ours is none."""
        found = await self._try(partial(snapshots.load_snapshot, owner=owner_of(user)), None)
        if found is None or found.link != await self._log.read(
            partial(read_link, user=user, user_seq=found.user_seq)
        ):
            return None
        return StoredSnapshot(found.user_seq, found.made_by, found.content)

    async def keep_snapshot(self, user: Reference, snapshot: StoredSnapshot) -> None:
        """See `SnapshotStore`. One that holds what was undone meanwhile is not kept."""
        async with self._turn:
            link = await self._log.read(partial(read_link, user=user, user_seq=snapshot.user_seq))
            undone = await self._log.read(partial(last_undone, user=user))
            if link is None or undone > snapshot.user_seq or not self._may_write():
                return
            row = snapshots.SnapshotRow(snapshot.user_seq, link, snapshot.made_by, snapshot.content)
            work = partial(
                snapshots.keep_snapshot, owner=owner_of(user), snapshot=row, room_bytes=self._room_bytes
            )
            await self._run(work, None)

    async def erase(self, forgotten: Unerased) -> None:
        """Overwrite what was made of words that are forgotten; once it returns no file of ours holds any of it.

        Call it when the forgetting is durable: what is kept from then on is compared with it. Raises
        `StoreUnusable` when the file can be neither overwritten nor deleted.
        """
        owner = owner_of(forgotten.user)
        async with self._turn:
            after: int | None = 0
            while after is not None:
                seqs, after = await self._log.read(partial(read_voided, forgotten=forgotten, after=after))
                await self._erase(seqs, owner, whole=forgotten.is_user)
            await self._empty_wal()

    async def erase_retracted(self) -> None:
        """The same for retracted turns and what was made of them, once the log has emptied their words."""
        async with self._turn:
            for user, seqs in (await self._log.read(read_emptied)).items():
                await self._erase(seqs, owner_of(user))
            await self._empty_wal()

    async def read_vectors_of(self, forgotten: Unerased) -> list[bytes]:
        """The vectors that `erase` will overwrite, to look for afterwards."""
        found: list[bytes] = []
        after: int | None = 0
        while after is not None:
            seqs, after = await self._log.read(partial(read_voided, forgotten=forgotten, after=after))
            found += await self._try(partial(vectors.read_vectors_of, seqs=seqs), [])
        return found

    async def find_kept(self, needles: set[bytes], forgotten: Unerased) -> set[bytes]:
        """Those of these byte strings that stand in vectors that are kept, whatever `erase` left standing.

        Or in the schema of the file.
        """
        schema = await self._try(vectors.read_schema, b"")
        found = {needle for needle in needles if needle in schema}
        erased: set[int] = set()
        after: int | None = 0
        while after is not None:
            seqs, after = await self._log.read(partial(read_voided, forgotten=forgotten, after=after))
            erased.update(seqs)
        after = 0
        while after is not None and found != needles:
            look = partial(vectors.find_in_vectors, needles=needles - found, erased=erased, after=after)
            nothing: tuple[set[bytes], int | None] = (set(), None)
            some, after = await self._try(look, nothing)
            found |= some
        return found

    async def measure(self) -> Sizes:
        """What the file holds."""
        return await self._try(measure, Sizes(0, 0, 0))

    async def close(self) -> None:
        """Close the file; a second time does nothing. Whoever comes later finds nothing and keeps nothing."""
        with anyio.CancelScope(shield=True):
            async with self._turn:
                self._closed = True
                await self._close()

    def _may_write(self) -> bool:
        """The last room on a disk is for the log."""
        if self._log.failure is not None or self._log.reserved:
            return False
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize >= self._free_min_bytes

    async def _try(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        async with self._turn:
            return await self._run(work, otherwise)

    async def _run(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Run a closure on the file; when it fails nothing was there. The caller holds the turn."""
        if self._database is None:
            return otherwise
        try:
            result = await self._database.run(work)
        except sqlite3.Error as error:
            await self._note_failure(name_failure(error))
            return otherwise
        self.failure = None
        return result

    async def _note_failure(self, reason: str) -> None:
        if reason == DAMAGED:
            await self._begin_anew(reason)
        elif reason != self.failure:
            self.failure = reason
            self._report("derived.failed", reason=reason)

    async def _erase(self, seqs: Sequence[int], owner: bytes, *, whole: bool = False) -> None:
        def work(connection: sqlite3.Connection) -> None:
            with immediate(connection):
                snapshots.empty_snapshot(connection, owner)
                vectors.erase_vectors(connection, seqs)
                if whole:
                    vectors.empty_vectors(connection, owner)
                    connection.execute("DELETE FROM owners WHERE owner = ?", (owner,))

        await self._must(work)

    async def _empty_wal(self) -> None:
        def work(connection: sqlite3.Connection) -> None:
            if not truncate_wal(connection):
                raise sqlite3.OperationalError

        await self._must(work)

    async def _must(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Run a closure on the file, or delete the file. Raises `StoreUnusable`. The caller holds the turn."""
        try:
            if self._database is not None:
                await self._database.run(work)
                return
        except sqlite3.Error as error:
            reason = name_failure(error)
        else:
            if self._closed or not self._is_there():
                return  # closed: it is done again after the next start
            reason = FAILED
        if not await self._begin_anew(reason) and self._is_there():
            raise StoreUnusable("derived.db can be neither written nor deleted; delete it", reason)

    async def _begin_anew(self, reason: str | None) -> bool:
        """Delete the file and make another; whether that worked. The caller holds the turn."""
        await self._close()
        try:
            remove(*with_sidecars(self._path))
        except OSError:
            return False
        failure = await self._open()
        if reason is not None:
            self._report("derived.begun_anew", reason=reason)
        return failure is None

    async def _open(self) -> str | None:
        """Open the file; the reason why it is of no use, or None."""
        database = Database(partial(open_derived, self._path))
        try:
            await database.open()
        except NotOurs:
            return "of another release"
        except (sqlite3.Error, OSError) as error:
            return name_failure(error) if isinstance(error, sqlite3.Error) else FAILED
        self._database = database
        try:
            seq, link = await database.run(read_bound)
        except sqlite3.Error as error:
            return name_failure(error)
        if seq and link != await self._log.read(partial(read_link_at, seq=seq)):
            return "of another log"
        return None

    def _is_there(self) -> bool:
        return self._path.exists()

    async def _close(self) -> None:
        if self._database is not None:
            database, self._database = self._database, None
            await database.close()


def _name_model(model: str) -> bytes:
    return identify(b"mf.model", model.encode())[: vectors.HASH_BYTES]


def _name_vector(key: bytes) -> bytes:
    """Keys of one length make rows of one length."""
    return identify(_VECTOR, key)
