"""Whom a question names, and which facts name them, too: entity scopes as a second step of recall.

Two people talk in nearly every chunk, so their names tell chunks apart badly; a fact says who it is about.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.filters import entity_mark
from projections.recall.tokens import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from projections.recall.nodes import NodeSet

# Words of a name, and words of a question that are looked at: a question may be a whole page.
NAME_WORDS_MAX: Final = 3
QUESTION_WORDS_MAX: Final = 64

_WORD: Final = re.compile(r"\w[\w.+#&-]*(?:['’](?!s\b)\w+)*", re.UNICODE)


def named_shares(nodes: NodeSet, question: str) -> NDArray[np.float32] | None:
    """The share of the entities in a question that each row names, shape (size,); None when it names none.

    Do not write to it.
    """
    entities = {nodes.marks.alike(mark) for mark in _marks(nodes, question)}
    named = [column for entity in sorted(entities) if (column := _column(nodes, entity)) is not None]
    if len(named) < 2:
        return named[0] if named else None
    shares = named[0] + named[1]
    for column in named[2:]:
        shares += column
    shares /= np.float32(len(named))
    return shares


def names_in(nodes: NodeSet, question: str) -> list[str]:
    """What in a question names an entity that some row names, too; written small it is a word."""
    written = (phrase for phrase in _phrases(question) if not phrase[0].islower())
    return [phrase for phrase in written if nodes.mark(*entity_mark(phrase)) in nodes.marks]


def _column(nodes: NodeSet, entity: tuple[int, ...]) -> NDArray[np.float32] | None:
    """1 for each row that names the entity by one of its names, else 0; None when none does."""
    columns = [nodes.marks.column(mark, nodes.size) for mark in entity if mark in nodes.marks]
    if len(columns) < 2:
        return columns[0] if columns else None
    named: NDArray[np.float32] = np.maximum.reduce(columns)
    return named


def _marks(nodes: NodeSet, question: str) -> set[int]:
    """The marks of everything in a question that might be a name."""
    return {nodes.mark(*entity_mark(phrase)) for phrase in _phrases(question)}


def _phrases(question: str) -> Iterator[str]:
    """Words of a question, and two and three neighbours; none begins or ends with a function word."""
    words = [word.rstrip(".&-") for word in _WORD.findall(question)[:QUESTION_WORDS_MAX]]
    speaking = [word.lower() not in STOP_WORDS for word in words]
    for length in range(1, NAME_WORDS_MAX + 1):
        for start in range(len(words) - length + 1):
            if speaking[start] and speaking[start + length - 1]:
                yield " ".join(words[start : start + length])
