"""One form for one entity in every script, and which capitals are names."""

from __future__ import annotations

import random

import pytest

from projections.facts.labels import CapitalCounts, can_name, first_word, normalise_label


@pytest.mark.parametrize(
    ("label", "form"),
    [
        ("Nate", "nate"),
        ("  New \n York ", "new york"),
        ("José", "josé"),
        ("Jose\u0301", "josé"),  # the accent as a character of its own
        ("北京", "北京"),
        ("Москва", "москва"),
        ("Ｍｉａｍｉ", "miami"),  # full width
        ("Straße", "strasse"),
        ("Nate's", "nate"),
        ("Nate’s", "nate"),
        ("James'", "james"),
        ("C++", "c++"),
        ("O'Brien", "o'brien"),
        ("O’Brien's", "o'brien"),
        ("İstanbul", "istanbul"),
        ("ISPARTA", "isparta"),
        ("Isparta", "isparta"),
        ("ısparta", "isparta"),
        ("İstanbul'un", "istanbul"),
        ("Ali’nin", "ali"),
        ("ﾀﾅｶ", "タナカ"),  # half width
        ("田中の", "田中"),
        ("小红的", "小红"),
        ("目的", "目的"),
        ("さくらの", "さくらの"),
        ("Jean‑Luc", "jean-luc"),
        ("안나", "안나"),
        ("安娜・米勒", "安娜·米勒"),
        ("ΟΔΥΣΣΕΎΣ", "οδυσσεύσ"),
        ("Ὀδυσσεύς", "ὀδυσσεύσ"),
        ("Zo\u00ad\u200be", "zoe"),
        ("C#", "c#"),
        ("AT&T", "at&t"),
        ("'s", "'s"),
        ("a's's", "a"),
    ],
)
def test_a_label_has_one_form(label: str, form: str) -> None:
    assert normalise_label(label) == form
    assert normalise_label(form) == form


@pytest.mark.parametrize(("one", "other"), [("C++", "C#"), ("C", "C++"), ("José", "Jos"), ("José", "Jose")])
def test_labels_that_differ_in_a_sign_or_an_accent_stay_apart(one: str, other: str) -> None:
    assert normalise_label(one) != normalise_label(other)


def test_a_capital_inside_a_sentence_makes_a_name() -> None:
    counts = CapitalCounts()
    changed = counts.count("Yesterday I met Nate.")

    assert changed == {counts.number(word) for word in ("i", "met", "nate")}
    assert counts.is_name("nate")
    assert not counts.is_name("met")
    assert not counts.is_name("yesterday")


@pytest.mark.parametrize(
    "text", ["Thanks.", "Well. Thanks.", "Really? Thanks.", "„Thanks“ so", "“Thanks” so", "a:\nThanks", "(Thanks)"]
)
def test_a_capital_where_a_sentence_begins_makes_none(text: str) -> None:
    counts = CapitalCounts()
    counts.count(text)

    assert not counts.is_name("thanks")


def test_a_word_is_a_name_by_majority_and_stays_one_until_it_is_twice_as_often_none() -> None:
    counts = CapitalCounts()
    counts.count("a rose, and we met Rose")
    assert not counts.is_name("rose")

    counts.count("we met Rose")
    assert counts.is_name("rose")

    counts.count("a rose is a rose is a rose")
    assert counts.is_name("rose")

    counts.count("a rose")
    assert not counts.is_name("rose")


def test_the_first_word_decides_for_a_label_of_several() -> None:
    counts = CapitalCounts()
    counts.count("we met Nate")

    assert first_word("nate the great") == "nate"
    assert counts.is_name("nate the great")
    assert not counts.is_name("the great nate")


def test_a_possessive_counts_for_its_name() -> None:
    counts = CapitalCounts()

    assert counts.count("we took Nate's car") >= {counts.number("nate")}
    assert counts.is_name("nate")


def test_scripts_without_capitals_change_no_count() -> None:
    counts = CapitalCounts()

    assert counts.count("我住在北京。") == set()
    assert counts.count("мы едем в Москва") >= {counts.number("москва")}


@pytest.mark.parametrize(
    "label",
    [
        "José",
        "北京",
        "Москва",
        "C++",
        "C#",
        "3M",
        "U2",
        "Blink-182",
        "7-Eleven",
        "May",
        "April Smith",
        "O'Brien",
        "Jan",
        "Λ",
        "भारत",
        "กรุงเทพ",
        "New York City",
        "Prince Charles of Wales and his eight dogs",
    ],
)
def test_a_name_of_any_script_may_name_something(label: str) -> None:
    assert can_name(normalise_label(label))


@pytest.mark.parametrize(
    "label",
    [
        "",
        "!?",
        "🎉",
        "1",
        "1,000",
        "$5",
        "50%",
        "٣٤",
        "１２",
        "2023-05-08",
        "8 May 2023",
        "May 8th",
        "10:30 am",
        "5pm",
        "1990s",
        "2023-05-08T10:00:00Z",
        "Monday",
        "tomorrow",
        "Dienstag",
        "2023年5月8日",
        "星期一",
        "月曜日",
        "user",
        "Assistant",
        "UNKNOWN",
        "x" * 65,
        "one two three four five six seven eight nine",
    ],
)
def test_dates_numbers_roles_marks_and_sentences_name_nothing(label: str) -> None:
    assert not can_name(normalise_label(label))


@pytest.mark.parametrize("seed", range(5))
def test_a_normal_form_is_its_own_normal_form(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    signs = "aAsSnN'’ʼ`- ·・iIİıßſŒéé\u0301の的田タﾀﾞΣς\u200b.ﬁⅣ㍿İ\u0307"
    for _ in range(2_000):
        form = normalise_label("".join(chance.choice(signs) for _ in range(chance.randrange(9))))

        assert normalise_label(form) == form
