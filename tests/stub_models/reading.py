"""Reads the daemon's prompts as a model would: what is asked for and of which texts; and writes the right answer.

It looks for the JSON object of the question and at what stands in it, so that the wording of a prompt may change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tests.stub_models import asking
from tests.stub_models.sentences import (
    TOPIC,
    Said,
    StubFact,
    compare,
    facts_of,
    join,
    sentences_with,
    shorten,
    spoil_text,
)
from tests.stub_models.spoiling import INJECTION

# Kinds whose right answer is a list of facts.
_FACTS: Final = ("extract", "again")
# And those whose answer is a text for others.
_TEXTS: Final = ("summarise", "merge")
# What a query asks, by the key that only this question has.
_QUERY_TASKS: Final = {
    "roots": "plan",
    "trees": "rank",
    "evidence": "check",
    "memories": "answer",
    "rubric": "grade",
}
# The answer to the daemon's probe, which asks for the colour of the sky and how many letters the word has.
PROBED: Final = '{"colour":"blue","letters":4}'


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat request. `task` is its kind, or what a repair is to mend; `prefix` never varies."""

    kind: str
    task: str
    turns: tuple[Said, ...]
    texts: tuple[str, ...]
    missing: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    characters: int
    prefix: str
    asked: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def tokens(self) -> int:
        """About four characters a token, of all messages."""
        return -(-self.characters // 4)


def read_prompt(body: dict[str, Any]) -> Prompt:
    """What a chat request asks for. Raises KeyError or TypeError for a body that is none."""
    messages = [(str(message["role"]), text_of(message["content"])) for message in body["messages"]]
    asked = next(filter(None, (find_object(text) for role, text in reversed(messages) if role == "user")), {})
    task = task_of(asked, [text for _, text in messages])
    return Prompt(
        kind="repair" if any(role == "assistant" for role, _ in messages) else task,
        task=task,
        turns=tuple(_said(turn) for turn in asked.get("turns") or () if isinstance(turn, dict)),
        texts=tuple(
            str(each["text"]) if isinstance(each, dict) else str(each) for each in asked.get("texts") or ()
        ),
        missing=tuple(map(str, asked.get("missing") or ())),
        pairs=tuple(_pair(each) for each in asked.get("pairs") or () if isinstance(each, dict)),
        characters=sum(len(text) for _, text in messages),
        prefix=messages[0][1] if messages and messages[0][0] == "system" else "",
        asked=asked,
    )


def task_of(asked: dict[str, Any], texts: Sequence[str]) -> str:
    """The kind of a question by the keys of its object."""
    if "question" in asked:
        return next((task for key, task in _QUERY_TASKS.items() if key in asked), "other")
    if "turns" in asked:
        return "again" if asked.get("missing") else "extract"
    if "texts" in asked:
        return "summarise" if "scope" in asked else "merge"
    if "pairs" in asked:
        return "judge"
    return "probe" if sum(map(len, texts)) < 2_000 else "other"


def text_of(content: object) -> str:
    """The text of a message, also of one in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def find_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, or that begins at its first brace."""
    begins = text.find("{")
    if begins < 0:
        return None
    try:
        found: Any = msgspec.json.decode(text[begins:])
    except msgspec.DecodeError:
        try:
            found, _ = json.JSONDecoder().raw_decode(text, begins)
        except ValueError:
            return None
    return found if isinstance(found, dict) else None


def mode_of(body: dict[str, Any]) -> str:
    """What the request's response_format asks of a server."""
    wanted = body.get("response_format") or {}
    match wanted.get("type"):
        case "json_schema":
            return "json_schema"
        case "json_object":
            return "json_object_schema" if "schema" in wanted else "json_object"
        case _:
            return "text"


def right_content(prompt: Prompt) -> str:
    """The content of a right answer."""
    match prompt.task:
        case "extract":
            return encode_facts(facts_of(prompt.turns))
        case "again":
            return encode_facts(sentences_with(prompt.turns, prompt.missing))
        case "summarise":
            return shorten(prompt.texts)
        case "merge":
            return join(prompt.texts)
        case "judge":
            verdicts = [{"n": n, "verdict": compare(*pair)} for n, pair in enumerate(prompt.pairs, start=1)]
            return json.dumps({"verdicts": verdicts})
        case "plan":
            return asking.plan(prompt.asked)
        case "rank":
            return asking.rank(prompt.asked)
        case "check":
            return asking.check(prompt.asked)
        case "answer":
            return asking.answer(prompt.asked)
        case "grade":
            return asking.grade(prompt.asked)
        case _:
            return PROBED


def spoilt_contents(prompt: Prompt) -> dict[str, str]:
    """What the faults make of a content that are about what was asked."""
    if prompt.task in _TEXTS:
        return {"injection": INJECTION, **spoil_text(right_content(prompt))}
    if prompt.task == "answer":
        return {"injection": INJECTION, "unknown_ids": asking.answer(prompt.asked, cited=97)}
    if prompt.task not in _FACTS:
        return {"injection": INJECTION}
    facts = facts_of(prompt.turns)
    injected = StubFact(INJECTION, ("system",), Said(1, "system", INJECTION))
    wrong_types = [{"text": 7, "turns": "one", "role": ["event"], "names": {"a": 1}, "topics": None, "when": 0}]
    return {
        "injection": encode_facts([injected]),
        "empty_facts": encode_facts([]),
        "wrong_types": json.dumps({"facts": wrong_types}),
        "unknown_ids": encode_facts([StubFact(fact.text, fact.entities, Said(97, "", "")) for fact in facts]),
    }


def encode_facts(facts: Sequence[StubFact]) -> str:
    """An answer as the extraction prompt describes it."""
    written = [
        {
            "text": fact.text,
            "turns": [fact.said.name],
            "role": "event",
            "names": list(fact.entities),
            "topics": [TOPIC],
            "when": "",
            "entity": "",
            "attribute": "",
        }
        for fact in facts
    ]
    return msgspec.json.encode({"facts": written}).decode()


def _pair(pair: dict[str, Any]) -> tuple[str, str]:
    earlier, later = (str((pair.get(key) or {}).get("text", "")) for key in ("earlier", "later"))
    return earlier, later


def _said(turn: dict[str, Any]) -> Said:
    return Said(turn.get("n"), str(turn.get("speaker", "")), str(turn.get("text", "")))
