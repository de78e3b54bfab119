"""The README's first command: the demo, with real processes, finds everything that it looks for, with groups and
without.
"""

from __future__ import annotations

from tests.system.daemon_process import run_command


async def test_the_demo_finds_everything_and_ends_with_0() -> None:
    ended = await run_command("daemon", "demo")

    assert (ended.code, ended.errors) == (0, ""), ended
    assert "FAIL" not in ended.output
    assert "demo: OK" in ended.output
