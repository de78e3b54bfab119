"""A running daemon over HTTP: every route once, and every reply as the OpenAPI document says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

from daemon.serving.http_routes import ROUTES_LISTED
from tests.daemon.sockets_in_use import HttpClient, Response, http_connected
from tests.system.daemon_process import DaemonProcess, running_daemon, short_folder, until_built, until_recorded

USER = "alice/é"
TURNS = (
    "I moved to Miami in May 2024.",
    "Wren adopted a dog called Biscuit.",
    "I moved to Miami in May of 2024, you know.",
    "Biscuit likes the beach in Miami.",
)


@dataclass
class Caller:
    """Calls routes by their table and checks each reply; remembers which were called."""

    client: HttpClient
    document: dict[str, Any]
    called: set[tuple[str, str]] = field(default_factory=set)

    async def call(
        self, verb: str, path: str, ids: dict[str, str] | None = None, body: object = None, query: str = ""
    ) -> Response:
        """The reply to a route's template, which is checked against the document, whatever its status."""
        target = path.format(**{name: quote(text, safe="") for name, text in (ids or {}).items()})
        reply = await self.client.fetch(verb, target + query, body)
        answers = self.document["paths"][path][verb.lower()]["responses"]
        assert str(reply.status) in answers, (verb, path, reply.status, reply.body)
        media = reply.headers["content-type"].partition(";")[0]
        schema = answers[str(reply.status)]["content"][media]["schema"]
        whole = {**schema, "components": self.document["components"]}
        value = reply.json if media == "application/json" else reply.body.decode()
        problems = [error.message for error in Draft202012Validator(whole).iter_errors(value)]
        assert problems == [], (verb, path)
        self.called.add((verb, path))
        return reply


@pytest.fixture
async def daemon() -> AsyncIterator[DaemonProcess]:
    with short_folder() as folder:
        async with running_daemon(folder / "d", environ={"MEMFOREST_METRICS_LISTEN": "127.0.0.1:0"}) as started:
            yield started


def some_turns(session_id: str, *contents: str) -> dict[str, object]:
    messages = [
        {
            "type": "turn",
            "user_id": USER,
            "session_id": session_id,
            "id": f"{session_id}-{number}",
            "role": "user",
            "content": content,
        }
        for number, content in enumerate(contents)
    ]
    return {"messages": messages}


async def test_every_route_answers_as_the_document_says(daemon: DaemonProcess) -> None:
    async with http_connected(daemon.socket_path) as client, daemon.client() as native:
        document = (await client.fetch("GET", "/openapi.json")).json
        caller = Caller(client, document)
        user, session = {"user_id": USER}, {"user_id": USER, "session_id": "s1"}
        await caller.call("GET", "/openapi.json")
        taken = await caller.call("POST", "/v1/turns", body=some_turns("s1", *TURNS))
        await caller.call("POST", "/v1/turns", body=some_turns("s2", "A second session, soon forgotten."))
        await caller.call("POST", "/v1/turns", body=some_turns("s3", "A third session."))
        await until_recorded(native, USER, len(TURNS) + 2)
        await follow(daemon, client)
        await caller.call("POST", "/v1/users/{user_id}/sessions/{session_id}/close", session)
        await until_built(native, USER)

        for path in (
            "/healthz",
            "/readyz",
            "/metrics",
            "/v1/status",
            "/v1/users",
            "/v1/dead_letters",
            "/v1/parked",
        ):
            assert (await caller.call("GET", path)).status == 200, path
        await caller.call("GET", "/v1/status", query=f"?user_id={quote(USER)}")
        for part in ("sessions", "facts", "trees", "units", "digest"):
            assert (await caller.call("GET", f"/v1/users/{{user_id}}/{part}", user)).status == 200, part
        await caller.call("GET", "/v1/users/{user_id}/diff", user, query="?a=1&b=3")
        await caller.call("GET", "/v1/users/{user_id}/sessions/{session_id}", session)
        await caller.call("GET", "/v1/users/{user_id}/sessions/{session_id}/events", session, query="?limit=3")
        found = await caller.call(
            "POST", "/v1/query", body={"user_id": USER, "query": "Where is Miami?", "explain": True}
        )
        memory = {**user, "memory_id": found.json["memories"][0]["id"]}
        await caller.call("GET", "/v1/users/{user_id}/why/{memory_id}", memory)
        trees = await caller.call("GET", "/v1/users/{user_id}/trees", user)
        tree = trees.json["trees"][0]
        names = (f"?tree={quote(tree['id'])}", f"?scope={quote(tree['scope'])}&kind={tree['kind']}")
        named = [await caller.call("GET", "/v1/users/{user_id}/tree", user, query=name) for name in names]
        await change_facts(caller, user)
        await check_metrics(client)
        await compact(caller, user)
        await caller.call(
            "POST", "/v1/users/{user_id}/sessions/{session_id}/replay", session, body={"dry_run": True}
        )
        await caller.call(
            "DELETE", "/v1/users/{user_id}/sessions/{session_id}/turns/{turn_id}", {**session, "turn_id": "s1-3"}
        )
        for verb, path in (("GET", ""), ("POST", "/retry"), ("DELETE", "")):
            assert (await caller.call(verb, "/v1/dead_letters/{id}" + path, {"id": "7"})).status == 404
        assert (await caller.call("GET", "/v1/users/{user_id}/parked/{id}", {**user, "id": "7"})).status == 404
        grade = {"question": "Where is Miami?", "gold": "in Florida", "answer": "In Florida."}
        assert (await caller.call("POST", "/v1/judge", body=grade)).status == 503, "there is no model to ask"
        assert (await caller.call("POST", "/v1/parked/retry", body={"user_id": USER})).json == {"resumed": 0}
        other = {**user, "session_id": "s2"}
        await caller.call("DELETE", "/v1/users/{user_id}/sessions/{session_id}", other, query="?dry_run=true")
        await caller.call("DELETE", "/v1/users/{user_id}/sessions/{session_id}", other)
        await caller.call("DELETE", "/v1/users/{user_id}", user)

    assert taken.status == 202
    assert "Miami" in found.json["context"]
    assert [each.json["id"] for each in named] == [tree["id"]] * 2
    assert caller.called == {(route.verb, route.path) for route in ROUTES_LISTED}
    assert daemon.log_text().count("Traceback") == 0


