"""One way down the trees with a model: what it is asked of each level, and what becomes of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

from daemon.asking.deep.browse import Candidates, DeepBrowse
from daemon.asking.deep.calls import Asking, ModelUse
from daemon.asking.deep.levels import Part, interleave, lines_of, part_lines, question_of
from daemon.asking.deep.params import Browsing
from daemon.asking.deep.texts import ItemTexts, Placed, read_items
from daemon.chat.asking.planning import Plan, RootText, planning_question
from projections.ports import Embedder, EmbedderUnavailable
from projections.recall.slab import quantise

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.asking.standpoints import Standpoint
    from events.envelope import RecordedEvent
    from events.log import LogReader
    from projections.recall.slab import Quantised

# A part of a level that a model does not take at once is halved so often; then vectors go on.
HALVED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Means:
    """Where texts are read and by what, and what embeds what is looked for.

    `prompt_bytes_max`: of a level asked at once. `is_filtered`: some of what there is must not be shown.
    """

    at: Standpoint
    reader: LogReader
    embedder: Embedder
    prompt_bytes_max: int
    is_filtered: bool


@dataclass(frozen=True, slots=True)
class _Planning:
    """A plan that is still to be asked for, with the events that its words are in."""

    asking: Asking[Plan]
    shown: Mapping[int, RecordedEvent]


class DeepWay:
    """The way down for one question. `plan`: what a model would look for in each tree, once it said so."""

    def __init__(self, means: Means, use: ModelUse, browse: DeepBrowse, question: str, day: str) -> None:
        """`day`: of the question ("2024-07-01")."""
        self._means, self._use, self._browse = means, use, browse
        self._question, self._day = question, day
        self.plan: Plan | None = None
        self._planning: _Planning | None = None

    async def go_down(self, browsing: Browsing, *, planner: bool) -> None:
        """To the leaves. What is planned is asked together with the first level that is ranked."""
        if planner and self._use.goes_on and not self._browse.done:
            self._planning = await self._begin_planning()
        if browsing is Browsing.EMB and self._planning is not None:
            await self._ask([], {})
            await self._look_for_plan()
        while not self._browse.done:
            if browsing is Browsing.EMB or not self._use.goes_on or not await self._rank_level():
                self._browse.go_on_by_vectors()

    async def _begin_planning(self) -> _Planning | None:
        placed = [Placed(scope, item) for scope, item in self._browse.roots]
        shown = [each for each, may in zip(placed, self._browse.readable_roots, strict=True) if may]
        read = await self._read(shown)
        text_of = dict(zip(shown, read.texts, strict=True))
        roots = [
            None if (text := text_of.get(each)) is None else RootText(read.about.get(each.scope, ""), text)
            for each in placed
        ]
        if not any(roots):
            return None
        return _Planning(Asking(planning_question(self._question, self._day, roots)), read.recorded)

    async def _rank_level(self) -> bool:
        """Have a model rank a level, and go into what it chooses; False when there is nothing to go by."""
        candidates = self._browse.candidates()
        positions = candidates.positions.tolist()
        if not positions:
            return False
        if candidates.may_all:
            self._browse.go_on(positions, len(positions))
            return True
        located = self._browse.locate(positions)
        read = await self._read([Placed(scope, item) for _, scope, item in located])
        lines = lines_of(
            ((at, tree, scope) for at, (tree, scope, _) in zip(positions, located, strict=True)), read
        )
        if not lines:
            return False
        chosen = await self._choose(part_lines(lines, self._means.prompt_bytes_max), candidates, read)
        if chosen is None:
            return False
        self._browse.go_on(chosen, candidates.most)
        return True

    async def _choose(self, parts: list[Part], candidates: Candidates, read: ItemTexts) -> list[int] | None:
        """The positions that a model chooses, the best first; None when no answer came."""
        looks_for = {} if self.plan is None else self.plan.queries

        def ask_of(part: Part) -> Asking[tuple[int, ...]]:
            question = question_of(part, self._question, self._day, candidates.most, read.about, looks_for)
            return Asking(question)

        asked = [(part, ask_of(part)) for part in parts]
        await self._ask([asking for _, asking in asked], read.recorded)
        for _ in range(HALVED_MAX):
            asked, halved = _halve(asked, ask_of)
            if not halved:
                break
            await self._ask(halved, read.recorded)
        answers = [(part, asking.answer) for part, asking in asked if asking.answer is not None]
        if not answers and self._use.goes_on:
            self._use.give_up()
        return interleave(answers) if answers else None

    async def _ask(self, askings: list[Asking[Any]], shown: Mapping[int, RecordedEvent]) -> None:
        """Ask these, and with them what is still to be planned."""
        planning, self._planning = self._planning, None
        if planning is None:
            await self._use.ask(askings, shown)
            return
        await self._use.ask([planning.asking, *askings], {**shown, **planning.shown})
        self.plan = planning.asking.answer

    async def _look_for_plan(self) -> None:
        """Have vectors look for what is planned. What cannot be embedded now is looked for by the question."""
        if self.plan is None or not self._browse.has_vectors:
            return
        vectors: dict[int, Quantised] = {}

        async def embed(tree: int, query: str) -> None:
            with suppress(EmbedderUnavailable):  # `status` says what became of the embedder
                vectors[tree] = quantise((await self._means.embedder.embed_question(query)).reshape(1, -1))

        async with anyio.create_task_group() as tasks:
            for tree, query in self.plan.queries.items():
                tasks.start_soon(embed, tree, query)
        self._browse.look_for(vectors)

    async def _read(self, items: list[Placed]) -> ItemTexts:
        return await read_items(self._means.at, self._means.reader, items, is_filtered=self._means.is_filtered)


def _halve(
    asked: list[tuple[Part, Asking[tuple[int, ...]]]], ask_of: Callable[[Part], Asking[tuple[int, ...]]]
) -> tuple[list[tuple[Part, Asking[tuple[int, ...]]]], list[Asking[tuple[int, ...]]]]:
    """The questions with halves in the place of those that were too long, and these halves alone."""
    kept: list[tuple[Part, Asking[tuple[int, ...]]]] = []
    halved: list[Asking[tuple[int, ...]]] = []
    for part, asking in asked:
        halves = [(half, ask_of(half)) for half in part.halves()] if asking.too_long else []
        kept += halves or [(part, asking)]
        halved += [each for _, each in halves]
    return kept, halved
