"""Chinese against English: the same chats in both, message by message (evercore, EverOS, Apache-2.0).

A message is stored up to the clause that ends nearest its middle, and the rest of it asks for what was stored.
The two halves share a subject and few words, in both languages; no question was written by hand.
"""

from __future__ import annotations

import random
import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from events.time import from_datetime
from projections.recall.agpr import NO_EMBEDDER
from tests.quality.locomo import Category, Conversation, Question, Session, Turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.quality.in_process import Remembered

CHATS: Final = ("solo", "team")
LANGUAGES: Final = ("en", "zh")
# A half shorter than this, in either language, says too little to be asked or found.
HALF_CHARACTERS_MIN: Final = {"en": 30, "zh": 10}
_CLAUSE_END = re.compile(r"[。；，！？：、]|[,.;:!?](?=\s)")
_HAN = re.compile("[\u4e00-\u9fff]{2,}")


class _Message(msgspec.Struct):
    message_id: str
    create_time: str
    sender_name: str
    content: str


class _Chat(msgspec.Struct):
    conversation_list: list[_Message]


def load_chats(folder: Path, *, asked_for: bool = True) -> dict[str, tuple[Conversation, ...]] | None:
    """The chats by language, with the same questions in both; a session a day. None where they are not.

    Unless something is `asked_for` they are whole, and nobody asks.
    """
    if not all((folder / f"evercore_{name}_chat_zh.json").is_file() for name in CHATS):
        return None
    chats = {
        language: [_read(folder / f"evercore_{name}_chat_{language}.json") for name in CHATS]
        for language in LANGUAGES
    }
    found: dict[str, tuple[Conversation, ...]] = {}
    asked = [
        _ids_asked([chats[language][n] for language in LANGUAGES]) if asked_for else frozenset[str]()
        for n in range(len(CHATS))
    ]
    for language in LANGUAGES:
        found[language] = tuple(
            _conversation(f"{name}-{language}", chat, ids)
            for name, chat, ids in zip(CHATS, chats[language], asked, strict=True)
        )
    return found


def share_of_pairs_found(remembered: Remembered, *, seed: int, count: int) -> float:
    """Of random pairs of neighbouring Chinese signs, the share whose first memory holds them."""
    chance = random.Random(seed)
    texts = [turn.text for session in remembered.conversation.sessions for turn in session.turns]
    runs = [run for text in texts for run in _HAN.findall(text)]
    hits = 0
    for _ in range(count):
        run = chance.choice(runs)
        start = chance.randrange(len(run) - 1)
        pair = run[start : start + 2]
        best = remembered.first(pair, 1, NO_EMBEDDER, None)
        hits += bool(best) and pair in best[0].text
    return hits / count


def _read(path: Path) -> dict[str, _Message]:
    chat = msgspec.json.decode(path.read_bytes(), type=_Chat)
    return {message.message_id: message for message in chat.conversation_list}


def _ids_asked(chats: list[dict[str, _Message]]) -> frozenset[str]:
    """The messages that can be halved in every language."""
    common = frozenset[str].intersection(*(frozenset(chat) for chat in chats))
    return frozenset(
        each
        for each in common
        if all(
            min(map(len, _halves(chat[each].content))) >= HALF_CHARACTERS_MIN[language]
            for chat, language in zip(chats, LANGUAGES, strict=True)
        )
    )


def _halves(text: str) -> tuple[str, str]:
    """The text up to the clause that ends nearest its middle, and the rest."""
    ends = [match.end() for match in _CLAUSE_END.finditer(text) if match.end() < len(text)]
    if not ends:
        return text, ""
    middle = min(ends, key=lambda end: abs(end - len(text) / 2))
    return text[:middle].strip(), text[middle:].strip()


def _conversation(name: str, chat: dict[str, _Message], asked: frozenset[str]) -> Conversation:
    questions = tuple(
        Question(_halves(message.content)[1], Category.SINGLE_HOP, frozenset((each,)), {each: frozenset()})
        for each, message in chat.items()
        if each in asked
    )
    return Conversation(name, tuple(_sessions(chat, asked)), questions)


def _sessions(chat: dict[str, _Message], asked: frozenset[str]) -> Iterator[Session]:
    by_day: dict[str, list[Turn]] = {}
    for each, message in chat.items():
        text = _halves(message.content)[0] if each in asked else message.content
        at = from_datetime(datetime.fromisoformat(message.create_time))
        by_day.setdefault(message.create_time[:10], []).append(Turn(each, message.sender_name, text, at, None))
    for day, turns in by_day.items():
        yield Session(day, turns[0].said_at, tuple(turns))
