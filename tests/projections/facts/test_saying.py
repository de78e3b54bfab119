"""Texts that no embedder need tell apart: what says the same, and what must not be taken for it."""

from __future__ import annotations

import pytest

from projections.facts.saying import read_said, say_the_same

APART = [
    ("Ann is happy with her job.", "Ann is unhappy with her job."),
    ("Ann is able to swim.", "Ann is unable to swim."),
    ("Ann likes the neighbours.", "Ann dislikes the neighbours."),
    ("Ann loves jazz.", "Ann hates jazz."),
    ("Ann bought the house.", "Ann sold the house."),
    ("Ann called before lunch.", "Ann called after lunch."),
    ("Ann waited until noon.", "Ann waited since noon."),
    ("Ann ran 5 km.", "Ann ran 5 miles."),
    ("Ann ran 5km.", "Ann ran 5m."),
    ("Ann paid $5.", "Ann paid €5."),
    ("Ann hurt her left knee.", "Ann hurt her right knee."),
    ("Ann gets up at 5 am.", "Ann gets up at 5 pm."),
    ("Ann gets up at five a.m.", "Ann gets up at five p.m."),
    ("Ann told Bob the truth.", "Bob told Ann the truth."),
    ("Ann met his sister.", "Ann met her sister."),
    ("The dog bit the man.", "The man bit the dog."),
    ("Her mother called her father.", "Her father called her mother."),
    ("Ann plans to visit Oslo.", "Ann visited Oslo."),
    ("Ann is going to visit Oslo.", "Ann visits Oslo."),
    ("Ann will visit Oslo.", "Ann visited Oslo."),
    ("Ann visits Oslo.", "Ann visited Oslo."),
    ("Does Ann smoke?", "Ann does smoke."),
    ("Ann smokes?", "Ann smokes."),
    ("Ann has a couple of cats.", "Ann has dozens of cats."),
    ("Ann has few friends.", "Ann has many friends."),
    ("Ann ate half the cake.", "Ann ate the whole cake."),
    ("Ann lives on the third floor.", "Ann lives on the fourth floor."),
    ("Ann was born on 3rd May.", "Ann was born on 4th May."),
    ("Ann may marry Bob.", "Ann marries Bob."),
    ("Ann could swim.", "Ann swims."),
    ("Ann should leave Bob.", "Ann leaves Bob."),
    ("Ann used to smoke.", "Ann smokes."),
    ("Ann stopped smoking.", "Ann smoked."),
    ("Ann is a nurse.", "Ann was a nurse."),
    ("Ann is a nurse.", "Ann has a nurse."),
    ("Ann has to leave.", "Ann leaves."),
    ("Ann was robbed.", "Ann robbed."),
    ("Ann is bored.", "Ann is boring."),
    ("Ann walked from work to school.", "Ann walked from school to work."),
    ("Ann met the boss of her friend.", "Ann met the friend of her boss."),
    ("Ann met her friend's boss.", "Ann met her boss's friend."),
    ("Ann's sister sings.", "Ann sings."),
    ("Ann bought a second car.", "Ann bought two cars."),
    ("Ann called twice.", "Ann called two."),
    ("Ann moved in with Bob.", "Ann moved out with Bob."),
    ("Ann works without a contract.", "Ann works with a contract."),
    ("Ann is careful.", "Ann is careless."),
    ("Ann studies the university.", "Ann studies the universe."),
    ("Ann is older than Bob.", "Ann is younger than Bob."),
    ("It was -5 degrees.", "It was 5 degrees."),
    ("Ann drinks tea or coffee.", "Ann drinks tea and coffee."),
    ("Ann always locks the door.", "Ann never locks the door."),
    ("Anna ist glücklich.", "Anna ist unglücklich."),
    ("Anna liebt Hunde.", "Anna hasst Hunde."),
    ("Anna kam vor dem Essen.", "Anna kam nach dem Essen."),
    ("Der Hund beißt den Mann.", "Den Hund beißt der Mann."),
    ("Anna traf seine Schwester.", "Anna traf ihre Schwester."),
    ("Anna wird Bob heiraten.", "Anna will Bob heiraten."),
    ("Anna hat das linke Knie verletzt.", "Anna hat das rechte Knie verletzt."),
    ("Anna wohnt im dritten Stock.", "Anna wohnt im vierten Stock."),
    ("Raucht Anna?", "Anna raucht."),
    ("Bob mag Anna.", "Anna mag Bob."),
    ("Anne est heureuse.", "Anne est malheureuse."),
    ("Anne aime le jazz.", "Anne déteste le jazz."),
    ("Anne est venue avant le repas.", "Anne est venue après le repas."),
    ("Il la voit.", "Il le voit."),
    ("Anne a vu son frère.", "Anne a vu leur frère."),
    ("Anne ira à Lyon.", "Anne est allée à Lyon."),
    ("Anne fume ?", "Anne fume."),
    ("Anne s'est blessée à la main gauche.", "Anne s'est blessée à la main droite."),
    ("Ana es feliz.", "Ana es infeliz."),
    ("Ana llegó antes de la cena.", "Ana llegó después de la cena."),
    ("Ana conoció al jefe del amigo.", "Ana conoció al amigo del jefe."),
    ("Ana vivía en Lima.", "Ana vive en Lima."),
    ("¿Fuma Ana?", "Fuma Ana."),
    ("Ana compró el coche.", "Ana vendió el coche."),
    ("小明喜欢狗。", "小明讨厌狗。"),
    ("狗咬人。", "人咬狗。"),
    ("小明饭前吃药。", "小明饭后吃药。"),
    ("小明抽烟吗?", "小明抽烟。"),
    ("小明可能去北京。", "小明去北京。"),
    ("小明要去北京。", "小明去了北京。"),
    ("小明比小红高。", "小红比小明高。"),
    ("小明左手受伤。", "小明右手受伤。"),
    ("他姐姐是医生。", "她姐姐是医生。"),
    ("犬が人を噛んだ。", "人が犬を噛んだ。"),
    ("アンは猫が好き。", "アンは猫が嫌い。"),
    ("アンは朝食の前に走る。", "アンは朝食の後に走る。"),
    ("アンはパリに行く。", "アンはパリに行った。"),
    ("アンは煙草を吸うか。", "アンは煙草を吸う。"),
    ("アンは右手を怪我した。", "アンは左手を怪我した。"),
]
SAME = [
    ("Ann bought a red car.", "Ann bought the red car."),
    ("Ann bought a red car.", "ann has bought a RED car"),
    ("Ann bought a red car.", "Ann has already bought a red car."),
    ("Ann drives to work.", "Ann is driving to work."),
    ("Ann likes dogs.", "Ann likes the dogs!"),
    ("Ann often swims in the lake.", "Often Ann swims in the lake."),
    ("Ann swims in the lake every Monday.", "Every Monday Ann swims in the lake."),
    ("Ann now lives in Oslo.", "Ann lives in Oslo now."),
    ("Ann moved to Oslo yesterday.", "Yesterday, Ann moved to Oslo."),
    ("Ann's favourite colour is blue.", "Ann's favorite color is blue."),
    ("Ann organised a party.", "Ann has organized a party."),
    ("Ann went to the theatre.", "Ann has gone to the theater."),
    ("Ann doesn't smoke.", "Ann does not smoke."),
    ("Ann can't swim.", "Ann cannot swim."),
    ("She's ill.", "She is ill."),
    ("Ann has two cats.", "Ann has 2 cats."),
    ("Ann ran 5 km.", "Ann ran 5km."),
    ("Ann is really happy.", "Ann is very happy."),
    ("Ann said that Bob was ill.", "Ann said Bob was ill."),
    ("Ann has stopped smoking.", "Ann stopped smoking."),
    ("Ann is studying law.", "Ann studies law."),
    ("Ann has a well-known brother.", "Ann has a well known brother."),
    ("Ann's brother sings.", "Ann’s brother sings."),
    ("Ann likes coffee, tea and milk.", "Ann likes coffee tea and milk"),
    ("In the autumn Ann runs a marathon.", "Ann runs a marathon in autumn."),
    ("Ann quickly left the room.", "Ann left the room quickly."),
    ("Anna wohnt in Wien.", "anna wohnt in wien"),
    ("Anna heißt Müller.", "Anna heisst Müller."),
    ("Anne habite à Lyon.", "anne habite à LYON"),
    ("Anne va souvent à Lyon.", "Souvent, Anne va à Lyon."),
    ("Ana vive en Lima.", "Ana vive en Lima"),
    ("Ayer Ana fue a Lima.", "Ana fue a Lima ayer."),
    ("小明买了两辆车。", "小明已经买了两辆车"),
    ("昨天小明买了车。", "小明昨天买了车。"),
    ("犬が人を噛んだ。", "人を犬が噛んだ。"),
    ("アンは昨日パリに行った。", "昨日アンはパリに行った。"),
]
# They say the same, and no rule knows it: other words, and another order of more than one part.
OTHER_WORDS = [
    ("Ann gave Bob a book.", "Ann gave a book to Bob."),
    ("Ann bought a sofa.", "Ann purchased a sofa."),
    ("Anna wohnt jetzt in Wien.", "Jetzt wohnt Anna in Wien."),
    ("Anna ging oft ins Kino.", "Oft ging Anna ins Kino."),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_texts_that_differ_in_a_word_that_counts_do_not_say_the_same(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        assert not say_the_same(read_said(first, b"key"), read_said(second, b"key"))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_how_it_is_put_makes_no_difference(one: str, other: str) -> None:
    for first, second in ((one, other), (other, one)):
        assert say_the_same(read_said(first, b"key"), read_said(second, b"key"))


@pytest.mark.parametrize(("one", "other"), OTHER_WORDS)
def test_what_is_put_in_other_words_is_left_to_a_model(one: str, other: str) -> None:
    assert not say_the_same(read_said(one), read_said(other))


def test_words_are_known_under_the_key_of_a_user_alone() -> None:
    text = "Ann likes cars."

    assert not say_the_same(read_said(text, b"one"), read_said(text, b"other"))
    assert not any(b"ann" in word for word in read_said(text).order)
