"""Exports of other systems, written here by hand, as native messages."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from memforest.errors import InvalidInput
from memforest.importing.entries import Chosen, Entry, Found, Skipped
from memforest.importing.formats import read_export, recognise, records_of

if TYPE_CHECKING:
    from pathlib import Path

ALICE = Chosen(user="alice", stem="chat")


def write(path: Path, *values: Any, indent: int | None = None) -> Path:
    """One JSON value a line, or (with an indent) one document over several lines."""
    path.write_text("\n".join(json.dumps(value, indent=indent, ensure_ascii=False) for value in values) + "\n")
    return path


def read(path: Path, form: str, chosen: Chosen = ALICE) -> list[Entry]:
    return list(read_export(path, form, chosen))


def bodies(entries: list[Entry], kind: str = "turn") -> list[dict[str, Any]]:
    return [entry.body for entry in entries if isinstance(entry, Found) and entry.body["type"] == kind]


def skipped(entries: list[Entry]) -> list[tuple[str, str]]:
    return [(entry.place, entry.reason) for entry in entries if isinstance(entry, Skipped)]


# OpenAI


def test_openai_messages_of_a_line_are_a_session_that_is_closed(tmp_path: Path) -> None:
    talk = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]}
    path = write(tmp_path / "chat.jsonl", talk, {**talk, "id": "c-2", "user_id": "bob", "created_at": 1719824400})
    entries = read(path, "openai", Chosen(stem="chat"))
    chosen = read(path, "openai")

    assert skipped(entries) == [("line 1", "names no user; say with --user whose memory it is for")]
    assert [(turn["user_id"], turn["session_id"], turn["role"], turn["content"]) for turn in bodies(chosen)] == [
        ("alice", "chat-1", "user", "Hi."),
        ("alice", "chat-1", "assistant", "Hello."),
        ("alice", "c-2", "user", "Hi."),
        ("alice", "c-2", "assistant", "Hello."),
    ]
    assert [(end["session_id"], end["id"]) for end in bodies(chosen, "session.close")] == [
        ("chat-1", "2:close"),
        ("c-2", "2:close"),
    ]
    assert [entry.dated for entry in chosen if isinstance(entry, Found) and entry.body["type"] == "turn"] == [
        *("nowhere", "nowhere"),
        *("session", "session"),
    ]
    assert "timestamp" not in bodies(chosen)[0]
    assert bodies(chosen)[2]["timestamp"] == 1719824400


def test_single_openai_messages_keep_their_ids_sessions_names_and_times(tmp_path: Path) -> None:
    first = {
        "id": "m-1",
        "role": "user",
        "name": "Alice",
        "content": "Hi.",
        "session_id": "s1",
        "timestamp": "2024-07-01T09:00:00Z",
    }
    parts = [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": "https://x.test/1.png"}},
    ]
    path = write(
        tmp_path / "chat.jsonl", first, {"from": "gpt", "value": "Yes?"}, {"role": "user", "content": parts}
    )
    entries = read(path, "openai")
    one, two, three = bodies(entries)

    assert one == {
        "type": "turn",
        "id": "m-1",
        "user_id": "alice",
        "session_id": "s1",
        "role": "user",
        "name": "Alice",
        "content": "Hi.",
        "timestamp": "2024-07-01T09:00:00Z",
    }
    assert (two["role"], two["content"], two["session_id"]) == ("assistant", "Yes?", "chat")
    assert three["content"] == parts
    assert two["id"] != three["id"]
    assert [end["session_id"] for end in bodies(entries, "session.close")] == ["s1", "chat"]


def test_ids_that_are_made_stay_the_same_when_the_file_grows(tmp_path: Path) -> None:
    lines = [{"role": "user", "content": "Yes."}, {"role": "user", "content": "Yes."}]
    before = [turn["id"] for turn in bodies(read(write(tmp_path / "chat.jsonl", *lines), "openai"))]
    grown = [*lines, {"role": "assistant", "content": "No."}]
    after = [turn["id"] for turn in bodies(read(write(tmp_path / "chat.jsonl", *grown), "openai"))]

    assert len(set(after)) == 3
    assert after[:2] == before


def test_what_cannot_be_read_is_skipped_with_its_line_and_without_its_words(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    lines = [
        '{"role": "user", "content": "fine"}',
        "{'role': 'Xylophon'}",
        '["Xylophon"]',
        "",
        '{"role": "user"}',
        '{"content": "Xylophon"}',
        '{"role": "assistant", "content": null, "tool_calls": [{"id": "Xylophon"}]}',
        '{"role": "user", "content": "half \\ud83d"}',
        '{"role": "user", "content": "fine too"}',
    ]
    path.write_text("\n".join(lines))
    entries = read(path, "openai")

    assert skipped(entries) == [
        ("line 2", "not JSON in UTF-8"),
        ("line 3", "not a JSON object"),
        ("line 5", "has no `content`"),
        ("line 6", "has no `role`"),
        ("line 7", "a call of a tool, without text"),
        ("line 8", "holds half a surrogate pair or an infinite number, which JSON in UTF-8 cannot carry"),
    ]
    assert [turn["content"] for turn in bodies(entries)] == ["fine", "fine too"]
    assert "Xylophon" not in str(skipped(entries))


def test_a_turn_that_no_message_can_carry_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "chat.jsonl", {"role": "user", "content": "x" * (1 << 20)})
    ((place, reason),) = skipped(read(path, "openai"))

    assert (place, reason.startswith("longer than the")) == ("line 1", True)


# LongMemEval


def a_question(name: str) -> dict[str, Any]:
    said = [
        {"role": "user", "content": "I like tea.", "has_answer": True},
        {"role": "assistant", "content": "Noted."},
    ]
    return {
        "question_id": name,
        "question": "What do I like?",
        "answer": "tea",
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 23:59"],
        "haystack_session_ids": ["a-1", "b-2"],
        "haystack_sessions": [said, [{"role": "user", "content": "Bye."}]],
    }


def test_longmemeval_is_a_user_a_question_with_the_dates_of_its_sessions(tmp_path: Path) -> None:
    path = write(tmp_path / "lme.json", [a_question("q1"), a_question("q2")], indent=1)
    entries = read(path, "longmemeval", Chosen())
    turns = bodies(entries)

    assert [(turn["user_id"], turn["session_id"], turn["id"]) for turn in turns] == [
        *(("q1", "a-1", "a-1:0"), ("q1", "a-1", "a-1:1"), ("q1", "b-2", "b-2:0")),
        *(("q2", "a-1", "a-1:0"), ("q2", "a-1", "a-1:1"), ("q2", "b-2", "b-2:0")),
    ]
    assert [turn["timestamp"] for turn in turns[:3]] == [
        "2023-05-20T02:21:00",
        "2023-05-20T02:21:30",
        "2023-05-21T23:59:00",
    ]
    assert len(bodies(entries, "session.close")) == 4
    assert {turn["user_id"] for turn in bodies(read(path, "longmemeval"))} == {"alice"}
    assert "What do I like?" not in str(entries), "questions are left alone"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"haystack_dates": ["yesterday", "2023/05/21 (Sun) 23:59"]}, "item 1, session 1"),
        ({"haystack_dates": ["2023/13/41 (Sat) 02:21", "2023/05/21 (Sun) 23:59"]}, "item 1, session 1"),
        ({"haystack_session_ids": ["a-1", 7]}, "item 1, session 2"),
        ({"haystack_session_ids": ["a-1"]}, "item 1"),
        ({"haystack_sessions": "none"}, "item 1"),
    ],
)
def test_longmemeval_sessions_without_a_date_or_id_are_skipped_and_not_dated_by_a_clock(
    tmp_path: Path, change: dict[str, Any], place: str
) -> None:
    entries = read(write(tmp_path / "lme.json", [a_question("q1") | change]), "longmemeval")

    assert [where for where, _ in skipped(entries)] == [place]
    assert all(turn["timestamp"].startswith("2023-05-2") for turn in bodies(entries))


# ChatGPT


def a_node(name: str, parent: str | None, role: str | None = None, *parts: Any, **more: Any) -> dict[str, Any]:
    message = None
    if role is not None:
        content = {"content_type": "text", "parts": list(parts)}
        message = {
            "id": f"m-{name}",
            "author": {"role": role},
            "create_time": 1719824400.25,
            "content": content,
            **more,
        }
    return {"id": name, "parent": parent, "children": [], "message": message}


def a_conversation() -> dict[str, Any]:
    hidden = {"metadata": {"is_visually_hidden_from_conversation": True}}
    nodes = [
        a_node("root", None),
        a_node("sys", "root", "system", ""),
        a_node("profile", "sys", "user", "My profile.", **hidden),
        a_node("q-old", "profile", "user", "A question that was edited."),
        a_node("q", "profile", "user", "A question."),
        a_node("thinks", "q", "assistant", content={"content_type": "thoughts", "thoughts": []}),
        a_node("call", "thinks", "assistant", "search('Miami')", recipient="browser"),
        a_node("tool", "call", "tool", "search results"),
        a_node("a", "tool", "assistant", "An answer.", create_time=None),
        a_node(
            "picture", "a", "user", "See.", {"content_type": "image_asset_pointer", "asset_pointer": "file://1"}
        ),
    ]
    return {
        "title": "Xylophon",
        "conversation_id": "c-1",
        "create_time": 1719820000.0,
        "current_node": "picture",
        "mapping": {node["id"]: node for node in nodes},
    }


def test_chatgpt_is_the_branch_that_was_seen_last(tmp_path: Path) -> None:
    entries = read(write(tmp_path / "conversations.json", [a_conversation()], indent=2), "chatgpt")
    turns = bodies(entries)

    assert [(turn["id"], turn["role"], turn["content"]) for turn in turns[:2]] == [
        ("m-q", "user", "A question."),
        ("m-a", "assistant", "An answer."),
    ]
    assert turns[2]["content"] == [
        {"type": "text", "text": "See."},
        {"type": "image_url", "image_url": {"url": "file://1"}},
    ]
    assert [turn["timestamp"] for turn in turns] == [1719824400.25, 1719820000.0, 1719824400.25]
    assert [entry.dated for entry in entries if isinstance(entry, Found)][:3] == ["itself", "session", "itself"]
    assert [reason for _, reason in skipped(entries)] == ["what a tool or the model wrote for itself"] * 3
    assert {turn["session_id"] for turn in turns} == {"c-1"}
    assert [end["id"] for end in bodies(entries, "session.close")] == ["c-1:3:close"]


def test_chatgpt_comes_from_the_zip_as_well_in_several_files(tmp_path: Path) -> None:
    plain = read(write(tmp_path / "conversations.json", [a_conversation()]), "chatgpt")
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("user.json", '{"email": "Xylophon"}')
        archive.writestr("conversations-000.json", json.dumps([a_conversation()]))
        archive.writestr("conversations-001.json", json.dumps([a_conversation() | {"conversation_id": "c-2"}]))
    zipped = read(tmp_path / "export.zip", "chatgpt")

    assert recognise(tmp_path / "export.zip") == "chatgpt"
    assert zipped[: len(plain)] == plain
    assert {turn["session_id"] for turn in bodies(zipped)} == {"c-1", "c-2"}


def test_chatgpt_without_a_user_is_refused_and_a_mapping_in_a_circle_ends(tmp_path: Path) -> None:
    broken = a_conversation()
    broken["mapping"]["root"]["parent"] = "picture"
    path = write(tmp_path / "conversations.json", [broken])
    with pytest.raises(InvalidInput, match="--user"):
        read(path, "chatgpt", Chosen())

    assert len(bodies(read(path, "chatgpt"))) == 3


# Mem0


@pytest.mark.parametrize("time", ["1e999", "9" * 400, "-1e999"])
def test_a_chatgpt_time_that_is_none_gives_way_to_that_of_the_conversation(tmp_path: Path, time: str) -> None:
    message = {"id": "m-1", "author": {"role": "user"}, "content": {"parts": ["Hi."]}, "create_time": "TIME"}
    mapping: dict[str, Any] = {"a": {"message": message, "parent": None, "children": []}}
    path = tmp_path / "conversations.json"
    text = json.dumps([{"id": "c-1", "create_time": 1719824400, "mapping": mapping, "current_node": "a"}])
    path.write_text(text.replace('"TIME"', time))
    turn, _ = read_export(path, "chatgpt", Chosen("alice"))

    assert isinstance(turn, Found)
    assert (turn.body["timestamp"], turn.dated) == (1719824400.0, "session")


def test_mem0_memories_keep_id_time_and_what_was_noted_with_them(tmp_path: Path) -> None:
    memory = {
        "id": "x-1",
        "memory": "Alice is allergic to nuts.",
        "hash": "0f",
        "metadata": {"source": "chat"},
        "categories": ["health"],
        "created_at": "2024-01-02T03:04:05-07:00",
        "updated_at": None,
        "user_id": "al",
        "run_id": "r-1",
    }
    bare = {"memory": "Likes tea."}
    whole = write(tmp_path / "mem0.json", {"results": [memory, bare, {"id": "x-3"}]}, indent=1)
    entries = read(whole, "mem0", Chosen())
    one, two = bodies(read(whole, "mem0"), "memory")

    assert bodies(entries, "memory") == [
        {
            "type": "memory",
            "id": "x-1",
            "user_id": "al",
            "session_id": "r-1",
            "content": "Alice is allergic to nuts.",
            "timestamp": "2024-01-02T03:04:05-07:00",
            "metadata": {"source": "chat", "categories": ["health"]},
        }
    ]
    assert [place for place, _ in skipped(entries)] == ["result 2", "result 3"]
    assert (one["user_id"], two["session_id"], "timestamp" in two) == ("alice", "import", False)
    as_lines = write(tmp_path / "lines.jsonl", memory, bare)
    assert bodies(read(as_lines, "mem0"), "memory") == [one, two]
    assert bodies(read(write(tmp_path / "list.json", [memory, bare]), "mem0"), "memory") == [one, two]


# Native, and any


def test_native_messages_pass_as_they_are_unless_a_user_or_session_is_chosen(tmp_path: Path) -> None:
    turn = {"type": "turn", "id": "m-1", "user_id": "bob", "session_id": "s1", "role": "user", "content": "Hi."}
    memory = {"type": "memory", "id": "x", "user_id": "bob", "session_id": "import", "content": "Likes tea."}
    path = write(
        tmp_path / "native.jsonl", turn, memory, {"type": "session.forget", "user_id": "bob", "session_id": "s1"}
    )
    kept = read(path, "native", Chosen())

    assert [entry.body for entry in kept if isinstance(entry, Found)] == [turn, memory]
    assert [place for place, _ in skipped(kept)] == ["line 3"]
    moved = read(path, "native", Chosen("alice", "s9"))
    assert bodies(moved) == [turn | {"user_id": "alice", "session_id": "s9"}]
    assert [(record.number, record.type) for record in records_of(path, "native", Chosen())] == [
        (1, "turn"),
        (2, "memory"),
    ]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"type": "turn", "user_id": "a", "session_id": "s", "role": "user", "content": "x"}, "native"),
        ({"type": "memory", "memory": "x"}, "native"),
        ({"messages": []}, "openai"),
        ({"role": "user", "content": "x"}, "openai"),
        ([{"role": "user", "content": "x"}], "openai"),
        ([{"question_id": "q", "haystack_sessions": []}], "longmemeval"),
        ([{"id": "c", "mapping": {}}], "chatgpt"),
        ({"results": []}, "mem0"),
        ([{"id": "x", "memory": "y"}], "mem0"),
        ([{"sample_id": "conv-1", "conversation": {}}], "locomo"),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_format_is_recognised_by_its_first_value(
    tmp_path: Path, value: Any, form: str, indent: int | None
) -> None:
    assert recognise(write(tmp_path / "file", value, indent=indent)) == form


@pytest.mark.parametrize("text", ["", "\n\n", "quokkas", "[1, 2]", '{"a": 1}', "[]"])
def test_what_is_of_no_format_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InvalidInput) as raised:
        recognise(path)

    assert "quokkas" not in str(raised.value)
