"""Events to a body and its words, and back. The body is JSON without a single word of anybody's.

How a field is written follows from its type: `Word` becomes a number that counts the event's words,
bytes become hex, enumerations their value, tuples lists, and dataclasses objects. Nothing is written
per event type but the types themselves, so a new field cannot be put on the wrong side by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from events.decisions import FactsRouted, FactsSuperseded, GenerationPromoted, PairsJudged, ScenesMerged
from events.errors import LogDamaged
from events.eventtree import (
    CompactionUndone,
    NodesMerged,
    PolicyChanged,
    UnitsPartitioned,
    upcast_nodes_merged,
    upcast_nodes_merged_2,
    upcast_units_partitioned,
)
from events.memory import (
    FactCorrected,
    FactPinned,
    FactRetracted,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    Word,
    WorkParked,
    WorkResumed,
    upcast_answer,
    upcast_facts_extracted,
    upcast_facts_extracted_2,
    upcast_facts_extracted_3,
    upcast_parked,
    upcast_prompt,
)
from events.session import (
    ChunkClosed,
    MemoryImported,
    ReplayStarted,
    SessionClosed,
    SessionErased,
    SessionForgotten,
    SessionReplayed,
    TurnConflicted,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserErased,
    UserForgotten,
)

Event: TypeAlias = (
    TurnRecorded
    | TurnRevised
    | TurnRetracted
    | TurnConflicted
    | MemoryImported
    | ChunkClosed
    | SessionClosed
    | ReplayStarted
    | SessionReplayed
    | SessionForgotten
    | SessionErased
    | UserForgotten
    | UserErased
    | FactsExtracted
    | FactsAdmitted
    | FactsRouted
    | ScenesMerged
    | FactsSuperseded
    | PairsJudged
    | GenerationPromoted
    | IntervalSummarised
    | UnitsPartitioned
    | NodesMerged
    | CompactionUndone
    | PolicyChanged
    | FactCorrected
    | FactRetracted
    | FactPinned
    | WorkParked
    | WorkResumed
)
EVENT_TYPES: dict[str, type[Event]] = {kind.wire_name: kind for kind in get_args(Event)}

# (wire name, version) -> the body one version later. Applied on read; the log is never rewritten.
UPCASTERS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    (FactsExtracted.wire_name, 1): upcast_facts_extracted,
    (FactsExtracted.wire_name, 2): upcast_facts_extracted_2,
    (FactsExtracted.wire_name, 3): upcast_facts_extracted_3,
    (FactsExtracted.wire_name, 4): upcast_prompt,
    (IntervalSummarised.wire_name, 1): upcast_answer,
    (IntervalSummarised.wire_name, 2): upcast_prompt,
    (UnitsPartitioned.wire_name, 1): upcast_units_partitioned,
    (NodesMerged.wire_name, 1): upcast_nodes_merged,
    (NodesMerged.wire_name, 2): upcast_nodes_merged_2,
    (NodesMerged.wire_name, 3): upcast_prompt,
    (PairsJudged.wire_name, 1): upcast_prompt,
    (WorkParked.wire_name, 1): upcast_parked,
}

_Write: TypeAlias = Callable[[Any, list[str]], Any]
_Read: TypeAlias = Callable[[Any, Sequence[str]], Any]


class _Form(NamedTuple):
    """How values of one type are written and read."""

    write: _Write
    read: _Read


_FORMS: dict[Any, _Form] = {}


def encode_event(event: Event) -> tuple[bytes, tuple[str, ...]]:
    """The body (JSON) and the words of an event."""
    words: list[str] = []
    body = _form(type(event)).write(event, words)
    return msgspec.json.encode(body), tuple(words)


def decode_event(wire_name: str, version: int, body: bytes, words: Sequence[str]) -> Event:
    """The event of a body and its words, upcast to today's version.

    Raises `LogDamaged` for a type or version this release does not know, and for a body of another form.
    """
    kind = EVENT_TYPES.get(wire_name)
    if kind is None or version > kind.version:
        raise LogDamaged(f"the log holds {wire_name} version {version}, which this release does not know")
    try:
        raw = msgspec.json.decode(body)
        while version < kind.version:
            raw = UPCASTERS[wire_name, version](raw)
            version += 1
        event: Event = _form(kind).read(raw, words)
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise LogDamaged(f"the body of a {wire_name} event cannot be read") from error
    return event


def _write_word(value: str, words: list[str]) -> int:
    words.append(value)
    return len(words) - 1


def _number(value: Any, _: object) -> Any:
    """A whole number or truth value as it is; text that got here past the types is stopped.

    There are no fractions in an event: NaN has no JSON, and the last bits of a float are nobody's fact.
    """
    if not isinstance(value, int):
        raise TypeError("a whole number is expected here")
    return value


_NUMBERS = (int, bool)
_NUMBER = _Form(_number, _number)
_WORD = _Form(_write_word, lambda raw, words: words[raw])
_BYTES = _Form(lambda value, _: bytes.hex(value), lambda raw, _: bytes.fromhex(raw))


def _form(hint: Any) -> _Form:
    """The form of a type hint, worked out once."""
    if hint not in _FORMS:
        _FORMS[hint] = _make_form(hint)
    return _FORMS[hint]


def _make_form(hint: Any) -> _Form:
    """The form of a type hint; a hint that could carry text into the body is refused."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is str and not arguments:
        raise TypeError("a bare str in an event would put words into the body; use Word")
    if hint == Word:
        return _WORD
    if hint in _NUMBERS:
        return _NUMBER
    if hint is bytes:
        return _BYTES
    if origin in (Union, UnionType):
        return _optional_form(arguments)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        write, read = _form(arguments[0])
        return _Form(
            lambda value, words: [write(each, words) for each in value],
            lambda raw, words: tuple([read(each, words) for each in raw]),
        )
    if issubclass(hint, StrEnum):
        return _Form(lambda value, _: hint(value).value, lambda raw, _: hint(raw))
    if issubclass(hint, tuple):
        if not all(each in _NUMBERS for each in get_type_hints(hint).values()):
            raise TypeError("a NamedTuple in an event holds numbers only")
        return _Form(lambda value, _: list(value), lambda raw, _: hint(*raw))
    return _record_form(hint)


def _optional_form(arguments: tuple[Any, ...]) -> _Form:
    (inner,) = (each for each in arguments if each is not NoneType)
    write, read = _form(inner)
    return _Form(
        lambda value, words: None if value is None else write(value, words),
        lambda raw, words: None if raw is None else read(raw, words),
    )


def _record_form(kind: type) -> _Form:
    hints = get_type_hints(kind, include_extras=True)
    fields = [(field.name, *_form(hints[field.name])) for field in dataclasses.fields(kind)]
    return _Form(
        lambda value, words: {name: write(getattr(value, name), words) for name, write, _ in fields},
        lambda raw, words: kind(*[read(raw[name], words) for name, _, read in fields]),
    )
