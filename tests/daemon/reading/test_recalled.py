"""Our own answers that come back are recognised; what people say is theirs, also when they say it again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daemon.asking.contexts import context_line
from daemon.reading.recalled import (
    CLOCKS_APART_MS,
    GivenOut,
    normal_line,
    strip,
    strip_blocks,
    strip_chunk,
)
from projections.ports import ChunkText, TurnText
from tests.builders import MONDAY, ManualClock

ALICE, BOB = b"alice", b"bob"
KEY = b"secret of the store"
FACT = "Alice is allergic to nuts."
CONTEXT = "\n".join(
    [
        context_line(MONDAY, FACT),
        context_line(MONDAY, "Alice: I moved to Miami.\nBob: How do you like it there?"),
        context_line(MONDAY, "两只猫住在北京的家里"),
    ]
)


def nothing(line: str) -> bool:
    return not line and False


def given_out_to(user: bytes) -> Callable[[str], bool]:
    given_out = GivenOut(KEY, lambda: MONDAY)
    given_out.note(ALICE, CONTEXT)
    return lambda line: given_out.knows(user, line, MONDAY)


@pytest.mark.parametrize(
    "text",
    [
        "<memories>\n{}\n</memories>",
        "<relevant-memories>\n{}\n</relevant-memories>",
        '<relevant_memories count="3">{}</relevant_memories>',
        "<hindsight_memories>{}</hindsight_memories>",
        "<supermemory-context>{}</supermemory-context>",
        "<memory-context>{}</memory-context>",
        "<MEMORY_BLOCKS><persona>x</persona>{}</MEMORY_BLOCKS>",
        "<FACTS>\n{}\n</FACTS>",
        "<memories>a <memories>{}</memories> b</memories>",
        "Relevant memories:\n- {}\n- another one",
        "## Relevant memories about Alice:\n\n- {}\n\n- another one",
        "User Memories:\n- {}",
        "**Relevant past memories:**\n1. {}\n2) another one",
        "相关记忆：\n- {}",
    ],
)
def test_framed_blocks_are_cut_out_of_every_turn(text: str) -> None:
    block = text.format(FACT)

    assert strip(block, nothing) == strip_blocks(block) == ""
    assert strip_blocks(f"Before.\n{block}\nAfter.").split() == ["Before.", "After."]
    assert strip_blocks(f"{block}\n\nI like tea.\n{block}") == "I like tea."


@pytest.mark.parametrize(
    "text",
    [
        FACT,
        "",
        "  \n two lines, not touched \n",
        "My memories:\n- my first kiss\n- the sea",
        "Memories:\n- my first kiss",
        "Relevant memories: none.",
        "Relevant memories:\nI have none.",
        "<memory unit='KiB'>1048576</memory>",
        "<facts>a</facts><entities>b</entities>",
        "<memories> is a tag that was never closed",
        "</memories> closed only",
        "a < b and <i>c</i> </b>",
        "I told you about the <memoirs>of Casanova</memoirs>.",
    ],
)
def test_what_a_person_writes_is_left_to_the_letter(text: str) -> None:
    assert strip_blocks(text) == text


def test_lines_that_were_given_out_are_known_with_any_bullet_and_date_and_in_any_case() -> None:
    answer = (
        "You are a helpful assistant. Today is Monday.\n"
        f"- [1 July 2024] {FACT}\n"
        f"  * {FACT.upper()}\n"
        f"> 3. [2024-07-01]  Alice  is allergic\tto nuts.\n"
        "Alice: I moved to Miami.\n"
        "2. Bob: How do you like it there?\n"
        "• 两只猫住在北京的家里\n"
        "She should not eat the cake."
    )

    assert strip(answer, given_out_to(ALICE)) == (
        "You are a helpful assistant. Today is Monday.\nShe should not eat the cake."
    )
    assert strip(answer, given_out_to(BOB)) == answer
    assert strip(answer, nothing) == answer
    assert strip(CONTEXT, given_out_to(ALICE)) == ""


def test_a_part_of_a_line_and_a_line_of_a_few_letters_are_not_known() -> None:
    given_out = GivenOut(KEY, lambda: MONDAY)
    given_out.note(ALICE, "Alice: yes\nok\n是的\n" + FACT)

    assert not any(
        given_out.knows(ALICE, line, MONDAY) for line in ("Alice: yes", "ok", "是的", "Alice is allergic", "")
    )
    assert strip("Alice: yes\nok\n是的", lambda line: True) == "Alice: yes\nok\n是的"


def test_people_may_repeat_themselves_and_machines_may_not() -> None:
    said = ("user", "assistant", "system", "tool", "customer", "user")
    chunk = ChunkText(
        tuple(TurnText(role, None, MONDAY, f"{FACT}\n<memories>x</memories>") for role in said),
        TurnText("assistant", None, MONDAY, FACT),
    )
    is_known = given_out_to(ALICE)
    stripped = strip_chunk(chunk, lambda line, said_at: is_known(line) and said_at == MONDAY)

    assert [turn.text for turn in stripped.turns] == [FACT, "", "", "", FACT, FACT]
    assert stripped.previous is not None
    assert stripped.previous.text == ""
    assert [turn.role for turn in stripped.turns] == list(said)
    assert strip_chunk(ChunkText(chunk.turns[:1]), lambda line, said_at: True).previous is None


def test_the_latest_lines_of_the_latest_users_are_known() -> None:
    given_out = GivenOut(KEY, lambda: MONDAY, users_max=2, lines_max=3)
    lines = [f"Alice has {n} cats at her home." for n in range(10)]
    for line in lines[:3]:
        given_out.note(ALICE, line)
    given_out.note(ALICE, lines[0])
    given_out.note(ALICE, lines[3])

    assert [given_out.knows(ALICE, line, MONDAY) for line in lines[:4]] == [True, False, True, True]
    given_out.note(BOB, lines[5])
    given_out.note(ALICE, lines[0])
    given_out.note(b"carol", lines[6])
    assert [given_out.knows(user, lines[0], MONDAY) for user in (ALICE, BOB)] == [True, False]
    assert not given_out.knows(BOB, lines[5], MONDAY)
    given_out.note(ALICE, "\n".join(lines))
    assert sum(given_out.knows(ALICE, line, MONDAY) for line in lines) == 3


def test_what_was_said_before_it_was_given_out_first_is_no_echo() -> None:
    clock = ManualClock()
    given_out = GivenOut(KEY, clock)
    given_out.note(ALICE, FACT)
    first = clock()
    clock.advance(86_400_000)
    given_out.note(ALICE, FACT)

    assert given_out.knows(ALICE, FACT, first)
    assert given_out.knows(ALICE, FACT, first - CLOCKS_APART_MS)
    assert not given_out.knows(ALICE, FACT, first - CLOCKS_APART_MS - 1)


def test_no_words_are_kept() -> None:
    given_out = GivenOut(KEY, lambda: MONDAY)
    given_out.note(ALICE, CONTEXT)

    assert "nuts" not in repr(vars(given_out))


def test_a_line_is_known_in_its_normal_form() -> None:
    for line in (FACT, f"- {FACT}", f"1. - > [8 May 2023] {FACT}", "- 1. 2. x", "[1] [2] x", "- - -", "５ cats"):
        assert normal_line(normal_line(line)) == normal_line(line)
    assert normal_line("> - [8 May 2023]  Alice is  allergic to NUTS.") == FACT.casefold()
    known = given_out_to(ALICE)
    assert known(f"- {FACT}")
    assert known(FACT)
    assert not known(FACT[:-1])
