"""False alarms, counted on what people and good models write: each costs a call, or a group its merged text.

`tests/data/readings.json` has merges and summaries that lose and invent nothing, everyday turns with all their
facts, in five languages, and pasted code, logs and tables; all written by hand.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.text_answers import read_merged, read_summary
from daemon.reading import coverage, kept
from daemon.reading.pasted import without_pasted
from events.time import from_datetime
from projections.ports import IntervalText, MemberText

READINGS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "readings.json").read_bytes()
)
SPEAKERS = ["Ann", "Anna", "Ana", "小明", "アン"]
# Of 52 everyday turns one calls somebody whom nobody need remember: "No way, José!"
ALARMS_MAX = 1


def members_of(texts: list[str], days: list[str]) -> tuple[MemberText, ...]:
    starts = [from_datetime(datetime.fromisoformat(day).replace(tzinfo=UTC)) for day in days]
    return tuple(MemberText(text, start, start) for text, start in zip(texts, starts, strict=True))


@pytest.mark.parametrize("good", READINGS["good_merges"], ids=lambda good: good["merged"])
def test_a_good_merge_is_taken_however_it_writes_numbers_days_and_names(good: dict[str, Any]) -> None:
    members = members_of(good["texts"], ["2023-05-08"] * len(good["texts"]))

    assert read_merged(good["merged"], members) == good["merged"]


@pytest.mark.parametrize("good", READINGS["good_summaries"], ids=lambda good: good["summary"])
def test_a_good_summary_is_taken_however_it_writes_numbers_and_days(good: dict[str, Any]) -> None:
    interval = IntervalText("Ann", members_of(good["texts"], good["days"]))

    assert read_summary(good["summary"], interval) == good["summary"]


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("Ann has 5 cats.", "Ann has 15 cats."),
        ("Ann met Marta at 7:30.", "Ann met Marta at 7."),
        ("Ann took the 8:15 train.", "Ann took the train at half past eight."),
        ("Ann has 30 cats.", "Ann has half of the cats."),
        ("Ann moved to Zürich.", "Ann moved to Switzerland."),
        ("Ann flew to the United States.", "Ann flew to Canada."),
        ("Ann was born in the 1990s.", "Ann was born in the 1980s."),
        ("Ann works at Acme Inc.", "Ann works at some company."),
        ("Ann met Dr Jones.", "Ann met the doctor."),
        ("20% came.", "30% came."),
    ],
)
def test_a_merge_that_loses_something_is_not(text: str, merged: str) -> None:
    assert len(kept.lost([text], merged)) == 1


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("Ann met Bob at half past seven.", "Ann met Bob at 10:30."),
        ("Ann was born in the nineties.", "Ann was born in 1985."),
        ("It cost 12 euros.", "It cost 12.50 euros."),
        ("Ann ran on 8 May.", "Ann ran on 9.5."),
        ("Half of them came.", "60% of them came."),
        ("Ann ran 5 km.", "Ann ran 2.5 km."),
        ("Ann moved last year.", "Ann moved in 2019."),
    ],
)
def test_a_summary_that_invents_something_is_not(text: str, summary: str) -> None:
    with pytest.raises(AnswerInvalid):
        read_summary(summary, IntervalText("Ann", members_of([text], ["2023-05-08"])))


def test_everyday_talk_in_five_languages_is_hardly_ever_asked_for_again() -> None:
    alarms = {
        each["turn"]: missed
        for each in READINGS["everyday_turns"]
        if (missed := coverage.missed([each["turn"]], each["facts"], SPEAKERS))
    }
    print(alarms)

    assert len(READINGS["everyday_turns"]) > 50
    assert len(alarms) <= ALARMS_MAX


@pytest.mark.parametrize("pasted", READINGS["pasted"], ids=lambda pasted: pasted["kind"])
def test_nobody_asks_for_the_details_of_what_was_pasted(pasted: dict[str, Any]) -> None:
    assert coverage.missed([pasted["turn"]], pasted["facts"], SPEAKERS) == ()
    if pasted["kind"] != "mixed":  # where somebody says something, too
        assert coverage.missed([pasted["turn"]], [], SPEAKERS) == ()


@pytest.mark.parametrize(
    "said",
    [
        "I have 3 cats, 2 dogs, 14 hens, 1 goat and 7 geese.",
        "Call me at 10, 12 or 14 o'clock on 8 May 2023 (not on the 9th).",
        "It is <b>really</b> nice, I paid $30 and that was all they asked for.",
        "- 200 g flour\n- 3 eggs\n- 100 ml milk",
        "def not going there; class was at 8.",
    ],
)
def test_what_somebody_says_is_not_taken_for_pasted(said: str) -> None:
    assert without_pasted(said) == said


@pytest.mark.parametrize("piece", ["1 ", "{", "a.b(", "\n", "```", "1,", "0", "at ", "def ", " ", "\n{", "a"])
def test_hostile_repetitions_are_over_soon(piece: str) -> None:
    started = time.thread_time()
    without_pasted((piece * 20_000)[:20_000] + "=")

    assert time.thread_time() - started < 0.5
