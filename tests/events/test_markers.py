"""Words stand in the tables words and names alone, whatever the event and the field (design 3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest

from events.codec import EVENT_TYPES, Event
from events.envelope import NewEvent
from events.erasure import erase_slice, truncate_wal
from events.log import EventLog
from events.memory import ParkReason, Task, Word, WorkParked, WorkResumed
from events.reading import read_events
from tests.builders import KEYS, MONDAY, a_batch, a_forgetting, a_place, an_id
from tests.stored import stored_bytes, stored_tables

MARK = "Mk7"
PARKED_BEFORE = "parked before"


class Filler:
    """Makes a value of any type that an event may hold, with a marker of its own in every word."""

    def __init__(self, prefix: str) -> None:
        self.markers: list[str] = []
        self._prefix = prefix
        self._numbers = count(1000)

    def mark(self, what: str) -> str:
        self.markers.append(f"{MARK}-{self._prefix}-{what}-{len(self.markers)}-end")
        return self.markers[-1]

    def fill(self, hint: Any, name: str = "") -> Any:
        if hint == Word:
            return self.mark(name)
        if hint is bool:
            return True
        if hint is int:
            return next(self._numbers)
        if hint is bytes:
            return an_id(f"{next(self._numbers)}")
        if get_origin(hint) is tuple:
            return tuple(self.fill(get_args(hint)[0], name) for _ in range(2))
        if NoneType in get_args(hint):
            return self.fill(next(each for each in get_args(hint) if each is not NoneType), name)
        if issubclass(hint, StrEnum):
            return list(hint)[-1]
        hints = get_type_hints(hint, include_extras=True)
        names = (
            [field.name for field in dataclasses.fields(hint)] if dataclasses.is_dataclass(hint) else list(hints)
        )
        return hint(*(self.fill(hints[each], each) for each in names))

    def event(self, kind: type[Event]) -> NewEvent:
        """An event of this type, with markers in the strings of its envelope, too."""
        user, session = self.mark("user"), self.mark("session")
        return NewEvent(
            user_id=user,
            session_id=session,
            event=cast("Event", self.fill(kind)),
            key=self.mark("key"),
            happened_at=MONDAY,
            lineage=(KEYS.session(user, session), KEYS.session(user, "another")),
            basis=0,
            caused_by=1,
            bus=a_place(5),
        )


def stored_strings(row: tuple[Any, ...]) -> Iterator[bytes]:
    for value in row:
        if isinstance(value, str | bytes):
            yield value.encode() if isinstance(value, str) else value


async def prepare(log: EventLog, new: NewEvent) -> NewEvent:
    """The event as the log takes it: nothing is resumed but what is parked."""
    if not isinstance(new.event, WorkResumed):
        return new
    parked = WorkParked(Task.MERGE, an_id("merge"), ParkReason.REFUSED)
    outcome = await log.append_event(dataclasses.replace(new, event=parked, key=PARKED_BEFORE, bus=None))
    return dataclasses.replace(new, event=dataclasses.replace(new.event, parked=outcome.seq or 0))


def traces(markers: list[str]) -> list[bytes]:
    """The ways a marker might be written: as it is, or in hex."""
    return [form for marker in markers for form in (marker.encode(), marker.encode().hex().encode())]


@pytest.mark.parametrize("wire_name", EVENT_TYPES)
async def test_every_string_of_an_event_stands_in_words_or_names_and_nowhere_else(
    log: EventLog, log_path: Path, wire_name: str
) -> None:
    filler = Filler(wire_name)
    new = await prepare(log, filler.event(EVENT_TYPES[wire_name]))
    outcome = await log.append_event(new)
    tables = stored_tables(log_path)

    words = [row[3] for row in tables["words"]]
    names = [row[2] for row in tables["names"] if row[2] != PARKED_BEFORE.encode()]
    # The key of a retraction spells the turn that is to leave no trace: its reference alone is kept.
    kept = [marker for marker in filler.markers if wire_name != "turn.retracted" or "-key-" not in marker]
    assert sorted([*words, *names]) == sorted(marker.encode() for marker in kept)
    assert len(names) == (2 if wire_name == "turn.retracted" else 3)
    assert [row[0] for row in tables["words"]] == [outcome.seq] * len(words)
    for table, rows in tables.items():
        held = b"\n".join(text for row in rows for text in stored_strings(row))
        assert table in ("words", "names") or not any(trace in held for trace in traces(filler.markers)), table
        assert table in ("words", "names") or MARK.encode() not in held, table
    assert outcome.seq is not None
    read = await log.read(partial(read_events, seqs=[outcome.seq]))
    assert read[outcome.seq].event == new.event


def test_the_filler_reaches_every_word_of_the_richest_event() -> None:
    """A marker test that fills nothing would find nothing."""
    filler = Filler("x")
    filler.fill(EVENT_TYPES["facts.extracted"])

    labels = {marker.split("-")[2] for marker in filler.markers}
    assert labels == {"model", "text", "label", "alias", "topics", "entity", "attribute"}
    assert len(filler.markers) == 1 + 2 * (1 + 2 + 2 + 2) + 2 * 2


async def test_forgetting_takes_the_marks_of_every_event_type_out_of_the_files(
    log: EventLog, log_path: Path
) -> None:
    filler = Filler("all")
    session = KEYS.session("alice", f"{MARK}-s")
    events = [
        dataclasses.replace(
            filler.event(kind), user_id="alice", session_id=f"{MARK}-s", lineage=(session,), caused_by=None
        )
        for name, kind in EVENT_TYPES.items()
        if not name.endswith((".forgotten", ".erased"))
    ]
    for new in events:
        await log.append(a_batch(dataclasses.replace(new, basis=None)))
    assert stored_bytes(log_path).count(MARK.encode()) >= len(events) * 2
    await log.append_event(a_forgetting(f"{MARK}-s"))
    while not await log.write(partial(erase_slice, subject=session)):
        pass
    assert await log.write(truncate_wal)

    assert MARK.encode() not in stored_bytes(log_path)
