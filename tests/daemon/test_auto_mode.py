"""Which recall `auto` chooses for a question, in several languages, and when a model looks further."""

from __future__ import annotations

import pytest

from daemon.asking.auto_mode import (
    LOOKED_AT_CHARS,
    LOW_CONFIDENCE,
    Chosen,
    Means,
    Shape,
    WhyMode,
    choose_shape,
    look_further,
)
from projections.recall.confidence import Confidence
from projections.recall.time_question import TimeKind

PLAIN = (
    "Where does Ann live?",
    "What is Caroline's identity?",
    "When did Melanie run a charity race?",
    "What did Ann name her dog?",
    "Why was the class cancelled?",
    "What is her address?",
    "Wo wohnt Anna?",
    "Wann hat Anna geheiratet?",
    "Welche Farbe hat ihr Auto?",
    "Où habite Anne ?",
    "¿Dónde vive Ana?",
    "Dove abita Anna?",
    "Onde mora Ana?",
    "Waar woont Anna?",
    "Где живёт Анна?",
    "安娜住在哪里？",
    "アンナはどこに住んでいますか？",
    "안나는 어디에 살아요?",
)
LISTS = (
    "What books has Melanie read?",
    "What activities does Melanie do with her family?",
    "Which cities did she visit?",
    "What are all the pets of Ann?",
    "List the restaurants she likes.",
    "How many children does she have?",
    "What kinds of music does he like?",
    "Where has she camped?",
    "Welche Bücher hat Anna gelesen?",
    "Wo war Anna überall?",
    "Nenne ihre Hobbys.",
    "Wie viele Katzen hat sie?",
    "Quels livres a-t-elle lus ?",
    "Combien de chats a-t-elle ?",
    "¿Cuáles son sus libros?",
    "¿Cuántos gatos tiene?",
    "Quali libri ha letto?",
    "Quais livros ela leu?",
    "Welke boeken heeft ze gelezen?",
    "Какие книги она читала?",
    "Сколько у неё кошек?",
    "她读过哪些书？",
    "她有多少只猫？",
    "彼女の趣味をすべて教えて",
    "그녀의 취미를 모두 알려줘",
)
COMPARISONS = (
    "Does Ann like tea more than coffee?",
    "Is Bob older than Ann?",
    "What do Jon and Gina have in common?",
    "What is the difference between her two jobs?",
    "Mag Anna lieber Tee, mehr als Kaffee?",
    "Was haben Jon und Gina gemeinsam?",
    "Aime-t-elle plus le thé que le café ?",
    "¿Qué tienen en común Jon y Gina?",
    "Che cosa hanno in comune?",
    "O que eles têm em comum?",
    "Wat is het verschil?",
    "Что у них общего?",
    "两份工作有什么不同？",
    "二人の共通の趣味は何ですか？",
    "두 사람의 공통점은?",
)
SEVERALS = (
    "What did Ann and Bob talk of at the lake?",
    "Where did Anna und Ben meet?",
    "Wo haben Anna und Ben geheiratet?",
    "Où Anne et Paul ont-ils dîné ?",
    "¿Dónde cenaron Ana y Pablo?",
    "Где Анна и Борис познакомились?",
    "What is Ann's sister's job?",
    "What is the name of the friend who lives in Oslo?",
    "Wie heißt der Freund, der in Oslo wohnt?",
)


def choose(question: str, *, time: TimeKind | None = None, named: int = 1, nodes: int = 1_000) -> Chosen:
    return choose_shape(question, time=time, named=named, nodes=nodes, k=10)


@pytest.mark.parametrize("question", PLAIN)
def test_a_lookup_is_answered_by_single_memories(question: str) -> None:
    assert choose(question) == Chosen(Shape.SINGLE, WhyMode.PLAIN)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        *((question, WhyMode.LIST) for question in LISTS),
        *((question, WhyMode.COMPARISON) for question in COMPARISONS),
        *((question, WhyMode.SEVERAL) for question in SEVERALS),
    ],
)
def test_what_lies_in_several_places_is_looked_for_in_trees(question: str, why: WhyMode) -> None:
    assert choose(question) == Chosen(Shape.TREES, why)


@pytest.mark.parametrize("time", TimeKind)
def test_an_order_of_time_is_looked_for_in_trees_and_a_date_is_looked_up(time: TimeKind) -> None:
    expected = WhyMode.PLAIN if time in (TimeKind.WHEN, TimeKind.AT) else WhyMode.TIME

    assert choose("Where did Ann live?", time=time).why is expected


@pytest.mark.parametrize(
    ("question", "named", "why"),
    [
        ("安娜和本在哪里认识的？", 2, WhyMode.SEVERAL),
        ("安娜和本在哪里认识的？", 1, WhyMode.PLAIN),
        ("アンナとベンはどこで会いましたか？", 2, WhyMode.SEVERAL),
        ("What did ann give to bob?", 2, WhyMode.PLAIN),
    ],
)
def test_two_names_that_something_joins_are_several(question: str, named: int, why: WhyMode) -> None:
    assert choose(question, named=named).why is why


def test_of_few_memories_each_is_weighed_by_itself_whatever_is_asked() -> None:
    assert choose(LISTS[0], nodes=30) == Chosen(Shape.SINGLE, WhyMode.SMALL)
    assert choose(LISTS[0], nodes=31).why is WhyMode.LIST


def test_a_page_of_text_takes_no_longer_than_its_beginning() -> None:
    assert choose("Where? " + "x " * LOOKED_AT_CHARS + LISTS[0]).why is WhyMode.PLAIN


@pytest.mark.parametrize(
    ("confidence", "means", "why"),
    [
        (Confidence(0.9, insufficient=False), Means(True, True), None),
        (Confidence(LOW_CONFIDENCE, insufficient=False), Means(True, True), None),
        (Confidence(LOW_CONFIDENCE - 0.001, insufficient=False), Means(True, True), WhyMode.UNSURE),
        (Confidence(0.1, insufficient=True), Means(True, True), WhyMode.UNSURE),
        (Confidence(0.1, insufficient=True), Means(False, True), WhyMode.NO_MODEL),
        (Confidence(0.1, insufficient=True), Means(True, False), WhyMode.CAPPED),
    ],
)
def test_a_model_looks_further_only_where_the_first_recall_is_not_sure(
    confidence: Confidence, means: Means, why: WhyMode | None
) -> None:
    assert look_further(confidence, means) is why
