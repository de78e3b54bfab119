"""What a query says of how a model is asked: the caps of its calls, and for mode `deep` who plans and browses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from daemon.config_query import Query
from events.errors import InvalidInput, MemForestError

if TYPE_CHECKING:
    from daemon.asking.query_params import QueryParams


class ModelNotConfigured(MemForestError):
    """This asks a language model, and none is configured: set models.chat_model, or ask in mode "forest"."""

    code = "invalid"


class Browsing(StrEnum):
    """Who says which nodes of the trees are gone into: a model, or vectors."""

    LLM = "llm"
    EMB = "emb"


@dataclass(frozen=True, slots=True)
class Caps:
    """What the model may take for one query; the answer is there in `timeout_s`, whatever it says by then."""

    calls_max: int
    tokens_max: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class DeepAsked:
    """How mode `deep` goes about a question."""

    planner: bool
    browse: Browsing
    caps: Caps


def read_deep(given: QueryParams, bounds: Query) -> DeepAsked:
    """Check them. Raises `InvalidInput`."""
    if given.browse is not None and given.browse not in set(Browsing):
        raise InvalidInput('browse is "llm", for a model that ranks, or "emb", for vectors')
    browse = Browsing.LLM if given.browse is None else Browsing(given.browse)
    return DeepAsked(given.planner is not False, browse, read_caps(given, bounds))


def read_caps(given: QueryParams, bounds: Query) -> Caps:
    """The caps of a query, those that it does not name as they are configured. Raises `InvalidInput`."""
    calls, tokens, timeout_s = given.calls_max, given.model_tokens_max, given.timeout_s
    if calls is not None and not 1 <= calls <= bounds.calls_limit:
        raise InvalidInput(f"calls_max is from 1 to {bounds.calls_limit} (query.calls_limit)")
    if tokens is not None and not 1 <= tokens <= bounds.model_tokens_limit:
        raise InvalidInput(f"model_tokens_max is from 1 to {bounds.model_tokens_limit} (query.model_tokens_limit)")
    if timeout_s is not None and not (math.isfinite(timeout_s) and 0 < timeout_s <= bounds.timeout_limit_s):
        raise InvalidInput(f"timeout_s is above 0 and at most {bounds.timeout_limit_s:g} (query.timeout_limit_s)")
    return Caps(
        calls or min(bounds.calls_max, bounds.calls_limit),
        tokens or min(bounds.model_tokens_max, bounds.model_tokens_limit),
        timeout_s or min(bounds.timeout_s, bounds.timeout_limit_s),
    )
