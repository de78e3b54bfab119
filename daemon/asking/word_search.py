"""The words of Memories that are loaded, for questions that are asked in other words.

Only with the static embedder's package, which has a vector for every word, whichever embedder ranks memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

import anyio
from anyio import to_thread

from daemon.offline.static import PACKAGE, StaticEmbedder
from events.reading import read_events
from projections.ports import EmbedderUnavailable
from projections.recall.expanding import HELD_SHARE_MAX, RELATED_MAX, Related
from projections.recall.vocabulary import ASKED_MAX, Hashed, Vocabulary, Word, WordVector, split_words, to_whole
from projections.texts import compose, events_behind

if TYPE_CHECKING:
    from events.log import LogReader
    from projections.memory import Memory
    from projections.ports import Embedder, Vectors

# Nodes whose words are read at once: some ten milliseconds in another thread.
NODES_AT_ONCE: Final = 256
# A Memory that changes meanwhile is looked at again; what is still missing then waits for the next question.
_TRIES: Final = 3


class WordVectors(Protocol):
    """What has a vector for every word."""

    @property
    def dimensions(self) -> int:
        """Width of a vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text. Raises `EmbedderUnavailable`."""
        ...


def find_word_search(reader: LogReader, embedder: Embedder) -> WordSearch | None:
    """One with the static model, which is loaded for the first question.

    None where its package is not installed, and where no vectors rank.
    """
    return WordSearch(reader, StaticEmbedder()) if embedder.ranks and find_spec(PACKAGE) else None


class WordSearch:
    """Finds the words of a Memory that are related to those of a question."""

    def __init__(self, reader: LogReader, vectors: WordVectors) -> None:
        """`reader` is that of queries."""
        self._reader = reader
        self._vectors = vectors
        self._reading: WeakKeyDictionary[Memory, anyio.Lock] = WeakKeyDictionary()

    async def find(self, memory: Memory, question: str) -> Related | None:
        """Terms that count for those of the question; None without any."""
        words = _rarest(memory, split_words(question))
        if not words:
            return None
        vocabulary = memory.nodes.words
        if vocabulary is None:
            vocabulary = Vocabulary(memory.user, self._vectors.dimensions, memory.nodes.row_of)
            memory.nodes.words = vocabulary
        try:
            if vocabulary.missing:
                async with self._reading.setdefault(memory, anyio.Lock()):
                    await self._catch_up(memory, vocabulary)
            asked = await self._embed(vocabulary, words)
        except EmbedderUnavailable:
            return None  # `status` says so where it is the embedder, too
        related = vocabulary.related(asked, RELATED_MAX)
        return Related(related) if related else None

    async def _embed(self, vocabulary: Vocabulary, words: Sequence[Word]) -> list[tuple[Hashed, WordVector]]:
        """The words of a question and their vectors; those of words that a node says are known."""
        hashed = vocabulary.hash_words(words)
        vectors = [vocabulary.vector(each.word) for each in hashed]
        new = [word.text for word, vector in zip(words, vectors, strict=True) if vector is None]
        rows = iter(to_whole(await self._vectors.embed(new)) if new else ())
        return [
            (each, next(rows) if vector is None else vector) for each, vector in zip(hashed, vectors, strict=True)
        ]

    async def _catch_up(self, memory: Memory, vocabulary: Vocabulary) -> None:
        """Take the words of nodes that came; those of nodes that went are gone already."""
        for _ in range(_TRIES):
            new = sorted(vocabulary.missing)
            for start in range(0, len(new), NODES_AT_ONCE):
                await self._take(memory, vocabulary, new[start : start + NODES_AT_ONCE])
            if not vocabulary.missing:
                return

    async def _take(self, memory: Memory, vocabulary: Vocabulary, ids: Sequence[bytes]) -> None:
        row_of = memory.nodes.row_of
        here = [each for each in ids if each in vocabulary.missing]
        refs = [node.ref for node in memory.nodes.nodes_at([row_of[each] for each in here])]
        recorded = await self._reader.read(partial(read_events, seqs=events_behind(refs)))
        texts = [compose(ref, recorded) or "" for ref in refs]
        said = await to_thread.run_sync(partial(_read_words, vocabulary, texts), abandon_on_cancel=True)
        new = {
            hashed.word: word for of_node in said for word, hashed in of_node if not vocabulary.knows(hashed.word)
        }
        found: dict[int, WordVector] = {}
        if new:
            rows = to_whole(await self._vectors.embed([word.text for word in new.values()]))
            found = dict(zip(new, rows, strict=True))
        for node_id, ref, of_node in zip(here, refs, said, strict=True):
            hashes = [hashed for _, hashed in of_node]
            # Meanwhile a node may have gone, and words with it; an open chunk that grew says more by now.
            complete = all(each.word in found or vocabulary.knows(each.word) for each in hashes)
            if complete and node_id in vocabulary.missing and memory.nodes.node(row_of[node_id]).ref == ref:
                vocabulary.put(node_id, hashes, found)


def _rarest(memory: Memory, words: Sequence[Word]) -> list[Word]:
    """The words whose terms the fewest nodes hold, none that so many hold that it says nothing."""
    lexical = memory.nodes.lexical
    hashes = list(lexical.hash(each.term for each in words))
    held = lexical.look_up(hashes)
    holders = [held[each][1] if each in held else 0 for each in hashes]
    telling = [n for n, count in enumerate(holders) if count <= max(1.0, HELD_SHARE_MAX * len(lexical))]
    order = sorted(telling, key=lambda n: (holders[n], n))[:ASKED_MAX]
    return [words[n] for n in sorted(order)]


def _read_words(vocabulary: Vocabulary, texts: Sequence[str]) -> list[list[tuple[Word, Hashed]]]:
    split = [split_words(text) for text in texts]
    return [list(zip(words, vocabulary.hash_words(words), strict=True)) for words in split]
