"""A level of a way down trees as questions to a model, and what its answers say of the level. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Final

from daemon.asking.deep.texts import ItemTexts
from daemon.chat.asking.ranking import TreeTexts, cut, ranking_question

if TYPE_CHECKING:
    from daemon.chat.asking.question import Question
    from projections.facts.scopes import Scope
    from projections.ports import MemberText

# Of the texts of a level this much is asked at once, in UTF-8: some 12,000 tokens. More is asked in parts, at the
# same time.
PROMPT_BYTES_MAX: Final = 48_000
# Around each text: its number and its time.
FRAME_BYTES: Final = 50


@dataclass(frozen=True, slots=True)
class Line:
    """A text of a level: its position in the frontier, and the tree it is in."""

    position: int
    tree: int
    scope: Scope
    text: MemberText


@dataclass(frozen=True, slots=True)
class Part:
    """Lines that are asked about in one question."""

    lines: tuple[Line, ...]

    def halves(self) -> tuple[Part, ...]:
        """The same in two questions; none of what is one line."""
        middle = len(self.lines) // 2
        return (Part(self.lines[:middle]), Part(self.lines[middle:])) if middle else ()


def lines_of(located: Iterable[tuple[int, int, Scope]], read: ItemTexts) -> list[Line]:
    """The lines of a level in its order, without what has no text (any more). `located`: position, tree, scope."""
    return [
        Line(position, tree, scope, text)
        for (position, tree, scope), text in zip(located, read.texts, strict=True)
        if text is not None
    ]


def part_lines(lines: Sequence[Line], bytes_max: int = PROMPT_BYTES_MAX) -> list[Part]:
    """All lines in as few parts as keep the bound, about as large as one another."""
    sizes = [len(cut(line.text.text).encode("utf-8", "replace")) + FRAME_BYTES for line in lines]
    share = sum(sizes) / max(1, -(-sum(sizes) // bytes_max))
    parts: list[list[Line]] = []
    taken = 0
    for line, size in zip(lines, sizes, strict=True):
        if not parts or taken + size / 2 > share * len(parts):
            parts.append([])
        parts[-1].append(line)
        taken += size
    return [Part(tuple(each)) for each in parts]


def question_of(
    part: Part, question: str, asked: str, most: int, about: Mapping[Scope, str], looks_for: Mapping[int, str]
) -> Question[tuple[int, ...]]:
    """Which lines lead to the answer. `looks_for`: what the planner would look for, by tree."""
    trees = [
        TreeTexts(about.get(lines[0].scope, ""), looks_for.get(tree, ""), tuple(line.text for line in lines))
        for tree, lines in _by_tree(part.lines)
    ]
    return ranking_question(question, asked, trees, most)


def interleave(answers: Iterable[tuple[Part, Sequence[int]]]) -> list[int]:
    """The positions that were chosen, the best of each part first: parts cannot be compared with one another."""
    chosen = [[part.lines[at].position for at in answer] for part, answer in answers]
    return [position for each in zip_longest(*chosen) for position in each if position is not None]


def _by_tree(lines: Sequence[Line]) -> Iterator[tuple[int, list[Line]]]:
    for tree, group in groupby(lines, key=lambda line: line.tree):
        yield tree, list(group)
