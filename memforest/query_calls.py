"""The method `query` of the socket, as `calls` has the others.

In modes that recall trees `families` (session, entity, scene) says which; without `vectors` words alone rank.
In mode "deep" a language model plans (unless `planner` is false) and browses (unless `browse` is "emb");
`calls_max`, `model_tokens_max` and `timeout_s` bound what it is asked.

`filters` holds sessions, not_sessions, roles, not_roles, kinds, entities, agents (a name or a list of them),
metadata (an object), said_after and said_before. `valid_at` and `between` are about what was true then: dates,
or instants in ISO 8601 with their offset; the end is not included. `as_of` (a user_seq, or such an instant)
asks for what was known then. `reference_date` (a date, or such an instant) is the day from which "last week"
in the question counts; today. `wait_for` (an event key, or a user_seq) holds the answer, bounded, until that
event is projected. `embedding` is the question's vector by the daemon's own embedder, or by the model that
imported memories came with: `embedding_model` says which. With `answer` the daemon's language model writes the
answer, from these memories alone and citing them; that takes as long as the model does. Above a
`temperature` of 0 (at most 2) the model may answer otherwise each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memforest.types import Answer
from memforest.wire import Call, JsonObject, given, read_as

if TYPE_CHECKING:
    from collections.abc import Sequence


def query(
    user_id: str,
    query: str,
    *,
    k: int | None = None,
    mode: str | None = None,
    families: Sequence[str] | None = None,
    vectors: bool | None = None,
    planner: bool | None = None,
    browse: str | None = None,
    calls_max: int | None = None,
    model_tokens_max: int | None = None,
    timeout_s: float | None = None,
    filters: JsonObject | None = None,
    embedding: Sequence[float] | None = None,
    embedding_model: str | None = None,
    wait_for: str | int | None = None,
    max_tokens: int | None = None,
    as_of: str | int | None = None,
    valid_at: str | None = None,
    between: tuple[str | None, str | None] | None = None,
    reference_date: str | None = None,
    explain: bool | None = None,
    open_groups: bool | None = None,
    answer: bool | None = None,
    temperature: float | None = None,
) -> Call[Answer]:
    """Ask this user's memory: at most `k` memories by rank, and `context` within `max_tokens`.

    Of the others the module says what they are.
    """
    params = given(
        user_id=user_id,
        query=query,
        k=k,
        mode=mode,
        families=None if families is None else list(families),
        vectors=vectors,
        planner=planner,
        browse=browse,
        calls_max=calls_max,
        model_tokens_max=model_tokens_max,
        timeout_s=timeout_s,
        filters=filters,
        embedding=None if embedding is None else list(embedding),
        embedding_model=embedding_model,
        wait_for=wait_for,
        max_tokens=max_tokens,
        as_of=as_of,
        valid_at=valid_at,
        between=between,
        reference_date=reference_date,
        explain=explain,
        open_groups=open_groups,
        answer=answer,
        temperature=temperature,
    )
    return Call("query", params, lambda result: read_as(Answer, result))
