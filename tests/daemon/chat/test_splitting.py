"""Questions in halves: nothing is lost, nothing is doubled, and halving comes to an end."""

from __future__ import annotations

import random

from daemon.chat.splitting import DEPTH_MAX, TEXT_CHARS_MIN, span_of, split_chunk, split_interval, split_text
from projections.ports import ChunkText, IntervalText, MemberText, TurnText


def a_turn(text: str, at: int = 0) -> TurnText:
    return TurnText("user", "Ann", at, text)


def test_a_chunk_is_halved_by_turns_and_the_second_half_knows_the_end_of_the_first() -> None:
    before = a_turn("before")
    turns = tuple(a_turn(f"turn {n}", n) for n in range(5))
    parts = split_chunk(ChunkText(turns, before))

    assert parts is not None
    assert [part.chunk for part in parts] == [ChunkText(turns[:3], before), ChunkText(turns[3:], turns[2])]
    assert [part.position for part in parts] == [0, 3]


def test_a_single_turn_is_halved_where_a_sentence_ends() -> None:
    text = (
        "One is short. "
        + "Two is a longer sentence that goes on and on. " * 2
        + "Three ends it all, " * 4
        + "now."
    )
    parts = split_chunk(ChunkText((a_turn(text, 7),)))

    assert parts is not None
    first, second = parts
    assert [part.position for part in parts] == [0, 0]
    assert first.chunk.turns[0].text.endswith("on and on.")
    assert f"{first.chunk.turns[0].text} {second.chunk.turns[0].text}" == text
    assert second.chunk.previous == first.chunk.turns[0]
    assert second.chunk.turns[0].said_at == 7


def test_texts_of_any_script_are_halved_near_their_middle_and_lose_nothing() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    pieces = ["我搬家了。", "word ", "End. ", "\n", "x" * 30, "Was? ", "😀"]
    for _ in range(300):
        text = "".join(dice.choices(pieces, k=dice.randint(1, 120))).strip()
        halves = split_text(text)
        if halves is None:
            assert len(text) < TEXT_CHARS_MIN
            continue

        assert "".join("".join(halves).split()) == "".join(text.split())
        assert min(map(len, halves)) >= len(text) // 4 - 31


def test_halving_ends_by_itself_or_by_its_depth() -> None:
    waiting = [(ChunkText(tuple(a_turn("x" * 10_000, n) for n in range(64))), 0)]
    deepest = 0
    while waiting:
        chunk, depth = waiting.pop()
        deepest = max(deepest, depth)
        parts = split_chunk(chunk) if depth < DEPTH_MAX else None
        waiting += [(part.chunk, depth + 1) for part in parts or ()]

    assert deepest == DEPTH_MAX
    assert split_chunk(ChunkText((a_turn("Hello there."),))) is None


def test_an_interval_is_halved_by_children_and_a_single_child_by_its_text() -> None:
    children = tuple(MemberText(f"text {n}", n, n) for n in range(4))
    halves = split_interval(IntervalText("Ann", children))
    of_one = split_interval(IntervalText("Ann", (MemberText("A sentence. " * 20, 3, 9),)))

    assert halves == (IntervalText("Ann", children[:2]), IntervalText("Ann", children[2:]))
    assert of_one is not None
    assert [(each.scope, each.children[0].time_start, each.children[0].time_end) for each in of_one] == [
        ("Ann", 3, 9)
    ] * 2
    assert split_interval(IntervalText("Ann", children[:1])) is None


def test_a_text_for_many_spans_their_time() -> None:
    assert span_of([MemberText("a", 5, 6), MemberText("b", 1, 9)], "ab") == MemberText("ab", 1, 9)
