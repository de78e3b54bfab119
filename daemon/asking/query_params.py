"""What `query` takes, read once into what recall understands; every refusal says what would be right."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from daemon.asking.auto_mode import WhyMode
from daemon.asking.modes import BY_TREES, MAY_ASK, Family, Mode
from daemon.asking.reference_dates import ReferenceDate, read_reference
from daemon.untrusted import Params, reason_without_values
from events.envelope import Keys
from events.errors import InvalidInput
from events.time import Instant, from_datetime
from projections.recall.filters import (
    METADATA_PAIRS_MAX,
    Filters,
    Mark,
    Span,
    Wanted,
    agent_mark,
    entity_mark,
    metadata_marks,
    role_mark,
    session_mark,
)
from projections.recall.nodes import NodeKind

K_DEFAULT = 10
K_MAX = 200
QUESTION_CHARACTERS_MAX = 8_000
# Memories considered when only a budget of tokens was given.
K_WITHIN_TOKENS = 100
# The most that chat servers take.
TEMPERATURE_MAX = 2.0
# Values of one filter: each costs a look at the rows that carry it.
VALUES_MAX = 100

Texts: TypeAlias = str | list[str] | None


class FilterParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of `query`. All that are given must let a memory pass; of several values one is enough."""

    sessions: Texts = None
    not_sessions: Texts = None
    roles: Texts = None
    not_roles: Texts = None
    kinds: Texts = None
    entities: Texts = None
    agents: Texts = None
    metadata: dict[str, Any] | None = None
    said_after: str | None = None
    said_before: str | None = None


# The schema of the struct beside a plain dict: only we can say in one sentence which names exist.
FilterObject: TypeAlias = Annotated[
    dict[str, Any],
    msgspec.Meta(extra_json_schema=msgspec.json.schema(FilterParams)["$defs"]["FilterParams"]),
]


class QueryParams(Params, frozen=True, kw_only=True):
    """Parameters of `query`."""

    user_id: str
    query: str
    k: int | None = None
    mode: str = "agpr"
    families: list[str] | None = None  # of the trees that modes with trees recall; all
    vectors: bool = True  # false: by words alone
    planner: bool | None = None  # of mode "deep": whether a model says what to look for in each tree; true
    browse: str | None = None  # of mode "deep": who says which nodes are gone into, "llm" or "emb"
    calls_max: int | None = None  # of a model, for this query
    model_tokens_max: int | None = None
    timeout_s: float | None = None  # for what a model is asked
    filters: FilterObject | None = None
    embedding: list[float] | None = None  # of the question
    embedding_model: str | None = None  # which made it: the daemon's embedder, or that of imported memories
    wait_for: str | int | None = None
    max_tokens: int | None = None
    as_of: int | str | None = None  # a user_seq, or an instant with its offset
    valid_at: str | None = None  # an instant with its offset, or a date in UTC
    between: tuple[str | None, str | None] | None = None
    reference_date: str | None = None  # what "last week" in the question counts from, like valid_at
    explain: bool = False
    open_groups: bool = False
    answer: bool = False  # in words, by the language model
    temperature: float | None = None  # of that model; 0. Above it the same question has several answers


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was found in order; `vector` is the caller's own, a unit one. `why_mode`: of mode `auto`."""

    params: QueryParams
    mode: Mode
    k: int
    filters: Filters
    vector: NDArray[np.float32] | None
    families: frozenset[Family] = frozenset(Family)
    reference: ReferenceDate | None = None
    why_mode: WhyMode | None = None


