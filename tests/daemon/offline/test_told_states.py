"""Which states of its speaker a sentence sets or ends, by the built-in rules, and which it does not."""

from __future__ import annotations

import pytest

from daemon.offline.fact_roles import split_states, state_of
from events.memory import StateOf

HOME, EMPLOYER, DIET, JOB = (StateOf("Alice", attribute) for attribute in ("home", "employer", "diet", "job"))


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("I moved from Boston to Davis.", HOME),
        ("I've been living in Boston since 2019.", HOME),
        ("We just moved to Miami.", HOME),
        ("I left Boston and now live in Davis.", HOME),
        ("I don't live in Boston anymore, I live in Davis.", HOME),
        ("Ich bin im Mai von Boston nach Davis gezogen.", HOME),
        ("Wir sind nach Miami umgezogen.", HOME),
        ("J'ai récemment déménagé à Davis.", HOME),
        ("J'ai déménagé de Boston à Davis.", HOME),
        ("Je me suis installée à Davis.", HOME),
        ("Nous avons déménagé à Miami.", HOME),
        ("Vivo ahora en Miami.", HOME),
        ("Me he mudado a Davis.", HOME),
        ("Nos mudamos a Miami.", HOME),
        ("我从波士顿搬到了戴维斯。", HOME),
        ("今はマイアミに住んでいます。", HOME),
        ("Update: I moved to Tulsa.", HOME),
        ("I told you, I live in Portland now.", HOME),
        ("In June I moved to Miami.", HOME),
        ("I'm a nurse.", JOB),
        ("I live in Seattle now, since 25 May.", HOME),
        ("In May I moved to Miami.", HOME),
        ("I joined Stellar Foods on 6 May as a product manager.", EMPLOYER),
        ("I've just started at Northlight Labs as a team lead.", EMPLOYER),
    ],
)
def test_a_sentence_sets_a_state(said: str, state: StateOf) -> None:
    assert state_of(said, "Alice") == state


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("I no longer live in Boston.", HOME),
        ("I don't live in Boston anymore.", HOME),
        ("I moved away from Boston.", HOME),
        ("Ich wohne nicht mehr in Boston.", HOME),
        ("Je n'habite plus à Boston.", HOME),
        ("Ya no vivo en Boston.", HOME),
        ("我不住在波士顿了。", HOME),
        ("もうボストンには住んでいません。", HOME),
        ("I no longer work at Google.", EMPLOYER),
        ("I quit my job at Google.", EMPLOYER),
        ("I got laid off from Google.", EMPLOYER),
        ("Ich arbeite nicht mehr bei Siemens.", EMPLOYER),
        ("Je ne travaille plus chez Renault.", EMPLOYER),
        ("Ya no trabajo en Seat.", EMPLOYER),
        ("I'm no longer vegan.", DIET),
        ("Ich bin nicht mehr vegan.", DIET),
        ("Ya no soy vegana.", DIET),
    ],
)
def test_a_sentence_says_that_a_state_is_over(said: str, state: StateOf) -> None:
    assert state_of(said, "Alice") == state


@pytest.mark.parametrize(
    "said",
    [
        "I don't work at Google.",
        "I would live in Boston if I could.",
        "I'm going to move to Davis.",
        "I will no longer live in Boston next year.",
        "My sister no longer lives in Boston.",
        "You moved to Davis.",
        "Ich möchte nicht mehr in Boston wohnen.",
        "I left my keys at Google.",
        "I hope I quit my job at Google soon.",
        'My sister said: "I moved to Denver last week."',
        'Ann told me "I live in Miami now".',
        "She was like, I live in Miami now, and I was like wow.",
        "My mom thinks I moved to Texas.",
        "People think I live in Davis.",
        "There is that song: I moved to Graceland.",
        "Here is my novel: I moved to Venice in 1890.",
        "In Skyrim I live in Whiterun.",
        "In Stardew I'm married to Leah.",
        "Last night I dreamed I lived in Tokyo.",
        "Imagine I live in Paris and work as a chef.",
        "Do you think I live in Davis?",
        "I wonder whether I live in Narnia.",
        "I moved to Windows from Mac.",
        "I live in Room 12.",
        "We moved in May.",
        "I'm working with Python on a side project.",
        "I'm a good cook.",
        "My job is stressful.",
        "Ich arbeite für Geld.",
        "Meine Mutter sagt, ich lebe in Chaos.",
        "Wenn ich in Rom wohne, esse ich Eis.",
        "Mi madre dice que vivo en Babia.",
        "Si vivo en Barcelona, aprendo catalán.",
        "Si je vis à Paris un jour, tu viendras.",
        "我妈妈说我住在天上。",
        "如果我住在巴黎就好了。",
        "兄は京都に住んでいます。",
    ],
)
def test_a_wish_a_plan_and_what_others_do_set_no_state(said: str) -> None:
    assert state_of(said, "Alice") is None


def test_a_sentence_that_sets_two_states_is_read_as_two_and_no_other_is() -> None:
    both = split_states("I live in Boston, and I now work for Acme Robotics.", "Alice")
    short = split_states("I live in Boston and work for Acme Robotics.", "Alice")

    assert both == ["I live in Boston.", "I now work for Acme Robotics."]
    assert short == ["I live in Boston.", "I work for Acme Robotics."]
    for one in ("I live in Rome and work hard.", "I live in Rome and I love it.", "Rome and I work."):
        assert split_states(one, "Alice") == [one]
