"""The stub as a process of its own, for tests and benchmarks that start a daemon beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.text import TextReceiveStream

from daemon.bus.embedded_bus import tied_to_this_process

ROOT = Path(__file__).resolve().parents[2]
STARTED_WITHIN_S = 30.0
ANSWERED_WITHIN_S = 10.0


class StubProcess:
    """A running stub; `url` is what models.chat_url and models.embed_url are set to."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/v1"

    async def set_faults(self, specification: str = "") -> None:
        """Other faults from now on; none for an empty specification."""
        await self._ask("/faults", {"faults": specification})

    async def stats(self) -> dict[str, Any]:
        """What was asked of it since the last reset."""
        return await self._ask("/stats", None)

    async def until_idle(self, within_s: float) -> None:
        """Return at the next moment without a chat call under way."""
        await self._ask("/idle", None, within_s)

    async def reset(self) -> None:
        """Count from nothing."""
        await self._ask("/reset", {})

    def environ(self) -> Mapping[str, str]:
        """The environment of a daemon whose models, chat and embeddings, are this stub."""
        return {
            "MEMFOREST_MODELS_CHAT_URL": self.url,
            "MEMFOREST_MODELS_CHAT_MODEL": "stub-chat",
            "MEMFOREST_MODELS_EMBEDDER": "endpoint",
            "MEMFOREST_MODELS_EMBED_URL": self.url,
            "MEMFOREST_MODELS_EMBED_MODEL": "stub-embed",
        }

    async def _ask(self, path: str, body: object, within_s: float = ANSWERED_WITHIN_S) -> dict[str, Any]:
        content = None if body is None else msgspec.json.encode(body)
        asked = Request(f"http://127.0.0.1:{self.port}{path}", content)
        fetched = await anyio.to_thread.run_sync(partial(_fetch, asked, within_s))
        answer: dict[str, Any] = msgspec.json.decode(fetched)
        return answer


def _fetch(asked: Request, within_s: float) -> bytes:
    with urlopen(asked, timeout=within_s) as answer:
        content: bytes = answer.read()
        return content


@asynccontextmanager
async def running_stub_process(*arguments: str) -> AsyncGenerator[StubProcess]:
    """A stub with these arguments, on a free port unless they name one; ended on the way out."""
    command = tied_to_this_process([sys.executable, "-m", "tests.stub_models", *arguments])
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None, cwd=ROOT)
    try:
        assert process.stdout is not None
        with anyio.fail_after(STARTED_WITHIN_S):
            first = await TextReceiveStream(process.stdout).receive()
        yield StubProcess(int(msgspec.json.decode(first)["port"]))
    finally:
        with anyio.CancelScope(shield=True):
            process.terminate()
            await process.wait()
            await process.aclose()
