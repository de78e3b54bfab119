"""Our own answers, as they come back in published turns: they must not be remembered again.

Chat services put a `context` into a prompt and publish prompts, tool results and answers; a memory that is
extracted from its own answers fills with copies of itself. Recognised are blocks in the frames that memory systems
use (`<memories>…</memories>`, "User memories:" above a list), and lines that were given out lately.

How it is wired: the answerer calls `GivenOut.note(user, answer.context)`, and whoever reads a chunk calls
`strip_chunk(chunk, partial(given_out.knows, user))` before a model sees it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from events.envelope import Reference
    from events.time import Instant
    from projections.ports import ChunkText, TurnText

# Whoever else speaks is a person, and says again what was said before.
MACHINE_ROLES: Final = frozenset({"assistant", "system", "tool", "developer", "function", "ai", "model", "bot"})
# A shorter line says too little to be anybody's memory: "Alice: yes". A sign of the East counts as four letters.
LINE_CHARS_MIN: Final = 16
# Bounds of what was given out lately, some 100 bytes a line: 6 MB at most.
USERS_MAX: Final = 256
LINES_MAX: Final = 256
# A publisher's clock may be so much behind ours.
CLOCKS_APART_MS: Final = 60_000
# What is longer is no line of ours; its head would be hashed for nothing.
LINE_CHARS_MAX: Final = 4_000


def make_ready() -> None:
    """Compile the patterns. It takes some 20 ms and is best done off the loop, before the first chunk."""
    _tags()
    _headers()
    _foreign_headers()


def strip(text: str, is_known: Callable[[str], bool]) -> str:
    """The text without framed blocks, and without the lines of which `is_known` says so in normal form.

    For turns of `MACHINE_ROLES`. A text in which nothing is recognised comes back as it was.
    """
    rest = _without_lists(_without_tags(text), _headers())
    lines = rest.split("\n")
    kept = [line for line in lines if not _is_own(line, is_known)]
    if len(kept) < len(lines):
        rest = "\n".join(kept)
    return rest if rest == text else rest.strip()


def strip_blocks(text: str) -> str:
    """The text of a user, without framed blocks only: people say again what they said, and that counts."""
    rest = _without_lists(_without_tags(text), _foreign_headers())
    return rest if rest == text else rest.strip()


def strip_chunk(chunk: ChunkText, is_known: Callable[[str, Instant], bool]) -> ChunkText:
    """The chunk, each turn stripped as its role has it. An emptied turn stays: facts name turns by position.

    `is_known` is given a line in normal form and when its turn was said.
    """
    previous = None if chunk.previous is None else _strip_turn(chunk.previous, is_known)
    return replace(chunk, turns=tuple(_strip_turn(turn, is_known) for turn in chunk.turns), previous=previous)


def normal_line(line: str) -> str:
    """A line without quote mark, bullet and date in front, case-folded, single-spaced: as `is_known` is asked."""
    return _normal(_fold(line))


class GivenOut:
    """Lines that answers gave out lately, as keyed hashes and no words, the latest of each of the latest users."""

    def __init__(
        self, key: bytes, clock: Callable[[], Instant], users_max: int = USERS_MAX, lines_max: int = LINES_MAX
    ) -> None:
        """`key`: the store's secret, or anything that nobody knows."""
        self._salt = key.hex()
        self._clock = clock
        self._users_max = users_max
        self._lines_max = lines_max
        # Of each line when it was given out first; the line that was given out last stands last.
        self._users: OrderedDict[Reference, dict[int, Instant]] = OrderedDict()

    def note(self, user: Reference, context: str) -> None:
        """Remember the lines of a context that is given out for a user; 20 lines cost some 30 us."""
        now = self._clock()
        known = self._users.setdefault(user, {})
        self._users.move_to_end(user)
        for line in _fold(context).split("\n", self._lines_max)[: self._lines_max]:
            plain = _normal(line)
            if is_telling(plain):
                hashed = self._hash(plain)
                known[hashed] = known.pop(hashed, now)
        for hashed in list(known)[: max(0, len(known) - self._lines_max)]:
            del known[hashed]
        if len(self._users) > self._users_max:
            self._users.popitem(last=False)

    def knows(self, user: Reference, line: str, said_at: Instant) -> bool:
        """Whether a line that was said then had been given out for this user, whatever stands in front of it.

        What was said before is no echo: its chunk may be extracted again, after its facts were given out.
        """
        given_at = self._users.get(user, _NO_LINES).get(self._hash(normal_line(line)))
        return given_at is not None and said_at >= given_at - CLOCKS_APART_MS

    def _hash(self, plain: str) -> int:
        """64 bits that stand for a line in normal form, in this process; never kept on disk.

        Python's own hash of a string: SipHash under a secret of the process (PEP 456), a tenth of the time of
        BLAKE2 for a line.
        """
        return hash(self._salt + plain)


def _strip_turn(turn: TurnText, is_known: Callable[[str, Instant], bool]) -> TurnText:
    if turn.role in MACHINE_ROLES:
        text = strip(turn.text, lambda line: is_known(line, turn.said_at))
    else:
        text = strip_blocks(turn.text)
    return turn if text is turn.text else replace(turn, text=text)


def is_telling(plain: str) -> bool:
    """Whether a line in normal form is long enough to be recognised, and not too long to be one of ours."""
    if len(plain) > LINE_CHARS_MAX:
        return False
    return len(plain) >= LINE_CHARS_MIN or len(plain) + 3 * len(_EAST.findall(plain)) >= LINE_CHARS_MIN


