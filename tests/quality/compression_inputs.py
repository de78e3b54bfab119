"""What compression is measured on: the memories of LoCoMo conversations, with vectors and questions, in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import msgspec
import numpy as np
from numpy.typing import NDArray

from daemon.config_values import ConfigInvalid
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.static import StaticEmbedder
from projections.ports import Vectors
from projections.recall.keyed import hash_terms
from projections.recall.tokens import query_terms, terms
from tests.quality.locomo import Conversation, Question, load_conversations, turn_ids_of

if TYPE_CHECKING:
    from events.time import Instant

# Names the file that `tests.quality.minilm` makes; without it MiniLM is not measured.
MINILM_ENV: Final = "MEMFOREST_MINILM"


class Kind(StrEnum):
    """What a memory is: a fact that a language model wrote (the data set's `observation`), or a turn."""

    FACTS = "facts"
    TURNS = "turns"


class Embedding(StrEnum):
    """Whose vectors: the built-in embedder's, the static one's (wordllama), MiniLM's (int8)."""

    HASHING = "hashing"
    STATIC = "static"
    MINILM = "minilm"


# Texts to unit rows.
Embed: TypeAlias = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, slots=True)
class Memory:
    """A text, when it was said (milliseconds), the turns it stands for, and its place among all turns in time."""

    text: str
    said_at: Instant
    turn_ids: frozenset[str]
    position: int
    session: int


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The n memories of one conversation in order of time, and its questions; everything that costs is done.

    `vectors` (n, d) and `question_vectors` (q, d) are unit rows. `positions` are places of source turns in time
    order, `sessions` count from 0. `term_counts`: of each memory how often it holds which term, by hash; `asked`:
    of each question the same of its own terms alone, (terms, n), in the order of their hashes.
    """

    name: str
    kind: Kind
    memories: tuple[Memory, ...]
    vectors: Vectors
    questions: tuple[Question, ...]
    question_vectors: Vectors
    term_counts: tuple[Mapping[int, int], ...]
    question_terms: tuple[tuple[str, ...], ...]
    asked: tuple[NDArray[np.float64], ...]

    def __len__(self) -> int:
        """How many memories there are."""
        return len(self.memories)

    @property
    def texts(self) -> list[str]:
        """What each memory says."""
        return [each.text for each in self.memories]

    @property
    def positions(self) -> list[int]:
        """Where each memory's source turn stands in time; several of one turn share a place."""
        return [each.position for each in self.memories]

    @property
    def sessions(self) -> list[int]:
        """The number of each memory's session."""
        return [each.session for each in self.memories]

    @property
    def said_at(self) -> NDArray[np.int64]:
        """When each was said, in milliseconds, shape (n,)."""
        return np.array([each.said_at for each in self.memories], dtype=np.int64)

    @property
    def turn_ids(self) -> list[frozenset[str]]:
        """The turns each stands for."""
        return [each.turn_ids for each in self.memories]


def make_inputs(
    name: str, kind: Kind, memories: Iterable[Memory], questions: Sequence[Question], embed: Embed
) -> Inputs:
    """Embed and index the memories and questions of a conversation."""
    kept = tuple(memories)
    counts = tuple(_count_terms(each.text) for each in kept)
    question_terms = tuple(tuple(query_terms(each.text)) for each in questions)
    return Inputs(
        name,
        kind,
        kept,
        embed([each.text for each in kept]),
        tuple(questions),
        embed([each.text for each in questions]),
        counts,
        question_terms,
        tuple(_count_asked(each, counts) for each in question_terms),
    )


def load_inputs(path: Path, kind: Kind, embedding: Embedding) -> tuple[Inputs, ...]:
    """The conversations of a LoCoMo file as memories of one kind. Raises `ConfigInvalid` without the vectors."""
    embed = embed_with(embedding)
    observed = _read_observations(path)
    return tuple(
        make_inputs(
            each.conversation_id,
            kind,
            turns_of(each) if kind is Kind.TURNS else facts_of(each, observed[each.conversation_id]),
            each.questions,
            embed,
        )
        for each in load_conversations(path)
    )


