"""The data sets that can be run, how each is read, and how much of it is wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from memforest.bench.datasets import locomo, longmemeval, personamem
from memforest.bench.datasets.conversations import BadDataSet, Conversation, Stage
from memforest.publishing import file_digest

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class DataSet:
    """How a data set is read; `categories` in the order of its tables; `files`: what is read where `path`
    points.
    """

    read: Callable[[Path], Iterator[Conversation]]
    categories: Sequence[str]
    files: Callable[[Path], Sequence[Path]]


def _one_file(path: Path) -> Sequence[Path]:
    if not path.is_file():
        raise BadDataSet("This data set is one file, and --data names a folder.")
    return (path,)


DATA_SETS = {
    "locomo": DataSet(locomo.read_locomo_cases, tuple(locomo.CATEGORIES.values()), _one_file),
    "longmemeval": DataSet(longmemeval.read_longmemeval_cases, longmemeval.CATEGORIES, _one_file),
    "personamem": DataSet(personamem.read_personamem_cases, personamem.CATEGORIES, personamem.find_files),
}


@dataclass(frozen=True, slots=True)
class Selection:
    """A data set, where it lies, and how much of it is wanted; None is all."""

    data_set: DataSet
    path: Path
    conversations: int | None = None
    questions: int | None = None

    def digest(self) -> str:
        """SHA-256 over its files. Raises BadDataSet, OSError."""
        digests = [file_digest(each) for each in self.data_set.files(self.path)]
        return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def read(self) -> Iterator[Conversation]:
        """The conversations that are wanted, with the questions that are. Raises BadDataSet, OSError.

        Read anew each time, since a whole data set need not fit in memory.
        """
        self.data_set.files(self.path)
        for conversation in islice(self.data_set.read(self.path), self.conversations):
            yield conversation if self.questions is None else _cut(conversation, self.questions)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a selection holds: how many questions, and their categories in the order of the data set."""

    questions: int
    categories: tuple[str, ...]


def look_through(selection: Selection) -> Contents:
    """Read it once without sending anything, so that a broken file is refused before half of it was built.

    Raises BadDataSet for what is no such data set, or for an id that stands in it twice.
    """
    conversations: set[str] = set()
    cases: set[str] = set()
    found: set[str] = set()
    for number, conversation in enumerate(selection.read(), start=1):
        for case in conversation.cases:
            if case.case_id in cases:
                raise BadDataSet(f"Conversation {number}: a question has the id of another one.")
            cases.add(case.case_id)
            found.add(case.category)
        if conversation.conversation_id in conversations:
            raise BadDataSet(f"Conversation {number} has the id of an earlier one.")
        conversations.add(conversation.conversation_id)
    if not cases:
        raise BadDataSet("There are no questions in this file.")
    known = selection.data_set.categories
    return Contents(len(cases), (*(each for each in known if each in found), *sorted(found - set(known))))


def _cut(conversation: Conversation, questions: int) -> Conversation:
    """Only the first questions, and no stage behind the last of them."""
    stages: list[Stage] = []
    for stage in conversation.stages:
        stages.append(replace(stage, cases=stage.cases[:questions]))
        questions -= len(stages[-1].cases)
        if not questions:
            break
    return replace(conversation, stages=tuple(stages))
