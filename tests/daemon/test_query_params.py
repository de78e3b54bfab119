"""What `query` takes: each filter becomes what it says, each refusal says what would be right and quotes none."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from daemon.asking.query_params import VALUES_MAX, FilterParams, QueryParams, read_query
from daemon.serving.protocol import Method, read_params
from events.errors import InvalidInput
from projections.recall.filters import Filters, Span, entity_mark, role_mark, session_mark
from projections.recall.nodes import NodeKind
from tests.builders import KEYS

# 2024-07-01T00:00:00Z and a day
JULY_1, DAY_MS = 1_719_792_000_000, 86_400_000


def read(**more: Any) -> Filters:
    params = msgspec.convert({"user_id": "alice", "query": "Rome"} | more, QueryParams)
    return read_query(params, KEYS).filters


def refusal(**more: Any) -> str:
    with pytest.raises(InvalidInput) as raised:
        read(**more)
    assert "Xylophon" not in str(raised.value)
    return str(raised.value)


def test_without_filters_everything_may_answer() -> None:
    assert read() == read(filters={}) == Filters()


def test_one_value_is_as_good_as_a_list_of_it() -> None:
    assert read(filters={"roles": "user"}) == read(filters={"roles": ["user"]})


def test_sessions_are_known_by_their_reference_and_entities_in_normal_form() -> None:
    given = {"sessions": ["s1", "s2"], "not_roles": "tool", "entities": "  MIAMI's", "kinds": ["fact", "group"]}
    filters = read(filters=given)

    assert [(wanted.name, wanted.marks, wanted.excluded) for wanted in filters.wanted] == [
        ("sessions", tuple(session_mark(KEYS.session("alice", each)) for each in ("s1", "s2")), False),
        ("not_roles", (role_mark("tool"),), True),
        ("entities", (entity_mark("miami"),), False),
    ]
    assert filters.kinds == frozenset((NodeKind.FACT, NodeKind.GROUP))


def test_each_name_of_metadata_is_a_filter_of_its_own_met_by_any_of_its_values() -> None:
    filters = read(filters={"metadata": {"channel": ["mail", "sms"], "device": {"os": "ios"}}})

    assert [[mark[1:] for mark in wanted.marks] for wanted in filters.wanted] == [
        [("channel", '"mail"'), ("channel", '"sms"')],
        [("device.os", '"ios"')],
    ]


@pytest.mark.parametrize(
    ("given", "span"),
    [
        ({"said_after": "2024-07-01"}, Span(JULY_1, None)),
        ({"said_before": "2024-07-01"}, Span(None, JULY_1)),
        ({"said_after": "2024-07-01T02:00:00+02:00", "said_before": "2024-07-02"}, Span(JULY_1, JULY_1 + DAY_MS)),
    ],
)
def test_said_after_is_included_and_said_before_is_not(given: dict[str, str], span: Span) -> None:
    assert read(filters=given).said == span


def test_a_date_is_valid_all_day_and_an_instant_for_a_millisecond() -> None:
    assert read(valid_at="2024-07-01").about == Span(JULY_1, JULY_1 + DAY_MS)
    assert read(valid_at="2024-07-01T00:00:00Z").about == Span(JULY_1, JULY_1 + 1)


def test_between_is_half_open_and_may_be_without_an_end() -> None:
    assert read(between=["2024-07-01", "2024-07-02"]).about == Span(JULY_1, JULY_1 + DAY_MS)
    assert read(between=[None, "2024-07-02"]).about == Span(None, JULY_1 + DAY_MS)
    assert read(between=["2024-07-01", None]).about == Span(JULY_1, None)


def test_an_unknown_filter_is_refused_with_all_that_exist() -> None:
    sentence = refusal(filters={"session": ["Xylophon"]})

    assert all(name in sentence for name in FilterParams.__struct_fields__)


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ({"sessions": [1]}, "Expected `str`"),
        ({"sessions": []}, "filters.sessions has 1 to"),
        ({"roles": ["Xylophon"] * (VALUES_MAX + 1)}, "filters.roles has 1 to"),
        ({"kinds": ["Xylophon"]}, "filters.kinds holds chunk, fact, group"),
        ({"metadata": ["Xylophon"]}, "Expected `object"),
        ({"metadata": {}}, "filters.metadata has 1 to"),
        ({"metadata": {f"n{n}": "Xylophon" for n in range(100)}}, "filters.metadata has 1 to"),
        ({"said_after": 1_719_792_000}, "Expected `str"),
        ({"said_after": "Xylophon"}, "filters.said_after is a date"),
        ({"said_before": "2024-07-01T09:00:00"}, "filters.said_before is a date"),
        ({"said_after": "2024-07-02", "said_before": "2024-07-02"}, "the end itself is not included"),
    ],
)
def test_a_wrong_filter_is_refused_in_words_that_say_what_is_right(filters: dict[str, Any], says: str) -> None:
    assert says in refusal(filters=filters)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"valid_at": "Xylophon"}, "valid_at is a date"),
        ({"valid_at": "2024-07-01T09:00:00"}, "with its offset"),
        ({"between": ["2024-07-02", "2024-07-01"]}, "from comes first"),
        ({"between": [None, None]}, "one of them may be null"),
        ({"between": ["2024-07-01", None], "valid_at": "2024-07-01"}, "one of the two"),
        ({"embedding": [0.0, 0.0]}, "finite numbers that are not all 0"),
        ({"embedding": [1.0, float("inf")]}, "finite numbers"),
        ({"embedding": []}, "finite numbers"),
        ({"embedding": [1.0], "as_of": 1}, "words alone"),
        ({"mode": "Xylophon"}, 'mode is "agpr"'),
    ],
)
def test_a_wrong_parameter_is_refused_in_words_that_say_what_is_right(given: dict[str, Any], says: str) -> None:
    assert says in refusal(**given)


def test_an_embedding_of_the_caller_is_made_a_unit_vector() -> None:
    for scale in (1e-300, 1.0, 1e300):
        params = QueryParams(user_id="alice", query="Rome", embedding=[3 * scale, 4 * scale])
        vector = read_query(params, KEYS).vector

        assert vector is not None
        assert vector.dtype == np.float32
        assert vector.tolist() == pytest.approx([0.6, 0.8])


def test_the_schema_of_the_parameters_shows_every_filter() -> None:
    schema = msgspec.json.schema(QueryParams)

    assert all(f'"{name}"' in msgspec.json.encode(schema).decode() for name in FilterParams.__struct_fields__)


async def nothing(_: QueryParams) -> None:
    """Stands for the answerer."""


def test_a_misspelt_parameter_is_no_missing_one() -> None:
    method = Method(QueryParams, nothing, False, 1.0)
    with pytest.raises(Exception, match="unknown field `filter`"):
        read_params("query", {"user_id": "alice", "query": "Rome", "filter": {}}, method)