def read_query(params: QueryParams, keys: Keys) -> Asked:
    """Check everything that can be checked without the store. Raises `InvalidInput`, which quotes nothing."""
    if not params.user_id:
        raise InvalidInput("user_id is empty; say whose memory is asked")
    mode = _read_mode(params.mode)
    if params.k is not None and not 1 <= params.k <= K_MAX:
        raise InvalidInput(f"k is from 1 to {K_MAX}")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise InvalidInput("max_tokens is at least 1")
    if not params.query.strip() or len(params.query) > QUESTION_CHARACTERS_MAX:
        raise InvalidInput(f"query has 1 to {QUESTION_CHARACTERS_MAX} characters")
    if params.embedding is not None and params.as_of is not None:
        raise InvalidInput("a past memory is ranked by words alone; leave out embedding, or as_of")
    if params.embedding is None and params.embedding_model is not None:
        raise InvalidInput("embedding_model names the model of an embedding; give both, or leave it out")
    if params.embedding is not None and not params.vectors:
        raise InvalidInput("vectors is false, so that words alone rank; leave out embedding, or vectors")
    _check_what_a_model_is_asked(params, mode)
    _check_temperature(params)
    return Asked(
        params=params,
        mode=mode,
        k=params.k or (K_DEFAULT if params.max_tokens is None else K_WITHIN_TOKENS),
        filters=read_filters(params, keys),
        vector=None if params.embedding is None else _unit(params.embedding),
        families=_read_families(params.families, mode),
        reference=read_reference(params.reference_date),
    )


def _check_what_a_model_is_asked(params: QueryParams, mode: Mode) -> None:
    """Refuse what goes with no model, and what a model is not asked about."""
    may_be_deep = mode in MAY_ASK
    for name in ("planner", "browse"):
        if getattr(params, name) is not None and not may_be_deep:
            raise InvalidInput(f'{name} is of mode "deep"; leave it out, or ask in that mode')
    for name in ("calls_max", "model_tokens_max", "timeout_s"):
        if getattr(params, name) is not None and not (may_be_deep or params.answer):
            raise InvalidInput(f'{name} bounds what a model is asked, and nothing here asks one; mode "deep" does')


def _check_temperature(params: QueryParams) -> None:
    if params.temperature is None:
        return
    if not params.answer:
        raise InvalidInput("temperature is of an answer in words; leave it out, or set answer to true")
    if not 0 <= params.temperature <= TEMPERATURE_MAX:
        raise InvalidInput(f"temperature is from 0 to {TEMPERATURE_MAX:g}")


def count_from(asked: Asked, now: Instant) -> Asked:
    """The question with relative dates counted from now, unless it says from when."""
    return asked if asked.reference is not None else replace(asked, reference=ReferenceDate(now))


def read_filters(params: QueryParams, keys: Keys) -> Filters:
    """`filters`, `valid_at` and `between`. Raises `InvalidInput`."""
    about = _read_about(params.valid_at, params.between)
    if params.filters is None:
        return Filters(about=about)
    try:
        given = msgspec.convert(params.filters, FilterParams)
    except msgspec.ValidationError as error:
        names = ", ".join(FilterParams.__struct_fields__)
        raise InvalidInput(f"filters: {reason_without_values(error)}; there are {names}") from None
    return Filters(
        wanted=tuple(_read_wanted(given, params.user_id, keys)),
        kinds=_read_kinds(given.kinds),
        said=_read_said(given.said_after, given.said_before),
        about=about,
    )


def _read_mode(name: str) -> Mode:
    try:
        return Mode(name)
    except ValueError:
        known = ", ".join(f'"{each}"' for each in Mode)
        raise InvalidInput(f"mode is {known}; leave it out for the first of them") from None


def _read_families(names: Sequence[str] | None, mode: Mode) -> frozenset[Family]:
    if names is None:
        return frozenset(Family)
    if mode not in BY_TREES:
        raise InvalidInput(f'families is of modes that recall trees; leave it out, or ask in mode "{Mode.FOREST}"')
    try:
        families = frozenset(map(Family, names))
    except ValueError:
        families = frozenset()
    if not families:
        raise InvalidInput(f"families holds {', '.join(Family)}; leave it out for all of them")
    return families


