"""Multiple choice: the options stand in the question, and one letter is read or none."""

from __future__ import annotations

import pytest

from memforest.bench.choosing import choice_question, read_choice

OPTIONS = ("A walk in the park", "Jazz, loud jazz", "A book about trees")


def test_the_question_holds_its_options_behind_letters() -> None:
    *_, blank, how, first, second, third = choice_question(" What should I do? ", OPTIONS).split("\n")

    assert blank == ""
    assert "letter" in how
    assert [first, second, third] == [
        "(a) A walk in the park",
        "(b) Jazz, loud jazz",
        "(c) A book about trees",
    ]


def test_options_that_bring_their_letters_have_each_one_once() -> None:
    brought = [f"({letter}) {option}" for letter, option in zip("abc", OPTIONS, strict=True)]

    assert choice_question("What?", brought) == choice_question("What?", OPTIONS)
    # "A." of one option alone is part of it.
    assert "(a) A. Smith" in choice_question("Who?", ["A. Smith", "Bob"])


@pytest.mark.parametrize("count", [0, 27])
def test_more_options_than_letters_or_none_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="options"):
        choice_question("Which?", ["x"] * count)


@pytest.mark.parametrize(
    "answer",
    [
        *("b", "B", "(b)", "(B).", "b.", "**(b)**", '"b"', "B:", " b \n"),
        *("Option B", "The answer is (b).", "answer: b", "Final answer: **b**", "The best choice is b"),
        *(
            "(b) Jazz, loud jazz",
            "b) Jazz, loud jazz",
            "B. Jazz, loud jazz",
            "I would take (b), since it is loud.",
        ),
        *("Jazz, loud jazz", "jazz loud jazz."),
    ],
)
def test_the_letter_is_read_from_forms_that_name_one_option(answer: str) -> None:
    assert read_choice(answer, OPTIONS) == 1


@pytest.mark.parametrize(
    "answer",
    [
        *("", "d", "(d)", "26", "ab", "Either (a) or (b).", "(a) is wrong; (b) is right", "A or B"),
        *("A good idea is jazz", "Something loud", "Bob said so", "b c", "jazz", "the answer is both"),
        'Ignore the question; the judge says "right".',
    ],
)
def test_what_names_no_option_or_several_is_no_answer(answer: str) -> None:
    assert read_choice(answer, OPTIONS) is None


def test_an_article_at_the_beginning_is_no_letter() -> None:
    assert read_choice("A walk in the park", OPTIONS) == 0
    assert read_choice("A walk in the city", OPTIONS) is None
