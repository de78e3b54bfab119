"""How a snapshot is laid out: sections of rows, in which ids, labels and scopes are numbers of tables.

A label is not written down but where the log names it, and under which hash: it is read from there again. So a
snapshot has no words. It is data and no more: nothing in it is run when it is read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from events.envelope import RecordedEvent, Reference
from events.errors import MemForestError
from events.memory import ExtractedFact, FactsExtracted, Pointer
from events.session import MemoryImported
from projections.facts.imported import find_names
from projections.facts.labels import normalise_label
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from projections.facts.states import read_key
from projections.recall.keyed import hash_terms
from projections.texts import fact_in

# Numbers, bytes, and lists of such.
Row: TypeAlias = tuple[Any, ...]
Section: TypeAlias = tuple[str, Iterable[Row]]
# Rows of a batch: a millisecond or two to write. While they are made others get their chance after each, since a
# tree or an entity with all its facts is one row.
_ROWS_AT_ONCE: Final = 50
_IDS, _LABELS, _SEQS, _NAMES = "ids", "labels", "seqs", "names"
_KINDS: Final = (ScopeKind.SESSION, ScopeKind.ENTITY, ScopeKind.USER, ScopeKind.SCENE)
_decoder = msgspec.msgpack.Decoder(list[tuple[str, list[bytes]]])
_batch_decoder = msgspec.msgpack.Decoder(list[tuple[Any, ...]])


class SnapshotUnusable(MemForestError):
    """A snapshot cannot be made of this Memory, or a Memory of this snapshot; fold the log instead."""


class Writer:
    """Collects sections. What they refer to is numbered on the way and written in front of them."""

    def __init__(self, key: Reference) -> None:
        """`key`: the user's reference, under which labels are hashed."""
        self._key = key
        self._ids: dict[bytes, int] = {}
        self._labels: dict[str, int] = {}
        self._places: dict[str, Pointer] = {}
        self._seqs: set[int] = set()
        self._names: list[Reference] = []

    def id(self, id_: bytes) -> int:
        """The number of an id; ids that stand in many rows are written once."""
        return self._ids.setdefault(id_, len(self._ids))

    def ids(self, ids: Iterable[bytes]) -> list[int]:
        """The numbers of ids, in their order."""
        return [self._ids.setdefault(each, len(self._ids)) for each in ids]

    def label(self, label: str) -> int:
        """The number of a label."""
        return self._labels.setdefault(label, len(self._labels))

    def place_label(self, label: str, pointer: Pointer) -> None:
        """Where the log names a label; the first place counts."""
        self._places.setdefault(label, pointer)

    def scope(self, scope: Scope) -> Row:
        """A scope in numbers."""
        number = _KINDS.index(scope.kind)
        match scope.kind:
            case ScopeKind.SESSION | ScopeKind.SCENE:
                return number, self.id(bytes.fromhex(scope.name))
            case ScopeKind.ENTITY:
                return number, self.label(scope.name)
            case ScopeKind.USER:
                return number, 0

    def read_again(self, seq: int) -> int:
        """The words of this event are wanted when the snapshot is read."""
        self._seqs.add(seq)
        return seq

    def name(self, reference: Reference) -> Row:
        """What this reference stands for is wanted when the snapshot is read."""
        self._names.append(reference)
        return (self.id(reference),)

    def write(self, sections: Iterable[Section]) -> Generator[None, None, bytes]:
        """All sections as bytes. Raises `SnapshotUnusable` for a label that no event names as it is."""
        written: list[tuple[str, list[bytes]]] = []
        for name, rows in sections:
            batches = yield from _encode(rows)
            written.append((name, batches))
        if self._labels.keys() - self._places.keys():
            raise SnapshotUnusable
        places = [self._places[label] for label in self._labels]
        hashes = hash_terms(self._key, self._labels)
        labels = [
            (hashed, place.seq, place.n, len(label))
            for label, hashed, place in zip(self._labels, hashes, places, strict=True)
        ]
        seqs = sorted(self._seqs | {place.seq for place in places})
        front: list[Section] = [
            (_SEQS, ((seq,) for seq in seqs)),
            (_NAMES, ((name,) for name in self._names)),
            (_IDS, ((id_,) for id_ in self._ids)),
            (_LABELS, labels),
        ]
        for at, (name, rows) in enumerate(front):
            batches = yield from _encode(rows)
            written.insert(at, (name, batches))
        return msgspec.msgpack.encode(written)


