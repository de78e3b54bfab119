"""Node sets of any size for benchmarks: chunks of sessions a day apart, and questions about some of them."""

from __future__ import annotations

import ctypes
import gc
import random
from pathlib import Path
from resource import getpagesize

import numpy as np
from numpy.typing import NDArray

from events.envelope import identify
from events.memory import Pointer
from projections.recall.filters import entity_mark
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.tokens import STOP_WORDS
from projections.texts import FactText, TextRef, TurnsText
from tests.benchmarks.samples import Speech
from tests.builders import MONDAY, an_id

DIMENSIONS = 384
SPEAKERS = ("Alice", "Wren")
# As LoCoMo's conversations become: a chunk of two turns and a fact of each sentence.
SENTENCES_PER_TURN = 2
NODES_PER_CHUNK = 1 + SENTENCES_PER_TURN * len(SPEAKERS)
CHUNKS_PER_SESSION = 10
CHUNK_MS = 60_000
DAY_MS = 86_400_000
# The words of a question, a name among them, stand 0.88 times in a node (median; 1.37 in the 90th percentile).
# LoCoMo's do 0.74 and 1.67 times, among chunks and facts as they are made there, function words left out.
ZIPF = 1.0
WORDS_ASKED = 4
# Beyond these, chunks say again what others said: made-up talk costs more than indexing it.
CHUNKS_DISTINCT = 5_000
_BATCH = 1_000

# What each speaker says in a chunk, sentence by sentence.
Said = list[tuple[str, str]]


def fill(size: int, questions: int) -> tuple[NodeSet, list[str]]:
    """A node set of chunks and facts, and a question about each of some of them."""
    nodes, speech, talk = NodeSet(b"alice"), Speech(1, ZIPF), list[Said]()
    for chunk in range(-(-size // NODES_PER_CHUNK)):
        if chunk < CHUNKS_DISTINCT:
            talk.append(_talk(speech))
        _add(nodes, chunk, talk[chunk % CHUNKS_DISTINCT], size)
    chance = random.Random(2)
    return nodes, [_question(chance, *chance.choice(chance.choice(talk))) for _ in range(questions)]


def _talk(speech: Speech) -> Said:
    return [(speaker, speech.sentence()) for speaker in SPEAKERS for _ in range(SENTENCES_PER_TURN)]


def _question(chance: random.Random, speaker: str, sentence: str) -> str:
    words = [word for word in sentence.split() if word not in STOP_WORDS]
    return f"What about {speaker}: {' '.join(chance.sample(words, WORDS_ASKED))}?"


def _add(nodes: NodeSet, chunk: int, said: Said, size: int) -> None:
    """The chunk of this number and its facts, as far as the set shall have so many nodes."""
    turns = {speaker: len(SPEAKERS) * chunk + place + 1 for place, speaker in enumerate(SPEAKERS)}
    roles = {
        speaker: nodes.mark("role", role) for speaker, role in zip(SPEAKERS, ("user", "assistant"), strict=True)
    }
    text = "\n".join(
        f"{speaker}: {' '.join(sentence for who, sentence in said if who == speaker)}" for speaker in SPEAKERS
    )
    numbers = tuple(turns.values())
    nodes.add(_node(chunk, 0, NodeKind.CHUNK, TurnsText(numbers), numbers, text), text, roles.values())
    for place, (speaker, sentence) in enumerate(said[: size - len(nodes)], 1):
        fact = f"{speaker}: {sentence}"
        ref, label = FactText(Pointer(len(nodes) + 1, 0)), nodes.mark(*entity_mark(speaker))
        node = _node(chunk, place, NodeKind.FACT, ref, (turns[speaker],), fact)
        nodes.add(node, fact, (roles[speaker], label))


def _node(chunk: int, place: int, kind: NodeKind, ref: TextRef, turns: tuple[int, ...], text: str) -> SearchNode:
    session, before = divmod(chunk, CHUNKS_PER_SESSION)
    said_at = MONDAY + session * DAY_MS + before * CHUNK_MS
    return SearchNode(
        id=identify(b"mf.chunk", (NODES_PER_CHUNK * chunk + place).to_bytes(8, "big")),
        kind=kind,
        ref=ref,
        turns=turns,
        sessions=frozenset((an_id(f"session {session}"),)),
        said_at=said_at,
        time_start=said_at,
        time_end=said_at + CHUNK_MS,
        length=len(text),
    )


def unit_rows(count: int, seed: int) -> NDArray[np.float32]:
    """Unit vectors that point anywhere: the nearest ones differ least."""
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSIONS), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def add_vectors(nodes: NodeSet) -> None:
    """A vector for each node: the rows of `unit_rows` with seed 3 in order."""
    ids = list(nodes.row_of)
    vectors = unit_rows(len(ids), 3)
    for at in range(0, len(ids), _BATCH):
        nodes.set_vectors(ids[at : at + _BATCH], vectors[at : at + _BATCH])


def weigh(size: int) -> float:
    """Bytes a node by which a process grows that makes a node set; one of its own, or what was freed is filled."""
    add_vectors(fill(200, 1)[0])  # whatever is loaded with the first one is no node's weight
    speech = Speech(1, ZIPF)
    before = _resident_bytes()
    nodes = NodeSet(b"alice")
    while len(nodes) < size:
        _add(nodes, len(nodes) // NODES_PER_CHUNK, _talk(speech), size)
    ids = list(nodes.row_of)
    for at in range(0, size, _BATCH):
        nodes.set_vectors(ids[at : at + _BATCH], unit_rows(len(ids[at : at + _BATCH]), at))
    del ids
    return (_resident_bytes() - before) / len(nodes)


def _resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
