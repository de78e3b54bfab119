"""Facts from what a model answered: checked by hand, field by field, before anything of it is believed.

Small models wrap, rename and number in ways of their own: what can only mean one thing is taken. What may mean two
is refused with a reason that tells the model what to mend, and is never taken for an answer of zero facts. Times
are read by code from the words that the model names. A fact in another language than its turn is taken as it is:
the prompt forbids it, a second call rarely mends it, and losing the fact would be worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from daemon.chat.answers import clean_text
from daemon.chat.json_text import JsonUnusable, read_all_json, read_json
from daemon.reading import times
from events.memory import ExtractedFact, FactRole, Mention, StateOf
from projections.ports import ChunkText, TurnText

# A fact is a sentence; what is longer is the chunk again, and fills a context of a few thousand characters.
FACT_CHARS_MAX: Final = 1_000
# As many as the offline rules take of a turn; more is a model that goes on for ever.
FACTS_PER_TURN_MAX: Final = 100
NAMES_MAX: Final = 12
TOPICS_MAX: Final = 3
LABEL_CHARS_MAX: Final = 80
WHEN_CHARS_MAX: Final = 80

_DIGITS = re.compile(r"\d{1,4}", re.ASCII)
_LIST_MARKS = re.compile(r"[,;、，；]")
# What models call our keys; ours stands first.
_KEYS: Final = {
    "text": ("text", "fact", "statement", "sentence", "content", "description", "memory"),
    "turns": ("turns", "turn", "n", "turn_ids"),
    "role": ("role", "type", "kind", "category"),
    "names": ("names", "entities", "mentions"),
    "topics": ("topics", "tags", "keywords"),
    "when": ("when", "time", "date"),
    "entity": ("entity", "subject"),
    "attribute": ("attribute",),
}
_ROLES: Final = {role.value: role for role in FactRole}
# What models call who speaks.
_SPEAKERS: Final = frozenset(("user", "i", "me", "myself", "speaker", "ich", "je", "yo", "我", "私"))
_LABEL_KEYS: Final = ("name", "label", "text", "value", "entity", "topic")


class AnswerInvalid(Exception):
    """An answer has not the form or the content that was asked for.

    Its text says why, for the model: no word of the answer.
    """


def read_facts(text: str, chunk: ChunkText) -> tuple[ExtractedFact, ...]:
    """The facts of an answer in the order of their turns, each once.

    Raises `AnswerInvalid`, and what `read_all_json` raises.
    """
    listed = _listed(text)
    drafts = [_read_draft(number, each, len(chunk.turns)) for number, each in enumerate(listed, start=1)]
    # The example of the prompt has an empty fact, which some models leave at the end; by itself it says nothing.
    drafts = [draft for draft in drafts if draft.text] or drafts
    # A model that repeats itself for ever is no worse than one that stops.
    drafts = list({(draft.text, draft.turns): draft for draft in reversed(drafts)}.values())[::-1]
    most = FACTS_PER_TURN_MAX * len(chunk.turns)
    if len(drafts) > most:
        raise AnswerInvalid(f"it has more than {most} facts")
    first = _first_number(drafts, chunk)
    times_read: dict[tuple[str, tuple[int, ...]], tuple[int, int]] = {}  # most facts of a turn have its time
    return join_facts([_read_fact(draft, first, chunk, times_read) for draft in drafts])


def join_facts(facts: Sequence[ExtractedFact], more: Sequence[ExtractedFact] = ()) -> tuple[ExtractedFact, ...]:
    """Both together in the order of their turns, without those that say again what one before them says."""
    seen: set[tuple[str, tuple[int, ...]]] = set()
    joined: list[ExtractedFact] = []
    for fact in (*facts, *more):
        said = (_plain(fact.text), fact.turns)
        if said not in seen:
            seen.add(said)
            joined.append(fact)
    return tuple(sorted(joined, key=lambda fact: fact.turns[0]))


def _plain(text: str) -> str:
    return text.casefold().rstrip(".!。")


def _listed(text: str) -> list[object]:
    """The facts of an answer as they came, of several values together when nothing stands between these."""
    groups = read_all_json(text, lambda value: _facts_in(value) is not None)
    found = [[fact for value in group for fact in _facts_of(value)] for group in groups]
    telling = [facts for facts in found if facts]  # an empty one was the draft, or the form
    if any(facts != telling[0] for facts in telling[1:]):
        raise AnswerInvalid("it has JSON in several places: write one object with all facts")
    return telling[0] if telling else []


def _facts_of(value: object) -> list[object]:
    facts = _facts_in(value)
    if facts is None:
        raise AnswerInvalid('it has no list under the key "facts"')
    return facts


def _facts_in(value: object) -> list[object] | None:
    """The facts in a value: under their key, under any that is the only one, a list or a fact by itself."""
    if isinstance(value, list):
        listed = cast("list[object]", value)
        return listed if all(isinstance(each, dict) for each in listed) else None
    if not isinstance(value, dict):
        return None
    raw = _folded(cast("dict[str, object]", value))
    if "facts" not in raw:
        if isinstance(_field(raw, "text"), str) and _field(raw, "turns") is not None:
            return [raw]
        only = next(iter(raw.values())) if len(raw) == 1 else None
        return _facts_in(only) if isinstance(only, list) and only else None
    facts = raw["facts"]
    if isinstance(facts, str):
        try:
            facts = read_json(facts)
        except JsonUnusable:
            return None
    if isinstance(facts, dict):
        return _facts_in(cast("dict[str, object]", facts)) if facts else None
    return cast("list[object]", facts) if isinstance(facts, list) else None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A fact as it came; `turns` are numbers as the model names them, none where it names none."""

    number: int
    text: str
    turns: tuple[int, ...]
    raw: Mapping[str, object]


