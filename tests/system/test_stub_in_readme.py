"""The README's two commands for trying an endpoint, run as they stand there but for the port."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from daemon.bus.embedded_bus import tied_to_this_process
from memforest import AsyncClient
from memforest.errors import MemForestError
from tests.system.daemon_process import ROOT, command_environment, short_folder, until, until_built, until_recorded

PORT = "8090"
STARTED_WITHIN_S = 60.0


def commands_of_the_readme() -> list[str]:
    """The lines of the block that begins with the stub."""
    text = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"^```sh\n(python -m tests\.stub_models .*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    return block[1].splitlines()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@asynccontextmanager
async def running(command: str, folder: Path) -> AsyncGenerator[None]:
    """A command line in a shell whose `python` and `memforestd` are of the checkout; ended on the way out."""
    environ = command_environment({"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})
    process = await anyio.open_process(
        tied_to_this_process(["/bin/sh", "-c", f"exec env {command}"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ,
        cwd=folder,
    )
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            process.terminate()
            await process.wait()


async def test_the_two_commands_of_the_readme_run_a_daemon_whose_models_are_the_stub() -> None:
    stub_command, daemon_command = commands_of_the_readme()
    port = free_port()
    with short_folder() as folder:
        programs = folder / "bin"
        programs.mkdir()
        for name, called in (("python", ""), ("memforestd", " -m daemon")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{called} "$@"\n')
            (programs / name).chmod(0o755)
        async with (
            running(stub_command.replace(PORT, port), folder),
            running(daemon_command.replace(PORT, port), folder),
            AsyncClient(folder / "stub-data" / "memforest.sock") as client,
        ):

            async def is_up() -> bool:
                try:
                    return bool((await client.request("status", {}))["bus"]["state"] == "up")
                except MemForestError:
                    return False

            async def is_extracted() -> bool:
                session = await client.session("alice", "s1")
                return session.chunks == 1 and session.waiting_chunks == 0

            await until(is_up, STARTED_WITHIN_S, "the daemon did not get ready")
            await client.add("alice", "I moved from Davis to Miami in May.", session_id="s1")
            await until_recorded(client, "alice", 1)
            await client.close_session("alice", "s1")
            await until(is_extracted, STARTED_WITHIN_S, "the session was not read")
            await until_built(client, "alice")
            facts = (await client.facts("alice")).facts
            models = (await client.request("status", {}))["models"]

    assert [fact.text for fact in facts] == ["I moved from Davis to Miami in May."]
    assert (models["language_model"], models["chat"]["json_mode"]) == ("endpoint-stub-chat", "json_schema")
    assert models["embedder"].startswith("endpoint-stub-embed-")
