"""What a question asks of time: by hand in each language, never raising, and in linear time."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from daemon.offline.sentences import word_set
from daemon.reading.time_questions.reader import QUESTION_CHARS_MAX, read_time_question
from events.time import EARLIEST, LATEST, Instant, from_datetime
from projections.recall.filters import Span
from projections.recall.time_question import Order, TimeKind

# A Thursday.
REFERENCE = from_datetime(datetime(2024, 8, 15, 10, tzinfo=UTC))


def days(first: str, last: str) -> Span:
    """From the beginning of a day to the end of another one."""
    start, end = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (first, last))
    return Span(from_datetime(start), from_datetime(end + timedelta(days=1)))


@pytest.mark.parametrize(
    ("question", "kind", "anchor"),
    [
        ("Where did I live before Miami?", TimeKind.PREDECESSOR, "miami"),
        ("Where did Bob live before moving to Miami?", TimeKind.PREDECESSOR, "moving to miami"),
        ("After the wedding, where did Bob live?", TimeKind.SUCCESSOR, "the wedding"),
        ("What did Bob do before the race?", TimeKind.BEFORE, "the race"),
        ("What has Bob cooked since the flood?", TimeKind.SINCE, "the flood"),
        ("Where did Bob work when he lived in Davis?", TimeKind.AT, "he lived in davis"),
        ("What was Bob's previous job?", TimeKind.PREDECESSOR, None),
        ("Where did Bob use to live?", TimeKind.PREDECESSOR, None),
        ("Where did Bob live first?", TimeKind.FIRST, None),
        ("What was the last film we saw?", TimeKind.LAST, None),
        ("Where does Bob live now?", TimeKind.LATEST, None),
        ("Where does Bob live?", TimeKind.LATEST, None),
        ("How often does Bob swim?", TimeKind.HOW_OFTEN, None),
        ("How many times did Bob swim?", TimeKind.HOW_OFTEN, None),
        ("How long has Bob lived in Davis?", TimeKind.HOW_LONG, None),
        ("How long ago did Bob move?", TimeKind.WHEN, None),
        ("How long was Bob in Davis?", TimeKind.HOW_LONG, None),
        ("What did Bob do the week following the race?", TimeKind.AFTER, "the race"),
        ("What does Bob eat after work?", TimeKind.AFTER, "work"),
        ("Who was the first person Bob called?", TimeKind.FIRST, None),
        ("Who does Bob date?", TimeKind.LATEST, None),
        ("Wie heißt Bens Frau?", TimeKind.LATEST, None),
        ("Was tat Ben vor dem Umzug?", TimeKind.BEFORE, "dem umzug"),
        ("When did Bob move to Davis?", TimeKind.WHEN, None),
        ("Which year did Bob move?", TimeKind.WHEN, None),
        ("Wo wohnte Bob, bevor er nach Miami zog?", TimeKind.PREDECESSOR, "er nach miami zog"),
        ("Wo wohnte Bob nach Davis?", TimeKind.SUCCESSOR, "davis"),
        ("Wie oft war Bob schwimmen?", TimeKind.HOW_OFTEN, None),
        ("Wann zog Bob nach Davis?", TimeKind.WHEN, None),
        ("Wie lange wohnt Bob in Davis?", TimeKind.HOW_LONG, None),
        ("Où habitait Luc avant Miami ?", TimeKind.PREDECESSOR, "miami"),
        ("Combien de fois Luc est-il venu ?", TimeKind.HOW_OFTEN, None),
        ("Depuis quand Luc habite-t-il à Lille ?", TimeKind.HOW_LONG, None),
        ("¿Dónde vivía Ana antes de Miami?", TimeKind.PREDECESSOR, "miami"),
        ("¿Cuándo se mudó Ana?", TimeKind.WHEN, None),
        ("¿Cuántas veces vino Ana?", TimeKind.HOW_OFTEN, None),
        ("小明搬到迈阿密之前住在哪里？", TimeKind.PREDECESSOR, "小明搬到迈阿密"),
        ("小明什么时候搬家的？", TimeKind.WHEN, None),
        ("小明去过几次北京？", TimeKind.HOW_OFTEN, None),
        ("小明在上海住了多久？", TimeKind.HOW_LONG, None),
        ("健太はマイアミに引っ越す前にどこに住んでいましたか？", TimeKind.PREDECESSOR, "健太はマイアミに引っ越す"),
        ("健太はいつ引っ越しましたか？", TimeKind.WHEN, None),
        ("健太は何回来ましたか？", TimeKind.HOW_OFTEN, None),
    ],
)
def test_the_kind_of_time_and_what_is_named_beside_it(question: str, kind: TimeKind, anchor: str | None) -> None:
    asked = read_time_question(question, REFERENCE)

    assert asked is not None
    assert (asked.kind, asked.anchor) == (kind, anchor)


@pytest.mark.parametrize(
    ("question", "kind", "span"),
    [
        ("What did I do last week?", TimeKind.AT, days("2024-08-05", "2024-08-11")),
        ("What did I do yesterday?", TimeKind.AT, days("2024-08-14", "2024-08-14")),
        ("What did I buy two months ago?", TimeKind.AT, days("2024-06-01", "2024-06-30")),
        ("Where did Bob live in 2022?", TimeKind.AT, days("2022-01-01", "2022-12-31")),
        ("Where did Bob live before 2022?", TimeKind.BEFORE, days("2022-01-01", "2022-12-31")),
        ("What did Bob do after May 3, 2023?", TimeKind.AFTER, days("2023-05-03", "2023-05-03")),
        ("Where has Bob lived since June 2024?", TimeKind.SINCE, days("2024-06-01", "2024-06-30")),
        ("Who came between May 3, 2023 and June 1, 2023?", TimeKind.BETWEEN, days("2023-05-03", "2023-06-01")),
        (
            "Where was Bob between August 11 and August 15 2023?",
            TimeKind.BETWEEN,
            days("2023-08-11", "2023-08-15"),
        ),
        ("Where was Bob in the week before 16 November 2023?", TimeKind.AT, days("2023-11-06", "2023-11-15")),
        ("Who came two weeks before August 11, 2023?", TimeKind.AT, days("2023-07-24", "2023-07-30")),
        ("What was on the Sunday before October 25, 2022?", TimeKind.AT, days("2022-10-23", "2022-10-23")),
        ("Was habe ich letzte Woche gemacht?", TimeKind.AT, days("2024-08-05", "2024-08-11")),
        ("Wo wohnte Bob vor zwei Jahren?", TimeKind.AT, days("2022-01-01", "2022-12-31")),
        ("Qu'est-ce que j'ai fait hier ?", TimeKind.AT, days("2024-08-14", "2024-08-14")),
        ("¿Qué hice ayer?", TimeKind.AT, days("2024-08-14", "2024-08-14")),
        ("我上周做了什么？", TimeKind.AT, days("2024-08-05", "2024-08-11")),
        ("先週何をしましたか？", TimeKind.AT, days("2024-08-05", "2024-08-11")),
    ],
)
def test_the_days_that_a_question_names(question: str, kind: TimeKind, span: Span) -> None:
    asked = read_time_question(question, REFERENCE)

    assert asked is not None
    assert (asked.kind, asked.span, asked.anchor) == (kind, span, None)


@pytest.mark.parametrize(
    ("question", "order"),
    [
        ("When was the last time I swam?", Order.LATEST_FIRST),
        ("When did I first swim?", Order.EARLIEST_FIRST),
        ("Where does Bob live now?", Order.LATEST_FIRST),
        ("Where does Bob live?", None),
        ("How long did the concert last?", None),
        ("How long did her last trip take?", Order.LATEST_FIRST),
    ],
)
def test_which_end_of_time_is_asked_for(question: str, order: Order | None) -> None:
    asked = read_time_question(question, REFERENCE)

    assert asked is not None
    assert asked.order is order


@pytest.mark.parametrize(
    "question",
    [
        "What is Bob's favourite soup?",
        "Who likes opera?",
        "Why did Bob cry?",
        "Was mag Bob?",
        "小明喜欢什么？",
        "Is Bob's first name Robert?",
        "What does the First Amendment say?",
        "Who gave first aid to Bob?",
        "How long is the bridge?",
        "How long was Ann's red hair?",
        "What is next to the bank?",
        "Who lives next door?",
        "Who is named after the singer?",
        "Who looked after the garden?",
        "Who was following the news?",
        'What does "before" mean?',
        "What is the after-school club called?",
        "What does Ann like after all?",
        "Where does Ann work out?",
        "What cat food does Ann buy?",
        "What is Ann's phone number?",
        "How was the car insurance?",
        "What dates does Ann like to eat?",
        "Who will May see?",
        "What does April cook?",
        "Wovor hat Ben Angst, hat er Angst vor Spinnen?",
        "Was steht vor der Haustür?",
        "Was mag Ben vor allem?",
        "Sucht Ben nach einem Rad?",
        "Wonach schmeckt es, nach Vanille?",
        "Wie heißt die Frau in Bens Büro?",
        "D'après Luc, que mange Zoé ?",
        "",
        "?",
    ],
)
def test_most_questions_ask_of_no_time(question: str) -> None:
    assert read_time_question(question, REFERENCE) is None


def test_of_a_question_in_several_parts_the_time_of_one_is_not_that_of_all() -> None:
    asked = read_time_question("When did the knee hurt, and how was it after the race?", REFERENCE)

    assert asked is not None
    assert (asked.kind, asked.anchor) == (TimeKind.WHEN, None)
    assert read_time_question("Which bowl did she throw in 2023, and how many did she sell?", REFERENCE) is None
    assert read_time_question("When he lived in Davis, what did Bob drive?", REFERENCE) is not None


def test_a_day_is_that_of_the_zone() -> None:
    # Three o'clock at night in UTC, and the evening before in New York.
    at = from_datetime(datetime(2024, 8, 15, 3, tzinfo=UTC))
    here, there = (
        read_time_question("What did I do yesterday?", at, zone) for zone in (UTC, timezone(timedelta(hours=-5)))
    )

    assert here is not None
    assert there is not None
    assert here.span == days("2024-08-14", "2024-08-14")
    assert there.span == days("2024-08-13", "2024-08-13")


def test_of_a_long_question_the_last_sentence_that_asks_is_read() -> None:
    asked = read_time_question(
        "I moved here in 2019. It rains. Where did Bob live before Miami? Thanks.", REFERENCE
    )

    assert asked is not None
    assert (asked.kind, asked.anchor, asked.span) == (TimeKind.PREDECESSOR, "miami", None)


PIECES = [
    *word_set(
        "where did before after since between and when how often last first 2023 29 February week two years"
    ),
    *word_set(
        "ago vor nach bevor avant de antes depuis entre et y 之前 以后 前に の後 上周 三天前 13月45日 8/5/2023"
    ),
    *word_set("31.02.2023 9999-99-99 Miami Bob's , ? ! . ' ’ ( ) é ü ß İ 0000 99999999 the"),
    *("\n", "\u2028", "\u0000", "\U0001f600", "\ud800"),
]
PIECES.sort()


@pytest.mark.parametrize("at", [REFERENCE, EARLIEST, LATEST, 0])
def test_it_never_raises(at: Instant) -> None:
    seed = 20241130
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(400):
        text = chance.choice((" ", "")).join(chance.choices(PIECES, k=chance.randrange(1, 40)))
        asked = read_time_question(text, at)
        if asked is not None and asked.span is not None and asked.span.start is not None:
            assert asked.span.end is not None
            assert asked.span.start < asked.span.end


@pytest.mark.parametrize(
    "piece",
    ["before ", "where ", "when ", "the ", "2023 ", "vor ", "之前", "前に", "，", "a", "how long ", "1 of 2 of "],
)
def test_hostile_texts_take_no_longer_than_their_end(piece: str) -> None:
    long = piece * (200_000 // len(piece))
    begun = time.thread_time()
    read_time_question(long, REFERENCE)
    took = time.thread_time() - begun

    assert len(long) > 100 * QUESTION_CHARS_MAX
    assert took < 1.0
