"""Who is called what, by rule: what is said in so many words joins names, and nothing else does."""

from __future__ import annotations

import pytest

from daemon.offline.aliases import ALIASES_MAX, find_aliases
from daemon.offline.extraction import extract_facts
from daemon.offline.language_model import OfflineLanguageModel
from projections.ports import ChunkText, TurnText
from tests.builders import MONDAY


def found(text: str, speaker: str | None = "Ann", role: str = "user") -> set[tuple[str, str]]:
    """Pairs of (name, alias) in a turn."""
    return {(each.label, each.alias) for each in find_aliases([TurnText(role, speaker, MONDAY, text)])}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("Robert, who everyone calls Bob, came by.", [("Robert", "Bob")]),
        ("I met Bob (Robert) yesterday.", [("Robert", "Bob")]),
        ("My name is Elizabeth but call me Liz.", [("Elizabeth", "Liz")]),
        ("Liz is short for Elizabeth.", [("Elizabeth", "Liz")]),
        ("Dr. Müller = Anna Müller", [("Anna Müller", "Dr. Müller"), ("Anna Müller", "Müller")]),
        ("We flew to NYC, i.e. New York City.", [("New York City", "NYC")]),
        ("New York City (NYC) is loud.", [("New York City", "NYC")]),
        ("Samuel Clemens, also known as Mark Twain, wrote it.", [("Samuel Clemens", "Mark Twain")]),
        ("Robert aka Bob", [("Robert", "Bob")]),
        ("Robert (a.k.a. Bob) is here.", [("Robert", "Bob")]),
        ("My dog Maximilian, nicknamed Max, barks.", [("Maximilian", "Max")]),
        ("Robert goes by Bob.", [("Robert", "Bob")]),
        ("I go by Lizzy at work.", [("Ann", "Lizzy")]),
        ("Please call me Liz!", [("Ann", "Liz")]),
        ("Everyone calls me Lizzie.", [("Ann", "Lizzie")]),
        ("Her name is Elizabeth but everyone calls her Liz.", [("Elizabeth", "Liz")]),
        ("Robert's nickname is Bob.", [("Robert", "Bob")]),
        ("Bob's real name is Robert Smith.", [("Robert Smith", "Bob")]),
        ('Robert "Bob" Smith was there.', [("Robert", "Bob")]),
        ("Elizabeth, or Liz for short, sings.", [("Elizabeth", "Liz")]),
        ("Elizabeth, or Liz as her friends call her, sings.", [("Elizabeth", "Liz")]),
        ('We call Robert "Bob".', [("Robert", "Bob")]),
        ("NYC stands for New York City.", [("New York City", "NYC")]),
        ("So Alexander prefers to be called Sasha.", [("Alexander", "Sasha")]),
        ("I'm Katherine, but you can call me Kate.", [("Katherine", "Kate"), ("Ann", "Kate")]),
        ("Robert is also called Bob.", [("Robert", "Bob")]),
        ("Robert, better known as Bob, left.", [("Robert", "Bob")]),
        ("Robert, genannt Bob, kam.", [("Robert", "Bob")]),
        ("Robert, den alle Bob nennen, kam vorbei.", [("Robert", "Bob")]),
        ("Ich heiße Elisabeth, aber alle nennen mich Lisi.", [("Elisabeth", "Lisi")]),
        ("Lisi ist kurz für Elisabeth.", [("Elisabeth", "Lisi")]),
        ("Bob ist die Kurzform von Robert.", [("Robert", "Bob")]),
        ("Bob heißt eigentlich Robert.", [("Robert", "Bob")]),
        ("Robert, surnommé Bob, est venu.", [("Robert", "Bob")]),
        ("Je m'appelle Élisabeth mais appelle-moi Lise.", [("Élisabeth", "Lise")]),
        ("Robert, que tout le monde appelle Bob, est venu.", [("Robert", "Bob")]),
        ("Francisco, también conocido como Paco, vino.", [("Francisco", "Paco")]),
        ("Me llamo Francisco, pero todos me llaman Paco.", [("Francisco", "Paco")]),
        ("Francisco, a quien todos llaman Paco, vino.", [("Francisco", "Paco")]),
        ("李明，外号小明，来了。", [("李明", "小明")]),
        ("我的朋友李明，大家都叫他小明。", [("李明", "小明")]),
        ("我叫王小红，叫我小红就好。", [("王小红", "小红")]),
        ("北京，又名Peking。", [("北京", "Peking")]),
        ("田中さん、通称タナちゃん。", [("田中", "タナ")]),
        ("みんなは田中さんをタナと呼んでいる。", [("田中", "タナ")]),
        ("タナと呼んでください。", [("Ann", "タナ")]),
        ("IBM stands for International Business Machines.", [("International Business Machines", "IBM")]),
        ("Anna Müller (Anna) is there.", [("Anna Müller", "Anna")]),
    ],
)
def test_a_phrase_that_names_somebody_makes_an_alias(text: str, pairs: list[tuple[str, str]]) -> None:
    assert found(text) == set(pairs)