def _read_wanted(given: FilterParams, user_id: str, keys: Keys) -> Iterator[Wanted]:
    def sessions(name: str, values: str | Sequence[str]) -> tuple[Mark, ...]:
        return tuple(session_mark(keys.session(user_id, each)) for each in _values(name, values))

    if given.sessions is not None:
        yield Wanted("sessions", sessions("sessions", given.sessions))
    if given.not_sessions is not None:
        yield Wanted("not_sessions", sessions("not_sessions", given.not_sessions), excluded=True)
    if given.roles is not None:
        yield Wanted("roles", tuple(map(role_mark, _values("roles", given.roles))))
    if given.not_roles is not None:
        yield Wanted("not_roles", tuple(map(role_mark, _values("not_roles", given.not_roles))), excluded=True)
    if given.entities is not None:
        yield Wanted("entities", tuple(map(entity_mark, _values("entities", given.entities))))
    if given.agents is not None:
        yield Wanted("agents", tuple(map(agent_mark, _values("agents", given.agents))))
    if given.metadata is not None:
        yield from _read_metadata(given.metadata)


def _read_metadata(metadata: Mapping[str, object]) -> Iterator[Wanted]:
    """One filter for each path, met by any of its values."""
    by_path: dict[str, list[Mark]] = {}
    for mark in metadata_marks(metadata):
        by_path.setdefault(mark[1], []).append(mark)
    if not 1 <= len(by_path) <= METADATA_PAIRS_MAX or any(len(marks) > VALUES_MAX for marks in by_path.values()):
        raise InvalidInput(
            f"filters.metadata has 1 to {METADATA_PAIRS_MAX} names, each with a value or a list of some"
        )
    for marks in by_path.values():
        yield Wanted("metadata", tuple(marks))


def _read_kinds(values: Texts) -> frozenset[NodeKind] | None:
    if values is None:
        return None
    kinds = {kind.value: kind for kind in NodeKind if kind is not NodeKind.SUMMARY}
    try:
        return frozenset(kinds[each] for each in _values("kinds", values))
    except KeyError:
        raise InvalidInput(f"filters.kinds holds {', '.join(kinds)}") from None


def _values(name: str, values: str | Sequence[str]) -> Sequence[str]:
    listed = [values] if isinstance(values, str) else values
    if not 1 <= len(listed) <= VALUES_MAX:
        raise InvalidInput(f"filters.{name} has 1 to {VALUES_MAX} values; leave it out to allow all")
    return listed


def _read_said(after: str | None, before: str | None) -> Span | None:
    if after is None and before is None:
        return None
    start = None if after is None else _read_time("filters.said_after", after)[0]
    end = None if before is None else _read_time("filters.said_before", before)[0]
    return _span("filters.said_after is before filters.said_before", start, end)


def _read_about(valid_at: str | None, between: tuple[str | None, str | None] | None) -> Span | None:
    if valid_at is not None and between is not None:
        raise InvalidInput("valid_at is one moment and between a stretch of time; give one of the two")
    if valid_at is not None:
        return Span(*_read_time("valid_at", valid_at))
    if between is None:
        return None
    if between == (None, None):
        raise InvalidInput("between is [from, to]; one of them may be null, for without end")
    start, end = (None if each is None else _read_time("between", each)[0] for each in between)
    return _span("between is [from, to], and from comes first", start, end)


def _span(rule: str, start: Instant | None, end: Instant | None) -> Span:
    if start is not None and end is not None and start >= end:
        raise InvalidInput(f"{rule}; the end itself is not included")
    return Span(start, end)


def _read_time(name: str, text: str) -> tuple[Instant, Instant]:
    """Start and end (not included) of a date in UTC, or of the millisecond of an instant."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            start = datetime.fromisoformat(text).replace(tzinfo=UTC)
            return from_datetime(start), from_datetime(start) + timedelta(days=1) // timedelta(milliseconds=1)
        at = from_datetime(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{name} is a date (2024-07-01), or an instant in ISO 8601 with its offset (2024-07-01T09:00:00Z)"
        ) from None
    return at, at + 1


def _unit(embedding: Sequence[float]) -> NDArray[np.float32]:
    vector = np.array(embedding, dtype=np.float64)
    largest = float(np.abs(vector).max(initial=0.0))
    if not (largest > 0 and math.isfinite(largest)):
        raise InvalidInput("embedding is a list of finite numbers that are not all 0")
    vector /= largest  # or the squares of large numbers would be infinite
    unit: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit
