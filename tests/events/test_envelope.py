from __future__ import annotations

from hashlib import blake2b

import pytest

from events.envelope import (
    GENESIS,
    HASH_BYTES,
    REFERENCE_BYTES,
    Keys,
    commit_to,
    identify,
    identify_each,
    link,
    make_reference,
)
from tests.builders import SECRET, an_id


def oracle(person: bytes, key: bytes, size: int, *parts: bytes) -> bytes:
    """The hash of design 3.1 written out: each part behind its length in 8 bytes."""
    state = blake2b(key=key, digest_size=size, person=person)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


# Every field that the chain covers, in the order of the columns.
ENVELOPE: tuple[tuple[str, bytes | int | str | None], ...] = (
    ("seq", 7),
    ("user", an_id("user")),
    ("user_seq", 3),
    ("session", an_id("session")),
    ("type", "turn.recorded"),
    ("version", 1),
    ("key", an_id("key")),
    ("happened_at", -1),
    ("recorded_at", 1_719_824_400_000),
    ("caused_by", 5),
    ("lineage", an_id("s1") + an_id("s2")),
    ("basis", 2),
    ("bus_stream", "MEMFOREST"),
    ("bus_epoch", "e1"),
    ("bus_seq", 11),
    ("body", b'{"content":0}'),
    ("commitment", bytes(range(32))),
)


def test_references_are_the_keyed_hash_of_kind_and_names() -> None:
    assert make_reference(SECRET, "user", "alice") == oracle(b"mf.reference", SECRET, 16, b"user", b"alice")
    assert len(make_reference(SECRET, "user", "alice")) == REFERENCE_BYTES


def test_a_reference_tells_nothing_without_the_secret_of_the_store() -> None:
    assert Keys(b"one").user("alice") != Keys(b"two").user("alice")
    assert Keys(b"one").session("alice", "s1") != Keys(b"two").session("alice", "s1")
    assert Keys(b"one").key("k") != Keys(b"two").key("k")


def test_the_same_session_id_of_two_users_is_two_sessions() -> None:
    keys = Keys(SECRET)

    assert keys.session("alice", "s1") != keys.session("bob", "s1")
    assert keys.session("a", "bs1") != keys.session("ab", "s1")
    assert keys.session("alice", "") != keys.session("", "alice")


def test_the_same_text_as_user_session_and_key_is_three_references() -> None:
    keys = Keys(SECRET)

    assert len({keys.user("x"), keys.key("x"), keys.session("x", "x"), keys.user("")}) == 4


def test_references_and_ids_of_the_same_parts_differ() -> None:
    assert identify(b"mf.one", b"a", b"b") != identify(b"mf.two", b"a", b"b")
    assert identify(b"mf.one", b"a", b"b") != identify(b"mf.one", b"ab")
    assert identify(b"mf.one", b"a") == oracle(b"mf.one", b"", 16, b"a")
    assert identify_each(b"mf.one", [b"a", b"", b"b" * 900]) == [
        oracle(b"mf.one", b"", 16, part) for part in (b"a", b"", b"b" * 900)
    ]


def test_a_commitment_binds_nonce_words_and_where_each_word_ends() -> None:
    nonce = bytes(16)
    committed = commit_to(nonce, [b"ab", b"c"])

    assert committed == oracle(b"mf.commitment", b"", 32, nonce, b"ab", b"c")
    others = (
        commit_to(bytes([1]) + bytes(15), [b"ab", b"c"]),
        commit_to(nonce, [b"a", b"bc"]),
        commit_to(nonce, [b"c", b"ab"]),
        commit_to(nonce, [b"ab"]),
        commit_to(nonce, [b"ab", b"c", b""]),
        commit_to(b"", [nonce, b"ab", b"c"]),
    )
    assert committed not in others
    assert len(set(others)) == len(others)


def test_a_link_is_the_hash_of_the_previous_one_and_of_all_fields_with_their_types() -> None:
    made = link(GENESIS, [None, b"x", "x", 12])

    assert made == oracle(b"mf.chain", b"", 32, bytes(HASH_BYTES), b"-", b"bx", b"sx", b"i12")


@pytest.mark.parametrize("at", range(len(ENVELOPE)), ids=[name for name, _ in ENVELOPE])
def test_the_chain_notices_a_change_of_each_field(at: int) -> None:
    fields = [value for _, value in ENVELOPE]
    before = link(GENESIS, fields)
    value = fields[at]
    changes: list[bytes | int | str | None] = [None]
    match value:
        case int():
            changes += [value + 1, str(value), b"%d" % value]
        case str():
            changes += [value + "x", value.encode(), ""]
        case bytes():
            changes += [value[:-1], value + b"\0", value[:-1] + bytes([value[-1] ^ 1])]
        case None:
            raise AssertionError("every field of the example has a value")

    for change in changes:
        assert link(GENESIS, [*fields[:at], change, *fields[at + 1 :]]) != before


def test_the_chain_notices_a_missing_an_added_and_an_exchanged_field() -> None:
    fields = [value for _, value in ENVELOPE]
    before = link(GENESIS, fields)

    assert link(GENESIS, fields[1:]) != before
    assert link(GENESIS, [*fields, None]) != before
    assert link(GENESIS, [fields[1], fields[0], *fields[2:]]) != before
    assert link(before, fields) != before
    assert link(bytes([1]) + bytes(31), fields) != before
