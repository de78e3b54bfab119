"""What a reader of an export yields: native messages, and what it had to leave out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memforest.importing.items import Item
    from memforest.wire import JsonObject

# Where the time of a turn is from: itself, the session or conversation it stands in, or nowhere. Then the bus's
# own time of the message counts, and the daemon flags it.
Dated: TypeAlias = Literal["itself", "session", "nowhere"]

# How M3-Agent cuts a video (its README, "Cut Video").
CLIP_S = 30.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the caller says of all that is imported; None leaves it to the file."""

    user: str | None = None
    session: str | None = None
    # Takes the place of an id that the file does not give; the file's name without its ending.
    stem: str = "import"
    # The model that made the file's embeddings; `embeddings`: whether they are taken at all.
    embedding_model: str | None = None
    embeddings: bool = True
    # Of a film: when it begins, in ISO 8601, and how long a clip of it is.
    begins: str | None = None
    clip_s: float = CLIP_S


@dataclass(frozen=True, slots=True)
class Found:
    """One native message, and where its time is from. `bare`: it came with an embedding that is none."""

    place: str
    body: JsonObject
    dated: Dated = "itself"
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """What was left out: `place` is a line or an item, counted from 1; `reason` quotes nothing of it."""

    place: str
    reason: str


Entry: TypeAlias = Found | Skipped
Reader: TypeAlias = "Callable[[Iterator[Item], Chosen], Iterator[Entry]]"

NO_USER = "names no user; say with --user whose memory it is for"


def text_at(source: JsonObject, *names: str) -> str | None:
    """The first of these fields that is a text and not empty."""
    for name in names:
        value: object = source.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def object_at(source: JsonObject, name: str) -> JsonObject:
    """A field that is an object; an empty one when it is none."""
    value: object = source.get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def objects_at(source: JsonObject, name: str) -> list[JsonObject] | None:
    """A field that is a list of objects; None when it is none. What is no object in it is an empty one."""
    value: object = source.get(name)
    if not isinstance(value, list):
        return None
    return [cast("JsonObject", each) if isinstance(each, dict) else {} for each in cast("list[object]", value)]


def add_embedding(body: JsonObject, value: object, chosen: Chosen) -> bool:
    """Put the embedding of a memory into its message, if it is wanted; False for what is no embedding."""
    if value is None or not chosen.embeddings:
        return True
    numbers = cast("list[object]", value) if isinstance(value, list) else []
    if not any(numbers) or not all(map(_is_finite, numbers)):
        return False
    body["embedding"] = numbers
    if chosen.embedding_model is not None:
        body["embedding_model"] = chosen.embedding_model
    return True


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def stable_id(*parts: object) -> str:
    """An id that is the same whenever the same stands at the same place, for what has none of its own."""
    # Half a surrogate pair is refused later, with its place.
    encoded = [str(each).encode("utf-8", "surrogatepass") for each in parts]
    framed = b"".join([len(part).to_bytes(8, "big") + part for part in encoded])
    return blake2b(framed, digest_size=12).hexdigest()


def closing(place: str, user_id: str, session_id: str, close_id: str) -> Found:
    """The end of a session, with an id of its own so that closing again is recognised."""
    return Found(
        place, {"type": "session.close", "id": close_id, "user_id": user_id, "session_id": session_id}, "itself"
    )
