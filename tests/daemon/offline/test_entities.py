"""Names found by their capitals, and the capitals that are no names."""

from __future__ import annotations

import pytest

from daemon.offline.entities import LABEL_CHARS_MAX, MENTIONS_MAX, find_mentions


def found(text: str) -> list[str]:
    """Labels in order, a question mark behind the uncertain ones."""
    return [mention.label + "?" * mention.uncertain for mention in find_mentions(text)]


CASES = [
    ("I moved to New York with José.", ["New York", "José"]),
    ("New York is big.", ["New York"]),
    ("Caroline went to Miami.", ["Caroline?", "Miami"]),
    ("Painting is fun.", ["Painting?"]),
    ("We met Caroline. Painting is fun.", ["Caroline", "Painting?"]),
    ("Hey Caroline, how's Max?", ["Caroline", "Max"]),
    ("Yesterday Caroline's friend came.", ["Caroline"]),
    ("I use C++ and C# at Google.", ["C++", "C#", "Google"]),
    ("C++ is fast.", ["C++"]),
    ("I saw The Lord of the Rings at Bob's house.", ["Lord of the Rings", "Bob"]),
    ("She plays Ludwig van Beethoven.", ["Ludwig van Beethoven"]),
    ("They met O'Brien and Jean-Luc.", ["O'Brien", "Jean-Luc"]),
    ("I saw Dr. Wu and J. R. Tolkien.", ["Wu", "J. R. Tolkien"]),
    ("We met Bob, Carol and Dave.", ["Bob", "Carol", "Dave"]),
    ("I like my iPhone and LGBTQ groups.", ["iPhone", "LGBTQ"]),
    ("Jose\u0301 came with Zoë.", ["José?", "Zoë"]),
    ("Я живу в Москве.", ["Москве"]),
    ("Ich habe einen Hund in Berlin.", ["Hund?", "Berlin?"]),
    ("我住在Miami，读了《三体》。", ["三体", "Miami"]),
    ("Miami很热。", ["Miami"]),
    ("マイアミでAliceに会った。", ["Alice"]),
]
NONE = [
    "I went on Monday in May.",
    "Wow! Amazing. Thanks!",
    "I'm sure I've told you.",
    "Don't worry.",
    "That is so Cool.",
    "see https://Example.com/Foo or Mail@Foo.com",
    "北京很好。",
    "nothing here",
    "",
]


@pytest.mark.parametrize(("text", "names"), CASES)
def test_names_are_found_and_heads_of_sentences_are_uncertain(text: str, names: list[str]) -> None:
    assert found(text) == names


@pytest.mark.parametrize("text", NONE)
def test_capitals_that_name_nothing_are_not_found(text: str) -> None:
    assert found(text) == []


def test_one_certain_place_makes_a_name_certain() -> None:
    assert found("Caroline sings. I like Caroline.") == ["Caroline"]


def test_a_page_of_capitals_stays_within_the_limits() -> None:
    many = "I met " + ", ".join(f"Name{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")

    assert len(find_mentions(many)) == MENTIONS_MAX
    assert all(len(one.label) <= LABEL_CHARS_MAX for one in find_mentions("I met " + "Xy " * 500))
