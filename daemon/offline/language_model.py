"""The language model that is none: facts by rule, summaries and merges by choosing sentences.

Deterministic, without network or key; it never writes a word that nobody said.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from daemon.offline.joining import DATED, day_label, join_members, plain
from daemon.offline.sentences import CJK, split_sentences
from daemon.offline.small_talk import FILLERS, says_nothing
from events.decisions import PairVerdict
from projections.ports import FactsRead, PairsRead, TextWritten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.memory import Task
    from projections.ports import ChunkText, IntervalText, MemberText, PairText

# As long as a handful of facts: what a query can be compared with, and a parent can be made of.
SUMMARY_CHARS_MAX: Final = 600
# Sentences that compete for a summary; choosing costs their number times the number chosen.
CANDIDATES_MAX: Final = 400
# A day that has no sentence yet is preferred: the root of a long tree is to show all of its time.
NEW_DAY_BONUS: Final = 1.5
# Text that is read within 5 ms; more goes to a thread, off the loop.
INLINE_CHARS_MAX: Final = 1_200

_SPEAKER = re.compile(r"[^\W\d_][\w.'-]*(?: [\w.'-]+){0,3}: ")
_TERM = re.compile(rf"[^\W_{CJK}]+(?:['’-][^\W_{CJK}]+)*|(?=([{CJK}]{{2}}))")


@dataclass(frozen=True, slots=True)
class _Line:
    """A sentence with the day it belongs to ("[8 May 2023]"), who said it ("" or "Alice: ") and its terms."""

    text: str
    day: str
    speaker: str
    terms: frozenset[str]


class OfflineLanguageModel:
    """Satisfies the port `LanguageModel` by rules; the built-in choice when no endpoint is configured."""

    def __init__(self) -> None:
        self._compiled = False  # whether the patterns of extraction are there

    @property
    def name(self) -> str:
        """The rules, by number."""
        return "offline-rules-2"

    def version_of(self, task: Task) -> str:
        """Nothing: the name says all."""
        del task
        return ""

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        """The facts of a chunk, in the order of its turns; none is an answer too."""
        if self._compiled and sum(len(turn.text) for turn in chunk.turns) <= INLINE_CHARS_MAX:
            return _extract(chunk)
        read = await anyio.to_thread.run_sync(_extract, chunk)
        self._compiled = True
        return read

    async def summarise(self, interval: IntervalText) -> TextWritten:
        """The sentences that say most, in time order, each day named once; never longer than the children."""
        if sum(len(child.text) for child in interval.children) <= INLINE_CHARS_MAX:
            return TextWritten(summary_of(interval.children))
        return TextWritten(await anyio.to_thread.run_sync(partial(summary_of, interval.children)))

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        """All members one below the other, each with its day; what another one of that day contains is dropped."""
        kept = tuple(members)
        if sum(len(member.text) for member in kept) <= INLINE_CHARS_MAX:
            return TextWritten(join_members(kept), extractive=True)
        joined = await anyio.to_thread.run_sync(partial(join_members, kept))
        return TextWritten(joined, extractive=True)

    async def judge(self, pairs: Sequence[PairText]) -> PairsRead:
        """What is asked about is near by rule, and a rule has no better judgement: all of it is the same."""
        return PairsRead((PairVerdict.SAME,) * len(pairs))


def summary_of(children: Sequence[MemberText]) -> str:
    """An extractive summary of at most `SUMMARY_CHARS_MAX` characters and the length of the children.

    Greedy cover: the next sentence is the one whose terms not yet covered are said most often among the
    children, by the square root of its length; ties go to the earlier one.
    """
    budget = min(SUMMARY_CHARS_MAX, sum(len(child.text) for child in children))
    lines = _lines_of(children)
    weights = Counter(term for line in lines for term in line.terms)
    chosen: list[int] = []
    covered: set[str] = set()
    waiting = dict.fromkeys(range(len(lines)))
    while waiting:
        days = {lines[index].day for index in chosen}
        best = max(waiting, key=lambda index: (_gain(lines[index], weights, covered, days), -index))
        del waiting[best]
        if chosen and not lines[best].terms - covered:
            break
        if len(_written([lines[i] for i in sorted([*chosen, best])])) <= budget:
            chosen.append(best)
            covered |= lines[best].terms
    if chosen:
        return _written([lines[index] for index in sorted(chosen)])
    # Not even one sentence fits with its day: the first one alone, cut at the budget.
    return _cut(f"{lines[0].speaker}{lines[0].text}", budget) if lines else ""


def _extract(chunk: ChunkText) -> FactsRead:
    # The patterns of dates and names take 70 ms to compile, which no start has to wait for.
    from daemon.offline.aliases import find_aliases
    from daemon.offline.extraction import extract_facts

    aliases = find_aliases(chunk.turns)
    return FactsRead(extract_facts(chunk, aliases), aliases=aliases)


def _lines_of(children: Sequence[MemberText]) -> list[_Line]:
    """The different sentences of the children in time order, small talk left out where there is anything else."""
    found: dict[tuple[str, str], _Line] = {}
    for child in sorted(children, key=lambda one: one.time_start):
        day, speaker = day_label(child.time_start), ""
        for paragraph in child.text.splitlines():
            dated = DATED.match(paragraph)
            # A child that is a summary itself brings the days of its own sentences.
            day, speaker = (dated[1], "") if dated else (day, speaker)
            for sentence in split_sentences(paragraph[dated.end() :] if dated else paragraph):
                named = _SPEAKER.match(sentence)
                speaker = named[0] if named else speaker
                said = _cut(sentence[named.end() :] if named else sentence, SUMMARY_CHARS_MAX // 2)
                found.setdefault((day, plain(said)), _Line(said, day, speaker, _terms(said)))
    lines = list(found.values())
    telling = [line for line in lines if not says_nothing(line.text)] or lines
    # Evenly from the whole interval, not only its begin.
    step = math.ceil(len(telling) / CANDIDATES_MAX) if telling else 1
    return telling[::step]


def _terms(text: str) -> frozenset[str]:
    """Content words, and pairs of neighbouring characters in scripts without spaces."""
    terms = (match[1] or match[0].casefold() for match in _TERM.finditer(text))
    return frozenset(term for term in terms if len(term) > 1 and term not in FILLERS)


def _gain(line: _Line, weights: Counter[str], covered: set[str], days: set[str]) -> float:
    # Rounded and summed in a fixed order, so that a set's order never decides.
    told = math.fsum(math.log1p(weights[term]) for term in line.terms - covered)
    novelty = 1.0 if line.day in days else NEW_DAY_BONUS
    return round(novelty * told / math.sqrt(len(line.text) + 1), 9)


def _written(lines: list[_Line]) -> str:
    """One paragraph a day, under its date; who speaks is named when it changes."""
    paragraphs: list[str] = []
    day = speaker = ""
    for line in lines:
        # Words of nobody in particular must not seem to be the last speaker's.
        if line.day != day or (speaker and not line.speaker):
            paragraphs.append(f"{line.day} {line.speaker}{line.text}")
        else:
            named = "" if line.speaker == speaker else line.speaker
            paragraphs[-1] += f" {named}{line.text}"
        day, speaker = line.day, line.speaker
    return "\n".join(paragraphs)


def _cut(text: str, limit: int) -> str:
    """The text within the limit, at a space where there is one."""
    if len(text) <= limit:
        return text
    cut = text.rfind(" ", limit // 2, limit)
    return text[: cut if cut > 0 else limit - 1].rstrip() + "…" if limit > 0 else ""
