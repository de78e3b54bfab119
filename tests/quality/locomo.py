"""LoCoMo conversations as the quality harness reads them (Maharana et al. 2024), with their evidence ids mended.

The file is not free for commercial use and is no part of the project: it is read from the folder that LOCOMO_DIR
names.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from events.time import Instant, from_datetime
from projections.recall.tokens import terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FILE_NAME = "locomo-first5.json"
# Turns carry no time of their own; this is how far apart the measurements set them.
TURN_MS = 30_000
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")


class Category(IntEnum):
    """What a question asks for, as the data set numbers it; adversarial ones (5) have no answer."""

    MULTI_HOP = 1
    TEMPORAL = 2
    OPEN_DOMAIN = 3
    SINGLE_HOP = 4
    ADVERSARIAL = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn; `caption` describes a picture that came with it."""

    turn_id: str
    speaker: str
    text: str
    said_at: Instant
    caption: str | None


@dataclass(frozen=True, slots=True)
class Session:
    """One meeting of the two speakers."""

    session_id: str
    started_at: Instant
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns that answer it, or, of an adversarial one, that it was made of.

    `words`: of each gold turn, the terms of the answer that it says; what a text must say to be worth the turn.
    """

    text: str
    category: Category
    gold: frozenset[str]
    words: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Two speakers over months, and what is asked about them. Turn ids are unique within it."""

    conversation_id: str
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]


class _WireTurn(msgspec.Struct):
    speaker: str
    dia_id: str
    text: str
    blip_caption: str | None = None


class _WireQuestion(msgspec.Struct):
    question: str
    category: int
    evidence: list[str]
    answer: str | int | None = None


class _WireConversation(msgspec.Struct):
    sample_id: str
    conversation: dict[str, Any]
    qa: list[_WireQuestion]


def locomo_file() -> Path | None:
    """The conversations' file, or None where LOCOMO_DIR is not set or holds none."""
    folder = os.environ.get("LOCOMO_DIR")
    path = Path(folder) / FILE_NAME if folder else None
    return path if path is not None and path.is_file() else None


def load_conversations(path: Path, *, adversarial: bool = False) -> tuple[Conversation, ...]:
    """All conversations of the file, with the questions whose evidence resolves; answerable ones (category 1-4).

    With `adversarial` the others, too.
    """
    wire = msgspec.json.decode(path.read_bytes(), type=list[_WireConversation])
    return tuple(_conversation(each, adversarial=adversarial) for each in wire)


def turn_ids_of(evidence: Iterable[str], known: frozenset[str]) -> frozenset[str]:
    """The turns that evidence ids name, however they are written; what does not resolve is dropped.

    Seen in the data: `D8:6; D9:17` is two, `D30:05` is D30:5, `D:11:26` is D11:26, `D` is nothing.
    """
    pieces = (piece for entry in evidence for piece in re.split(r"[;\s]+", entry))
    matches = filter(None, map(_EVIDENCE.fullmatch, pieces))
    return known & {f"D{int(match[1])}:{int(match[2])}" for match in matches}


def _conversation(wire: _WireConversation, *, adversarial: bool) -> Conversation:
    sessions = tuple(_sessions(wire.conversation))
    said = {turn.turn_id: turn.text for session in sessions for turn in session.turns}
    questions = (
        _question(asked, said) for asked in wire.qa if adversarial or asked.category != Category.ADVERSARIAL
    )
    return Conversation(wire.sample_id, sessions, tuple(one for one in questions if one.gold))


def _question(asked: _WireQuestion, said: Mapping[str, str]) -> Question:
    gold = turn_ids_of(asked.evidence, frozenset(said))
    answer = frozenset(terms(str(asked.answer or "")))
    words = {turn_id: answer & frozenset(terms(said[turn_id])) for turn_id in gold}
    return Question(asked.question, Category(asked.category), gold, words)


def _sessions(wire: dict[str, Any]) -> Iterator[Session]:
    """`session_1`, `session_2`, ... in order; the file also dates sessions that never took place."""
    numbers = sorted(int(key[8:]) for key in wire if re.fullmatch(r"session_\d+", key))
    for number in numbers:
        started_at = _instant(wire[f"session_{number}_date_time"])
        turns = msgspec.convert(wire[f"session_{number}"], list[_WireTurn])
        yield Session(
            f"session_{number}",
            started_at,
            tuple(
                Turn(turn.dia_id, turn.speaker, turn.text, started_at + place * TURN_MS, turn.blip_caption)
                for place, turn in enumerate(turns)
            ),
        )


def _instant(written: str) -> Instant:
    """`1:56 pm on 8 May, 2023`, taken as UTC."""
    return from_datetime(datetime.strptime(written, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC))
