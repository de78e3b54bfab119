"""Members of a group put together by rule: their own texts, one below the other, each behind its day.

Nothing in it is anybody else's, so it loses nothing and invents nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from events.time import Instant, to_datetime
from projections.ports import MemberText

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY: Final = rf"\d{{1,2}} (?:{'|'.join(_MONTHS)}) \d{{1,4}}"
# What stands in front of a line: "[8 May 2023]", or of a state that ended "[8 May 2023 – 3 Jun 2024]".
DATED: Final = re.compile(rf"(\[{_DAY}(?: – {_DAY})?\]) +")

# Lines of one day that are compared each with each: members say a sentence or two, and some bring a whole page.
_COMPARED_MAX: Final = 100


def day_label(at: Instant) -> str:
    """The prefix of a line: "[8 May 2023]", in UTC; measured to help search (quality.md 1)."""
    return f"[{_day(at)}]"


def label_of(member: MemberText) -> str:
    """The prefix of a member's line: its day, or from when until when it held."""
    first = _day(member.time_start)
    if member.until is None or (last := _day(member.until)) == first:
        return f"[{first}]"
    return f"[{first} – {last}]"


def join_members(members: Sequence[MemberText]) -> str:
    """Every member in the order given, a line each with its day; exact repeats and contained texts dropped.

    The same words on another day are another event and stay (algorithms.md 1, canonical facts).
    """
    lines: list[tuple[str, str]] = []
    for member in members:
        for line in member.text.splitlines():
            dated = DATED.match(line)
            text = line[dated.end() :].strip() if dated else line.strip()
            if text:
                lines.append((dated[1] if dated else label_of(member), text))
    by_day: dict[str, list[str]] = {}
    for day, text in lines:
        by_day.setdefault(day, []).append(f" {plain(text)} ")
    told: set[tuple[str, str]] = set()
    kept: list[str] = []
    for day, text in lines:
        said = f" {plain(text)} "
        if (day, said) not in told and not _is_carried(said, by_day[day]):
            told.add((day, said))
            kept.append(f"{day} {text}")
    return "\n".join(kept)


def plain(text: str) -> str:
    """A text as it is compared: without case, and without a point at its end."""
    return " ".join(text.casefold().split()).rstrip(".!。")


def _is_carried(said: str, others: list[str]) -> bool:
    """Whether a longer line of the same day holds this one."""
    return len(others) <= _COMPARED_MAX and any(said in other and said != other for other in others)


def _day(at: Instant) -> str:
    day = to_datetime(at)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"
