"""The table of routes without a socket: every method has one, and every path leads where it says."""

from __future__ import annotations

import random
from urllib.parse import quote

import pytest

from daemon.serving.handlers import METHODS
from daemon.serving.http_failures import PathUnknown, TargetMalformed, VerbRefused
from daemon.serving.http_routes import ROUTES, ROUTES_LISTED, join_params, read_query, type_texts
from daemon.serving.openapi import signatures
from daemon.serving.protocol import ParamsRefused
from daemon.untrusted import Params

# They read, and what they ask does not fit into a path.
READS_POSTED = ("query", "answers.judge")


class Mixed(Params, frozen=True, kw_only=True):
    text: str
    number: int = 0
    share: float = 0.0
    flag: bool = False
    either: int | str = 0
    maybe: str | None = None
    count: int | None = None


def test_every_method_has_a_route_and_only_methods_have() -> None:
    assert {route.method for route in ROUTES_LISTED} == METHODS.keys()


def test_no_two_routes_have_the_same_verb_and_path() -> None:
    places = [(route.verb, route.path) for route in ROUTES_LISTED]

    assert len(set(places)) == len(places)


def test_what_stands_in_a_path_is_a_parameter_of_its_method_and_what_writes_is_no_get() -> None:
    handlers = signatures()
    for route in ROUTES_LISTED:
        method = handlers[route.method]
        assert set(route.variables) <= set(method.params_type.__struct_fields__), route.path
        is_posted = route.verb in ("POST", "PUT", "DELETE")
        assert method.write == is_posted or route.method in READS_POSTED, route.path


def test_every_route_is_found_by_its_own_path_with_any_ids() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for route in ROUTES_LISTED:
        ids = {name: "".join(chance.choices("a/%?#é &=+.~0", k=12)) for name in route.variables}
        target = route.path.format(**{name: quote(text, safe="") for name, text in ids.items()})

        assert ROUTES.find(route.verb, f"{target}?a=1") == (route, ids)


def test_an_id_may_be_dots() -> None:
    assert ROUTES.find("GET", "/v1/users/../sessions")[1] == {"user_id": ".."}


@pytest.mark.parametrize("target", ["/", "/v1", "/v1/users/", "/v1/users/a/b", "/v1/users//sessions", "//healthz"])
def test_a_path_that_is_none_of_ours_is_unknown(target: str) -> None:
    for verb in ("GET", "DELETE", "POST"):
        with pytest.raises(PathUnknown):
            ROUTES.find(verb, target)


@pytest.mark.parametrize("target", ["/v1/users/100%/digest", "/v1/users/%zz/digest", "/v1/users/a/facts?after=%4"])
def test_a_target_that_is_encoded_by_half_names_nobody(target: str) -> None:
    with pytest.raises(TargetMalformed):
        ROUTES.find("GET", target)


def test_verbs_are_told_apart_and_head_is_get() -> None:
    path = "/v1/users/a/sessions/s"
    assert ROUTES.find("GET", path)[0].method == ROUTES.find("HEAD", path)[0].method == "sessions.get"
    assert ROUTES.find("DELETE", path)[0].method == "sessions.forget"
    with pytest.raises(VerbRefused) as refused:
        ROUTES.find("PATCH", path)

    assert refused.value.allowed == ("DELETE", "GET", "HEAD")


def test_texts_become_what_the_parameter_is() -> None:
    texts = {
        "text": "1",
        "number": "-7",
        "share": "0.5",
        "flag": "true",
        "either": "12",
        "maybe": "null",
        "count": "3",
    }

    assert type_texts(Mixed, texts) == {
        "text": "1",
        "number": -7,
        "share": 0.5,
        "flag": True,
        "either": 12,
        "maybe": "null",
        "count": 3,
    }


def test_what_does_not_read_as_the_parameters_type_stays_a_text() -> None:
    texts = {"number": "1e3", "share": "nan", "flag": "yes", "either": "2024-07-01", "count": "९", "other": "1"}

    assert type_texts(Mixed, texts) == texts


def test_a_query_string_is_read_by_name() -> None:
    assert read_query("/a") == {}
    assert read_query("/a?") == {}
    assert read_query("/a?b=c%26d&e=&f=%C3%A9+g") == {"b": "c&d", "e": "", "f": "é g"}
    for wrong in ("/a?b=1&b=1", "/a?b=%FF", "/a?" + "b=1&" * 65):
        with pytest.raises(TargetMalformed):
            read_query(wrong)


def test_a_parameter_in_two_places_is_refused() -> None:
    assert join_params({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(ParamsRefused):
        join_params({"a": 1}, {"a": 1})
