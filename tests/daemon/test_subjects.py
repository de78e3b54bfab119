"""Subjects and tokens: one id, one token; anything else is refused (design 4.1)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.bus.subjects import (
    ID_BYTES_MAX,
    control_subject,
    decode_token,
    encode_token,
    parse_subject,
    turn_subject,
)
from events.errors import InvalidInput

# Surrogates are no text; ids longer than this are tested by hand below.
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
TOKENS = st.text("abcdefghijklmnopqrstuvwxyz234567AZ018_-", max_size=24)


@given(id_=IDS)
def test_every_id_comes_back_from_its_token(id_: str) -> None:
    token = encode_token(id_)

    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    assert decode_token(token) == id_


@given(token=st.one_of(TOKENS, TOKENS.map(lambda digits: "b32-" + digits)))
def test_a_token_that_is_accepted_is_the_one_its_id_makes(token: str) -> None:
    try:
        id_ = decode_token(token)
    except InvalidInput:
        return

    assert encode_token(id_) == token


@given(user_id=IDS, session_id=IDS)
def test_a_subject_says_whom_it_is_about(user_id: str, session_id: str) -> None:
    assert parse_subject(turn_subject(user_id, session_id)) == ("turns", user_id, session_id)
    assert parse_subject(control_subject(user_id, session_id)) == ("control", user_id, session_id)


@pytest.mark.parametrize(
    ("id_", "token"),
    [
        ("alice", "alice"),
        ("2024-07-01", "2024-07-01"),
        ("A_b-9", "A_b-9"),
        ("b32", "b32"),
        ("a.b", "b32-mexge"),  # RFC 4648: 61 2E 62 is MEXGE===
        ("foobar!", "b32-mzxw6ytboiqq"),  # RFC 4648's MZXW6YTBOI plus 21
        ("b32-alice", "b32-miztellbnruwgzi"),
        ("é", "b32-youq"),
    ],
)
def test_known_ids_have_known_tokens(id_: str, token: str) -> None:
    assert encode_token(id_) == token
    assert decode_token(token) == id_


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a b",
        "a*",
        ">",
        "alicé",
        "alice\n",
        "b32-",
        "b32-MEXGE",  # upper case
        "b32-mexge===",  # padded
        "b32-mexgf",  # spare bits set
        "b32-mfwgsy3f",  # "alice", which needs no encoding
        "b32-m",  # no whole byte
        "b32-m1",  # 1 is no digit of base32
        "b32-74",  # 0xff is no UTF-8
        "b32-5wqia",  # a lone surrogate in UTF-8's form
    ],
)
def test_a_token_that_is_not_canonical_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput):
        decode_token(token)


@pytest.mark.parametrize("id_", ["", "\ud800", "x" * (ID_BYTES_MAX + 1), "é" * (ID_BYTES_MAX // 2 + 1)])
def test_an_id_that_no_subject_can_carry_is_refused(id_: str) -> None:
    with pytest.raises(InvalidInput):
        encode_token(id_)


def test_the_longest_ids_fit_into_a_protocol_line_of_nats() -> None:
    longest = "é" * (ID_BYTES_MAX // 2)

    subject = turn_subject(longest, longest)

    assert len(subject) < 4096 - 256
    assert parse_subject(subject) == ("turns", longest, longest)


@pytest.mark.parametrize(
    "subject",
    [
        "memforest.turns.alice",
        "memforest.turns.alice.s1.more",
        "memforest.facts.alice.s1",
        "other.turns.alice.s1",
        "memforest.turns..s1",
        "memforest.turns.alice.",
        "memforest.Turns.alice.s1",
        "",
    ],
)
def test_a_subject_of_another_form_is_refused(subject: str) -> None:
    with pytest.raises(InvalidInput):
        parse_subject(subject)


def test_a_refusal_does_not_repeat_the_id() -> None:
    with pytest.raises(InvalidInput) as refusal:
        decode_token("b32-topsecretTOPSECRET")

    assert "secret" not in str(refusal.value).lower()
