"""Names of one entity: joined by what was said and by nothing else, and apart again when it is said no more."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from events.memory import Alias, FactId, FactsExtracted
from events.schema import open_writer
from projections.digests import digest_memory
from projections.facts.aliases import NAMES_MAX, Aliases, Link, read_links
from projections.facts.scopes import ENTITY_FACTS_MIN, ENTITY_SESSIONS_MIN, USER_SCOPE, Scope, ScopeKind
from projections.memory import Memory
from projections.recall.filters import Filters, Wanted, entity_mark, passing_rows
from projections.recall.naming import named_shares
from projections.snapshot import freeze
from tests.builders import KEYS, MONDAY, SECRET, a_closing, a_forgetting, a_turn, an_extraction
from tests.daemon.turn_edits import a_retraction, a_revision
from tests.projections.facts.fact_world import FactWorld, a_fact
from tests.projections.thawing import drain, thawed

Groups = set[tuple[str, ...]]


def links(*said: str) -> list[Link]:
    """`robert=bob`: Robert was called Bob, each in a turn of its own, in this order."""
    pairs = (each.split("=") for each in said)
    return [Link(turn, 0, label, alias, 100 + turn) for turn, (label, alias) in enumerate(pairs, start=1)]


def joined(*said: str) -> Groups:
    aliases = Aliases()
    aliases.add(links(*said))
    return set(aliases.groups().values())


@pytest.mark.parametrize(
    ("said", "groups"),
    [
        (("robert=bob",), {("bob", "robert")}),
        (("elizabeth=liz", "elizabeth=beth"), {("beth", "elizabeth", "liz")}),
        (("robert=bob", "bob=bobby"), {("bob", "bobby", "robert")}),
        (("robert=bob", "bob=robert"), {("bob", "robert")}),
        (("samuel=sam", "samantha=sam"), set()),
        (("samuel=sam", "samantha=sam", "samantha=sammy"), {("samantha", "sammy")}),
        (("samuel=sam", "samantha=sam", "sam=s."), {("s.", "sam")}),
        # Both are Bob, and the one is the other by what is said besides.
        (("robert=bob", "dr. x=bob"), set()),
        (("robert=bob", "dr. x=bob", "robert=dr. x"), {("bob", "dr. x", "robert")}),
        # Less and more of one name are no two people.
        (("robert=bob", "robert smith=bob"), {("bob", "robert", "robert smith")}),
        (("robert=bob", "robert smith=bob", "robert jones=bob"), set()),
        (("anna müller=müller", "bernd müller=müller"), set()),
    ],
)
def test_names_are_one_when_it_is_said_and_an_alias_of_two_counts_for_neither(
    said: tuple[str, ...], groups: Groups
) -> None:
    assert joined(*said) == groups


def test_an_entity_is_known_by_the_label_of_what_was_said_first() -> None:
    aliases = Aliases()
    first, second = links("robert=bob", "bob=bobby")
    aliases.add([second])
    assert [aliases.canonical(name) for name in ("robert", "bob", "bobby")] == ["robert", "bob", "bob"]

    assert aliases.add([first]) == {"robert", "bob", "bobby"}
    assert {aliases.canonical(name) for name in ("robert", "bob", "bobby")} == {"robert"}
    assert aliases.names_of("bobby") == ("bob", "bobby", "robert")
    assert aliases.names_of("eve") == ("eve",)


def test_an_answer_that_calls_everything_one_makes_no_entity_of_more_names_than_anybody_has() -> None:
    said = [f"name{n}=name{n + 1}" for n in range(100)]

    assert max(map(len, joined(*said))) <= NAMES_MAX


@pytest.mark.parametrize("seed", range(10))
def test_what_is_joined_depends_on_what_was_said_and_not_on_the_order_in_which_it_is_learned(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    names = ("a", "b", "c", "d", "e", "f", "a b", "c d")
    said = links(*(f"{chance.choice(names)}={chance.choice(names)}" for _ in range(12)))
    said = [link for link in said if link.label != link.alias]
    whole = Aliases()
    whole.add(said)
    for _ in range(20):
        grown = Aliases()
        rest = chance.sample(said, len(said))
        while rest:
            size = chance.randrange(1, 4)
            grown.add(rest[:size])
            rest = rest[size:]

        assert grown.groups() == whole.groups()
        assert {grown.canonical(name) for name in names} == {whole.canonical(name) for name in names}


def test_what_can_be_nobodys_name_is_no_alias() -> None:
    event = an_extraction((1, 2)).event
    assert isinstance(event, FactsExtracted)
    given = [
        ("Robert", "Bob"),
        ("Robert", "2023-05-08"),
        ("user", "Bob"),
        ("Bob", "BOB"),
        ("!", "Bob"),
        ("A" * 65, "B"),
    ]
    aliases = (*(Alias(label, alias, 1) for label, alias in given), Alias("Eve", "Evie", 2))

    assert read_links(9, replace(event, aliases=aliases)) == [Link(2, 0, "robert", "bob", 9)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FactWorld]:
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield FactWorld(connection)


def learn(world: FactWorld, *texts: str, session: str = "s1", aliases: tuple[Alias, ...] = ()) -> None:
    """Two turns, what a model read in them, and its admission."""
    world.say("Hello.", "Well.", session=session)
    world.extract(*map(a_fact, texts), aliases=aliases)
    world.admit()


def known(world: FactWorld, label: str) -> set[str]:
    """What the tree of an entity holds, in words."""
    facts = world.memory.members.get(Scope(ScopeKind.ENTITY, label), set())
    return {world.text_of(world.memory.canon.facts[fact]) for fact in facts}


def found(memory: Memory, *labels: str) -> set[FactId]:
    """The facts that an answer about these entities may have."""
    wanted = Filters((Wanted("entities", tuple(map(entity_mark, labels))),))
    rows, _ = passing_rows(memory.nodes, wanted)
    return {memory.nodes.node(int(row)).id for row in rows} & memory.canon.facts.keys()


BOB = (Alias("Robert", "Bob", 0),)
SAM = (Alias("Samuel", "Sam", 0), Alias("Samantha", "Sam", 1))


def test_facts_of_all_names_are_in_one_tree_and_count_together(world: FactWorld) -> None:
    learn(world, "Robert swims.", session="s1")
    learn(world, "Bob sings.", "Carol is with Bob and Robert.", session="s2")
    assert (known(world, "robert"), known(world, "bob")) == (set(), set()), "two facts each, and nobody said so"

    learn(world, session="s3", aliases=BOB)
    assert known(world, "robert") == {"Robert swims.", "Bob sings.", "Carol is with Bob and Robert."}
    assert known(world, "bob") == set()


def test_two_active_entities_become_one_and_are_two_again_when_it_is_said_no_more(world: FactWorld) -> None:
    for session in ("s1", "s2"):
        learn(world, f"Robert swims in {session}.", f"Robert ran in {session}.", session=session)
        learn(world, f"Bob sings in {session}.", f"Bob sat in {session}.", session=session)
    before = {label: known(world, label) for label in ("robert", "bob")}
    learn(world, session="s3", aliases=BOB)
    together = known(world, "robert")
    world.write(a_forgetting("s3"))

    assert {len(each) for each in before.values()} == {4}
    assert together == before["robert"] | before["bob"]
    assert {label: known(world, label) for label in ("robert", "bob")} == before
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


def test_facts_move_back_when_it_becomes_clear_that_an_alias_means_two(world: FactWorld) -> None:
    for session in ("s1", "s2"):
        learn(world, f"Samuel swims in {session}.", f"Sam sings in {session}.", session=session)
    learn(world, session="s1", aliases=SAM[:1])
    assert len(known(world, "samuel")) == 4

    learn(world, "Samuel sat.", session="s3", aliases=SAM[1:])
    assert known(world, "samuel") == {"Samuel swims in s1.", "Samuel swims in s2.", "Samuel sat."}
    assert known(world, "sam") == set()
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


@pytest.mark.parametrize("undo", ["retracted", "reworded"])
def test_an_alias_goes_with_the_turn_that_gave_it(world: FactWorld, undo: str) -> None:
    learn(world, "Robert swims.", "Robert ran.", session="s1")
    learn(world, "Bob sings.", session="s2")
    learn(world, session="s3", aliases=BOB)
    whole = known(world, "robert")
    retracted, reworded = a_retraction("t5", "s3"), a_revision("No.", "t5", session_id="s3")
    world.write(retracted if undo == "retracted" else reworded)

    assert len(whole) == 3
    assert known(world, "robert") == set()
    assert world.memory.scopes.aliases.groups() == {}
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


def test_an_alias_of_a_replaced_extraction_stands_no_more(world: FactWorld) -> None:
    learn(world, "Robert swims.", "Robert ran.", session="s1")
    learn(world, "Bob sings.", session="s2")
    learn(world, session="s3", aliases=BOB)
    whole = known(world, "robert")
    world.write(a_closing("s3"))
    world.replay(KEYS.session("alice", "s3"), a_fact("Nothing was said."))

    assert len(whole) == 3
    assert known(world, "robert") == set()


def test_asking_for_one_name_finds_the_facts_of_all(world: FactWorld) -> None:
    learn(world, "Robert swims.", "Bob sings.", "Carol ran.", session="s1", aliases=BOB)
    memory = world.memory
    about = {name: found(memory, name) for name in ("Robert", "bob", "BOB'S", "Carol")}
    shares = named_shares(memory.nodes, "Did Bob sing?")
    both = named_shares(memory.nodes, "Did Bob and Robert meet Carol?")
    rows = {world.text_of(fact): memory.nodes.row_of[fact.id] for fact in memory.canon.facts.values()}

    assert about["Robert"] == about["bob"] == about["BOB'S"]
    assert len(about["bob"]) == 2
    assert len(about["Carol"]) == 1
    assert shares is not None
    assert both is not None
    assert [shares[rows[text]] for text in ("Robert swims.", "Bob sings.", "Carol ran.")] == [1, 1, 0]
    assert [both[rows[text]] for text in ("Robert swims.", "Bob sings.", "Carol ran.")] == [0.5, 0.5, 0.5]


def test_the_owners_names_are_one_owner_when_they_are_aliases_of_each_other(world: FactWorld) -> None:
    world.write(a_turn("Hello.", turn_id="a", name="Elizabeth"), a_turn("Well.", turn_id="b", name="Liz"))
    world.extract(a_fact("Liz swims."), a_fact("Elizabeth ran."))
    world.admit()
    apart = USER_SCOPE in world.memory.members
    world.say("And.", "So.", session="s2")  # by Alice, who is somebody else
    world.extract(aliases=(Alias("Elizabeth", "Liz", 0),))
    three = world.memory.scopes.owner
    world.write(a_forgetting("s2"))
    world.write(a_turn("And.", turn_id="c", name="liz"), a_turn("So.", turn_id="d", name="Liz"))
    world.extract(aliases=(Alias("Elizabeth", "Liz", 0),))

    assert (apart, three) == (False, None)
    assert world.memory.scopes.owner == "elizabeth"
    assert len(world.memory.members[USER_SCOPE]) == 2
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


@pytest.mark.parametrize("label", ["Adele", "Zoe"])
def test_the_users_tree_passes_to_another_name_with_all_it_holds(world: FactWorld, label: str) -> None:
    """Whether the name is behind the one before in the alphabet, or before it."""
    world.write(a_turn("Hello.", turn_id="a", name="Alice"), a_turn("Well.", turn_id="b", name="Alice"))
    world.extract(a_fact("Alice swims."), a_fact("Alice ran."))
    world.admit()
    before = set(world.memory.members[USER_SCOPE])
    world.say("And.", "So.", session="s2")
    world.extract(aliases=(Alias(label, "Alice", 0),))

    assert world.memory.scopes.owner == label.lower()
    assert world.memory.members[USER_SCOPE] == before
    assert len(before) == 2
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


def test_a_text_that_has_another_name_of_an_entity_names_it(world: FactWorld) -> None:
    learn(world, "Robert swims.", session="s1", aliases=BOB)

    assert world.memory.scopes.named_in("Then Bob's dog bit Robert.") == ["bob", "robert"]
    assert world.memory.scopes.named_in("Bobby left.") == []


def test_a_snapshot_has_the_aliases_and_none_of_their_words(world: FactWorld) -> None:
    learn(world, "Bob swims.", "Bob ran.", session="s1", aliases=(*SAM, *BOB))
    learn(world, "Bob sings.", session="s2")
    content, again = drain(freeze(world.memory)), thawed(world.memory, world.events)

    assert not any(name in content.lower() for name in (b"robert", b"samantha"))
    assert again.scopes.aliases.groups() == world.memory.scopes.aliases.groups() == {"robert": ("bob", "robert")}
    assert again.scopes.aliases.links() == world.memory.scopes.aliases.links()
    assert digest_memory(again) == digest_memory(world.memory)
    assert Scope(ScopeKind.ENTITY, "robert") in again.members, "which no fact names"
    assert found(again, "Robert") == found(world.memory, "Robert") != set()


HISTORIES = int(os.environ.get("ALIAS_HISTORIES", "30"))
SESSIONS = ("s1", "s2", "s3")
PEOPLE = ("Robert", "Bob", "Bobby", "Samuel", "Samantha", "Sam", "Alice")


def step(world: FactWorld, chance: random.Random) -> None:
    """A session talks on, is forgotten or edited; or a fact is said to be wrong."""
    session, dice = chance.choice(SESSIONS), chance.random()
    if dice < 0.75 or not world.memory.canon.facts:
        world.turns += 2
        world.write(
            *(
                a_turn("Hello.", session_id=session, turn_id=f"t{world.turns - n}", name=chance.choice(PEOPLE[:2]))
                for n in (1, 0)
            )
        )
        texts = [f"{chance.choice(PEOPLE)} met {chance.choice(PEOPLE)} {chance.randrange(9)}." for _ in range(3)]
        pairs = [chance.sample(PEOPLE, 2) for _ in range(chance.choice((0, 0, 1, 2)))]
        aliases = tuple(Alias(label, alias, chance.randrange(2)) for label, alias in pairs)
        while world.memory.waiting_chunks:
            world.extract(*map(a_fact, texts), aliases=aliases)
        world.admit()
    elif dice < 0.8:
        world.write(a_forgetting(session, key=f"forget {world.memory.user_seq}"))
    elif dice < 0.9:
        world.retract(chance.choice(world.known()))
    else:
        turn = chance.randrange(1, world.turns + 1)
        world.write(a_retraction(f"t{turn}", session_id=session))
    world.admit()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_after_each_step_of_a_history_each_tree_has_the_facts_of_all_names_as_if_folded_from_nothing(
    world: FactWorld, seed: int
) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(12):
        step(world, chance)
        memory, again = world.memory, world.rebuilt()
        aliases = memory.scopes.aliases

        assert digest_memory(memory) == digest_memory(again)
        assert aliases.groups() == again.scopes.aliases.groups()
        assert memory.scopes.owner == again.scopes.owner
        for name in {aliases.canonical(person.lower()) for person in PEOPLE}:
            names = set(aliases.names_of(name))
            facts = {fact.id for fact in memory.canon.facts.values() if fact.labels & names}
            sessions = {each for fact in facts for each in memory.canon.facts[fact].sessions}
            active = len(facts) >= ENTITY_FACTS_MIN and len(sessions) >= ENTITY_SESSIONS_MIN
            in_tree = memory.members.get(Scope(ScopeKind.ENTITY, name), set())
            mine = memory.members.get(USER_SCOPE, set())

            assert in_tree == (facts if active and name != memory.scopes.owner else set())
            assert mine == facts or name != memory.scopes.owner
            assert all(found(memory, each) == facts for each in names)
    if not (world.memory.hidden or world.memory.needs_rebuild):
        assert digest_memory(thawed(world.memory, world.events)) == digest_memory(world.memory)
