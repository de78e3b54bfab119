"""What the stub answers to what a query asks, by shared words: a plan, a ranking, a check, an answer, a grade."""

from __future__ import annotations

import json
import re
from typing import Any, Final

# What a question consists of besides what it is about.
WORD_CHARACTERS_MIN: Final = 4
# So much of a question's words in one text, and the evidence is enough.
ENOUGH_SHARE: Final = 0.5

_WORD = re.compile(r"\w+")
_OPTION = re.compile(r"^\(([a-z])\) (.*)$", re.MULTILINE)
_NOT_KNOWN = re.compile(r"\b(?:not known|unknown|never said|not mentioned|do not know)\b")


def plan(asked: dict[str, Any]) -> str:
    """For each tree the question with what the tree is about; no time."""
    queries = [
        {"n": each["n"], "query": f"{asked['question']} {each.get('about', '')}".strip()}
        for each in asked["roots"]
    ]
    return json.dumps({"queries": queries, "time": {"kind": "none", "anchor": "", "from": "", "to": ""}})


def rank(asked: dict[str, Any]) -> str:
    """The texts that share most words with the question, those that share none left out."""
    wanted = words_of(str(asked["question"]))
    texts = [text for tree in asked["trees"] for text in tree["texts"]]
    shared = {text["n"]: len(wanted & words_of(str(text["text"]))) for text in texts}
    best = sorted((n for n, count in shared.items() if count), key=lambda n: (-shared[n], n))
    return json.dumps({"best": best[: int(asked.get("most", len(best)))]})


def check(asked: dict[str, Any]) -> str:
    """Enough when one text has half of the question's words; else those that no text has are to be looked for."""
    wanted = words_of(str(asked["question"]))
    found = [words_of(str(each["text"])) for each in asked["evidence"]]
    if any(len(wanted & words) >= ENOUGH_SHARE * len(wanted) for words in found):
        return json.dumps({"enough": True, "query": ""})
    missing = wanted.difference(*found)
    return json.dumps({"enough": False, "query": " ".join(sorted(missing or wanted)) or "more"})


def answer(asked: dict[str, Any], cited: int | None = None) -> str:
    """The text that has most of the question's words, with its number or another; none that has no such word.

    Of options in the question the letter of the one that shares most words with the memories.
    """
    wanted = words_of(str(asked["question"]))
    shared = {each["n"]: len(wanted & words_of(str(each["text"]))) for each in asked["memories"]}
    best = max(shared, key=lambda n: (shared[n], n))
    if not shared[best]:
        return json.dumps({"answer": "", "cites": []})
    if options := _OPTION.findall(str(asked["question"])):
        known = set[str]().union(*(words_of(str(each["text"])) for each in asked["memories"]))
        letter, _ = max(options, key=lambda option: len(words_of(option[1]) & known))
        return json.dumps({"answer": f"({letter})", "cites": [cited or best]})
    text = next(str(each["text"]) for each in asked["memories"] if each["n"] == best)
    return json.dumps({"answer": text, "cites": [cited or best]}, ensure_ascii=False)


def grade(asked: dict[str, Any]) -> str:
    """Right is what has the words of one gold in a row; of an abstention, what says that it is not known."""
    answer = _flat(str(asked["answer"]))
    if asked["rubric"] == "abstention":
        reason = "abstained" if _NOT_KNOWN.search(answer) else "different"
    elif any(f" {_flat(str(gold))} " in f" {answer} " for gold in asked["right"]):
        reason = "same"
    elif _NOT_KNOWN.search(answer):
        reason = "declined"
    else:
        shares = any(set(_flat(str(gold)).split()) & set(answer.split()) for gold in asked["right"])
        reason = "partial" if shares else "different"
    return json.dumps({"reason": reason, "right": reason in ("same", "abstained")})


def _flat(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def words_of(text: str) -> set[str]:
    """The longer words of a text, in lower case."""
    return {word for word in _WORD.findall(text.casefold()) if len(word) >= WORD_CHARACTERS_MIN}
