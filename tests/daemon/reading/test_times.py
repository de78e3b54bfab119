"""Times as models give them: made intervals by code, never believed blindly."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import pytest

from daemon.reading.times import resolve, resolve_in
from events.time import Instant, from_datetime, to_datetime

# A Monday.
SAID_AT = from_datetime(datetime(2023, 5, 8, 13, 56, tzinfo=UTC))
DAY_MS = 86_400_000


def at(iso: str) -> Instant:
    return from_datetime(datetime.fromisoformat(iso).replace(tzinfo=UTC))


def days(first: str, last: str | None = None) -> tuple[Instant, Instant]:
    """From the first millisecond of a day to the last of another."""
    return at(first), at(last or first) + DAY_MS - 1


@pytest.mark.parametrize(
    ("when", "first", "last"),
    [
        ("2023-05-07", "2023-05-07", "2023-05-07"),
        (" [2023-05-07] ", "2023-05-07", "2023-05-07"),
        ("2023-05", "2023-05-01", "2023-05-31"),
        ("2023-05-XX", "2023-05-01", "2023-05-31"),
        ("2022", "2022-01-01", "2022-12-31"),
        ("2023-W18", "2023-05-01", "2023-05-07"),
        ("2023-W18-5", "2023-05-05", "2023-05-05"),
        ("2023-05-01/2023-05-07", "2023-05-01", "2023-05-07"),
        ("2023-05-01/07", "2023-05-01", "2023-05-07"),
        ("2023-04/2023-05", "2023-04-01", "2023-05-31"),
        ("2023-05-01 to 2023-05-03", "2023-05-01", "2023-05-03"),
        ("2023-05-01 – 2023-05-03", "2023-05-01", "2023-05-03"),
        ("2023-05-01/..", "2023-05-01", "2023-05-08"),
        ("2023-05-07T00:00:00Z", "2023-05-07", "2023-05-07"),
        ("2023-05-07T00:00:00+02:00", "2023-05-07", "2023-05-07"),
        ("1990s", "1990-01-01", "1999-12-31"),
        ("２０２３-０５-０７", "2023-05-07", "2023-05-07"),
        ("8.5.2023", "2023-05-08", "2023-05-08"),
        ("1:56 pm on 8 May, 2023", "2023-05-08", "2023-05-08"),
        ("Mon, 08 May 2023 13:56:00 +0000", "2023-05-08", "2023-05-08"),
        ("last Friday", "2023-05-05", "2023-05-05"),
        ("yesterday", "2023-05-07", "2023-05-07"),
        ("two weeks ago", "2023-04-24", "2023-04-30"),
        ("in two weeks", "2023-05-22", "2023-05-28"),
        ("next summer", "2023-06-01", "2023-08-31"),
        ("letzten Montag", "2023-05-01", "2023-05-01"),
        ("vor zwei Wochen", "2023-04-24", "2023-04-30"),
        ("la semana pasada", "2023-05-01", "2023-05-07"),
        ("il y a trois jours", "2023-05-05", "2023-05-05"),
        ("昨天", "2023-05-07", "2023-05-07"),
        ("去年", "2022-01-01", "2022-12-31"),
        ("先週の金曜日", "2023-05-05", "2023-05-05"),
    ],
)
def test_dates_months_years_intervals_and_words_become_whole_days(when: str, first: str, last: str) -> None:
    assert resolve(when, SAID_AT) == days(first, last)


@pytest.mark.parametrize(
    ("when", "start", "length_ms"),
    [
        ("2023-05-07T10:00:00Z", "2023-05-07T10:00:00", 1_000),
        ("2023-05-07T10:00:00.5Z", "2023-05-07T10:00:00", 1_000),
        ("2023-05-07 10:00", "2023-05-07T10:00:00", 60_000),
        ("2023-05-07T01:30+02:00", "2023-05-06T23:30:00", 60_000),
        ("2023-05-07T20:00-0500", "2023-05-08T01:00:00", 60_000),
    ],
)
def test_a_moment_is_as_long_as_its_last_unit(when: str, start: str, length_ms: int) -> None:
    assert resolve(when, SAID_AT) == (at(start), at(start) + length_ms - 1)


@pytest.mark.parametrize(
    "when",
    [
        None,
        "",
        "unknown",
        "n/a",
        "null",
        "0",
        "-1",
        "1683554160",
        "1683554160000",
        "1683554160.5",
        "1e12",
        "20230507",
        "1970-01-01",
        "1970-01-01T00:00:00Z",
        "1969-12-31",
        "0001-01-01",
        "9999-12-31",
        "1850",
        "2099-01-01",
        "2023-02-30",
        "2023-13-01",
        "2023-00-10",
        "2023-05-07T25:00:00Z",
        "2023-W60",
        "2023-05-07/2023-05-01",
        "5000 years ago",
        "5/8/2023",
        "x" * 100_000,
        "2023-05-07 " * 1_000,
    ],
)
def test_seconds_of_the_epoch_1970_impossible_and_distant_days_are_not_believed(when: str | None) -> None:
    assert resolve(when, SAID_AT) is None


def test_every_iso_day_is_itself_and_every_pair_in_order_an_interval() -> None:
    seed = 5
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(300):
        first = date(2023, 5, 8) + timedelta(days=chance.randrange(-30_000, 15_000))
        last = first + timedelta(days=chance.randrange(1, 1_000))
        if first == date(1970, 1, 1):
            continue

        assert resolve(first.isoformat(), SAID_AT) == days(first.isoformat())
        assert resolve(f"{first}/{last}", SAID_AT) == days(first.isoformat(), last.isoformat())
        assert resolve(f"{last}/{first}", SAID_AT) is None


def test_whatever_is_given_the_interval_is_in_order_and_in_the_window() -> None:
    seed = 6
    print("seed", seed)
    chance = random.Random(seed)
    pieces = [
        *"0159-/T:.Zz+年月日昨",
        "2023",
        "1970",
        "05",
        "last",
        "next",
        "year",
        "week",
        "May",
        "ago",
        "to",
        "of",
    ]
    for _ in range(2_000):
        found = resolve(chance.choice(("", " ")).join(chance.choices(pieces, k=chance.randrange(1, 8))), SAID_AT)

        assert found is None or found[0] <= found[1]
        assert found is None or 1873 <= to_datetime(found[0]).year <= to_datetime(found[1]).year <= 2073


@pytest.mark.parametrize(
    ("when", "source", "first", "last"),
    [
        # The same day of the year of its training; a day beside; a date that has nothing to do with it.
        ("2021-05-07", "I went to a concert yesterday.", "2023-05-07", "2023-05-07"),
        ("2023-05-06", "I went to a concert yesterday.", "2023-05-07", "2023-05-07"),
        ("2022-12-24", "I went to a concert yesterday.", "2023-05-07", "2023-05-07"),
        ("2021-05-07", "Hello there. I went to a concert yesterday.", "2023-05-07", "2023-05-07"),
        ("2020-05-01/2020-05-07", "La semana pasada visité a mi abuela. Fue genial.", "2023-05-01", "2023-05-07"),
        ("2021-03-03", "我三月三日去了北京。", "2023-03-03", "2023-03-03"),
        # The model agrees with the text, more or less exactly.
        ("2023-05-05", "I had a party last week.", "2023-05-05", "2023-05-05"),
        ("2023-05-08", "I am so tired.", "2023-05-08", "2023-05-08"),
        ("2023-04-24/2023-04-30", "We met two weeks ago.", "2023-04-24", "2023-04-30"),
        # The year stands in the text, or the years between do.
        ("1998-06-01", "I was born in June 1998.", "1998-06-01", "1998-06-01"),
        ("2013", "I am married for ten years.", "2013-01-01", "2013-12-31"),
        # Words that no rule reads, not too far away.
        ("2022-12-25", "We got engaged at Christmas.", "2022-12-25", "2022-12-25"),
        ("2022-12-25", "I saw her yesterday. We got engaged at Christmas.", "2022-12-25", "2022-12-25"),
        ("2023-04-30", "На прошлой неделе я был в Москве.", "2023-04-30", "2023-04-30"),
        # Words stay what they are.
        ("last Friday", "I bought a car.", "2023-05-05", "2023-05-05"),
    ],
)
def test_where_the_text_says_a_day_it_decides(when: str, source: str, first: str, last: str) -> None:
    assert resolve_in(when, SAID_AT, source) == days(first, last)


@pytest.mark.parametrize(
    ("when", "source"),
    [
        ("2019-03-01", "I bought a car."),
        ("1970-01-01", "I bought a car yesterday."),
        ("2020-01-01", "I saw her yesterday. We got engaged at Christmas."),
        ("2035-01-01", "We will marry some day."),
        ("not a date", "I bought a car yesterday."),
    ],
)
def test_a_distant_day_that_nobody_spoke_of_is_not_believed(when: str, source: str) -> None:
    assert resolve_in(when, SAID_AT, source) is None
