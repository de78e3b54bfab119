"""A session's events as a stream: page by page, as they come, and ended from either side."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import anyio

from daemon.asking.session_events import EventPage, EventShown, SessionEventsParams
from daemon.erasure.receipts import SessionUnknown
from daemon.serving.calls import SocketLimits
from daemon.serving.http_stream import PART_BYTES
from daemon.serving.protocol import Handlers, Method
from tests.daemon.sockets_in_use import HttpClient, Reports, http_connected, serving
from tests.waiting import wait_until

EVENTS = "/v1/users/alice/sessions/s1/events"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


class Growing:
    """A session whose events a test adds; `sessions.events` over it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.grown = asyncio.Event()
        self.error: Exception | None = None
        self.cancelled = asyncio.Event()
        self.waiting = asyncio.Event()

    def grow(self, error: Exception | None = None) -> None:
        self.count += error is None
        self.error = error
        self.grown.set()

    async def __call__(self, params: SessionEventsParams) -> EventPage:
        if params.after >= self.count and params.wait_s:
            self.waiting.set()
            try:
                await self.grown.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            self.grown.clear()
        if self.error is not None:
            raise self.error
        last = min(self.count, params.after + params.limit)
        shown = [an_event(number) for number in range(params.after + 1, last + 1)]
        return EventPage(shown, last, more=last < self.count)


def an_event(number: int) -> EventShown:
    at = "2024-07-01T09:00:00Z"
    return EventShown(number, at, "turn.recorded", at, None, "kept", {}, f"user: {number}\nand more")


def table(events: Growing) -> Handlers:
    return {"sessions.events": Method(SessionEventsParams, events, write=False, deadline_s=60.0)}


async def lines(client: HttpClient) -> list[Any]:
    """The events of a stream to its end."""
    return [json.loads(line) for line in (await client.response()).body.splitlines()]


async def test_without_a_wish_it_is_a_page(path: Path) -> None:
    async with serving(path, table(Growing(5))), http_connected(path) as client:
        page = (await client.fetch("GET", f"{EVENTS}?limit=2&after=1")).json

        assert [event["user_seq"] for event in page["events"]] == [2, 3]
        assert (page["next"], page["more"]) == (3, True)


async def test_all_pages_come_in_one_answer_and_the_connection_stays(path: Path) -> None:
    async with serving(path, table(Growing(25))), http_connected(path) as client:
        client.request("GET", f"{EVENTS}?limit=10", accept=NDJSON)
        streamed = await client.response()

        assert (streamed.status, streamed.headers["content-type"]) == (200, NDJSON)
        assert [json.loads(line)["user_seq"] for line in streamed.body.splitlines()] == list(range(1, 26))
        assert (await client.fetch("GET", EVENTS)).status == 200


async def test_events_come_as_server_sent_events_too(path: Path) -> None:
    async with serving(path, table(Growing(3))), http_connected(path) as client:
        client.request("GET", EVENTS, accept=f"text/html, {SSE};q=0.9", last_event_id="1")
        streamed = await client.response()
        first, second, rest = streamed.body.decode().split("\n\n")

        assert streamed.headers["content-type"] == SSE
        assert rest == ""
        assert first.splitlines()[:2] == ["id: 2", "event: turn.recorded"]
        assert json.loads(second.splitlines()[2].removeprefix("data: "))["text"] == "user: 3\nand more"


async def test_following_goes_on_with_what_comes_until_the_client_leaves(path: Path) -> None:
    events = Growing(1)
    async with serving(path, table(events)):
        async with http_connected(path) as client:
            client.request("GET", f"{EVENTS}?follow=true", accept=NDJSON)
            await client.head()
            parts = client.parts()
            first = json.loads(await anext(parts))
            await events.waiting.wait()
            events.waiting.clear()
            events.grow()
            second = json.loads(await anext(parts))
            await events.waiting.wait()
        await events.cancelled.wait()

        assert (first["user_seq"], second["user_seq"]) == (1, 2)


async def test_a_stream_ends_in_good_order_when_the_daemon_stops(path: Path) -> None:
    events = Growing(2)
    async with serving(path, table(events)) as server, http_connected(path) as client:
        client.request("GET", f"{EVENTS}?follow=true", accept=NDJSON)
        await events.waiting.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop, 10.0)

            assert [event["user_seq"] for event in await lines(client)] == [1, 2]
            assert await client.at_end()


async def test_what_is_wrong_before_the_first_page_is_an_ordinary_error(path: Path) -> None:
    events = Growing(0)
    events.error = SessionUnknown()
    async with serving(path, table(events)), http_connected(path) as client:
        unknown = await client.fetch("GET", EVENTS, accept=NDJSON)
        wishless = await client.fetch("GET", f"{EVENTS}?follow=true")
        odd = await client.fetch("GET", f"{EVENTS}?follow=perhaps", accept=NDJSON)

        assert (unknown.status, unknown.code) == (404, "not_found")
        assert (wishless.status, odd.status) == (400, 400)


async def test_what_goes_wrong_later_is_the_last_line(path: Path) -> None:
    events = Growing(1)
    async with serving(path, table(events)), http_connected(path) as client:
        client.request("GET", f"{EVENTS}?follow=true", accept=NDJSON)
        await events.waiting.wait()
        events.grow(SessionUnknown())
        first, last = await lines(client)

        assert first["user_seq"] == 1
        assert last["error"]["code"] == "not_found"


async def test_a_stream_that_is_not_read_waits_and_is_let_go(path: Path) -> None:
    events = Growing(200_000)
    reports = Reports()
    async with serving(path, table(events), SocketLimits(write_timeout_s=0.05), reports) as server:
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(path))
            deaf.send(f"GET {EVENTS}?limit=1000 HTTP/1.1\r\nHost: m\r\nAccept: {NDJSON}\r\n\r\n".encode())
            told = await reports.wait_for("socket.client_not_reading")

        assert int(str(told["answer_bytes"])) < 2 * PART_BYTES
        await wait_until(lambda: not server.tally.streams)


async def test_streams_leave_room_for_those_who_only_ask(path: Path) -> None:
    events = Growing(1)
    limits = SocketLimits(streams_max=1)
    async with (
        serving(path, table(events), limits),
        http_connected(path) as following,
        http_connected(path) as client,
    ):
        following.request("GET", f"{EVENTS}?follow=true", accept=NDJSON)
        await events.waiting.wait()
        second = await client.fetch("GET", EVENTS, accept=NDJSON)

        assert (second.status, second.code) == (503, "busy")
        assert (await client.fetch("GET", EVENTS)).status == 200
