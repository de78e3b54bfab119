"""Details that no fact carries: found in several languages, and never where the facts say it in another way."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from daemon.offline.sentences import split_sentences
from daemon.reading.coverage import DETAILS_MAX, as_read, missed
from events.memory import ExtractedFact
from events.time import from_datetime

SAID = (
    "Hi Tom! I moved to Berlin with my 2 cats last Friday. The flat costs 1,250 € a month and has three rooms.",
    "We saw The Lord of the Rings at 7:30 pm, and 40% of the seats were empty. I'll call Marta on 8 May.",
    "Meine Wohnung liegt in der Nähe von Frankfurt am Main und kostet 1.100 Euro. Ich bin gestern eingezogen.",
    "Vivo en Buenos Aires desde 2019 y tengo 3 hijos. Mi hermana Lucía llega el próximo lunes.",
    "我有3只猫,昨天读完了《红楼梦》。田中さんとカタカナさんに2023年に会いました。",
    "Моя сестра Ольга купила 12 книг в Москве. I bought an iPhone and the NASA poster for $30.",
    "I ran 5km, twenty-five miles in all; version 3.11.2 took 10k steps, see https://example.org/12/34 and GPT-4.",
)


def test_numbers_dates_and_names_that_no_fact_carries_come_as_written_and_in_order() -> None:
    assert missed(SAID[:1], ["Bob moved."], ["Bob", "Tom"]) == (
        "last Friday",
        "2 cats",
        "Berlin",
        "1,250 €",
        "three rooms",
    )
    assert missed(SAID[1:2], ["They saw a film."]) == (
        "7:30 pm",
        "40%",
        "Lord of the Rings",
        "8 May",
        "Marta",
    )


@pytest.mark.parametrize(
    ("said", "details"),
    [
        ("Meine Wohnung kostet 1.100 Euro.", ("1.100 Euro",)),
        ("Ich war letzten Montag in Frankfurt am Main.", ("letzten Montag",)),
        ("Vivo en Buenos Aires desde 2019 y tengo 3 hijos.", ("desde 2019", "3 hijos", "Buenos Aires")),
        ("Je suis allé à Paris la semaine dernière.", ("semaine dernière", "Paris")),
        ("我有3只猫,昨天读完了《红楼梦》。", ("昨天", "3", "红楼梦")),
        ("昨日、田中さんとスミスさんに会いました。", ("昨日", "スミス")),
        ("Моя сестра Ольга купила 12 книг.", ("12 книг", "Ольга")),
        ("I ran twenty-five miles and 10k steps.", ("twenty-five miles", "10k steps")),
    ],
)
def test_in_several_languages(said: str, details: tuple[str, ...]) -> None:
    assert set(missed([said], ["x"])) >= set(details)


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("It costs 1,000 dollars.", "It costs $1000."),
        ("It costs 1000 dollars.", "The price is 1.000,00."),
        ("It weighs 2.50 kg.", "It weighs 2,5 kg."),
        ("I have five cats.", "Alice has 5 cats."),
        ("I have 5 cats.", "Alice has five cats."),
        ("I have 25 books.", "Alice has twenty-five books."),
        ("I have twenty five books.", "Alice has 25 books."),
        ("There were 2 of them.", "There was a couple of them."),
        ("It has 300 pages.", "It has three hundred pages."),
        ("I walked 10k steps.", "Alice walked 10,000 steps."),
        ("We meet at 7 pm.", "They meet at 19:00."),
        ("We meet at 7:30 pm.", "They meet at 19:30."),
        ("We meet at 19:00.", "They meet at 7 pm."),
        ("我有３只猫。", "爱丽丝有三只猫。"),
        ("Tengo tres perros y 3 gatos.", "Ana tiene tres perros y tres gatos."),
        ("I met Mel at work.", "Bob met Melanie at work."),
        ("I met Melanie's brother.", "Bob met the brother of Melanie."),
        ("Она живёт в Москве, а Ольга нет.", "Она живёт: Москва. Ольги там нет."),
        ("I loved Lord of the Rings, really.", "Bob loved The Lord Of The Rings."),
        ("I met her last Friday.", "Bob met her on 5 May 2023."),
        ("I met her last Friday.", "Bob met her. [5 May 2023] [5 May 2023]"),
        ("I met her on May 5.", "Bob met her on 2023-05-05."),
        ("I met her on 05/13/2023.", "Bob met her on 13 May 2023."),
        ("Ich traf sie am 5. Mai.", "Bob traf sie. [5 May 2023]"),
        ("我昨天见了她。", "鲍勃在2023年5月7日见了她。"),
    ],
)
def test_what_a_fact_says_in_another_way_is_carried(said: str, fact: str) -> None:
    assert missed([said], [fact], ["Bob", "Alice"]) == ()


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("I have 15 cats.", "Alice has 5 cats."),
        ("I have 5 cats.", "Alice has 15 cats."),
        ("It costs 1,250.", "It costs 1,200."),
        ("I met her last Friday.", "Bob met her."),
        ("I met her on 5 May 2023.", "Bob met her on 6 May 2023."),
        ("I met Marta there.", "Bob met someone there."),
        ("We live near Buenos Aires now.", "They live near Aires."),
    ],
)
def test_another_number_day_or_name_carries_nothing(said: str, fact: str) -> None:
    assert len(missed([said], [fact])) == 1


@pytest.mark.parametrize(
    "said",
    [
        "Thanks, Tom!",
        "Have you been to Paris in 2019?",
        "Great to see you today, it is such a nice day.",
        "I agree 100%, you are there 24/7.",
        "One of them told us two to stay.",
        "Really? Maybe. Yesterday?",
        "1. Peel it.\n2. Eat it.",
        "That is SOOOOO FUNNY and I love it.",
        "Here it is [a photo of three girls near a Nike sign]",
        "See www.example.org/2019 and call COVID-19 what you like, user_12 or #4711 a1b2c3.",
        "You did so great with it!",
    ],
)
def test_small_talk_questions_idioms_addresses_and_pictures_are_no_details(said: str) -> None:
    assert set(missed([said], [])) <= {"COVID-19"}


def test_the_names_of_those_who_speak_need_not_be_said() -> None:
    assert missed(["I told Mel and Bob Smith about it."], ["x"], ["Melanie", "Bob Smith"]) == ()


def test_every_sentence_as_a_fact_misses_nothing() -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    words = [*" ".join(SAID).split(), "中", "\n", "1", ".", "8.", "May", "'s", "’", "%", "《", "x》", "ten"]
    for turn in range(len(SAID) + 300):
        said = SAID[turn] if turn < len(SAID) else " ".join(chance.choices(words, k=chance.randrange(1, 60)))

        assert missed([said], split_sentences(said)) == ()
        assert missed([said], [said]) == ()


def test_a_fact_is_read_with_its_days_only_when_it_has_a_time_of_its_own() -> None:
    day = from_datetime(datetime(2023, 5, 8, tzinfo=UTC))
    said_at = day + 3_600_000
    own = ExtractedFact("Bob met her.", (0,), day, day + 86_399_999)

    assert as_read(own) == "Bob met her. [8 May 2023]"
    assert as_read(ExtractedFact("Bob met her.", (0,), said_at, said_at)) == "Bob met her."
    assert as_read(ExtractedFact("Bob met her.", (0, 1), said_at, said_at + 30_000)) == "Bob met her."
    assert missed(["I met her yesterday."], [as_read(own)]) == ()


def test_no_more_than_a_line_of_details_is_given() -> None:
    assert len(missed([f"It is {n}0 km." for n in range(1, 100)], [])) == DETAILS_MAX
