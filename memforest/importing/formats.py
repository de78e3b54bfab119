"""The formats that can be imported: which reader a file wants, and the last check of what a reader yields."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from memforest.importing.chatgpt import is_conversations, read_chatgpt
from memforest.importing.entries import NO_USER, Chosen, Entry, Found, Reader, Skipped
from memforest.importing.items import BadExport, Item, read_items
from memforest.importing.longmemeval import read_longmemeval
from memforest.importing.m3 import read_m3, read_m3_pickle
from memforest.importing.mem0 import is_history, read_history, read_mem0
from memforest.importing.openai import read_openai
from memforest.importing.pickled import is_pickle
from memforest.locomo import locomo_records
from memforest.native import IMPORTABLE, Record, fault_of
from memforest.publishing import BATCH_BYTES_MAX
from memforest.wire import JsonObject, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_native_items(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """Messages as the daemon takes them (design 4.1), one a line."""
    for item in items:
        if item.fault is not None or not isinstance(item.value, dict):
            yield Skipped(item.place, item.fault or "not a JSON object")
            continue
        body = dict(cast("JsonObject", item.value))
        body.update({"user_id": chosen.user} if chosen.user else {})
        body.update({"session_id": chosen.session} if chosen.session else {})
        turns = body["turns"] if isinstance(body.get("turns"), list) else [body]
        timed = all(not isinstance(turn, dict) or "timestamp" in turn for turn in cast("list[object]", turns))
        yield Found(item.place, body, "itself" if timed else "nowhere")


def read_locomo_items(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """LoCoMo conversations; each is a user, unless one is chosen. Raises BadLocomo."""
    for item in items:
        if item.fault is not None:
            yield Skipped(item.place, item.fault)
            continue
        for record in locomo_records(item.value):
            body = record.body | ({"user_id": chosen.user} if chosen.user else {})
            yield Found(item.place, body, "session")


READERS: dict[str, Reader] = {
    "native": read_native_items,
    "openai": read_openai,
    "longmemeval": read_longmemeval,
    "chatgpt": read_chatgpt,
    "mem0": read_mem0,
    "m3": read_m3,
    "locomo": read_locomo_items,
}
# What tells a format by the fields of its first value, the surest ones first.
_MARKS: tuple[tuple[str, str], ...] = (
    ("haystack_sessions", "longmemeval"),
    ("mapping", "chatgpt"),
    ("sample_id", "locomo"),
    ("text_nodes_by_clip", "m3"),
    ("nodes", "m3"),
    ("embeddings", "m3"),
    ("results", "mem0"),
    ("memories", "mem0"),
    ("memory", "mem0"),
    ("points", "mem0"),
    ("payload", "mem0"),
    ("result", "mem0"),
    ("messages", "openai"),
    ("role", "openai"),
)


def recognise(path: Path) -> str:
    """The format of a file by its first readable value; raises BadExport when none fits, OSError."""
    if is_pickle(path):
        return "m3"
    if is_history(path):
        return "mem0"
    for item in read_items(path, is_conversations):
        if isinstance(item.value, dict):
            value = cast("JsonObject", item.value)
            if value.get("type") in IMPORTABLE:
                return "native"
            for name, form in _MARKS:
                if name in value:
                    return form
            break
    raise BadExport(
        f"This file is of no format that is known here ({', '.join(READERS)}); name one with --format."
    )


def read_export(path: Path, form: str, chosen: Chosen) -> Iterator[Entry]:
    """What an export holds, in its order; what the daemon could not take is among what is skipped.

    Raises BadExport or another InvalidInput for a file that is not of this format at all, OSError.
    """
    for entry in READERS[form](_open(path, form), chosen):
        reason = _fault_of(entry) if isinstance(entry, Found) else None
        yield entry if reason is None else Skipped(entry.place, reason)


def _open(path: Path, form: str) -> Iterator[Item]:
    """The values of a file; two formats come in files that are no JSON, too."""
    if form == "m3" and is_pickle(path):
        return read_m3_pickle(path)
    if form == "mem0" and is_history(path):
        return read_history(path)
    return read_items(path, is_conversations)


def records_of(path: Path, form: str, chosen: Chosen) -> Iterator[Record]:
    """The native messages of an export alone, numbered from 1."""
    found = (entry for entry in read_export(path, form, chosen) if isinstance(entry, Found))
    return (Record(number, entry.body, entry.place) for number, entry in enumerate(found, start=1))


def _fault_of(entry: Found) -> str | None:
    if not entry.body.get("user_id"):
        return NO_USER
    if reason := fault_of(entry.body, IMPORTABLE):
        return reason
    size = len(encode_json(entry.body))
    return f"longer than the {BATCH_BYTES_MAX} bytes of a message" if size > BATCH_BYTES_MAX else None