def _read_draft(number: int, value: object, most: int) -> _Draft:
    if isinstance(value, str) and most == 1:
        value = {"text": value}
    if not isinstance(value, dict):
        raise AnswerInvalid(f"fact {number} is no object")
    raw = _folded(cast("dict[str, object]", value))
    said = _field(raw, "text")
    if not isinstance(said, str):
        raise AnswerInvalid(f'fact {number} has no "text"')
    text = _one_line(said)
    if len(text) > FACT_CHARS_MAX:
        raise AnswerInvalid(f"fact {number} is longer than {FACT_CHARS_MAX} characters")
    return _Draft(number, text, _read_numbers(number, _field(raw, "turns"), most), raw)


def _read_fact(
    draft: _Draft,
    first: int,
    chunk: ChunkText,
    times_read: dict[tuple[str, tuple[int, ...]], tuple[int, int]],
) -> ExtractedFact:
    if not draft.text:
        raise AnswerInvalid(f'fact {draft.number} has no "text"')
    raw = draft.raw
    turns = _place(draft, first, len(chunk.turns))
    role = _read_role(_field(raw, "role"))
    said = _one_line(_field(raw, "when")), turns
    if said not in times_read:
        times_read[said] = _read_interval(*said, chunk)
    time_start, time_end = times_read[said]
    return ExtractedFact(
        text=draft.text,
        turns=turns,
        time_start=time_start,
        time_end=time_end,
        role=role,
        mentions=tuple(Mention(label) for label in _read_labels(_field(raw, "names"), NAMES_MAX)),
        topics=_read_labels(_field(raw, "topics"), TOPICS_MAX),
        state=_read_state(raw, [chunk.turns[turn] for turn in turns]) if role is FactRole.STATE else None,
    )


def _folded(raw: dict[str, object]) -> dict[str, object]:
    return raw if all(map(str.islower, raw)) else {key.casefold(): value for key, value in raw.items()}


def _field(raw: Mapping[str, object], key: str) -> object:
    """The value under one of our keys, or under what models call it."""
    for name in _KEYS[key]:
        if (value := raw.get(name)) is not None:
            return value
    return None


def _first_number(drafts: Sequence[_Draft], chunk: ChunkText) -> int:
    """0 when a model counts the turns from 0, which only one that names no turn 1 too far can mean.

    With a turn before the chunk, which has no number, 0 may mean that one.
    """
    named = {turn for draft in drafts for turn in draft.turns}
    return 0 if 0 in named and len(chunk.turns) not in named and chunk.previous is None else 1


