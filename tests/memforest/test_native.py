"""JSONL files of native messages, and how they are cut into batches."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest

from memforest import calls
from memforest.errors import AnswerOverdue, Busy, InvalidInput
from memforest.native import LINE_BYTES_MAX, BadRecord, Record, read_native
from memforest.publishing import ProgressFile, Tally, batches, publish, wait_until_built, with_ids
from memforest.wire import encode_json, encode_request

if TYPE_CHECKING:
    from pathlib import Path

    from memforest.wire import Call, JsonObject

SECRET = "quokkas"
T = TypeVar("T")


def a_turn(**more: object) -> JsonObject:
    return {
        "type": "turn",
        "user_id": "alice",
        "session_id": "s1",
        "role": "user",
        "content": f"I like {SECRET}.",
        **more,
    }


def a_close() -> JsonObject:
    return {"type": "session.close", "user_id": "alice", "session_id": "s1"}


def write(path: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


def test_messages_are_read_in_order_with_their_line_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", a_turn(id="m-1"), "", a_turn(id="m-2"), a_close())

    records = list(read_native(path))

    assert [(record.number, record.type) for record in records] == [
        (1, "turn"),
        (3, "turn"),
        (4, "session.close"),
    ]
    assert records[1].body["id"] == "m-2"


def test_a_byte_order_mark_and_a_missing_last_newline_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + encode_json(a_turn(id="m-1")))

    assert [record.number for record in read_native(path)] == [1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"type":"turn","content":"quokkas', "not JSON"),
        ('["quokkas"]', "not a JSON object"),
        (json.dumps(a_turn(type="quokkas")), "`type` is none of"),
        (json.dumps(a_turn(type="memory")), "memforest import"),
        (json.dumps(a_turn(type="session.forget")), "memforest forget"),
        (json.dumps(a_turn(type=["turn"])), "`type` is none of"),
        (json.dumps(a_turn(user_id="")), "`user_id`"),
        (json.dumps(a_turn(session_id=7)), "`session_id`"),
        (json.dumps(a_turn(role=None)), "`role`"),
        (json.dumps(a_turn(content=3)), "`content`"),
        (json.dumps(a_turn(timestamp=True)), "`timestamp`"),
        (json.dumps(a_turn(id=5)), "`id`"),
        (json.dumps(a_turn(metadata={"a": "\ud800"})), "surrogate"),
        (json.dumps(a_turn(metadata=float("nan"))), "not JSON"),
        (json.dumps(a_turn(type="turns")), "`turns` is missing or empty"),
        (json.dumps(a_turn(type="turns", turns=["quokkas"])), "turn 0: not an object"),
        (json.dumps(a_turn(type="turns", turns=[a_turn(), {"role": "user"}])), "turn 1: `content`"),
        ("[" * 100_000, "not JSON"),
        ("1" * 5_000, "not JSON"),
        (json.dumps(a_turn(content="x" * LINE_BYTES_MAX)), "longer than"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_a_bad_line_is_named_by_number_and_not_by_text(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "f.jsonl", a_turn(id="m-1"), line)

    with pytest.raises(BadRecord) as caught:
        list(read_native(path))

    assert caught.value.number == 2
    assert str(caught.value).startswith("line 2: ")
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)


def test_bytes_that_are_not_utf8_are_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_bytes(b'{"type":"turn \xff"}\n')

    with pytest.raises(BadRecord, match="line 1: not JSON in UTF-8"):
        list(read_native(tmp_path / "f.jsonl"))


def test_batches_keep_the_order_within_both_bounds() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    records = [
        Record(n, a_close() if chance.random() < 0.1 else a_turn(id=str(n), content="é" * chance.randrange(200)))
        for n in range(300)
    ]

    cut = list(batches(records, count_max=7, bytes_max=2_000))

    assert [record for batch in cut for record in batch] == records
    assert all(len(batch) <= 7 for batch in cut)
    assert all(len(batch) == 1 for batch in cut if any(record.type == "session.close" for record in batch))
    assert all(len(encode_json([with_ids(record, "f" * 16) for record in batch])) <= 2_000 for batch in cut)


def test_a_full_batch_fits_one_request_line_even_when_ids_are_added() -> None:
    records = [Record(n, a_turn(content="x" * 30_000)) for n in range(100)]

    for batch in batches(records):
        encode_request(10**9, "ingest", {"messages": [with_ids(record, "f" * 16) for record in batch]})


def test_a_message_as_large_as_a_request_is_refused_by_name_of_the_bound() -> None:
    (batch,) = batches([Record(1, a_turn(content="x" * LINE_BYTES_MAX))])

    with pytest.raises(InvalidInput, match="at most 1048576 bytes"):
        encode_request(1, "ingest", {"messages": [record.body for record in batch]})


def test_turns_without_an_id_get_one_that_is_the_same_each_time() -> None:
    many = a_turn(type="turns", turns=[{"role": "user", "content": "a", "id": "own"}, {"role": "user"}])

    assert with_ids(Record(4, a_turn()), "abc")["id"] == "abc-4"
    assert with_ids(Record(4, a_turn(id="own")), "abc")["id"] == "own"
    assert [turn["id"] for turn in with_ids(Record(4, many), "abc")["turns"]] == ["own", "abc-4-1"]
    assert "id" not in many["turns"][1]


class Script:
    """Answers calls from a list; an exception in it is raised."""

    def __init__(self, *results: JsonObject | Exception) -> None:
        self.results = list(results)
        self.asked: list[str] = []

    def call(self, call: Call[T], /) -> T:
        self.asked.append(call.method)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return call.read(result)


SENT = Tally(last_keys={"alice": "k"}, last_seq=1)


def accepted(key: str = "k") -> JsonObject:
    return {"published": [{"stream": "M", "seq": 1, "duplicate": False, "keys": [key]}]}


def watermark(pending: int, read_to: int = 1) -> JsonObject:
    mark = {"user_seq": 1, "projected_user_seq": 1, "pending": pending, "lag_s": 0}
    return {"watermark": mark, "bus": {"read_to": read_to}}


def test_a_busy_daemon_is_asked_again_and_not_for_ever() -> None:
    pauses: list[float] = []
    patient = Script(Busy(), Busy(), accepted())
    hopeless = Script(*[Busy() for _ in range(20)])

    tallies = list(publish(patient, [Record(1, a_turn())], done=0, id_prefix="f", pause=pauses.append))
    with pytest.raises(Busy):
        list(publish(hopeless, [Record(1, a_turn())], done=0, id_prefix="f", pause=lambda _: None))

    assert tallies[-1].done == 1
    assert pauses == [0.1, 0.2]
    assert len(hopeless.asked) == 7


def test_waiting_asks_for_the_event_first_and_then_until_nothing_is_pending() -> None:
    answer = {"memories": [], "context": "", **watermark(2)}
    script = Script(Busy(), answer, watermark(2), watermark(0))

    wait_until_built(script, SENT, 60, pause=lambda _: None)

    assert script.asked == ["query", "query", "status", "status"]


def test_a_message_with_the_key_of_an_earlier_one_is_waited_for_until_it_is_read_from_the_bus() -> None:
    answer = {"memories": [], "context": "", **watermark(0)}
    script = Script(answer, watermark(0, read_to=4), watermark(1, read_to=5), watermark(0, read_to=5))

    wait_until_built(script, replace(SENT, last_seq=5), 60, pause=lambda _: None)

    assert script.asked == ["query", "status", "status", "status"]


def test_waiting_says_once_what_model_or_budget_holds_it_up() -> None:
    answer = {"memories": [], "context": "", **watermark(2)}
    used_up = {"budget": {"all_users": {"reason": None}, "user": {"reason": "the budget is used up"}}}
    away = {"models": {"chat": {"circuit": "open", "reason": "nothing listens"}}}
    closed = {"models": {"chat": {"circuit": "closed", "reason": "one call failed"}, "embeddings": None}}
    statuses = (used_up, used_up, closed, away)
    script = Script(answer, *({**watermark(2), **each} for each in statuses), {**watermark(0), **used_up})
    told: list[str] = []

    wait_until_built(script, SENT, 60, pause=lambda _: None, tell=told.append)

    assert [each.split(". ")[0] for each in told] == [
        "Work waits: the budget is used up",
        "Work waits: nothing listens",
    ]


def test_waiting_ends_at_its_timeout() -> None:
    with pytest.raises(AnswerOverdue, match="Not built"):
        wait_until_built(Script(), SENT, -1, pause=lambda _: None)


def test_progress_is_kept_for_the_same_file_daemon_and_selection_only(tmp_path: Path) -> None:
    def progress(digest: str = "d", socket: str = "/s", selection: str = "") -> ProgressFile:
        path = tmp_path / "f.jsonl"
        return ProgressFile.beside(path, digest=digest, socket_path=tmp_path / socket, selection=selection)

    progress().save(12)

    assert (tmp_path / "f.jsonl.memforest-progress").exists()
    assert progress().load() == 12
    assert [progress("e").load(), progress(socket="/t").load(), progress(selection="x").load()] == [0, 0, 0]
    progress("e").remove()
    assert progress().load() == 12
    progress().remove()
    assert list(tmp_path.iterdir()) == []


def test_progress_goes_to_the_state_folder_when_its_own_cannot_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "no such folder" / "f.jsonl"
    progress = ProgressFile.beside(
        missing, digest="d", socket_path=tmp_path, selection="", state_home=tmp_path / "state"
    )
    progress.save(3)

    assert progress.load() == 3
    assert [place.parent.name for place in (tmp_path / "state").rglob("*-progress")] == ["memforest"]


def test_a_damaged_progress_file_means_the_beginning(tmp_path: Path) -> None:
    progress = ProgressFile("key", (tmp_path / "p",))
    for text in ("", "[]", "{", '{"key":"key","done":"9"}', '{"key":"key","done":-4}'):
        (tmp_path / "p").write_text(text)

        assert progress.load() == 0


def test_the_bound_of_a_batch_is_the_bound_of_the_call() -> None:
    sizes = [len(batch) for batch in batches([Record(n, a_turn(id=str(n))) for n in range(600)])]

    assert sizes == [256, 256, 88]
    assert calls.MESSAGES_MAX == 256
