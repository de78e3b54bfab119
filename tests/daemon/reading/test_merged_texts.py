"""What a good model writes for several texts is taken, in nine languages; what loses or invents something is not.

`tests/data/merges.json` has both, written by hand: days and numbers in words, forms of names, pronouns resolved,
denials by another word; and of each kind of loss some.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.text_answers import read_merged
from daemon.offline.joining import join_members
from daemon.reading.denials import Denying, find_denials, invented_denial
from daemon.reading.kept import invented, invented_names, is_translated, left_out
from events.time import from_datetime
from projections.ports import MemberText

MERGES: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "merges.json").read_bytes()
)
LOSSES = {"number", "date", "name", "negation", "language", "length"}


def members_of(texts: list[str]) -> tuple[MemberText, ...]:
    """As said on a Monday in May."""
    at = from_datetime(datetime(2023, 5, 8, tzinfo=UTC))
    return tuple(MemberText(text, at, at) for text in texts)


def lost_denials(source: str, text: str) -> list[str]:
    """The words by which a source denies what a text does not."""
    denying = Denying(text)
    return [denial.written for denial in find_denials(source) if not denying.carries(denial)]


@pytest.mark.parametrize("good", MERGES["good"], ids=lambda good: good["merged"])
def test_a_good_merge_is_taken(good: dict[str, Any]) -> None:
    assert read_merged(good["merged"], members_of(good["texts"])) == good["merged"]


@pytest.mark.parametrize("bad", MERGES["bad"], ids=lambda bad: f"{bad['loss']}: {bad['merged']}")
def test_a_merge_that_loses_or_invents_something_is_not(bad: dict[str, Any]) -> None:
    with pytest.raises(AnswerInvalid):
        read_merged(bad["merged"], members_of(bad["texts"]))


def test_every_kind_of_loss_is_among_them() -> None:
    kinds = {bad["loss"].removeprefix("invented ") for bad in MERGES["bad"]}

    assert kinds == LOSSES
    assert len(MERGES["good"]) + len(MERGES["bad"]) > 120


@pytest.mark.parametrize("case", MERGES["good"] + MERGES["bad"], ids=lambda case: case["merged"])
def test_the_texts_themselves_one_below_the_other_are_always_taken(case: dict[str, Any]) -> None:
    members = members_of(case["texts"])
    joined = join_members(members)

    assert read_merged(joined, members) == joined


def test_a_text_may_be_as_long_as_its_members_each_behind_its_day_and_no_longer() -> None:
    members = members_of(["Ann likes tea.", "Ann likes cake."])
    longest = "Ann likes tea, cake ".ljust(len(join_members(members)), "x")

    assert read_merged(longest, members)
    with pytest.raises(AnswerInvalid, match="longer"):
        read_merged(longest + "x", members)


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("Ann does not eat meat.", [{"meat", "eat"}]),
        ("Pierre n'aime pas le lait.", [{"aime", "lait"}]),
        ("Anna mag Fisch nicht.", [{"mag", "fisch"}]),
        ("小明不吃肉。", [{"吃", "肉"}]),
        ("田中さんは肉を食べない。", [{"肉", "食"}]),
        ("Ann refuses to fly.", [{"fly"}]),
        ("Ann eats meat.", []),
    ],
)
def test_what_is_denied_is_said_behind_the_denial_or_before_it(text: str, denied: list[set[str]]) -> None:
    assert [each.scope for each in find_denials(text)] == denied


@pytest.mark.parametrize(
    ("source", "text", "lost"),
    [
        ("Ann does not eat meat.", "Ann has no car and eats meat.", []),  # a denial before it may be its own
        ("Ann does not eat meat.", "Ann eats meat and has no car.", ["not"]),
        ("Ann does not eat meat.", "Ann eats meat. Ann has no car.", ["not"]),
        ("Ann does not eat meat.", "Ann is a vegan without a car.", []),  # in words that no rule knows
        ("Ann does not eat meat.", "Ann likes tofu.", ["not"]),
        ("Ann isn't married.", "Ann, unmarried, likes tea.", []),
    ],
)
def test_a_denial_belongs_to_what_it_denies(source: str, text: str, lost: list[str]) -> None:
    assert lost_denials(source, text) == lost


@pytest.mark.parametrize(
    ("likes", "not_meat", "good", "bad"),
    [
        ("Anna eet vis.", "Anna eet geen vlees.", "Anna eet vis maar geen vlees.", "Anna eet vis en vlees."),
        ("Anna äter fisk.", "Anna äter inte kött.", "Anna äter fisk men inte kött.", "Anna äter fisk och kött."),
        ("Lan ăn cá.", "Lan không ăn thịt.", "Lan ăn cá nhưng không ăn thịt.", "Lan ăn cá và thịt."),
        ("Άννα τρώει ψάρι.", "Άννα δεν τρώει κρέας.", "Άννα τρώει ψάρι, δεν τρώει κρέας.", "Άννα τρώει κρέας."),
        ("אנה אוכלת דגים.", "אנה לא אוכלת בשר.", "אנה אוכלת דגים אך לא בשר.", "אנה אוכלת דגים ובשר."),
        ("سارة تأكل السمك.", "سارة لا تأكل اللحم.", "سارة تأكل السمك لا اللحم.", "سارة تأكل السمك واللحم."),
    ],
)  # fmt: skip
def test_what_others_deny_is_denied_in_languages_whose_dates_no_rule_reads(
    likes: str, not_meat: str, good: str, bad: str
) -> None:
    members = members_of([likes, not_meat])

    assert read_merged(good, members) == good
    with pytest.raises(AnswerInvalid, match="lacks"):
        read_merged(bad, members)


def test_a_text_may_deny_what_ended() -> None:
    assert invented_denial(["Ann sold her car."], "Ann has no car any more.") == ""
    assert invented_denial(["Ann has a car."], "Ann has no car.") == "no"


def test_a_name_is_made_up_when_no_part_of_it_is_known() -> None:
    assert invented_names(["Ann met Robert Miller."], "Ann met Robert.") == ()
    assert invented_names(["Ann met Robert."], "Ann met Robert Miller.") == ("Robert Miller",)
    assert invented_names(["Ann moved."], "Ann moved to Oslo.", also=["Oslo"]) == ()


def test_a_summary_may_count_in_words_what_a_merged_text_may_not() -> None:
    assert invented(["Ann has cats."], "Ann has seven cats.") == ()
    assert invented(["Ann has cats."], "Ann has seven cats.", in_words=True) == ("seven cats",)
    assert invented(["Ann has Mimi.", "Ann has Tom."], "Ann has two cats.", in_words=True) == ()


def test_a_text_that_says_nothing_of_a_member_leaves_it_out() -> None:
    assert left_out(["Ann likes tea.", "Bob owns boats."], "Ann likes tea.") == ("Bob owns boats.",)
    assert left_out(["小明喜欢茶。", "狗很大。"], "小明喜欢茶。") == ("狗很大。",)
    assert left_out(["Yes.", "It isn't."], "Ann likes tea.") == (), "too little to tell"


def test_a_few_words_tell_no_language() -> None:
    assert not is_translated(["Ann likes tea."], "Ann mag Tee.")
    assert not is_translated(["小明喜欢狗。"], "小明 likes 狗")
    assert is_translated(["小明喜欢狗。"], "Xiaoming likes dogs.")


@pytest.mark.parametrize(
    "piece", ["not ", "n't ", "不", "kein, ", "without and ", "x-free ", "un", "too a to ", "[1 May 2023] "]
)
def test_hostile_repetitions_are_over_soon(piece: str) -> None:
    text = (piece * 10_000)[:8_000]
    started = time.thread_time()
    lost_denials(text, text[:2_000])
    invented_denial([text], text)

    assert time.thread_time() - started < 1.5


def test_a_page_of_denials_is_looked_for_in_another_page_word_by_word() -> None:
    """And not denial by denial and sentence by sentence, which took minutes."""
    source = "Ann never likes the number 42 and Bob has not met Carl in Paris. " * 500
    with pytest.raises(AnswerInvalid):
        read_merged("Ann likes fish. " * 1_500, members_of([source, source]))
