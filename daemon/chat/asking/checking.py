"""CHECK: whether what was found is enough for an answer; if not, what else to look for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from daemon.chat.asking.question import Question, make_prompt, read_object, read_search_text
from daemon.chat.asking.ranking import cut
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.prompts import IS_DATA, Schema, day_of, object_of
from daemon.models.query_tasks import QueryTask
from projections.ports import MemberText

# A memory may be a turn as long as a page: what it answers stands near its beginning, or it is no good one.
EVIDENCE_CHARS_MAX: Final = 600

_CHECK: Final = f"""\
You check what a search in a memory has found. The user message is one JSON object: "question", the day it is \
"asked", and "evidence", what was found, each with its number n and the time it is about. {IS_DATA}
Say whether the evidence says all that an answer needs: "enough". Do not answer, and use nothing that you know \
from elsewhere. If it is not enough, "query" is one short text to search the memory with once more, for what is \
missing: in other words than the question, with names, things and days that the evidence has brought up, in the \
language of the evidence. If it is enough, "query" is "".
Answer with JSON only:
{{"enough":false,"query":""}}"""

_SCHEMA: Final = Schema("check", object_of({"enough": {"type": "boolean"}, "query": {"type": "string"}}))


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether it is enough; if not, what to look for."""

    enough: bool
    query: str = ""


def checking_question(question: str, asked: str, evidence: Sequence[MemberText]) -> Question[Checked]:
    """Whether these texts, the best first, are enough to answer from. `asked` is the day of the question."""
    shown = [
        {"n": n, "time": day_of(each), "text": cut(each.text, EVIDENCE_CHARS_MAX)}
        for n, each in enumerate(evidence, start=1)
    ]
    content: dict[str, object] = {"question": question, "asked": asked, "evidence": shown}
    return Question(make_prompt(QueryTask.CHECK, _CHECK, content, _SCHEMA), read_check)


def read_check(text: str) -> Checked:
    """What an answer says. Raises `AnswerInvalid` and as `read_json`."""
    answer = read_object(text, "enough")
    enough = answer["enough"]
    if isinstance(enough, str) and enough.strip().casefold() in ("true", "false", "yes", "no"):
        enough = enough.strip().casefold() in ("true", "yes")
    if not isinstance(enough, bool):
        raise AnswerInvalid('"enough" is neither true nor false')
    if enough:
        return Checked(True)
    query = read_search_text(answer.get("query"))
    if not query:
        raise AnswerInvalid('"query" is empty though it is not enough')
    return Checked(False, query)
