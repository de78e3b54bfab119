"""The demo's year of conversation and the questions asked of it; content and its types, not the demo itself.

All of it is invented. The turns stand in `demo_conversation.jsonl`, one native message a line (design 4.1),
in the order in which they are published, each session ended by its `session.close`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

DEMO_USER_ID = "lena"
# The session the demo forgets; its subject is touched in no other one.
DEMO_FORGOTTEN_SESSION_ID = "2024-07-02"

_TURNS = Path(__file__).with_name("demo_conversation.jsonl")


class QuestionKind(StrEnum):
    """What makes a question hard, and therefore how its answer is judged."""

    NOW = "now"
    BEFORE = "before"
    WHEN = "when"
    ACROSS = "across"
    SECOND_LANGUAGE = "second_language"
    NEVER = "never"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that must be found: a memory from any of `turns` whose text has every word of `contains`.

    Words are compared without regard to case. `said_on` is the UTC date of the memory's `said_at`, as
    `YYYY-MM-DD`; it is given where the answer is worth nothing without its time.
    """

    turns: tuple[str, ...]
    contains: tuple[str, ...]
    said_on: str | None = None


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question and what the first memories returned for it must and must not be.

    Found kinds pass when every item of `expects` is met within the first 5 memories (several items only for
    `across`). `never` passes when no memory has the word `absent`. `forgotten` is asked twice: before
    forgetting `expects` must be met; afterwards no memory may have `absent` or a source in that session.
    """

    id: str
    kind: QuestionKind
    text: str
    expects: tuple[Evidence, ...] = ()
    absent: str | None = None


def load_conversation() -> tuple[dict[str, str], ...]:
    """Every message of the demo in publish order, ready for the bus or for `ingest`; 14 sessions of 2024.

    Times ascend and carry the offset of the place where they were said. Raises OSError when the package is
    incomplete.
    """
    with _TURNS.open(encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


_NOW = (
    DemoQuestion(
        "now-home",
        QuestionKind.NOW,
        "Which city does Lena live in now?",
        (Evidence(("d12-01",), ("Ghent",)),),
    ),
    DemoQuestion(
        "now-work",
        QuestionKind.NOW,
        "Whose maps does Lena work on these days, who is her new employer?",
        (Evidence(("d10-01", "d12-05"), ("Polderlicht",)),),
    ),
    DemoQuestion(
        "now-wedding",
        QuestionKind.NOW,
        "What is the new date on which Clara and Jun are getting married?",
        (Evidence(("d07-11", "d07-12"), ("7 September",)),),
    ),
    DemoQuestion(
        "now-iceland",
        QuestionKind.NOW,
        "Is the trip to Iceland still happening, or was it cancelled?",
        (Evidence(("d05-11",), ("Iceland", "cancelled")),),
    ),
)

_BEFORE = (
    # The running example of algorithms.md 1: neither the oldest home, Bremen, nor the latest.
    DemoQuestion(
        "before-home",
        QuestionKind.BEFORE,
        "Where did Lena live before moving to Ghent?",
        (Evidence(("d05-01",), ("Porto",), "2024-04-23"),),
    ),
    DemoQuestion(
        "before-porto",
        QuestionKind.BEFORE,
        "Before Porto, where did Lena live in a flat with a river view?",
        (Evidence(("d01-03", "d01-04"), ("Galway",), "2024-01-07"),),
    ),
    DemoQuestion(
        "before-work",
        QuestionKind.BEFORE,
        "Which firm did Lena work for before Polderlicht?",
        (Evidence(("d02-09",), ("Tidewell",), "2024-02-04"),),
    ),
    DemoQuestion(
        "before-wedding",
        QuestionKind.BEFORE,
        "On which date in June was Clara going to marry Jun, before the garden was flooded?",
        (Evidence(("d01-11", "d01-12"), ("15 June",), "2024-01-07"),),
    ),
    DemoQuestion(
        "before-iceland",
        QuestionKind.BEFORE,
        "On which day in March were Lena and Maeve first going to fly to Iceland?",
        (Evidence(("d02-11",), ("9 March",), "2024-02-04"),),
    ),
)

_WHEN = (
    DemoQuestion(
        "when-pottery",
        QuestionKind.WHEN,
        "When did Lena have her first class in pottery?",
        (Evidence(("d06-01",), ("Yesterday", "pottery"), "2024-05-22"),),
    ),
    DemoQuestion(
        "when-cork",
        QuestionKind.WHEN,
        "When did the dog swallow a cork?",
        (Evidence(("d07-01",), ("Wednesday", "cork"), "2024-06-09"),),
    ),
    DemoQuestion(
        "when-race",
        QuestionKind.WHEN,
        "When did she run the ten-kilometre race in the park, and in how many minutes?",
        (Evidence(("d13-01",), ("this morning", "58 minutes"), "2024-11-17"),),
    ),
)

_ACROSS = (
    DemoQuestion(
        "across-vets",
        QuestionKind.ACROSS,
        "Which vets has Pickle had to go to?",
        (
            Evidence(("d01-05",), ("Okafor",)),
            Evidence(("d07-03",), ("Tavares",)),
            Evidence(("d12-09",), ("Maes",)),
        ),
    ),
    DemoQuestion(
        "across-knee",
        QuestionKind.ACROSS,
        "When did the left knee hurt, when was Lena running again, and how was the knee after the race?",
        (
            Evidence(("d02-01", "d02-03"), ("knee",)),
            Evidence(("d09-11",), ("knee", "running again")),
            Evidence(("d13-03",), ("left knee",)),
        ),
    ),
    DemoQuestion(
        "across-bowls",
        QuestionKind.ACROSS,
        "Which tea bowl did Lena throw in summer, and how many bowls had she sold by the end of the year?",
        (
            Evidence(("d09-07",), ("tea bowl", "celadon")),
            Evidence(("d14-03",), ("sold", "bowls")),
        ),
    ),
)

_SECOND_LANGUAGE = (
    DemoQuestion(
        "german-present",
        QuestionKind.SECOND_LANGUAGE,
        "Was hat sich Oma Hilde zum Geburtstag gewünscht, welche Karte?",
        (Evidence(("d03-07",), ("Karte", "Weser")),),
    ),
    DemoQuestion(
        "german-tears",
        QuestionKind.SECOND_LANGUAGE,
        "Bei welchem Lied hat Lena auf der Hochzeit geweint?",
        (Evidence(("d11-05",), ("geweint", "Cello")),),
    ),
    DemoQuestion(
        "chinese-tea",
        QuestionKind.SECOND_LANGUAGE,
        "奶奶每天早上喝什么茶？",
        (Evidence(("d09-05",), ("桂花茶",)),),
    ),
)

_NEVER = (
    DemoQuestion(
        "never-motorcycle",
        QuestionKind.NEVER,
        "Where does Lena park her motorcycle in Ghent?",
        absent="motorcycle",
    ),
    DemoQuestion(
        "never-saxophone",
        QuestionKind.NEVER,
        "Which song did Jun play on the saxophone at the wedding?",
        absent="saxophone",
    ),
)

_FORGOTTEN = (
    DemoQuestion(
        "forgotten-tablets",
        QuestionKind.FORGOTTEN,
        "How many milligrams of Zelquavine does Lena take?",
        (Evidence(("d08-07", "d08-08"), ("Zelquavine", "20 milligrams")),),
        absent="Zelquavine",
    ),
    DemoQuestion(
        "forgotten-clinic",
        QuestionKind.FORGOTTEN,
        "At which private clinic did Lena wear a heart monitor?",
        (Evidence(("d08-03",), ("Ventrelle", "heart monitor")),),
        absent="Ventrelle",
    ),
)

QUESTIONS: tuple[DemoQuestion, ...] = (
    *_NOW,
    *_BEFORE,
    *_WHEN,
    *_ACROSS,
    *_SECOND_LANGUAGE,
    *_NEVER,
    *_FORGOTTEN,
)
