"""Facts of a chunk by rule: each sentence that says something, with its speaker, names, role and time.

What a sentence leaves unsaid ("Yes, last year.", "It was great.") stands behind it in brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from daemon.offline.aliases import SILENT_ROLES, find_aliases
from daemon.offline.dates import find_interval
from daemon.offline.entities import LABEL_CHARS_MAX, MENTIONS_MAX, find_mentions
from daemon.offline.fact_roles import role_of, split_states, state_of, topics_of
from daemon.offline.sentences import CJK, language_of, split_sentences
from daemon.offline.small_talk import is_only_said_to_the_other, is_question, says_nothing
from daemon.offline.third_person import in_third_person
from events.memory import ExtractedFact, Mention
from projections.facts.labels import normalise_label, occurs_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.memory import Alias
    from projections.ports import ChunkText, TurnText

# A pasted book is a reference, not ten thousand facts; its chunk stays searchable verbatim.
FACTS_PER_TURN_MAX: Final = 100
# Enough for a question; more would make the context weigh more than the answer.
CONTEXT_CHARS_MAX: Final = 200

_LEANS_BACK = re.compile(
    r"(?:(?:and|but|so|yeah|yes|oh|well),?\s+)?(?:it|it's|its|they|they're|that|that's|this|those|these|he|he's|his|she"
    r"|she's|her|them|es|sie|das|c'est|ça|eso|esto)\b|[它他她这這那]|それ|これ|彼",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"(?:yes|yeah|yep|yup|no|nope|nah|sure|definitely|absolutely|ja|nein|oui|non|sí)\b|是|对|不|没|はい|いいえ",
    re.IGNORECASE,
)
_CLOSED_QUESTION = re.compile(
    r"(?:^|[,.!]\s*)(?:are|is|was|were|do|does|did|have|has|had|can|will|would)\b|吗|ですか|ますか", re.I
)
_WORDS = re.compile(rf"[^\W{CJK}]+|[{CJK}]")
_EAST = re.compile(f"[{CJK}]")
_CALLED = re.compile(r"(?:(?<=^)|(?<=[,.!?] )|(?<=\w )|(?<=[,!]))([A-Z][\w'-]+)(?=\s*(?:[,!?.…]|$))")


@dataclass(frozen=True, slots=True)
class _Context:
    """What a sentence leans on, who else said it, the turn it stands in (None: before the chunk), its interval."""

    said: str
    by: str | None
    turn: int | None
    interval: tuple[int, int] | None

    @property
    def text(self) -> str:
        """What is said, under the name of whoever else said it."""
        return f"{self.by}: {self.said}" if self.by else self.said


@dataclass(frozen=True, slots=True)
class _Names:
    """Who else speaks in a chunk, and who is introduced in it."""

    others: tuple[str, ...]
    introduced: tuple[str, ...]


def extract_facts(chunk: ChunkText, aliases: Sequence[Alias] | None = None) -> tuple[ExtractedFact, ...]:
    """The facts of a chunk in the order of its sentences; small talk yields none.

    `aliases` are those of its turns, which are looked for when they are not given.

    A context taken from `chunk.previous` has no position in the chunk: whoever retracts that turn must
    extract this chunk again.
    """
    facts: list[ExtractedFact] = []
    aliases = find_aliases(chunk.turns) if aliases is None else aliases
    known = tuple({name: None for each in aliases for name in (each.label, each.alias)})
    before = chunk.previous
    for position, turn in enumerate(chunk.turns):
        names = _Names(_others(chunk, turn), known)
        if turn.role not in SILENT_ROLES:
            sentences = split_sentences(turn.text)
            question: _Context | None = None
            if before and sentences and _is_elliptical(sentences[0]):
                question = _question_of(before, turn, position - 1 if position else None)
            facts += _facts_of_turn(turn, position, sentences, question, names)
        before = turn
    return tuple(facts)


def speaker_of(turn: TurnText) -> str:
    """The speaker's name on one line, or the role where there is none."""
    name = " ".join((turn.speaker or "").split())[:LABEL_CHARS_MAX]
    return name or turn.role


def _others(chunk: ChunkText, turn: TurnText) -> tuple[str, ...]:
    turns = (*chunk.turns, chunk.previous) if chunk.previous else chunk.turns
    return tuple({one.speaker: None for one in turns if one.speaker and one.speaker != turn.speaker})


