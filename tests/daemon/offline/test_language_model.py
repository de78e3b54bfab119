"""Summaries and merges that only choose: short, in order, dated, and the same every time."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from daemon.offline.joining import day_label
from daemon.offline.language_model import SUMMARY_CHARS_MAX, OfflineLanguageModel
from events.time import from_datetime
from projections.ports import ChunkText, IntervalText, LanguageModel, MemberText, TurnText


def at(year: int, month: int, day: int) -> int:
    return from_datetime(datetime(year, month, day, 12, tzinfo=UTC))


def a_member(text: str, when: int) -> MemberText:
    return MemberText(text, when, when)


def model() -> LanguageModel:
    return OfflineLanguageModel()


LONG = [
    a_member(f"Alice: The {word} museum in Davis opened. Thanks! Bob painted the {word} gate.", at(2023, 5, day))
    for day, word in enumerate(["iron", "amber", "copper", "silver", "golden", "wooden", "glass", "paper"], 1)
]


async def test_a_summary_is_short_dated_and_in_time_order() -> None:
    text = (await model().summarise(IntervalText("Alice", tuple(reversed(LONG))))).text
    days = [line.partition("]")[0] for line in text.splitlines()]

    assert len(text) <= min(SUMMARY_CHARS_MAX, sum(len(child.text) for child in LONG))
    assert days == sorted(days)
    assert days[0].startswith("[")
    assert "Thanks" not in text


async def test_a_summary_says_only_what_was_said() -> None:
    text = (await model().summarise(IntervalText("Alice", tuple(LONG)))).text
    said = {word.strip(".:!") for child in LONG for word in child.text.split()}

    written = [word for line in text.splitlines() for word in line.split("] ", 1)[1].split()]

    assert {word.strip(".:!") for word in written} <= said


async def test_a_summary_is_never_longer_than_its_children() -> None:
    seed = 7
    print("seed", seed)
    dice = random.Random(seed)
    words = [
        "Alice",
        "moved",
        "to",
        "Miami",
        "yes",
        "no",
        ".",
        "!",
        "?",
        "我",
        "住在",
        "迈阿密",
        "。",
        "\n",
        "[8",
        "May",
        "2023]",
        "Bob:",
        "",
    ]
    for _ in range(300):
        texts = [" ".join(dice.choices(words, k=dice.randint(0, 30))) for _ in range(dice.randint(0, 6))]
        children = tuple(a_member(text, at(2023, 5, dice.randint(1, 28))) for text in texts)

        text = (await model().summarise(IntervalText("Alice", children))).text

        assert len(text) <= sum(len(child.text) for child in children)


async def test_a_short_child_is_its_own_summary() -> None:
    assert (await model().summarise(IntervalText("Alice", (a_member("Hi", 0),)))).text == "Hi"
    assert (await model().summarise(IntervalText("Alice", ()))).text == ""


async def test_a_summary_of_summaries_keeps_the_days_of_their_sentences() -> None:
    lower = (await model().summarise(IntervalText("Alice", tuple(LONG)))).text
    upper = (await model().summarise(IntervalText("Alice", (a_member(lower, at(2023, 6, 30)),)))).text

    assert {line.partition("]")[0] for line in upper.splitlines()} <= {
        line.partition("]")[0] for line in lower.splitlines()
    }
    assert "Jun" not in upper


async def test_words_of_nobody_do_not_seem_to_be_the_last_speakers() -> None:
    children = (
        a_member("Alice: The museum of Davis opened its gate.", 0),
        a_member("Bob sold his boat near Miami.", 1),
    )

    # A third child only makes room for two dates.
    text = (await model().summarise(IntervalText("x", (*children, a_member("ok " * 30, 2))))).text

    assert text.splitlines() == [
        "[1 Jan 1970] Alice: The museum of Davis opened its gate.",
        "[1 Jan 1970] Bob sold his boat near Miami.",
    ]


async def test_equal_input_gives_equal_summaries_on_the_loop_and_in_a_thread() -> None:
    short = IntervalText("Alice", tuple(LONG[:2]))
    long = IntervalText("Alice", tuple(a_member(child.text * 5, child.time_start) for child in LONG))

    assert (await model().summarise(short)).text == (await model().summarise(short)).text
    assert (await model().summarise(long)).text == (await model().summarise(long)).text


async def test_a_merge_keeps_every_member_in_the_order_given() -> None:
    members = [a_member("Bob bought a boat.", at(2023, 5, 9)), a_member("Alice ran 5 km.", at(2023, 5, 8))]

    assert (await model().merge(members)).text == "[9 May 2023] Bob bought a boat.\n[8 May 2023] Alice ran 5 km."


async def test_a_merge_drops_repeats_and_contained_texts_of_the_same_day_only() -> None:
    day, later = at(2023, 5, 8), at(2023, 5, 15)
    members = [
        a_member("Alice ran 5 km.", day),
        a_member("alice ran  5 km", day),
        a_member("This morning Alice ran 5 km in Davis.", day),
        a_member("Alice ran 5 km.", later),
    ]

    assert (await model().merge(members)).text == (
        "[8 May 2023] This morning Alice ran 5 km in Davis.\n[15 May 2023] Alice ran 5 km."
    )


async def test_a_contained_text_is_a_run_of_whole_words() -> None:
    members = [a_member("Alice ran 5 km", 0), a_member("Alice ran 5 kmh", 0)]

    assert (await model().merge(members)).text.count("\n") == 1


async def test_a_merge_of_merges_keeps_the_days_it_was_given() -> None:
    members = [a_member("Alice ran.", at(2023, 5, 8)), a_member("Bob swam.", at(2023, 5, 9))]
    first = (await model().merge(members)).text
    second = (await model().merge([a_member(first, at(2023, 5, 9)), a_member("Carol flew.", at(2023, 6, 1))])).text

    assert second == "[8 May 2023] Alice ran.\n[9 May 2023] Bob swam.\n[1 Jun 2023] Carol flew."
    assert (await model().merge([])).text == ""


async def test_facts_are_the_same_on_the_loop_and_in_a_thread() -> None:
    short = await model().extract_facts(ChunkText((TurnText("user", "Alice", 0, "The ship sank near Davis."),)))
    long = await model().extract_facts(
        ChunkText((TurnText("user", "Alice", 0, "The ship sank near Davis. " + "Thanks! " * 500),))
    )

    assert short == long
    assert len(short.facts) == 1


def test_the_label_of_a_day_is_in_utc() -> None:
    assert day_label(at(2023, 5, 8)) == "[8 May 2023]"
    assert day_label(-1) == "[31 Dec 1969]"
    assert model().name == "offline-rules-2"
