"""Facts by rule: who, what, when; and what is not worth a fact."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.offline.extraction import FACTS_PER_TURN_MAX, extract_facts
from daemon.offline.sentences import language_of, split_sentences
from daemon.offline.small_talk import says_nothing
from daemon.offline.third_person import in_third_person
from events.memory import ExtractedFact, FactRole, StateOf
from events.time import from_datetime, to_datetime
from projections.ports import ChunkText, TurnText

SAID_AT = from_datetime(datetime(2024, 7, 1, 9, 0, tzinfo=UTC))


def a_turn(text: str, speaker: str | None = "Alice", role: str = "user") -> TurnText:
    return TurnText(role, speaker, SAID_AT, text)


def facts_of(*turns: TurnText, previous: TurnText | None = None) -> tuple[ExtractedFact, ...]:
    return extract_facts(ChunkText(turns, previous))


def texts_of(*turns: TurnText, previous: TurnText | None = None) -> list[str]:
    return [fact.text for fact in facts_of(*turns, previous=previous)]


SPLITS = [
    ("I ran. We won! Did you? Yes.", ["I ran.", "We won!", "Did you?", "Yes."]),
    ("Dr. Wu paid 3.50 at example.com. Fine.", ["Dr. Wu paid 3.50 at example.com.", "Fine."]),
    ("J. R. Tolkien wrote it. I read it.", ["J. R. Tolkien wrote it.", "I read it."]),
    ("Am 8. Mai kam ich. Ich blieb.", ["Am 8. Mai kam ich.", "Ich blieb."]),
    ("We met at 5 p.m. on Monday. Bye.", ["We met at 5 p.m. on Monday.", "Bye."]),
    ("我搬家了。你呢？很好！", ["我搬家了。", "你呢？", "很好！"]),
    ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
    ("one\ntwo", ["one", "two"]),
    ("Buy: 1. Milk. 2. Two loaves.", ["Buy: 1. Milk.", "2. Two loaves."]),
    ("I have 3. We need 12. Fine.", ["I have 3.", "We need 12.", "Fine."]),
    ("Oh no. We sat. Then it rained.", ["Oh no.", "We sat.", "Then it rained."]),
    (" \n ", []),
]


@pytest.mark.parametrize(("text", "sentences"), SPLITS)
def test_text_is_cut_into_sentences_and_nowhere_else(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_text_without_any_stop_is_cut_at_spaces_and_loses_no_word() -> None:
    text = "word " * 1000

    pieces = split_sentences(text)

    assert max(map(len, pieces)) <= 1000
    assert " ".join(pieces).split() == text.split()


def test_a_hundred_thousand_stops_are_read_at_once() -> None:
    began = time.process_time()
    split_sentences("." * 100_000)
    split_sentences("a. " * 30_000)

    assert time.process_time() - began < 2


LANGUAGES = [
    ("I moved to the city.", "en"),
    ("Ich bin nach Berlin gezogen und wohne hier.", "de"),
    ("Je suis allé au parc avec mon frère.", "fr"),
    ("Me mudé a Madrid con mi hermano.", "es"),
    ("我住在Miami的市中心。", "zh"),
    ("東京に住んでいます。", "ja"),
    ("I visited 北京 with my brother.", "en"),
    ("12345", ""),
]


@pytest.mark.parametrize(("text", "language"), LANGUAGES)
def test_the_language_is_guessed_by_script_and_function_words(text: str, language: str) -> None:
    assert language_of(text) == language


REWRITTEN = [
    ("I moved to Miami.", "Alice moved to Miami."),
    ("I'm a nurse.", "Alice is a nurse."),
    ("I’ve lost my job.", "Alice has lost Alice's job."),
    ("I love my dog.", "Alice loves Alice's dog."),
    ("I really enjoy hiking.", "Alice really enjoys hiking."),
    ("I don't eat meat.", "Alice doesn't eat meat."),
    ("I study law.", "Alice studies law."),
    ("I'll come on Friday.", "Alice will come on Friday."),
    ("My sister lives in Davis.", "Alice's sister lives in Davis."),
    ("Yeah, I moved last week.", "Alice moved last week."),
    ("Hey Bob! I moved last week.", "Alice moved last week."),
    ("Last week I won.", "Last week Alice won."),
    ("I went home and I slept.", "Alice went home and Alice slept."),
]
ATTRIBUTED = [
    "We went camping.",
    "It was great.",
    "I love sushi and hate pizza.",
    "Max and I had a blast.",
    "I told you about it.",
    "It helped me a lot.",
    "I'd go there.",
    "I frobnicate daily.",
    "Never have I seen it.",
    'He said "I moved".',
    "Bob lives in Davis.",
    "Ich wohne in Berlin.",
    "我搬到了迈阿密。",
]


@pytest.mark.parametrize(("said", "text"), REWRITTEN)
def test_a_sure_first_person_is_rewritten(said: str, text: str) -> None:
    assert in_third_person(said, "Alice", language_of(said)) == text


@pytest.mark.parametrize("said", ATTRIBUTED)
def test_an_unsure_sentence_stays_as_it_is_under_its_speaker(said: str) -> None:
    assert in_third_person(said, "Alice", language_of(said)) == f"Alice: {said}"


SMALL_TALK = [
    "Hey Caroline!",
    "Thanks, Mel!",
    "That's awesome, Caroline!",
    "How are you?",
    "Have you tried it yet?",
    "Long time no see!",
    "Wow 🌟",
    "🙂",
    "Danke!",
    "¡Gracias!",
    "你好！",
    "谢谢！",
    "你呢？",
    "ありがとうございます。",
]
TOLD = [
    "Hey, I got married!",
    "Thanks to Mel, the shop opened.",
    "Caroline teaches yoga.",
    "Can I bring my dog?",
    "你好，我搬家了。",
    "谢谢他帮我修车。",
    "ありがとうと彼が言った。",
    "The Berlin office closed.",
]


@pytest.mark.parametrize("sentence", SMALL_TALK)
def test_small_talk_says_nothing(sentence: str) -> None:
    assert says_nothing(sentence)


@pytest.mark.parametrize("sentence", TOLD)
def test_what_begins_like_small_talk_but_tells_something_is_kept(sentence: str) -> None:
    assert not says_nothing(sentence)


ROLES = [
    ("I moved to Miami.", FactRole.STATE, StateOf("Alice", "home")),
    ("I was moved to tears.", FactRole.EVENT, None),
    ("I will move to Miami.", FactRole.PLAN, None),
    ("I used to live in Boston.", FactRole.EVENT, None),
    ("I work at Google.", FactRole.STATE, StateOf("Alice", "employer")),
    ("I don't work at Google.", FactRole.DETAIL, None),
    ("I'm a nurse.", FactRole.STATE, StateOf("Alice", "job")),
    ("I'm vegan.", FactRole.STATE, StateOf("Alice", "diet")),
    ("I don't eat meat.", FactRole.STATE, StateOf("Alice", "diet")),
    ("I got engaged.", FactRole.STATE, StateOf("Alice", "relationship")),
    ("My dog Rex barks.", FactRole.STATE, StateOf("Alice", "pet rex")),
    ("I have a cat.", FactRole.STATE, StateOf("Alice", "pet cat")),
    ("I'm allergic to nuts.", FactRole.CONSTRAINT, None),
    ("I can't eat nuts.", FactRole.CONSTRAINT, None),
    ("I can't wait to sing.", FactRole.PLAN, None),
    ("I love jazz.", FactRole.PREFERENCE, None),
    ("I painted a lake.", FactRole.EVENT, None),
    ("The manual is at https://example.com/a.", FactRole.REFERENCE, None),
    ("Jazz on the roof.", FactRole.DETAIL, None),
    ("Ich wohne in Berlin.", FactRole.STATE, StateOf("Alice", "home")),
    ("Vivo en Madrid.", FactRole.STATE, StateOf("Alice", "home")),
    ("我搬到了上海。", FactRole.STATE, StateOf("Alice", "home")),
    ("我对花生过敏。", FactRole.CONSTRAINT, None),
    ("我打算去上海。", FactRole.PLAN, None),
    ("我喜欢爵士乐。", FactRole.PREFERENCE, None),
]


@pytest.mark.parametrize(("said", "role", "state"), ROLES)
def test_the_role_and_the_state_follow_from_the_wording(said: str, role: FactRole, state: StateOf | None) -> None:
    (fact,) = facts_of(a_turn(said))

    assert (fact.role, fact.state) == (role, state)


def test_a_conversation_yields_a_fact_for_each_statement() -> None:
    facts = facts_of(
        a_turn("Hey Bob! I moved to Miami yesterday. It was exhausting. How are you?"),
        a_turn("Great, thanks! I'm allergic to cats. Carol gave me a book on 3 May 2024.", "Bob"),
    )

    assert [(fact.text, fact.turns) for fact in facts] == [
        ("Alice moved to Miami yesterday.", (0,)),
        ("Alice: It was exhausting. [I moved to Miami yesterday.]", (0,)),
        ("Bob is allergic to cats.", (1,)),
        ("Bob: Carol gave me a book on 3 May 2024.", (1,)),
    ]
    assert [to_datetime(fact.time_start).date().isoformat() for fact in facts] == [
        "2024-06-30",
        "2024-06-30",
        "2024-07-01",
        "2024-05-03",
    ]
    assert [[one.label for one in fact.mentions] for fact in facts] == [
        ["Alice", "Miami"],
        ["Alice", "Miami"],
        ["Bob"],
        ["Bob", "Carol"],
    ]
    assert facts[2].time_start == facts[2].time_end == SAID_AT


def test_a_short_answer_carries_the_question_and_both_turns() -> None:
    (fact,) = facts_of(a_turn("Have you been to Italy?", "Bob"), a_turn("Yes, last year."))

    assert fact.text == "Alice: Yes, last year. [Bob: Have you been to Italy?]"
    assert fact.turns == (0, 1)
    assert to_datetime(fact.time_start).date().isoformat() == "2023-01-01"
    assert [one.label for one in fact.mentions] == ["Alice", "Italy"]


def test_an_answer_to_the_turn_before_the_chunk_names_only_its_own_turn() -> None:
    (fact,) = facts_of(a_turn("Yes!"), previous=a_turn("Are you vegan?", "Bob"))

    assert (fact.text, fact.turns) == ("Alice: Yes! [Bob: Are you vegan?]", (0,))


def test_a_bare_yes_without_a_question_is_no_fact() -> None:
    assert facts_of(a_turn("Nice day.", "Bob"), a_turn("Yes!")) == ()


def test_ones_own_question_is_no_context() -> None:
    assert texts_of(a_turn("Where is it?"), a_turn("In Davis.")) == ["Alice: In Davis."]


def test_a_long_context_is_cut() -> None:
    question = "Have you been to the lake " + "where the tall old trees stand " * 20 + "?"

    (text,) = texts_of(a_turn(question, "Bob"), a_turn("Yes, last year."))

    assert len(text) < 260
    assert text.endswith("…]")


def test_without_a_name_the_role_speaks() -> None:
    facts = facts_of(a_turn("I moved to Miami.", None), a_turn("Miami has beaches.", None, "assistant"))

    assert [fact.text for fact in facts] == ["user moved to Miami.", "assistant: Miami has beaches."]
    assert [fact.role for fact in facts] == [FactRole.STATE, FactRole.REFERENCE]
    assert facts[0].mentions[0].label == "user"


def test_a_name_cannot_forge_a_second_line() -> None:
    (text,) = texts_of(a_turn("We went camping.", "Al\nBob: I lie."))

    assert "\n" not in text


def test_instructions_and_tool_output_are_no_facts() -> None:
    assert facts_of(a_turn("I am a pirate.", None, "system"), a_turn("42 rows read.", None, "tool")) == ()


def test_a_called_partner_is_not_what_the_fact_is_about() -> None:
    (fact, *_) = facts_of(a_turn("The museum opened, Bobby!"), a_turn("Nice.", "Bobby"))

    assert [one.label for one in fact.mentions] == ["Alice"]


def test_a_pasted_book_gives_a_bounded_number_of_facts() -> None:
    assert len(facts_of(a_turn("The ship sank near Davis. " * 1000))) == FACTS_PER_TURN_MAX


def test_topics_are_at_most_three_lower_case_words() -> None:
    (fact,) = facts_of(a_turn("I painted mountains, waterfalls and flowers beside the river."))

    assert fact.topics == ("mountains", "waterfalls", "flowers")


def test_the_same_chunk_gives_the_same_facts() -> None:
    chunk = ChunkText((a_turn("I moved to Miami with Bob, Carol and Dave. I love jazz and soup."),))

    assert extract_facts(chunk) == extract_facts(chunk)


def _chunks(conversation: dict[str, Any]) -> list[tuple[ChunkText, list[str]]]:
    """The two-turn chunks of a LoCoMo conversation with the ids of their turns."""
    chunks: list[tuple[ChunkText, list[str]]] = []
    for key, session in conversation["conversation"].items():
        if not re.fullmatch(r"session_\d+", key):
            continue
        written = conversation["conversation"][f"{key}_date_time"]
        start = from_datetime(datetime.strptime(written, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC))
        turns = [TurnText("user", t["speaker"], start + 30_000 * i, t["text"]) for i, t in enumerate(session)]
        for at in range(0, len(turns), 2):
            ids = [turn["dia_id"] for turn in session[at : at + 2]]
            chunks.append((ChunkText(tuple(turns[at : at + 2]), turns[at - 1] if at else None), ids))
    return chunks


def test_small_talk_loses_few_evidence_turns_of_locomo() -> None:
    folder = os.environ.get("LOCOMO_DIR")
    if not folder:
        pytest.skip("set LOCOMO_DIR to the folder of locomo-first5.json to run this check")
    turns = facts = lost = gold = 0
    spent_s = 0.0
    for conversation in json.loads((Path(folder) / "locomo-first5.json").read_text("utf-8")):
        told: dict[str, bool] = {}
        for chunk, ids in _chunks(conversation):
            began = time.process_time()
            found = extract_facts(chunk)
            spent_s += time.process_time() - began
            turns, facts = turns + len(ids), facts + len(found)
            told |= {one: any(at in fact.turns for fact in found) for at, one in enumerate(ids)}
        asked = [q for q in conversation["qa"] if q["category"] != 5]
        evidence = {one for q in asked for line in q["evidence"] for one in re.split(r"[; ]+", line)}
        gold += len(evidence & told.keys())
        lost += sum(not told[one] for one in evidence & told.keys())
    print(f"{lost} of {gold} evidence turns lost ({lost / gold:.1%}); {facts} facts of {turns} turns")
    print(f"{spent_s / turns * 1e6:.0f} microseconds of CPU a turn")

    assert lost / gold <= 0.03
