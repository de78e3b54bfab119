"""What an endpoint answered to a request for embeddings: read, and refused unless it is exactly what was asked.

Servers shuffle, cut and fill up (engineering.md M7): the order is that of `index`, every vector is finite, has a
direction and the one width, and there are as many as texts. What is refused never reaches an index.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from daemon.models.failures import AnswerRefused

if TYPE_CHECKING:
    from projections.ports import Vectors

# A vector shorter than this has no direction left in float16.
NORM_MIN = 1e-6


class _Item(msgspec.Struct):
    embedding: list[float] | str  # or base64 of little-endian float32, though float was asked for
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]
    usage: Any = None  # not a word of it is needed, so nothing of it is insisted on


def read_vectors(body: bytes, texts: int, dimensions: int = 0) -> tuple[Vectors, int]:
    """The unit vectors in the order of the texts, shape (texts, width), and how many tokens these had.

    `dimensions` 0 takes any one width. Servers that do not count tokens have 0.
    Raises `AnswerRefused`. For many wide vectors this takes tens of milliseconds: not on the loop.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AnswerRefused(_describe(body)) from None
    if len(answer.data) != texts:
        raise AnswerRefused(f"it has {len(answer.data)} vectors for {texts} texts")
    rows = [_read_values(item.embedding) for item in _in_order(answer.data)]
    widths = {row.size for row in rows}
    if len(widths) != 1:
        raise AnswerRefused("its vectors differ in width")
    (width,) = widths
    if width != (dimensions or width) or not width:
        raise AnswerRefused(f"its vectors have {width} dimensions where {dimensions or 'some'} were expected")
    return to_unit_rows(np.stack(rows)), _count_tokens(answer.usage)


def to_unit_rows(rows: np.ndarray[Any, np.dtype[np.float64]]) -> Vectors:
    """Rows of length 1 in float32, shape as given. Raises `AnswerRefused` for one that has no direction."""
    # Scaled first: the squares of large but finite values overflow.
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all():
        raise AnswerRefused("a vector has a value that is no finite number")
    if not (largest > NORM_MIN).all():
        raise AnswerRefused("a vector is zero")
    scaled = rows / largest
    unit: Vectors = (scaled / np.linalg.norm(scaled, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _count_tokens(usage: Any) -> int:
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def _in_order(items: list[_Item]) -> list[_Item]:
    """By index; servers that send none are taken at their order."""
    indexes = [item.index for item in items]
    if all(index is None for index in indexes):
        return items
    if sorted(index for index in indexes if index is not None) != list(range(len(items))):
        raise AnswerRefused("the indexes of its vectors are not those of the texts")
    return sorted(items, key=lambda item: item.index or 0)


def _read_values(values: list[float] | str) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(values, list):
        return np.array(values, dtype=np.float64)
    try:
        raw = base64.b64decode(values, validate=True)
    except binascii.Error:
        raise AnswerRefused("a vector is neither numbers nor base64") from None
    if len(raw) % 4:
        raise AnswerRefused("a vector in base64 is no whole number of float32")
    return np.frombuffer(raw, dtype="<f4").astype(np.float64)


def _describe(body: bytes) -> str:
    """What came instead of vectors, without showing it."""
    start = body[:64].lstrip().lower()
    if not start:
        return "it is empty"
    if start.startswith(b"<"):
        return "it is a web page and no JSON: does models.embed_url end in /v1?"
    if b"NaN" in body or b"Infinity" in body:
        return "a vector has a value that is no finite number"
    if b"null" in body:
        return "a vector or a value of it is missing"
    return "it is not the JSON of an embeddings answer"
