"""LongMemEval (xiaowu0162/LongMemEval): the haystack of each question as sessions, by default one user a question.

The data set dates sessions, without an offset, and not turns. Questions and answers are left alone.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from memforest.importing.entries import Chosen, Entry, Found, Skipped, closing, text_at
from memforest.locomo import TURN_SPACING_S
from memforest.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.importing.items import Item

# 2023/05/20 (Sat) 02:21
_DATE = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(?: \([A-Za-z]+\))?(?: (\d{1,2}):(\d{2}))?")


def read_longmemeval(items: Iterator[Item], chosen: Chosen) -> Iterator[Entry]:
    """The sessions of each question in the order of the file, each followed by its closing."""
    for item in items:
        value = item.value
        question = cast("JsonObject", value) if isinstance(value, dict) else {}
        sessions, ids, dates = (
            cast("list[object]", part) if isinstance(part, list) else None
            for part in (question.get(f"haystack_{name}") for name in ("sessions", "session_ids", "dates"))
        )
        user = chosen.user or text_at(question, "question_id")
        if sessions is None or ids is None or dates is None or user is None:
            yield Skipped(item.place, item.fault or "no question with `haystack_sessions`, their ids and dates")
            continue
        if not len(sessions) == len(ids) == len(dates):
            yield Skipped(item.place, "sessions, their ids and their dates are not equally many")
            continue
        for number, (session, session_id, date) in enumerate(zip(sessions, ids, dates, strict=True), start=1):
            yield from _session(f"{item.place}, session {number}", session, session_id, date, user, chosen)


def session_time(text: str) -> datetime | None:
    """The time of a session, without an offset as it is written; None when it is none."""
    found = _DATE.fullmatch(text.strip())
    try:
        return None if found is None else datetime(*(int(part or 0) for part in found.groups()))  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError:
        return None


def _session(
    place: str, turns: object, session_id: object, date: object, user: str, chosen: Chosen
) -> Iterator[Entry]:
    start = session_time(date) if isinstance(date, str) else None
    if not isinstance(turns, list) or not isinstance(session_id, str) or not session_id or start is None:
        yield Skipped(place, "not a list of turns with an id and a date")
        return
    session = chosen.session or session_id
    count = 0
    for index, raw in enumerate(cast("list[object]", turns)):
        turn = cast("JsonObject", raw) if isinstance(raw, dict) else {}
        role, content = text_at(turn, "role"), text_at(turn, "content")
        if role is None or content is None:
            yield Skipped(f"{place}, turn {index + 1}", "has no `role` or no `content`")
            continue
        count += 1
        body: JsonObject = {
            "type": "turn",
            "id": f"{session_id}:{index}",
            "user_id": user,
            "session_id": session,
            "role": role,
            "content": content,
            "timestamp": (start + timedelta(seconds=TURN_SPACING_S * index)).isoformat(),
        }
        yield Found(f"{place}, turn {index + 1}", body, "session")
    if count:
        yield closing(place, user, session, f"{session_id}:close")
