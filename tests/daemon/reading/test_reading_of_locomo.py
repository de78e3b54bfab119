"""The rules on real conversations (LoCoMo): no false alarm, and nothing skipped that answers a question."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon.offline.extraction import extract_facts
from daemon.offline.sentences import split_sentences
from daemon.reading.coverage import as_read, missed
from daemon.reading.small_chunks import says_nothing
from projections.ports import ChunkText, TurnText
from tests.quality.locomo import Conversation, load_conversations, locomo_file

CHUNK_TURNS = 2


@pytest.fixture(scope="module")
def conversations() -> tuple[Conversation, ...]:
    path = locomo_file()
    if path is None:
        pytest.skip("set LOCOMO_DIR to the folder of locomo-first5.json to run this check")
    return load_conversations(path, adversarial=True)


def chunks(conversation: Conversation, size: int) -> Iterator[tuple[ChunkText, set[str]]]:
    """The chunks of a conversation and the ids of their turns."""
    for session in conversation.sessions:
        captions = [f" [{turn.caption}]" if turn.caption else "" for turn in session.turns]
        texts = [turn.text + caption for turn, caption in zip(session.turns, captions, strict=True)]
        said = [
            TurnText("user", turn.speaker, turn.said_at, text)
            for turn, text in zip(session.turns, texts, strict=True)
        ]
        for at in range(0, len(said), size):
            ids = {turn.turn_id for turn in session.turns[at : at + size]}
            yield ChunkText(tuple(said[at : at + size]), said[at - 1] if at else None), ids


def test_neither_the_facts_by_rule_nor_the_sentences_themselves_miss_a_detail(
    conversations: tuple[Conversation, ...],
) -> None:
    conversation = conversations[0]
    for chunk, ids in chunks(conversation, CHUNK_TURNS):
        texts = [turn.text for turn in chunk.turns]
        speakers = [turn.speaker for turn in chunk.turns if turn.speaker]
        sentences = [sentence for text in texts for sentence in split_sentences(text)]

        assert missed(texts, [as_read(fact) for fact in extract_facts(chunk)], speakers) == (), ids
        assert missed(texts, sentences, speakers) == (), ids


@pytest.mark.parametrize("size", [1, CHUNK_TURNS, 10])
def test_no_skipped_chunk_has_a_turn_that_a_question_asks_for(
    conversations: tuple[Conversation, ...], size: int
) -> None:
    read = skipped = 0
    for conversation in conversations:
        evidence = {turn_id for question in conversation.questions for turn_id in question.gold}
        for chunk, ids in chunks(conversation, size):
            read += 1
            if says_nothing(chunk):
                skipped += 1
                assert not ids & evidence, ids
    print(f"{skipped} of {read} chunks of {size} turns skipped")

    assert 0 < skipped < read / 20
