"""Memories that came from another system: facts at once, with the names in their text as rules find them."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from sys import intern
from typing import Final

import numpy as np
from numpy.typing import NDArray

from events.envelope import RecordedEvent
from events.memory import ExtractedFact, Mention, Pointer
from events.session import MemoryImported
from projections.facts.canonical import Occurrence, make_leaf_key, read_likeness
from projections.facts.labels import normalise_label

# A sentence names few things; a document with very many capitals must not make as many labels.
MENTIONS_MAX: Final = 16
_RUN: Final = re.compile(r"[^\W\d_][\w'’-]*(?:[ \t]+[^\W\d_][\w'’-]*)*")
_WORD: Final = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE_END: Final = frozenset('.!?:;\n。！？：；…"“”„«»')
# Capitals that name nobody.
_PRONOUNS: Final = frozenset(("i", "i'm", "i've", "i'd", "i'll"))


def read_memory(recorded: RecordedEvent, event: MemoryImported, known: Sequence[str]) -> Occurrence:
    """An imported memory as an occurrence that rests on itself; `known` are labels of facts that it names."""
    assert recorded.session is not None
    fact = as_fact(recorded, event)
    mentions = {label: Mention(intern(label)) for label in known}
    for mention in find_names(event.content):
        mentions.setdefault(mention.label, mention)
    return Occurrence(
        pointer=Pointer(recorded.seq, 0),
        origin=recorded.key,
        session=recorded.session,
        turns=(recorded.seq,),
        said_at=recorded.happened_at,
        time_start=recorded.happened_at,
        time_end=recorded.happened_at,
        role=fact.role,
        mentions=tuple(mentions.values())[:MENTIONS_MAX],
        likeness=read_likeness(fact, recorded.user),
        leaf_key=make_leaf_key(recorded.nonce, 0, recorded.happened_at, event.content),
        length=len(event.content),
    )


def as_fact(recorded: RecordedEvent, event: MemoryImported, mentions: tuple[Mention, ...] = ()) -> ExtractedFact:
    """What an imported memory says, in the form of an extracted fact of one turn: itself."""
    return ExtractedFact(event.content, (0,), recorded.happened_at, recorded.happened_at, mentions=mentions)


def find_names(text: str) -> list[Mention]:
    """Neighbouring words with capitals, in normal form and in order; uncertain where a sentence begins with it."""
    found: dict[str, bool] = {}
    for run in _RUN.finditer(text):
        words = [(word.group(), run.start() + word.start()) for word in _WORD.finditer(run.group())]
        label: list[str] = []
        begins = False
        for word, at in [*words, ("", 0)]:
            if word and word[0].isupper() and word.casefold().replace("’", "'") not in _PRONOUNS:
                begins = begins or (not label and _begins_sentence(text, at))
                label.append(word)
                continue
            if label:
                name = normalise_label(" ".join(label))
                found[name] = found.get(name, True) and begins and len(label) == 1
            label, begins = [], False
    return [Mention(intern(label), uncertain) for label, uncertain in found.items()]


def read_vector(event: MemoryImported) -> NDArray[np.float32] | None:
    """The vector that came with a memory, as a unit row; None without one, and for one that has no direction."""
    if event.embedding is None:
        return None
    # In 64 bits: the squares of what 32 hold may be too large for them, or too small.
    vector = np.frombuffer(b64decode(event.embedding), dtype="<f4").astype(np.float64)
    norm = float(np.linalg.norm(vector))
    return (vector / norm).astype(np.float32) if 0 < norm < np.inf else None


def read_width(embedding: str) -> int:
    """How many numbers an embedding has, in base64 of float32."""
    return (3 * len(embedding) // 4 - embedding.count("=", -2)) // 4


def read_embedding(event: MemoryImported, model: str, width: int) -> NDArray[np.float32] | None:
    """The vector that came with a memory, if it is of this model and width; else None."""
    vector = read_vector(event) if event.embedding_model == model else None
    return vector if vector is not None and vector.size == width else None


def _begins_sentence(text: str, at: int) -> bool:
    before = text[:at].rstrip(" \t")
    return not before or before[-1] in _SENTENCE_END