def _place(draft: _Draft, first: int, most: int) -> tuple[int, ...]:
    """Positions from the numbers that the turns were shown with; a chunk of one turn needs none."""
    if not draft.turns:
        if most == 1:
            return (0,)
        raise AnswerInvalid(f'fact {draft.number} has no "turns"')
    if not all(first <= turn < first + most for turn in draft.turns):
        raise AnswerInvalid(f"fact {draft.number} names a turn that is not there; their n go from 1 to {most}")
    return tuple(turn - first for turn in draft.turns)


def _read_numbers(number: int, value: object, most: int) -> tuple[int, ...]:
    """The numbers of turns, each once: 1, [1, 2], ["turn 1"], [{"n": 1}], "1, 2"."""
    turns: set[int] = set()
    for each in cast("list[object]", value) if isinstance(value, list) else [value]:
        one = cast("dict[str, object]", each).get("n") if isinstance(each, dict) else each
        if isinstance(one, str) and (digits := _DIGITS.findall(one)):
            turns.update(map(int, digits))
        elif isinstance(one, float) and one.is_integer():
            turns.add(int(one))
        elif isinstance(one, int) and not isinstance(one, bool):
            turns.add(one)
        elif one is not None and one != "":
            raise AnswerInvalid(f"fact {number} names a turn that is not there; their n go from 1 to {most}")
    return tuple(sorted(turns))


def _read_role(value: object) -> FactRole:
    word = value.strip().lower() if isinstance(value, str) else ""
    return _ROLES.get(word, FactRole.DETAIL)


def _read_interval(words: str, turns: tuple[int, ...], chunk: ChunkText) -> tuple[int, int]:
    """What the fact is about, by code; the time of its turns where nothing is said or understood."""
    said = [chunk.turns[turn] for turn in turns]
    if words and len(words) <= WHEN_CHARS_MAX:
        found = times.resolve_in(words, said[0].said_at, " ".join(turn.text for turn in said))
        if found is not None:
            return found
    return min(turn.said_at for turn in said), max(turn.said_at for turn in said)


def _read_state(raw: Mapping[str, object], turns: Sequence[TurnText]) -> StateOf | None:
    entity, attribute = _one_line(_field(raw, "entity")), _one_line(_field(raw, "attribute"))
    whose = entity.casefold().removeprefix("the ")
    if whose in _SPEAKERS:
        # Of two that speak a model calls each "I" or "user"; what an assistant says of itself is no state.
        speakers = {_one_line(turn.speaker) or "user" for turn in turns if turn.role == "user"}
        if not speakers and whose == "user":
            speakers = {"user"}
        entity = speakers.pop() if len(speakers) == 1 else ""
    if not entity or not attribute or max(len(entity), len(attribute)) > LABEL_CHARS_MAX:
        return None
    return StateOf(entity, attribute)


def _read_labels(value: object, most: int) -> tuple[str, ...]:
    """The first labels of a list, each once. They only lead to facts, so one that is no label is left out."""
    labels = dict.fromkeys(_one_line(each) for each in _label_texts(value))
    return tuple(label for label in labels if 0 < len(label) <= LABEL_CHARS_MAX)[:most]


def _label_texts(value: object) -> Iterator[object]:
    """What may be labels: in a list, in one text, in an object with a name, in one with a list of each kind."""
    match value:
        case str():
            yield from _LIST_MARKS.split(value)
        case list():
            for each in cast("list[object]", value):
                yield from [each] if isinstance(each, str) else _label_texts(each)
        case dict():
            fields = cast("dict[str, object]", value)
            named = next((fields[key] for key in _LABEL_KEYS if isinstance(fields.get(key), str)), None)
            if named is not None:
                yield named
            else:
                yield from (
                    text for each in fields.values() if isinstance(each, list) for text in _label_texts(each)
                )
        case _:
            pass


def _one_line(value: object) -> str:
    return " ".join(clean_text(value).split()) if isinstance(value, str) else ""
