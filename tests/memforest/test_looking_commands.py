"""`why`, `tree`, `units` and `status`: what a memory is made of, for people and for pipes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from memforest import AsyncClient, Client, NotFound
from memforest.cli import cli
from memforest.commands.status import readable_size, readable_time
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
from typing import cast

AT = "2024-07-01T09:00:00Z"
LATER = "2024-07-03T09:00:00Z"
TURN = {
    "user_seq": 1,
    "session_id": "s1",
    "turn_id": "m-1",
    "said_at": AT,
    "words": "kept",
    "text": "Alice: I live\nin Miami.",
    "bus": {"stream": "MEMFOREST", "seq": 41},
}
GONE = TURN | {"user_seq": 3, "session_id": None, "turn_id": None, "words": "erased", "text": None, "bus": None}
READING = {
    "how": "extracted",
    "model": "m",
    "user_seq": 5,
    "at": LATER,
    "words": "kept",
    "text": "Alice lives in Miami.",
}
FACT = {
    "id": "f1",
    "words": "kept",
    "text": "Alice lives in Miami.",
    "said_at": AT,
    "time_start": AT,
    "time_end": LATER,
    "pinned": True,
    "group": "g1",
    "readings": [
        READING | {"turns": [TURN]},
        READING | {"how": "corrected", "model": None, "text": "Miami!", "turns": [GONE]},
    ],
}
WHY: JsonObject = {
    "id": "f1",
    "kind": "fact",
    "words": "kept",
    "text": FACT["text"],
    "facts": [FACT],
    "left_off": 0,
}


def a_node(name: str, **more: Any) -> JsonObject:
    node = {"id": name, "kind": "node", "level": 1, "state": "summarised", "time_start": AT, "time_end": LATER}
    return {**node, "leaves": 2, "text": f"Text of {name}.", "sources": None, "children": None, **more}


LEAF = a_node(
    "c1",
    kind="chunk",
    level=0,
    state="leaf",
    leaves=1,
    time_end=AT,
    sources=[{"session_id": "s1", "turn_id": "m-1"}],
)
TREE: JsonObject = {
    "id": "t1",
    "scope": "s1",
    "kind": "session",
    "leaves": 4,
    "height": 2,
    "dirty": 1,
    "left_off": 2,
    "root": a_node("top", children=[LEAF, a_node("low", state="dirty", text=None)]),
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--socket", str(daemon.path)])


def on_terminal(daemon: FakeDaemon, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "memforest.cli", *arguments, "--socket", str(daemon.path)]
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=theirs, stderr=theirs, env=environ, timeout=30, check=False)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode().replace("\r\n", "\n")
    os.close(ours)

    assert done.returncode == 0, shown
    return "\n".join(line.rstrip() for line in shown.splitlines())


def test_why_in_a_pipe_is_a_line_each_with_its_depth(daemon: FakeDaemon) -> None:
    daemon.answers["why"] = lambda _: WHY
    result = run(daemon, "why", "alice", "f1")

    assert result.stdout.splitlines() == [
        f"0\tfact\t{AT}/{LATER}\tf1 in group g1 pinned\tAlice lives in Miami.",
        f"1\textracted\t{LATER}\tby m, event 5\t",
        f"2\tturn\t{AT}\ts1/m-1 event 1, message 41 of MEMFOREST\tAlice: I live in Miami.",
        f"1\tcorrected\t{LATER}\tevent 5\tMiami!",
        f"2\tturn\t{AT}\tevent 3, not from the bus\t(words erased)",
    ]
    assert daemon.requests == [("why", {"user_id": "alice", "memory_id": "f1"})]
    assert json.loads(run(daemon, "why", "alice", "f1", "--json").stdout) == WHY


def test_why_tells_what_a_model_took(daemon: FakeDaemon) -> None:
    spent = {"calls": 2, "prompt_tokens": 300, "cached_tokens": 0, "completion_tokens": 40, "cost": 0.0125}
    free = spent | {"calls": 1, "cost": 0.0}
    (reading, *_) = cast("list[dict[str, object]]", FACT["readings"])
    readings = [reading | {"spent": each} for each in (spent, free)]
    daemon.answers["why"] = lambda _: WHY | {"facts": [FACT | {"readings": readings}]}
    lines = run(daemon, "why", "alice", "f1").stdout.splitlines()

    assert [line.split("\t")[3] for line in lines if line.startswith("1\textracted")] == [
        "by m, event 5, 2 calls, 340 tokens, cost 0.0125",
        "by m, event 5, 1 call, 340 tokens",
    ]


def test_why_of_a_summary_names_who_wrote_it_and_what_is_left_off(daemon: FakeDaemon) -> None:
    daemon.answers["why"] = lambda _: {
        "id": "n1",
        "kind": "summary",
        "words": "erased",
        "text": None,
        "written": {"model": None, "user_seq": 9, "at": LATER},
        "scopes": ["s1"],
        "facts": [],
        "turns": [TURN],
        "left_off": 7,
    }
    result = run(daemon, "why", "alice", "n1")

    assert result.stdout.splitlines()[0] == f"0\tsummary\t{LATER}\ts1 by (words erased), event 9\t(words erased)"
    assert "7 more" in result.stderr


def test_why_reads_well_on_a_terminal(daemon: FakeDaemon) -> None:
    daemon.answers["why"] = lambda _: WHY | {"facts": [FACT | {"text": "Red \x1b[31mMiami."}]}
    shown = on_terminal(daemon, "why", "alice", "f1").splitlines()

    assert shown[:2] == [
        "fact · 2024-07-01 09:00 to 2024-07-03 09:00 · f1 in group g1 pinned",
        "  Red \ufffd[31mMiami.",
    ]
    assert "    turn · 2024-07-01 09:00 · s1/m-1 event 1, message 41 of MEMFOREST" in shown


def test_facts_on_a_terminal_have_whole_days_the_end_of_a_state_and_no_empty_column(
    daemon: FakeDaemon,
) -> None:
    day = {"time_start": "2024-07-01T00:00:00Z", "time_end": "2024-07-01T23:59:59.999Z", "role": "event"}
    home = {"time_start": AT, "time_end": AT, "role": "state", "attribute": "home", "entity": "alice"}
    facts = [
        {"id": "f1", "text": "Alice ran.", **day},
        {"id": "f2", "text": "Boston.", **home, "valid_until": "2024-07-03T00:00:00Z"},
        {"id": "f3", "text": "Miami.", **home},
    ]
    daemon.answers["facts.list"] = lambda _: {"facts": facts, "next": None}
    shown = [line.split() for line in on_terminal(daemon, "facts", "alice").splitlines()]

    assert shown == [
        ["id", "when", "kind", "until", "fact"],
        ["f1", "2024-07-01", "event", "Alice", "ran."],
        ["f2", "2024-07-01", "09:00", "state", "2024-07-03", "Boston."],
        ["f3", "2024-07-01", "09:00", "state", "still", "Miami."],
    ]


def test_a_memory_that_nobody_knows_is_a_sentence_for_people_and_an_object_for_programs(
    daemon: FakeDaemon,
) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("not_found", "There is no memory of this id.", -32001)

    daemon.answers["why"] = refuse
    people, program = run(daemon, "why", "alice", "f9"), run(daemon, "why", "alice", "f9", "--json")

    assert (people.exit_code, people.stderr) == (1, "Error: There is no memory of this id.\n")
    assert (program.exit_code, program.stdout) == (1, "")
    assert json.loads(program.stderr) == {
        "error": {"code": "not_found", "message": "There is no memory of this id."}
    }


def test_a_tree_is_shown_from_its_root_with_ids_in_a_pipe(daemon: FakeDaemon) -> None:
    daemon.answers["trees.get"] = lambda _: TREE
    result = run(daemon, "tree", "alice", "s1", "--depth", 3)

    assert result.stdout.splitlines() == [
        "0\t2024-07-01 to 2024-07-03\ttop 2 leaves\tText of top.",
        "1\t2024-07-01\tc1 chunk of s1/m-1\tText of c1.",
        "1\t2024-07-01 to 2024-07-03\tlow 2 leaves, dirty\t(no summary yet)",
    ]
    assert daemon.requests == [("trees.get", {"user_id": "alice", "scope": "s1", "depth": 3, "limit": 200})]
    assert "2 leaves are further down" in result.stderr
    shown = on_terminal(daemon, "tree", "alice", "s1")
    assert "2024-07-01 · chunk of s1/m-1\n    Text of c1." in shown


def test_without_a_scope_the_trees_are_listed(daemon: FakeDaemon) -> None:
    row = {
        "scope": "bob",
        "kind": "entity",
        "leaves": 9,
        "height": 1,
        "nodes": 1,
        "dirty": 0,
        "root_text": "He\nsaid.",
    }
    daemon.answers["trees.list"] = lambda _: {"trees": [row]}

    assert run(daemon, "tree", "alice").stdout == "bob\tentity\t9\t1\t1\t0\tHe / said.\n"


SCENE = {
    "scope": "aaaa1111" + "0" * 24,
    "kind": "scene",
    "name": "bob, cycling",
    "leaves": 2,
    "height": 1,
    "nodes": 1,
    "dirty": 0,
    "root_text": "He rode.",
}


def test_a_scene_is_listed_with_what_it_is_about_and_in_a_pipe_by_its_id(daemon: FakeDaemon) -> None:
    daemon.answers["trees.list"] = lambda _: {"trees": [SCENE]}

    assert run(daemon, "tree", "alice").stdout == f"{SCENE['scope']}\tscene\t2\t1\t1\t0\tHe rode.\n"
    assert "aaaa1111 bob, cycling  scene" in on_terminal(daemon, "tree", "alice")


def test_an_entity_is_listed_with_its_other_names_and_in_a_pipe_by_the_one_it_is_known_by(
    daemon: FakeDaemon,
) -> None:
    listed = {**SCENE, "scope": "robert", "kind": "entity", "name": "robert", "aliases": ["bob", "rob"]}
    daemon.answers["trees.list"] = lambda _: {"trees": [listed]}

    assert run(daemon, "tree", "alice").stdout == "robert\tentity\t2\t1\t1\t0\tHe rode.\n"
    assert "robert (bob, rob)  entity" in on_terminal(daemon, "tree", "alice")


def test_the_tree_of_a_scene_is_asked_for_by_the_digits_that_people_see(daemon: FakeDaemon) -> None:
    daemon.answers["trees.get"] = lambda _: TREE | {"kind": "scene", "name": "bob, cycling"}
    run(daemon, "tree", "alice", "aaaa1111", "--kind", "scene")

    assert daemon.requests[-1][1] == {
        "user_id": "alice",
        "scope": "aaaa1111",
        "kind": "scene",
        "depth": 2,
        "limit": 200,
    }


def test_units_are_fetched_page_by_page_each_with_its_groups(daemon: FakeDaemon) -> None:
    def unit(name: str) -> JsonObject:
        group = {"id": f"g{name}", "unit": name, "text": f"Of {name}.", "members": ["f1", "f2"], "time_start": AT}
        return {
            "units": [{"id": name, "nodes": 2, "facts": 3, "groups": 1}],
            "groups": [group | {"time_end": LATER}],
            "next": None if name == "u2" else name,
        }

    daemon.answers["units.list"] = lambda params: unit("u2" if "after" in params else "u1")
    result = run(daemon, "units", "alice")

    assert result.stdout.splitlines() == [
        "0\tunit\tu1\t3 facts in 2 nodes, 1 group\t",
        "1\tgroup\tgu1\t2 facts, 2024-07-01 to 2024-07-03\tOf u1.",
        "0\tunit\tu2\t3 facts in 2 nodes, 1 group\t",
        "1\tgroup\tgu2\t2 facts, 2024-07-01 to 2024-07-03\tOf u2.",
    ]
    assert len(json.loads(run(daemon, "units", "alice", "--json").stdout)["groups"]) == 2


@pytest.mark.parametrize("command", ["facts", "tree", "units"])
def test_of_whom_nothing_is_known_there_is_nothing_to_list(daemon: FakeDaemon, command: str) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("not_found", "There is no user of this id; `users.list` names those there are.", -32001)

    daemon.answers |= {"facts.list": refuse, "trees.list": refuse, "units.list": refuse}
    result = run(daemon, command, "ghost")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Nothing is known of this user.\n")
    assert all(not rows for rows in json.loads(run(daemon, command, "ghost", "--json").stdout).values())


def test_status_on_a_terminal_is_a_line_a_part_in_units_that_people_read(daemon: FakeDaemon) -> None:
    daemon.answers["status"] = lambda _: {
        "daemon": {"version": "1.2", "uptime_s": 93_900.5, "memories_bytes": 2048},
        "health": {"state": "ready", "reasons": {}},
        "ingest": {"paused": None},
    }
    shown = on_terminal(daemon, "status")

    assert shown.splitlines() == [
        "daemon  version 1.2 · uptime 1 d 2 h 5 min · memories 2 KiB",
        "health  state ready",
    ]
    assert (readable_size(1023), readable_size(1 << 40), readable_time(0.25)) == (
        "1023 bytes",
        "1 TiB",
        "0.25 s",
    )


def test_status_on_a_terminal_has_a_line_for_each_part_of_a_section_that_says_something(
    daemon: FakeDaemon,
) -> None:
    spent = {"calls": 3, "prompt_tokens": 900, "cached_tokens": 0, "completion_tokens": 80, "cost": 0.012}
    daemon.answers["status"] = lambda _: {
        "models": {
            "language_model": "gpt",
            "chat": {"name": "gpt", "circuit": "open", "reason": "nothing listens", "retry_in_s": 7.5, "limit": 4},
            "embeddings": None,
        },
        "budget": {"all_users": {"spent_tokens": 980, "limit_tokens": None, "waits_until": None}, "user": None},
        "ledger": {
            "today": {"extract": spent, "merge": dict.fromkeys(spent, 0)},
            "in_all": {"merge": dict.fromkeys(spent, 0.0)},
            "price_missing": "gpt",
        },
    }
    shown, piped = on_terminal(daemon, "status"), run(daemon, "status").stdout

    assert shown.splitlines() == [
        "models                language model gpt",
        "models chat           name gpt · circuit open · reason nothing listens · retry in 7.5 s · limit 4",
        "budget all users      spent tokens 980",
        "ledger                price missing gpt",
        "ledger today extract  calls 3 · prompt tokens 900 · cached tokens 0 · completion tokens 80 · cost 0.012",
    ]
    assert "ledger.today.extract.cost\t0.012\n" in piped
    assert "ledger.in_all.merge.calls\t0\n" in piped
    assert "models.embeddings\t\n" in piped


async def test_both_clients_have_the_new_methods_and_read_their_records(daemon: FakeDaemon) -> None:
    daemon.answers |= {"why": lambda _: WHY, "trees.get": lambda _: TREE, "units.list": lambda _: {"units": []}}
    with Client(daemon.path) as client:
        why, tree = client.why("alice", "f1"), client.tree("alice", "s1")
    async with AsyncClient(daemon.path) as other:
        again, below, units = await other.why("alice", "f1"), await other.tree("alice"), await other.units("alice")

    bus = why.facts[0].readings[0].turns[0].bus
    assert bus is not None
    assert (bus.seq, why.facts[0].readings[1].turns[0].text) == (41, None)
    assert (tree.root.children or ())[0].sources == below.root.children[0].sources  # type: ignore[index]
    assert (why, units.next) == (again, None)
    assert [params for method, params in daemon.requests if method == "trees.get"] == [
        {"user_id": "alice", "scope": "s1"},
        {"user_id": "alice"},
    ]


@pytest.mark.parametrize(
    ("sentence", "typed"),
    [
        ("user_id is empty; say whose memory is asked", "USER is empty; say whose memory is asked"),
        ("`max_tokens` is at least 1", "--max-tokens is at least 1"),
        ("k is from 1 to 200", "-k is from 1 to 200"),
        ("limit is from 1 to 1000", "--limit is from 1 to 1000"),
        ("time_end is before time_start", "--until is before --from"),
        ("message 3: user_id is empty", "message 3: user_id is empty"),
        (
            'families is of modes that recall trees; leave it out, or ask in mode "forest"',
            "--family is of modes that recall trees; leave it out, or ask with --mode forest",
        ),
        (
            'planner is of mode "deep"; leave it out, or ask in that mode',
            "--planner is of --mode deep; leave it out, or ask in that mode",
        ),
        (
            "timeout_s is above 0 and at most 120 (query.timeout_limit_s)",
            "--timeout is above 0 and at most 120 (query.timeout_limit_s)",
        ),
    ],
)
def test_errors_name_what_was_typed(daemon: FakeDaemon, sentence: str, typed: str) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("invalid", sentence, -32602)

    daemon.answers["query"] = refuse
    result = run(daemon, "query", "alice", "Where?")

    assert (result.exit_code, result.stderr) == (1, f"Error: {typed}\n")


def test_a_wrong_command_is_json_too_when_that_was_asked_for(daemon: FakeDaemon) -> None:
    wrong = run(daemon, "facts", "alice", "--limit", "none", "--json")
    away = CliRunner().invoke(cli, ["users", "--json", "--socket", "/nowhere/d.sock"])

    assert (wrong.exit_code, json.loads(wrong.stderr)["error"]["code"]) == (2, "invalid")
    assert (away.exit_code, json.loads(away.stderr)["error"]["code"]) == (69, "unavailable")


def test_not_found_is_an_exception_of_the_client(daemon: FakeDaemon) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("not_found", "There is no such tree.", -32001)

    daemon.answers["trees.get"] = refuse
    with Client(daemon.path) as client, pytest.raises(NotFound):
        client.tree("alice", "s9")
