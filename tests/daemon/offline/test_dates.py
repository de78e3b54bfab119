"""What the date rules read, and beside each the nearest thing they must not read."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.offline.dates import find_interval, find_written
from daemon.offline.extraction import extract_facts
from events.time import EARLIEST, LATEST, from_datetime, to_datetime
from projections.ports import ChunkText, TurnText

# A Monday.
SAID_AT = from_datetime(datetime(2023, 7, 17, 14, 31, tzinfo=UTC))


def days_of(text: str, said_at: int = SAID_AT) -> tuple[str, str] | None:
    found = find_interval(text, said_at)
    if found is None:
        return None
    assert found[0] % 86_400_000 == 0
    assert found[1] % 86_400_000 == 86_400_000 - 1
    return to_datetime(found[0]).date().isoformat(), to_datetime(found[1]).date().isoformat()


DAYS = [
    ("We met on 2023-05-08.", "2023-05-08"),
    ("We met at 2023-05-08T10:00.", "2023-05-08"),
    ("We met on 8 May 2023.", "2023-05-08"),
    ("We met on May 8th.", "2023-05-08"),
    ("It was the 8th of May, 2022.", "2022-05-08"),
    ("December 24, 2022 was fun.", "2022-12-24"),
    ("It happened on December 24.", "2022-12-24"),
    ("I will fly on December 24.", "2023-12-24"),
    ("On 15 August I start at a new school.", "2023-08-15"),
    ("I started there on 15 August.", "2022-08-15"),
    ("On 15 August, in Bremen, in the garden of the old gatehouse.", "2023-08-15"),
    ("The photos from 15 June are in the album.", "2023-06-15"),
    ("The best day was 15 August.", "2022-08-15"),
    ("I went there yesterday.", "2023-07-16"),
    ("I went there the day before yesterday.", "2023-07-15"),
    ("Last night was amazing!", "2023-07-16"),
    ("Today I started.", "2023-07-17"),
    ("I'll come over tomorrow.", "2023-07-18"),
    ("I left two days ago.", "2023-07-15"),
    ("Last Friday I won.", "2023-07-14"),
    ("Last Fri I won.", "2023-07-14"),
    ("I won on Friday!", "2023-07-14"),
    ("I'm hiking on Friday.", "2023-07-21"),
    ("Next Friday I'm hiking.", "2023-07-28"),
    ("On the 15th after my trip we met.", "2023-07-15"),
    ("Ich war gestern in Berlin.", "2023-07-16"),
    ("Ich fahre morgen nach Köln.", "2023-07-18"),
    ("Wir trafen uns am 8. Mai 2023.", "2023-05-08"),
    ("Am Freitag war ich da.", "2023-07-14"),
    ("Hier je suis allé au parc.", "2023-07-16"),
    ("Je l'ai vu le 5 mars 2023.", "2023-03-05"),
    ("El viernes pasado comí con Ana.", "2023-07-14"),
    ("Ayer fui a Madrid.", "2023-07-16"),
    ("Nací el 8 de mayo de 1990.", "1990-05-08"),
    ("昨天我去了公园。", "2023-07-16"),
    ("我3月5日出发了。", "2023-03-05"),
    ("上周五我们见面了。", "2023-07-14"),
    ("2023年5月8日,我搬家了。", "2023-05-08"),
    ("三天前我到了。", "2023-07-14"),
    ("昨日、映画を見た。", "2023-07-16"),
    ("先週の金曜日に行った。", "2023-07-14"),
    ("2日前に届いた。", "2023-07-15"),
]
SPANS = [
    ("I joined last week.", "2023-07-10", "2023-07-16"),
    ("I'm free this week.", "2023-07-17", "2023-07-23"),
    ("It is due next week.", "2023-07-24", "2023-07-30"),
    ("Last weekend I joined.", "2023-07-15", "2023-07-16"),
    ("That roadtrip this past weekend was insane!", "2023-07-15", "2023-07-16"),
    ("We went camping two weekends ago.", "2023-07-08", "2023-07-09"),
    ("I'm taking time off this weekend.", "2023-07-22", "2023-07-23"),
    ("I got hurt last month.", "2023-06-01", "2023-06-30"),
    ("I read it last year.", "2022-01-01", "2022-12-31"),
    ("I moved in May.", "2023-05-01", "2023-05-31"),
    ("I moved in December.", "2022-12-01", "2022-12-31"),
    ("I will move in December.", "2023-12-01", "2023-12-31"),
    ("Back in 2019 I lived there.", "2019-01-01", "2019-12-31"),
    ("It was in March 2021.", "2021-03-01", "2021-03-31"),
    ("I started three weeks ago.", "2023-06-26", "2023-07-02"),
    ("I started surfing five years ago.", "2018-01-01", "2018-12-31"),
    ("A few years ago I got it.", "2018-01-01", "2021-12-31"),
    ("I've known them for 4 years.", "2019-01-01", "2023-07-17"),
    ("Seven years now, and I love it.", "2016-01-01", "2023-07-17"),
    ("I've had it since May 2021.", "2021-05-01", "2023-07-17"),
    ("The week before was hard: the week before 9 June 2023.", "2023-05-29", "2023-06-04"),
    ("We met the week before.", "2023-07-10", "2023-07-16"),
    ("Last summer we camped.", "2022-06-01", "2022-08-31"),
    ("In the summer of 2021 we camped.", "2021-06-01", "2021-08-31"),
    ("It ran from 3 May to 5 May 2023.", "2023-05-03", "2023-05-05"),
    ("I'm leaving in two weeks.", "2023-07-31", "2023-08-06"),
    ("Vor zwei Wochen war ich dort.", "2023-07-03", "2023-07-09"),
    ("Letzten Monat war ich dort.", "2023-06-01", "2023-06-30"),
    ("La semaine dernière j'ai couru.", "2023-07-10", "2023-07-16"),
    ("Il y a trois ans j'ai couru.", "2020-01-01", "2020-12-31"),
    ("Hace dos semanas fui a Madrid.", "2023-07-03", "2023-07-09"),
    ("上周我去了上海。", "2023-07-10", "2023-07-16"),
    ("去年我换了工作。", "2022-01-01", "2022-12-31"),
    ("去年夏天我去了上海。", "2022-06-01", "2022-08-31"),
    ("先月引っ越した。", "2023-06-01", "2023-06-30"),
    ("3ヶ月前に始めた。", "2023-04-01", "2023-04-30"),
]
NO_DATE = [
    "I may go and we march on.",
    "On a march we sang.",
    "We went home.",
    "In may ways it was good.",
    "I did 2000 steps.",
    "Version 3.10.2 is out.",
    "It was the second of them.",
    "I live on the 15th floor.",
    "I learned it in two weeks.",
    "I am 30 years old.",
    "The last day was hard.",
    "I got a letter from June.",
    "Every Friday I swim.",
    "I sat in the sun.",
    "The planet Mars is red.",
    "Dinosaurs lived 5000 years ago.",
    "In 3021 there will be robots.",
    "See 10/12/2023 maybe.",
    "It was on 31 February 2023.",
    "Ich bin hier im Haus.",
    "Guten Morgen!",
    "Por la mañana como pan.",
    "上周围的人很多。",
    "目前天气很好。",
    "我一周一次去游泳。",
    "毎日走る。",
    "",
]


@pytest.mark.parametrize(("text", "day"), DAYS)
def test_a_day_is_read(text: str, day: str) -> None:
    assert days_of(text) == (day, day)


@pytest.mark.parametrize(("text", "first", "last"), SPANS)
def test_a_span_is_read(text: str, first: str, last: str) -> None:
    assert days_of(text) == (first, last)


@pytest.mark.parametrize("text", NO_DATE)
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert days_of(text) is None


def test_relative_days_follow_utc_and_not_the_machines_zone() -> None:
    late = from_datetime(datetime(2023, 7, 17, 23, 59, 59, tzinfo=UTC))

    assert days_of("yesterday", late) == ("2023-07-16", "2023-07-16")
    assert days_of("yesterday", late + 1000) == ("2023-07-17", "2023-07-17")


def test_the_ends_of_the_calendar_give_none_and_no_error() -> None:
    texts = ["yesterday", "last week", "last winter", "next year", "in May", "on the 31st.", "二十年前"]

    assert [days_of(text, EARLIEST) for text in texts] == [None] * len(texts)
    assert [days_of(text, LATEST) for text in ("yesterday", "on the 31st.")] == [
        ("9999-12-30", "9999-12-30"),
        None,
    ]


def test_every_date_is_found_where_it_is_written_and_durations_are_none() -> None:
    text = "For 3 years I’ve had it; last Friday and on 8 May 2023 it broke, 2 weeks ago I sold it."
    found = find_written(text, SAID_AT)

    assert [text[start:end] for start, end, _ in found] == ["last Friday", "8 May 2023", "2 weeks ago"]
    assert [span.first for _, _, span in found] == [date(2023, 7, 14), date(2023, 5, 8), date(2023, 7, 3)]
    assert find_written("I have had it for 3 years.", SAID_AT) == []
    assert find_written("It broke 5000 years ago.", SAID_AT) == []


def test_the_29_of_february_is_found_in_the_last_leap_year() -> None:
    assert days_of("We met on February 29.") == ("2020-02-29", "2020-02-29")


_GOLD_DAY = re.compile(
    r"(\d{1,2})(?:st|nd|rd|th)? ?([A-Z][a-z]+),? (\d{4})"
    r"|([A-Z][a-z]+) (\d{1,2})(?:th|rd|nd|st)?, (\d{4})"
)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def _month(name: str) -> int | None:
    return next((i + 1 for i, month in enumerate(_MONTHS) if name[:5] == month[:5] or name == month), None)


def gold_span(answer: str) -> tuple[date, date] | None:
    """The days a written answer allows; None when it names no day, month or year."""
    found = _GOLD_DAY.search(answer)
    day: date | None = None
    if found:
        month = _month(found[2] or found[4])
        day = date(int(found[3] or found[6]), month, int(found[1] or found[5])) if month else None
    small = answer.lower()
    if day and "before" in small:
        # "The week before 9 June": any day of the calendar week before, or of the seven days before.
        weeks = 2 if "two week" in small else 1
        monday = day - timedelta(days=day.weekday() + 7 * weeks)
        weekday = re.search(r"(monday|tuesday|wednesday|thursday|friday|saturday|sunday) before", small)
        if weekday:
            names = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
            back = (day.weekday() - names.index(weekday[1]) - 1) % 7 + 1
            return day - timedelta(days=back), day - timedelta(days=back)
        return min(monday, day - timedelta(days=7 * weeks)), day - timedelta(days=1 if weeks == 1 else 8)
    if day and "after" in small:
        return day + timedelta(days=1), day + timedelta(days=15)
    if day and ("week of" in small or "weekend of" in small):
        monday = day - timedelta(days=day.weekday())
        return monday, monday + timedelta(days=6)
    if day:
        return day, day
    written = re.search(r"([A-Z][a-z]+)[.,]? ?,? (\d{4})", answer)
    if written and (month := _month(written[1])):
        following = date(int(written[2]) + month // 12, month % 12 + 1, 1)
        return date(int(written[2]), month, 1), following - timedelta(days=1)
    year = re.search(r"\b(20\d\d)\b", answer)
    return (date(int(year[1]), 1, 1), date(int(year[1]), 12, 31)) if year else None


def _locomo() -> list[dict[str, Any]]:
    folder = os.environ.get("LOCOMO_DIR")
    if not folder:
        pytest.skip("set LOCOMO_DIR to the folder of locomo-first5.json to run this check")
    conversations: list[dict[str, Any]] = json.loads((Path(folder) / "locomo-first5.json").read_text("utf-8"))
    return conversations


def _evidence(question: dict[str, Any]) -> list[str]:
    return [one for line in question["evidence"] for one in re.split(r"[; ]+", line)]


def _turns(conversation: dict[str, Any]) -> dict[str, TurnText]:
    turns: dict[str, TurnText] = {}
    for key, session in conversation["conversation"].items():
        if re.fullmatch(r"session_\d+", key):
            written = conversation["conversation"][f"{key}_date_time"]
            start = from_datetime(datetime.strptime(written, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC))
            for index, turn in enumerate(session):
                turns[turn["dia_id"]] = TurnText("user", turn["speaker"], start + 30_000 * index, turn["text"])
    return turns


def test_most_temporal_answers_of_locomo_come_from_the_evidence_turn_and_its_session_date() -> None:
    asked, by_words, missed = 0, 0, list[tuple[str, str]]()
    for conversation in _locomo():
        turns = _turns(conversation)
        for question in conversation["qa"]:
            gold = gold_span(str(question.get("answer", ""))) if question["category"] == 2 else None
            evidence = [turns[one] for one in _evidence(question) if one in turns]
            if gold is None or not evidence:
                continue
            asked += 1
            spans = [(turn.said_at, turn.said_at) for turn in evidence]
            spans += [(f.time_start, f.time_end) for t in evidence for f in extract_facts(ChunkText((t,)))]
            # The start decides: an answer "since 2016" holds until today, a week may reach over a month's end.
            said = {turn.said_at for turn in evidence}
            by_words += any(
                start not in said and gold[0] <= to_datetime(start).date() <= gold[1] for start, _ in spans
            )
            if not any(gold[0] <= to_datetime(start).date() <= gold[1] for start, _ in spans):
                missed.append((question["question"], str(question["answer"])))
    share = 1 - len(missed) / asked
    print(f"temporal answers obtained: {asked - len(missed)} of {asked} ({share:.1%}), by their words {by_words}")
    print("missed:", missed)

    assert share >= 0.85