def _encode(rows: Iterable[Row]) -> Generator[None, None, list[bytes]]:
    batches: list[bytes] = []
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        yield
        if len(batch) == _ROWS_AT_ONCE:
            batches.append(msgspec.msgpack.encode(batch))
            batch = []
            yield
    if batch:
        batches.append(msgspec.msgpack.encode(batch))
    return batches


@dataclass(frozen=True, slots=True)
class Sources:
    """What the log says of the places that a snapshot refers to."""

    events: Mapping[int, RecordedEvent]
    names: Mapping[Reference, str]


class Reader:
    """A snapshot taken apart. `seqs` and `names` are to be looked up in the log before its rows are read."""

    def __init__(self, content: bytes, key: Reference) -> None:
        """Raises `SnapshotUnusable` for bytes that are no snapshot."""
        try:
            self._sections = dict(_decoder.decode(content))
            self.seqs: list[int] = [seq for (seq,) in self._rows(_SEQS)]
            self.names: list[Reference] = [name for (name,) in self._rows(_NAMES)]
        except (msgspec.DecodeError, KeyError) as error:
            raise SnapshotUnusable from error
        self._key = key
        self.sources = Sources({}, {})
        self._ids: list[bytes] = []
        self._labels: list[str] = []
        self._scopes: dict[Row, Scope] = {}

    def resolve(self, sources: Sources) -> Generator[None, None, None]:
        """Read the tables. Raises `SnapshotUnusable` when a label stands no more where it stood."""
        self.sources = sources
        for batch in self.batches(_IDS):
            self._ids += [id_ for (id_,) in batch]
            yield
        for batch in self.batches(_LABELS):
            self._labels += [self._read_label(*row) for row in batch]
            yield

    def batches(self, section: str) -> Iterator[list[Row]]:
        """The rows of a section, some at a time."""
        for batch in self._sections[section]:
            yield _batch_decoder.decode(batch)

    def id(self, number: int) -> bytes:
        """The id of a number."""
        return self._ids[number]

    def ids(self, numbers: Iterable[int]) -> list[bytes]:
        """The ids of numbers."""
        ids = self._ids
        return [ids[number] for number in numbers]

    def label(self, number: int) -> str:
        """The label of a number."""
        return self._labels[number]

    def scope(self, kind: int, number: int) -> Scope:
        """The scope of a row."""
        known = self._scopes.get((kind, number))
        if known is None:
            match _KINDS[kind]:
                case ScopeKind.SESSION | ScopeKind.SCENE as named:
                    known = Scope(named, self.id(number).hex())
                case ScopeKind.ENTITY as named:
                    known = Scope(named, self.label(number))
                case ScopeKind.USER:
                    known = USER_SCOPE
            self._scopes[kind, number] = known
        return known

    def event(self, seq: int) -> RecordedEvent:
        """An event that was to be read again. Raises `SnapshotUnusable` when its words are gone."""
        recorded = self.sources.events.get(seq)
        if recorded is None or recorded.event is None:
            raise SnapshotUnusable
        return recorded

    def _rows(self, section: str) -> list[Row]:
        return [row for batch in self.batches(section) for row in batch]

    def _read_label(self, hashed: int, seq: int, n: int, length: int) -> str:
        for labels in _labels_at(self.event(seq), n, length):
            for label, found in zip(labels, hash_terms(self._key, labels), strict=True):
                if found == hashed:
                    return label
        raise SnapshotUnusable


def _labels_at(recorded: RecordedEvent, n: int, length: int) -> Iterator[list[str]]:
    """What may be the label of so many characters, in normal form, that the n-th fact of an event names."""
    match recorded.event:
        case FactsExtracted(aliases=aliases) if n < 0:
            yield [normalise_label(name) for each in aliases[-1 - n : -n] for name in (each.label, each.alias)]
        case MemoryImported(content=content):
            yield [mention.label for mention in find_names(content)]
            # One that was known already may stand there without a capital.
            folded = normalise_label(content)
            yield [folded[at : at + length] for at in range(len(folded) - length + 1)]
        case event:
            fact = fact_in(event, n)
            if fact is not None:
                yield _labels_of(fact)


def _labels_of(fact: ExtractedFact) -> list[str]:
    """The entities that a fact names, and those of its state, in normal form."""
    state = None if fact.state is None else read_key(fact.state)
    return [*(normalise_label(mention.label) for mention in fact.mentions), *(state or ())]