def turns_of(conversation: Conversation) -> list[Memory]:
    """Every turn, behind its speaker's name."""
    said = [(number, turn) for number, session in enumerate(conversation.sessions) for turn in session.turns]
    return [
        Memory(f"{turn.speaker}: {turn.text}", turn.said_at, frozenset((turn.turn_id,)), place, number)
        for place, (number, turn) in enumerate(said)
    ]


def facts_of(conversation: Conversation, observed: Iterable[tuple[str, Sequence[str]]]) -> list[Memory]:
    """The facts among (text, evidence ids) whose turns are known, each at the last of its turns."""
    turns = {next(iter(turn.turn_ids)): turn for turn in turns_of(conversation)}
    known = frozenset(turns)
    facts: list[Memory] = []
    for text, evidence in observed:
        behind = turn_ids_of(evidence, known)
        if behind:
            last = max((turns[each] for each in behind), key=lambda turn: turn.position)
            facts.append(Memory(text, last.said_at, behind, last.position, last.session))
    return sorted(facts, key=lambda fact: fact.position)


def embed_with(embedding: Embedding) -> Embed:
    """The function that embeds with this model. Raises `ConfigInvalid` when it is not there."""
    if embedding is Embedding.HASHING:
        return HashingEmbedder().rows
    if embedding is Embedding.STATIC:
        static = StaticEmbedder()
        return lambda texts: anyio.run(static.embed, texts)
    path = os.environ.get(MINILM_ENV)
    if not path:
        raise ConfigInvalid(f"{MINILM_ENV} names no file of MiniLM vectors (tests/quality/minilm.py makes one)")
    return _read_kept(Path(path))


def _read_kept(path: Path) -> Embed:
    """Vectors by text, from an .npz with `texts` (n,) and `vectors` (n, d)."""
    with np.load(path, allow_pickle=False) as kept:
        vectors: Vectors = kept["vectors"].astype(np.float32)
        row_of = {text: row for row, text in enumerate(kept["texts"].tolist())}
    return lambda texts: np.ascontiguousarray(vectors[[row_of[text] for text in texts]])


def texts_to_embed(path: Path) -> list[str]:
    """Every memory and question of a LoCoMo file, once: what a file of kept vectors must hold."""
    observed = _read_observations(path)
    found: dict[str, None] = {}
    for each in load_conversations(path):
        memories = [*turns_of(each), *facts_of(each, observed[each.conversation_id])]
        found.update(dict.fromkeys(memory.text for memory in memories))
        found.update(dict.fromkeys(question.text for question in each.questions))
    return list(found)


class _WireObserved(msgspec.Struct):
    sample_id: str
    # `session_N_observation`: by speaker, pairs of a text and the id or ids of its turns.
    observation: dict[str, dict[str, list[tuple[str, Any]]]]


@cache
def _read_observations(path: Path) -> dict[str, list[tuple[str, list[str]]]]:
    wire = msgspec.json.decode(path.read_bytes(), type=list[_WireObserved])
    return {each.sample_id: list(_observed(each.observation)) for each in wire}


def _observed(observation: dict[str, dict[str, list[tuple[str, Any]]]]) -> Iterable[tuple[str, list[str]]]:
    for key in sorted(observation, key=lambda name: int(re.sub(r"\D", "", name))):
        for facts in observation[key].values():
            for text, evidence in facts:
                ids: list[Any] = evidence if isinstance(evidence, list) else [evidence]
                yield text, [piece for each in ids for piece in str(each).replace(",", ";").split(";")]


def _count_asked(asked: Sequence[str], counts: Sequence[Mapping[int, int]]) -> NDArray[np.float64]:
    hashes = sorted(set(hash_terms(b"", asked)))
    return np.array([[held.get(each, 0) for held in counts] for each in hashes], dtype=np.float64).reshape(
        len(hashes), len(counts)
    )


def _count_terms(text: str) -> Mapping[int, int]:
    counts: dict[int, int] = {}
    for each in hash_terms(b"", terms(text)):
        counts[each] = counts.get(each, 0) + 1
    return counts