@pytest.mark.parametrize(
    "text",
    [
        "Bob and Robert went fishing.",
        "Robert called Bob yesterday.",
        "Robert, who often calls Bob, is away.",
        "My sister Anna came.",
        "Is Liz short for Elizabeth?",
        "Nobody calls me Liz.",
        "Don't call me Liz.",
        "Robert doesn't go by Bob.",
        "We visited Paris (France).",
        "Call me Monday.",
        "Call me later.",
        "Please call me back.",
        "Robert (Anna's brother) came.",
        "They call me Mom.",
        "Robert went by Boston.",
        "We called Anna Müller.",
        "If you called me Liz I would laugh.",
        "Google, i.e. Alphabet, Microsoft and Apple.",
        "Robert, Bob and Anna came.",
        "Would you call me Liz?",
        "Robert is known for Chess.",
        "Cambridge (Massachusetts) is nice.",
        "Mom, also known as Linda, came.",
        "Anna, who I call every Sunday, is fine.",
        "Anna is Bob's sister.",
        "I hate it when people call me Liz.",
        "李明和小红来了。",
        "你叫我小红吗？",
        "别叫我小红。",
        "Anna = 5",
    ],
)
def test_without_such_a_phrase_nothing_is_joined(text: str) -> None:
    assert found(text) == set()


def test_who_speaks_of_themselves_is_whom_they_introduced_or_the_speaker() -> None:
    assert found("My name is Elizabeth. Call me Liz.", "lizzy99") == {("Elizabeth", "Liz")}
    assert found("Call me Liz.", "Elizabeth") == {("Elizabeth", "Liz")}
    assert found("My full name is Anna Müller.", "Anna") == {("Anna Müller", "Anna")}
    assert found("My name is Bob.", "Anna") == set(), "she may have copied it"
    assert found("Call me Liz.", None) == set()


def test_instructions_and_tools_introduce_nobody() -> None:
    assert found("Robert, known as Bob, came.", role="system") == found("Robert aka Bob", role="tool") == set()
    assert found("Robert, known as Bob, came.", role="assistant") == {("Robert", "Bob")}


def test_a_role_is_nobodys_name() -> None:
    """Decided: "my sister" is somebody else's sister when another one speaks, and she may be one of two."""
    assert found("My sister Anna, also known as Sis, came.") == set()
    assert found("Everybody calls my boss Boss.") == set()


def test_each_pair_is_named_once_with_its_first_turn_and_their_number_is_bounded() -> None:
    turns = [TurnText("user", "Ann", MONDAY, text) for text in ("Hi.", "Robert aka Bob", "ROBERT, known as Bob.")]
    many = " ".join(f"Mister{chr(65 + n)}a goes by Nick{chr(65 + n)}a." for n in range(20))

    assert [(each.label, each.alias, each.turn) for each in find_aliases(turns)] == [("Robert", "Bob", 1)]
    assert len(find_aliases([TurnText("user", "Ann", MONDAY, many)])) == ALIASES_MAX


async def test_the_built_in_model_tells_aliases_with_its_facts() -> None:
    read = await OfflineLanguageModel().extract_facts(
        ChunkText((TurnText("user", "Ann", MONDAY, "I met Robert, who everyone calls Bob, in Oslo."),))
    )

    assert [(each.label, each.alias, each.turn) for each in read.aliases] == [("Robert", "Bob", 0)]
    assert {"Robert", "Bob", "Oslo"} <= {mention.label for mention in read.facts[0].mentions}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("我和王小明老师去了北京。", "王小明"),
        ("王先生昨天来了。", "王先生"),
        ("昨日田中さんと会いました。", "田中"),
        ("スミスさんは医者になりました。", "スミス"),
        ("小红昨天买了一只猫。", "小红"),  # who speaks, too
        ("我的朋友李明，外号大明，昨天来了。", "李明"),
        ("我的朋友李明，外号大明，昨天来了。", "大明"),
    ],
)
def test_people_that_the_rules_know_are_named_by_facts_without_capitals(text: str, label: str) -> None:
    chunk = ChunkText((TurnText("user", "Ann", MONDAY, text), TurnText("user", "小红", MONDAY, "好的。")))
    mentions = {mention.label: mention.uncertain for fact in extract_facts(chunk) for mention in fact.mentions}

    assert mentions[label] is False


@pytest.mark.parametrize(
    "text", ["皆さん、こんにちは。今日は寒かったです。", "这位教授昨天来了。", "お母さんが来ました。"]
)
def test_an_honorific_without_a_name_names_nobody(text: str) -> None:
    chunk = ChunkText((TurnText("user", "Ann", MONDAY, text),))

    assert {mention.label for fact in extract_facts(chunk) for mention in fact.mentions} <= {"Ann"}
