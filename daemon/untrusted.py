"""What comes from outside, over the bus and the socket alike: its form, its bounds, and why it is refused."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from events.errors import InvalidInput

# Entries that a page of a listing holds at most.
LIMIT_MAX = 1_000
REASON_CHARS_MAX = 120  # A reason holds a field's name; one that is longer is not a misspelt one of ours.

_PLACE = re.compile(r" - at `(\$[\w.\[\]]*)`$")
_UNKNOWN_FIELD = "Object contains unknown "
_SAFE_REASONS = ("Expected ", "Object missing ", _UNKNOWN_FIELD, "Integer value ", "Number out ")


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of a method's parameters: a name that is not declared is an error, not a default."""


def check_limit(limit: int) -> None:
    """Refuse a page of no entries, or of more than an answer is meant to hold; raises `InvalidInput`."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput(f"limit is from 1 to {LIMIT_MAX}")


def nests_too_deep(line: bytes, value: object, levels: int) -> bool:
    """Whether the value that was read from a line has lists and objects in more than so many levels."""
    # Counting brackets is done in C and settles every ordinary line; only then is the value walked.
    if line.count(b"[") + line.count(b"{") <= levels:
        return False
    level: list[Any] = [value]
    for _ in range(levels):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def reason_without_values(error: msgspec.ValidationError, *, names: bool = True) -> str:
    """What msgspec found and where, with no value in it: it quotes enumeration values that it refuses.

    `names` lets the name of an unknown field in, for whoever sent it; it comes from outside, too.
    """
    text = str(error)
    if not names and text.startswith(_UNKNOWN_FIELD):
        return "Object contains an unknown field"
    found = _PLACE.search(text)
    place = f" at `{found[1]}`" if found else ""
    reason = text[: found.start()] if found else text
    if not reason.startswith(_SAFE_REASONS):
        reason = "This value is none of those that are allowed"
    return (reason if len(reason) <= REASON_CHARS_MAX else reason[:REASON_CHARS_MAX] + "…") + place
