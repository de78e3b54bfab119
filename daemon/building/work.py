"""Work for a model: one question each, with what becomes of its answer. The kinds stand beside this file.

Each piece is planned from a Memory, done without it, and appended under the basis it was planned from, so that an
answer about a session forgotten meanwhile is dropped at the gate. It holds no words: they are read to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from daemon.reading.recalled import GivenOut
from events.codec import Event
from events.envelope import NewEvent, Reference, identify
from events.errors import MemForestError
from events.log import EventLog
from events.memory import ParkReason, Task, Usage
from projections.memory import Memory
from projections.ports import AnswerUnusable, LanguageModel
from projections.texts import FactText, TextRef, TurnsText


class WordsGone(MemForestError):
    """The words this work was planned on were erased meanwhile; there is nothing left to do."""

    code = "conflict"


@dataclass(frozen=True, slots=True)
class Origin:
    """For whom a piece of work is done and from which user_seq it was planned."""

    user: Reference
    user_id: str
    basis: int
    generation: int

    def stands(self, memory: Memory) -> bool:
        """Whether the Memory is still the one that was planned on."""
        return memory.user_seq == self.basis and not memory.needs_rebuild


@dataclass(frozen=True, slots=True)
class Means:
    """What work is done with: where the words are, who answers, and what our own answers said lately.

    `on_read` is told that the turns of a chunk are read, and that the model is asked now.
    """

    log: EventLog
    model: LanguageModel
    given_out: GivenOut
    on_read: Callable[[Reference, bytes], None] = lambda _, __: None


class Work(Protocol):
    """One piece: `request` is the same for the same question, `ask` gives the event of its answer."""

    @property
    def task(self) -> Task:
        """What is asked for."""
        ...

    @property
    def request(self) -> bytes:
        """Hash over ids, never over words: one in flight, and what a parking names."""
        ...

    def inputs(self) -> Iterable[bytes]:
        """What the question is made of, in order, by place in the log: with the model it decides the answer."""
        ...

    async def ask(self, means: Means) -> NewEvent:
        """Ask the model. Raises `WordsGone`, and what the port `LanguageModel` says."""
        ...

    def reuse(self, answered: Event) -> NewEvent | None:
        """The event of an answer that was recorded for the same question; None when it is of another kind."""
        ...

    def park(self, reason: ParkReason, usage: Usage) -> NewEvent:
        """The event that puts the work aside."""
        ...


def hash_request(work: Work, model: LanguageModel) -> bytes:
    """What an answer is recorded under: the same hash, the same question to the same model in the same words.

    A seq stands for the words there: nothing in the log ever changes but to be erased.
    """
    asked = (work.task.encode(), model.name.encode(), model.version_of(work.task).encode())
    return identify(b"mf.request", *asked, *work.inputs())


def hash_prompt(work: Work, model: LanguageModel) -> bytes:
    """Which wording of the question an answer is to, 8 bytes; empty for rules, whose name says all."""
    version = model.version_of(work.task)
    return identify(b"mf.prompt", version.encode())[:8] if version else b""


def name_ref(ref: TextRef) -> bytes:
    """A text as an input of a request: where it stands in the log."""
    match ref:
        case TurnsText(turns=turns):
            return b"t" + b"".join(seq.to_bytes(8, "big") for seq in turns)
        case FactText(occurrence=(seq, n)):
            return b"f" + seq.to_bytes(8, "big") + n.to_bytes(4, "big")
        case _:
            return b"w" + ref.seq.to_bytes(8, "big")


def key_of_parking(origin: Origin, request: bytes) -> str:
    """The key of a parking: work that is resumed and fails again from a later state is parked anew."""
    return f"parked/{origin.generation}/{request.hex()}/{origin.basis}"


def check_text(text: str, usage: Usage) -> None:
    """Raise `AnswerUnusable` for a text that says nothing, or that no event can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate; the error would quote the text
        text = ""
    if not text.strip():
        raise AnswerUnusable(ParkReason.ANSWER_INVALID, usage)
