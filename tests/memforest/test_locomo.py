"""LoCoMo's JSON as native messages; the conversation here is written for this test."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from memforest.locomo import BadLocomo, locomo_records, read_locomo, session_start

if TYPE_CHECKING:
    from pathlib import Path


def a_conversation(sample_id: str = "conv-1", **more: Any) -> dict[str, Any]:
    return {
        "sample_id": sample_id,
        "qa": [{"question": "not read", "answer": "not read"}],
        "conversation": {
            "speaker_a": "Ines",
            "speaker_b": "Tom",
            "session_10_date_time": "12:05 am on 1 January, 2024",
            "session_10": [{"speaker": "Tom", "dia_id": "D10:1", "text": "Happy new year!"}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Ines", "dia_id": "D2:1", "text": "I planted a pear tree."},
                {
                    "speaker": "Tom",
                    "dia_id": "D2:2",
                    "text": "Mine has fruit.",
                    "img_url": ["http://127.0.0.1/x"],
                    "blip_caption": "a photo of a pear",
                },
                {"speaker": "Ines", "dia_id": "D2:3", "text": "", "blip_caption": "a photo of a spade"},
            ],
            "session_11_date_time": "3:00 pm on 2 February, 2024",
            **more,
        },
    }


def test_sessions_come_by_number_each_followed_by_its_closing() -> None:
    records = locomo_records([a_conversation()])

    assert [(record.number, record.type, record.session_id) for record in records] == [
        (1, "turn", "session_2"),
        (2, "turn", "session_2"),
        (3, "turn", "session_2"),
        (4, "session.close", "session_2"),
        (5, "turn", "session_10"),
        (6, "session.close", "session_10"),
    ]


def test_a_turn_carries_speaker_caption_and_its_own_time() -> None:
    records = locomo_records(a_conversation())

    assert records[0].body == {
        "type": "turn",
        "id": "D2:1",
        "user_id": "conv-1",
        "session_id": "session_2",
        "role": "user",
        "name": "Ines",
        "content": "I planted a pear tree.",
        "timestamp": "2023-05-08T13:56:00Z",
    }
    assert records[1].body["content"] == "Mine has fruit. [shared: a photo of a pear]"
    assert records[1].body["timestamp"] == "2023-05-08T13:56:30Z"
    assert records[2].body["content"] == "[shared: a photo of a spade]"
    assert records[4].body["timestamp"] == "2024-01-01T00:05:00Z"


def test_only_the_named_samples_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([a_conversation("conv-1"), a_conversation("conv-2")]))

    assert {record.user_id for record in read_locomo(path, ["conv-2"])} == {"conv-2"}
    assert {record.user_id for record in read_locomo(path)} == {"conv-1", "conv-2"}
    with pytest.raises(BadLocomo, match="No sample conv-9 here; there are: conv-1, conv-2"):
        read_locomo(path, ["conv-1", "conv-9"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:00 pm on 29 February, 2024", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("12:59 am on 3 june, 2022", datetime(2022, 6, 3, 0, 59, tzinfo=UTC)),
        ("9:01 AM on 31 December 2023", datetime(2023, 12, 31, 9, 1, tzinfo=UTC)),
    ],
)
def test_session_dates_are_read_as_utc(text: str, expected: datetime) -> None:
    assert session_start(text) == expected


@pytest.mark.parametrize("text", ["", "8 May, 2023", "1:56 pm on 8 Mai, 2023", "1:76 pm on 8 May, 2023"])
def test_a_session_without_a_readable_date_is_refused_and_not_dated_by_a_clock(text: str) -> None:
    with pytest.raises(BadLocomo, match="conv-1 session_2: no readable `session_2_date_time`"):
        locomo_records(a_conversation(session_2_date_time=text))


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"session_2": "pears"}, "conv-1 session_2: not a list"),
        ({"session_2": [{"speaker": "Ines", "text": "pears"}]}, "conv-1 session_2 turn 0: `dia_id`"),
        ({"session_2": [7]}, "conv-1 session_2 turn 0"),
    ],
)
def test_a_fault_is_named_by_its_place_and_not_by_text(more: dict[str, Any], place: str) -> None:
    with pytest.raises(BadLocomo) as caught:
        locomo_records(a_conversation(**more))

    assert place in str(caught.value)
    assert "pears" not in str(caught.value)


@pytest.mark.parametrize("document", [7, [], [7], {"conversation": {}}, {"sample_id": "x"}])
def test_what_is_no_locomo_is_refused_or_empty(document: object) -> None:
    if document == []:
        assert locomo_records(document) == []
        return
    with pytest.raises(BadLocomo, match="Item 0"):
        locomo_records(document)


def test_a_session_without_turns_is_not_closed() -> None:
    assert {r.session_id for r in locomo_records(a_conversation(session_2=[]))} == {"session_10"}