def _is_own(line: str, is_known: Callable[[str], bool]) -> bool:
    plain = normal_line(line[: 2 * LINE_CHARS_MAX])
    return is_telling(plain) and is_known(plain)


def _normal(folded: str) -> str:
    """The normal form of a folded line; of a normal form the same again."""
    plain = folded.strip()
    for _ in range(_PREFIXES_MAX):
        first = plain[:1]
        if first == "[" and plain[1:2].isdecimal():
            end = plain.find("]", 2, _DATE_CHARS_MAX)
            rest = plain[end + 1 :].lstrip() if end > 0 else plain
        elif first in _BULLETS:
            rest = _BULLET.sub("", plain, 1)
        else:
            break
        if rest == plain:
            break
        plain = rest
    # Looked for because splitting each line would cost as much as all the rest.
    return " ".join(plain.split()) if "  " in plain or "\t" in plain else plain


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _without_tags(text: str) -> str:
    """The text without `<memories>…</memories>` and its like; a tag that is not closed frames nothing."""
    if "<" not in text or "</" not in text:
        return text
    kept: list[str] = []
    at = 0  # what stands before is dealt with
    openings: dict[str, int] = {}  # where the outermost block of a name begins
    depth: dict[str, int] = {}
    for tag in _tags().finditer(text):
        if tag.start() < at:
            continue
        name = tag["name"].casefold()
        if not tag["closing"]:
            openings.setdefault(name, tag.start())
            depth[name] = depth.get(name, 0) + 1
        elif name in openings:
            depth[name] -= 1
            if not depth[name]:
                kept.append(text[at : openings[name]])
                at = tag.end()
                openings.clear()
                depth.clear()
    return "".join([*kept, text[at:]]) if at else text


def _without_lists(text: str, header: re.Pattern[str]) -> str:
    """The text without headers of memories and the list right below each; a header without a list stays."""
    if not header.search(text):
        return text
    kept: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        end = at + 1
        if header.fullmatch(lines[at]):
            while end < len(lines) and (_ITEM.match(lines[end]) or _is_gap(lines, end)):
                end += 1
        if end == at + 1:
            kept.append(lines[at])
        at = end
    return "\n".join(kept)


def _is_gap(lines: list[str], at: int) -> bool:
    """Whether an empty line stands between a header or item and an item."""
    return not lines[at].strip() and at + 1 < len(lines) and _ITEM.match(lines[at + 1]) is not None


@cache
def _tags() -> re.Pattern[str]:
    """The frames of memory systems: ours by recommendation, and what others put into prompts (field.md 5)."""
    which = "relevant|recalled|retrieved|recogni[sz]ed|related|user|global|long[-_]term|injected|past|core"
    system = "memforest|mem0|zep|letta|hindsight|supermemory|cognee|graphiti|openviking|memos(?=[-_])"
    named = (
        r"(?:[a-z0-9]{1,20}[-_])?(?:memories|memory[-_](?:context|blocks?|recall|archive|bank))"
        rf"|(?:{which})[-_]memory|(?:{system})(?:[-_][a-z_-]{{1,30}})?"
        r"|(?-i:FACTS|ENTITIES|EPISODES|USER_SUMMARY)"  # Zep's; in small letters they may be anybody's
    )
    return re.compile(rf"<(?P<closing>/?)(?P<name>{named})(?:\s[^<>]{{0,200}})?>", re.IGNORECASE)


@cache
def _headers() -> re.Pattern[str]:
    """Lines above a list of memories in prompts."""
    return re.compile(
        rf"{_HEAD}(?:{_FOREIGN}|(?:the )?(?:user(?:'s)? )?memories|记忆|用户记忆){_TAIL}", re.I | re.M
    )


@cache
def _foreign_headers() -> re.Pattern[str]:
    """Those of them that no person writes above a list of one's own."""
    return re.compile(rf"{_HEAD}(?:{_FOREIGN}){_TAIL}", re.IGNORECASE | re.MULTILINE)


_HEAD = r"^[ \t]{0,8}(?:#{1,6} |\*\*|==+ ?)?(?:here are (?:some |the )?)?"
_FOREIGN = (
    r"(?:relevant|recalled|retrieved|related|stored|injected)(?: long[- ]term| past| user)? memor(?:y|ies)"
    r"|(?:user )?context memories|user memories|long[- ]term memor(?:y|ies)|相关记忆|历史记忆|関連する記憶"
)
_TAIL = r"(?: (?:from|about|of|for) [^\n:：]{1,60})?(?:\*\*)?[ \t]?[:：](?:\*\*)?[ \t]{0,8}$"
_ITEM = re.compile(r"[ \t]{0,8}(?:[-*•+] |\d{1,3}[.)] |\[\d{1,2} [^\W\d_]{3,9} \d{1,4}\] )")
_NO_LINES: Final[Mapping[int, Instant]] = {}
_BULLETS: Final = frozenset("-*•+>0123456789")
_BULLET = re.compile(r"^(?:> ?|[-*•+] +|\d{1,3}[.)] +)")
_PREFIXES_MAX: Final = 8
_DATE_CHARS_MAX: Final = 32  # [28 September 2023], and ISO with seconds and zone
_EAST = re.compile("[\u2e80-\U0010ffff]")
