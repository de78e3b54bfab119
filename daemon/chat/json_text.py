"""JSON as models write it: among prose, in fences, with trailing commas, Python's literals, raw line breaks.

What was cut off is reported as cut, and never read as if the rest were all there was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, cast

# The answers asked for have four levels.
DEPTH_MAX: Final = 24
# More than the longest answer that any room leaves; what is longer is not looked at.
CHARS_MAX: Final = 1 << 20
# Openings that are tried: "[1]" and "{name}" in prose, and a line for each fact.
OPENINGS_MAX: Final = 200

_FENCE = re.compile(r"```[\w-]*[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
_BETWEEN_FENCES: Final = "\n```\n"
_CONTAINERS: Final = (dict, list)
_OPENING = re.compile(r"[{\[]")
_SPACE = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*", re.DOTALL)
_PLAIN = re.compile(r'[^"\\]+')
_PLAIN_SINGLE = re.compile(r"[^'\\]+")
_WORD = re.compile(r"-?[A-Za-z_]\w*")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*)?\.?\d+(?:[eE][+-]?\d+)?")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_WORDS: Final[dict[str, object]] = {
    **dict.fromkeys(("true", "True"), True),
    **dict.fromkeys(("false", "False"), False),
    **dict.fromkeys(("null", "None", "undefined", "NaN", "nan", "Infinity", "-Infinity", "-inf", "inf"), None),
}
# The longest number that means something here; int() takes quadratic time.
_DIGITS_MAX: Final = 40


class JsonUnusable(Exception):
    """There is no JSON of use in an answer. The text says why to the model, without a word of the answer."""


class JsonCut(JsonUnusable):
    """The JSON of an answer ends before it is whole."""


def read_json(text: str, is_wanted: Callable[[object], bool] = lambda _: True) -> object:
    """The last of what `read_all_json` finds: drafts come first."""
    return read_all_json(text, is_wanted)[-1][-1]


def read_all_json(text: str, is_wanted: Callable[[object], bool]) -> list[list[object]]:
    """The JSON values of an answer: all of it, or what stands in fences or between prose; at least one.

    `is_wanted` tells values from brackets in prose. Values with nothing between them stand in one list, as of a
    model that writes a line for each. NaN and the like are read as None. Raises `JsonCut` when an end is missing,
    `JsonUnusable` for all else.
    """
    if len(text) > CHARS_MAX:
        raise JsonUnusable("it is far too long")
    text = text.strip().lstrip("\ufeff")
    if not text:
        raise JsonUnusable("it is empty")
    try:
        return [[_read_strictly(text)]]
    except ValueError:
        pass
    fences = [block for block in _FENCE.findall(text) if _OPENING.match(block.strip())]
    # A fence inside a string of the JSON is no fence around it.
    source = _BETWEEN_FENCES.join(fences) if fences and not _OPENING.match(text) else text
    return _search(source, is_wanted)


def _read_strictly(text: str) -> object:
    """What Python reads by itself, in C; of JSON in a string of JSON what it says. Raises `ValueError`, and
    `JsonUnusable` for what nests too deep."""
    try:
        value = _STRICTLY.decode(text)
        if isinstance(value, str):
            value = _STRICTLY.decode(value)
    except RecursionError:
        raise JsonUnusable("it nests too deep") from None
    if not isinstance(value, dict | list):
        raise ValueError
    if _nests_too_deep(cast("object", value)):
        raise JsonUnusable("it nests too deep")
    return cast("object", value)


def _nests_too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        inner = [node.values() if type(node) is dict else node for node in level]
        level = [child for children in inner for child in children if type(child) in _CONTAINERS]
        if not level:
            return False
    return True


def _search(text: str, is_wanted: Callable[[object], bool]) -> list[list[object]]:
    """The wanted values among prose, those with nothing between them together."""
    found: list[list[object]] = []
    cut: JsonCut | None = None
    at = end = 0
    for _ in range(OPENINGS_MAX):
        opening = _OPENING.search(text, at)
        if opening is None:
            break
        reading = _Reading(text, opening.start())
        try:
            value = reading.read_value(0)
        except _Broken:
            # Brackets of prose break at once; within JSON that is broken, its inner parts must not pass for all.
            if reading.has_read:
                raise JsonUnusable("it is not valid JSON") from None
            at = opening.end()
            continue
        except JsonCut as error:
            if reading.has_read:
                raise
            cut = error  # unless it was a bracket of prose
            at = opening.end()
            continue
        at = reading.at
        if is_wanted(value):
            if found and not text[end : opening.start()].strip(" \t\r\n,;"):
                found[-1].append(value)
            else:
                found.append([value])
            end = at
    else:
        # The rest is not looked at, so what was found may not be all.
        raise cut or JsonUnusable("there are too many brackets in it")
    if found:
        return found
    raise cut or JsonUnusable("there is no JSON of that form in it")


class _Broken(Exception):
    """This is no JSON, however tolerantly one reads."""


class _Reading:
    """A tolerant reader of one value, from `at` on. `has_read`: it got far enough to know that JSON was meant."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.has_read = False

    def read_value(self, depth: int) -> object:
        """The value here; `at` is behind it then. Raises `_Broken`, `JsonCut`, `JsonUnusable`."""
        if depth > DEPTH_MAX:
            raise JsonUnusable("it nests too deep")
        match self._peek():
            case "{":
                return self._read_object(depth)
            case "[":
                return self._read_list(depth)
            case '"' | "'":
                return self._read_string()
            case _:
                return self._read_scalar()

    def _peek(self) -> str:
        """The next character that counts. Raises `JsonCut` when there is none."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        if self.at >= len(self.text):
            raise JsonCut("it ends before its JSON is complete")
        return self.text[self.at]

    def _read_object(self, depth: int) -> dict[str, object]:
        read: dict[str, object] = {}
        self.at += 1
        while (following := self._peek()) != "}":
            key = self._read_string() if following in "\"'" else self._read_key()
            if self._peek() != ":":
                raise _Broken
            self.at += 1
            self.has_read = True
            read[key] = self.read_value(depth + 1)
            self._read_comma("}")
        self.at += 1
        return read

    def _read_list(self, depth: int) -> list[object]:
        read: list[object] = []
        self.at += 1
        while self._peek() != "]":
            read.append(self.read_value(depth + 1))
            self._read_comma("]")
        self.at += 1
        return read

    def _read_comma(self, closing: str) -> None:
        """A comma, or the end of the list, before which one may be missing or too many."""
        match self._peek():
            case ",":
                self.at += 1
            case following if following != closing:
                raise _Broken
            case _:
                pass

    def _read_key(self) -> str:
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise _Broken
        self.at = word.end()
        return word[0]

    def _read_string(self) -> str:
        quote = self.text[self.at]
        plain = _PLAIN if quote == '"' else _PLAIN_SINGLE
        self.at += 1
        pieces: list[str] = []
        while True:
            if run := plain.match(self.text, self.at):
                pieces.append(run[0])
                self.at = run.end()
            if self.at >= len(self.text):
                raise JsonCut("it ends within a string")
            self.at += 1
            if self.text[self.at - 1] == quote:
                return "".join(pieces)
            pieces.append(self._read_escape())

    def _read_escape(self) -> str:
        """What stands behind a backslash; one before any other character is dropped."""
        letter = self.text[self.at : self.at + 1]
        if not letter:
            raise JsonCut("it ends within a string")
        self.at += 1
        if letter != "u":
            return _ESCAPES.get(letter, letter)
        unit = self._read_unit()
        if 0xD800 <= unit < 0xDC00 and self.text[self.at : self.at + 2] == "\\u":
            self.at += 2
            low = self._read_unit()
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
            return "\ufffd" + chr(low)
        return chr(unit)

    def _read_unit(self) -> int:
        digits = self.text[self.at : self.at + 4]
        if len(digits) < 4:
            raise JsonCut("it ends within a string")
        self.at += 4
        try:
            return int(digits, 16)
        except ValueError:
            raise _Broken from None

    def _read_scalar(self) -> object:
        if word := _WORD.match(self.text, self.at):
            self.at = word.end()
            if self.at == len(self.text):
                raise JsonCut("it ends before its JSON is complete")
            if word[0] not in _WORDS:
                raise _Broken
            return _WORDS[word[0]]
        number = _NUMBER.match(self.text, self.at)
        if number is None:
            raise _Broken
        self.at = number.end()
        digits = number[0].replace("_", "")
        return _read_int(digits) if digits.lstrip("+-").isdigit() else float(digits)


def _read_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS_MAX else float("inf")


_STRICTLY: Final = json.JSONDecoder(strict=False, parse_constant=lambda _: None, parse_int=_read_int)
