"""That the harness of compression counts what it says, on a talk small enough to be counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from daemon.config_values import ConfigInvalid
from projections.ports import Vectors
from projections.recall.lexical import LexicalIndex
from tests.builders import MONDAY
from tests.quality.compression import (
    AGPR,
    PLAIN,
    RATIOS,
    WHOLE,
    by_session,
    evaluate,
    keep_all,
    ours,
    parameters_for,
    settings_for,
    uncompressed,
)
from tests.quality.compression_bars import bar_tables, ways_for
from tests.quality.compression_inputs import (
    MINILM_ENV,
    Embedding,
    Inputs,
    Kind,
    Memory,
    embed_with,
    load_inputs,
    make_inputs,
    texts_to_embed,
)
from tests.quality.compression_scores import Compressed, Groups, Near, Setting
from tests.quality.locomo import FILE_NAME, Category, Question

HOUR_MS = 3_600_000
SAID = ("red bicycle", "old radio", "wooden table", "small boat", "lentil soup", "silver ring")


def _by_first_letter(texts: Sequence[str]) -> Vectors:
    """A direction a first letter: only equal first letters are alike."""
    rows = np.zeros((len(texts), 26), dtype=np.float32)
    for row, text in enumerate(texts):
        rows[row, ord(text[0].lower()) - ord("a")] = 1
    return rows


def _asked(text: str, *gold: str) -> Question:
    return Question(text, Category.SINGLE_HOP, frozenset(gold), {})


def _talk(said: Sequence[str] = SAID, questions: Sequence[Question] = ()) -> Inputs:
    """A memory a turn, three a session, sessions a day apart."""
    memories = [
        Memory(text, MONDAY + (at // 3) * 24 * HOUR_MS + at, frozenset((f"D{at}",)), at, at // 3)
        for at, text in enumerate(said)
    ]
    return make_inputs("talk", Kind.TURNS, memories, questions or [_asked("bicycle", "D0")], _by_first_letter)


def _setting(characters: int, **changes: object) -> Setting:
    words = replace(AGPR.agpr, cosine_weight=0.0, gamma=1.0)
    return replace(AGPR, agpr=words, characters=characters, **changes)  # type: ignore[arg-type]


def test_a_question_is_answered_as_far_as_its_gold_turns_fit() -> None:
    talk = _talk(questions=[_asked("bicycle radio", "D0", "D1"), _asked("nothing of it", "D5")])

    both = Compressed(talk, keep_all(talk, 0, 0)).shares(_setting(len("red bicycle") + len("old radio")))
    one = Compressed(talk, keep_all(talk, 0, 0)).shares(_setting(len("red bicycle")))

    assert both.tolist() == [1, 0]
    assert one.tolist() == [0.5, 0]


def test_a_whole_group_is_returned_as_one_text_or_not_at_all() -> None:
    talk = _talk(questions=[_asked("bicycle", "D0"), _asked("bicycle", "D5")])
    group: Groups = [(0, 5), (1,), (2,), (3,), (4,)]
    characters = len("red bicycle") + 1 + len("silver ring")

    fits = Compressed(talk, group).shares(_setting(characters, opened=False))
    not_quite = Compressed(talk, group).shares(_setting(characters - 1, opened=False))

    assert fits.tolist() == [1, 1]
    assert not_quite.tolist() == [0, 0]


def test_an_opened_group_returns_the_member_the_question_is_about_first() -> None:
    talk = _talk(questions=[_asked("ring", "D5"), _asked("ring", "D0")])
    left = Compressed(talk, [(0, 5), (1,), (2,), (3,), (4,)])

    shown = left.shares(_setting(len("silver ring")))

    assert shown.tolist() == [1, 0]


def test_the_farther_members_stand_behind_nodes_that_are_worth_more_than_they() -> None:
    # Both "boat" memories are found; what is with the first one has nothing to do with the question.
    said = ("boat boat", "old radio", "wooden table", "the long old boat is red", "lentil soup", "silver ring")
    talk = _talk(said, questions=[_asked("boat", "D3"), _asked("boat", "D1")])
    left = Compressed(talk, [(0, 1), (2,), (3,), (4,), (5,)])
    room = len("boat boat") + len("the long old boat is red")

    by_group = left.shares(_setting(room, member_weight=0.0))
    by_member = left.shares(_setting(room, member_weight=1.0))

    assert by_group.tolist() == [0, 1]
    assert by_member.tolist() == [1, 0]


def test_a_text_whose_turns_are_all_returned_takes_no_room_again() -> None:
    turns = frozenset(("D0",))
    memories = [Memory(text, MONDAY, turns, 0, 0) for text in ("red boat", "new boat")]
    memories.append(Memory("the boat of old", MONDAY, frozenset(("D1",)), 1, 0))
    talk = make_inputs("talk", Kind.FACTS, memories, [_asked("boat", "D0", "D1")], _by_first_letter)
    room = len("red boat") + len("the boat of old")

    assert Compressed(talk, keep_all(talk, 0, 0)).shares(_setting(room)).tolist() == [1]


def test_a_pruned_memory_is_found_no_more() -> None:
    talk = _talk(questions=[_asked("bicycle", "D0"), _asked("soup", "D4")])

    found = evaluate([talk], lambda _inputs, _ratio, _seed: [(4,), (5,)], 0.5, settings=(AGPR,))[AGPR.name]

    assert found.by_question.tolist() == [0, 1]
    assert found.cut == pytest.approx(4 / 6)
    assert found.kept(uncompressed([talk], (AGPR,))[AGPR.name]) == 0.5


def test_the_vector_of_a_group_is_the_direction_of_the_sum_of_its_members() -> None:
    talk = _talk(("red", "rose", "boat", "bird", "soup", "salt"))

    vectors = Compressed(talk, [(0, 1, 2), (3,)]).vectors()

    red, boat = ord("r") - ord("a"), ord("b") - ord("a")
    assert vectors[0, [red, boat]] == pytest.approx((2 / 5**0.5, 1 / 5**0.5))
    assert vectors[1, boat] == 1


@pytest.mark.parametrize("groups", [[(0, 1), (1, 2)], [()]])
def test_groups_that_share_a_memory_or_have_none_are_refused(groups: Groups) -> None:
    with pytest.raises(ValueError, match="disjoint"):
        Compressed(_talk(), groups)


def test_members_are_as_near_by_words_as_the_product_has_it() -> None:
    talk = _talk(("red boat boat", "boat", "red", "x", "y", "z"), questions=[_asked("red boat", "D0")])
    groups: Groups = [(0, 1), (2, 3), (4, 5)]
    index = LexicalIndex()
    for row, group in enumerate(groups):
        index.add_together(row, [talk.term_counts[member] for member in group])
    weights = index.weights(talk.question_terms[0])

    near = Compressed(talk, groups).nearness(0, Near.WORDS)

    assert near == pytest.approx([index.score_counts(weights, counts) for counts in talk.term_counts])
    assert near[0] > near[1] > near[3] == 0


def test_ours_never_merges_across_the_sessions_of_turns_and_keeps_to_its_caps() -> None:
    said = [f"{letter} {number}" for number in range(40) for letter in "abc"]
    talk = _talk(said)

    for ratio, cap in zip(RATIOS, (2, 3, 5), strict=True):
        groups = ours(Kind.TURNS)(talk, ratio, 0)
        assert sorted(member for group in groups for member in group) == list(range(len(said)))
        assert all(len({talk.memories[member].session for member in group}) == 1 for group in groups)
        assert max(map(len, groups)) <= cap


def test_settings_name_what_tells_the_nearness_of_members() -> None:
    assert [each.near for each in settings_for(Embedding.HASHING)] == [Near.WORDS] * 3
    assert [each.near for each in settings_for(Embedding.MINILM)] == [Near.COSINE, Near.COSINE, Near.WORDS]
    assert (AGPR.agpr.gamma, PLAIN.agpr.gamma, WHOLE.opened) == (0.9, 1.0, False)


def test_the_bars_have_a_row_a_ratio_and_say_what_was_reached() -> None:
    talk = _talk([f"{letter} {number}" for number in range(12) for letter in "abc"], [_asked("a 3", "D9")])

    ways = [each for each in ways_for(Kind.TURNS) if len(each.seeds) == 1]
    kept, bars = bar_tables([talk] * 4, Kind.TURNS, Embedding.HASHING, ways)

    assert [row[0] for row in bars.rows] == ["30 %", "50 %", "70 %"]
    assert [row[1] for row in bars.rows] == [99.5, 99.5, 99.5]
    assert all(row[-1] == ("yes" if float(row[2]) >= 99.5 else "no") for row in bars.rows)
    assert all(len(row) == len(kept.headings) for row in kept.rows)


def _write_locomo(folder: Path) -> Path:
    said = ("I bought a red bicycle.", "I repaired an old radio.", "We met in Porto.")
    wire = {
        "sample_id": "conv-1",
        "conversation": {
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": ("Anna", "Ben")[n % 2], "dia_id": f"D1:{n + 1}", "text": text}
                for n, text in enumerate(said)
            ],
        },
        "qa": [{"question": "What did Anna buy?", "category": 4, "evidence": ["D1:1"], "answer": "a bicycle"}],
        "observation": {
            "session_1_observation": {
                "Ben": [["Ben and Anna met in Porto.", ["D1:3", "D1:2"]], ["Nothing.", "D9:1"]],
                "Anna": [["Anna has a red bicycle.", "D1:01"]],
            }
        },
    }
    path = folder / FILE_NAME
    path.write_bytes(msgspec.json.encode([wire]))
    return path


def test_facts_stand_at_the_last_of_their_turns_and_those_without_one_are_left_out(tmp_path: Path) -> None:
    (facts,) = load_inputs(_write_locomo(tmp_path), Kind.FACTS, Embedding.HASHING)

    assert facts.texts == ["Anna has a red bicycle.", "Ben and Anna met in Porto."]
    assert facts.turn_ids == [frozenset(("D1:1",)), frozenset(("D1:2", "D1:3"))]
    assert facts.positions == [0, 2]
    assert facts.vectors.shape == (2, 1024)
    assert [each.gold for each in facts.questions] == [frozenset(("D1:1",))]


def test_turns_stand_behind_their_speakers_names(tmp_path: Path) -> None:
    (turns,) = load_inputs(_write_locomo(tmp_path), Kind.TURNS, Embedding.HASHING)

    assert turns.texts[0] == "Anna: I bought a red bicycle."
    assert (turns.positions, turns.sessions) == ([0, 1, 2], [0, 0, 0])


def test_vectors_that_another_program_made_are_found_by_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write_locomo(tmp_path)
    texts = texts_to_embed(path)
    rows = np.eye(len(texts), dtype=np.float32)
    np.savez(tmp_path / "kept.npz", texts=np.array(texts), vectors=rows)
    monkeypatch.setenv(MINILM_ENV, str(tmp_path / "kept.npz"))

    (facts,) = load_inputs(path, Kind.FACTS, Embedding.MINILM)

    assert [texts[int(row.argmax())] for row in facts.vectors] == facts.texts
    assert texts[int(facts.question_vectors[0].argmax())] == "What did Anna buy?"


def test_minilm_without_a_file_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MINILM_ENV, raising=False)

    with pytest.raises(ConfigInvalid, match=MINILM_ENV):
        embed_with(Embedding.MINILM)


def test_sessions_as_units_are_those_of_the_parameters_of_turns() -> None:
    talk = _talk([f"{letter} {number}" for number in range(20) for letter in "abc"])

    assert ours(Kind.TURNS)(talk, 0.5, 0) == by_session(parameters_for(Kind.TURNS))(talk, 0.5, 0)
