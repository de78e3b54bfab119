"""Summaries and merged texts from what a model answered, checked against what they were made of."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
from typing import Final, cast

from daemon.chat.answers import clean_text
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.prompts import MISSING_CHARS_MAX, as_json, day_of
from daemon.reading import kept
from daemon.reading.numbers import normal
from events.time import to_datetime
from projections.ports import IntervalText, MemberText

# 200 words of long ones; a parent reads as many summaries as it has children.
SUMMARY_CHARS_MAX: Final = 2_400
SUMMARY_SLACK_CHARS: Final = 80
# Words that join what stood apart; more is text of the model's own.
MERGE_GROWTH: Final = 1.3
MERGE_SLACK_CHARS: Final = 200

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# How models decline in words where an interface has a field for it. Memories are in the third person.
_DECLINES = re.compile(
    r"(?:i(?:'m| am) (?:sorry|unable|not able)|i can(?:'t|not| not)\b|as an ai\b|sorry,|unfortunately, i\b"
    r"|es tut mir leid|ich kann (?:das|dabei|ihnen|dir)\b|lo siento|je suis désolé|抱歉|对不起|申し訳)",
    re.IGNORECASE,
)
_FENCED = re.compile(r"\A```[\w-]*\s*\n(.*?)\n?```\Z", re.DOTALL)
# "Here is the summary:", "**Summary**", "# Zusammenfassung", with the text behind it or below.
_PREFACE = re.compile(
    r"\A(?:sure[!,.]?\s+|certainly[!,.]?\s+|of course[!,.]?\s+)?[#*_ ]{0,6}"
    r"(?:(?:here(?:'s| is| are)|below is|hier ist|hier sind|aquí (?:está|tienes)|voici)\b[^\n:]{0,100}"
    r"|(?:(?:final |merged )?(?:summary|text)|zusammenfassung|resumen|résumé)(?: of [^\n:]{1,60})?"
    r"|以下是[^\n:：]{0,20}|摘要|总结|要約)"
    r"(?:[*_ ]*[:：][*_ ]*\s*|[*_ ]*\n\s*)",
    re.IGNORECASE,
)


def read_summary(text: str, interval: IntervalText) -> str:
    """The summary of an interval. Raises `AnswerInvalid`."""
    summary = _read_text(text)
    whole = sum(len(child.text) for child in interval.children)
    # A few words that join short texts harm nobody.
    if len(summary) > whole + SUMMARY_SLACK_CHARS:
        raise AnswerInvalid("it is not shorter than the texts")
    if len(summary) > SUMMARY_CHARS_MAX:
        raise AnswerInvalid("it has over 200 words")
    _refuse_invented(summary, interval.children)
    return summary


def read_merged(text: str, members: Sequence[MemberText]) -> str:
    """The text for a group. Raises `AnswerInvalid`, finally when something is lost: fewer texts lose it, too."""
    merged = _read_text(text)
    if len(merged) > MERGE_GROWTH * sum(len(member.text) for member in members) + MERGE_SLACK_CHARS:
        raise AnswerInvalid("it is longer than the texts together")
    _refuse_invented(merged, members)
    lost = kept.lost([member.text for member in members], merged)
    if lost:
        raise AnswerInvalid(f"it lacks {_quote(lost)}", is_final=True)
    return merged


def _read_text(text: str) -> str:
    """The plain text of an answer, also one that stands alone in JSON or in quotes."""
    text = clean_text(text).strip()
    fenced = _FENCED.match(text)
    text = _PREFACE.sub("", fenced[1] if fenced else text).strip()
    if text.startswith(("{", "[", '"')):
        text = _unwrap(text).strip()
    if not text:
        raise AnswerInvalid("it is empty")
    if text.startswith(("{", "[{", '["')):
        raise AnswerInvalid("it is JSON")
    return text


def _unwrap(text: str) -> str:
    """The only text in a value of JSON: {"summary": "…"}, ["…"], "…"; else the text as it is."""
    try:
        value: object = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict):
        value = list(cast("dict[str, object]", value).values())
    if isinstance(value, list):
        listed = cast("list[object]", value)
        value = listed[0] if len(listed) == 1 else None
    return clean_text(value) if isinstance(value, str) else text


def _refuse_invented(text: str, sources: Sequence[MemberText]) -> None:
    """Numbers that no source has, in its text or as its day, were made up or calculated; an excuse is no text."""
    texts = [each.text for each in sources]
    excuse = _DECLINES.match(text.replace("’", "'"))
    if excuse and not any(excuse[0] in source for source in texts):
        raise AnswerInvalid("it is an excuse")
    invented = kept.invented(texts, text)
    days = [_name_days(each) for each in sources] if invented else []
    if invented:
        invented = kept.invented(texts, text, also=days)
    if invented:  # models resolve "last year" although they must not; rightly is right
        invented = kept.invented(texts, text, also=[*days, *(_name_dates(each) for each in sources)])
    if invented:
        raise AnswerInvalid(f"none of the texts says {_quote(invented)}")


def _name_days(member: MemberText) -> str:
    """The days of a text with the numbers that they may be written with."""
    days = (to_datetime(at) for at in (member.time_start, member.time_end))
    return " ".join([day_of(member), *(_name_day(day) for day in days)])


def _name_dates(member: MemberText) -> str:
    """The dates that the words of a text mean, read from its first day on."""
    from daemon.offline.dates import find_written

    spans = [span for _, _, span in find_written(normal(member.text), member.time_start)]
    return " ".join(_name_day(day) for span in spans for day in (span.first, span.last))


def _name_day(day: date) -> str:
    """With its month by name, too, which tells the rules that 8.5 may be a date."""
    return f"{day.day} {day.month} {day.year} {_MONTHS[day.month - 1]}"


def _quote(details: Sequence[str]) -> str:
    """As data: what somebody said stands short, on one line and in quotes wherever a model reads it."""
    return as_json([detail[:MISSING_CHARS_MAX] for detail in details])
