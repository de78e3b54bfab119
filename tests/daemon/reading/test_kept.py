"""What a merged text lost of its sources, and what it made up."""

from __future__ import annotations

import random

import pytest

from daemon.reading.kept import DETAILS_MAX, invented, lost

SOURCES = (
    "Alice does not eat nuts since 2019.",
    "Bob paid $1,200 for a Trek bike last Friday, the one he had wanted for three years.",
    "Anna hat keine Katze, aber 2 Hunde aus Frankfurt am Main.",
    "Pierre n'aime pas Paris. Il y va le 8 mai.",
    "Ana nunca come carne en Buenos Aires.",
    "小明没有车,他有3只猫。田中さんは肉を食べない。",
    "Ольга не живёт в Москве с 2020 года.",
)


def test_numbers_dates_names_and_denials_that_are_gone_are_told() -> None:
    assert set(lost(SOURCES[:2], "Alice eats nuts and Bob bought a bike.")) == {
        "since 2019",
        "not",
        "last Friday",
        "$1,200",
        "three years",
        "Trek",
    }


def test_another_wording_keeps_all() -> None:
    text = "Since 2019 Alice never eats nuts; on 5 May 2023 Bob bought a Trek for 1200 dollars after 3 years."

    assert lost(SOURCES[:2], text) == ()


@pytest.mark.parametrize(
    ("source", "text", "word"),
    [
        ("Alice does not eat nuts.", "Alice eats nuts.", "not"),
        ("Alice doesn't eat nuts.", "Alice eats nuts.", "doesn't"),
        ("Anna hat keine Katze.", "Anna hat eine Katze.", "keine"),
        ("Pierre n'aime pas le lait.", "Pierre aime le lait.", "n'"),
        ("Ana nunca come carne.", "Ana come carne.", "nunca"),
        ("小明没有车。", "小明有车。", "没"),
        ("他不喜欢茶。", "他喜欢茶。", "不"),
        ("彼は肉を食べない。", "彼は肉を食べる。", "ない"),
        ("나는 고기를 먹지 않는다.", "나는 고기를 먹는다.", "않"),
        ("Она не ест мясо.", "Она ест мясо.", "не"),
    ],
)
def test_a_denial_that_became_its_opposite(source: str, text: str, word: str) -> None:
    assert lost([source], text) == (word,)
    assert lost([source], f"{text} {source}") == ()


@pytest.mark.parametrize(
    "source",
    [
        "Alice can't wait for it.",
        "It is not only good.",
        "这个很不错,非常好。",
        "未来会更好。",
        "それは危ないかもしれない。",
    ],
)
def test_words_that_only_look_like_a_denial(source: str) -> None:
    assert lost([source], "x") == ()


def test_a_text_of_all_its_sources_loses_and_invents_nothing() -> None:
    seed = 8
    print("seed", seed)
    chance = random.Random(seed)
    words = [*" ".join(SOURCES).split(), "not", "n't", "1", ".5", "5", "May", "2020-05-06", "\n", "Ab", "不"]
    for _ in range(300):
        sources = [
            " ".join(chance.choices(words, k=chance.randrange(1, 20))) for _ in range(chance.randrange(1, 5))
        ]

        assert lost(sources, "\n".join(sources)) == ()
        assert invented(sources, "\n".join(sources)) == ()


@pytest.mark.parametrize(
    ("sources", "text", "also", "found"),
    [
        (["She has 5 cats."], "She has 15 cats.", (), ("15 cats",)),
        (["She has five cats."], "She has 5 cats.", (), ()),
        (["She ran 5 km.", "She ran 5 km again."], "She ran 5 km 2 times.", (), ()),
        (["She ran 5 km.", "She ran 5 km again."], "She ran 10 km.", (), ("10 km",)),
        (["She ran yesterday."], "She ran on 8 May 2023.", (), ("8", "2023")),
        (["She ran yesterday."], "She ran on 8 May 2023.", ("[8 May 2023]",), ()),
        (["It costs 1,000 €."], "It costs 1000 €, and twice as much there.", (), ()),
        (["她有三只猫。"], "她有3只猫。", (), ()),
        (["她有三只猫。"], "她有5只猫。", (), ("5",)),
        ([], "It is 7.", (), ("7",)),
    ],
)
def test_numbers_that_no_source_has(
    sources: list[str], text: str, also: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert invented(sources, text, also) == found


def test_no_more_than_a_line_of_details_is_given() -> None:
    numbers = [f"It is {n}0 km." for n in range(1, 100)]

    assert len(lost(numbers, "x")) == DETAILS_MAX
    assert len(invented([], " ".join(numbers))) == DETAILS_MAX
