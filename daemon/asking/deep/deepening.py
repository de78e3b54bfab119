"""Mode `deep`: a language model plans, says level by level which nodes of the trees to go into, and whether what
was found is enough; if not, it is searched once more, for what the model says is missing.

Nothing is held while it is asked: no Memory, no reader; what it says are numbers of what it was shown, and what
they stand for is looked up anew. Whatever it does there is an answer: without it vectors and words go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import ref

from daemon.asking.answer_types import Answer, Watermark
from daemon.asking.deep.browse import DeepBrowse, Deepened
from daemon.asking.deep.calls import Asking, AsksModel, ModelUse
from daemon.asking.deep.levels import PROMPT_BYTES_MAX
from daemon.asking.deep.times import time_of
from daemon.asking.deep.types import DeepShown, RoundShown, SubQuery, TokensShown
from daemon.asking.deep.way import DeepWay, Means
from daemon.asking.explanations import Stopwatch
from daemon.asking.fallen import find_fallen
from daemon.asking.showing import Found, make_answer
from daemon.asking.tree_nodes import tree_id
from daemon.chat.asking.checking import Checked, checking_question
from daemon.folding import state_of
from events.reading import read_events
from events.time import read_iso, to_datetime
from projections.ports import EmbedderUnavailable, MemberText
from projections.recall.answering import score_all
from projections.recall.filters import NO_FILTERS
from projections.recall.forest_ranking import recall_forest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from daemon.asking.deep.params import DeepAsked
    from daemon.asking.query_params import Asked
    from daemon.asking.recalling import Recalling
    from daemon.asking.reference_dates import ReferenceDate
    from daemon.asking.standpoints import Standpoint
    from daemon.models.budget import Budget
    from events.envelope import RecordedEvent, Reference
    from events.log import EventLog, LogReader
    from projections.memory import Memory
    from projections.recall.answering import Prepared, RecallRequest
    from projections.recall.forest_ranking import Trees

# Memories whose texts are checked: more than an answer usually has.
EVIDENCE_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was found in a Memory, for as long as that stays what it was. The Memory itself is not held."""

    found: Found
    memory: ref[Memory]
    state: object

    def find_in(self, memory: Memory) -> Found | None:
        is_same = self.memory() is memory and self.state == state_of(memory)
        return self.found if is_same else None


@dataclass(frozen=True, slots=True)
class DeepFound:
    """What the model made of a question, what that took, and how it was asked.

    `kept`: what was found by that already, to be checked.
    """

    deepened: Deepened
    use: ModelUse
    shown: DeepShown
    kept: _Kept | None

    def find_in(self, memory: Memory) -> Found | None:
        """What was found in this Memory by that; None when it is yet to be found."""
        return None if self.kept is None else self.kept.find_in(memory)

    @property
    def recorded(self) -> Mapping[int, RecordedEvent]:
        """The events whose words the model was shown, and may have taken into what it wrote."""
        return self.use.shown

    def without_words(self) -> DeepFound:
        """The same without what the model wrote."""
        return replace(self, shown=replace(self.shown, sub_queries=[], searched_again=None))

    def tell(self, answer: Answer) -> Answer:
        """The answer with what the calls took, and how it came about if it explains itself."""
        usage, use = self.use.usage, self.use
        explanation = answer.explanation
        return replace(
            answer,
            rounds=sum(each.deep for each in use.rounds),
            calls=usage.calls,
            tokens=TokensShown(usage.prompt_tokens, usage.completion_tokens),
            capped=use.capped,
            fell_back=use.fell_back,
            explanation=None if explanation is None else replace(explanation, deep=self.shown),
        )


