"""`[query]` of the configuration: what a query may take of a language model, where it asks one at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from daemon.config_values import ConfigInvalid

CALLS_LIMIT_MAX: Final = 1_000
TOKENS_LIMIT_MAX: Final = 1 << 40
# What the socket gives a query is somewhat longer.
TIMEOUT_LIMIT_MAX_S: Final = 600.0
# Less holds no memory of some length; more is no selection.
ANSWER_CONTEXT_TOKENS: Final = (200, 200_000)


@dataclass(frozen=True, slots=True)
class Query:
    """How many calls, tokens and seconds a query may take that asks a model: unless it says so itself (`..._max`,
    never above the limit), and at most.

    A browse takes a call a level of the highest tree, and two; a level that is wide takes some thousand tokens.
    """

    calls_max: int = 16
    calls_limit: int = 64
    model_tokens_max: int = 80_000
    model_tokens_limit: int = 400_000
    timeout_s: float = 30.0
    timeout_limit_s: float = 120.0
    # Of the memories that an answer in words is written from: ten of 200 words in any script.
    answer_context_tokens: int = 6_000


def check_query(query: Query) -> None:
    """Raises `ConfigInvalid` with a sentence that names the key."""
    rules = [
        (1 <= query.calls_max <= CALLS_LIMIT_MAX, f"query.calls_max must be from 1 to {CALLS_LIMIT_MAX}"),
        (1 <= query.calls_limit <= CALLS_LIMIT_MAX, f"query.calls_limit must be from 1 to {CALLS_LIMIT_MAX}"),
        (1 <= query.model_tokens_max <= TOKENS_LIMIT_MAX, "query.model_tokens_max must be above 0"),
        (1 <= query.model_tokens_limit <= TOKENS_LIMIT_MAX, "query.model_tokens_limit must be above 0"),
        (0 < query.timeout_s <= TIMEOUT_LIMIT_MAX_S, "query.timeout_s must be above 0 and at most 600"),
        (
            0 < query.timeout_limit_s <= TIMEOUT_LIMIT_MAX_S,
            "query.timeout_limit_s must be above 0 and at most 600",
        ),
    ]
    least, most = ANSWER_CONTEXT_TOKENS
    rules.append(
        (
            least <= query.answer_context_tokens <= most,
            f"query.answer_context_tokens must be from {least} to {most}",
        )
    )
    for holds, sentence in rules:
        if not holds:
            raise ConfigInvalid(sentence)
