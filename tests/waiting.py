"""Waiting for something to become true, with a deadline; the only place where tests pause."""

from __future__ import annotations

from collections.abc import Callable

import anyio

POLL_S = 0.02
# What takes longer does not come to an end: on a busy machine everything else is there by then.
HANGS_AFTER_S = 30.0


async def wait_until(predicate: Callable[[], bool], timeout_s: float = HANGS_AFTER_S, message: str = "") -> None:
    """Return as soon as the predicate holds. Raises AssertionError with the message after `timeout_s`."""
    deadline = anyio.current_time() + timeout_s
    while not predicate():
        if anyio.current_time() > deadline:
            raise AssertionError(message or f"this did not become true within {timeout_s} s")
        await anyio.sleep(POLL_S)
