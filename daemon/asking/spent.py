"""What an answer, or work that came to nothing, took: as it goes over the socket."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.models.prices import NANO
from events.memory import Usage


@dataclass(frozen=True, slots=True)
class SpentShown:
    """What calls took; `cost` is in the currency of `[[prices]]`, at the prices of then."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float


def show_usage(usage: Usage) -> SpentShown:
    """What calls took."""
    tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return SpentShown(usage.calls, *tokens, cost=usage.cost_nano / NANO)
