"""A session's events as a stream over HTTP: page after page in one answer, as they come if that is wished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import anyio
import msgspec

from daemon.asking.session_events import WAIT_MAX_S, EventPage, EventShown, SessionEventsParams
from daemon.serving import protocol
from daemon.serving.calls import Call, Calls
from daemon.serving.http_failures import TargetMalformed, encode_failure
from daemon.serving.socket_connection import Connection

NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
PART_BYTES = 1 << 16  # Written and awaited at a time, so that a slow reader's answer does not pile up here.
STILL_HERE = b": still here\n\n"  # A comment by the HTML standard 9.2.6; some proxies end what is silent.


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream is wished: its media type, and whether it goes on after the newest event."""

    media: str
    follow: bool


def read_options(headers: Mapping[str, str], query: dict[str, str]) -> StreamOptions | None:
    """How the stream is wished, or None for an ordinary answer; takes `follow` out of the query.

    Last-Event-ID, which a browser's EventSource sends when it comes again, is where to go on from.
    Raises TargetMalformed.
    """
    follow = query.pop("follow", None)
    accepted = {part.partition(";")[0].strip() for part in headers.get("accept", "").lower().split(",")}
    media = next((media for media in (NDJSON, EVENT_STREAM) if media in accepted), None)
    if follow not in (None, "true", "false") or (follow == "true" and media is None):
        raise TargetMalformed(f"follow is true or false, and needs Accept: {NDJSON} or {EVENT_STREAM}.")
    if media is None:
        return None
    if "last-event-id" in headers:
        query["after"] = headers["last-event-id"]
    return StreamOptions(media, follow == "true")


class Stream:
    """One answer that goes on. `send_head` and `send_part` put it on the wire."""

    def __init__(
        self,
        connection: Connection,
        calls: Calls,
        options: StreamOptions,
        send_head: Callable[[str], None],
        send_part: Callable[[bytes], None],
    ) -> None:
        self._connection = connection
        self._calls = calls
        self._options = options
        self._send_head = send_head
        self._send_part = send_part
        self._stopped = False
        self._written = asyncio.Event()
        calls.tally.streams += 1

    def stop(self) -> None:
        """End soon, and in good order."""
        self._stopped = True
        self._connection.asker.cancel_queries()

    def resume(self) -> None:
        """All that was sent is written."""
        self._written.set()

    async def run(self, call: Call) -> None:
        """Send all there is and, following, all that comes. Raises what the first page raises."""
        try:
            page: EventPage | None = await self._read(call)
            self._send_head(self._options.media)
            try:
                while page is not None:
                    await self._send_page(page)
                    page = await self._read_next(call, page)
            except Exception as error:
                # Too late for a status: the last line says what went wrong.
                self._calls.failed(call.name, error)
                self._send_part(self._frame(encode_failure(error), "error", None))
        finally:
            self._calls.tally.streams -= 1

    async def _read(self, call: Call) -> EventPage:
        return cast("EventPage", await self._calls.run(call, self._connection.asker))

    async def _read_next(self, call: Call, page: EventPage) -> EventPage | None:
        """The page behind this one; None at the end."""
        if self._stopped or not (page.more or self._options.follow):
            return None
        params = cast("SessionEventsParams", call.params)
        wait_s = 0.0 if page.more else WAIT_MAX_S
        params = msgspec.structs.replace(params, after=page.next, wait_s=wait_s)
        try:
            return await self._read(self._calls.admit_again(call, params))
        except Exception:
            if self._stopped:
                return None
            raise

    async def _send_page(self, page: EventPage) -> None:
        part = bytearray()
        for framed in self._frame_page(page):
            part += framed
            if len(part) >= PART_BYTES:
                await self._send_and_wait(bytes(part))
                part.clear()
        if part:
            await self._send_and_wait(bytes(part))

    def _frame_page(self, page: EventPage) -> Iterator[bytes]:
        for event in page.events:
            yield self._frame(protocol.encode(event), event.type, event)
        if not page.events and self._options.media == EVENT_STREAM:
            yield STILL_HERE

    def _frame(self, encoded: bytes, kind: str, event: EventShown | None) -> bytes:
        if self._options.media == NDJSON:
            return encoded + b"\n"
        place = b"" if event is None else b"id: %d\n" % event.user_seq
        return b"%bevent: %b\ndata: %b\n\n" % (place, kind.encode(), encoded)

    async def _send_and_wait(self, part: bytes) -> None:
        """Send, and go on when it is written; a client that leaves cancels the wait."""
        self._written = asyncio.Event()
        self._send_part(part)
        with anyio.CancelScope() as waiting:
            self._connection.asker.queries.add(waiting)
            try:
                while self._connection.is_writing:
                    await self._written.wait()
                    self._written = asyncio.Event()
            finally:
                self._connection.asker.queries.discard(waiting)
