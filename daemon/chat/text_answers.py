"""Summaries and merged texts from what a model answered, checked against what they were made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from typing import Final, cast

from daemon.chat.answers import clean_text
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.prompts import MISSING_CHARS_MAX, as_json, day_of
from daemon.offline.joining import label_of
from daemon.reading import kept
from daemon.reading.numbers import normal, values_in
from events.time import to_datetime
from projections.ports import IntervalText, MemberText

# 200 words of long ones; a parent reads as many summaries as it has children.
SUMMARY_CHARS_MAX: Final = 2_400
SUMMARY_SLACK_CHARS: Final = 80

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
    """The text for a group. Raises `AnswerInvalid`.

    It is no longer than its members one below the other, each behind its day: that says as much without a model.
    """
    merged = _read_text(text)
    if len(merged) >= sum(len(f"{label_of(member)} {member.text}\n") for member in members):
        raise AnswerInvalid("it is longer than the texts together")
    texts = [member.text for member in members]
    if kept.is_translated(texts, merged):
        raise AnswerInvalid("it is in another language than the texts")
    _refuse_invented(merged, members, in_words=True)
    more = kept.invented_names(texts, merged)
    if more:  # as of numbers: the days that the texts are about, and those that their words mean
        days = [*map(_name_days, members), *map(_name_dates, members)]
        more = kept.invented_names(texts, merged, also=days)
    if more:
        raise AnswerInvalid(f"none of the texts says {_quote(more)}")
    lost = kept.left_out(texts, merged) or (*kept.lost(texts, merged), *_lost_ends(merged, members))
    if lost:
        raise AnswerInvalid(f"it lacks {_quote(lost)}")
    return merged


def _lost_ends(text: str, members: Sequence[MemberText]) -> Iterator[str]:
    """The months in which states ended that the text does not name: "2021-06"."""
    ends = [to_datetime(member.until) for member in members if member.until is not None]
    if not ends:
        return
    said = values_in(normal(text).casefold())
    for end in ends:
        if str(end.year) not in said or not said & {str(end.month), f"m{end.month}"}:
            yield f"{end.year}-{end.month:02}"


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


def _refuse_invented(text: str, sources: Sequence[MemberText], *, in_words: bool = False) -> None:
    """Numbers that no source has, in its text or as its day, were made up or calculated; an excuse is no text."""
    texts = [each.text for each in sources]
    excuse = _DECLINES.match(text.replace("’", "'"))
    if excuse and not any(excuse[0] in source for source in texts):
        raise AnswerInvalid("it is an excuse")
    find = partial(kept.invented, texts, text, in_words=in_words)
    invented = find()
    days = [_name_days(each) for each in sources] if invented else []
    if invented:
        invented = find(also=days)
    if invented:  # models resolve "last year" although they must not; rightly is right
        invented = find(also=[*days, *(_name_dates(each) for each in sources)])
    if invented:
        raise AnswerInvalid(f"none of the texts says {_quote(invented)}")


def _name_days(member: MemberText) -> str:
    """The days of a text with the numbers that they may be written with."""
    days = (to_datetime(at) for at in (member.time_start, member.time_end, member.until) if at is not None)
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
