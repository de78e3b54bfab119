"""Why input was refused, in words that quote none of it. For the bus and the socket alike."""

from __future__ import annotations

import re

import msgspec

REASON_CHARS_MAX = 120  # A reason holds a field's name; one that is longer is not a misspelt one of ours.

_PLACE = re.compile(r" - at `(\$[\w.\[\]]*)`$")
_UNKNOWN_FIELD = "Object contains unknown "
_SAFE_REASONS = ("Expected ", "Object missing ", _UNKNOWN_FIELD, "Integer value ", "Number out ")


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