def _question_of(before: TurnText, turn: TurnText, position: int | None) -> _Context | None:
    """The last question of the turn before, when somebody else asked it."""
    if (before.role, before.speaker) == (turn.role, turn.speaker):
        return None
    for sentence in reversed(split_sentences(before.text)):
        if is_question(sentence):
            return _Context(
                _shortened(sentence), speaker_of(before), position, find_interval(sentence, before.said_at)
            )
    return None


def _facts_of_turn(
    turn: TurnText,
    position: int,
    sentences: list[str],
    question: _Context | None,
    names: _Names,
) -> list[ExtractedFact]:
    facts: list[ExtractedFact] = []
    last: _Context | None = None
    name = speaker_of(turn)
    for index, sentence in enumerate(part for each in sentences for part in split_states(each, name)):
        context = None
        if index == 0 and question:
            context = question
        elif last and _LEANS_BACK.match(sentence):
            context = last
        if _is_dropped(sentence, turn) and not (context is question and _answers(sentence, question)):
            continue
        interval = find_interval(sentence, turn.said_at) or (context.interval if context else None)
        facts.append(_fact(sentence, turn, position, context, interval, names))
        last = _Context(_shortened(sentence), None, position, interval)
        if len(facts) == FACTS_PER_TURN_MAX:
            break
    return facts


def _is_dropped(sentence: str, turn: TurnText) -> bool:
    """Small talk; and, unless an assistant speaks, what is only said to the other ("You did great!")."""
    if says_nothing(sentence):
        return True
    told = turn.role != "assistant" and is_only_said_to_the_other(sentence)
    return told and find_interval(sentence, turn.said_at) is None


def _fact(
    sentence: str,
    turn: TurnText,
    position: int,
    context: _Context | None,
    interval: tuple[int, int] | None,
    names: _Names,
) -> ExtractedFact:
    name = speaker_of(turn)
    text = in_third_person(sentence, name, language_of(sentence))
    state = state_of(sentence, name)
    start, end = interval or (turn.said_at, turn.said_at)
    turns = {position} if context is None or context.turn is None else {context.turn, position}
    return ExtractedFact(
        text=f"{text} [{context.text}]" if context else text,
        turns=tuple(sorted(turns)),
        time_start=start,
        time_end=end,
        role=role_of(sentence, state, quoted_source=turn.role == "assistant"),
        mentions=_mentions(name, sentence, context, names),
        topics=topics_of(sentence),
        state=state,
    )


def _mentions(name: str, sentence: str, context: _Context | None, names: _Names) -> tuple[Mention, ...]:
    """The speaker, then the names in the sentence and in what it leans on; not who is merely called."""
    found: dict[str, bool] = {name: False}
    # Where no capital shows a name it is known from who speaks, and from who was introduced.
    known = (*names.others, *names.introduced) if _EAST.search(sentence) else names.introduced
    found.update((each, False) for each in known if occurs_in(normalise_label(each), normalise_label(sentence)))
    spoken = _without_called(sentence, names.others)
    for mention in (*find_mentions(spoken), *(find_mentions(context.said) if context else ())):
        found[mention.label] = found.get(mention.label, True) and mention.uncertain
    return tuple(Mention(label, uncertain=uncertain) for label, uncertain in list(found.items())[:MENTIONS_MAX])


def _without_called(sentence: str, others: tuple[str, ...]) -> str:
    """The sentence without the partner's name where it is only called ("Thanks, Mel!")."""
    if not others:
        return sentence

    def kept(match: re.Match[str]) -> str:
        called = match[1].casefold()
        return "" if any(other.casefold().startswith(called) for other in others) else match[0]

    return _CALLED.sub(kept, sentence)


def _is_elliptical(sentence: str) -> bool:
    """Short, or begun by yes or no: an answer that needs its question."""
    words = len(_WORDS.findall(sentence))
    return words <= 6 or (words <= 9 and _ANSWER.match(sentence) is not None)


def _answers(sentence: str, question: _Context | None) -> bool:
    """Whether a bare yes or no answers a question that asks for one."""
    if question is None or not _ANSWER.match(sentence):
        return False
    return _CLOSED_QUESTION.search(question.said) is not None


def _shortened(sentence: str) -> str:
    """The sentence within the context's limit, cut at a space where there is one."""
    if len(sentence) <= CONTEXT_CHARS_MAX:
        return sentence
    cut = sentence.rfind(" ", CONTEXT_CHARS_MAX // 2, CONTEXT_CHARS_MAX)
    return sentence[: cut if cut > 0 else CONTEXT_CHARS_MAX].rstrip() + "…"
