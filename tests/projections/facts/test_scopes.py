"""When an entity is worth a tree, whose name is `user`, and which doubtful labels are names."""

from __future__ import annotations

import itertools
import random

import pytest

from events.envelope import Reference
from events.memory import Mention
from projections.facts.labels import normalise_label
from projections.facts.scopes import USER_SCOPE, EntityScopes, Scope, ScopeKind
from tests.builders import KEYS, an_id

FACTS = [an_id(f"fact {n}") for n in range(9)]


def sessions(*names: str) -> frozenset[Reference]:
    return frozenset(KEYS.session("alice", name) for name in names)


def name(scopes: EntityScopes, label: str, *facts: tuple[int, str], uncertain: bool = False) -> None:
    """Facts (by number) that name a label, each said in one session."""
    for number, session in facts:
        scopes.add_fact(FACTS[number], (Mention(normalise_label(label), uncertain),), sessions(session))


def held(scopes: EntityScopes, label: str) -> set[int]:
    membership = scopes.membership(normalise_label(label))
    assert membership.scope == Scope(ScopeKind.ENTITY, normalise_label(label))
    return {FACTS.index(fact) for fact in membership.facts}


@pytest.mark.parametrize(
    ("facts", "active"),
    [
        ([(0, "s1"), (1, "s2")], False),
        ([(0, "s1"), (1, "s1"), (2, "s1"), (3, "s1")], False),
        ([(0, "s1"), (1, "s1"), (2, "s2")], True),
        ([(0, "s1"), (0, "s2"), (1, "s2")], False),
    ],
    ids=["two facts", "one session", "three facts and two sessions", "one fact said twice"],
)
def test_an_entity_is_active_from_three_facts_and_two_sessions_on(
    facts: list[tuple[int, str]], active: bool
) -> None:
    scopes = EntityScopes()
    name(scopes, "Miami", *facts)

    assert held(scopes, "Miami") == ({number for number, _ in facts} if active else set())


def test_a_fact_of_two_sessions_counts_for_both_even_if_one_names_it_in_doubt() -> None:
    for first, second in itertools.permutations((False, True)):
        scopes = EntityScopes()
        name(scopes, "Miami", (0, "s1"), (1, "s1"))
        scopes.add_fact(FACTS[2], (Mention("miami", first),), sessions("s1"))
        scopes.add_fact(FACTS[2], (Mention("miami", second),), sessions("s1", "s2"))

        assert held(scopes, "Miami") == {0, 1, 2}


@pytest.mark.parametrize(("one", "other"), [("C++", "C#"), ("José", "Jose"), ("北京", "北"), ("Москва", "Moscow")])
def test_labels_of_every_script_have_trees_of_their_own(one: str, other: str) -> None:
    scopes = EntityScopes()
    name(scopes, one, (0, "s1"), (1, "s1"), (2, "s2"))
    name(scopes, other, (3, "s1"), (4, "s2"), (5, "s3"))

    assert held(scopes, one) == {0, 1, 2}
    assert held(scopes, other) == {3, 4, 5}


def test_one_label_in_other_spellings_is_one_entity() -> None:
    scopes = EntityScopes()
    name(scopes, "José", (0, "s1"))
    name(scopes, "JOSE\u0301", (1, "s1"))
    name(scopes, "José's", (2, "s2"))

    assert held(scopes, "José") == {0, 1, 2}


def test_the_owners_name_is_the_scope_user_without_a_threshold() -> None:
    scopes = EntityScopes()
    changed = scopes.count_turn("I moved.", "user", "Alice")
    labels = scopes.add_fact(FACTS[0], (Mention("alice"), Mention("miami")), sessions("s1"))

    assert changed == {"alice"}
    assert labels == {"alice", "miami"}
    assert scopes.owner == "alice"
    assert scopes.user_membership().scope == USER_SCOPE
    assert scopes.user_membership().facts == {FACTS[0]}


def test_the_owner_has_no_entity_scope_beside_the_scope_user() -> None:
    scopes = EntityScopes()
    scopes.count_turn("I moved.", "user", "Alice")
    name(scopes, "Alice", (0, "s1"), (1, "s2"), (2, "s3"))

    assert held(scopes, "Alice") == set()
    assert scopes.user_membership().facts == set(FACTS[:3])


def test_a_second_user_name_dissolves_the_scope_user_and_gives_the_owner_an_entity() -> None:
    scopes = EntityScopes()
    scopes.count_turn("I moved.", "user", "Alice")
    name(scopes, "Alice", (0, "s1"), (1, "s2"), (2, "s3"))
    changed = scopes.count_turn("So did I.", "user", "Bob")

    assert changed == {"alice"}
    assert scopes.owner is None
    assert scopes.user_membership().facts == frozenset()
    assert held(scopes, "Alice") == {0, 1, 2}


def test_only_users_own_turns_tell_the_owners_name() -> None:
    scopes = EntityScopes()
    for role, speaker in (("assistant", "Bot"), ("tool", "Search"), ("user", None)):
        assert scopes.count_turn("hello", role, speaker) == set()
    assert scopes.owner is None

    scopes.count_turn("hello", "user", "Alice")
    scopes.count_turn("hello", "user", "alice ")
    assert scopes.owner == "alice"


def test_a_doubtful_label_becomes_a_name_when_turns_show_it() -> None:
    scopes = EntityScopes()
    name(scopes, "Nate", (0, "s1"), (1, "s2"), (2, "s3"), uncertain=True)
    assert held(scopes, "Nate") == set()

    assert scopes.count_turn("yesterday I met Nate", "user", None) == {"nate"}
    assert held(scopes, "Nate") == {0, 1, 2}


def test_a_name_that_turns_out_to_be_a_common_word_loses_its_doubtful_facts() -> None:
    scopes = EntityScopes()
    scopes.count_turn("we met Rose", "user", None)
    name(scopes, "Rose", (0, "s1"), (1, "s2"), (2, "s3"))
    name(scopes, "Rose", (3, "s1"), uncertain=True)
    assert held(scopes, "Rose") == {0, 1, 2, 3}

    assert scopes.count_turn("a rose is a rose", "user", None) == {"rose"}
    assert held(scopes, "Rose") == {0, 1, 2}


def test_counting_a_word_that_no_doubtful_label_begins_with_asks_for_nothing() -> None:
    scopes = EntityScopes()
    name(scopes, "Nate", (0, "s1"))

    assert scopes.count_turn("we met Nate and Rex", "user", None) == set()


def test_a_label_that_nothing_names_has_no_facts() -> None:
    assert held(EntityScopes(), "Miami") == set()


@pytest.mark.parametrize("seed", range(10))
def test_only_the_labels_that_are_told_to_have_changed_have_changed(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    labels = ["Nate", "Rose", "Miami", "Alice"]
    scopes = EntityScopes()
    known = {label.lower(): scopes.membership(label.lower()) for label in labels}
    for _ in range(120):
        label = chance.choice(labels)
        if chance.random() < 0.5:
            text = f"we saw {chance.choice([label, label.lower()])}"
            changed = scopes.count_turn(text, "user", chance.choices([None, "Alice", "Rose"], [30, 3, 1])[0])
        else:
            mention = Mention(label.lower(), chance.random() < 0.5)
            changed = scopes.add_fact(chance.choice(FACTS), (mention,), sessions(f"s{chance.randrange(3)}"))
        now = {each: scopes.membership(each) for each in known}

        assert {each for each in known if now[each] != known[each]} <= changed
        known = now
