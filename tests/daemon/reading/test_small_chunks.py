"""Which chunks say nothing: few, and none in which a word may be an answer."""

from __future__ import annotations

import pytest

from daemon.reading.small_chunks import TURN_CHARS_MAX, says_nothing
from projections.ports import ChunkText, TurnText
from tests.builders import MONDAY


def chunk(*texts: str, after: str | None = None) -> ChunkText:
    """Alice and Melanie in turn; before them Melanie said `after`."""
    turns = tuple(
        TurnText("user", ("Alice", "Melanie Smith")[n % 2], MONDAY, text) for n, text in enumerate(texts)
    )
    return ChunkText(turns, None if after is None else TurnText("user", "Melanie Smith", MONDAY, after))


@pytest.mark.parametrize(
    "texts",
    [
        ("Hi!", "Hello Alice, how are you?", "Great, thanks!"),
        ("Hey Mel!", "Good morning"),
        ("Bye, take care!", "See you later!"),
        ("hahaha", "lol 😂😂"),
        ("🎉🎉🎉", "…", ""),
        ("Thank you so much!", "You're welcome!"),
        ("ok", "yes", "sure"),
        ("Wow, that's awesome!", "Thanks!"),
        ("Guten Morgen!", "Hallo, wie geht's?", "Danke, gut!"),
        ("Bonjour, ça va?", "Oui, merci!"),
        ("Hola, ¿qué tal?", "¡Muy bien, gracias!"),
        ("你好！", "谢谢", "哈哈哈哈", "晚安"),
        ("こんにちは", "ありがとうございます！"),
        ("안녕하세요", "감사합니다"),
    ],
)
def test_greetings_thanks_goodbyes_laughter_and_signs_say_nothing(texts: tuple[str, ...]) -> None:
    assert says_nothing(chunk(*texts))


@pytest.mark.parametrize(
    "text",
    [
        "I moved.",
        "I got the job!",
        "I love you",
        "No",
        "not really",
        "nope",
        "Never!",
        "Nein danke",
        "不",
        "没有",
        "いいえ",
        "Hi, I'm Tom",
        "Thanks, Tom!",
        "See you at 5",
        "see you tomorrow",
        "٣",
        "½",
        "三",
        "Do you like tea?",
        "Tea?",
        "我喜欢茶",
        "Ich wohne in Berlin",
        "Привет",
        "She did",
        "https://example.org",
        "😂 my dog died",
        "Congrats on the baby",
        "hi " * 30,
        "a" * (TURN_CHARS_MAX + 1),
    ],
)
def test_whatever_else_is_said_says_something(text: str) -> None:
    assert not says_nothing(chunk(text))
    assert not says_nothing(chunk("Hi!", text, "Thanks!"))


@pytest.mark.parametrize(
    "answer", ["yes", "No!", "Sure, thanks", "ok", "👍", "haha", "Wow", "", "好", "はい", "Sí"]
)
def test_after_a_question_no_answer_is_skipped(answer: str) -> None:
    assert not says_nothing(chunk(answer, after="Do you like tea?"))
    assert not says_nothing(chunk(answer, after="你喜欢茶吗？"))


@pytest.mark.parametrize(
    "answer", ["yes please", "Sure!", "ok", "👍", "Exactly!", "Definitely", "好", "はい", "Vale", "right"]
)
def test_what_may_agree_to_something_told_is_not_skipped(answer: str) -> None:
    assert not says_nothing(chunk(answer, after="I could book the flight to Rome for us."))
    assert says_nothing(chunk(answer, after="Hi Alice!"))


@pytest.mark.parametrize("answer", ["Perfect!", "Sounds good", "Great, thanks"])
def test_what_approves_of_a_proposal_agrees_to_it(answer: str) -> None:
    assert not says_nothing(chunk(answer, after="I'll book the flight to Rome for us."))
    assert says_nothing(chunk(answer, after="The flight to Rome leaves at noon."))


@pytest.mark.parametrize("answer", ["Wow!", "Thanks!", "haha", "😂", "Bye!", "谢谢"])
def test_what_agrees_to_nothing_is_skipped_after_something_told(answer: str) -> None:
    assert says_nothing(chunk(answer, after="I booked the flight to Rome for us."))
