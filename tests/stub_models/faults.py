"""Which requests a stub spoils, and how: a specification, read once and changeable while it runs.

A specification is a list with commas: `NAME[=ARGUMENT][@KIND][*SHARE][#COUNT]`. `429=100@extract*0.3` refuses
three tenths of the extractions and asks for 100 s; `hang#2` lets the next two requests of any kind hang.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

# Kinds of requests; a filter may also say "chat" for all but the last.
CHAT_KINDS: Final = (
    *("extract", "judge", "summarise", "merge", "repair", "again", "probe"),
    *("plan", "rank", "check", "answer", "grade"),  # of queries
    "other",
)
EMBED: Final = "embed"

_PIECE = re.compile(r"(\w+)(?:=([^@*#]*))?(?:@(\w+))?(?:\*(\d*\.?\d+))?(?:#(\d+))?")


class Where(Enum):
    """Which requests a fault can befall."""

    ANY = "chat and embeddings"
    CHAT = "chat"
    EMBED = "embeddings"


CATALOGUE: Final[Mapping[str, tuple[Where, str]]] = {
    "429": (Where.ANY, "too many requests; the argument is its retry-after header (1, 100, soon)"),
    "500": (Where.ANY, "a fault of the server"),
    "503": (Where.ANY, "overloaded; the argument is its retry-after header"),
    "quota": (Where.ANY, "429 with the code insufficient_quota: nothing comes back until somebody pays"),
    "401": (Where.ANY, "the key is refused"),
    "404": (Where.ANY, "there is no such model"),
    "context_overflow": (Where.ANY, "400 for what is longer than so many characters (4000)"),
    "html200": (Where.ANY, "status 200 and a page of HTML"),
    "error200": (Where.ANY, "status 200 and an error object in place of an answer"),
    "hang": (Where.ANY, "reads the request and says nothing"),
    "drip": (Where.ANY, "an answer that goes on a byte at a time, for ever"),
    "reset": (Where.ANY, "cuts the connection in the middle of an answer, with an RST"),
    "close": (Where.ANY, "closes the connection without an answer"),
    "slow": (Where.ANY, "the right answer, so many seconds later (1)"),
    "cut_body": (Where.ANY, "the first half of the right body, as if it were all"),
    "endless": (Where.ANY, "an answer without length that goes on as fast as it is read"),
    "huge": (Where.CHAT, "an answer of so many MB (20)"),
    "garbage": (Where.CHAT, "no JSON"),
    "fence": (Where.CHAT, "JSON in a Markdown fence"),
    "prose": (Where.CHAT, "JSON with talk before and after it"),
    "thinking": (Where.CHAT, "a <think> block before the JSON"),
    "truncated": (Where.CHAT, "the first half of the JSON, finish_reason length"),
    "empty_choices": (Where.CHAT, "no choices"),
    "null_content": (Where.CHAT, "a message whose content is null"),
    "empty_content": (Where.CHAT, "a message whose content is empty, as thinking models leave it"),
    "wrong_schema": (Where.CHAT, "JSON with other keys"),
    "wrong_types": (Where.CHAT, "JSON with the right keys and values of other types"),
    "unknown_ids": (Where.CHAT, "facts from turns, or answers from memories, that were not shown"),
    "injection": (Where.CHAT, "an answer that tells its reader what to do"),
    "tool_call": (Where.CHAT, "a call of a tool in place of an answer"),
    "empty_facts": (Where.CHAT, "no facts, whatever was said"),
    "content_filter": (Where.CHAT, "nothing, finish_reason content_filter"),
    "lost_number": (Where.CHAT, "a merged or summarised text without its numbers"),
    "lost_negation": (Where.CHAT, "the same without a word that denies"),
    "invented_name": (Where.CHAT, "the same with somebody whom nobody named"),
    "too_long": (Where.CHAT, "the same three times over"),
    "other_language": (Where.CHAT, "some German in place of the texts"),
    "no_usage": (Where.CHAT, "the right answer without its usage"),
    "wrong_dims": (Where.EMBED, "vectors of half the dimensions"),
    "nan": (Where.EMBED, "a NaN in every vector"),
    "inf": (Where.EMBED, "an infinity in every vector"),
    "null": (Where.EMBED, "a null in every vector"),
    "zero": (Where.EMBED, "vectors of zeros"),
    "shuffled": (Where.EMBED, "the right vectors in another order, with their indexes"),
    "short": (Where.EMBED, "one vector too few"),
    "base64": (Where.EMBED, "base64 although floats were asked for"),
}


class FaultUnknown(ValueError):
    """The specification names a fault or a kind that there is not, or cannot be read."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault with whom it befalls. `kind` None: everything that it can; `count` None: for ever."""

    name: str
    argument: str = ""
    kind: str | None = None
    share: float = 1.0
    count: int | None = None

    def befalls(self, kind: str, characters: int) -> bool:
        """Whether it can befall such a request; chance and count aside."""
        where = CATALOGUE[self.name][0]
        is_embedding = kind == EMBED
        if where is not Where.ANY and is_embedding != (where is Where.EMBED):
            return False
        if self.kind is not None and self.kind != kind and not (self.kind == "chat" and not is_embedding):
            return False
        return self.name != "context_overflow" or characters > int(self.argument or 4000)


def parse_faults(specification: str) -> tuple[Fault, ...]:
    """The faults of a specification. Raises `FaultUnknown`."""
    pieces = [piece.strip() for piece in specification.split(",")]
    return tuple(_parse_fault(piece) for piece in pieces if piece)


def _parse_fault(piece: str) -> Fault:
    match = _PIECE.fullmatch(piece)
    if match is None or match[1] not in CATALOGUE:
        raise FaultUnknown(f"there is no fault {piece!r}; --help names them all")
    name, argument, kind, share, count = match.groups()
    if kind is not None and kind not in (*CHAT_KINDS, EMBED, "chat"):
        raise FaultUnknown(f"there is no kind {kind!r}; there are {', '.join((*CHAT_KINDS, EMBED, 'chat'))}")
    return Fault(name, argument or "", kind, float(share or 1), int(count) if count else None)


class Faults:
    """The faults in force; the first that befalls a request is it."""

    def __init__(self, specification: str = "", seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.fired: Counter[str] = Counter()
        self.set(specification)

    def set(self, specification: str) -> None:
        """Other faults from now on; none for an empty specification. Raises `FaultUnknown`, changing nothing."""
        self._faults = parse_faults(specification)
        self._left = [fault.count for fault in self._faults]
        self.specification = specification

    def choose(self, kind: str, characters: int) -> Fault | None:
        """What befalls this request, if anything; it counts as done."""
        for at, fault in enumerate(self._faults):
            left = self._left[at]
            if left == 0 or not fault.befalls(kind, characters) or self._random.random() >= fault.share:
                continue
            if left is not None:
                self._left[at] = left - 1
            self.fired[fault.name] += 1
            return fault
        return None