@dataclass(frozen=True, slots=True)
class Deepening:
    """Asks the model of the configuration about one question after the other."""

    log: EventLog
    reader: LogReader
    recalling: Recalling
    model: AsksModel
    budget: Budget
    prompt_bytes_max: int = PROMPT_BYTES_MAX
    # Has what wants a summary get one now: for the next question it is there.
    refresh: Callable[[Reference], None] = lambda _: None

    async def find(self, at: Standpoint, asked: Asked, how: DeepAsked) -> DeepFound:
        """What the model makes of a question that is asked there.

        Raises `LogDamaged` or `StoreUnusable`, and nothing of the model.
        """
        use = ModelUse(self.model, self.budget, self.log, at.user, how.caps)
        browse = await self._begin(at, asked)
        day = "" if asked.reference is None else _day_of(asked.reference)
        is_filtered = asked.filters != NO_FILTERS
        means = Means(at, self.reader, self.recalling.embedder, self.prompt_bytes_max, is_filtered)
        way = DeepWay(means, use, browse, asked.params.query, day)
        await way.go_down(how.browse, planner=how.planner)
        planned, plan = None if way.plan is None else time_of(way.plan.time, asked.params.query), way.plan
        deepened = Deepened(browse.reached(), time=planned)
        kept, checked = await self._check(use, at, asked, deepened, day) if use.goes_on else (None, None)
        if use.shown and await self._has_fallen(at.user, use.shown):
            # What it said may have words of that.
            deepened, plan, kept, checked = replace(deepened, time=None), None, None, None
        if checked is not None and not checked.enough:
            vector = await self._embed(checked.query) if browse.has_vectors else None
            deepened, kept = replace(deepened, again=checked.query, again_vector=vector), None
        shown = DeepShown(
            sub_queries=[
                SubQuery(tree_id(at.user, browse.roots[tree][0]), query)
                for tree, query in sorted(({} if plan is None else plan.queries).items())
            ],
            time=None if plan is None or plan.time.kind == "none" else plan.time.kind,
            rounds=[RoundShown(list(each.tasks), each.calls) for each in use.rounds],
            enough=None if checked is None else checked.enough,
            searched_again=deepened.again,
        )
        return DeepFound(deepened, use, shown, kept)

    async def _begin(self, at: Standpoint, asked: Asked) -> DeepBrowse:
        """Which trees are recalled, as without a model."""
        forest = self.recalling.forest
        async with at.use() as memory:
            if asked.params.as_of is None and memory.forest.dirty_digests():
                self.refresh(at.user)
            request = self.recalling.request_for(memory, asked, at.aim(memory))
            prepared, trees = await forest.prepare(memory, request, asked.families, Stopwatch())
            is_filtered = prepared.rows.size < len(memory.nodes) or asked.filters != NO_FILTERS
            return await forest.run(memory, partial(_recall, prepared, request, trees, is_filtered))

    async def _check(
        self,
        use: ModelUse,
        at: Standpoint,
        asked: Asked,
        deepened: Deepened,
        day: str,
    ) -> tuple[_Kept, Checked | None]:
        """What is found so far, and whether that is enough; None when no answer came, or there is nothing."""
        async with at.use() as memory:
            state = state_of(memory)
            found = await self.recalling.recall(memory, asked, at.aim(memory), Stopwatch(), deepened)
            kept = _Kept(found, ref(memory), state)
            recorded = await self.reader.read(partial(read_events, seqs=found.seqs))
        evidence = _read_evidence(found, recorded)
        if not evidence:
            return kept, None
        asking = Asking(checking_question(asked.params.query, day, evidence))
        await use.ask([asking], recorded)
        return kept, asking.answer

    async def _has_fallen(self, user: Reference, shown: Mapping[int, RecordedEvent]) -> bool:
        return bool(await self.reader.read(lambda db: len(find_fallen(db, user, shown))))

    async def _embed(self, question: str) -> NDArray[np.float32] | None:
        try:
            return await self.recalling.embedder.embed_question(question)
        except EmbedderUnavailable:
            return None  # words are there; `status` says what became of the embedder


def _day_of(reference: ReferenceDate) -> str:
    return to_datetime(reference.at).astimezone(reference.zone).date().isoformat()


def _recall(prepared: Prepared, request: RecallRequest, trees: Trees, is_filtered: bool) -> DeepBrowse:
    scores = score_all(prepared, request)
    return DeepBrowse(scores, trees, recall_forest(scores, trees), is_filtered=is_filtered)


def _read_evidence(found: Found, recorded: Mapping[int, RecordedEvent]) -> list[MemberText]:
    """The memories of an answer, the best first."""
    shown = make_answer(found, recorded, Watermark(0, 0, 0, 0.0), {}).memories[:EVIDENCE_MAX]
    return [MemberText(each.text, read_iso(each.time_start), read_iso(each.time_end)) for each in shown]
