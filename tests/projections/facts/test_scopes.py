"""When an entity is worth a tree, whose name is `user`, and which doubtful labels are names."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from events.envelope import Reference
from events.memory import FactId, Mention
from projections.facts.labels import labels_in, normalise_label, occurs_in
from projections.facts.scopes import (
    ENTITY_FACTS_MIN,
    ENTITY_SESSIONS_MIN,
    USER_SCOPE,
    EntityScopes,
    Scope,
    ScopeKind,
)
from tests.builders import KEYS, an_id

FACTS = [an_id(f"fact {n}") for n in range(9)]


def sessions(*names: str) -> frozenset[Reference]:
    return frozenset(KEYS.session("alice", name) for name in names)


@dataclass
class Watched:
    """Scopes, and what their trees hold when every change that is told is made."""

    scopes: EntityScopes = field(default_factory=EntityScopes)
    trees: dict[Scope, set[FactId]] = field(default_factory=dict[Scope, set[FactId]])

    def hear(self, text: str, speaker: str | None = None, role: str = "user") -> set[str]:
        return self.settle(self.scopes.count_turn(text, role, speaker))

    def name(self, label: str, *facts: tuple[int, str], uncertain: bool = False) -> None:
        """Facts (by number) that name a label, each said in one session."""
        for number, session in facts:
            self.add(number, Mention(normalise_label(label), uncertain), session)

    def add(self, number: int, mention: Mention, *names: str) -> None:
        self.settle(self.scopes.add_fact(FACTS[number], (mention,), sessions(*names)))

    def settle(self, labels: set[str]) -> set[str]:
        """Make the changes of these labels; only what is absent joins, only what is there leaves."""
        for label in sorted(labels):
            for change in self.scopes.changes(label):
                tree = self.trees.setdefault(change.scope, set())
                assert not change.joining & tree
                assert change.leaving <= tree
                tree |= change.joining
                tree -= change.leaving
            assert self.scopes.changes(label) == []
        return labels

    def held(self, label: str) -> set[int]:
        """The facts in the tree of an entity."""
        return self.held_in(Scope(ScopeKind.ENTITY, normalise_label(label)))

    def held_in(self, scope: Scope) -> set[int]:
        return {FACTS.index(fact) for fact in self.trees.get(scope, ())}


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
    watched = Watched()
    watched.name("Miami", *facts)

    assert watched.held("Miami") == ({number for number, _ in facts} if active else set())


def test_a_fact_of_two_sessions_counts_for_both_even_if_one_names_it_in_doubt() -> None:
    for first, second in itertools.permutations((False, True)):
        watched = Watched()
        watched.name("Miami", (0, "s1"), (1, "s1"))
        watched.add(2, Mention("miami", first), "s1")
        watched.add(2, Mention("miami", second), "s1", "s2")

        assert watched.held("Miami") == {0, 1, 2}


@pytest.mark.parametrize(
    ("one", "other"),
    [("C++", "C#"), ("José", "Jose"), ("北京", "北"), ("Москва", "Moscow"), ("Müller", "Muller"), ("C", "C++")],
)
def test_labels_of_every_script_have_trees_of_their_own(one: str, other: str) -> None:
    watched = Watched()
    watched.name(one, (0, "s1"), (1, "s1"), (2, "s2"))
    watched.name(other, (3, "s1"), (4, "s2"), (5, "s3"))

    assert watched.held(one) == {0, 1, 2}
    assert watched.held(other) == {3, 4, 5}


def test_one_label_in_other_spellings_is_one_entity() -> None:
    watched = Watched()
    watched.name("José", (0, "s1"))
    watched.name("JOSE\u0301", (1, "s1"))
    watched.name("José's", (2, "s2"))

    assert watched.held("José") == {0, 1, 2}


@pytest.mark.parametrize(
    "label", ["2023-05-08", "42", "user", "assistant", "unknown", "!!!", "x" * 65, "a b c d e f g h i"]
)
def test_a_label_that_names_nothing_has_no_tree(label: str) -> None:
    watched = Watched()
    watched.name(label, (0, "s1"), (1, "s2"), (2, "s3"))

    assert watched.trees == {}


def test_an_owner_whose_name_would_name_nothing_is_the_owner_all_the_same() -> None:
    watched = Watched()
    watched.hear("I moved.", "User")
    watched.name("user", (0, "s1"))

    assert watched.trees == {USER_SCOPE: {FACTS[0]}}


def test_the_owners_name_is_the_scope_user_without_a_threshold() -> None:
    watched = Watched()
    watched.hear("I moved.", "Alice")
    watched.name("Alice", (0, "s1"))

    assert watched.scopes.owner == "alice"
    assert watched.trees == {USER_SCOPE: {FACTS[0]}}


def test_the_owner_has_no_entity_scope_beside_the_scope_user() -> None:
    watched = Watched()
    watched.hear("I moved.", "Alice")
    watched.name("Alice", (0, "s1"), (1, "s2"), (2, "s3"))

    assert watched.held("Alice") == set()
    assert watched.held_in(USER_SCOPE) == {0, 1, 2}


def test_an_entity_becomes_the_user_when_the_owners_name_is_heard() -> None:
    watched = Watched()
    watched.name("Alice", (0, "s1"), (1, "s2"), (2, "s3"))
    assert watched.held("Alice") == {0, 1, 2}

    watched.hear("I moved.", "Alice")
    assert watched.held("Alice") == set()
    assert watched.held_in(USER_SCOPE) == {0, 1, 2}


def test_a_second_user_name_dissolves_the_scope_user_and_gives_the_owner_an_entity() -> None:
    watched = Watched()
    watched.hear("I moved.", "Alice")
    watched.name("Alice", (0, "s1"), (1, "s2"), (2, "s3"))
    watched.hear("So did I.", "Bob")

    assert watched.scopes.owner is None
    assert watched.held_in(USER_SCOPE) == set()
    assert watched.held("Alice") == {0, 1, 2}


def test_only_users_own_turns_tell_the_owners_name() -> None:
    watched = Watched()
    for role, speaker in (("assistant", "Bot"), ("tool", "Search"), ("user", None)):
        watched.hear("hello", speaker, role)
    assert watched.scopes.owner is None

    watched.hear("hello", "Alice")
    watched.hear("hello", "alice ")
    assert watched.scopes.owner == "alice"


def test_a_doubtful_label_becomes_a_name_when_turns_show_it() -> None:
    watched = Watched()
    watched.name("Nate", (0, "s1"), (1, "s2"), (2, "s3"), uncertain=True)
    assert watched.held("Nate") == set()

    assert watched.hear("yesterday I met Nate") == {"nate"}
    assert watched.held("Nate") == {0, 1, 2}


def test_a_name_that_turns_out_to_be_a_common_word_loses_its_doubtful_facts() -> None:
    watched = Watched()
    watched.hear("we met Rose")
    watched.name("Rose", (0, "s1"), (1, "s2"), (2, "s3"))
    watched.name("Rose", (3, "s1"), uncertain=True)
    assert watched.held("Rose") == {0, 1, 2, 3}

    assert watched.hear("a rose is a rose is a rose") == {"rose"}
    assert watched.held("Rose") == {0, 1, 2}


def test_a_fact_that_is_named_for_certain_later_is_in_doubt_no_more() -> None:
    watched = Watched()
    watched.name("Rose", (0, "s1"), (1, "s2"))
    watched.name("Rose", (2, "s1"), uncertain=True)
    assert watched.held("Rose") == set()

    watched.name("Rose", (2, "s1"))
    assert watched.held("Rose") == {0, 1, 2}


def test_counting_a_word_that_no_doubtful_label_begins_with_asks_for_nothing() -> None:
    watched = Watched()
    watched.name("Nate", (0, "s1"))

    assert watched.hear("we met Nate and Rex") == set()


@pytest.mark.parametrize("seed", range(20))
def test_trees_changed_step_by_step_hold_what_all_that_was_said_makes_of_them(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    labels = ("nate", "rose", "miami", "alice")
    watched = Watched()
    mentions: list[Named] = []
    said: dict[int, set[str]] = {}
    names: set[str] = set()
    lower, capital, speakers = Counter[str](), Counter[str](), set[str]()
    for _ in range(150):
        label = chance.choice(labels)
        if chance.random() < 0.5:
            is_capital = chance.random() < 0.5
            speaker = chance.choices(["", "alice", "rose"], [60, 3, 1])[0]
            watched.hear(f"we saw {label.title() if is_capital else label}", speaker)
            (capital if is_capital else lower)[label] += 1
            speakers |= {speaker} - {""}
            if capital[label] > lower[label]:
                names.add(label)
            elif lower[label] > 2 * capital[label]:
                names.discard(label)
        else:
            number, uncertain = chance.randrange(9), chance.random() < 0.5
            said.setdefault(number, set()).add(f"s{chance.randrange(3)}")
            watched.add(number, Mention(label, uncertain), *said[number])
            mentions.append(Named(label, number, uncertain, frozenset(said[number])))
        (owner,) = speakers if len(speakers) == 1 else (None,)
        for each in labels:
            facts = expected_facts(mentions, each, named=each in names)
            active = len(facts) >= ENTITY_FACTS_MIN and len(set().union(*facts.values())) >= ENTITY_SESSIONS_MIN

            assert watched.held(each) == (set(facts) if active and each != owner else set())
        held_by_owner = expected_facts(mentions, owner, named=owner in names) if owner else {}
        assert watched.held_in(USER_SCOPE) == set(held_by_owner)


class Named(NamedTuple):
    """A fact names a label, and the sessions in which the fact had been said by then."""

    label: str
    number: int
    uncertain: bool
    sessions: frozenset[str]


def expected_facts(mentions: list[Named], label: str, *, named: bool) -> dict[int, set[str]]:
    """The oracle: the facts that name a label, with their sessions; those in doubt only if it is a name."""
    sure = {each.number for each in mentions if each.label == label and not each.uncertain}
    facts: dict[int, set[str]] = {}
    for each in mentions:
        if each.label == label and (each.number in sure or named):
            facts.setdefault(each.number, set()).update(each.sessions)
    return facts


def test_a_removed_fact_counts_no_more_be_it_sure_or_doubtful() -> None:
    watched = Watched()
    watched.name("Nate", (0, "s1"), (1, "s1"))
    watched.name("Nate", (2, "s2"), (3, "s3"), uncertain=True)
    watched.hear("I met Nate.")

    assert watched.held("Nate") == {0, 1, 2, 3}
    watched.settle(watched.scopes.remove_fact(FACTS[2], ["nate", "nobody"]))
    assert watched.held("Nate") == {0, 1, 3}, "three facts of two sessions are left"
    watched.name("Nate", (4, "s1"))
    watched.settle(watched.scopes.remove_fact(FACTS[3], ["nate"]))
    assert watched.held("Nate") == set(), "three facts, but of one session"
    watched.name("Nate", (2, "s2"))
    assert watched.held("Nate") == {0, 1, 2, 4}


def test_a_label_that_no_fact_names_any_more_is_forgotten() -> None:
    watched = Watched()
    watched.name("New York", (0, "s1"))
    assert watched.scopes.named_in("She left New York City.") == ["new york"]
    watched.settle(watched.scopes.remove_fact(FACTS[0], ["new york"]))

    assert watched.scopes.named_in("She left New York City.") == []
    assert watched.hear("The new New Deal.") == set()


def test_only_sure_labels_are_found_in_a_text() -> None:
    watched = Watched()
    watched.name("Bob", (0, "s1"))
    watched.name("Thanks", (1, "s1"), uncertain=True)

    assert watched.scopes.named_in("Thanks, Bob! Bobby says so, too.") == ["bob"]


@pytest.mark.parametrize("seed", range(5))
def test_the_labels_in_a_text_are_found_however_many_there_are(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    signs = "ab A's-.東京é1 "
    labels = {"".join(chance.choices(signs, k=chance.randint(1, 4))) for _ in range(1_500)} | {"", "ab a"}
    lengths = {len(label) for label in labels}
    for _ in range(60):
        text = "".join(chance.choices(signs, k=chance.randint(0, 60)))
        found = labels_in(text, labels, lengths)

        assert found == sorted(label for label in labels if occurs_in(label, text))
