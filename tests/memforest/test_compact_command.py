"""`compact`, `policy`, `units` and `export` against a daemon that speaks the contract over a real Unix socket."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from click.testing import CliRunner, Result

from memforest import AsyncClient, Client
from memforest.cli import cli
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DONE = {
    "facts": 100,
    "nodes_before": 100,
    "nodes_after": 50,
    "cut": 0.5,
    "groups": 30,
    "units": 5,
    "loss_bound": 7.25,
    "ratio": 0.5,
    "calls": 30,
    "tokens": 9000,
    "apart": {"pinned": 2, "states": 3, "kinds": 0, "young": 1},
    "a_field_of_a_later_version": 1,
}
POLICY = {
    "preset": "default",
    "online": True,
    "ratio": 0.7,
    "member_cap": None,
    "time_bonus": 0.5,
    "min_age_s": 604800,
    "never_merged": ["preference", "plan"],
    "set_by_user": ["ratio", "min_age_s", "never_merged"],
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        running.answers["units.compact"] = lambda _: DONE
        running.answers["units.policy"] = lambda _: POLICY
        running.answers["units.set_policy"] = lambda _: POLICY
        yield running


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--socket", str(daemon.path)])


def asked(daemon: FakeDaemon, method: str) -> list[JsonObject]:
    return [params for name, params in daemon.requests if name == method]


def test_compact_says_what_it_did_what_that_took_and_what_stays_by_itself(daemon: FakeDaemon) -> None:
    result = run(daemon, "compact", "--user", "alice")

    assert result.stdout.splitlines() == [
        "100 facts in 5 units: 100 nodes became 50 (50.0% less, 30 groups). Loss bound 7.25.",
        "Asked the model 30 questions for 9000 tokens.",
        "By themselves stay: 2 pinned, 3 states that may still end, 1 too young.",
    ]
    assert asked(daemon, "units.compact") == [{"user_id": "alice"}], "the ratio is the policy's"


def test_a_dry_run_says_what_it_would_do_and_how_tokens_are_counted(daemon: FakeDaemon) -> None:
    daemon.answers["units.compact"] = lambda _: {**DONE, "dry_run": True, "apart": {}}
    result = run(daemon, "compact", "--user", "alice", "--ratio", ".5", "--dry-run", "--reindex")

    assert result.stdout.splitlines() == [
        "100 facts in 5 units: 100 nodes would become 50 (50.0% less, 30 groups). Loss bound 7.25.",
        "It would ask the model 30 questions, about 9000 tokens (four characters each).",
    ]
    assert asked(daemon, "units.compact") == [{"user_id": "alice", "ratio": 0.5, "dry_run": True, "reindex": True}]
    assert daemon.methods() == ["units.compact"], "nobody has to be shown how far it is"


def test_a_dry_run_of_what_costs_nothing_says_so(daemon: FakeDaemon) -> None:
    daemon.answers["units.compact"] = lambda _: {**DONE, "dry_run": True, "calls": 0, "tokens": 0}

    assert "It would cost nothing" in run(daemon, "compact", "--user", "alice", "--dry-run").stdout


def test_a_cut_that_is_held_up_and_groups_that_are_left_are_told(daemon: FakeDaemon) -> None:
    daemon.answers["units.compact"] = lambda _: {**DONE, "nodes_after": 60, "extractive": 2, "apart": {}}
    held = run(daemon, "compact", "--user", "alice").stdout
    daemon.answers["units.compact"] = lambda _: {
        **DONE,
        "nodes_after": 60,
        "parked": 1,
        "waiting": 4,
        "waits_for": "the chat model is away",
        "apart": {},
    }
    left = run(daemon, "compact", "--user", "alice").stdout

    assert "2 groups put together of the members' own texts, without a model." in held
    assert "No merge that is left is allowed" in held
    assert "No merge that is left is allowed" not in left
    assert "1 planned group given up; see: memforest parked list" in left
    assert "4 planned groups left for later: the chat model is away. Run it again to go on." in left


@pytest.mark.parametrize("ratio", ["1", "-.1", "half"])
def test_a_ratio_that_cannot_be_is_refused_here(daemon: FakeDaemon, ratio: str) -> None:
    assert run(daemon, "compact", "--user", "alice", "--ratio", ratio).exit_code == 2
    assert daemon.requests == []


def test_a_ratio_of_0_is_one(daemon: FakeDaemon) -> None:
    assert run(daemon, "compact", "--user", "alice", "--ratio", "0").exit_code == 0
    assert asked(daemon, "units.compact") == [{"user_id": "alice", "ratio": 0}]


def test_how_far_it_is_comes_as_plain_lines_in_a_pipe(daemon: FakeDaemon) -> None:
    """The status is asked for on the connection that is idle while the other one waits."""
    fused, over = iter([0, 12, 13, 30]), threading.Event()

    def status(_: JsonObject) -> JsonObject:
        done = next(fused)
        if done == 30:
            over.set()
        return {"daemon": {}, "compaction": {"groups": 30, "fused": done, "parked": 0}}

    def compact(_: JsonObject) -> JsonObject:
        daemon.pause().release()  # others are answered meanwhile
        over.wait(10)
        daemon.pause().acquire()
        return DONE

    daemon.answers |= {"status": status, "units.compact": compact}
    result = run(daemon, "compact", "--user", "alice")

    assert result.stderr.splitlines() == ["fused 12 of 30", "fused 30 of 30"]
    assert result.stdout.startswith("100 facts")


def test_undo_takes_all_groups_or_those_named_apart(daemon: FakeDaemon) -> None:
    daemon.answers["units.undo"] = lambda params: {"groups": len(params.get("groups", "abcd")), "facts": 9}
    every = run(daemon, "compact", "--user", "alice", "--undo")
    some = run(daemon, "compact", "--user", "alice", "--undo", "aa11", "bb22")
    daemon.answers["units.undo"] = lambda _: {"groups": 0, "facts": 0}
    none = run(daemon, "compact", "--user", "alice", "--undo")

    assert every.stdout.startswith("4 groups taken apart: 9 facts stand by themselves again.")
    assert some.stdout.startswith("2 groups taken apart")
    assert none.stdout == "No group to take apart.\n"
    assert asked(daemon, "units.undo") == [
        {"user_id": "alice"},
        {"user_id": "alice", "groups": ["aa11", "bb22"]},
        {"user_id": "alice"},
    ]


@pytest.mark.parametrize(
    "wrong",
    [["aa11"], ["--undo", "--ratio", ".5"], ["--undo", "--dry-run"], ["--undo", "--reindex"]],
)
def test_what_does_not_go_together_is_refused_here(daemon: FakeDaemon, wrong: list[str]) -> None:
    result = run(daemon, "compact", "--user", "alice", *wrong)

    assert (result.exit_code, daemon.requests) == (2, [])
    assert "--undo" in result.stderr


def test_a_compaction_that_runs_already_is_said_and_ends_with_1(daemon: FakeDaemon) -> None:
    def busy(_: JsonObject) -> JsonObject:
        raise Refusal("busy", "A compaction of this user is running already; wait until it is done.")

    daemon.answers["units.compact"] = busy
    result = run(daemon, "compact", "--user", "alice")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "running already" in result.stderr


def test_policy_shows_each_value_and_whose_it_is(daemon: FakeDaemon) -> None:
    result = run(daemon, "policy", "--user", "alice")

    assert result.stdout.splitlines() == [
        "online\tyes\tdaemon",
        "ratio\t0.7\tuser",
        "member_cap\tnone\tdaemon",
        "time_bonus\t0.5\tdaemon",
        "min_age\t1w\tuser",
        "never_merged\tpreference, plan\tuser",
    ]
    assert daemon.requests == [("units.policy", {"user_id": "alice"})]


def test_policy_says_what_was_typed_and_nothing_else(daemon: FakeDaemon) -> None:
    run(daemon, "policy", "--user", "alice", "--ratio", ".7", "--member-cap", "0", "--time-bonus", "1")
    run(daemon, "policy", "--user", "alice", "--min-age", "7d", "--never-merge", "preference, plan", "--no-online")
    run(daemon, "policy", "--user", "alice", "--reset", "--never-merge", "", "--min-age", "90")

    assert asked(daemon, "units.set_policy") == [
        {"user_id": "alice", "ratio": 0.7, "member_cap": 0, "time_bonus": 1},
        {"user_id": "alice", "online": False, "min_age_s": 604800, "never_merged": ["preference", "plan"]},
        {"user_id": "alice", "reset": True, "min_age_s": 90, "never_merged": []},
    ]


@pytest.mark.parametrize(
    "wrong", [["--min-age", "soon"], ["--min-age", "-1"], ["--ratio", "1"], ["--member-cap", "x"]]
)
def test_a_policy_that_cannot_be_read_is_refused_here(daemon: FakeDaemon, wrong: list[str]) -> None:
    assert run(daemon, "policy", "--user", "alice", *wrong).exit_code == 2
    assert daemon.requests == []


def test_what_the_daemon_refuses_is_said_in_the_words_of_the_command(daemon: FakeDaemon) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("invalid", "never_merged is a list of kinds of facts: event, plan", -32602)

    daemon.answers["units.set_policy"] = refuse
    result = run(daemon, "policy", "--user", "alice", "--never-merge", "gossip")

    assert result.exit_code == 1
    assert "--never-merge is a list of kinds of facts" in result.stderr


def units_page(name: str, following: str | None) -> JsonObject:
    group = {"id": f"g{name}", "unit": name, "text": f"Of {name}.", "members": ["f1", "f2"]}
    times = {"time_start": "2024-07-01T09:00:00Z", "time_end": "2024-07-03T09:00:00Z"}
    what = {"loss_bound": 0.5, "extractive": True, "trajectory": name == "u2"}
    return {
        "units": [{"id": name, "nodes": 2, "facts": 3, "groups": 1, "loss_bound": 0.5, "extractive": 1}],
        "groups": [group | times | what],
        "next": following,
        "facts": 6,
        "nodes": 4,
        "loss_bound": 1.0,
        "compaction": {"groups": 9, "fused": 4, "parked": 0},
    }


def test_units_tell_what_each_group_is_and_how_far_a_compaction_is(daemon: FakeDaemon) -> None:
    daemon.answers["units.list"] = lambda params: (
        units_page("u2", None) if "after" in params else units_page("u1", "u1")
    )
    result = run(daemon, "units", "alice")
    raw = json.loads(run(daemon, "units", "alice", "--json").stdout)

    assert result.stdout.splitlines() == [
        "0\tunit\tu1\t3 facts in 2 nodes, 1 group, loss bound 0.5\t",
        "1\tgroup\tgu1\t2 facts, 2024-07-01 to 2024-07-03, extractive\tOf u1.",
        "0\tunit\tu2\t3 facts in 2 nodes, 1 group, loss bound 0.5\t",
        "1\tgroup\tgu2\t2 facts, 2024-07-01 to 2024-07-03, trajectory, extractive\tOf u2.",
    ]
    assert result.stderr == "A compaction is running: 4 of 9 groups fused.\n"
    assert (len(raw["groups"]), raw["facts"], raw["nodes"], raw["loss_bound"]) == (2, 6, 4, 1.0)


def pair(number: int) -> JsonObject:
    return {
        "group": f"g{number}",
        "members": [f"Zoë ate {number}.", "She liked it."],
        "text": f"Zoë ate and liked {number}.",
        "model": "gpt",
        "extractive": False,
        "user_seq": number,
    }


def a_user(user_id: str) -> JsonObject:
    return {"user_id": user_id, "user_seq": 7, "sessions": 1, "turns": 2}


def merges_of(user: str, pairs: int) -> Callable[[JsonObject], JsonObject]:
    """Pages of two."""

    def answer(params: JsonObject) -> JsonObject:
        start = int(params.get("after", 0)) if params["user_id"] == user else pairs
        some = list(range(start, min(start + 2, pairs)))
        return {"merges": [pair(n) for n in some], "next": some[-1] + 1 if some and some[-1] + 1 < pairs else None}

    return answer


def test_export_writes_a_line_a_pair_page_by_page_of_every_user(daemon: FakeDaemon) -> None:
    daemon.answers["users.list"] = lambda _: {"users": [a_user("alice"), a_user("bob")]}
    daemon.answers["units.merges"] = merges_of("alice", 5)
    result = run(daemon, "export", "--pairs", "merges")

    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["text"] for line in lines] == [f"Zoë ate and liked {n}." for n in range(5)]
    assert lines[0] == {
        "user_id": "alice",
        "members": ["Zoë ate 0.", "She liked it."],
        "text": "Zoë ate and liked 0.",
        "model": "gpt",
        "extractive": False,
    }
    assert result.stdout.isascii(), "no terminal or locale can spoil it"
    assert [params.get("after") for params in asked(daemon, "units.merges")] == [None, 2, 4, None]


def test_export_to_a_file_is_for_its_owner_alone_and_says_how_much(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.answers["units.merges"] = merges_of("alice", 3)
    out = tmp_path / "pairs.jsonl"
    result = run(daemon, "export", "--pairs", "merges", "--user", "alice", "--out", out, "--extractive")

    assert result.stdout == f"3 pairs of 1 user written to {out}.\n"
    assert [json.loads(line)["text"] for line in out.read_text(encoding="utf-8").splitlines()] == [
        f"Zoë ate and liked {n}." for n in range(3)
    ]
    assert out.stat().st_mode & 0o777 == 0o600
    assert asked(daemon, "units.merges")[0]["extractive"] is True
    assert "users.list" not in daemon.methods()


def test_the_help_of_export_says_that_it_is_what_people_said(daemon: FakeDaemon) -> None:
    assert "CONTAINS WHAT PEOPLE SAID" in run(daemon, "export", "--help").stdout


async def test_both_clients_ask_the_same(daemon: FakeDaemon) -> None:
    daemon.answers["units.undo"] = lambda _: {"groups": 1, "facts": 2}
    daemon.answers["units.merges"] = merges_of("alice", 1)

    def ask() -> list[object]:
        with Client(daemon.path) as client:
            return [
                client.compact("alice", 0.5, dry_run=True),
                client.undo_compaction("alice", ["aa"]),
                client.policy("alice"),
                client.set_policy("alice", ratio=0.3, reset=True),
                client.merges("alice", limit=7, extractive=True),
            ]

    blocking = await anyio.to_thread.run_sync(ask)
    first, daemon.requests = daemon.requests, []
    async with AsyncClient(daemon.path) as client:
        awaited: list[object] = [
            await client.compact("alice", 0.5, dry_run=True),
            await client.undo_compaction("alice", ["aa"]),
            await client.policy("alice"),
            await client.set_policy("alice", ratio=0.3, reset=True),
            await client.merges("alice", limit=7, extractive=True),
        ]

    assert blocking == awaited
    assert (
        first
        == daemon.requests
        == [
            ("units.compact", {"user_id": "alice", "ratio": 0.5, "dry_run": True}),
            ("units.undo", {"user_id": "alice", "groups": ["aa"]}),
            ("units.policy", {"user_id": "alice"}),
            ("units.set_policy", {"user_id": "alice", "ratio": 0.3, "reset": True}),
            ("units.merges", {"user_id": "alice", "limit": 7, "extractive": True}),
        ]
    )
