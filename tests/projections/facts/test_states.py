"""What a text says of a state: its value, and whether it holds. In several languages, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.memory import FactRole
from projections.facts.attributes import canonical_attribute, holds_several
from projections.facts.stances import Stance
from projections.facts.states import State, read_state
from projections.facts.supersession import Sameness, compare
from tests.projections.facts.state_world import a_state


def read(text: str, attribute: str = "home", names: tuple[str, ...] | None = None) -> State:
    state = read_state(a_state(text, "2024-01-02", attribute, names=names))
    assert state is not None
    return state


@pytest.mark.parametrize(
    ("text", "stance"),
    [
        ("Alice lives in Boston.", Stance.HOLDS),
        ("Alice has lived in Boston since 2019.", Stance.HOLDS),
        ("Alice moved to Boston in May 2023.", Stance.HOLDS),
        ("Alice lives in Boston now, since 25 May.", Stance.HOLDS),
        ("Alice joined Brightwave on 6 May as a nurse.", Stance.HOLDS),
        ("Alice moved to Boston on the 3rd May.", Stance.HOLDS),
        ("Alice lives in Boston, in a flat with a view of the river if you lean.", Stance.HOLDS),
        ("Alice no longer lives in Boston.", Stance.ENDED),
        ("Alice doesn't live in Boston anymore.", Stance.ENDED),
        ("Alice used to live in Boston.", Stance.ENDED),
        ("Alice moved away from Boston.", Stance.ENDED),
        ("Alice lived in Boston in 2021.", Stance.PAST),
        ("Alice previously lived in Boston.", Stance.PAST),
        ("Alice may move to Boston.", Stance.UNSURE),
        ("Alice would live in Boston if she could.", Stance.UNSURE),
        ("Alice: Ich wohne jetzt in Boston.", Stance.HOLDS),
        ("Alice: Ich wohne nicht mehr in Boston.", Stance.ENDED),
        ("Alice: Ich habe damals in Boston gewohnt.", Stance.PAST),
        ("Alice: J'habite à Boston.", Stance.HOLDS),
        ("Alice: Je n'habite plus à Boston.", Stance.ENDED),
        ("Alice: J'habitais à Boston.", Stance.PAST),
        ("Alice: Vivo en Boston.", Stance.HOLDS),
        ("Alice: Ya no vivo en Boston.", Stance.ENDED),
        ("Alice: Vivía en Boston.", Stance.PAST),
        ("Alice: 我现在住在北京。", Stance.HOLDS),
        ("Alice: 我不再住在北京了。", Stance.ENDED),
        ("Alice: 我以前住在北京。", Stance.PAST),
        ("Alice: 我想搬到北京。", Stance.UNSURE),
        ("Alice has lived in Boston, Davis and Reno.", Stance.PAST),
        ("Alice moved to Boston as a student.", Stance.PAST),
        ("Alice moved to Boston when she was a kid.", Stance.PAST),
        ("Let us imagine Alice lives in Boston.", Stance.UNSURE),
        ("Alice dreamed that she lives in Boston.", Stance.UNSURE),
        ("People think Alice lives in Boston.", Stance.UNSURE),
        ("Does Alice live in Boston?", Stance.UNSURE),
        ("Alice: Si vivo en Boston, aprendo inglés.", Stance.UNSURE),
        ("Alice: Wenn ich in Boston wohne, esse ich Fisch.", Stance.UNSURE),
        ("Alice: 如果我住在北京就好了。", Stance.UNSURE),
        ("Alice moved to Boston for the summer.", Stance.UNSURE),
        ("Alice is living in a hotel in Boston for two weeks.", Stance.UNSURE),
        ("Alice has been living in Boston for two weeks.", Stance.HOLDS),
        ("Alice lives in Boston half of the year.", Stance.UNSURE),
        ("Alice lives in Boston until May 2025.", Stance.UNSURE),
        ("Alice: Ich wohne am Wochenende in Boston.", Stance.UNSURE),
        ("Alice: Je vis à Boston pendant la semaine.", Stance.UNSURE),
        ("Alice moved to Boston and thinks it is great.", Stance.HOLDS),
        ("Alice moved to Boston in the summer of 2023.", Stance.HOLDS),
    ],
)
def test_a_text_says_whether_a_state_holds(text: str, stance: Stance) -> None:
    assert read(text).stance is stance


def test_names_that_are_verbs_say_nothing_of_how_things_are() -> None:
    state = read_state(a_state("Will lives in May Town.", "2024-01-02", entity="Will", names=("Will", "May Town")))

    assert state is not None
    assert state.stance is Stance.HOLDS


@pytest.mark.parametrize(
    ("one", "other", "attribute", "likeness"),
    [
        ("Alice lives in Boston.", "Alice still lives in Boston and loves it.", "home", Sameness.SAME),
        ("Alice lives in Boston.", "Alice moved from Boston to Davis.", "home", Sameness.DIFFERENT),
        ("Alice lives in Davis.", "Alice moved from Boston to Davis.", "home", Sameness.SAME),
        ("Alice moved with Bob to Davis.", "Alice moved with Bob to Boston.", "home", Sameness.DIFFERENT),
        ("Alice lives in Cambridge, Massachusetts.", "Alice lives in Boston, Massachusetts.", "home",
         Sameness.DIFFERENT),
        ("Alice lives in Boston, Massachusetts.", "Alice lives in Boston.", "home", Sameness.SAME),
        ("Alice lives in Boston.", "Alice lives with her parents.", "home", Sameness.UNCLEAR),
        ("Alice lives in Germany.", "Alice lives in Berlin.", "home", Sameness.UNCLEAR),
        ("Alice lives in Germany.", "Alice lives in Berlin, Germany.", "home", Sameness.SAME),
        ("Alice lives in Spain.", "Alice moved to Germany.", "home", Sameness.DIFFERENT),
        ("Alice lives in California.", "Alice lives in Davis.", "home", Sameness.UNCLEAR),
        ("Alice lives in California.", "Alice lives in the USA.", "home", Sameness.UNCLEAR),
        ("Alice lives in France.", "Alice lives in Europe.", "home", Sameness.UNCLEAR),
        ("Alice lives in England.", "Alice lives in the UK.", "home", Sameness.UNCLEAR),
        ("Alice lives in Germany.", "Alice: Ich wohne in Deutschland.", "home", Sameness.SAME),
        ("Alice lives in Munich.", "Alice: Ich wohne in München.", "home", Sameness.SAME),
        ("Alice lives in NYC.", "Alice moved to New York.", "home", Sameness.SAME),
        ("Alice lives in Brooklyn.", "Alice lives in New York.", "home", Sameness.UNCLEAR),
        ("Alice: 我住在海淀区。", "Alice: 我住在北京。", "home", Sameness.UNCLEAR),
        ("Alice: Ich arbeite bei Siemens.", "Alice: Ich arbeite bei Bosch.", "employer", Sameness.DIFFERENT),
        ("Alice is married.", "Alice is engaged in a lawsuit.", "relationship", Sameness.UNCLEAR),
        ("Alice is married.", "Alice is single-handedly fixing the roof.", "relationship", Sameness.UNCLEAR),
        ("Alice is married.", "Alice is separated from her sister by an ocean.", "relationship", Sameness.UNCLEAR),
        ("Alice feels worn out by a long week of deadlines.", "Alice painted a sunset over purple mountains.",
         "mind", Sameness.UNCLEAR),
        ("Alice: Ich wohne in Deutschland.", "Alice: Ich wohne in Berlin.", "home", Sameness.UNCLEAR),
        ("Alice: 我住在中国。", "Alice: 我住在北京。", "home", Sameness.UNCLEAR),
        ("Alice: Ich wohne in Berlin.", "Alice: Ich bin nach Hamburg gezogen.", "home", Sameness.DIFFERENT),
        ("Alice: J'habite à Lyon.", "Alice: J'ai déménagé à Paris.", "home", Sameness.DIFFERENT),
        ("Alice: Vivo en Madrid.", "Alice: Me mudé a Sevilla.", "home", Sameness.DIFFERENT),
        ("Alice: 我住在北京。", "Alice: 我搬到上海了。", "home", Sameness.DIFFERENT),
        ("Alice: 我住在北京。", "Alice: 我现在住在北京市。", "home", Sameness.SAME),
        ("Alice: 東京に住んでいます。", "Alice: 大阪に引っ越しました。", "home", Sameness.DIFFERENT),
        ("Alice works at Google.", "Alice now works for Siemens.", "employer", Sameness.DIFFERENT),
        ("Alice works as a nurse.", "Alice is a nurse in a children's ward.", "job", Sameness.SAME),
        ("Alice works as a nurse.", "Alice is a teacher now.", "job", Sameness.DIFFERENT),
        ("Alice is a senior engineer.", "Alice is an engineer for bridges.", "job", Sameness.UNCLEAR),
        ("Alice is vegan.", "Alice doesn't eat meat.", "diet", Sameness.SAME),
        ("Alice is vegan.", "Alice avoids gluten.", "diet", Sameness.UNCLEAR),
        ("Alice is vegetarian.", "Alice eats meat again.", "diet", Sameness.DIFFERENT),
        ("Alice is single.", "Alice got married.", "relationship status", Sameness.DIFFERENT),
        ("Alice: Ich bin ledig.", "Alice: Ich bin verheiratet.", "familienstand", Sameness.DIFFERENT),
        ("Alice is 30 years old.", "Alice is 31 years old.", "age", Sameness.DIFFERENT),
        ("Alice drives a Honda.", "Alice drives a Tesla.", "car", Sameness.DIFFERENT),
    ],
)  # fmt: skip
def test_values_are_told_apart_by_their_words(one: str, other: str, attribute: str, likeness: Sameness) -> None:
    first, second = read(one, attribute), read(other, attribute)
    known = canonical_attribute(first.key.attribute)

    assert compare(first, second, known) is likeness
    assert compare(second, first, known) is likeness


@pytest.mark.parametrize(
    ("attribute", "known"),
    [
        ("home", "home"), ("residence", "home"), ("lives in", "home"), ("current_home", "home"),
        ("wohnort", "home"),
        ("lieu de résidence", "home"), ("domicilio", "home"), ("居住地", "home"), ("arbeitgeber", "employer"),
        ("company", "employer"), ("occupation", "job"), ("alice's job", "job"),
        ("the user's current home", "home"),
        ("beruf", "job"), ("marital status", "relationship"),
        ("address", "address"), ("hometown", "hometown"), ("location", "location"), ("car", "car"),
    ],
)  # fmt: skip
def test_an_attribute_has_one_name_whatever_a_model_calls_it(attribute: str, known: str) -> None:
    assert canonical_attribute(attribute) == known


@pytest.mark.parametrize(
    "attribute",
    ["pet max", "pet dog", "hobbies", "hobby", "languages", "friend", "children", "allergies", "allergy", "skills",
     "haustier", "allergien", "idiomas", "amis", "爱好", "favorite food", "siblings",
     "status", "state", "fact", "other", "personal information", "feelings", "状态", "is", "health",
     "😀", "x" * 80],
)  # fmt: skip
def test_of_some_attributes_there_may_be_several(attribute: str) -> None:
    assert holds_several(attribute)


@pytest.mark.parametrize("entity", ["he", "She", "the person", "Someone", "friend", "他", "ich"])
def test_what_may_be_anybody_has_no_states(entity: str) -> None:
    assert read_state(a_state("Somebody lives in Boston.", "2024-01-02", entity=entity)) is None


@pytest.mark.parametrize(
    "attribute", ["home", "job", "employer", "diet", "relationship", "age", "car", "phone", "marital status"]
)
def test_of_others_there_is_one(attribute: str) -> None:
    assert not holds_several(attribute)


def test_only_the_role_of_a_state_says_how_things_are() -> None:
    assert read_state(replace(a_state("Alice moved to Boston.", "2024-01-02"), role=FactRole.PLAN)) is None
    assert read_state(replace(a_state("Alice moved to Boston.", "2024-01-02"), state=None)) is None


def test_words_of_a_state_are_hashed_under_the_users_key() -> None:
    fact = a_state("Alice lives in Boston.", "2024-01-02")
    one, other = read_state(fact, b"alice"), read_state(fact, b"bob")

    assert one is not None
    assert other is not None
    assert one.names != other.names
    assert one == read_state(fact, b"alice")