async def compact(caller: Caller, user: dict[str, str]) -> None:
    """Every route about units."""
    path = "/v1/users/{user_id}/units"
    told = await caller.call("POST", f"{path}/compact", user, body={"ratio": 0.5, "dry_run": True})
    done = await caller.call("POST", f"{path}/compact", user, body={"ratio": 0.5})
    assert (told.json["nodes_after"], told.json["calls"]) == (done.json["nodes_after"], 0)
    pairs = await caller.call("GET", f"{path}/merges", user, query="?extractive=true&limit=7")
    undone = await caller.call("POST", f"{path}/undo", user, body={})
    assert undone.json["groups"] == len(pairs.json["merges"])
    assert (await caller.call("POST", f"{path}/undo", user, body={"groups": ["00ff"]})).status == 404
    changed = await caller.call("PUT", f"{path}/policy", user, body={"ratio": 0.3, "never_merged": ["plan"]})
    shown = await caller.call("GET", f"{path}/policy", user)
    assert shown.json == changed.json
    assert shown.json["set_by_user"] == ["ratio", "never_merged"]
    assert (await caller.call("PUT", f"{path}/policy", user, body={"ratio": 1})).status == 400
    assert (await caller.call("GET", path, user)).json["compaction"] is None


async def change_facts(caller: Caller, user: dict[str, str]) -> None:
    """Every route of one fact."""
    facts = await caller.call("GET", "/v1/users/{user_id}/facts", user, query="?limit=2")
    first, second = ({**user, "fact_id": fact["id"]} for fact in facts.json["facts"])
    path = "/v1/users/{user_id}/facts/{fact_id}"
    assert (await caller.call("GET", path, first)).status == 200
    assert (await caller.call("POST", f"{path}/pin", first, body={"pinned": True})).status == 200
    corrected = await caller.call("POST", f"{path}/correct", first, body={"text": "Alice lives in Miami."})
    assert corrected.json["fact"]["text"] == "Alice lives in Miami."
    assert (await caller.call("DELETE", path, second)).status == 200
    assert (await caller.call("GET", path, {**user, "fact_id": "ff" * 16})).status == 404


async def follow(daemon: DaemonProcess, client: HttpClient) -> None:
    """A session's events as they come: what there was, then its closing and what that brings."""
    path = f"/v1/users/{quote(USER, safe='')}/sessions/s3"
    async with http_connected(daemon.socket_path) as following:
        following.request("GET", f"{path}/events?follow=true", accept="application/x-ndjson")
        assert (await following.head())[0] == 200
        parts = following.parts()
        first = json.loads((await anext(parts)).splitlines()[0])
        assert (await client.fetch("POST", f"{path}/close")).status == 202
        async for part in parts:
            kinds = [json.loads(line)["type"] for line in part.splitlines()]
            if "session.closed" in kinds:
                break
    assert (first["type"], first["text"]) == ("turn.recorded", "user: A third session.")


async def check_metrics(client: HttpClient) -> None:
    """Prometheus' own parser reads them, and nothing that was said is in them."""
    text = (await client.fetch("GET", "/metrics")).body.decode()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"memforest_log_seq", "memforest_request_seconds", "memforest_events"} <= names
    assert "Miami" not in text
    assert USER not in text
