"""LoCoMo conversations (snap-research/LoCoMo, `locomo10.json`) as native messages.

Each session becomes its turns followed by a `session.close`, so that its memory is built before the
next one is read. Questions and annotations of the data set are left alone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from memforest.errors import InvalidInput
from memforest.native import Record, fault_of
from memforest.wire import JsonObject, decode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

# The data set dates sessions, not turns; this spacing keeps a session far shorter than the time
# between two of them.
TURN_SPACING_S = 30
_SESSION = re.compile(r"session_(\d+)")
_DATE_TIME = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])m on (\d{1,2}) ([a-z]+),? (\d{4})", re.IGNORECASE)
# Not strptime: its %B and %p follow the locale of whoever runs this.
_MONTHS: tuple[str, ...] = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


class BadLocomo(InvalidInput):
    """The file is not a LoCoMo conversation or a list of them."""


def read_locomo(path: Path, samples: Collection[str] = ()) -> list[Record]:
    """The native messages of a LoCoMo file, of these `sample_id`s only when any are named.

    Raises BadLocomo, which names the place and nothing of what was said.
    """
    try:
        document = decode_json(path.read_bytes())
    except ValueError:
        raise BadLocomo("The file is not JSON in UTF-8.") from None
    return locomo_records(document, samples)


def locomo_records(document: object, samples: Collection[str] = ()) -> list[Record]:
    """Decoded LoCoMo JSON (one conversation or a list) as native messages, numbered from 1."""
    many = cast("list[object]", document) if isinstance(document, list) else [document]
    conversations = dict(_named(conversation, index) for index, conversation in enumerate(many))
    if missing := sorted(set(samples) - set(conversations)):
        raise BadLocomo(f"No sample {', '.join(missing)} here; there are: {', '.join(conversations)}.")
    records: list[Record] = []
    for sample_id, conversation in conversations.items():
        if not samples or sample_id in samples:
            for body in _messages(sample_id, conversation):
                if reason := fault_of(body):
                    raise BadLocomo(f"{sample_id} {body['session_id']}: {reason}.")
                records.append(Record(len(records) + 1, body))
    return records


def session_start(text: str) -> datetime:
    """A `session_N_date_time` ("1:56 pm on 8 May, 2023"), taken as UTC; raises ValueError."""
    found = _DATE_TIME.fullmatch(text.strip())
    if found is None or found[5].lower() not in _MONTHS:
        raise ValueError("not a LoCoMo date")
    hour = int(found[1]) % 12 + (12 if found[3].lower() == "p" else 0)
    month = _MONTHS.index(found[5].lower()) + 1
    return datetime(int(found[6]), month, int(found[4]), hour, int(found[2]), tzinfo=UTC)


def _named(item: object, index: int) -> tuple[str, JsonObject]:
    """The sample_id and the part that holds the sessions."""
    sample = cast("JsonObject", item) if isinstance(item, dict) else {}
    sample_id: object = sample.get("sample_id")
    conversation: object = sample.get("conversation")
    if not isinstance(sample_id, str) or not isinstance(conversation, dict):
        lacking = f"Item {index} has no `sample_id` or no `conversation`"
        raise BadLocomo(f"{lacking}; `memforest import` takes other formats.")
    return sample_id, cast("JsonObject", conversation)


def _messages(sample_id: str, conversation: JsonObject) -> Iterator[JsonObject]:
    # By number: as text, session_10 stands before session_2. Dates without a session are passed over.
    numbers = sorted(int(found[1]) for key in conversation if (found := _SESSION.fullmatch(key)))
    for number in numbers:
        session_id = f"session_{number}"
        turns: object = conversation[session_id]
        if not isinstance(turns, list):
            raise BadLocomo(f"{sample_id} {session_id}: not a list of turns.")
        try:
            start = session_start(str(conversation.get(f"{session_id}_date_time", "")))
        except ValueError:
            raise BadLocomo(f"{sample_id} {session_id}: no readable `{session_id}_date_time`.") from None
        address = {"user_id": sample_id, "session_id": session_id}
        for index, turn in enumerate(cast("list[object]", turns)):
            at = start + timedelta(seconds=TURN_SPACING_S * index)
            yield {"type": "turn", **address, **_turn(turn, f"{sample_id} {session_id} turn {index}", at)}
        if turns:
            # An id of its own, so that closing again is recognised like a turn sent again.
            yield {"type": "session.close", "id": f"{session_id}:close", **address}


def _turn(item: object, place: str, at: datetime) -> JsonObject:
    turn = cast("JsonObject", item) if isinstance(item, dict) else {}
    dia_id, speaker, text = (turn.get(name) for name in ("dia_id", "speaker", "text"))
    if not (isinstance(dia_id, str) and isinstance(speaker, str) and isinstance(text, str)):
        raise BadLocomo(f"{place}: `dia_id`, `speaker` or `text` is missing.")
    caption: object = turn.get("blip_caption")
    shared = f"[shared: {caption}]" if isinstance(caption, str) and caption else ""
    return {
        "id": dia_id,
        # Two people talk to each other; neither is an assistant.
        "role": "user",
        "name": speaker,
        "content": f"{text} {shared}".strip(),
        "timestamp": at.isoformat().replace("+00:00", "Z"),
    }
